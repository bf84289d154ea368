//! The bytes of every message, and what happens to bytes that are no message.
//!
//! `golden.txt` is part of the protocol: a difference there breaks shims that are already running
//! in somebody's pods. Appending a variant adds a line; no line ever changes. After adding one,
//! `TURNUS_UPDATE_GOLDEN=1 cargo test -p turnus-protocol` writes the file anew.

use proptest::prelude::*;
use std::fmt::Write as _;
use std::path::Path;
use turnus_protocol::admin::AdminRequest;
use turnus_protocol::codec::Bounded;
use turnus_protocol::limits::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION, TEXT_BYTES_MAX};
use turnus_protocol::message::Resume;
use turnus_protocol::{
    ClientMessage, CodecError, DaemonMessage, DeviceUuid, Epoch, Incarnation, MemberId, MemberSettings,
    Reason, RequestId, SegmentId, Token, decode, encode,
};

fn device() -> DeviceUuid {
    DeviceUuid(*b"0123456789abcdef")
}

fn client_messages() -> Vec<ClientMessage> {
    use ClientMessage::*;
    let (device, request, epoch, bytes) = (device(), RequestId(7), Epoch(3 << 32 | 5), 64 << 20);
    vec![
        Hello {
            protocol: PROTOCOL_VERSION,
            shim_version: "0.1.0".into(),
            token: Some(Token([9; 16])),
            resume: Some(Resume { incarnation: Incarnation(2), member: MemberId(2 << 32 | 1) }),
        },
        Device {
            device,
            name: "Simulated".into(),
            total_bytes: 1 << 34,
            free_bytes: 1 << 33,
            virtual_bytes: 3,
            resident_bytes: 2,
            host_bytes: 1,
            pinned_bytes: 0,
            epoch: Some(epoch),
        },
        SegmentClaim { segment: SegmentId(11), bytes },
        Ready,
        TurnRequested,
        TurnReleased { epoch },
        Drained { epoch },
        DrainStalled { epoch },
        CreditsWanted { device, bytes },
        CreditsReturned { device, bytes },
        CreditsShort { device, bytes, total_bytes: 10, free_bytes: 0 },
        Restored { epoch },
        Evicted { device, order: request, pinned_bytes: 4096 },
        Reserve { request, device, bytes },
        Unreserve { device, bytes },
        MemoryQuery { request, device },
        SegmentWanted { request, bytes },
        SegmentReturned { segment: SegmentId(11) },
        HeadRoomWanted { request, device, bytes },
        Usage { device, total_bytes: 10, free_bytes: 1 },
        Moved {
            device,
            to_host_bytes: 1,
            to_device_bytes: 2,
            resident_bytes: 3,
            host_bytes: 4,
            pinned_bytes: 5,
        },
        Unhandled { name: "cuMemAllocAsync".into(), count: 12 },
        Faulted { device, code: 700 },
        Goodbye,
        RegisterRun {
            protocol: PROTOCOL_VERSION,
            name: "notebook".into(),
            memory_limit_bytes: Some(8 << 30),
        },
    ]
}

fn daemon_messages() -> Vec<DaemonMessage> {
    use DaemonMessage::*;
    let (device, request, epoch, bytes) = (device(), RequestId(7), Epoch(3 << 32 | 5), 64 << 20);
    let settings = MemberSettings {
        notice_after_ms: 10_000,
        idle_hold_ms: 2,
        drain_step_ms: 20,
        handle_bytes: 64 << 20,
        in_flight_ms: 50,
    };
    vec![
        Welcome {
            protocol: PROTOCOL_VERSION,
            incarnation: Incarnation(3),
            member: MemberId(3 << 32 | 1),
            tenant_name: "notebook".into(),
            settings,
        },
        Rejected { reason: Reason::DeviceTaken, text: "taken".into() },
        TurnGranted { epoch },
        Drain { epoch },
        DrainCancelled { epoch },
        AdmitOne { epoch },
        OthersWaiting { count: 2 },
        Credits { device, bytes },
        Evict { device, order: request, bytes },
        Reserved { request },
        Refused { request, reason: Reason::BudgetExceeded },
        MemoryAnswer { request, total_bytes: 10, free_bytes: 1 },
        SegmentLeased { request, segment: SegmentId(11), bytes },
        HeadRoomMade { request, bytes },
        WaitNotice { holder_name: "batch".into(), ahead: 1, waited_ms: 10_000 },
        RunRegistered { token: Token([9; 16]), tenant_name: "notebook".into() },
    ]
}

/// `side variant hex`, one line each.
fn rendered() -> String {
    let mut text = String::new();
    let mut line = |side: &str, variant: String, bytes: Vec<u8>| {
        let name = variant.split([' ', '{']).next().unwrap_or_default();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{side} {name} {hex}").expect("a String takes everything");
    };
    for message in client_messages() {
        line("client", format!("{message:?}"), encode(&message).expect("fits"));
    }
    for message in daemon_messages() {
        line("daemon", format!("{message:?}"), encode(&message).expect("fits"));
    }
    for request in
        [AdminRequest::Status, AdminRequest::SetQuantum { quantum_ms: 500 }, AdminRequest::Shutdown]
    {
        line("admin", format!("{request:?}"), encode(&request).expect("fits"));
    }
    text
}

#[test]
fn the_bytes_of_every_message_are_those_that_running_shims_speak() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden.txt");
    if std::env::var_os("TURNUS_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, rendered()).expect("writable");
    }
    assert_eq!(rendered(), std::fs::read_to_string(&path).expect("golden.txt"));
}

#[test]
fn every_message_survives_the_way_there_and_back() {
    for message in client_messages() {
        assert_eq!(decode::<ClientMessage>(&encode(&message).expect("fits")), Ok(message));
    }
    for message in daemon_messages() {
        assert_eq!(decode::<DaemonMessage>(&encode(&message).expect("fits")), Ok(message));
    }
}

#[test]
fn the_protocol_document_knows_every_message() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let document = std::fs::read_to_string(&path).expect("docs/protocol.md");
    for line in rendered().lines() {
        let name = line.split(' ').nth(1).expect("a name");
        assert!(document.contains(&format!("`{name}`")), "docs/protocol.md does not explain {name}");
    }
    assert!(
        document.contains(&format!("Version {PROTOCOL_VERSION}")),
        "docs/protocol.md is of another version"
    );
}

#[test]
fn bounds_hold_in_both_directions() {
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    let message = ClientMessage::Unhandled { name: long, count: 1 };
    assert_eq!(encode(&message), Err(CodecError::TextTooLong));
    assert_eq!(
        decode::<ClientMessage>(&[0; MESSAGE_BYTES_MAX + 1]),
        Err(CodecError::TooLong(MESSAGE_BYTES_MAX + 1))
    );
    let mut bytes = encode(&ClientMessage::Ready).expect("fits");
    bytes.push(0);
    assert_eq!(decode::<ClientMessage>(&bytes), Err(CodecError::TrailingBytes(1)));
    // A length that claims more than the packet holds must not be believed.
    assert!(matches!(
        decode::<ClientMessage>(&[21, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        Err(CodecError::Malformed(_))
    ));
}

#[test]
fn tokens_are_hexadecimal_and_never_printed() {
    let token = Token([0xa5; 16]);
    assert_eq!(Token::from_hex(&token.to_hex()), Some(token));
    assert!(!format!("{token:?}").contains("a5"));
    for text in ["", "a5", &"zz".repeat(16), &"é".repeat(16), &"a".repeat(33)] {
        assert_eq!(Token::from_hex(text), None);
    }
}

proptest! {
    #[test]
    fn garbage_is_refused_and_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..MESSAGE_BYTES_MAX + 8)) {
        if let Ok(message) = decode::<ClientMessage>(&bytes) {
            prop_assert!(message.longest_text_bytes() <= TEXT_BYTES_MAX);
            prop_assert_eq!(decode::<ClientMessage>(&encode(&message).expect("decoded messages fit")), Ok(message));
        }
        if let Ok(message) = decode::<DaemonMessage>(&bytes) {
            prop_assert_eq!(decode::<DaemonMessage>(&encode(&message).expect("decoded messages fit")), Ok(message));
        }
    }

    #[test]
    fn damaged_messages_never_panic(which in 0usize..25, at in 0usize..64, value in any::<u8>(), cut in 0usize..64) {
        let messages = client_messages();
        let mut bytes = encode(&messages[which % messages.len()]).expect("fits");
        let length = bytes.len();
        bytes[at % length] = value;
        bytes.truncate(length - cut % length);
        // Either a message or a clean error; the point is that nothing else happens.
        if let Err(error) = decode::<ClientMessage>(&bytes) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
