//! The program allocates, frees and works while the worker evicts and restores.

use super::fake_daemon::{DEVICE, FakeDaemon};
use super::fake_driver::FakeDriver;
use super::random::Dice;
use super::world::{CONTEXT, HANDLE_BYTES};
use crate::memory::Memory;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PROGRAM_THREADS: u64 = 2;
const STEPS: u64 = 400;

struct Stage {
    driver: FakeDriver,
    daemon: FakeDaemon,
    memory: Memory,
    /// Held for reading by work that is inside the gate.
    inside: RwLock<()>,
    is_over: AtomicBool,
}

impl Stage {
    /// Waits until the gate is open, then runs `work` inside.
    fn gated(&self, work: impl FnOnce()) {
        loop {
            let inside = self.inside.read().expect("no panic");
            if self.daemon.books().is_ready {
                work();
                return;
            }
            drop(inside);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn program(&self, seed: u64) {
        let mut dice = Dice::new(seed);
        let mut owned: Vec<(u64, u64, u8)> = Vec::new();
        for step in 0..STEPS {
            if owned.len() < 10 && dice.below(2) == 0 {
                let bytes = 1 + dice.below(2 * HANDLE_BYTES);
                let address = self.memory.allocate(bytes).expect("known").expect("room");
                let value = (step + seed) as u8;
                self.gated(|| self.driver.touch(address, bytes, |_, piece| piece.fill(value)));
                owned.push((address, bytes, value));
            } else if let Some(&(address, bytes, value)) = owned.first() {
                self.gated(|| {
                    self.driver
                        .touch(address, bytes, |_, piece| assert!(piece.iter().all(|byte| *byte == value)));
                });
                self.memory.free(address).expect("ours").expect("works");
                owned.remove(0);
            }
        }
        for (address, ..) in owned {
            self.memory.free(address).expect("ours").expect("works");
        }
    }

    fn worker(&self) {
        let mut dice = Dice::new(99);
        while !self.is_over.load(Ordering::SeqCst) {
            self.memory.turn_began();
            for _ in 0..1 + dice.below(6) {
                self.restore();
                std::thread::sleep(Duration::from_micros(dice.below(300)));
            }
            let closed = self.inside.write().expect("no panic");
            self.daemon.books().is_ready = false;
            drop(closed);
            self.memory.synchronised();
            self.memory.turn_ended();
            self.daemon.books().wanted_bytes = 0;
            let evicted = self.memory.evict(DEVICE, dice.below(16) * HANDLE_BYTES);
            assert_eq!(evicted.error, None);
            if dice.below(4) == 0 {
                self.memory.tidy_at(std::time::Instant::now() + Duration::from_secs(dice.below(7)));
            }
        }
    }

    fn restore(&self) {
        for _ in 0..3 {
            self.memory.restore(DEVICE);
            if self.memory.if_complete(|| self.daemon.books().is_ready = true).is_some() {
                return;
            }
            let mut books = self.daemon.books();
            let bytes = std::mem::take(&mut books.wanted_bytes);
            books.held_bytes += bytes;
            drop(books);
            self.memory.credits_arrived(DEVICE, bytes);
        }
    }
}

#[test]
fn a_program_never_finds_its_bytes_missing_or_changed() {
    let (driver, daemon) = (FakeDriver::new(64 << 20), FakeDaemon::default());
    let memory = Memory::new(Box::new(driver.clone()), Box::new(daemon.clone()), HANDLE_BYTES);
    memory.context_created(CONTEXT, 0, DEVICE).expect("the fake has one device");
    let stage = Stage { driver, daemon, memory, inside: RwLock::new(()), is_over: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| stage.worker());
        let programs: Vec<_> = (0..PROGRAM_THREADS)
            .map(|seed| {
                scope.spawn({
                    let stage = &stage;
                    move || stage.program(seed)
                })
            })
            .collect();
        let results: Vec<_> = programs.into_iter().map(|program| program.join()).collect();
        stage.is_over.store(true, Ordering::SeqCst);
        worker.join().expect("the worker did not panic");
        assert!(results.iter().all(Result::is_ok), "a program panicked");
    });
    stage.memory.turn_ended();
    stage.memory.tidy_at(std::time::Instant::now() + Duration::from_secs(60));
    assert_eq!(stage.driver.holdings(), (0, 0, 0));
    let books = stage.daemon.books();
    assert_eq!((books.virtual_bytes, books.held_bytes, books.segments.len()), (0, 0, 0));
}
