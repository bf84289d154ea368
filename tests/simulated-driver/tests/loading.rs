//! Memory of code that is loaded lazily or eagerly: none before it is needed, or at once.
//!
//! About the simulator: how much memory a module takes is not documented.

#[macro_use]
mod common;

use common::code::{first_function, library, module};
use common::{FAST, Machine, context, is_child, role, start};

/// Bytes of code of a module: 2 MiB / 64.
const CODE: usize = 32 << 10;

fn used() -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    total - free
}

#[test]
fn code_takes_memory_when_it_is_loaded() {
    let name = "code_takes_memory_when_it_is_loaded";
    if is_child() {
        context();
        let before = used();
        let module = module();
        let at_load = used() - before;
        ok!(cuFuncLoad(first_function(module)));
        assert_eq!(used() - before, CODE);
        assert_eq!(at_load, if role() == "EAGER" { CODE } else { 0 });
        ok!(cuModuleUnload(module));
        assert_eq!(used(), before);
        fails!(INVALID_HANDLE, cuModuleUnload(module));
        // A library is in all contexts at once, or in none.
        let (library, mut second) = (library(), std::ptr::null_mut());
        let per_context = if role() == "EAGER" { CODE } else { 0 };
        assert_eq!(used() - before, per_context);
        ok!(cuCtxCreate_v2(&mut second, 0, 0));
        assert_eq!(used() - before, (1 << 20) + 2 * per_context, "a new context and the library in it");
        ok!(cuLibraryUnload(library));
        assert_eq!(used() - before, 1 << 20);
        return;
    }
    let machine = Machine::new(name, FAST);
    for mode in ["LAZY", "EAGER", "DEFAULT"] {
        let mut command = machine.command(name);
        command.env("SIMULATED_DRIVER_TEST_ROLE", mode).env("CUDA_MODULE_LOADING", mode);
        assert!(command.status().expect("the child runs").success(), "{mode}");
    }
    assert!(start(&machine, name, "unset").wait().expect("the child ends").success(), "lazy by default");
}
