//! Every opcode that the interpreter accepts is used by a test.
//!
//! The table is the dispatch in `src/compile.rs` itself, so that a new opcode without a test is found.

use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The opcodes of the dispatch: the quoted words in front of its arrows.
fn accepted() -> BTreeSet<String> {
    let source = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/compile.rs"));
    let begun = source.find("match instruction.opcode {").expect("the dispatch");
    let end = begun + source[begun..].find("_ => Err(").expect("its last arm");
    let mut found = BTreeSet::new();
    for arm in source[begun..end].split_inclusive("=>") {
        // The patterns of an arm begin behind the expression of the one before.
        let patterns = arm.rsplit(['{', '}', ',', ';']).next().unwrap_or(arm);
        found.extend(patterns.split('"').skip(1).step_by(2).map(str::to_owned));
    }
    found
}

/// Words that stand where an opcode can stand, in the tests here and in those that run through the driver.
fn used() -> BTreeSet<String> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut words = BTreeSet::new();
    for folder in [own.join("tests"), own.join("../tests/conformance")] {
        for entry in std::fs::read_dir(folder).expect("tests") {
            let path = entry.expect("entry").path();
            // What is refused does not count.
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.extension().is_some_and(|extension| extension == "rs")
                && !matches!(name, "coverage.rs" | "refusals.rs")
            {
                let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                words.extend(read(&path).split(|letter| !is_word(letter)).map(str::to_owned));
            }
        }
    }
    words
}

#[test]
fn every_opcode_is_used_by_a_test() {
    let accepted = accepted();
    for known in ["add", "tanh", "mma", "mbarrier", "call", "vmax4", "bar"] {
        assert!(accepted.contains(known), "{known} is not found in the dispatch: {accepted:?}");
    }
    let used = used();
    let missing: Vec<&String> = accepted.difference(&used).collect();
    assert!(missing.is_empty(), "no test uses {missing:?}");
}
