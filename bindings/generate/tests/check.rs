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

#[test]
fn a_header_that_says_something_else_is_noticed() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("other-header");
    std::fs::create_dir_all(&folder).expect("scratch folder");
    for (name, text) in [
        (
            "cuda.h",
            "typedef enum cudaError_enum { CUDA_SUCCESS = 0 } CUresult; CUresult cuInit(unsigned flags);",
        ),
        ("cudaGL.h", ""),
        ("cudaEGL.h", ""),
        ("cudaVDPAU.h", ""),
    ] {
        std::fs::write(folder.join(name), text).expect("scratch header");
    }
    let output = generate(&["--check", "--header", folder.to_str().expect("path in UTF-8")]);
    assert!(!output.status.success(), "a header with one function passed the check");
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
