//! Runs the tests of a gpu-check folder on a driver, one process per test, and tells what differs.
//!
//! A test that fails is a difference between the driver and what the simulated one does. Differences that are
//! known, with their reason, stand in `differences.toml`; any other one makes the run fail, and so does a known one
//! that is gone on a card. Written: `result.json` and `result.md` in the folder.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// Cases of each property: enough to judge an instruction, few enough for a run of minutes.
const PROPERTY_CASES: &str = "4";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    #[serde(default)]
    difference: Vec<Difference>,
}

/// One test that a card is known to fail.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    test: String,
    reason: String,
}

/// What became of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
enum Verdict {
    /// The driver behaves as documented and as the simulated one.
    Agrees,
    /// It does not, and nobody knew.
    Differs { output: String },
    /// It does not, for a known reason.
    KnownDifference { reason: String },
    /// A known difference that was not seen.
    DifferenceGone { reason: String },
    /// This machine has not what the test needs.
    NotRun { reason: String },
}

#[derive(Debug, Serialize)]
struct Outcome {
    test: String,
    seconds: f64,
    #[serde(flatten)]
    verdict: Verdict,
}

#[derive(Debug, Serialize)]
struct Report {
    date: String,
    driver: String,
    simulated: bool,
    outcomes: Vec<Outcome>,
}

/// Whose answers count.
#[derive(Debug)]
pub enum Judge {
    /// The system's driver if there is a card, else the simulated one.
    Found,
    /// The `libcuda.so.1` in this folder.
    Library(PathBuf),
    /// The simulated driver of the gpu-check folder.
    Simulated,
}

/// Runs the folder's tests. Code 1 if anything differs.
pub fn run(folder: &Path, by: Judge, only: Option<&str>) -> Result<ExitCode> {
    let known: Differences = {
        let path = folder.join("differences.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not understood", path.display()))?
    };
    let library = match by {
        Judge::Found => system_library(),
        Judge::Library(library) => Some(library),
        Judge::Simulated => None,
    };
    let (library, simulated) = match library {
        Some(library) => (library, false),
        None => (folder.join("simulated"), true),
    };
    if !library.join("libcuda.so.1").is_file() {
        bail!("there is no libcuda.so.1 in {}", library.display());
    }
    let driver = if simulated { "the simulated driver".to_owned() } else { card() };
    println!("conformance: judged by {driver} ({})", library.join("libcuda.so.1").display());
    if simulated {
        println!("conformance: this machine has no card, so this run only shows that the tests work");
    }
    let mut report = Report { date: date(), driver, simulated, outcomes: Vec::new() };
    for program in programs(folder)? {
        for test in tests(&program)? {
            let name = format!("{}::{test}", file_name(&program));
            if only.is_some_and(|only| !name.contains(only)) {
                continue;
            }
            let begun = Instant::now();
            let found = run_test(&program, &test, &library)?;
            let reason = known.difference.iter().find(|difference| difference.test == name && !simulated);
            let verdict = judge(found, reason.map(|difference| difference.reason.clone()));
            println!("  {:16} {name}", verdict.word());
            if let Verdict::Differs { output } = &verdict {
                println!("{output}");
            }
            report.outcomes.push(Outcome { test: name, seconds: begun.elapsed().as_secs_f64(), verdict });
        }
    }
    if report.outcomes.is_empty() {
        bail!("no test in {} has such a name", folder.display());
    }
    write(folder, &report)?;
    let bad = report.outcomes.iter().filter(|outcome| outcome.verdict.is_news()).count();
    println!(
        "conformance: {} tests, {bad} with news; see {}",
        report.outcomes.len(),
        folder.join("result.md").display()
    );
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Differs { .. } => "DIFFERS",
            Verdict::KnownDifference { .. } => "known difference",
            Verdict::DifferenceGone { .. } => "DIFFERENCE GONE",
            Verdict::NotRun { .. } => "not run",
        }
    }

    fn is_news(&self) -> bool {
        matches!(self, Verdict::Differs { .. } | Verdict::DifferenceGone { .. })
    }

    fn remark(&self) -> &str {
        match self {
            Verdict::Agrees => "",
            Verdict::Differs { output } => {
                output.lines().find(|line| line.contains("panicked")).unwrap_or("see result.json")
            }
            Verdict::KnownDifference { reason }
            | Verdict::DifferenceGone { reason }
            | Verdict::NotRun { reason } => reason,
        }
    }
}

fn judge(found: Found, known: Option<String>) -> Verdict {
    match (found, known) {
        (Found::NotRun(reason), _) => Verdict::NotRun { reason },
        (Found::Passed, None) => Verdict::Agrees,
        (Found::Passed, Some(reason)) => Verdict::DifferenceGone { reason },
        (Found::Failed(_), Some(reason)) => Verdict::KnownDifference { reason },
        (Found::Failed(output), None) => Verdict::Differs { output },
    }
}

/// What one process said.
enum Found {
    Passed,
    NotRun(String),
    Failed(String),
}

fn run_test(program: &Path, test: &str, library: &Path) -> Result<Found> {
    let machine = PathBuf::from(format!("/dev/shm/gpu-check-{}", std::process::id()));
    let mut command = Command::new(program);
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
    command.env("CONFORMANCE_LIBRARY", library).env("PROPTEST_CASES", PROPERTY_CASES);
    // Only the simulated driver looks at these.
    command.env("SIMULATED_CUDA_DIR", &machine).env("SIMULATED_CUDA_DEVICES", "H100-pcie5");
    let (mut reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    command.stdout(writer.try_clone()?).stderr(writer).process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    // The command holds the writing end, which must be closed for the reader to see the end.
    drop(command);
    let text = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = reader.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if begun.elapsed() > LIMIT {
            // The group: a test has children of its own.
            let _ = Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).status();
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let _ = fs::remove_dir_all(&machine);
    let text = text.join().unwrap_or_default();
    let reason =
        text.lines().find_map(|line| line.split_once("NOT RUN: ").map(|(_, reason)| reason.to_owned()));
    Ok(match (status, reason) {
        (None, _) => Found::Failed(format!("{text}\nit did not end within {} s", LIMIT.as_secs())),
        (Some(status), Some(reason)) if status.success() => Found::NotRun(reason),
        (Some(status), None) if status.success() => Found::Passed,
        (Some(status), _) => Found::Failed(format!("{text}\n{status}")),
    })
}

fn programs(folder: &Path) -> Result<Vec<PathBuf>> {
    let tests = folder.join("tests");
    let entries = fs::read_dir(&tests).with_context(|| format!("cannot read {}", tests.display()))?;
    let mut programs: Vec<PathBuf> =
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    programs.sort();
    Ok(programs)
}

fn tests(program: &Path) -> Result<Vec<String>> {
    let list = Command::new(program).args(["--list", "--format", "terse"]).output();
    let list = list.with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The folder of the system's driver, if a card is there too.
fn system_library() -> Option<PathBuf> {
    if !Path::new("/dev/nvidiactl").exists() && !Path::new("/dev/dxg").exists() {
        return None;
    }
    let cache = Command::new("ldconfig").arg("-p").output().ok()?;
    let text = String::from_utf8_lossy(&cache.stdout).into_owned();
    let listed = text.lines().filter(|line| line.contains("libcuda.so.1") && line.contains("x86-64"));
    let found = listed.filter_map(|line| line.split(" => ").nth(1)).map(PathBuf::from);
    let usual = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"];
    let usual = usual.iter().map(|folder| Path::new(folder).join("libcuda.so.1"));
    found.chain(usual).find(|path| path.exists())?.parent().map(Path::to_path_buf)
}

fn card() -> String {
    let query = ["--query-gpu=name,driver_version", "--format=csv,noheader"];
    match Command::new("nvidia-smi").args(query).output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().replace('\n', "; ")
        }
        _ => "a driver that nvidia-smi does not describe".to_owned(),
    }
}

fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn write(folder: &Path, report: &Report) -> Result<()> {
    let json = serde_json::to_string_pretty(report).context("the report has no JSON form")?;
    fs::write(folder.join("result.json"), json).context("cannot write result.json")?;
    let mut text = format!(
        "# Conformance\n\n{}, {} UTC\n\n| test | verdict | s | remark |\n|---|---|---|---|\n",
        report.driver, report.date
    );
    for Outcome { test, seconds, verdict } in &report.outcomes {
        let remark = verdict.remark().replace('|', "\\|");
        text += &format!("| {test} | {} | {seconds:.1} | {remark} |\n", verdict.word());
    }
    fs::write(folder.join("result.md"), text).context("cannot write result.md")
}
