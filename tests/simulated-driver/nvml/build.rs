//! Gives the library its name, and makes the exports that are not simulated.
//!
//! `data/exports.txt` holds the names that real libraries export. Those for which no file of `src/entry` has
//! an `fn` get a function that refuses; simulating one means writing it there, and nothing else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Words of the table in `src/internal.rs`, its length among them.
const INTERNAL_SLOTS: usize = 512;

fn main() {
    for argument in ["-Wl,-soname,libnvidia-ml.so.1", "-Wl,-Bsymbolic"] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    for path in ["build.rs", "data/exports.txt", "src/entry"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let simulated = simulated(Path::new("src/entry"));
    let names = fs::read_to_string("data/exports.txt").expect("data/exports.txt");
    let names: BTreeSet<&str> = names.lines().filter(|line| !line.starts_with('#')).collect();
    for name in &simulated {
        assert!(names.contains(name.as_str()), "{name} is not exported by any real library");
    }
    let refused = names.iter().filter(|name| !simulated.contains(**name));
    let text: String = refused.map(|name| format!("refuse!({name});\n")).collect();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("not_simulated.rs"), text).expect("not_simulated.rs");
    let slots: String = (1..INTERNAL_SLOTS).map(|slot| format!("slot::<{slot}> as Function,\n")).collect();
    fs::write(out.join("internal_slots.rs"), format!("[{slots}]")).expect("internal_slots.rs");
}

/// Names of the functions that the files of `folder` define.
fn simulated(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("src/entry") {
        let text = fs::read_to_string(entry.expect("entry").path()).expect("readable source");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let rests = code.filter_map(|line| Some(line.split_once("fn nvml")?.1));
        found.extend(rests.filter_map(|rest| rest.split('(').next()).map(|name| format!("nvml{name}")));
    }
    found
}
