//! What each function of the driver API does to a shared GPU, and what Turnus does about it.
//!
//! Every name has exactly one class and one handling; a test fails when a regenerated list brings a name
//! without. Nothing is forwarded by default: forwarding needs a reason in words. The decisions are data:
//! `class/{memory,work,objects,interop}.rs`. This module only looks names up in them.

use core::fmt;
use core::mem::discriminant;

mod interop;
mod memory;
mod objects;
mod work;

/// What a call does, seen by whoever shares the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Gives the device work, or opens or closes a capture of work.
    Submits,
    /// Moves or fills bytes of device memory.
    Copies,
    /// Takes memory or address space.
    Allocates,
    /// Gives memory or address space back. Never gated.
    Frees,
    /// Hands an address to the driver, which may look at what lies there though nothing runs: must be
    /// mapped during the call.
    ResolvesAddress,
    /// Tells about memory; the answer must be that of a program alone on the device.
    QueriesMemory,
    /// Lets another process, device or API reach the memory, or reaches theirs.
    ExportsMemory,
    /// Takes device memory that no allocation call names: contexts, code.
    NeedsHeadRoom,
    /// Waits for work or orders it. Never gated: work can only finish if this goes on.
    Synchronises,
    /// Makes, ends or selects a context.
    Context,
    /// None of the above.
    Inert,
}

/// What Turnus does with calls of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Handling {
    /// The shim exports a hook.
    Hooked,
    /// Programs reach the driver directly, and that is right, for this reason.
    Forwarded(&'static str),
    /// Programs reach the driver, and that is a gap: the shim counts the calls, and they are shown.
    NotHandledYet,
}

/// The decision about one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// What the call does.
    pub class: Class,
    /// What Turnus does about it.
    pub handling: Handling,
}

/// One decision for several functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    entry: Entry,
    /// Names without `_v2`, `_ptds`, `_ptsz`; or the beginning of names, followed by `*`.
    names: &'static [&'static str],
}

const fn hooked(class: Class, names: &'static [&'static str]) -> Rule {
    Rule { entry: Entry { class, handling: Handling::Hooked }, names }
}

const fn forwarded(class: Class, reason: &'static str, names: &'static [&'static str]) -> Rule {
    Rule { entry: Entry { class, handling: Handling::Forwarded(reason) }, names }
}

const fn not_handled_yet(class: Class, names: &'static [&'static str]) -> Rule {
    Rule { entry: Entry { class, handling: Handling::NotHandledYet }, names }
}

fn rules() -> impl Iterator<Item = &'static Rule> {
    memory::RULES.iter().chain(work::RULES).chain(objects::RULES).chain(interop::RULES)
}

/// The decision about the function `name`; `None` if no rule knows it.
///
/// An exact name wins over a family, a longer family over a shorter one. Names that a newer driver adds
/// to a known family get the family's answer; they need not be in [`NAMES`](crate::NAMES).
pub fn class_of(name: &str) -> Option<Entry> {
    let base = base_name(name);
    let mut best: Option<(usize, Entry)> = None;
    for rule in rules() {
        for pattern in rule.names {
            let matched = match pattern.strip_suffix('*') {
                Some(family) if base.starts_with(family) => family.len(),
                None if *pattern == base => usize::MAX,
                _ => continue,
            };
            if best.is_none_or(|(length, _)| matched > length) {
                best = Some((matched, rule.entry));
            }
        }
    }
    best.map(|(_, entry)| entry)
}

/// `cuMemAlloc_v2_ptds` is a form of `cuMemAlloc`: without version and without default-stream suffix.
pub fn base_name(name: &str) -> &str {
    let name = name.strip_suffix("_ptds").or_else(|| name.strip_suffix("_ptsz")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()) => {
            base
        }
        _ => name,
    }
}

/// The names in [`NAMES`](crate::NAMES) with this handling, sorted. The reason in a `Forwarded` is not compared.
pub fn names_with(handling: Handling) -> impl Iterator<Item = &'static str> {
    crate::NAMES.iter().copied().filter(move |name| {
        class_of(name).is_some_and(|entry| discriminant(&entry.handling) == discriminant(&handling))
    })
}

/// How many names of one class are handled how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryRow {
    /// The class that is counted.
    pub class: Class,
    /// Names with a hook.
    pub hooked: usize,
    /// Names that rightly reach the driver directly.
    pub forwarded: usize,
    /// Names that are a gap.
    pub not_handled_yet: usize,
}

/// Counts over [`NAMES`](crate::NAMES), one row a class, in the order of [`Class`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary(pub Vec<SummaryRow>);

/// The counts of all decisions.
pub fn summary() -> Summary {
    let mut rows: std::collections::BTreeMap<Class, SummaryRow> = Default::default();
    for entry in crate::NAMES.iter().filter_map(|name| class_of(name)) {
        let class = entry.class;
        let row =
            rows.entry(class).or_insert(SummaryRow { class, hooked: 0, forwarded: 0, not_handled_yet: 0 });
        match entry.handling {
            Handling::Hooked => row.hooked += 1,
            Handling::Forwarded(_) => row.forwarded += 1,
            Handling::NotHandledYet => row.not_handled_yet += 1,
        }
    }
    Summary(rows.into_values().collect())
}

impl fmt::Display for Summary {
    /// A Markdown table.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "| class | hooked | forwarded | not handled yet |\n|---|---|---|---|")?;
        for row in &self.0 {
            let SummaryRow { class, hooked, forwarded, not_handled_yet } = row;
            writeln!(formatter, "| {class:?} | {hooked} | {forwarded} | {not_handled_yet} |")?;
        }
        let sum = |count: fn(&SummaryRow) -> usize| self.0.iter().map(count).sum::<usize>();
        let (hooked, forwarded) = (sum(|row| row.hooked), sum(|row| row.forwarded));
        writeln!(formatter, "| all | {hooked} | {forwarded} | {} |", sum(|row| row.not_handled_yet))
    }
}

#[cfg(test)]
mod tests;
