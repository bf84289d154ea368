//! The tables that the CUDA runtime asks for, in the order in which it does.
//!
//! Names are descriptions, not NVIDIA's. The numbers of slots are those that runtimes were seen to call; each
//! goes through `call::run`, so a trace shows it.

use std::ffi::c_void;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{Table, storage};
use crate::call;
use crate::entry::{cuDevicePrimaryCtxRetain, cuModuleLoadData};

/// Where a table is.
type Address = fn() -> *const c_void;

/// Tables by identifier.
pub static TABLES: &[(u128, Address)] = &[
    (0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9, || RUNTIME.address()),
    (0xa094798c_2e74_2e74_93f2_0800200c0a66, || HOOKS.address()),
    (0x42d85a81_23f6_cb47_8298_f6e78a3aecdc, || TOOLS.address()),
    (0xc693336e_1121_df11_a8c3_68f355d89593, || STORAGE.address()),
    (0x21318c60_9714_3248_8ca6_41ff7324c8f2, || NEWER.address()),
    (0x263e8860_7cd2_6143_92f6_bbd5006dfa7e, || CHECKS.address()),
    (0xd4082055_bde6_704b_8d34_ba123c66e1f2, || VALIDITY.address()),
];

static RUNTIME: Table<13> = Table::new(&[
    (1, load_module as *const c_void),
    (2, primary_context as *const c_void),
    (6, load_fat_binary as *const c_void),
    (7, loaded as *const c_void),
    (12, load_compilers as *const c_void),
]);
static HOOKS: Table<7> =
    Table::new(&[(2, function_hooks as *const c_void), (6, other_hooks as *const c_void)]);
static TOOLS: Table<4> = Table::new(&[]);
/// Has no size in front and ends with null.
static STORAGE: Table<4> = Table([
    put_value as *const c_void,
    remove_value as *const c_void,
    get_value as *const c_void,
    std::ptr::null(),
]);
/// Asked for from 13.x on, before anything of it is called.
static NEWER: Table<32> = Table::new(&[]);
static CHECKS: Table<4> = Table::new(&[(3, no_check as *const c_void)]);
/// The question whether this is NVIDIA's driver.
static VALIDITY: Table<3> = Table::new(&[(1, no_answer as *const c_void)]);

/// Defines slots, with what a trace calls them.
macro_rules! slot {
    ($(fn $name:ident[$label:literal]($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[allow(unused_unsafe, reason = "some bodies follow no pointer")]
        unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            // SAFETY: the runtime passes pointers that are null or valid for what the slot says.
            call::run($label, || unsafe { $body })
        }
    )*};
}

slot! {
    fn load_module["CUDART[1]"](module: *mut CUmodule, image: *const c_void) {
        cuModuleLoadData(module, image)
    }

    fn primary_context["CUDART[2]"](context: *mut CUcontext, device: CUdevice) {
        cuDevicePrimaryCtxRetain(context, device)
    }

    // The image is the wrapper that the compiler put into the program. What the other three are is unknown; the
    // runtime passes zeros.
    fn load_fat_binary["CUDART[6]"](
        module: *mut CUmodule,
        image: *const c_void,
        _first: *const c_void,
        _second: *const c_void,
        _third: usize,
    ) {
        cuModuleLoadData(module, image)
    }

    // Follows the loads; nothing that depends on it was ever seen.
    fn loaded["CUDART[7]"](_what: usize) {
        Ok(())
    }

    // The compiler of PTX is part of this driver.
    fn load_compilers["CUDART[12]"](_what: usize) {
        Ok(())
    }

    fn function_hooks["TOOLS_HOOKS[2]"](hooks: *mut *const c_void, count: *mut usize) {
        no_hooks(&NO_FUNCTION_HOOKS, hooks, count)
    }

    fn other_hooks["TOOLS_HOOKS[6]"](hooks: *mut *const c_void, count: *mut usize) {
        no_hooks(&NO_OTHER_HOOKS, hooks, count)
    }

    fn put_value["STORAGE[0]"](
        context: CUcontext,
        key: *mut c_void,
        value: *mut c_void,
        end: Option<storage::End>,
    ) {
        storage::put(context, key as usize, value as usize, end)
    }

    fn remove_value["STORAGE[1]"](context: CUcontext, key: *mut c_void) {
        storage::remove(context, key as usize)
    }

    fn get_value["STORAGE[2]"](value: *mut *mut c_void, context: CUcontext, key: *mut c_void) {
        if value.is_null() {
            return Err(CUerror::INVALID_VALUE);
        }
        value.write(storage::get(context, key as usize)? as *mut c_void);
        Ok(())
    }

    // The question stays without an answer, whatever is asked: nothing is written. The runtime then says that it
    // could not establish the driver's validity, which is true.
    fn no_answer["VALIDITY[1]"]() {
        Ok(())
    }

    // Its answer is a number, not a status: 0, nothing to check.
    fn no_check["CONTEXT_CHECKS[3]"]() {
        Ok(())
    }
}

/// Whether a tool wants to hear of calls of the runtime, a word per function: none does.
static NO_FUNCTION_HOOKS: [u64; 1024] = [0; 1024];
/// The same for other events, a byte each.
static NO_OTHER_HOOKS: [u8; 14] = [0; 14];

/// # Safety
/// The pointers are null or valid for writing.
unsafe fn no_hooks<T>(none: &'static [T], hooks: *mut *const c_void, count: *mut usize) -> CUresult {
    if hooks.is_null() || count.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe {
        hooks.write(none.as_ptr().cast());
        count.write(none.len());
    }
    Ok(())
}
