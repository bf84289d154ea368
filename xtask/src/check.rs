//! `cargo xtask test`: everything that must hold, in the order in which it fails fastest.
//!
//! `.ci/run` calls this with `--all`. The plain `cargo test` runs the same tests but for the
//! model check of the gate and what needs the built artifacts.

use crate::command::{cargo, run as run_command, target, workspace};
use crate::skipped::Skipped;
use crate::{artifacts, cuda_runtimes, cupy, gpu_check, nvidia_smi, pycuda, python};
use anyhow::{Result, anyhow, bail};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// What to run.
#[derive(Debug, clap::Args)]
pub struct TestArguments {
    /// What cannot run here is an error, but for the class needs-gpu.
    #[arg(long)]
    all: bool,
    /// Only end-to-end tests: those of the file with this name in tests/tests, or those whose name
    /// contains it.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Length of the stress test.
    #[arg(long, value_name = "S", default_value_t = 120)]
    stress_seconds: u64,
    /// Seed of the stress test; by default a new one, printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// How long and from which seed.
#[derive(Debug, clap::Args)]
pub struct StressArguments {
    /// Length.
    #[arg(long, value_name = "S", default_value_t = 120)]
    seconds: u64,
    /// Seed; by default a new one, printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Runs the stress test alone, with its output.
pub fn stress(arguments: &StressArguments) -> Result<ExitCode> {
    let built = artifacts::build()?;
    let mut test = cargo();
    test.args(["test", "-p", "turnus-tests", "--test", "stress", "--", "--nocapture"]);
    test.env("TURNUS_ARTIFACTS", &built.root).env("TURNUS_STRESS_SECONDS", arguments.seconds.to_string());
    if let Some(seed) = arguments.seed {
        test.env("TURNUS_SEED", seed.to_string());
    }
    run_command(&mut test)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs it all; code 1 if anything failed.
pub fn run(arguments: &TestArguments) -> Result<ExitCode> {
    let skipped = Skipped::start(&target().join("turnus"))?;
    if arguments.only.is_none() {
        step("formatting", || run_command(cargo().args(["fmt", "--all", "--check"])))?;
        step("lints", || {
            run_command(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
        })?;
        step("the gate's memory order, model-checked", model_check)?;
    }
    let mut tests = cargo();
    step("build", || {
        let built = artifacts::build()?;
        tests.env("TURNUS_ARTIFACTS", &built.root);
        match python::environment()? {
            Ok(python) => drop(tests.env("TURNUS_PYTHON", python)),
            Err(reason) => skipped.add("needs-python", "cuda-bindings with NVRTC", &reason)?,
        }
        match nvidia_smi::programs()? {
            Ok(folder) => drop(tests.env("TURNUS_NVIDIA_SMI", folder)),
            Err(reason) => skipped.add("needs-nvidia-smi", "nvidia-smi on the simulated NVML", &reason)?,
        }
        clients(&built, &mut tests, &skipped)
    })?;
    skipped.add(
        "needs-gpu",
        "gpu-probe and the demo on a card",
        "no NVIDIA GPU in this machine's test run; see benches/gpu-probe/README.md",
    )?;
    tests.env("TURNUS_SKIPPED_FILE", skipped.file());
    tests.env("TURNUS_STRESS_SECONDS", arguments.stress_seconds.to_string());
    if let Some(seed) = arguments.seed {
        tests.env("TURNUS_SEED", seed.to_string());
    }
    match &arguments.only {
        None => {
            step("unit, property, simulation and end-to-end tests", || {
                run_command(tests.args(["test", "--workspace", "--no-fail-fast"]))
            })?;
            step("the checks for a card, on the simulated driver", gpu_check::rehearse)?;
        }
        Some(name) => step("some end-to-end tests", || {
            let chosen = chosen(name)?;
            run_command(tests.args(["test", "-p", "turnus-tests"]).args(chosen))
        })?,
    }
    let complete = skipped.report()?;
    if arguments.all && !complete {
        bail!("--all was asked for, but some tests could not run here (list above)");
    }
    Ok(ExitCode::SUCCESS)
}

/// The clients that only tests run, as far as they can be had.
fn clients(built: &artifacts::Artifacts, tests: &mut Command, skipped: &Skipped) -> Result<()> {
    let python = match python::clients()? {
        Ok(python) => python,
        Err(reason) => {
            let what = "cuda-core, numba-cuda, nvidia-ml-py, PyCUDA, CuPy and the CUDA runtimes";
            return skipped.add("needs-python", what, &reason);
        }
    };
    tests.env("TURNUS_PYTHON_CLIENTS", &python);
    // The one compiles, the others download.
    let (built, runtimes, cupy) = std::thread::scope(|scope| {
        let building = scope.spawn(|| pycuda::install(&python, &built.simulated()));
        let runtimes = cuda_runtimes::libraries(&python);
        let cupy = match &runtimes {
            Ok(Ok(folder)) => cupy::environment(&python, folder),
            _ => Ok(Err("the CUDA runtime's libraries are missing".to_owned())),
        };
        (
            building.join().unwrap_or_else(|_| Err(anyhow!("the thread that builds PyCUDA panicked"))),
            runtimes,
            cupy,
        )
    });
    match built? {
        Ok(()) => drop(tests.env("TURNUS_PYCUDA", &python)),
        Err(reason) => skipped.add("needs-python", "PyCUDA", &reason)?,
    }
    match runtimes? {
        Ok(folder) => drop(tests.env("TURNUS_CUDA_RUNTIMES", folder)),
        Err(reason) => skipped.add("needs-cuda-runtimes", "the CUDA runtime's libraries", &reason)?,
    }
    match cupy? {
        Ok(python) => drop(tests.env("TURNUS_CUPY", python)),
        Err(reason) => skipped.add("needs-python", "CuPy", &reason)?,
    }
    Ok(())
}

/// What to tell cargo; an error if there is no such test.
fn chosen(name: &str) -> Result<Vec<String>> {
    if workspace().join("tests/tests").join(name).with_extension("rs").is_file() {
        return Ok(vec!["--test".into(), name.into()]);
    }
    let list = cargo().args(["test", "--quiet", "-p", "turnus-tests", name, "--", "--list"]).output()?;
    let text = String::from_utf8_lossy(&list.stdout).into_owned() + &String::from_utf8_lossy(&list.stderr);
    if !text.lines().any(|line| line.ends_with(": test")) {
        bail!(
            "no end-to-end test is called {name}; cargo test -p turnus-tests -- --list shows them:\n{text}"
        );
    }
    Ok(vec![name.into()])
}

fn model_check() -> Result<()> {
    run_command(
        cargo()
            .args(["test", "--release", "-p", "turnus-gate", "--test", "model"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", target().join("model")),
    )
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("\n== {name}");
    let start = Instant::now();
    work()?;
    println!("== {name}: passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
