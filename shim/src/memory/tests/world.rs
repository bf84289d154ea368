//! A program, its memory, a driver and a daemon: everything that happens is checked.
//!
//! The program writes and reads only in a turn and only when the memory says that all is there, as
//! the gate makes sure. Its bytes are a pure function of the address and a seed, kept by allocation.

use super::fake_daemon::{DEVICE, FakeDaemon};
use super::fake_driver::FakeDriver;
use crate::memory::evict::Evicted;
use crate::memory::restore::Progress;
use crate::memory::{Context, Memory};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use turnus_bindings::CUerror;

/// Frames of four granules.
pub(super) const HANDLE_BYTES: u64 = 16384;
/// The context of most tests.
pub(super) const CONTEXT: Context = Context(1);

/// See the module.
pub(super) struct World {
    pub(super) driver: FakeDriver,
    pub(super) daemon: FakeDaemon,
    pub(super) memory: Memory,
    /// Length, and the seed of its bytes if it was ever written.
    pub(super) allocations: BTreeMap<u64, (u64, Option<u64>)>,
    connection: u64,
    last_seed: u64,
}

impl World {
    pub(super) fn new(capacity_bytes: u64) -> World {
        let driver = FakeDriver::new(capacity_bytes);
        let daemon = FakeDaemon::default();
        let memory = Memory::new(Box::new(driver.clone()), Box::new(daemon.clone()), HANDLE_BYTES);
        memory.context_created(CONTEXT, 0, DEVICE).expect("the fake has one device");
        World { driver, daemon, memory, allocations: BTreeMap::new(), connection: 0, last_seed: 0 }
    }

    pub(super) fn allocate(&mut self, bytes: u64) -> Result<u64, CUerror> {
        let address = self.memory.allocate(bytes).expect("the device is known")?;
        let before = self.allocations.range(..address + bytes).next_back();
        assert!(before.is_none_or(|(start, (length, _))| start + length <= address), "allocations overlap");
        self.allocations.insert(address, (bytes, None));
        self.check();
        Ok(address)
    }

    /// An error is one of earlier work, as the driver reports it; the allocation is gone anyway.
    pub(super) fn free(&mut self, address: u64) {
        self.allocations.remove(&address).expect("a test frees what it allocated");
        let _ = self.memory.free(address).expect("it is ours");
        self.check();
    }

    /// Begins a turn and restores with credits in pieces of this size.
    pub(super) fn begin(&mut self, piece_bytes: u64) {
        self.memory.turn_began();
        self.restore_all(piece_bytes);
    }

    pub(super) fn restore_all(&mut self, piece_bytes: u64) {
        for _ in 0..10_000 {
            let Progress { missing_bytes, .. } = self.memory.restore(DEVICE);
            self.check();
            let complete = self.memory.if_complete(|| self.daemon.books().is_ready = true);
            assert_eq!(complete.is_some(), missing_bytes == 0);
            if complete.is_some() {
                return;
            }
            self.give(piece_bytes);
        }
        panic!("restoring does not come to an end");
    }

    /// The daemon gives up to this much of what is wanted and there.
    pub(super) fn give(&mut self, most_bytes: u64) {
        let mut books = self.daemon.books();
        let bytes = most_bytes.min(books.wanted_bytes);
        books.wanted_bytes -= bytes;
        books.held_bytes += bytes;
        drop(books);
        self.memory.credits_arrived(DEVICE, bytes);
        self.check();
    }

    /// Drained and over.
    pub(super) fn end(&mut self) {
        self.daemon.books().is_ready = false;
        self.memory.synchronised();
        self.memory.turn_ended();
        self.daemon.books().wanted_bytes = 0;
        self.check();
        assert_eq!(self.daemon.books().held_bytes, self.driver.physical_bytes(), "credits outlive the turn");
    }

    pub(super) fn evict(&mut self, bytes: u64) -> Evicted {
        let before = self.driver.physical_bytes();
        let evicted = self.memory.evict(DEVICE, bytes);
        assert_eq!(before - self.driver.physical_bytes(), evicted.returned_bytes);
        self.check();
        evicted
    }

    /// Evicts everything, however often a step fails.
    pub(super) fn evict_all(&mut self) {
        for _ in 0..1000 {
            if self.evict(u64::MAX / 2).pinned_bytes == 0 {
                assert_eq!(self.driver.physical_bytes(), 0);
                return;
            }
        }
        panic!("evicting does not come to an end");
    }

    /// The daemon dies; another one believes what it is told.
    pub(super) fn replace_daemon(&mut self) {
        self.connection += 1;
        let connection = self.connection;
        let mut books = self.daemon.books();
        self.memory.with_claims(connection, |claims| books.believe(connection, &claims));
        drop(books);
        assert_eq!(self.daemon.books().held_bytes, self.driver.physical_bytes(), "claims are exact");
        self.check();
    }

    pub(super) fn tidy_later(&self, later: Duration) {
        self.memory.tidy_at(Instant::now() + later);
        self.check();
    }

    /// Work of the program fills an allocation. Only when ready.
    pub(super) fn write(&mut self, address: u64) {
        assert!(self.daemon.books().is_ready);
        self.last_seed += 1;
        let seed = self.last_seed;
        let entry = self.allocations.get_mut(&address).expect("a test writes what it allocated");
        entry.1 = Some(seed);
        self.driver.touch(address, entry.0, |offset, bytes| {
            for (index, byte) in bytes.iter_mut().enumerate() {
                *byte = byte_at(seed, offset + index as u64);
            }
        });
        let mut books = self.daemon.books();
        books.submissions = books.submissions.map(|count| count + 1);
    }

    /// Compares every byte that the program ever wrote. Only when ready.
    pub(super) fn verify(&self) {
        assert!(self.daemon.books().is_ready);
        for (&address, &(length, seed)) in &self.allocations {
            self.driver.touch(address, length, |offset, bytes| {
                let Some(seed) = seed else { return };
                let differs =
                    (0..bytes.len()).find(|&index| bytes[index] != byte_at(seed, offset + index as u64));
                assert_eq!(differs, None, "{address:#x} of {length} bytes differs from offset {offset}");
            });
        }
    }

    /// What must hold at any time.
    pub(super) fn check(&self) {
        let books = self.daemon.books();
        let physical = self.driver.physical_bytes();
        assert!(physical <= books.held_bytes, "{physical} bytes of frames, {} of credits", books.held_bytes);
        let most: u64 = self.allocations.values().map(|(bytes, _)| bytes).sum();
        assert!(books.virtual_bytes >= most, "allocated more than was admitted");
    }

    /// Frees everything and makes sure that nothing is left.
    pub(super) fn finish(mut self) {
        for address in self.allocations.keys().copied().collect::<Vec<_>>() {
            self.free(address);
        }
        self.memory.synchronised();
        self.memory.turn_ended();
        // Twice, in case a step was made to fail.
        self.tidy_later(Duration::from_secs(60));
        self.tidy_later(Duration::from_secs(60));
        let books = self.daemon.books();
        assert_eq!(self.driver.holdings(), (0, 0, 0), "reservations, handles, mappings");
        assert_eq!((books.virtual_bytes, books.held_bytes), (0, 0));
        assert_eq!(books.segments.len(), 0, "segments are returned");
        drop(books);
        self.memory.context_leaving(CONTEXT);
        assert_eq!(self.driver.lanes(), 0);
    }
}

fn byte_at(seed: u64, offset: u64) -> u8 {
    let mixed = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 32) as u8
}
