//! Unites what the headers declare with what real drivers export.
//!
//! A name that only a driver has takes the signature of its base when it is a `_ptds`/`_ptsz` form;
//! otherwise it stays without a signature. Nothing is guessed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::header::Function;

/// Every name of the driver API, once, sorted.
#[derive(Debug)]
pub struct Api {
    pub typed: BTreeMap<String, Function>,
    pub untyped: BTreeSet<String>,
}

/// The names in all `libcuda.so.1.*.txt` files of `folder`.
pub fn exported_by_drivers(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        if file_name.starts_with("libcuda.so.1.") && file_name.ends_with(".txt") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            names.extend(text.lines().filter(|line| !line.is_empty()).map(str::to_owned));
        }
    }
    if names.is_empty() {
        bail!("no list of driver symbols in {}", folder.display());
    }
    Ok(names)
}

/// The union of both sources.
pub fn unite(declared: &[Function], exported: &BTreeSet<String>) -> Api {
    let mut typed: BTreeMap<String, Function> =
        declared.iter().map(|function| (function.name.clone(), function.clone())).collect();
    let mut untyped = BTreeSet::new();
    for name in exported {
        if typed.contains_key(name) {
            continue;
        }
        let base = name.strip_suffix("_ptds").or_else(|| name.strip_suffix("_ptsz"));
        match base.and_then(|base| typed.get(base)).cloned() {
            Some(function) => {
                typed.insert(name.clone(), Function { name: name.clone(), ..function });
            }
            None => {
                untyped.insert(name.clone());
            }
        }
    }
    Api { typed, untyped }
}
