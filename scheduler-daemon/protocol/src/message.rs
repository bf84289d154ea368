//! The two closed enums: what a member says, what the daemon says.
//!
//! Variants are only ever appended (their position is on the wire), and a new one raises the
//! minor version. The order of an exchange is in `docs/protocol.md`; who may send what when is
//! enforced by the daemon, not here.

#![allow(missing_docs, reason = "the fields are explained in the line of their variant")]

use crate::types::{
    DeviceUuid, Epoch, Incarnation, MemberId, MemberSettings, Reason, RequestId, SegmentId, Token, Version,
};
use serde::{Deserialize, Serialize};

/// From a member (the shim in one process) or from `turnus run` to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientMessage {
    /// First message of a connection. `resume` names the earlier membership after a lost daemon.
    Hello { protocol: Version, shim_version: String, token: Option<Token>, resume: Option<Resume> },
    /// The member uses this device from now on. Counts are its claims, zero at a first start;
    /// `epoch` is the turn it still holds (its work was not drained). `total_bytes` and
    /// `free_bytes` are the driver's own (`cuMemGetInfo`).
    Device {
        device: DeviceUuid,
        name: String,
        total_bytes: u64,
        free_bytes: u64,
        virtual_bytes: u64,
        resident_bytes: u64,
        host_bytes: u64,
        pinned_bytes: u64,
        epoch: Option<Epoch>,
    },
    /// After a restart: this segment is leased to me. Carries the segment's descriptor.
    SegmentClaim { segment: SegmentId, bytes: u64 },
    /// End of the claims; from here the member may ask for turns.
    Ready,
    /// A call waits at the gate. Sent once per wait of the process, not per thread.
    TurnRequested,
    /// The holder is idle, closed its own gate and finished all work: the turn may pass on.
    TurnReleased { epoch: Epoch },
    /// Answer to `Drain`: the gate is closed and all submitted work has finished.
    Drained { epoch: Epoch },
    /// Work does not finish although the gate is closed: it may wait for another member's work.
    DrainStalled { epoch: Epoch },
    /// The member needs frames for this many bytes before its calls may pass the gate.
    CreditsWanted { device: DeviceUuid, bytes: u64 },
    /// Frames for this many bytes were released (evicted, freed, or never made).
    CreditsReturned { device: DeviceUuid, bytes: u64 },
    /// The driver had no memory for `bytes` although the member holds credits for them.
    CreditsShort { device: DeviceUuid, bytes: u64, total_bytes: u64, free_bytes: u64 },
    /// All allocated bytes of all devices are on the device; calls pass the gate in this turn.
    Restored { epoch: Epoch },
    /// Answer to `Evict`: nothing more will be returned for this order. `pinned_bytes` could not move.
    Evicted { device: DeviceUuid, order: RequestId, pinned_bytes: u64 },
    /// May the tenant allocate this many more virtual bytes?
    Reserve { request: RequestId, device: DeviceUuid, bytes: u64 },
    /// Virtual bytes that the program has freed.
    Unreserve { device: DeviceUuid, bytes: u64 },
    /// What would `cuMemGetInfo` say?
    MemoryQuery { request: RequestId, device: DeviceUuid },
    /// A host segment for evicted bytes.
    SegmentWanted { request: RequestId, bytes: u64 },
    /// The member has unmapped the segment and needs its content no more.
    SegmentReturned { segment: SegmentId },
    /// The driver ran out of memory in a call of its own (context, module): please make room.
    HeadRoomWanted { request: RequestId, device: DeviceUuid, bytes: u64 },
    /// Device memory as the driver sees it while nothing of this member moves.
    Usage { device: DeviceUuid, total_bytes: u64, free_bytes: u64 },
    /// Where this member's bytes are, for `status`. Sent after each move.
    Moved {
        device: DeviceUuid,
        to_host_bytes: u64,
        to_device_bytes: u64,
        resident_bytes: u64,
        host_bytes: u64,
        pinned_bytes: u64,
    },
    /// A driver call that Turnus does not handle yet was made `count` more times.
    Unhandled { name: String, count: u64 },
    /// A sticky CUDA error: the member's bytes are pinned from here on.
    Faulted { device: DeviceUuid, code: u32 },
    /// The process ends in good order.
    Goodbye,
    /// From `turnus run`, before it becomes the program: make a tenant and a token for it.
    RegisterRun { protocol: Version, name: String, memory_limit_bytes: Option<u64> },
}

/// The earlier membership that a member had before the daemon was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The daemon's life in which it was welcomed.
    pub incarnation: Incarnation,
    /// Its number there.
    pub member: MemberId,
}

/// From the daemon to a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DaemonMessage {
    /// Answer to `Hello`. Carries the descriptor of the tenant's gate page.
    Welcome {
        protocol: Version,
        incarnation: Incarnation,
        member: MemberId,
        tenant_name: String,
        settings: MemberSettings,
    },
    /// The connection ends; `text` is for a person.
    Rejected { reason: Reason, text: String },
    /// The gate word is open with this epoch.
    TurnGranted { epoch: Epoch },
    /// The gate word is closed: finish submitted work and say `Drained`.
    Drain { epoch: Epoch },
    /// The drain took too long; the gate word is open again with the same epoch.
    DrainCancelled { epoch: Epoch },
    /// Let one waiting submission through: work of the tenant may wait for it.
    AdmitOne { epoch: Epoch },
    /// How many other tenants wait for a device of this tenant. Zero: keep the turn at no cost.
    OthersWaiting { count: u32 },
    /// Frames for this many more bytes may be made.
    Credits { device: DeviceUuid, bytes: u64 },
    /// Give up frames of this many bytes, then say `Evicted` with the same order.
    Evict { device: DeviceUuid, order: RequestId, bytes: u64 },
    /// `Reserve` was admitted.
    Reserved { request: RequestId },
    /// `Reserve` or `SegmentWanted` was refused.
    Refused { request: RequestId, reason: Reason },
    /// Answer to `MemoryQuery`: what `cuMemGetInfo` says to the program.
    MemoryAnswer { request: RequestId, total_bytes: u64, free_bytes: u64 },
    /// Answer to `SegmentWanted`. Carries the segment's descriptor.
    SegmentLeased { request: RequestId, segment: SegmentId, bytes: u64 },
    /// Answer to `HeadRoomWanted`, when room was made or there is none to make.
    HeadRoomMade { request: RequestId, bytes: u64 },
    /// For the one line that a person sees while the program waits.
    WaitNotice { holder_name: String, ahead: u32, waited_ms: u64 },
    /// Answer to `RegisterRun`.
    RunRegistered { token: Token, tenant_name: String },
}
