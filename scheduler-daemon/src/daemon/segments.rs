//! Host segments: sealed memory files for evicted bytes, leased once to one member.
//!
//! The daemon makes and fills them, so that they are charged to it and not to the tenant's
//! cgroup; it never maps or reads them. A returned segment is punched and closed, never leased
//! again: a former lessee may still have it mapped. Making and punching take milliseconds, so a
//! second thread does them; the loop is woken through a descriptor.

use rustix::event::EventfdFlags;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use turnus_core::{MemberId, RequestId, SegmentId};

/// A segment that was made, or why not.
#[derive(Debug)]
pub struct Made {
    /// For whom.
    pub member: MemberId,
    /// In answer to which question.
    pub request: RequestId,
    /// Its size.
    pub bytes: u64,
    /// The memory file.
    pub result: io::Result<OwnedFd>,
}

#[derive(Debug)]
enum Job {
    Make { member: MemberId, request: RequestId, bytes: u64 },
    Punch { segment: OwnedFd, bytes: u64 },
}

/// All segments that are leased.
#[derive(Debug)]
pub struct Segments {
    incarnation: u64,
    last: u64,
    leased: BTreeMap<SegmentId, (OwnedFd, u64)>,
    jobs: Sender<Job>,
    made: Receiver<Made>,
    wake: Arc<OwnedFd>,
}

impl Segments {
    /// Starts the second thread. Segment numbers begin with the incarnation, so they never repeat.
    pub fn start(incarnation: u64) -> io::Result<Segments> {
        let (jobs, todo) = channel();
        let (done, made) = channel();
        let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let waker = wake.clone();
        thread::Builder::new().name("segments".to_owned()).spawn(move || work(&todo, &done, &waker))?;
        Ok(Segments { incarnation, last: 0, leased: BTreeMap::new(), jobs, made, wake })
    }

    /// Readable when [`Segments::finished`] has something.
    pub fn wake_descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Orders a segment.
    pub fn make(&self, member: MemberId, request: RequestId, bytes: u64) {
        self.give(Job::Make { member, request, bytes });
    }

    /// One segment that is ready, if any.
    pub fn finished(&self) -> Option<Made> {
        let mut count = [0u8; 8];
        // Nothing to read means that somebody read it before; both are fine.
        let _ = rustix::io::read(&*self.wake, &mut count);
        self.made.try_recv().ok()
    }

    /// Notes the lease of a new segment and numbers it.
    pub fn lease(&mut self, descriptor: OwnedFd, bytes: u64) -> SegmentId {
        self.last += 1;
        let segment = SegmentId(self.incarnation << 32 | self.last);
        self.leased.insert(segment, (descriptor, bytes));
        segment
    }

    /// Takes a segment of a former life back into the account. `false` if it cannot be one of ours:
    /// wrong size, not sealed, or the number is in use.
    pub fn claim(&mut self, segment: SegmentId, descriptor: OwnedFd, bytes: u64) -> bool {
        let sealed =
            rustix::fs::fcntl_get_seals(&descriptor).is_ok_and(|seals| seals.contains(seals_of_segment()));
        let fits = rustix::fs::fstat(&descriptor).is_ok_and(|stat| stat.st_size as u64 == bytes);
        if !sealed || !fits || self.leased.contains_key(&segment) || segment.0 >> 32 >= self.incarnation {
            return false;
        }
        self.leased.insert(segment, (descriptor, bytes));
        true
    }

    /// Ends the lease for good: the memory goes back to the system.
    pub fn drop_segment(&mut self, segment: SegmentId) {
        if let Some((descriptor, bytes)) = self.leased.remove(&segment) {
            self.give(Job::Punch { segment: descriptor, bytes });
        }
    }

    /// Gives back a segment that nobody took.
    pub fn discard(&self, segment: OwnedFd, bytes: u64) {
        self.give(Job::Punch { segment, bytes });
    }

    fn give(&self, job: Job) {
        // The thread ends only with this value; a failed send means that it has panicked, and
        // then nothing is made any more, which members see as segments that never come.
        if self.jobs.send(job).is_err() {
            tracing::error!("the segment thread has ended; no host memory can be leased");
        }
    }
}

fn seals_of_segment() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn work(todo: &Receiver<Job>, done: &Sender<Made>, wake: &OwnedFd) {
    while let Ok(job) = todo.recv() {
        match job {
            Job::Make { member, request, bytes } => {
                let made = Made { member, request, bytes, result: make(bytes) };
                if done.send(made).is_err() {
                    return;
                }
                // Full only after 2^64 wakes that nobody read.
                let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
            }
            Job::Punch { segment, bytes } => punch(&segment, bytes),
        }
    }
}

fn make(bytes: u64) -> io::Result<OwnedFd> {
    let segment =
        rustix::fs::memfd_create("turnus-segment", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&segment, bytes)?;
    // Takes the pages now: a lease that could still fail at the first touch would be no lease.
    rustix::fs::fallocate(&segment, FallocateFlags::empty(), 0, bytes)?;
    rustix::fs::fcntl_add_seals(&segment, seals_of_segment())?;
    Ok(segment)
}

fn punch(segment: &OwnedFd, bytes: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if let Err(errno) = rustix::fs::fallocate(segment, flags, 0, bytes) {
        tracing::warn!("cannot punch a returned segment of {bytes} bytes: {errno}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn next(segments: &Segments) -> Made {
        let start = Instant::now();
        loop {
            if let Some(made) = segments.finished() {
                return made;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "the segment was not made");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_segment_is_filled_sealed_and_empty_after_its_return() {
        let mut segments = Segments::start(3).expect("start");
        segments.make(MemberId(1), RequestId(2), 1 << 20);
        let made = next(&segments);
        let descriptor = made.result.expect("memory");
        let lessee = descriptor.try_clone().expect("dup");
        let id = segments.lease(descriptor, made.bytes);
        assert_eq!(id.0 >> 32, 3);
        assert!(rustix::fs::ftruncate(&lessee, 0).is_err(), "a lessee could shrink its segment");
        rustix::io::pwrite(&lessee, b"secret", 0).expect("write");
        let blocks = |fd: &OwnedFd| rustix::fs::fstat(fd).expect("stat").st_blocks;
        assert!(blocks(&lessee) >= 2048, "the daemon did not take the pages");
        segments.drop_segment(id);
        segments.make(MemberId(1), RequestId(3), 4096);
        next(&segments);
        assert_eq!(blocks(&lessee), 0, "memory of a returned segment is still in use");
    }

    #[test]
    fn a_claim_needs_a_sealed_file_of_the_right_size_from_a_former_life() {
        let mut segments = Segments::start(3).expect("start");
        let sealed = || make(4096).expect("memory");
        let unsealed = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).expect("memfd");
        rustix::fs::ftruncate(&unsealed, 4096).expect("size");
        let former = SegmentId(2 << 32 | 9);
        assert!(!segments.claim(former, unsealed, 4096));
        assert!(!segments.claim(former, sealed(), 8192));
        assert!(!segments.claim(SegmentId(3 << 32 | 1), sealed(), 4096), "a number of this life");
        assert!(segments.claim(former, sealed(), 4096));
        assert!(!segments.claim(former, sealed(), 4096), "claimed twice");
    }
}
