//! The probe for real cards, on what this machine has: its own fake driver and the simulated one.
//!
//! Nobody wants to learn on a borrowed card that the probe hangs. What it measures here means
//! nothing; that it comes to its end with a whole report does.

use std::path::Path;
use std::process::Command;
use turnus_simulated_arena::{ArenaConfig, TemporaryMachine};
use turnus_tests::artifacts;

fn folder() -> std::path::PathBuf {
    artifacts::workspace().join("benches/gpu-probe")
}

#[test]
fn every_step_survives_a_driver_that_lacks_hangs_and_crashes() {
    let output = Command::new("bash").arg(folder().join("test.sh")).output().expect("bash can be started");
    assert!(
        output.status.success(),
        "test.sh: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn on_the_simulated_driver_the_report_is_whole() {
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu-probe");
    std::fs::create_dir_all(&work).expect("a folder");
    let (probe, report) = (work.join("gpu-probe"), work.join("report.json"));
    let built = Command::new("bash").arg(folder().join("build.sh")).arg(&probe).status().expect("bash");
    assert!(built.success(), "build.sh failed");
    let machine = TemporaryMachine::new(&ArenaConfig::default()).expect("a simulated machine");
    let status = Command::new(&probe)
        .args(["--quick", "--json"])
        .arg(&report)
        .env("LD_LIBRARY_PATH", artifacts::simulated())
        .env("SIMULATED_CUDA_DIR", machine.directory())
        .output()
        .expect("the probe can be started")
        .status;
    assert!(status.success(), "the probe ended with {status}");
    let text = std::fs::read_to_string(&report).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let steps = report["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 15, "steps are missing: {text}");
    let crashed =
        steps.iter().filter(|step| step["outcome"].as_str().is_some_and(|text| text.contains("crash")));
    assert_eq!(crashed.count(), 0, "{text}");
}
