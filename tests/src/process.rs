//! A program that a test has started: output in files, a time limit, no way to be left behind.
//!
//! Each runs in a process group of its own, so that its children end with it.

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks at whether something has happened.
pub const LOOK: Duration = Duration::from_millis(5);

/// A running or ended program.
#[derive(Debug)]
pub struct Program {
    /// For messages.
    pub name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    status: Option<ExitStatus>,
}

/// How a program ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// For messages.
    pub name: String,
    /// The exit code, if it exited.
    pub code: Option<i32>,
    /// The signal, if one killed it.
    pub signal: Option<i32>,
    /// All of its output.
    pub stdout: String,
    /// All of its error output.
    pub stderr: String,
}

impl Outcome {
    /// Exit code 0 and `result=right`, or the test fails with everything the program said.
    #[track_caller]
    pub fn assert_right(&self) {
        assert!(self.code == Some(0) && self.stdout.contains("result=right"), "{}", self.describe());
    }

    /// One line of error output, code `code`; the line contains all `words`.
    #[track_caller]
    pub fn assert_refusal(&self, code: i32, words: &[&str]) {
        let lines: Vec<&str> = self.stderr.lines().collect();
        let says = |word: &&&str| !self.stderr.contains(**word);
        assert!(
            self.code == Some(code) && lines.len() == 1 && !words.iter().any(|word| says(&word)),
            "expected code {code} and one line with {words:?}; {}",
            self.describe()
        );
    }

    /// For the message of a failed test.
    pub fn describe(&self) -> String {
        let (code, signal) = (self.code, self.signal);
        let (stdout, stderr) = (tail(&self.stdout, 12), tail(&self.stderr, 30));
        format!(
            "{}: code {code:?}, signal {signal:?}\n-- its output ends\n{stdout}\n-- its errors\n{stderr}",
            self.name
        )
    }

    /// The value of the last `key=value` word in the output.
    pub fn value(&self, key: &str) -> Option<u64> {
        value_in(&self.stdout, key)
    }
}

impl Program {
    /// Starts it; its output goes to files in this folder.
    pub fn start(mut command: Command, name: &str, folder: &Path) -> Program {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let stdout = folder.join(format!("{number}-{name}.out"));
        let stderr = folder.join(format!("{number}-{name}.err"));
        let create =
            |path: &Path| File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let child = command
            .stdin(Stdio::null())
            .stdout(create(&stdout))
            .stderr(create(&stderr))
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        Program { name: name.to_owned(), child, stdout, stderr, status: None }
    }

    /// Its process id; `turnus run` keeps it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("a child can be waited for");
        }
        self.status.is_none()
    }

    /// How it ended, if it does so within the time.
    pub fn wait(&mut self, at_most: Duration) -> Option<Outcome> {
        let deadline = Instant::now() + at_most;
        while self.is_running() {
            if Instant::now() > deadline {
                return None;
            }
            sleep(LOOK);
        }
        let status = self.status?;
        Some(Outcome {
            name: self.name.clone(),
            code: status.code(),
            signal: status.signal(),
            stdout: self.stdout(),
            stderr: self.stderr(),
        })
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stdout).unwrap_or_default()).into_owned()
    }

    /// What it has complained about so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stderr).unwrap_or_default()).into_owned()
    }

    /// The last `round=` it has printed, 0 if none.
    pub fn rounds(&self) -> u64 {
        value_in(&self.stdout(), "round").unwrap_or(0)
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: Signal) {
        // Gone already is what the caller wants in the end.
        let _ = kill(Pid::from_raw(self.pid() as i32), signal);
    }

    /// `kill -9` of the process alone; its children live on.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.status = Some(self.child.wait().expect("a child can be waited for"));
    }

    /// Where it is and what it said, for the message of a failed test.
    pub fn describe(&mut self) -> String {
        let state = if self.is_running() { threads_of(self.pid()) } else { format!("{:?}", self.status) };
        let (stdout, stderr) = (tail(&self.stdout(), 5), tail(&self.stderr(), 20));
        format!("== {} (pid {})\n{state}\n{stdout}\n{stderr}\n", self.name, self.pid())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.child.id() as i32);
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Name, state and kernel function of each thread.
fn threads_of(pid: u32) -> String {
    let folder = PathBuf::from(format!("/proc/{pid}/task"));
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let threads = fs::read_dir(folder).into_iter().flatten().flatten();
    let lines = threads.map(|thread| {
        let path = thread.path();
        let stat = read(path.join("stat"));
        let state =
            stat.rsplit(") ").next().and_then(|rest| rest.split(' ').next()).unwrap_or("?").to_owned();
        format!("   thread {} {state} {}", read(path.join("comm")), read(path.join("wchan")))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The value of the last `key=number` word.
pub fn value_in(text: &str, key: &str) -> Option<u64> {
    let words = text.split_whitespace().rev();
    words.filter_map(|word| word.split_once('=')).find(|(name, _)| *name == key)?.1.parse().ok()
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
