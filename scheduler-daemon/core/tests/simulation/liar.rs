//! A member that says anything, in any order, with any number.

use crate::random::Random;
use turnus_core::{DeviceKey, Epoch, MemberMessage as Say, RequestId, SegmentId};

fn bytes(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => u64::MAX - random.below(3),
        1 => 1 << random.below(64),
        2 => 0,
        _ => random.below(2000),
    }
}

/// Something to say; `epoch` and `order` are the last ones that were really seen.
pub fn lie(
    devices: &[DeviceKey],
    total_bytes: u64,
    epoch: Epoch,
    order: RequestId,
    random: &mut Random,
) -> Say {
    let device = if random.percent(5) {
        DeviceKey([0xff; 16])
    } else {
        devices[random.below(devices.len() as u64) as usize]
    };
    let epoch = if random.percent(70) { epoch } else { Epoch(bytes(random)) };
    let order = if random.percent(70) { order } else { RequestId(bytes(random)) };
    let request = RequestId(random.below(5));
    match random.below(24) {
        0 => Say::Ready,
        1..4 => Say::TurnRequested,
        4 => Say::TurnReleased { epoch },
        5 => Say::Drained { epoch },
        6 => Say::DrainStalled { epoch },
        7..10 => Say::CreditsWanted { device, bytes: bytes(random) },
        10 => Say::CreditsReturned { device, bytes: bytes(random) },
        11 => Say::CreditsShort {
            device,
            bytes: bytes(random),
            total_bytes: bytes(random),
            free_bytes: bytes(random),
        },
        12 => Say::Restored { epoch },
        13 => Say::Evicted { device, order, pinned_bytes: bytes(random) },
        14 => Say::Reserve { request, device, bytes: bytes(random) },
        15 => Say::Unreserve { device, bytes: bytes(random) },
        16 => Say::MemoryQuery { request, device },
        17 => Say::SegmentWanted { request, bytes: bytes(random) },
        18 => Say::SegmentReturned { segment: SegmentId(random.below(20)) },
        19 => Say::HeadRoomWanted { request, device, bytes: bytes(random) },
        20 => Say::Usage { device, total_bytes, free_bytes: bytes(random).min(total_bytes) },
        21 => Say::Moved {
            device,
            to_host_bytes: bytes(random),
            to_device_bytes: bytes(random),
            resident_bytes: bytes(random),
            host_bytes: bytes(random),
            pinned_bytes: bytes(random),
        },
        22 => Say::Faulted { device, code: 700 },
        _ if random.percent(20) => {
            Say::SegmentClaim { segment: SegmentId(random.below(20)), bytes: bytes(random) }
        }
        _ => Say::Unhandled { name: "cuWhatever".into(), count: bytes(random) },
    }
}
