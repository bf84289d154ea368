//! The gate's memory order, checked over every interleaving that loom can find.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p turnus-gate --test model --release`. The claim:
//! once `close` has returned and no mark is inside, nobody submits until the gate is ready again.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use loom::thread;
use turnus_gate::gate::{Barrier, Gate, ThreadMark};
use turnus_gate::word;

/// One submitting thread against the closer: after the drain the device belongs to somebody else.
fn submitter_against_closer(daemon_closes_first: bool) {
    loom::model(move || {
        let gate = Arc::new(Gate::new(Barrier::Asymmetric));
        let daemon_word = Arc::new(AtomicU32::new(word::open(3)));
        let mark = Arc::new(ThreadMark::new());
        let handed_over = Arc::new(AtomicBool::new(false));
        gate.set_ready(word::open(3));

        let submitter = {
            let (gate, daemon_word) = (gate.clone(), daemon_word.clone());
            let (mark, handed_over) = (mark.clone(), handed_over.clone());
            thread::spawn(move || {
                if gate.try_enter(&mark, &daemon_word) {
                    assert!(!handed_over.load(Ordering::Relaxed), "submitted into another tenant's turn");
                    mark.leave();
                }
            })
        };
        if daemon_closes_first {
            daemon_word.store(word::closed(3), Ordering::Release);
        }
        gate.close();
        if !mark.is_inside() {
            handed_over.store(true, Ordering::Relaxed);
        }
        submitter.join().unwrap();
    });
}

#[test]
fn nobody_submits_after_the_member_closed_its_own_gate() {
    submitter_against_closer(false);
}

#[test]
fn nobody_submits_after_the_daemon_closed_the_gate() {
    submitter_against_closer(true);
}

#[test]
fn what_was_restored_is_seen_by_who_passes() {
    loom::model(|| {
        let gate = Arc::new(Gate::new(Barrier::Asymmetric));
        let daemon_word = Arc::new(AtomicU32::new(word::open(4)));
        let restored = Arc::new(AtomicU64::new(0));
        let restorer = {
            let (gate, restored) = (gate.clone(), restored.clone());
            thread::spawn(move || {
                restored.store(42, Ordering::Relaxed);
                gate.set_ready(word::open(4));
            })
        };
        let mark = ThreadMark::new();
        if gate.try_enter(&mark, &daemon_word) {
            assert_eq!(restored.load(Ordering::Relaxed), 42, "passed before the bytes were there");
            mark.leave();
        }
        restorer.join().unwrap();
    });
}

#[test]
fn work_done_inside_is_seen_by_the_closer() {
    loom::model(|| {
        let gate = Arc::new(Gate::new(Barrier::Asymmetric));
        let daemon_word = Arc::new(AtomicU32::new(word::open(5)));
        let mark = Arc::new(ThreadMark::new());
        let submitted = Arc::new(AtomicU64::new(0));
        gate.set_ready(word::open(5));
        let submitter = {
            let (gate, daemon_word) = (gate.clone(), daemon_word.clone());
            let (mark, submitted) = (mark.clone(), submitted.clone());
            thread::spawn(move || {
                let passed = gate.try_enter(&mark, &daemon_word);
                if passed {
                    submitted.store(1, Ordering::Relaxed);
                    mark.leave();
                }
                passed
            })
        };
        gate.close();
        let outside = !mark.is_inside();
        let seen = submitted.load(Ordering::Relaxed);
        let passed = submitter.join().unwrap();
        // Outside before the close took effect and passed: then the submission must be visible.
        if outside && passed {
            assert_eq!(seen, 1, "the drain missed a submission");
        }
    });
}
