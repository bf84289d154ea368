//! Machines that cannot be used, and what killed processes left: one line on stderr, the code of `cuInit` that says
//! it, nothing left behind, and never a signal.
//!
//! About the simulator alone. Which code stands for what: `opening_error` in `src/driver.rs`.

#[macro_use]
mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{FAST, Machine, allocate, context, is_child, role, start};
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

const OUT_OF_MEMORY: u32 = 2;
const OPERATING_SYSTEM: u32 = 304;
const NOT_READY: u32 = 802;
const MISMATCH: u32 = 803;

/// The body of a child: says the code of `cuInit`.
fn initialise() -> ! {
    let code = call!(cuInit(0)).map_or_else(CUerror::code, |()| 0);
    if code != 0 {
        fails!(NOT_INITIALIZED, cuDeviceGetCount(&mut 0));
    }
    println!("said: {code}");
    std::process::exit(0);
}

/// The code that a child got, and its one line on stderr.
fn told(command: &mut Command) -> (u32, String) {
    let (code, line, _) = told_and_left(command);
    (code, line)
}

/// The same, and the files that the child's machine has at the end, where it lists them.
fn told_and_left(command: &mut Command) -> (u32, String, Vec<String>) {
    let output = command.output().expect("the child runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.signal(), None, "{said}{told}");
    let code = said.lines().find_map(|line| line.split_once("said: ")?.1.parse().ok());
    let code = code.unwrap_or_else(|| panic!("{said}{told}"));
    let lines: Vec<&str> = told.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() <= 1, "{told}");
    let left = said.lines().filter_map(|line| Some(line.strip_prefix("left: ")?.to_owned())).collect();
    (code, lines.first().map_or_else(String::new, |line| (*line).to_owned()), left)
}

/// A directory that is not there yet.
fn nowhere(name: &str) -> PathBuf {
    let directory = PathBuf::from(format!("/dev/shm/simulated-driver-test-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    directory
}

#[test]
fn a_wish_for_unknown_devices_names_the_known_ones_and_leaves_nothing() {
    let name = "a_wish_for_unknown_devices_names_the_known_ones_and_leaves_nothing";
    if is_child() {
        initialise();
    }
    let machine = Machine::new(name, FAST);
    let directory = nowhere("unknown-devices");
    for wish in ["H100", "0", "17", "2xL5", "", "/etc/nothing.toml"] {
        let mut command = machine.command(name);
        command.env("SIMULATED_CUDA_DIR", &directory).env("SIMULATED_CUDA_DEVICES", wish);
        let (code, line) = told(&mut command);
        assert_eq!(code, NOT_READY, "{wish}");
        assert!(line.contains("SIMULATED_CUDA_DEVICES") && line.contains("H100-pcie5"), "{line}");
        assert!(!directory.exists(), "{wish}");
    }
}

#[test]
fn nonsense_in_the_configuration_is_named_with_its_line() {
    let name = "nonsense_in_the_configuration_is_named_with_its_line";
    if is_child() {
        initialise();
    }
    let cases: &[(&[u8], &str)] = &[
        (b"scale = 64\nmemroy = 1\n", "line 2: unknown field `memroy`"),
        (b"scale = 64\n[[devices]]\nmemory_bytes = \"many\"\n", "line 3: invalid type"),
        (b"scale = \n", "line 1: "),
        (b"scale = 0\n", "scale is 0"),
        (b"scale = 64\ndevices = []\n", "0 devices"),
        (b"[[devices]]\nmemory_bytes = 99999999999999999999\n", "line 2: "),
        (b"[[devices]]\nmemory_bytes = 9223372036854775807\n", "memory_bytes"),
        (b"scale = 1\n[[devices]]\ngranularity_bytes = 4611686018427387904\nmemory_bytes = 4611686018427387904\n", "scale"),
        (b"[[devices]]\nmemory_bytes = -1\n", "line 2: "),
        (b"[[devices]]\ncontext_cost_us = 9223372036854775807\n", "context_cost_us"),
        (b"scrub_delay_ms = 9223372036854775807\n", "scrub_delay_ms"),
        (b"[[devices]]\nmultiprocessor_count = 4294967295\n", "multiprocessor_count"),
        (b"[[devices]]\ncompute_mode = \"exclusive\"\n", "line 2: unknown variant `exclusive`"),
        (b"[[devices]]\n[[devices.mig]]\nslices = 1\n", "line 2: missing field `memory_bytes`"),
        (b"scale = 64\n# \xff\n", "UTF-8"),
    ];
    for (text, complaint) in cases {
        let machine = Machine::new(name, "");
        fs::write(machine.directory.join("devices.toml"), text).expect("devices.toml");
        let (code, line) = told(&mut machine.command(name));
        assert!(code == NOT_READY && line.contains(complaint), "{}: {code} {line}", text.escape_ascii());
        assert!(line.contains("devices.toml") || line.contains("simulated"), "{line}");
        assert_eq!(fs::read_dir(&machine.directory).expect("a directory").count(), 1, "nothing but the file");
    }
}

#[test]
fn what_is_no_configuration_file_is_refused() {
    let name = "what_is_no_configuration_file_is_refused";
    if is_child() {
        initialise();
    }
    let machine = Machine::new(name, "");
    let path = machine.directory.join("devices.toml");
    let expect = |complaint: &str| {
        let (code, line) = told(&mut machine.command(name));
        assert!(code == NOT_READY && line.contains(complaint), "{code} {line}");
    };
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a directory");
    expect("is not a file");
    fs::remove_dir(&path).expect("removed");
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    expect("is not a file");
    fs::remove_file(&path).expect("removed");
    fs::write(&path, vec![b'#'; 2 << 20]).expect("a long file");
    expect("too long");
}

#[test]
fn a_file_or_a_locked_door_in_the_place_of_the_directory_is_named() {
    let name = "a_file_or_a_locked_door_in_the_place_of_the_directory_is_named";
    if is_child() {
        if role() == "nobody" {
            // SAFETY: the process gives up its rights and goes on; it is this test's own.
            assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        }
        initialise();
    }
    let machine = Machine::new(name, FAST);
    let at = |path: &Path| {
        let mut command = machine.command(name);
        command.env("SIMULATED_CUDA_DIR", path);
        told(&mut command)
    };
    let file = machine.directory.join("devices.toml");
    for path in [&file, &file.join("below")] {
        let (code, line) = at(path);
        assert!(code == OPERATING_SYSTEM && line.contains(&*path.to_string_lossy()), "{code} {line}");
    }
    if !is_root() {
        return;
    }
    // A directory that somebody else has for himself; the library is copied to where anybody may read it.
    fs::set_permissions(&machine.directory, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("mode");
    let mut command = machine.command(name);
    command.env("SIMULATED_DRIVER_TEST_ROLE", "nobody");
    let (code, line) = told(&mut command);
    assert!(code == OPERATING_SYSTEM && line.contains("ermission denied"), "{code} {line}");
}

#[test]
fn a_machine_of_another_version_says_what_to_do() {
    let name = "a_machine_of_another_version_says_what_to_do";
    if is_child() {
        initialise();
    }
    let machine = Machine::new(name, FAST);
    assert_eq!(told(&mut machine.command(name)), (0, String::new()));
    let state = machine.directory.join("state");
    let sound = fs::read(&state).expect("the state");
    let change = |bytes: &[u8]| {
        fs::write(&state, bytes).expect("another state");
        let (code, line) = told(&mut machine.command(name));
        assert!(code == MISMATCH && line.contains("remove the directory"), "{code} {line}");
    };
    let mut other = sound.clone();
    other[8] ^= 0xff;
    change(&other);
    change(&sound[..1000]);
    change(b"");
    fs::write(&state, &sound).expect("the sound one");
    assert_eq!(told(&mut machine.command(name)).0, 0);
    // Its devices have changed under it.
    fs::write(machine.directory.join("devices.toml"), FAST.replace("4294967296", "8589934592"))
        .expect("written");
    let (code, line) = told(&mut machine.command(name));
    assert!(code == NOT_READY && line.contains("other devices"), "{code} {line}");
}

#[test]
fn processes_that_are_killed_at_any_moment_leave_a_machine_that_works() {
    let name = "processes_that_are_killed_at_any_moment_leave_a_machine_that_works";
    if is_child() {
        context();
        let mut event = std::ptr::null_mut();
        ok!(cuEventCreate(&mut event, 6));
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        ok!(cuIpcGetEventHandle(&mut handle, event));
        if role() == "last" {
            let (mut free, mut total) = (0, 0);
            ok!(cuMemGetInfo_v2(&mut free, &mut total));
            assert_eq!(total - free, 1 << 20, "the dead hold nothing");
            return;
        }
        loop {
            let address = allocate(1 << 20);
            ok!(cuMemsetD8_v2(address, 1, 1 << 20));
            ok!(cuMemFree_v2(address));
        }
    }
    let machine = Machine::new(name, FAST);
    for round in 0..40_u64 {
        if round % 10 == 0 {
            // Begin anew, so that the making of the machine is interrupted, too.
            for file in fs::read_dir(&machine.directory).expect("a directory") {
                let path = file.expect("an entry").path();
                if !path.ends_with("devices.toml") {
                    fs::remove_file(path).expect("removed");
                }
            }
        }
        let mut children: Vec<Child> = (0..2).map(|_| start(&machine, name, "")).collect();
        // From before its first instruction until well after its first allocation.
        std::thread::sleep(std::time::Duration::from_micros(1500 * (round % 10) * (round % 10)));
        for child in &mut children {
            child.kill().expect("killed");
            child.wait().expect("dead");
        }
    }
    let mut last = machine.command(name);
    last.env("SIMULATED_DRIVER_TEST_ROLE", "last").stdin(Stdio::null());
    assert!(last.status().expect("the child runs").success());
    let mut left: Vec<String> = fs::read_dir(&machine.directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with("event-"))
        .collect();
    left.sort();
    assert_eq!(left, ["alive", "devices.toml", "memory-0", "state"]);
    let events = fs::read_dir(&machine.directory).expect("a directory").count() - left.len();
    assert!(events <= 1, "{events} files of events: those of the killed are gone");
}

fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Runs a child with the machine on a file system of this size; `None` where that cannot be had.
fn on_small_file_system(
    machine: &Machine,
    test: &str,
    role: &str,
    size: &str,
) -> Option<(u32, String, Vec<String>)> {
    let script = format!(
        "mount -t tmpfs -o size={size} tmpfs \"$SIMULATED_CUDA_DIR\" && cp \"$1\" \"$SIMULATED_CUDA_DIR/devices.toml\" \
         && shift && \"$@\"; code=$?; ls -A \"$SIMULATED_CUDA_DIR\" | sed 's/^/left: /'; exit $code"
    );
    let inner = machine.command(test);
    let configuration = machine.directory.with_extension("toml");
    fs::write(&configuration, FAST).expect("written");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]).arg(&configuration);
    command.arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("SIMULATED_DRIVER_TEST_ROLE", role);
    let can = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
    let result = can.is_ok_and(|status| status.success()).then(|| told_and_left(&mut command));
    let _ = fs::remove_file(configuration);
    result
}

#[test]
fn a_full_file_system_is_an_error_and_not_a_signal() {
    let name = "a_full_file_system_is_an_error_and_not_a_signal";
    if is_child() {
        if role() == "open" {
            initialise();
        }
        // 20 MiB hold the tables; the device has 64 MiB that are not there.
        context();
        let mut code = 0;
        for _ in 0..60 {
            let mut address = 0;
            let taken = call!(cuMemAlloc_v2(&mut address, 1 << 20));
            let used = taken.and_then(|()| call!(cuMemsetD8_v2(address, 1, 1 << 20)));
            if let Err(error) = used.and_then(|()| call!(cuCtxSynchronize())) {
                code = error.code();
                break;
            }
        }
        println!("said: {code}");
        return;
    }
    let machine = Machine::new(name, FAST);
    let Some((code, line, left)) = on_small_file_system(&machine, name, "open", "1m") else {
        eprintln!("no right to mount: a full file system cannot be had");
        return;
    };
    assert!(code == OUT_OF_MEMORY && line.contains("No space left"), "{code} {line}");
    assert_eq!(left, ["devices.toml"]);
    let (code, line, _) = on_small_file_system(&machine, name, "use", "20m").expect("as before");
    assert!(code == OUT_OF_MEMORY || code == 700, "{code} {line}");
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_not_a_signal() {
    let name = "a_limit_on_the_size_of_files_is_an_error_and_not_a_signal";
    if is_child() {
        initialise();
    }
    let machine = Machine::new(name, FAST);
    let inner = machine.command(name);
    let directory = nowhere("file-limit");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 1024; exec \"$@\"", "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("SIMULATED_CUDA_DIR", &directory);
    let (code, line) = told(&mut command);
    assert!(code == OUT_OF_MEMORY && line.contains("File too large"), "{code} {line}");
    assert!(!directory.exists(), "nothing is left");
}
