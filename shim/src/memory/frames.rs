//! One frame: a piece of an allocation that is moved as a whole, and the ladder it stands on.
//!
//! A frame climbs none -> created -> mapped -> accessible and descends the same way; each step is
//! one driver call, so that a failed call leaves a frame on the rung where it was and the next
//! attempt goes on from there. Where the bytes are is another matter: they are nowhere (never
//! written), on the device, or in host memory. Nothing here calls the driver; see `restore.rs`
//! and `evict.rs`.

use super::driver::Handle;
use super::segments::Span;

/// How far the way to the device is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rung {
    /// No physical memory.
    None,
    /// Physical memory that is mapped nowhere.
    Created(Handle),
    /// Mapped, but the device may not touch it.
    Mapped(Handle),
    /// As good as the driver's own.
    Accessible(Handle),
}

/// Where the bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Never written: any bytes will do.
    Unwritten,
    /// On the device. Only with an accessible frame.
    Device {
        /// Calls that had passed the gate when the frame was made, if it has never been in host
        /// memory: as long as no more have passed, nothing was written.
        unwritten_since: Option<u64>,
    },
    /// Saved. What stands on the device, if anything, is worthless.
    Host(Span),
}

/// One frame of a block.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Offset in the block.
    pub(crate) offset: u64,
    /// Size; a multiple of the granularity.
    pub(crate) bytes: u64,
    /// How far it is built.
    pub(crate) rung: Rung,
    /// Where its bytes are.
    pub(crate) content: Content,
    /// The worker is at it, without the lock: nobody else may change it.
    pub(crate) is_moving: bool,
}

impl Frame {
    /// A frame that was never touched.
    fn new(offset: u64, bytes: u64) -> Frame {
        Frame { offset, bytes, rung: Rung::None, content: Content::Unwritten, is_moving: false }
    }

    /// Cuts a block into frames of `handle_bytes`, the last one shorter.
    pub(crate) fn cut(block_bytes: u64, handle_bytes: u64) -> Vec<Frame> {
        (0..block_bytes.div_ceil(handle_bytes))
            .map(|index| index * handle_bytes)
            .map(|offset| Frame::new(offset, handle_bytes.min(block_bytes - offset)))
            .collect()
    }

    /// Whether the program's work may touch it.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.rung, Rung::Accessible(_)) && matches!(self.content, Content::Device { .. })
    }

    /// Bytes of physical memory that it has.
    pub(crate) fn resident_bytes(&self) -> u64 {
        if self.rung == Rung::None { 0 } else { self.bytes }
    }

    /// Bytes that are saved in host memory.
    pub(crate) fn host_bytes(&self) -> u64 {
        if matches!(self.content, Content::Host(_)) { self.bytes } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_frame_of_a_block_is_shorter() {
        let sizes =
            |block, handle| Frame::cut(block, handle).iter().map(|frame| frame.bytes).collect::<Vec<_>>();
        assert_eq!(sizes(2, 64), [2]);
        assert_eq!(sizes(64, 64), [64]);
        assert_eq!(sizes(130, 64), [64, 64, 2]);
        assert_eq!(Frame::cut(130, 64)[2].offset, 128);
    }
}
