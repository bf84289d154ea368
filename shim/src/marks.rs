//! One mark per thread that ever passed the gate, and the list of all of them.
//!
//! The hot path finds its thread's mark through one thread-local pointer. Marks are never freed,
//! only reused: who closes the gate may look at one at any time. A thread gives its mark back
//! when it ends (a pthread key's destructor, which also runs for threads that we did not start).

use crate::thread_slot;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use turnus_gate::gate::ThreadMark;

/// A mark and the list it belongs to.
#[derive(Debug)]
struct Owned {
    mark: ThreadMark,
    list: &'static Marks,
}

/// All marks of a member.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    lists: Mutex<Lists>,
    /// Calls that passed on marks whose threads have ended are still counted there; this counts
    /// what has no mark at all.
    unmarked: AtomicU64,
}

#[derive(Debug, Default)]
struct Lists {
    all: Vec<&'static Owned>,
    free: Vec<&'static Owned>,
}

/// This thread's mark, if it has one; a load and a test.
#[inline(always)]
pub(crate) fn mine_if_any() -> Option<&'static ThreadMark> {
    let owned: *const Owned = thread_slot::get().cast();
    // SAFETY: the pointer is null or that of a leaked `Owned`, which is never freed; nobody else
    // uses the slot.
    unsafe { owned.as_ref() }.map(|owned| &owned.mark)
}

impl Marks {
    /// This thread's mark; made or reused if it has none.
    pub(crate) fn mine(&'static self) -> &'static ThreadMark {
        if let Some(mark) = mine_if_any() {
            return mark;
        }
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = match lists.free.pop() {
            Some(owned) => owned,
            None => {
                let owned: &'static Owned =
                    Box::leak(Box::new(Owned { mark: ThreadMark::new(), list: self }));
                lists.all.push(owned);
                owned
            }
        };
        drop(lists);
        thread_slot::set(core::ptr::from_ref(owned).cast());
        if let Some(key) = thread_end_key() {
            // SAFETY: the key is valid; the value is the leaked mark, read by `thread_ends`.
            unsafe { libc::pthread_setspecific(key, core::ptr::from_ref(owned).cast()) };
        }
        &owned.mark
    }

    /// Whether any thread is inside the gate.
    pub(crate) fn any_inside(&self) -> bool {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.all.iter().any(|owned| owned.mark.is_inside())
    }

    /// How many calls have passed the gate, ever.
    pub(crate) fn submissions(&self) -> u64 {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let marked = lists.all.iter().fold(0u64, |sum, owned| sum.wrapping_add(owned.mark.submissions()));
        marked.wrapping_add(self.unmarked.load(Ordering::Relaxed))
    }

    /// Counts a call that passed without a mark.
    pub(crate) fn count_unmarked(&self) {
        self.unmarked.fetch_add(1, Ordering::Relaxed);
    }
}

/// In the child of a fork: the mark is the parent's.
pub(crate) fn forget_in_child() {
    thread_slot::set(core::ptr::null());
    if let Some(key) = thread_end_key() {
        // SAFETY: the key is valid; null means that no destructor runs.
        unsafe { libc::pthread_setspecific(key, core::ptr::null()) };
    }
}

fn thread_end_key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the key is written on success; the destructor has the required type and lives
        // as long as this library, which is never unloaded.
        (unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0).then_some(key)
    })
}

unsafe extern "C" fn thread_ends(owned: *mut c_void) {
    // SAFETY: the value that `mine` set for this thread: a leaked, never freed mark.
    let owned: &'static Owned = unsafe { &*owned.cast_const().cast() };
    thread_slot::set(core::ptr::null());
    owned.mark.leave();
    owned.list.lists.lock().unwrap_or_else(PoisonError::into_inner).free.push(owned);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_gives_its_mark_to_the_next_and_its_count_stays() {
        let marks: &'static Marks = Box::leak(Box::default());
        for round in 1..=3 {
            std::thread::spawn(move || marks.mine().enter_admitted()).join().expect("thread");
            assert_eq!(marks.lists.lock().expect("lists").all.len(), 1, "marks grow with threads that ended");
            assert_eq!(marks.submissions(), round);
            assert!(!marks.any_inside(), "a thread that ended inside holds the gate for ever");
        }
    }

    #[test]
    fn who_is_inside_is_seen_by_others() {
        let marks: &'static Marks = Box::leak(Box::default());
        std::thread::scope(|scope| {
            let (say, hear) = std::sync::mpsc::channel();
            scope.spawn(move || {
                marks.mine().enter_admitted();
                say.send(()).expect("say");
                std::thread::park_timeout(std::time::Duration::from_millis(200));
            });
            hear.recv().expect("hear");
            assert!(marks.any_inside());
        });
    }
}
