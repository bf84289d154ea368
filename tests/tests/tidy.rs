//! Keeps the shape of the project: who imports whom, file lengths, module docs, unsafe code.
//!
//! Rules of `docs/architecture.md` that a compiler does not check. A failure names the file and
//! the rule; the way out is to change the code, not this list.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest hand-written source file, in lines.
const LINES_MAX: usize = 500;

/// The allowed arrows between crates of the workspace: importer -> imported.
const ARROWS: &[(&str, &[&str])] = &[
    ("turnus-bindings", &[]),
    ("turnus-bindings-generate", &["turnus-bindings"]),
    ("turnus-gate", &[]),
    ("turnus-protocol", &[]),
    ("turnus-core", &[]),
    ("turnus-shim", &["turnus-bindings", "turnus-gate", "turnus-protocol"]),
    ("turnus-scheduler", &["turnus-core", "turnus-gate", "turnus-protocol"]),
    ("turnus-simulated-ptx", &[]),
    ("turnus-simulated-arena", &[]),
    ("turnus-simulated-nvml", &["turnus-simulated-arena"]),
    ("turnus-simulated-driver", &["turnus-bindings", "turnus-simulated-arena", "turnus-simulated-ptx"]),
    ("xtask", &[]),
];
/// These may import anything; nobody may import them.
const FREE: &[&str] = &["turnus-tests", "turnus-benches"];
/// Crates in which unsafe code is allowed, each block with its contract.
const UNSAFE: &[&str] = &["bindings", "shim", "scheduler-daemon/gate", "tests/simulated-driver"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

/// Files of the working copy with this ending, build output left out.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![workspace()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable folder") {
            let entry = entry.expect("readable entry");
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    folders.push(path);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no {ending} below {}", workspace().display());
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}

fn is_generated(text: &str) -> bool {
    text.lines().take(5).any(|line| line.to_lowercase().contains("generated"))
}

/// Package name -> names of workspace packages that its code (not its tests) imports.
fn arrows() -> BTreeMap<String, Vec<String>> {
    let mut arrows = BTreeMap::new();
    for manifest in files("Cargo.toml") {
        let text = fs::read_to_string(&manifest).expect("readable manifest");
        let (mut name, mut imports, mut section) = (None, Vec::new(), String::new());
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                section = line.trim_matches(['[', ']']).to_owned();
            } else if section == "package" && line.starts_with("name = ") {
                name = line.split('"').nth(1).map(str::to_owned);
            } else if section.ends_with("dependencies")
                && !section.ends_with("dev-dependencies")
                && section != "workspace.dependencies"
            {
                let key = line.split(['=', '.', ' ']).next().unwrap_or("").trim_matches('"');
                if key.starts_with("turnus-") || key == "xtask" {
                    imports.push(key.to_owned());
                }
            }
        }
        if let Some(name) = name {
            arrows.insert(name, imports);
        }
    }
    arrows
}

#[test]
fn crates_import_only_along_the_arrows_of_the_architecture() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    for (importer, imports) in arrows() {
        if FREE.contains(&importer.as_str()) {
            continue;
        }
        let allowed = allowed.get(importer.as_str()).unwrap_or_else(|| {
            panic!("{importer} is a new crate: place it in docs/architecture.md and in ARROWS")
        });
        for imported in imports {
            assert!(allowed.contains(&imported.as_str()), "{importer} must not import {imported}");
        }
    }
}

#[test]
fn no_source_file_needs_a_map_of_its_own() {
    for ending in [".rs", ".c", ".h", ".py", ".sh"] {
        for path in files(ending) {
            let text = fs::read_to_string(&path).expect("readable source");
            let lines = text.lines().count();
            assert!(
                lines <= LINES_MAX || is_generated(&text),
                "{} has {lines} lines, the most is {LINES_MAX}",
                shown(&path)
            );
        }
    }
}

#[test]
fn every_module_says_what_it_is_for() {
    for path in files(".rs") {
        let text = fs::read_to_string(&path).expect("readable source");
        let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
        let opens = first.is_some_and(|line| line.starts_with("//!")) || is_generated(&text);
        assert!(opens, "{} does not open with //!", shown(&path));
    }
}

#[test]
fn unsafe_code_stays_where_it_is_allowed() {
    for path in files("lib.rs").into_iter().chain(files("main.rs")) {
        let shown = shown(&path);
        let is_root = shown.ends_with("src/lib.rs") || shown.ends_with("src/main.rs");
        let is_allowed = UNSAFE.iter().any(|allowed| shown.starts_with(&format!("{allowed}/")));
        if !is_root || is_allowed && !shown.contains("/ptx/") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("readable source");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{shown} does not forbid unsafe code");
    }
}

#[test]
fn nothing_refers_to_places_outside_the_project() {
    let outside = [["../shar", "ed"].concat(), ["/work/", "main"].concat(), ["/work/", "shared"].concat()];
    for ending in [".rs", ".md", ".toml", ".c", ".h", ".py", ".sh"] {
        for path in files(ending) {
            let text = fs::read_to_string(&path).expect("readable text");
            for word in &outside {
                assert!(!text.contains(word.as_str()), "{} refers to {word}", shown(&path));
            }
        }
    }
}

#[test]
fn silenced_lints_and_tests_give_a_reason() {
    let silencers = [["[", "allow("].concat(), ["[", "ignore"].concat(), ["[", "expect("].concat()];
    for path in files(".rs") {
        let text = fs::read_to_string(&path).expect("readable source");
        if is_generated(&text) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let start = line.trim_start();
            let silenced =
                start.starts_with('#') && silencers.iter().any(|word| start.contains(word.as_str()));
            let nearby = text.lines().skip(number).take(8).collect::<String>();
            assert!(
                !silenced || nearby.contains("reason = "),
                "{}:{}: no reason given",
                shown(&path),
                number + 1
            );
        }
    }
}
