//! Everything that the core asks the daemon to do, in the order in which to do it.
//!
//! Outputs are commands without an answer, but for `LeaseSegment` (answered by an input). Variants
//! of [`ToMember`] have the names and fields of the protocol's daemon messages.

use crate::ids::{DeviceKey, Epoch, MemberId, Reason, RequestId, SegmentId, TenantId};

/// One command to the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Open the tenant's gate word with this epoch and wake who waits.
    OpenGate {
        /// Whose gate page.
        tenant: TenantId,
        /// The turn.
        epoch: Epoch,
    },
    /// Close the tenant's gate word.
    CloseGate {
        /// Whose gate page.
        tenant: TenantId,
        /// The turn.
        epoch: Epoch,
    },
    /// Publish in the gate page how many other tenants wait for a device of this tenant.
    SetOthersWaiting {
        /// Whose gate page.
        tenant: TenantId,
        /// Other tenants.
        count: u32,
    },
    /// Send a message.
    Send {
        /// To whom.
        member: MemberId,
        /// What.
        message: ToMember,
    },
    /// Make a host segment and send it to the member, then answer with `Input::SegmentLeased` or
    /// `Input::SegmentFailed`. The daemon sends the protocol's `SegmentLeased` itself.
    LeaseSegment {
        /// Who asked.
        member: MemberId,
        /// Its question.
        request: RequestId,
        /// Size.
        bytes: u64,
    },
    /// Punch and close this segment; it is never leased again.
    DropSegment {
        /// Which.
        segment: SegmentId,
    },
    /// Say `Rejected` and disconnect. The core has forgotten the member already; a later
    /// `MemberGone` is ignored.
    RejectMember {
        /// Who.
        member: MemberId,
        /// Why, in a word.
        reason: Reason,
        /// Why, for a person.
        text: String,
    },
    /// The tenant's last member has gone; its gate page is no longer used by the core.
    TenantGone {
        /// Which.
        tenant: TenantId,
    },
    /// Write a line. It begins with its reason word.
    Log {
        /// How loud.
        level: Level,
        /// One line.
        text: String,
    },
}

/// How loud a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For who looks for a fault in a member.
    Debug,
    /// Normal life.
    Info,
    /// Somebody misbehaves or waits for a reason.
    Warn,
    /// A rule of our own was broken.
    Error,
}

/// What the daemon says to a member. Fields as in the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are explained in the line of their variant")]
pub enum ToMember {
    /// The gate word is open with this epoch. Forget what an earlier `OthersWaiting` said. The same
    /// epoch comes again only as answer to a `TurnRequested` that followed a `TurnReleased`.
    TurnGranted { epoch: Epoch },
    /// The gate word is closed: finish submitted work and say `Drained`.
    Drain { epoch: Epoch },
    /// The drain took too long; the gate word is open again with the same epoch. Not sent to a
    /// member that has released the turn: it asks, and is granted the same epoch again.
    DrainCancelled { epoch: Epoch },
    /// Let one waiting submission through, then drain again and say `Drained` again. If none
    /// waits, say `Drained` at once.
    AdmitOne { epoch: Epoch },
    /// How many other tenants wait. Sent when it becomes zero or stops being zero; the exact count
    /// is in the gate page.
    OthersWaiting { count: u32 },
    /// Frames for this many more bytes may be made.
    Credits { device: DeviceKey, bytes: u64 },
    /// Give up frames of this many bytes, then say `Evicted` with the same order.
    Evict { device: DeviceKey, order: RequestId, bytes: u64 },
    /// `Reserve` was admitted.
    Reserved { request: RequestId },
    /// `Reserve` or `SegmentWanted` was refused.
    Refused { request: RequestId, reason: Reason },
    /// Answer to `MemoryQuery`.
    MemoryAnswer { request: RequestId, total_bytes: u64, free_bytes: u64 },
    /// Answer to `HeadRoomWanted`: this much was evicted for it, perhaps nothing.
    HeadRoomMade { request: RequestId, bytes: u64 },
    /// For the one line that a person sees while the program waits.
    WaitNotice { holder_name: String, ahead: u32, waited_ms: u64 },
}
