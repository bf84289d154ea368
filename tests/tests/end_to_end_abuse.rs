//! Strangers at the daemon's sockets: whatever they do, tenants get their turns and the daemon lives.
//!
//! The measure is the progress of two tenants that take turns: what they do in a fixed time with
//! the stranger there, against what they do without. The stranger itself costs processor time on
//! this machine, so the bound is on starvation, not on a few per cent.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};
use turnus_protocol::limits::PROTOCOL_VERSION;
use turnus_protocol::{ClientMessage, DeviceUuid, Epoch, RequestId, SegmentId};
use turnus_tests::contest::{Contest, TURNS_MIN};
use turnus_tests::peer::Peer;
use turnus_tests::sandbox::admin_socket;
use turnus_tests::{Road, Sandbox, Setup, compile};

const WINDOW: Duration = Duration::from_secs(3);
/// Resident memory that a stranger may make the daemon take.
const GROWTH_KIB_MAX: u64 = 64 << 10;

fn turns(sandbox: &Sandbox) -> u64 {
    let status = sandbox.look().unwrap_or_else(|| panic!("the daemon does not answer\n{}", sandbox.dump()));
    let is_ours = |name: &str| name.starts_with("first") || name.starts_with("rival");
    status.tenants.iter().filter(|tenant| is_ours(&tenant.name)).map(|tenant| tenant.turns).sum()
}

/// Turns in a window in which `act` is called again and again.
fn turns_while(sandbox: &Sandbox, mut act: impl FnMut(u64)) -> u64 {
    let (before, end) = (turns(sandbox), Instant::now() + WINDOW);
    let mut number = 0;
    while Instant::now() < end {
        act(number);
        number += 1;
    }
    turns(sandbox) - before
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
}

/// Two tenants take turns; `abuse` gets the sandbox and a call number.
fn check(mut abuse: impl FnMut(&Sandbox, u64)) {
    let mut sandbox = Sandbox::new(Setup::default());
    let mut contest = Contest::start(&sandbox, &compile("chain", Road::Dlsym), &[]);
    contest.wait_for_switches(&sandbox, TURNS_MIN);
    let pid = sandbox.daemon().pid();
    let kib_before = resident_kib(pid);
    let undisturbed = turns_while(&sandbox, |_| sleep(Duration::from_millis(20)));
    let disturbed = turns_while(&sandbox, |number| abuse(&sandbox, number));
    let kib_after = resident_kib(pid);
    println!(
        "turns in {WINDOW:?}: {undisturbed} undisturbed, {disturbed} disturbed; {kib_before} -> {kib_after} KiB"
    );
    assert!(undisturbed > 0, "{}", sandbox.dump());
    assert!(disturbed * 4 >= undisturbed, "{disturbed} turns instead of {undisturbed}\n{}", sandbox.dump());
    assert!(kib_after < kib_before + GROWTH_KIB_MAX, "the daemon grew from {kib_before} to {kib_after} KiB");
    assert!(sandbox.daemon().is_running(), "{}", sandbox.dump());
    contest.finish(&sandbox);
}

fn hello() -> ClientMessage {
    ClientMessage::Hello {
        protocol: PROTOCOL_VERSION,
        shim_version: "stranger".into(),
        token: None,
        resume: None,
    }
}

/// A member like any other, of a tenant of its own (all of this process).
fn joined(sandbox: &Sandbox) -> Option<Peer> {
    let peer = Peer::connect(&sandbox.socket())?;
    peer.send(&hello()).ok()?;
    peer.receive(1000)?;
    Some(peer)
}

/// Bytes that look random and are the same in each run.
fn noise(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(byte).collect()
}

#[test]
fn clients_that_connect_and_vanish() {
    check(|sandbox, number| {
        let peer = Peer::connect(&sandbox.socket());
        if let (Some(peer), true) = (&peer, number % 2 == 0) {
            let _ = peer.send(&hello());
            if number % 4 == 0 {
                let _ = peer.send(&ClientMessage::Ready);
                let _ = peer.send(&ClientMessage::TurnRequested);
            }
        }
    });
}

#[test]
fn clients_that_send_garbage_are_shown_out() {
    let mut ended = 0;
    check(|sandbox, number| {
        let Some(peer) = Peer::connect(&sandbox.socket()) else { return };
        if number % 2 == 0 {
            let _ = peer.send(&hello());
        }
        let _ = peer.send_bytes(&noise(number, 1 + (number as usize * 37) % 4096));
        ended += u64::from(peer.is_ended(1000));
    });
    assert!(ended > 10, "only {ended} clients that sent garbage were disconnected");
}

#[test]
fn a_client_that_floods() {
    let mut peers: Vec<Peer> = Vec::new();
    check(|sandbox, number| {
        if number % 4096 == 0 || peers.is_empty() {
            peers.clear();
            peers.extend((0..4).filter_map(|_| joined(sandbox)));
            peers.iter().for_each(Peer::set_nonblocking);
        }
        let request = RequestId(number);
        let device = DeviceUuid([7; 16]);
        for peer in &peers {
            let _ = peer.send(&ClientMessage::TurnRequested);
            let _ = peer.send(&ClientMessage::MemoryQuery { request, device });
            let _ = peer.send(&ClientMessage::Reserve { request, device, bytes: u64::MAX });
        }
    });
}

#[test]
fn a_client_that_never_reads() {
    let mut peer = None;
    check(|sandbox, number| {
        if peer.is_none() {
            peer = joined(sandbox);
            peer.iter().for_each(Peer::set_nonblocking);
        }
        let query = ClientMessage::SegmentWanted { request: RequestId(number), bytes: 4096 };
        let sent = peer.as_ref().map(|peer| peer.send(&query));
        if let Some(Err(error)) = sent {
            if error.kind() == std::io::ErrorKind::WouldBlock {
                sleep(Duration::from_millis(1));
            } else {
                peer = None;
            }
        }
    });
}

#[test]
fn clients_that_lie_about_what_they_hold() {
    check(|sandbox, number| {
        let Some(peer) = joined(sandbox) else { return };
        let device = DeviceUuid(sandbox.arena().devices()[0].uuid);
        let (epoch, request, bytes) = (Epoch(u64::MAX - number), RequestId(number), u64::MAX / 2);
        let lies = [
            ClientMessage::TurnReleased { epoch },
            ClientMessage::Drained { epoch },
            ClientMessage::Restored { epoch },
            ClientMessage::CreditsReturned { device, bytes },
            ClientMessage::Evicted { device, order: request, pinned_bytes: bytes },
            ClientMessage::Unreserve { device, bytes },
            ClientMessage::SegmentReturned { segment: SegmentId(number) },
            ClientMessage::Usage { device, total_bytes: 1, free_bytes: bytes },
            ClientMessage::CreditsShort { device, bytes, total_bytes: 1, free_bytes: 0 },
            ClientMessage::HeadRoomWanted { request, device, bytes },
            ClientMessage::CreditsWanted { device, bytes },
        ];
        for lie in &lies {
            let _ = peer.send(lie);
        }
        let _ = peer.is_ended(20);
    });
}

#[test]
fn silent_connections_by_the_hundred() {
    let mut silent: Vec<Peer> = Vec::new();
    check(|sandbox, _| {
        if silent.len() < 400 {
            silent.extend(Peer::connect(&sandbox.socket()));
        }
        sleep(Duration::from_millis(2));
    });
}

#[test]
fn garbage_at_the_admin_socket() {
    check(|sandbox, number| {
        let Some(peer) = Peer::connect(&admin_socket(&sandbox.directory())) else { return };
        let _ = peer.send_bytes(&noise(number, 1 + (number as usize * 53) % 4096));
        if number % 2 == 0 {
            assert!(peer.is_ended(2000), "the admin socket keeps talking to garbage");
        }
    });
}
