//! Four tenants on two devices that hold two of them, for a given time and with a given seed: random
//! work with a byte-exact model, tenants killed at any moment (also while their bytes move), a
//! daemon killed and restarted.
//!
//! No byte may be wrong, physical use may never pass what the device has, and everything is free at
//! the end. `TURNUS_STRESS_SECONDS` and `TURNUS_SEED` choose length and seed; a failure prints both.
//! The seed fixes what programs do and what is killed in which order; the machine's timing it cannot.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use turnus_tests::{Program, Road, Sandbox, Setup, compile};

/// Evict orders that a run must have seen, and how many of them left the tenant something.
const EVICTIONS_MIN: usize = 1000;
const PARTIAL_MIN: usize = EVICTIONS_MIN / 3;
/// A run that has not seen them after this many times its length is stuck.
const PATIENCE: u32 = 10;
const DEVICE_BYTES: u64 = 16 << 20;
const TENANT_BYTES: u64 = 8 << 20;
/// Devices of the four tenants.
const DEVICES: [&str; 4] = ["0", "1", "0,1", "0,1"];

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

struct Stress {
    sandbox: Sandbox,
    program: PathBuf,
    random: Random,
    stop_file: PathBuf,
    tenants: Vec<Program>,
    started: u64,
    killed: u64,
    killed_while_moving: u64,
    /// Logs of the daemons that were killed.
    logs: Vec<String>,
}

impl Stress {
    fn new(seed: u64) -> Stress {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let quantum_ms = (8 + random.below(20)).to_string();
        let handle_bytes = ["64K", "512K", "2M"][random.below(3) as usize];
        let scrub_delay_ms = [0, 2, 10][random.below(3) as usize];
        println!("stress: quantum {quantum_ms} ms, handles of {handle_bytes}, scrubbing {scrub_delay_ms} ms");
        let setup = Setup { devices: 2, device_bytes: DEVICE_BYTES, scrub_delay_ms, ..Setup::default() };
        let sandbox = Sandbox::new(setup.daemon(&[
            "--quantum-ms",
            &quantum_ms,
            "--handle-bytes",
            handle_bytes,
            "--recovery-ms",
            "1000",
        ]));
        let stop_file = sandbox.folder().join("stop");
        let program = compile("stress", Road::ProcAddress);
        let mut stress = Stress {
            sandbox,
            program,
            random,
            stop_file,
            tenants: Vec::new(),
            started: 0,
            killed: 0,
            killed_while_moving: 0,
            logs: Vec::new(),
        };
        for devices in DEVICES {
            let tenant = stress.start(devices);
            stress.tenants.push(tenant);
        }
        stress
    }

    fn start(&mut self, devices: &str) -> Program {
        self.started += 1;
        let (bytes, seed) = (TENANT_BYTES.to_string(), self.random.below(1 << 40).to_string());
        let stop = self.stop_file.to_string_lossy().into_owned();
        let arguments = ["--how", devices, "--bytes", &bytes, "--seed", &seed, "--stop-file", &stop];
        let name = format!("t{}", self.started);
        let mut command = self.sandbox.under_with(&["--name", &name], &self.program);
        command.args(arguments);
        self.sandbox.start(&name, command)
    }

    /// No tenant ends by itself, and no device is fuller than it is large.
    fn look(&mut self) {
        for tenant in &mut self.tenants {
            assert!(tenant.is_running(), "{}\n{}", tenant.describe(), self.sandbox.dump());
        }
        for device in 0..2 {
            let used = self.sandbox.used_bytes(device);
            assert!(
                used <= DEVICE_BYTES,
                "{used} bytes are in use on device {device}\n{}",
                self.sandbox.dump()
            );
        }
        let Some(status) = self.sandbox.look() else { return };
        for device in status.devices {
            assert_eq!(device.quarantined, None, "{}", self.sandbox.dump());
            // Capacity falls when a context is made, so the device itself is the bound here.
            let fits = device.resident_bytes <= device.total_bytes;
            assert!(fits, "credits for more than there is: {device:?}\n{}", self.sandbox.dump());
        }
    }

    fn kill_one(&mut self) {
        let victim = self.random.below(4) as usize;
        let want_moving = self.random.below(2) == 0;
        if want_moving {
            // Half of the kills hit somebody whose bytes are on their way, if that happens soon.
            let name = self.tenants[victim].name.clone();
            let deadline = Instant::now() + Duration::from_millis(300);
            while Instant::now() < deadline {
                let status = self.sandbox.look();
                let is_moving = status.is_some_and(|status| {
                    let mut lines = status.tenants.iter().filter(|tenant| tenant.name == name);
                    lines.any(|tenant| matches!(tenant.state.as_str(), "evicting" | "restoring"))
                });
                if is_moving {
                    self.killed_while_moving += 1;
                    break;
                }
            }
        }
        self.tenants[victim].kill();
        self.killed += 1;
        self.tenants[victim] = self.start(DEVICES[victim]);
    }

    fn restart_daemon(&mut self) {
        // `turnus run` refuses to start a program without a daemon; let it become the program first.
        for tenant in &self.tenants {
            let link = format!("/proc/{}/exe", tenant.pid());
            self.sandbox.wait_for("start of the program", &mut [], |_| {
                std::fs::read_link(&link).is_ok_and(|program| program == self.program).then_some(())
            });
        }
        self.sandbox.kill_daemon();
        self.logs.push(self.sandbox.daemon_log());
        sleep(Duration::from_millis(self.random.below(300)));
        self.sandbox.start_daemon();
    }

    /// All evict orders so far: bytes ordered, and bytes that the member had.
    fn evictions(&self) -> Vec<(u64, u64)> {
        let log = self.sandbox.daemon_log();
        let lines = self.logs.iter().chain([&log]).flat_map(|log| log.lines());
        lines
            .filter_map(|line| line.split_once("evict: "))
            .filter_map(|(_, text)| parse_order(text))
            .collect()
    }

    fn finish(mut self) -> (Vec<(u64, u64)>, BTreeMap<&'static str, u64>) {
        std::fs::write(&self.stop_file, "").expect("the stop file can be written");
        let mut tenants = std::mem::take(&mut self.tenants);
        let mut operations = 0;
        for tenant in &mut tenants {
            let outcome = self.sandbox.wait(tenant);
            outcome.assert_right();
            operations += outcome.value("operations").unwrap_or(0);
        }
        self.sandbox.assert_all_freed();
        let counts = [
            ("operations of the last four", operations),
            ("tenants", self.started),
            ("killed", self.killed),
            ("killed while moving", self.killed_while_moving),
            ("daemons", self.logs.len() as u64 + 1),
        ];
        (self.evictions(), counts.into_iter().collect())
    }
}

/// `process 12 is asked for 3 of 4 resident bytes on GPU-…`.
fn parse_order(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_whitespace().skip_while(|word| *word != "for").skip(1);
    let ordered = words.next()?.parse().ok()?;
    let resident = words.nth(1)?.parse().ok()?;
    Some((ordered, resident))
}

fn number_from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn no_byte_is_wrong_whatever_is_killed() {
    let length = Duration::from_secs(number_from_environment("TURNUS_STRESS_SECONDS").unwrap_or(20));
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64);
    let seed = number_from_environment("TURNUS_SEED").unwrap_or_else(now);
    println!("stress: TURNUS_SEED={seed} TURNUS_STRESS_SECONDS={}", length.as_secs());
    let mut stress = Stress::new(seed);
    let start = Instant::now();
    let mut next_kill = start + Duration::from_millis(1500);
    let mut next_restart = start + length / 3;
    let mut next_count = start + length;
    loop {
        stress.look();
        sleep(Duration::from_millis(5));
        let now = Instant::now();
        if now > next_kill {
            stress.kill_one();
            next_kill = Instant::now() + Duration::from_millis(500 + stress.random.below(1500));
        }
        if now > next_restart {
            stress.restart_daemon();
            next_restart = Instant::now() + length.max(Duration::from_secs(15)) / 3 + Duration::from_secs(3);
        }
        if now > next_count {
            let evictions = stress.evictions();
            if evictions.len() >= EVICTIONS_MIN && partial(&evictions) >= PARTIAL_MIN {
                break;
            }
            assert!(
                now - start < length * PATIENCE + Duration::from_secs(60),
                "only {} evictions, {} of them partial\n{}",
                evictions.len(),
                partial(&evictions),
                stress.sandbox.dump()
            );
            next_count = now + Duration::from_secs(1);
        }
    }
    let (evictions, counts) = stress.finish();
    let partial = partial(&evictions);
    println!("stress: {} evictions, {partial} partial, {counts:?}", evictions.len());
    assert!(evictions.len() >= EVICTIONS_MIN && partial >= PARTIAL_MIN);
    for what in ["killed", "killed while moving"] {
        assert!(counts[what] > 0, "nothing was {what}: {counts:?}");
    }
    assert!(counts["daemons"] > 1, "no daemon was killed: {counts:?}");
}

fn partial(evictions: &[(u64, u64)]) -> usize {
    evictions.iter().filter(|(ordered, resident)| ordered < resident).count()
}
