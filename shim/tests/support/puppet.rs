//! A CUDA program under the shim that a test leads by the hand; see `tests/fake/puppet.c`.

use super::{Bench, FAKE};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than anything takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for a call that does not wait to have come back.
pub const SOON: Duration = Duration::from_millis(300);

pub struct Puppet {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    errors: Receiver<String>,
}

impl Bench {
    /// The command that starts a puppet; the test may add to its environment.
    pub fn puppet_command(&self) -> Command {
        let program = self.path("puppet");
        if !program.exists() {
            let mut gcc = Command::new("gcc");
            gcc.args(["-O1", "-w", "-I", FAKE, "-o"]).arg(&program).arg(Path::new(FAKE).join("puppet.c"));
            super::compile(gcc.args(["-ldl", "-lpthread"]));
        }
        self.command(&program)
    }
}

impl Puppet {
    pub fn start(mut command: Command) -> Puppet {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start");
        let output = lines(child.stdout.take().expect("stdout"));
        let errors = lines(child.stderr.take().expect("stderr"));
        Puppet { input: child.stdin.take(), child, output, errors }
    }

    /// Gives a command and does not wait.
    pub fn tell(&mut self, command: &str) {
        let input = self.input.as_mut().expect("input");
        writeln!(input, "{command}").expect("tell");
    }

    /// What the puppet says next.
    pub fn hear(&mut self) -> String {
        match self.output.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!(
                "the puppet is silent ({error}); it said before: {:?}",
                self.errors.try_iter().collect::<Vec<_>>()
            ),
        }
    }

    /// Gives a command; its answer must be this.
    pub fn does(&mut self, command: &str, answer: &str) {
        self.tell(command);
        assert_eq!(self.hear(), answer);
    }

    /// Whether the puppet stays silent, since its call waits.
    pub fn waits(&mut self) -> bool {
        self.output.recv_timeout(SOON).is_err()
    }

    /// The next line on standard error.
    pub fn complains(&mut self) -> String {
        self.errors.recv_timeout(PATIENCE).expect("a line on standard error")
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Ends the input and waits for the end; the exit code and all lines on standard error.
    pub fn end(mut self) -> (Option<i32>, Vec<String>) {
        self.input = None;
        let status = self.child.wait().expect("end");
        (status.code(), self.errors.iter().collect())
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (say, hear) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if say.send(line).is_err() {
                return;
            }
        }
    });
    hear
}
