//! What strangers do costs them their connection, and nobody else anything.

use crate::harness::{DEVICE, Daemon, Peer, device, hello, wait_until};
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use turnus_protocol::{ClientMessage, DeviceUuid, Reason, RequestId, SegmentId, encode};

const QUERY: ClientMessage = ClientMessage::MemoryQuery { request: RequestId(1), device: DEVICE };

/// Asks without reading until the daemon has something that it cannot send.
fn clog(peer: &Peer) {
    peer.set_nonblocking();
    let mut refused = 0;
    for _ in 0..3000 {
        if peer.try_send(&QUERY).is_err() {
            refused += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(refused < 3000, "nothing could be sent");
}

#[test]
fn garbage_ends_a_connection_with_a_reason() {
    let daemon = Daemon::start(&[]);
    let bystander = daemon.member().ready();
    let long = vec![0u8; 5000];
    let mut trailed = encode(&hello(None, None)).expect("message");
    trailed.push(7);
    let early = encode(&ClientMessage::TurnRequested).expect("message");
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], &[0xff; 40], &[], &long, &trailed, &early] {
        let peer = daemon.connect();
        // An empty packet looks like the end, so nothing is said to it.
        peer.send_bytes(bytes, &[]).expect("send");
        if bytes.is_empty() {
            assert!(peer.ends());
        } else {
            assert_eq!(peer.expect_rejection().0, Reason::ProtocolViolation, "{bytes:?}");
        }
    }
    bystander.is_heard();
}

#[test]
fn who_does_not_read_is_disconnected_and_others_are_served() {
    let daemon = Daemon::start(&[]);
    let flooder = daemon.member().ready();
    let bystander = daemon.member().ready();
    flooder.peer.set_nonblocking();
    let mut sent = 0;
    let start = Instant::now();
    while sent < 10_000 && start.elapsed() < Duration::from_secs(10) {
        match flooder.peer.try_send(&QUERY) {
            Ok(()) => sent += 1,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => bystander.is_heard(),
            Err(_) => break,
        }
    }
    bystander.is_heard();
    assert!(flooder.peer.ends());
    wait_until("the log names it", || daemon.log().contains("flooding"));
}

#[test]
fn a_holder_that_vanishes_passes_its_turn_on() {
    let daemon = Daemon::start(&[]);
    let (holder, waiter) = (daemon.member().ready(), daemon.member().ready());
    let first = holder.turn();
    waiter.peer.send(&ClientMessage::TurnRequested);
    waiter.is_heard();
    drop(holder);
    assert!(waiter.granted() > first);
}

#[test]
fn a_waiter_that_vanishes_is_not_granted() {
    let daemon = Daemon::start(&[]);
    let (holder, vanishing, waiter) =
        (daemon.member().ready(), daemon.member().ready(), daemon.member().ready());
    let epoch = holder.turn();
    vanishing.peer.send(&ClientMessage::TurnRequested);
    drop(vanishing);
    waiter.peer.send(&ClientMessage::TurnRequested);
    waiter.is_heard();
    holder.peer.send(&ClientMessage::TurnReleased { epoch });
    waiter.granted();
}

/// The daemon used to know such members for ever, and after 8,192 of them served nobody.
#[test]
fn who_says_hello_and_vanishes_leaves_no_member_behind() {
    let daemon = Daemon::start(&[]);
    for _ in 0..200 {
        daemon.connect().send(&hello(None, None));
    }
    let _last = daemon.member().ready();
    let members = || daemon.state()["members"].as_array().expect("members").len();
    wait_until("only the last one is known", || members() == 1);
}

/// The daemon used to keep the turn of such a member, and to spin.
#[test]
fn a_holder_that_does_not_read_its_rejection_loses_its_turn() {
    let daemon = Daemon::start(&[]);
    let (holder, waiter) = (daemon.member().ready(), daemon.member().ready());
    holder.turn();
    waiter.peer.send(&ClientMessage::TurnRequested);
    waiter.is_heard();
    clog(&holder.peer);
    while holder.peer.send_bytes(b"garbage", &[]).is_ok() {}
    waiter.granted();
    let used = || -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", daemon.child.id())).expect("it runs");
        let fields: Vec<&str> = text.rsplit(')').next().expect("fields").split(' ').collect();
        fields[12].parse::<u64>().expect("ticks") + fields[13].parse::<u64>().expect("ticks")
    };
    let before = used();
    std::thread::sleep(Duration::from_millis(400));
    assert!(used() - before < 20, "the daemon is busy with nothing");
}

/// Closing a socket that lingers takes as long as its maker wants.
#[test]
fn a_descriptor_whose_close_blocks_holds_nobody_up() {
    let daemon = Daemon::start(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let lingering = |seconds: u16| {
        let mut stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(seconds.into())))
            .expect("linger");
        stream.set_nonblocking(true).expect("flag");
        while stream.write(&[0; 1 << 16]).is_ok() {}
        stream
    };
    let hello = encode(&hello(None, None)).expect("message");
    for (round, copies) in [1, 1, 5].into_iter().enumerate() {
        let stream = lingering(3);
        let descriptors = vec![stream.as_fd(); copies];
        let peer = daemon.connect();
        peer.send_bytes(if round == 0 { &hello } else { &[] }, &descriptors).expect("send");
        // Unread at the end of the connection, which the first packet brings about.
        let other = daemon.connect();
        for _ in 0..3 {
            let _ = other.send_bytes(b"x", &descriptors);
        }
        drop(stream);
        drop(peer);
        let start = Instant::now();
        daemon.member().ready().is_heard();
        assert!(start.elapsed() < Duration::from_millis(1500), "held up for {:?}", start.elapsed());
    }
}

#[test]
fn descriptors_beside_any_message_are_closed() {
    let daemon = Daemon::start(&[]);
    let member = daemon.member().ready();
    member.is_heard();
    let before = daemon.open_files();
    let descriptors = [member.peer.socket.as_fd(); 40];
    for round in 0..50 {
        let peer = daemon.connect();
        let message = if round % 2 == 0 { hello(None, None) } else { ClientMessage::Ready };
        let _ = peer.send_bytes(&encode(&message).expect("message"), &descriptors[..1 + round % 40]);
        let _ = peer.send_bytes(b"", &descriptors);
    }
    let goodbye = encode(&QUERY).expect("message");
    member.peer.send_bytes(&goodbye, &descriptors[..1]).expect("send");
    member.is_heard();
    wait_until("all are closed", || daemon.open_files() <= before);
}

#[test]
fn devices_that_do_not_exist_leave_no_locks_behind() {
    let daemon = Daemon::start(&[]);
    for round in 0..10u8 {
        let member = daemon.member();
        for number in 0..30u8 {
            let ClientMessage::Device { name, total_bytes, free_bytes, .. } = device(0, 0, None) else {
                unreachable!("device() makes a device")
            };
            member.peer.send(&ClientMessage::Device {
                device: DeviceUuid([round, number, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
                name,
                total_bytes,
                free_bytes,
                virtual_bytes: 0,
                resident_bytes: 0,
                host_bytes: 0,
                pinned_bytes: 0,
                epoch: None,
            });
        }
        member.is_heard();
    }
    let locks = fs::read_dir(daemon.folder.join("locks")).expect("folder").count();
    assert!(locks <= 130, "{locks} lock files");
}

#[test]
fn a_segment_that_is_none_of_ours_is_not_taken() {
    let daemon = Daemon::start(&[]);
    let member = daemon.member();
    let (reader, _writer) = rustix::pipe::pipe().expect("pipe");
    member.peer.send_with(&ClientMessage::SegmentClaim { segment: SegmentId(1), bytes: 4096 }, reader);
    assert_eq!(member.peer.expect_rejection().0, Reason::ProtocolViolation);
}
