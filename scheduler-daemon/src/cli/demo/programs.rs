//! The two programs: started through `turnus run`, listened to, and asked for their results.
//!
//! They print `round=N` after each round and `rounds=R bytes=N result=right` at the end. Nothing
//! else is known of them.

use super::DemoArguments;
use super::stage::Stage;
use crate::cli::Failure;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Both programs.
#[derive(Debug)]
pub struct Cast {
    /// In the order of their start.
    pub actors: Vec<Actor>,
}

/// One running program.
#[derive(Debug)]
pub struct Actor {
    /// The tenant's name.
    pub name: String,
    /// For the reader.
    pub description: String,
    child: Child,
    rounds: Arc<AtomicU64>,
    output: JoinHandle<Option<String>>,
    stop_file: std::path::PathBuf,
}

/// What a program said at its end.
#[derive(Debug, Clone)]
pub struct ActorResult {
    /// The tenant's name.
    pub name: String,
    /// Rounds that it made.
    pub rounds: u64,
    /// Its last words: `right`, `wrong`, or what became of it.
    pub verdict: String,
}

impl ActorResult {
    /// Whether every byte was what it should be.
    pub fn is_right(&self) -> bool {
        self.verdict == "right"
    }
}

impl Actor {
    /// Rounds so far.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}

impl Cast {
    /// Starts both.
    pub fn start(stage: &Stage, arguments: &DemoArguments) -> Result<Cast, Failure> {
        let chain = stage.program("chain");
        let first = actor(
            stage,
            "c-driver-api",
            "C, CUDA driver API by dlopen and dlsym",
            vec![chain.clone().into()],
            1,
        )?;
        let second = match &arguments.python {
            Some(python) => {
                let script = stage.program("chain.py");
                let command = vec![python.clone().into(), script.into()];
                actor(
                    stage,
                    "python",
                    "Python, NVIDIA's cuda-bindings with a kernel compiled by NVRTC",
                    command,
                    2,
                )?
            }
            None => {
                println!("(no Python with cuda-bindings: the second program is the C program again)");
                actor(
                    stage,
                    "c-driver-api-2",
                    "C, CUDA driver API by dlopen and dlsym",
                    vec![chain.into()],
                    2,
                )?
            }
        };
        Ok(Cast { actors: vec![first, second] })
    }

    /// Fails if a program has ended although nobody asked it to.
    pub fn check_alive(&mut self) -> Result<(), Failure> {
        for actor in &mut self.actors {
            if let Ok(Some(status)) = actor.child.try_wait() {
                return Err(Failure::plain(format!("{} ended too early with {status}", actor.name)));
            }
        }
        Ok(())
    }

    /// Asks both to stop and collects their results.
    pub fn finish(mut self, limit: Duration) -> Result<Vec<ActorResult>, Failure> {
        let deadline = Instant::now() + limit;
        let mut results = Vec::new();
        for actor in std::mem::take(&mut self.actors) {
            std::fs::write(&actor.stop_file, "")
                .map_err(|error| Failure::plain(format!("{}: {error}", actor.stop_file.display())))?;
            results.push(conclude(actor, deadline)?);
        }
        Ok(results)
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        for actor in &mut self.actors {
            // It may have ended already; then there is nothing to kill.
            let _ = actor.child.kill();
            let _ = actor.child.wait();
        }
    }
}

fn conclude(mut actor: Actor, deadline: Instant) -> Result<ActorResult, Failure> {
    let status = loop {
        match actor.child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() > deadline => {
                let _ = actor.child.kill();
                let _ = actor.child.wait();
                return Err(Failure::plain(format!("{} does not come to its end", actor.name)));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(Failure::plain(format!("{}: {error}", actor.name))),
        }
    };
    let rounds = actor.rounds.load(Ordering::Relaxed);
    let verdict = match actor.output.join().ok().flatten() {
        Some(verdict) if status.success() || verdict != "right" => verdict,
        _ => format!("no result ({status})"),
    };
    Ok(ActorResult { name: actor.name, rounds, verdict })
}

fn actor(
    stage: &Stage,
    name: &str,
    description: &str,
    program: Vec<std::ffi::OsString>,
    seed: u32,
) -> Result<Actor, Failure> {
    let turnus = std::env::current_exe().map_err(|error| Failure::plain(error.to_string()))?;
    let mut command: Command = stage.command(&turnus);
    command.args(["run", "--name", name, "--"]).args(program);
    command.arg("--bytes").arg(stage.program_bytes.to_string());
    command.arg("--stop-file").arg(stage.stop_file()).arg("--seed").arg(seed.to_string());
    command.env(turnus_protocol::paths::SOCKET_VARIABLE, stage.socket());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| Failure::plain(format!("{name} cannot be started: {error}")))?;
    let rounds = Arc::new(AtomicU64::new(0));
    let stdout = child.stdout.take().ok_or_else(|| Failure::plain("a piped output is missing"))?;
    let output = std::thread::spawn({
        let rounds = rounds.clone();
        move || listen(BufReader::new(stdout), &rounds)
    });
    let (name, description) = (name.to_owned(), description.to_owned());
    Ok(Actor { name, description, child, rounds, output, stop_file: stage.stop_file() })
}

fn listen(lines: impl BufRead, rounds: &AtomicU64) -> Option<String> {
    let mut verdict = None;
    for line in lines.lines().map_while(Result::ok) {
        for word in line.split_whitespace() {
            if let Some(number) = word.strip_prefix("round=").and_then(|text| text.parse().ok()) {
                rounds.store(number, Ordering::Relaxed);
            } else if let Some(text) = word.strip_prefix("result=") {
                verdict = Some(text.to_owned());
            }
        }
    }
    verdict
}
