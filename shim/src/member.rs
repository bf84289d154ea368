//! This process as a member of a tenant: everything that lives from the daemon's welcome on.
//!
//! One value, leaked, reached through one pointer that the hot path loads. There is none before
//! CUDA is initialised, in pass-through mode, and in the child of a fork. Locks inside are leaves:
//! who holds one takes no other, but for this order: turn, memory, connection.

use crate::bell::Bell;
use crate::capture::Captures;
use crate::config::Config;
use crate::connection::Connection;
use crate::contexts::Contexts;
use crate::marks::Marks;
use crate::requests::Requests;
use crate::switch_cost::SwitchCost;
use crate::turn::Turn;
use crate::unhandled::Reporter;
use crate::worker;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use turnus_gate::gate::{Barrier, DaemonWord, Gate};
use turnus_gate::page::{GatePage, wake_private};
use turnus_protocol::{ClientMessage, MemberSettings};

/// What the hot path reads; nothing here is written in a turn.
#[derive(Debug)]
#[repr(align(128))]
struct Hot {
    page: AtomicPtr<GatePage>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) gate: Gate,
    hot: Hot,
    turn: Mutex<Turn>,
    /// Counts changes that waiting threads may care about; they sleep on it.
    changes: Changes,
    pub(crate) marks: Marks,
    pub(crate) captures: Captures,
    pub(crate) contexts: Contexts,
    pub(crate) connection: Connection,
    pub(crate) requests: Requests,
    pub(crate) worker: worker::Queue,
    pub(crate) waiter: worker::Queue,
    pub(crate) switch_cost: SwitchCost,
    unhandled: Mutex<Reporter>,
    pub(crate) config: Config,
    settings: Mutex<MemberSettings>,
    bell: Bell,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Changes {
    number: AtomicU32,
    waiting_threads: AtomicU32,
}

static CURRENT: AtomicPtr<Member> = AtomicPtr::new(core::ptr::null_mut());

/// The member, if this process is one.
#[inline(always)]
pub(crate) fn current() -> Option<&'static Member> {
    // SAFETY: null, or a leaked member that is never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Makes this process a member from here on; or, with `None`, no longer one.
pub(crate) fn set_current(member: Option<&'static Member>) {
    let pointer = member.map_or(core::ptr::null_mut(), |member| core::ptr::from_ref(member).cast_mut());
    CURRENT.store(pointer, Ordering::Release);
}

impl Member {
    /// A member without a turn. Pages are leaked: a thread may read one at any time.
    pub(crate) fn new(
        config: Config,
        connection: Connection,
        page: GatePage,
        settings: MemberSettings,
    ) -> Member {
        Member {
            gate: Gate::new(Barrier::best()),
            hot: Hot { page: AtomicPtr::new(Box::leak(Box::new(page))) },
            turn: Mutex::new(Turn::new()),
            changes: Changes::default(),
            marks: Marks::default(),
            captures: Captures::default(),
            contexts: Contexts::default(),
            connection,
            requests: Requests::default(),
            worker: worker::Queue::default(),
            waiter: worker::Queue::default(),
            switch_cost: SwitchCost::default(),
            unhandled: Mutex::default(),
            config,
            settings: Mutex::new(settings),
            bell: Bell::new(),
        }
    }

    /// The tenant's gate page.
    #[inline(always)]
    pub(crate) fn page(&self) -> &'static GatePage {
        // SAFETY: set from leaked boxes only, never null.
        unsafe { &*self.hot.page.load(Ordering::Acquire) }
    }

    /// The daemon's word in the gate page.
    #[inline(always)]
    pub(crate) fn word(&self) -> &'static DaemonWord {
        self.page().word()
    }

    /// Replaces the page after a new daemon's welcome. The old one stays mapped.
    pub(crate) fn replace_page(&self, page: GatePage) {
        self.hot.page.store(Box::leak(Box::new(page)), Ordering::Release);
    }

    /// The turn's state, locked. Never held while anybody waits.
    pub(crate) fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The daemon's settings.
    pub(crate) fn settings(&self) -> MemberSettings {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a new daemon's settings.
    pub(crate) fn set_settings(&self, settings: MemberSettings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Tells the daemon which calls were not handled since the last time.
    pub(crate) fn report_unhandled(&self) {
        let mut reporter = self.unhandled.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, count) in reporter.news() {
            self.connection.send(&ClientMessage::Unhandled { name, count });
        }
    }

    /// A new daemon has heard of none of them.
    pub(crate) fn report_unhandled_anew(&self) {
        *self.unhandled.lock().unwrap_or_else(PoisonError::into_inner) = Reporter::default();
    }

    /// The number that changes when waiting threads should look again.
    pub(crate) fn change(&self) -> &AtomicU32 {
        &self.changes.number
    }

    /// Makes all waiting threads look again, wherever they sleep.
    pub(crate) fn wake_waiting_threads(&self) {
        self.changes.number.fetch_add(1, Ordering::Release);
        wake_private(&self.changes.number);
    }

    /// Wakes the client thread. It looks at what is under way, and at the socket.
    pub(crate) fn tell_client(&self) {
        self.bell.ring();
    }

    /// The client thread's sleep: until a message, [`Member::tell_client`], or the time is over.
    pub(crate) fn wait_for_news(&self, at_most: core::time::Duration) {
        self.bell.wait(self.connection.raw(), at_most);
    }

    /// How many threads wait at the gate.
    pub(crate) fn waiting_threads(&self) -> u32 {
        self.changes.waiting_threads.load(Ordering::Acquire)
    }

    /// Counts the calling thread as waiting until the value is dropped.
    pub(crate) fn count_waiting_thread(&'static self) -> WaitingThread {
        self.changes.waiting_threads.fetch_add(1, Ordering::AcqRel);
        WaitingThread(self)
    }
}

/// One thread that waits at the gate.
#[derive(Debug)]
pub(crate) struct WaitingThread(&'static Member);

impl Drop for WaitingThread {
    fn drop(&mut self) {
        self.0.changes.waiting_threads.fetch_sub(1, Ordering::AcqRel);
    }
}
