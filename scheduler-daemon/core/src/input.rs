//! Everything that can happen to the core: what members say, what the daemon observes.
//!
//! What a member says is never trusted: order, sizes, epochs and devices may be anything. What the
//! daemon says of itself (identities, tenants, leased segments) is taken as true. Variants of
//! [`MemberMessage`] have the names and fields of the protocol's client messages; those that need
//! no policy (`Hello`, `RegisterRun`) stay with the daemon.

use crate::ids::{DeviceKey, Epoch, MemberId, RequestId, SegmentId, TenantId};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// First input of a daemon that had members in its former life: their numbers of that life,
    /// as far as their processes are alive. Until all have come back with `Ready`, or the recovery
    /// time is over, nothing is granted.
    Recover {
        /// Numbers in the former life.
        expected: Vec<MemberId>,
    },
    /// The process of an expected member has ended before it came back.
    ExpectedGone {
        /// Its number in the former life.
        former: MemberId,
    },
    /// A member was welcomed. The first member of a tenant creates the tenant.
    MemberConnected {
        /// A number never used before in this incarnation.
        member: MemberId,
        /// The kernel's word for the process.
        pid: u32,
        /// Whose member it is.
        tenant: TenantId,
        /// Cleaned by the daemon; used when the tenant is new.
        tenant_name: String,
        /// Limit on virtual bytes per device; used when the tenant is new.
        memory_limit_bytes: Option<u64>,
        /// The number of its membership in a former life, which the daemon has checked. Only such
        /// a member may claim bytes, segments and a turn.
        resumes: Option<MemberId>,
    },
    /// The connection or the process has ended: everything it owned returns.
    MemberGone {
        /// Who.
        member: MemberId,
    },
    /// A member says something.
    Message {
        /// Who, as the connection tells.
        member: MemberId,
        /// What.
        message: MemberMessage,
    },
    /// `LeaseSegment` was carried out: the member has the descriptor.
    SegmentLeased {
        /// Who asked.
        member: MemberId,
        /// Its question.
        request: RequestId,
        /// Number of the new segment.
        segment: SegmentId,
        /// Its size.
        bytes: u64,
    },
    /// `LeaseSegment` could not be carried out: the kernel has no memory. The core answers the member.
    SegmentFailed {
        /// Who asked.
        member: MemberId,
        /// Its question.
        request: RequestId,
    },
    /// Time has passed; see `Core::next_deadline`.
    Tick,
    /// The administrator changes the quantum.
    SetQuantum {
        /// Length of a turn while others wait.
        quantum_ms: u64,
    },
    /// The daemon is about to stop: nothing is granted from here on, and all members are told.
    Shutdown,
}

/// What a member says. Fields as in the protocol; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are explained in the line of their variant")]
pub enum MemberMessage {
    /// The member uses this device from now on. Counts are claims, zero unless it resumes;
    /// `epoch` is the turn it still holds from the daemon's former life: its gate is open, or work
    /// that it has submitted may be unfinished (also in the middle of a drain or a restore). Sent again for a known
    /// device it counts as `Usage`.
    Device {
        device: DeviceKey,
        name: String,
        total_bytes: u64,
        free_bytes: u64,
        virtual_bytes: u64,
        resident_bytes: u64,
        host_bytes: u64,
        pinned_bytes: u64,
        epoch: Option<Epoch>,
    },
    /// This segment is leased to me from the former life (the daemon has checked the descriptor).
    SegmentClaim { segment: SegmentId, bytes: u64 },
    /// End of the claims; from here the member takes part in turns.
    Ready,
    /// A call waits at the gate. Once per wait. After this member's `TurnReleased` it takes that
    /// back, answered by `TurnGranted` of the same epoch if the turn has not ended. A member that
    /// has not released gets no second grant: what it waits for is `DrainCancelled`, or the next turn.
    TurnRequested,
    /// Idle, gate closed locally, all work finished. The turn ends when all members said so.
    TurnReleased { epoch: Epoch },
    /// Answer to `Drain` (and again after `AdmitOne`): all submitted work has finished.
    Drained { epoch: Epoch },
    /// Work does not finish and no submission of this process waits; all other members are asked
    /// to admit one. To be repeated every drain step while it lasts.
    DrainStalled { epoch: Epoch },
    /// The member needs credits for this many *more* bytes than it has asked for in this turn.
    /// Only during a turn; what is unmet at the turn's end is forgotten on both sides.
    CreditsWanted { device: DeviceKey, bytes: u64 },
    /// Frames were released, or credits will not be used.
    CreditsReturned { device: DeviceKey, bytes: u64 },
    /// The driver had no memory for `bytes`: the credits go back and count as wanted again.
    CreditsShort { device: DeviceKey, bytes: u64, total_bytes: u64, free_bytes: u64 },
    /// Everything is on the device; the quantum begins. Needed only after `CreditsWanted`.
    Restored { epoch: Epoch },
    /// End of the work on an `Evict` order, after its last `CreditsReturned`. `pinned_bytes` is
    /// what cannot move now.
    Evicted { device: DeviceKey, order: RequestId, pinned_bytes: u64 },
    /// May the tenant allocate this many more virtual bytes (as frames, rounded up)?
    Reserve { request: RequestId, device: DeviceKey, bytes: u64 },
    /// Virtual bytes that the program has freed.
    Unreserve { device: DeviceKey, bytes: u64 },
    /// What would `cuMemGetInfo` say?
    MemoryQuery { request: RequestId, device: DeviceKey },
    /// A host segment for evicted bytes.
    SegmentWanted { request: RequestId, bytes: u64 },
    /// Unmapped and no longer needed.
    SegmentReturned { segment: SegmentId },
    /// A driver call of the member's own ran out of memory: please make room.
    HeadRoomWanted { request: RequestId, device: DeviceKey, bytes: u64 },
    /// The driver's `cuMemGetInfo` while nothing of this member moves.
    Usage { device: DeviceKey, total_bytes: u64, free_bytes: u64 },
    /// After a move: `to_*` are the bytes of this move, the others are where all bytes are now.
    Moved {
        device: DeviceKey,
        to_host_bytes: u64,
        to_device_bytes: u64,
        resident_bytes: u64,
        host_bytes: u64,
        pinned_bytes: u64,
    },
    /// A driver call that is not handled yet was made `count` more times.
    Unhandled { name: String, count: u64 },
    /// A sticky CUDA error: the member's bytes on the device are pinned, its turn ends.
    Faulted { device: DeviceKey, code: u32 },
    /// The process ends in good order; same as gone.
    Goodbye,
}
