//! The decisions are complete, unambiguous and in use.

use std::collections::BTreeMap;

use super::{Class, Handling, base_name, class_of, names_with, rules, summary};
use crate::NAMES;

#[test]
fn every_name_has_a_class() {
    let without: Vec<_> = NAMES.iter().filter(|name| class_of(name).is_none()).collect();
    assert!(without.is_empty(), "add a rule for {without:?}");
}

#[test]
fn forwarding_has_a_reason_in_words() {
    for name in NAMES {
        if let Some(Handling::Forwarded(reason)) = class_of(name).map(|entry| entry.handling) {
            assert!(reason.split(' ').count() >= 4, "{name} is forwarded without a real reason");
        }
    }
}

/// Kernels and copies on device memory must never be taken for harmless: only host functions submit
/// something and are forwarded, and no copy is.
#[test]
fn only_host_functions_are_submitted_past_the_gate() {
    for name in names_with(Handling::Forwarded("")) {
        let class = class_of(name).map(|entry| entry.class);
        assert_ne!(class, Some(Class::Copies), "{name}");
        if class == Some(Class::Submits) {
            assert!(["cuLaunchHostFunc", "cuStreamAddCallback"].contains(&base_name(name)), "{name}");
        }
    }
}

/// A family also catches names that do not exist yet; those may be called harmless only where a
/// wrong guess loses no memory.
#[test]
fn families_that_touch_memory_are_not_forwarded() {
    let harmless = [Class::Inert, Class::Synchronises, Class::Context, Class::QueriesMemory];
    for rule in rules().filter(|rule| matches!(rule.entry.handling, Handling::Forwarded(_))) {
        for family in rule.names.iter().filter(|pattern| pattern.ends_with('*')) {
            assert!(harmless.contains(&rule.entry.class), "{family} is forwarded as a family");
        }
    }
}

#[test]
fn no_pattern_appears_twice() {
    let mut seen = BTreeMap::new();
    for pattern in rules().flat_map(|rule| rule.names) {
        assert_eq!(seen.insert(pattern, ()), None, "{pattern} has two rules");
    }
}

/// A misspelt exact name would silently protect nothing.
#[test]
fn every_exact_rule_names_a_function() {
    let bases: std::collections::BTreeSet<_> = NAMES.iter().map(|name| base_name(name)).collect();
    for pattern in rules().flat_map(|rule| rule.names).filter(|pattern| !pattern.ends_with('*')) {
        assert!(bases.contains(pattern), "no function is called {pattern}");
    }
}

#[test]
fn all_forms_of_a_name_share_its_decision() {
    for name in ["cuMemcpyHtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"] {
        assert_eq!(base_name(name), "cuMemcpyHtoD");
        assert_eq!(class_of(name).map(|entry| entry.handling), Some(Handling::Hooked), "{name}");
    }
    // Not a version: nothing is cut off.
    assert_eq!(base_name("cuTexObjectGetResourceViewDesc"), "cuTexObjectGetResourceViewDesc");
    assert_eq!(base_name("cu_v"), "cu_v");
}

#[test]
fn the_exact_name_wins_over_its_family() {
    let class = |name| class_of(name).map(|entry| entry.class);
    assert_eq!(class("cuDeviceGetName"), Some(Class::Inert));
    assert_eq!(class("cuDeviceGetMemPool"), Some(Class::QueriesMemory));
    assert_eq!(class_of("cuMemAllocAsync").map(|entry| entry.handling), Some(Handling::NotHandledYet));
    assert_eq!(class("cuMemAllocHost"), Some(Class::Allocates));
}

/// A driver that is newer than our list: a member of a dangerous family is a gap, a stranger is unknown.
#[test]
fn unknown_names_are_never_called_harmless() {
    assert_eq!(class_of("cuMemcpyFancy_v3").map(|entry| entry.handling), Some(Handling::NotHandledYet));
    assert_eq!(class_of("cuLaunchFancy").map(|entry| entry.handling), Some(Handling::NotHandledYet));
    assert_eq!(class_of("cuFancy"), None);
    assert_eq!(class_of("malloc"), None);
}

#[test]
fn the_summary_counts_every_name_once() {
    let rows = summary().0;
    let counted: usize = rows.iter().map(|row| row.hooked + row.forwarded + row.not_handled_yet).sum();
    assert_eq!(counted, NAMES.len());
    let hooked: usize = rows.iter().map(|row| row.hooked).sum();
    assert_eq!(hooked, names_with(Handling::Hooked).count());
    println!("{}", summary());
}
