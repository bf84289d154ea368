//! Host segments: sealed memory files for evicted bytes, leased once to one member.
//!
//! The daemon makes and fills them, so that they are charged to it and not to the tenant's
//! cgroup; it never maps or reads them. A returned segment is punched and closed, never leased
//! again: a former lessee may still have it mapped. Making and punching take milliseconds, so two
//! threads do them; the loop is woken through a descriptor. Two, so that memory goes back before
//! more is taken; and what was ordered for somebody who has gone is not made at all.

use rustix::event::EventfdFlags;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
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
struct Order {
    member: MemberId,
    request: RequestId,
    bytes: u64,
}

/// Segments that are ordered and not made, by who waits for them.
type Waiting = Arc<Mutex<BTreeSet<(MemberId, RequestId)>>>;

/// All segments that are leased.
#[derive(Debug)]
pub struct Segments {
    incarnation: u64,
    last: u64,
    leased: BTreeMap<SegmentId, (OwnedFd, u64)>,
    orders: Sender<Order>,
    returns: Sender<(OwnedFd, u64)>,
    waiting: Waiting,
    made: Receiver<Made>,
    wake: Arc<OwnedFd>,
}

impl Segments {
    /// Starts the threads. Segment numbers begin with the incarnation, so they never repeat.
    pub fn start(incarnation: u64) -> io::Result<Segments> {
        let (orders, to_make) = channel();
        let (returns, to_punch) = channel();
        let (done, made) = channel();
        let waiting = Waiting::default();
        let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (waker, still_waiting) = (wake.clone(), waiting.clone());
        thread::Builder::new()
            .name("segments".to_owned())
            .spawn(move || make_all(&to_make, &still_waiting, &done, &waker))?;
        thread::Builder::new().name("returns".to_owned()).spawn(move || punch_all(&to_punch))?;
        Ok(Segments { incarnation, last: 0, leased: BTreeMap::new(), orders, returns, waiting, made, wake })
    }

    /// Readable when [`Segments::finished`] has something.
    pub fn wake_descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Orders a segment.
    pub fn make(&self, member: MemberId, request: RequestId, bytes: u64) {
        if let Ok(mut waiting) = self.waiting.lock() {
            waiting.insert((member, request));
        }
        if self.orders.send(Order { member, request, bytes }).is_err() {
            // It ends only with this value, or by a panic; then members see segments that never come.
            tracing::error!("the segment thread has ended; no host memory can be leased");
        }
    }

    /// The member has gone: what it has ordered is not made.
    pub fn cancel(&self, member: MemberId) {
        if let Ok(mut waiting) = self.waiting.lock() {
            waiting.retain(|(who, _)| *who != member);
        }
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

    /// Takes a segment of a former life back into the account. The descriptor comes back if it cannot
    /// be one of ours: wrong size, not sealed, or the number is in use.
    pub fn claim(&mut self, segment: SegmentId, descriptor: OwnedFd, bytes: u64) -> Result<(), OwnedFd> {
        // Only memory files have seals; of anything else no more is asked, since the answer could
        // take as long as its file system likes.
        let is_ours = !self.leased.contains_key(&segment)
            && segment.0 >> 32 < self.incarnation
            && rustix::fs::fcntl_get_seals(&descriptor).is_ok_and(|seals| seals.contains(seals_of_segment()))
            && rustix::fs::fstat(&descriptor).is_ok_and(|stat| stat.st_size as u64 == bytes);
        if !is_ours {
            return Err(descriptor);
        }
        self.leased.insert(segment, (descriptor, bytes));
        Ok(())
    }

    /// Ends the lease for good: the memory goes back to the system.
    pub fn drop_segment(&mut self, segment: SegmentId) {
        if let Some((descriptor, bytes)) = self.leased.remove(&segment) {
            self.discard(descriptor, bytes);
        }
    }

    /// Gives back a segment that nobody took.
    pub fn discard(&self, segment: OwnedFd, bytes: u64) {
        // Without that thread the memory goes back here and now, by the close.
        let _ = self.returns.send((segment, bytes));
    }
}

fn seals_of_segment() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn make_all(orders: &Receiver<Order>, waiting: &Waiting, done: &Sender<Made>, wake: &OwnedFd) {
    while let Ok(Order { member, request, bytes }) = orders.recv() {
        let wanted = waiting.lock().is_ok_and(|mut waiting| waiting.remove(&(member, request)));
        if !wanted {
            continue;
        }
        if done.send(Made { member, request, bytes, result: make(bytes) }).is_err() {
            return;
        }
        // Full only after 2^64 wakes that nobody read.
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    }
}

fn punch_all(returns: &Receiver<(OwnedFd, u64)>) {
    while let Ok((segment, bytes)) = returns.recv() {
        punch(&segment, bytes);
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
        let start = Instant::now();
        while blocks(&lessee) > 0 {
            assert!(start.elapsed() < Duration::from_secs(10), "a returned segment keeps its memory");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_was_ordered_by_who_has_gone_is_not_made() {
        let segments = Segments::start(3).expect("start");
        // Keeps the thread busy while the next two are ordered and one is cancelled.
        segments.make(MemberId(1), RequestId(1), 64 << 20);
        segments.make(MemberId(2), RequestId(2), 4096);
        segments.cancel(MemberId(2));
        segments.make(MemberId(3), RequestId(3), 4096);
        let made: Vec<MemberId> = [next(&segments), next(&segments)].map(|made| made.member).into();
        assert_eq!(made, [MemberId(1), MemberId(3)]);
    }

    #[test]
    fn a_claim_needs_a_sealed_file_of_the_right_size_from_a_former_life() {
        let mut segments = Segments::start(3).expect("start");
        let sealed = || make(4096).expect("memory");
        let unsealed = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).expect("memfd");
        rustix::fs::ftruncate(&unsealed, 4096).expect("size");
        let former = SegmentId(2 << 32 | 9);
        assert!(segments.claim(former, unsealed, 4096).is_err());
        assert!(segments.claim(former, sealed(), 8192).is_err());
        assert!(segments.claim(SegmentId(3 << 32 | 1), sealed(), 4096).is_err(), "a number of this life");
        assert!(segments.claim(former, sealed(), 4096).is_ok());
        assert!(segments.claim(former, sealed(), 4096).is_err(), "claimed twice");
    }
}
