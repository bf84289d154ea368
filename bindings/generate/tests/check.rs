//! The committed files are what the generator writes from the pinned headers, and `--check` notices if not.
//!
//! Downloads the wheel with the headers into `target/` when it is not there.

use std::path::Path;
use std::process::{Command, Output};

fn generate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnus-bindings-generate"))
        .args(arguments)
        .output()
        .expect("generator starts")
}

#[test]
fn committed_files_are_fresh() {
    let output = generate(&["--check"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A header with one function more than the committed one, as after an update.
#[test]
fn a_newer_header_makes_the_committed_files_stale() {
    let fetched = generate(&["--check"]);
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    let real = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/cuda-headers/nvidia-cuda-runtime-13.5.37/nvidia/cu13/include");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("newer-header");
    std::fs::create_dir_all(&folder).expect("scratch folder");
    for name in ["cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"] {
        let mut text = format!("#include \"{}\"\n", real.join(name).display());
        if name == "cuda.h" {
            text.push_str("CUresult cuMemAllocNewer(CUdeviceptr *dptr);\n");
        }
        std::fs::write(folder.join(name), text).expect("scratch header");
    }
    let output = generate(&["--check", "--header", folder.to_str().expect("path in UTF-8")]);
    assert!(!output.status.success(), "a header with one more function passed the check");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("api.rs is stale"), "{message}");
}

/// The header's documentation is NVIDIA's; only names, types and numbers may reach our files.
#[test]
fn no_text_of_the_header_is_in_the_output() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    for name in ["api.rs", "types.rs", "layout.rs", "error_codes.rs"] {
        let text = std::fs::read_to_string(folder.join(name)).expect("generated file");
        let comments = text.lines().filter(|line| line.trim_start().starts_with("//")).count();
        assert!(comments < 16, "{name} has {comments} lines of comments");
        for forbidden in ["\\brief", "\\param", "NVIDIA Corporation", "#[doc"] {
            assert!(!text.contains(forbidden), "{name} contains {forbidden}");
        }
    }
}
