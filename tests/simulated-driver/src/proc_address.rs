//! Which symbol `cuGetProcAddress` names for a base name, a CUDA version and a flag.
//!
//! Answers are rows recorded from real drivers (tests/data/driver-symbols), the table being chosen by the
//! driver version; names that are newer than the newest recorded driver come from
//! `data/proc-address-additions.tsv`. The addresses are in `exports.rs`.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::configuration;

const TABLES: &[(u32, &str)] = &[
    (12020, include_str!("../../data/driver-symbols/gpa_map.535.261.03-1.tsv")),
    (12040, include_str!("../../data/driver-symbols/gpa_map.550.163.01-2.tsv")),
    (12050, include_str!("../../data/driver-symbols/gpa_map.555.58.02-4.tsv")),
];
const ADDITIONS: &str = include_str!("../data/proc-address-additions.tsv");
/// The row of a name that the recorded driver does not have at all.
const UNKNOWN_NAME: &str = "-r0/s1";

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The exported symbol to use.
    Symbol(&'static str),
    /// The name exists, but not in a form that old.
    VersionNotSufficient,
    /// No such name.
    Nothing,
}

/// Rows of one name and flag: from this version on, this symbol. Sorted by version.
type Rows = Vec<(u32, &'static str)>;

static MAP: LazyLock<HashMap<(&'static str, u32), Rows>> =
    LazyLock::new(|| read(configuration::driver_version()));

/// Searches `name` for `version` (12040 for CUDA 12.4) and `flag` (0, 1 or 2).
pub fn find(name: &str, version: u32, flag: u32) -> Found {
    let Some(rows) = MAP.get(&(name, flag)) else { return Found::Nothing };
    match rows.iter().rev().find(|row| row.0 <= version) {
        Some((_, symbol)) if !symbol.starts_with('-') => Found::Symbol(symbol),
        Some(_) | None => Found::VersionNotSufficient,
    }
}

fn read(driver_version: u32) -> HashMap<(&'static str, u32), Rows> {
    let table = TABLES.iter().rev().find(|table| table.0 <= driver_version).unwrap_or(&TABLES[0]);
    let mut map: HashMap<(&str, u32), Rows> = HashMap::new();
    for (name, flag, from, symbol) in rows(table.1) {
        if symbol != UNKNOWN_NAME {
            map.entry((name, flag)).or_default().push((from, symbol));
        }
    }
    if driver_version > TABLES[TABLES.len() - 1].0 {
        for (name, flag, from, symbol) in rows(ADDITIONS).filter(|row| row.2 <= driver_version) {
            map.entry((name, flag)).or_default().push((from, symbol));
        }
    }
    for rows in map.values_mut() {
        rows.sort_by_key(|row| row.0);
    }
    map
}

fn rows(text: &'static str) -> impl Iterator<Item = (&'static str, u32, u32, &'static str)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split('\t');
        Some((fields.next()?, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?, fields.next()?))
    })
}
