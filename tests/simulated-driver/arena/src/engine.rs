//! The compute engine of a device: one client at a time executes a slice, waiting clients in turn.
//!
//! One word names the owner and since when; each client has a ticket and a futex in the state. Who gives the
//! engine back hands it to the lowest ticket. Nobody waits for ever: a waiter looks every 2 ms whether the owner
//! is dead, and takes over from one who keeps a slice for 50 ms (stopped by a debugger or SIGSTOP; the real
//! engine would go on, too). All is lock-free; threads of one client queue in their process first.

use crate::arena::Arena;
use crate::clients::{alive_byte, client_holder};
use crate::clock::now_ns;
use crate::error::ArenaError;
use crate::rows::Holder;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};

const LOOK_NS: i64 = 2_000_000;
const SLICE_US_MAX: u64 = 50_000;

/// First come, first served among the threads of this process.
#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    /// (next ticket, ticket being served)
    tickets: Mutex<(u64, u64)>,
    served: Condvar,
}

/// The right to execute one slice of work on a device's compute engine; given back when dropped.
#[derive(Debug)]
pub struct EngineSlice<'arena> {
    arena: &'arena Arena,
    device: usize,
    /// The owner word that is ours.
    word: u64,
    _turn: LocalTurn<'arena>,
}

#[derive(Debug)]
struct LocalTurn<'arena>(&'arena LocalQueue);

impl LocalQueue {
    fn wait(&self) -> LocalTurn<'_> {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let own = tickets.0;
        tickets.0 += 1;
        while tickets.1 != own {
            tickets = self.served.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
        LocalTurn(self)
    }
}

impl Drop for LocalTurn<'_> {
    fn drop(&mut self) {
        let mut tickets = self.0.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.1 += 1;
        if tickets.0 != tickets.1 {
            self.0.served.notify_all();
        }
    }
}

fn owner_word(holder: Holder) -> u64 {
    (now_ns() / 1000) << 16 | u64::from(holder)
}

impl Arena {
    /// Wait for the compute engine. Do 1 to 2 ms of work, then drop the slice; take another for more. Kernels
    /// that wait for each other's memory make progress, since each slice lets the others in.
    pub fn engine_slice(&self, device: usize) -> Result<EngineSlice<'_>, ArenaError> {
        let tables = self.state(device)?.tables;
        let turn = self.queues[device].wait();
        let own = &tables.waiters[self.slot];
        let enqueue = || own.ticket.store(tables.engine_ticket.fetch_add(1, SeqCst) + 1, SeqCst);
        enqueue();
        let mut has_waited = false;
        loop {
            let wake = own.wake.load(SeqCst);
            let owner = tables.engine_owner.load(SeqCst);
            if owner as Holder == self.holder() {
                own.ticket.store(0, SeqCst);
                return Ok(EngineSlice { arena: self, device, word: owner, _turn: turn });
            }
            if own.ticket.load(SeqCst) == 0 && tables.engine_owner.load(SeqCst) == owner {
                // The engine was handed to us while we were stopped, and then to another.
                enqueue();
            }
            if owner == 0 || self.is_lost(owner, has_waited) {
                self.pass_engine_on(device, owner);
            } else {
                futex_wait(&own.wake, wake);
                has_waited = true;
            }
        }
    }

    fn is_lost(&self, owner: u64, ask_alive: bool) -> bool {
        let age_us = (now_ns() / 1000).saturating_sub(owner >> 16);
        age_us > SLICE_US_MAX || (ask_alive && !self.alive.is_alive(alive_byte(owner as Holder)))
    }

    /// Hand the engine from the owner word `from` to the client with the lowest ticket, or free it.
    fn pass_engine_on(&self, device: usize, from: u64) {
        let tables = self.shared.device(device).tables;
        let waiters = &tables.waiters;
        if let Some(slot) = (from as usize & 0xffff).checked_sub(1)
            && slot != self.slot
        {
            // Taken from one who is dead or stopped: it must queue again before it is chosen again.
            waiters[slot].ticket.store(0, SeqCst);
        }
        let high = self.shared.header().client_high.load(Acquire) as usize;
        let lowest = || {
            let tickets = waiters[..high].iter().map(|waiter| waiter.ticket.load(SeqCst)).enumerate();
            tickets.filter(|(_, ticket)| *ticket != 0).min_by_key(|(_, ticket)| *ticket)
        };
        let hand = |from: u64, (slot, ticket): (usize, u64)| {
            let word = owner_word(client_holder(slot));
            if tables.engine_owner.compare_exchange(from, word, SeqCst, SeqCst).is_err() {
                return;
            }
            // If it has taken the slice already its ticket is another one by now, and stays.
            let _ = waiters[slot].ticket.compare_exchange(ticket, 0, SeqCst, SeqCst);
            waiters[slot].wake.fetch_add(1, SeqCst);
            if slot != self.slot {
                futex_wake(&waiters[slot].wake);
            }
        };
        match lowest() {
            Some(next) => hand(from, next),
            None if from == 0 => {}
            None => {
                let is_freed = tables.engine_owner.compare_exchange(from, 0, SeqCst, SeqCst).is_ok();
                // Somebody may have queued after the look and seen the engine taken.
                if is_freed && let Some(next) = lowest() {
                    hand(0, next);
                }
            }
        }
    }
}

impl Drop for EngineSlice<'_> {
    fn drop(&mut self) {
        if self.arena.is_of_this_process() {
            let tables = self.arena.shared.device(self.device).tables;
            let now = now_ns();
            let busy_ns = now.saturating_sub((self.word >> 16) * 1000);
            tables.engine_activity.add(now, busy_ns);
            tables.waiters[self.arena.slot].activity.add(now, busy_ns);
            self.arena.pass_engine_on(self.device, self.word);
        }
    }
}

fn futex_wait(word: &AtomicU32, seen: u32) {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: LOOK_NS };
    // SAFETY: `word` is a live aligned u32 in a shared mapping, `timeout` a valid timespec; every outcome
    // (woken, changed, timed out, interrupted) is answered by looking at the state again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const timeout) };
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is a live aligned u32 in a shared mapping; waking has no other precondition.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}
