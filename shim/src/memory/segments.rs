//! Host segments: memory that the daemon made and leased, in which evicted bytes lie.
//!
//! Mapped shared, never inherited by a child and never dumped. Space is given out in whole spans and
//! reused; a segment that stays empty goes back. The descriptors are kept, since a daemon that was
//! restarted knows its segments only by them. Nothing here asks for segments; `evict.rs` does.

use super::ranges::Ranges;
use super::{Lease, Scheduler};
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use turnus_protocol::{ClientMessage, SegmentId};

/// How long an empty segment is kept: in rotation it is soon needed again, and making one is dear.
pub(crate) const EMPTY_KEEP: Duration = Duration::from_secs(5);

/// A part of a segment. Not `Clone`: who has it owns the space.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Span {
    segment: SegmentId,
    offset: u64,
    bytes: u64,
    /// Where it is mapped; valid until the span is given back.
    address: NonNull<u8>,
}

impl Span {
    /// The mapped bytes, valid as long as the span has not been given back.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }
}

// SAFETY: the address is that of a shared mapping which belongs to no thread; the span is its only
// owner, so one thread at a time reads or writes the bytes.
unsafe impl Send for Span {}

#[derive(Debug)]
struct Segment {
    descriptor: OwnedFd,
    address: NonNull<u8>,
    bytes: u64,
    ranges: Ranges,
    empty_since: Option<Instant>,
}

// SAFETY: as for `Span`: a shared mapping without an owning thread.
unsafe impl Send for Segment {}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping made in `Segments::add`; no span of
        // it is left, or the whole memory is being dropped.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes as usize) };
    }
}

/// All segments of this process.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    segments: BTreeMap<SegmentId, Segment>,
}

impl Segments {
    /// Maps a leased segment. False: it could not be mapped, and is unusable.
    pub(crate) fn add(&mut self, lease: Lease) -> bool {
        let Some(address) = map(&lease) else {
            return false;
        };
        let (bytes, ranges) = (lease.bytes, Ranges::new(lease.bytes));
        let segment = Segment { descriptor: lease.descriptor, address, bytes, ranges, empty_since: None };
        self.segments.insert(lease.segment, segment);
        true
    }

    /// Space for this many bytes, if some segment has it in one piece.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Span> {
        for (&id, segment) in &mut self.segments {
            if let Some(offset) = segment.ranges.take(bytes) {
                segment.empty_since = None;
                // SAFETY: the offset lies inside the mapping, whose length is that of the ranges.
                let address = unsafe { segment.address.add(offset as usize) };
                return Some(Span { segment: id, offset, bytes, address });
            }
        }
        None
    }

    /// Gives space back; its bytes are lost.
    pub(crate) fn give(&mut self, span: Span) {
        if let Some(segment) = self.segments.get_mut(&span.segment) {
            segment.ranges.give(span.offset, span.bytes);
            if segment.ranges.is_all_free() {
                segment.empty_since = Some(Instant::now());
            }
        }
    }

    /// Returns segments that have been empty since `before` or longer. Answers when the oldest of
    /// the others became empty.
    pub(crate) fn return_empty(&mut self, scheduler: &dyn Scheduler, before: Instant) -> Option<Instant> {
        let is_due = |segment: &Segment| segment.empty_since.is_some_and(|since| since <= before);
        let due: Vec<SegmentId> =
            self.segments.iter().filter(|(_, segment)| is_due(segment)).map(|(&id, _)| id).collect();
        for segment in due {
            drop(self.segments.remove(&segment));
            scheduler.send(ClientMessage::SegmentReturned { segment });
        }
        self.segments.values().filter_map(|segment| segment.empty_since).min()
    }

    /// Number, size and descriptor of each.
    pub(crate) fn claims<'a>(&'a self) -> Vec<(SegmentId, u64, BorrowedFd<'a>)> {
        let claim =
            |(id, segment): (&SegmentId, &'a Segment)| (*id, segment.bytes, segment.descriptor.as_fd());
        self.segments.iter().map(claim).collect()
    }
}

fn map(lease: &Lease) -> Option<NonNull<u8>> {
    const POPULATE_WRITE: libc::c_int = 23;
    let length = usize::try_from(lease.bytes).ok().filter(|length| *length > 0)?;
    // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is open and as
    // long as the mapping, and the daemon has sealed its size, so that no page can vanish.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        if libc::fstat(lease.descriptor.as_raw_fd(), &mut status) != 0
            || u64::try_from(status.st_size).is_ok_and(|size| size < lease.bytes)
        {
            return None;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let descriptor = lease.descriptor.as_raw_fd();
        let address = libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, descriptor, 0);
        if address == libc::MAP_FAILED {
            return None;
        }
        libc::madvise(address, length, libc::MADV_DONTFORK);
        libc::madvise(address, length, libc::MADV_DONTDUMP);
        // Faults one by one cost more than the copy; an older kernel takes them one by one.
        libc::madvise(address, length, POPULATE_WRITE);
        NonNull::new(address.cast())
    }
}
