//! `cargo xtask gpu-check`: what a real card has to say, in one folder that runs on another machine.
//!
//! The folder `target/gpu-check` holds the tests that judge the simulated driver, the simulated driver itself, and
//! `run.sh`; it needs neither Rust nor a network. Here the folder is built and its run is started; how tests are
//! run and judged is in `conformance.rs`.

use crate::command::{cargo, run as run_command, target, workspace};
use crate::{artifacts, conformance};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Which checks, and where.
#[derive(Debug, clap::Args)]
pub struct GpuCheckArguments {
    /// The tests of documented behaviour, which the simulated driver passes: a card judges them.
    #[arg(long, required = true)]
    conformance: bool,
    /// Only make the folder target/gpu-check, to be copied to a machine with a card.
    #[arg(long)]
    build_only: bool,
    /// A folder that was built before: run it as it is. This is what its run.sh does.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Folder of the libcuda.so.1 to judge by; by default that of the system if there is a card, else the simulated.
    #[arg(long, value_name = "FOLDER")]
    library: Option<PathBuf>,
    /// Only tests whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// Test programs of the folder: package and test target.
const PROGRAMS: [(&str, &str); 10] = [
    ("turnus-simulated-driver", "conformance"),
    ("turnus-simulated-ptx", "calls"),
    ("turnus-simulated-ptx", "control"),
    ("turnus-simulated-ptx", "cooperation"),
    ("turnus-simulated-ptx", "floats"),
    ("turnus-simulated-ptx", "halves"),
    ("turnus-simulated-ptx", "integers"),
    ("turnus-simulated-ptx", "kernels"),
    ("turnus-simulated-ptx", "matrices"),
    ("turnus-simulated-ptx", "memory"),
];

const RUN: &str = "#!/bin/sh
# Runs the checks of this folder on this machine's card, or on the simulated one if there is none.
here=$(cd \"$(dirname \"$0\")\" && pwd)
exec \"$here/xtask\" gpu-check --conformance --folder \"$here\" \"$@\"
";

/// Builds the folder unless one is given, and runs it.
pub fn run(arguments: &GpuCheckArguments) -> Result<ExitCode> {
    let folder = match &arguments.folder {
        Some(folder) => folder.clone(),
        None => build()?,
    };
    if arguments.build_only {
        println!("{} is ready: copy it to a machine with a card and start run.sh there", folder.display());
        return Ok(ExitCode::SUCCESS);
    }
    let judge = match &arguments.library {
        Some(library) => conformance::Judge::Library(library.clone()),
        None => conformance::Judge::Found,
    };
    conformance::run(&folder, judge, arguments.only.as_deref())
}

/// Builds the folder and runs it on the simulated driver, so that it works on the day when there is a card.
pub fn rehearse() -> Result<()> {
    let code = conformance::run(&build()?, conformance::Judge::Simulated, None)?;
    if code != ExitCode::SUCCESS {
        bail!("the checks for a card fail on the simulated driver (list above)");
    }
    Ok(())
}

fn build() -> Result<PathBuf> {
    let built = artifacts::build()?;
    let folder = target().join("gpu-check");
    let _ = fs::remove_dir_all(&folder);
    for part in ["tests", "simulated"] {
        let path = folder.join(part);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    for (package, test) in PROGRAMS {
        let program = executable(package, test)?;
        let name = format!("{}-{test}", package.trim_start_matches("turnus-simulated-"));
        copy(&program, &folder.join("tests").join(name))?;
    }
    copy(&built.simulated().join("libcuda.so.1"), &folder.join("simulated/libcuda.so.1"))?;
    copy(&std::env::current_exe().context("own path")?, &folder.join("xtask"))?;
    copy(&workspace().join("tests/simulated-driver/differences.toml"), &folder.join("differences.toml"))?;
    let script = folder.join("run.sh");
    fs::write(&script, RUN).with_context(|| format!("cannot write {}", script.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// Builds one test program; its path is in cargo's messages.
fn executable(package: &str, test: &str) -> Result<PathBuf> {
    let mut build = cargo();
    build.args([
        "test",
        "--no-run",
        "--message-format=json-render-diagnostics",
        "-p",
        package,
        "--test",
        test,
    ]);
    eprintln!("> cargo test --no-run -p {package} --test {test}");
    let output = build.stderr(std::process::Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the test {test} of {package} does not build");
    }
    let path = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == test)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.with_context(|| format!("cargo does not say where the test {test} of {package} is"))
}

/// Copies a file; programs lose their debug information, which is most of their size.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    if fs::read(to).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF")) {
        run_command(Command::new("strip").arg("--strip-debug").arg(to))?;
    }
    Ok(())
}
