//! Compute modes: who may have a context on a device.
//!
//! About the simulator: a real device gets its mode from `nvidia-smi -c`, here from `devices.toml`.

#[macro_use]
mod common;

use std::io::{BufRead as _, BufReader, Write as _};

use common::{FAST, Machine, is_child, role, start};
use turnus_bindings::types::*;

fn machine(name: &str, mode: &str) -> Machine {
    Machine::new(name, &format!("{FAST}compute_mode = \"{mode}\"\n"))
}

fn mode() -> i32 {
    let mut mode = -1;
    ok!(cuDeviceGetAttribute(&mut mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0));
    mode
}

#[test]
fn a_prohibited_device_can_be_looked_at_and_has_no_contexts() {
    let name = "a_prohibited_device_can_be_looked_at_and_has_no_contexts";
    if is_child() {
        ok!(cuInit(0));
        let (mut count, mut context, mut bytes) = (0, std::ptr::null_mut(), 0);
        ok!(cuDeviceGetCount(&mut count));
        ok!(cuDeviceTotalMem_v2(&mut bytes, 0));
        assert_eq!((count, mode()), (1, 2));
        fails!(DEVICE_UNAVAILABLE, cuCtxCreate_v2(&mut context, 0, 0));
        fails!(DEVICE_UNAVAILABLE, cuDevicePrimaryCtxRetain(&mut context, 0));
        let (mut flags, mut active) = (0, 1);
        ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!(active, 0);
        return;
    }
    assert!(start(&machine(name, "prohibited"), name, "").wait().expect("the child ends").success());
}

#[test]
fn an_exclusive_device_has_one_context_of_one_process() {
    let name = "an_exclusive_device_has_one_context_of_one_process";
    if is_child() {
        ok!(cuInit(0));
        let (mut context, mut second) = (std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(mode(), 3);
        match role().as_str() {
            "refused" => {
                fails!(DEVICE_UNAVAILABLE, cuCtxCreate_v2(&mut context, 0, 0));
                fails!(DEVICE_UNAVAILABLE, cuDevicePrimaryCtxRetain(&mut context, 0));
            }
            "holder" => {
                ok!(cuDevicePrimaryCtxRetain(&mut context, 0));
                ok!(cuDevicePrimaryCtxRetain(&mut second, 0));
                assert_eq!(context, second, "the same one again");
                fails!(DEVICE_UNAVAILABLE, cuCtxCreate_v2(&mut second, 0, 0));
                println!("holds");
                std::io::stdout().flush().expect("flushed");
                std::io::stdin().read_line(&mut String::new()).expect("a word");
            }
            _ => {
                ok!(cuCtxCreate_v2(&mut context, 0, 0));
                ok!(cuCtxDestroy_v2(context));
                ok!(cuCtxCreate_v2(&mut context, 0, 0));
            }
        }
        return;
    }
    let machine = machine(name, "exclusive_process");
    let mut holder = start(&machine, name, "holder");
    let output = BufReader::new(holder.stdout.take().expect("a pipe"));
    assert!(output.lines().any(|line| line.expect("a line").contains("holds")));
    assert!(start(&machine, name, "refused").wait().expect("the child ends").success());
    holder.kill().expect("killed");
    holder.wait().expect("dead");
    let next = start(&machine, name, "next").wait().expect("the child ends");
    assert!(next.success(), "a dead holder frees the device");
}
