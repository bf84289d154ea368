//! MIG devices: what a process sees of them, and memory that is theirs alone.
//!
//! About the simulator, whose `devices.toml` divides devices; what is seen is as the MIG user guide has it.

#[macro_use]
mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use common::{FAST, Machine, allocate, context, is_child, role, text};
use turnus_bindings::types::*;

const MEBIBYTE: usize = 1 << 20;

/// A whole device, and one divided into 32 and 16 MiB.
fn machine(name: &str) -> Machine {
    let device = &FAST[FAST.find("[[").expect("a device")..];
    let part = |slices: u32, mebibytes: u64, processors: u32| {
        format!(
            "[[devices.mig]]\nslices = {slices}\nmemory_bytes = {}\nmultiprocessor_count = {processors}\n",
            (mebibytes * 64) << 20
        )
    };
    Machine::new(name, &format!("{FAST}{device}name = \"Card\"\n{}{}", part(3, 32, 42), part(1, 16, 14)))
}

fn child(machine: &Machine, name: &str, role: &str, visible: Option<&str>) -> Command {
    let mut command = machine.command(name);
    command.env("SIMULATED_DRIVER_TEST_ROLE", role).env_remove("CUDA_VISIBLE_DEVICES");
    command.envs(visible.map(|visible| ("CUDA_VISIBLE_DEVICES", visible)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

fn count() -> i32 {
    let mut count = -1;
    ok!(cuDeviceGetCount(&mut count));
    count
}

fn name() -> String {
    let mut name = [0_i8; 64];
    ok!(cuDeviceGetName(name.as_mut_ptr(), 64, 0));
    text(name.as_ptr())
}

fn hex(uuid: CUuuid) -> String {
    uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect()
}

fn uuid() -> String {
    let mut uuid = CUuuid { bytes: [0; 16] };
    ok!(cuDeviceGetUuid_v2(&mut uuid, 0));
    hex(uuid)
}

/// What a process says of the device that it sees.
fn seen(machine: &Machine, test: &str, visible: Option<&str>) -> String {
    let output = child(machine, test, "look", visible).output().expect("the child runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = said.lines().find_map(|line| Some(line.split_once("seen: ")?.1.to_owned()));
    found.unwrap_or_else(|| panic!("{said}\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_process_sees_one_mig_device_and_nothing_else() {
    let test = "a_process_sees_one_mig_device_and_nothing_else";
    if is_child() {
        match call!(cuInit(0)) {
            Ok(()) => println!("seen: {} {} {}", count(), name(), uuid()),
            Err(code) => println!("seen: {}", code.code()),
        }
        return;
    }
    let machine = machine(test);
    let look = |visible: &str| seen(&machine, test, Some(visible));
    let (first, second) = (look("1"), seen(&machine, test, None));
    assert!(first.starts_with("1 Card MIG 3g.2gb "), "the first part stands for its device: {first}");
    assert_eq!(second, first, "with a MIG device in sight, the whole one is not enumerated");
    assert!(look("0").starts_with("1 Simulated GPU"), "{}", look("0"));
    assert_eq!(look("0,1"), first, "nor when it is named");

    let digits = first.rsplit(' ').next().expect("a UUID");
    let full = format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    );
    assert_eq!(look(&format!("MIG-{full}")), first);
    assert_eq!(look(&format!("MIG-{}", &digits[..6])), first, "abbreviated");
    assert_eq!(look(&format!("GPU-{full}")), "100", "it is no whole device: none is left");
    // The parts of default devices: the first bytes of the whole one's UUID, changed by their number.
    let mut other = u32::from_str_radix(&digits[..4], 16).expect("hex");
    other ^= 1 ^ 2;
    let part = look(&format!("MIG-{other:04x}"));
    assert!(part.starts_with("1 Card MIG 1g.1gb "), "{part}");
    assert_eq!(look(&format!("MIG-{other:04x},MIG-{full}")), part, "the first of several");
    let parent = u32::from_str_radix(&digits[..4], 16).expect("hex") ^ 0x8001;
    let parent = format!("GPU-{parent:04x}{}", &full[4..]);
    assert_eq!(look(&parent), first, "the whole one by its UUID");
    assert_eq!(look(&format!("MIG-{parent}/2/0")), part, "by the ids of its instances");
    assert_eq!(look(&format!("MIG-{parent}/3/0")), "100");
    assert_eq!(look("MIG-ffff"), "100");
}

#[test]
fn a_mig_device_has_memory_and_multiprocessors_of_its_own() {
    let test = "a_mig_device_has_memory_and_multiprocessors_of_its_own";
    if is_child() {
        context();
        let (mut free, mut total, mut processors) = (0, 0, 0);
        ok!(cuMemGetInfo_v2(&mut free, &mut total));
        ok!(cuDeviceGetAttribute(&mut processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
        let expected = if role() == "first" { (32, 42) } else { (16, 14) };
        assert_eq!((total / MEBIBYTE, processors), expected);
        assert_eq!(free, total - MEBIBYTE, "nobody else is on it");
        let (mut whole, mut address) = (CUuuid { bytes: [0; 16] }, 0);
        ok!(cuDeviceGetUuid(&mut whole, 0));
        assert_ne!(hex(whole), uuid(), "the first version knows no MIG devices");
        allocate(free - MEBIBYTE);
        fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, 2 * MEBIBYTE));
        println!("ready");
        std::io::stdin().read_line(&mut String::new()).expect("the end of the input");
        return;
    }
    let machine = machine(test);
    let mut children = Vec::new();
    let second = format!("MIG-{}/2/0", uuid_of_the_second(&machine));
    for (role, visible) in [("first", "1"), ("second", &second)] {
        let mut child = child(&machine, test, role, Some(visible)).spawn().expect("the child runs");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let ready = output.by_ref().lines().any(|line| line.is_ok_and(|line| line.contains("ready")));
        assert!(ready, "{role}");
        children.push((child, output));
    }
    for (mut child, _output) in children {
        drop(child.stdin.take());
        assert!(child.wait().expect("the child ends").success());
    }
}

/// The UUID of the second whole device.
fn uuid_of_the_second(machine: &Machine) -> String {
    let arena = turnus_simulated_arena::Arena::open_at(&machine.directory).expect("the machine");
    arena.devices()[1].uuid_text()
}

#[test]
fn parts_are_lost_with_their_device() {
    let test = "parts_are_lost_with_their_device";
    if is_child() {
        if role() == "later" {
            ok!(cuInit(0));
            assert!(name().starts_with("Simulated GPU"), "the whole device is what is left");
            return;
        }
        context();
        ok!(cuMemsetD8_v2(allocate(64), 0, 64));
        let directory = std::env::var("SIMULATED_CUDA_DIR").expect("set for the child");
        std::fs::write(format!("{directory}/lost-1"), "").expect("the marker");
        std::thread::sleep(std::time::Duration::from_millis(50));
        fails!(UNKNOWN, cuCtxSynchronize());
        return;
    }
    let machine = machine(test);
    assert!(child(&machine, test, "now", Some("1")).status().expect("the child runs").success());
    assert!(child(&machine, test, "later", None).status().expect("the child runs").success());
}
