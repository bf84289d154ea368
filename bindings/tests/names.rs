//! The declared names against what three real drivers export and resolve (`tests/data/driver-symbols`).
//!
//! The lists were asked of Debian's driver packages; a name that a driver has and we have not declared
//! could be neither hooked nor counted. No driver is needed to run these tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use turnus_bindings::{NAMES, TYPED, UNTYPED, class};

fn lists(beginning: &str, ending: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/driver-symbols");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("folder of driver symbols") {
        let path = entry.expect("entry of a readable folder").path();
        let name = path.file_name().expect("file name").to_string_lossy().into_owned();
        if name.starts_with(beginning) && name.ends_with(ending) {
            let text = std::fs::read_to_string(&path).expect("readable list");
            found.push((path, text));
        }
    }
    assert_eq!(found.len(), 3, "lists of the drivers 535, 550 and 555");
    found
}

#[test]
fn every_name_that_a_driver_exports_is_declared() {
    for (path, text) in lists("libcuda.so.1.", ".txt") {
        assert!(text.lines().count() > 600, "{} is cut off", path.display());
        let missing: Vec<_> = text.lines().filter(|name| NAMES.binary_search(name).is_err()).collect();
        assert!(missing.is_empty(), "{} has {missing:?}", path.display());
    }
}

/// What `cuGetProcAddress` can hand out must be in the list too, and its forms must share one decision:
/// otherwise a program that asks for an older version would pass by the hook.
#[test]
fn every_symbol_that_a_driver_resolves_has_the_decision_of_its_base_name() {
    for (path, text) in lists("gpa_map.", ".tsv") {
        let mut rows = 0;
        for line in text.lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            let [base, _flag, _from_version, symbol] = columns[..] else { panic!("row {line:?}") };
            if symbol.starts_with("-r0/") {
                continue; // Success without a pointer: the driver has no such function for this version.
            }
            assert!(NAMES.binary_search(&symbol).is_ok(), "{}: {symbol}", path.display());
            assert_eq!(class::class_of(symbol), class::class_of(base), "{base} gives {symbol}");
            rows += 1;
        }
        assert!(rows > 1000, "{} is cut off", path.display());
    }
}

#[test]
fn names_are_sorted_without_repetition() {
    assert!(NAMES.is_sorted_by(|left, right| left < right), "binary search needs strict order");
    let united: BTreeSet<_> = TYPED.iter().chain(UNTYPED).collect();
    assert_eq!(united.len(), TYPED.len() + UNTYPED.len(), "a name is in both lists");
    assert!(united.iter().copied().eq(NAMES), "merged list differs from the union");
}

/// The stream-suffix forms take the default stream of another kind, nothing else differs.
#[test]
fn every_default_stream_form_has_a_base_with_a_signature() {
    for name in NAMES {
        let base = name.strip_suffix("_ptds").or_else(|| name.strip_suffix("_ptsz"));
        if let Some(base) = base {
            assert!(TYPED.binary_search(&base).is_ok(), "{name} without {base}");
            assert!(TYPED.binary_search(name).is_ok(), "{name} without signature");
        }
    }
}

/// Without a signature a call can only be passed on. Outside the debugger interface that is a known few.
#[test]
fn only_undocumented_names_lack_a_signature() {
    let undocumented: Vec<_> = UNTYPED.iter().filter(|name| !name.starts_with("cudbg")).collect();
    assert_eq!(undocumented, [&"cuEGLApiInit", &"cuMemGetAttribute", &"cuMemGetAttribute_v2"]);
}
