//! The states of a tenant on a device, and every way from one to another.
//!
//! A state is never stored as a decision of its own: it is read off the facts ([`State::of`]), so
//! it cannot disagree with them. Each time the facts change, the step from the old state to the
//! new one must be in [`TRANSITIONS`]; a step that is not there is a broken rule and quarantines
//! the device. `states.dot` beside the sources is the table's picture, held equal by a test.

use State::{Draining, Evicting, Faulted, Gone, Idle, Registered, Restoring, Running, Suspended, Waiting};

/// What a tenant is doing on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Registered,
    Waiting,
    Restoring,
    Running,
    Draining,
    Idle,
    Evicting,
    Suspended,
    Faulted,
    Gone,
}

/// How far a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Restoring,
    Running,
    Draining,
}

/// All that a state depends on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts {
    pub(crate) gone: bool,
    pub(crate) faulted: bool,
    /// The tenant's turn, if it has one that covers the device.
    pub(crate) turn: Option<Progress>,
    /// An evict order is out.
    pub(crate) evicting: bool,
    /// The tenant is in the queue.
    pub(crate) queued: bool,
    pub(crate) has_resident_bytes: bool,
    /// Something is allocated, or saved, that a former turn had on the device.
    pub(crate) has_saved_bytes: bool,
}

impl State {
    /// The state that these facts amount to; the first that applies.
    pub(crate) fn of(facts: Facts) -> State {
        match facts {
            Facts { gone: true, .. } => Gone,
            Facts { faulted: true, .. } => Faulted,
            Facts { turn: Some(Progress::Restoring), .. } => Restoring,
            Facts { turn: Some(Progress::Running), .. } => Running,
            Facts { turn: Some(Progress::Draining), .. } => Draining,
            Facts { evicting: true, .. } => Evicting,
            Facts { queued: true, .. } => Waiting,
            Facts { has_resident_bytes: true, .. } => Idle,
            Facts { has_saved_bytes: true, .. } => Suspended,
            _ => Registered,
        }
    }

    /// As in logs and status.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Registered => "registered",
            Waiting => "waiting",
            Restoring => "restoring",
            Running => "running",
            Draining => "draining",
            Idle => "idle",
            Evicting => "evicting",
            Suspended => "suspended",
            Faulted => "faulted",
            Gone => "gone",
        }
    }

    /// Whether the table has this step; staying is no step.
    pub(crate) fn may_become(self, next: State) -> bool {
        self == next
            || matches!(next, Faulted | Gone) && self != Gone
            || TRANSITIONS.iter().any(|(from, to, _)| *from == self && *to == next)
    }
}

/// Every step but those to `Faulted` and `Gone`, which are possible from everywhere (but `Gone`).
pub(crate) const TRANSITIONS: &[(State, State, &str)] = &[
    (Registered, Waiting, "a call waits at the gate"),
    (Registered, Running, "the turn is extended to the device, or claimed after a restart"),
    (Registered, Restoring, "the turn is extended to the device"),
    (Registered, Idle, "resident bytes are claimed after a restart"),
    (Registered, Suspended, "saved bytes are claimed after a restart"),
    (Registered, Draining, "a device of a claimed turn is told during its drain"),
    (Waiting, Running, "turn granted"),
    (Waiting, Evicting, "evict order"),
    (Waiting, Idle, "who waited is gone"),
    (Waiting, Suspended, "who waited is gone"),
    (Waiting, Registered, "who waited is gone"),
    (Running, Restoring, "credits wanted"),
    (Running, Draining, "quantum over"),
    (Running, Idle, "turn released"),
    (Running, Suspended, "turn released"),
    (Running, Registered, "turn released"),
    (Running, Evicting, "turn released, an older order is out"),
    (Restoring, Running, "restored, or patience over"),
    (Restoring, Draining, "turn must end"),
    (Restoring, Idle, "turn released"),
    (Restoring, Suspended, "turn released"),
    (Restoring, Registered, "turn released"),
    (Restoring, Evicting, "turn released, an older order is out"),
    (Draining, Running, "drain timed out"),
    (Draining, Restoring, "drain timed out"),
    (Draining, Idle, "drained"),
    (Draining, Suspended, "drained"),
    (Draining, Registered, "drained"),
    (Draining, Evicting, "drained, an older order is out"),
    (Idle, Waiting, "a call waits at the gate"),
    (Idle, Evicting, "evict order"),
    (Idle, Suspended, "bytes given back unasked"),
    (Idle, Registered, "all freed"),
    (Idle, Running, "the turn is claimed after a restart, or extended to the device"),
    (Idle, Restoring, "the turn is extended to the device"),
    (Idle, Draining, "a device of a claimed turn is told during its drain"),
    (Evicting, Waiting, "evicted, a call waits at the gate"),
    (Evicting, Running, "turn granted"),
    (Evicting, Idle, "evicted in part"),
    (Evicting, Suspended, "evicted"),
    (Evicting, Registered, "all freed"),
    (Suspended, Waiting, "a call waits at the gate"),
    (Suspended, Running, "the turn is claimed after a restart, or extended to the device"),
    (Suspended, Restoring, "the turn is extended to the device"),
    (Suspended, Idle, "resident bytes are claimed after a restart"),
    (Suspended, Registered, "all freed"),
    (Suspended, Draining, "a device of a claimed turn is told during its drain"),
    (Faulted, Registered, "the faulted member is gone"),
    (Faulted, Waiting, "the faulted member is gone"),
    (Faulted, Restoring, "the faulted member is gone"),
    (Faulted, Running, "the faulted member is gone"),
    (Faulted, Draining, "the faulted member is gone"),
    (Faulted, Idle, "the faulted member is gone"),
    (Faulted, Evicting, "the faulted member is gone"),
    (Faulted, Suspended, "the faulted member is gone"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The table as a graph for dot(1); steps between the same two states share an arrow.
    fn picture() -> String {
        let mut arrows: BTreeMap<(State, State), Vec<&str>> = BTreeMap::new();
        for (from, to, why) in TRANSITIONS.iter().filter(|(from, _, _)| *from != Faulted) {
            arrows.entry((*from, *to)).or_default().push(why);
        }
        let mut text = String::from("// Made from core/src/state.rs; a test holds them equal.\n");
        text.push_str(
            "// From every state: to faulted (sticky CUDA error) and to gone (last member gone).\n",
        );
        text.push_str(
            "// From faulted: to whatever holds for the other members, once the faulted one is gone.\n",
        );
        text.push_str("digraph states {\n");
        for ((from, to), why) in arrows {
            text.push_str(&format!("    {} -> {} [label=\"{}\"];\n", from.word(), to.word(), why.join(", ")));
        }
        text.push_str("}\n");
        text
    }

    #[test]
    fn the_picture_shows_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/states.dot");
        if std::env::var_os("TURNUS_BLESS").is_some() {
            std::fs::write(path, picture()).expect("write states.dot");
        }
        let kept = std::fs::read_to_string(path).expect("read states.dot");
        assert_eq!(kept, picture(), "run the test with TURNUS_BLESS=1 and look at the change");
    }

    #[test]
    fn nothing_leaves_gone_and_no_step_is_listed_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for (from, to, _) in TRANSITIONS {
            assert!(*from != Gone && from != to);
            assert!(seen.insert((*from, *to)), "{from:?} -> {to:?} twice");
        }
        assert!(!Gone.may_become(Registered) && !Gone.may_become(Faulted));
    }

    #[test]
    fn a_tenant_without_a_turn_never_runs_from_suspension_by_waiting() {
        assert!(!Registered.may_become(Evicting));
        assert!(!Suspended.may_become(Evicting));
        assert!(!Waiting.may_become(Draining));
    }
}
