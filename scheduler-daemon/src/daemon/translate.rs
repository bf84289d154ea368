//! The protocol's messages to the core's inputs, the core's words to the protocol's messages.
//!
//! The two crates do not know each other; their variants have the same names and fields, so this
//! file holds no decisions. What never reaches the core (`Hello`, `RegisterRun`) gives `None`.

use turnus_core as core;
use turnus_core::{MemberMessage, ToMember};
use turnus_protocol as protocol;
use turnus_protocol::admin::{DeviceStatus, PoolStatus, Status, TenantStatus};
use turnus_protocol::{ClientMessage, DaemonMessage};

fn device(uuid: protocol::DeviceUuid) -> core::DeviceKey {
    core::DeviceKey(uuid.0)
}

fn uuid(device: core::DeviceKey) -> protocol::DeviceUuid {
    protocol::DeviceUuid(device.0)
}

fn epoch(epoch: protocol::Epoch) -> core::Epoch {
    core::Epoch(epoch.0)
}

fn request(request: protocol::RequestId) -> core::RequestId {
    core::RequestId(request.0)
}

/// What a member said, for the core.
pub fn to_core(message: ClientMessage) -> Option<MemberMessage> {
    use ClientMessage as From;
    use MemberMessage as To;
    Some(match message {
        From::Hello { .. } | From::RegisterRun { .. } => return None,
        From::Device {
            device: key,
            name,
            total_bytes,
            free_bytes,
            virtual_bytes,
            resident_bytes,
            host_bytes,
            pinned_bytes,
            epoch: claimed,
        } => To::Device {
            device: device(key),
            name: protocol::name::clean(&name),
            total_bytes,
            free_bytes,
            virtual_bytes,
            resident_bytes,
            host_bytes,
            pinned_bytes,
            epoch: claimed.map(epoch),
        },
        From::SegmentClaim { segment, bytes } => {
            To::SegmentClaim { segment: core::SegmentId(segment.0), bytes }
        }
        From::Ready => To::Ready,
        From::TurnRequested => To::TurnRequested,
        From::TurnReleased { epoch: ended } => To::TurnReleased { epoch: epoch(ended) },
        From::Drained { epoch: ended } => To::Drained { epoch: epoch(ended) },
        From::DrainStalled { epoch: stalled } => To::DrainStalled { epoch: epoch(stalled) },
        From::CreditsWanted { device: key, bytes } => To::CreditsWanted { device: device(key), bytes },
        From::CreditsReturned { device: key, bytes } => To::CreditsReturned { device: device(key), bytes },
        From::CreditsShort { device: key, bytes, total_bytes, free_bytes } => {
            To::CreditsShort { device: device(key), bytes, total_bytes, free_bytes }
        }
        From::Restored { epoch: restored } => To::Restored { epoch: epoch(restored) },
        From::Evicted { device: key, order, pinned_bytes } => {
            To::Evicted { device: device(key), order: request(order), pinned_bytes }
        }
        From::Reserve { request: question, device: key, bytes } => {
            To::Reserve { request: request(question), device: device(key), bytes }
        }
        From::Unreserve { device: key, bytes } => To::Unreserve { device: device(key), bytes },
        From::MemoryQuery { request: question, device: key } => {
            To::MemoryQuery { request: request(question), device: device(key) }
        }
        From::SegmentWanted { request: question, bytes } => {
            To::SegmentWanted { request: request(question), bytes }
        }
        From::SegmentReturned { segment } => To::SegmentReturned { segment: core::SegmentId(segment.0) },
        From::HeadRoomWanted { request: question, device: key, bytes } => {
            To::HeadRoomWanted { request: request(question), device: device(key), bytes }
        }
        From::Usage { device: key, total_bytes, free_bytes } => {
            To::Usage { device: device(key), total_bytes, free_bytes }
        }
        From::Moved {
            device: key,
            to_host_bytes,
            to_device_bytes,
            resident_bytes,
            host_bytes,
            pinned_bytes,
        } => To::Moved {
            device: device(key),
            to_host_bytes,
            to_device_bytes,
            resident_bytes,
            host_bytes,
            pinned_bytes,
        },
        From::Unhandled { name, count } => To::Unhandled { name: protocol::name::clean(&name), count },
        From::Faulted { device: key, code } => To::Faulted { device: device(key), code },
        From::Goodbye => To::Goodbye,
    })
}

/// What the core says to a member, for the wire.
pub fn to_wire(message: ToMember) -> DaemonMessage {
    use DaemonMessage as To;
    use ToMember as From;
    let epoch = |epoch: core::Epoch| protocol::Epoch(epoch.0);
    let request = |request: core::RequestId| protocol::RequestId(request.0);
    match message {
        From::TurnGranted { epoch: granted } => To::TurnGranted { epoch: epoch(granted) },
        From::Drain { epoch: ending } => To::Drain { epoch: epoch(ending) },
        From::DrainCancelled { epoch: kept } => To::DrainCancelled { epoch: epoch(kept) },
        From::AdmitOne { epoch: ending } => To::AdmitOne { epoch: epoch(ending) },
        From::OthersWaiting { count } => To::OthersWaiting { count },
        From::Credits { device, bytes } => To::Credits { device: uuid(device), bytes },
        From::Evict { device, order, bytes } => {
            To::Evict { device: uuid(device), order: request(order), bytes }
        }
        From::Reserved { request: question } => To::Reserved { request: request(question) },
        From::Refused { request: question, reason } => {
            To::Refused { request: request(question), reason: reason_to_wire(reason) }
        }
        From::MemoryAnswer { request: question, total_bytes, free_bytes } => {
            To::MemoryAnswer { request: request(question), total_bytes, free_bytes }
        }
        From::HeadRoomMade { request: question, bytes } => {
            To::HeadRoomMade { request: request(question), bytes }
        }
        From::WaitNotice { holder_name, ahead, waited_ms } => {
            To::WaitNotice { holder_name, ahead, waited_ms }
        }
    }
}

/// The same word in the other crate.
pub fn reason_to_wire(reason: core::Reason) -> protocol::Reason {
    use core::Reason as From;
    use protocol::Reason as To;
    match reason {
        From::TenantLimit => To::TenantLimit,
        From::CapacityExceeded => To::CapacityExceeded,
        From::BudgetExceeded => To::BudgetExceeded,
        From::NotPreemptible => To::NotPreemptible,
        From::ProtocolViolation => To::ProtocolViolation,
        From::Recovering => To::Recovering,
        From::ShuttingDown => To::ShuttingDown,
    }
}

/// The admin document.
pub fn status(view: core::StatusView) -> Status {
    Status {
        format_version: 1,
        daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
        incarnation: view.incarnation,
        recovering: view.recovering,
        host_pool: PoolStatus {
            leased_bytes: view.host_pool.leased_bytes,
            promised_bytes: view.host_pool.promised_bytes,
            limit_bytes: view.host_pool.limit_bytes,
        },
        devices: view.devices.into_iter().map(device_status).collect(),
        tenants: view.tenants.into_iter().map(tenant_status).collect(),
    }
}

fn device_status(view: core::DeviceView) -> DeviceStatus {
    DeviceStatus {
        uuid: view.device.to_string(),
        name: view.name,
        mode: "exclusive".to_owned(),
        wanted_bytes: view.wanted_bytes,
        capacity_bytes: view.capacity_bytes,
        resident_bytes: view.resident_bytes,
        total_bytes: view.total_bytes,
        holder: view.holder,
        time_left_ms: view.time_left_ms,
        quarantined: view.quarantined,
    }
}

fn tenant_status(view: core::TenantView) -> TenantStatus {
    TenantStatus {
        name: view.name,
        tenant: view.tenant.0,
        device: view.device.to_string(),
        state: view.state.to_owned(),
        pids: view.pids,
        virtual_bytes: view.virtual_bytes,
        resident_bytes: view.resident_bytes,
        host_bytes: view.host_bytes,
        pinned_bytes: view.pinned_bytes,
        memory_limit_bytes: view.memory_limit_bytes,
        queue_place: view.queue_place,
        turns: view.turns,
        turn_ms: view.turn_ms,
        wait_ms: view.wait_ms,
        to_host_bytes: view.to_host_bytes,
        to_device_bytes: view.to_device_bytes,
        unhandled: view.unhandled,
        reasons: view.reasons,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two crates must agree on the words that people search for.
    #[test]
    fn reasons_have_the_same_word_and_advice_on_both_sides() {
        for reason in [
            core::Reason::TenantLimit,
            core::Reason::CapacityExceeded,
            core::Reason::BudgetExceeded,
            core::Reason::NotPreemptible,
            core::Reason::ProtocolViolation,
            core::Reason::Recovering,
            core::Reason::ShuttingDown,
        ] {
            assert_eq!(reason.word(), reason_to_wire(reason).word());
            assert_eq!(reason.advice(), reason_to_wire(reason).advice());
        }
    }
}
