//! What the test files share: small machines and helper processes with a line protocol.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use turnus_simulated_arena::{ArenaConfig, DIRECTORY_VARIABLE, DeviceConfig, TemporaryMachine};

/// One device of `units` x 4096 bytes with free operations and unlimited links, changed by `change`.
pub fn machine(units: u64, change: impl FnOnce(&mut ArenaConfig)) -> TemporaryMachine {
    let device = DeviceConfig {
        memory_bytes: units * 4096,
        granularity_bytes: 4096,
        host_to_device_bytes_per_s: 0,
        device_to_host_bytes_per_s: 0,
        duplex_bytes_per_s: 0,
        device_to_device_bytes_per_s: 0,
        ..DeviceConfig::default()
    };
    let mut config =
        ArenaConfig { scale: 1, scrub_delay_ms: 0, devices: vec![device], ..ArenaConfig::default() };
    change(&mut config);
    TemporaryMachine::new(&config).expect("a directory in /dev/shm")
}

/// A running `arena-client`; killed when dropped.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Start it and wait for its `ready`.
    pub fn start(machine: &TemporaryMachine, order: &[&str]) -> Self {
        let mut client = Self::start_silently(machine, order);
        assert_eq!(client.line(), "ready", "{order:?}");
        client
    }

    /// Start it.
    pub fn start_silently(machine: &TemporaryMachine, order: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_arena-client"))
            .args(order)
            .env(DIRECTORY_VARIABLE, machine.directory())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("arena-client starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    /// The next line it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line of the client");
        line.trim_end().to_owned()
    }

    /// The next line as a number.
    pub fn number(&mut self) -> u64 {
        let line = self.line();
        line.parse().unwrap_or_else(|_| panic!("{line:?} is no number"))
    }

    /// Let it go on.
    pub fn go(&mut self) {
        self.input.as_mut().expect("not ended").write_all(b"go\n").expect("the client listens");
    }

    /// SIGKILL, and wait until it is gone. Fails when it had already ended otherwise.
    pub fn kill(mut self) {
        self.child.kill().expect("the client can be killed");
        let status = self.child.wait().expect("the client can be awaited");
        assert_eq!(status.signal(), Some(9), "the client ended by itself: {status}");
    }

    /// End its input and wait for its good end.
    pub fn finish(mut self) {
        self.input = None;
        assert!(self.child.wait().expect("the client can be awaited").success());
    }

    /// Wait for the process itself; children of it may live on with the pipes.
    pub fn wait(&mut self) {
        assert!(self.child.wait().expect("the client can be awaited").success());
    }

    /// Send a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is our unreaped child, so the id is its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
