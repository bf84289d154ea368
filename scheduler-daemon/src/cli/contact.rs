//! Talking to the daemon from the command line, and starting a private one if there is none.
//!
//! A question is one packet, an answer one packet or text to the end. Nothing here waits longer
//! than a few seconds: a daemon that does not answer is reported, not waited for.

use crate::cli::{Failure, find};
use crate::exit_code;
use crate::packet::{self, PacketError};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use turnus_protocol::admin::AdminRequest;
use turnus_protocol::limits::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use turnus_protocol::paths::{ADMIN_SOCKET, MEMBER_SOCKET};
use turnus_protocol::{ClientMessage, DaemonMessage, Token, decode, encode};

const PATIENCE: Duration = Duration::from_secs(5);

/// A daemon that answered at its members' socket.
#[derive(Debug)]
pub struct Daemon {
    /// Its members' socket.
    pub socket_path: PathBuf,
    /// A connection to it.
    pub socket: OwnedFd,
}

/// The first daemon that can be reached; `Ok(None)` if none runs.
pub fn find_daemon() -> Result<Option<Daemon>, Failure> {
    let given = find::given_socket();
    for path in find::candidate_sockets() {
        match packet::connect(&path) {
            Ok(socket) if given.is_some() || is_trusted(&socket) => {
                return Ok(Some(Daemon { socket_path: path, socket }));
            }
            // Anybody can put a socket into /tmp; who serves us could read what programs compute.
            Ok(_) => {}
            Err(PacketError::Io { source, .. }) if is_absent(&source) && given.is_none() => {}
            Err(error) => {
                let advice = if given.is_some() {
                    "start turnusd there, or unset TURNUS_SOCKET"
                } else {
                    "ask who runs that turnusd for access, or name another with TURNUS_SOCKET"
                };
                return Err(Failure::new(exit_code::NO_DAEMON, format!("{error}; {advice}")));
            }
        }
    }
    Ok(None)
}

/// Whether root or this user serves at the other end.
pub fn is_trusted(socket: &OwnedFd) -> bool {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
    let own = rustix::process::geteuid().as_raw();
    getsockopt(socket, PeerCredentials).is_ok_and(|server| server.uid() == 0 || server.uid() == own)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Starts a daemon for this user that ends a minute after its last member.
pub fn start_private_daemon() -> Result<Daemon, Failure> {
    let directory = find::default_directory();
    let program = find::installed("bin", "turnusd").ok_or_else(|| {
        Failure::new(
            exit_code::NO_DAEMON,
            "turnusd is not installed beside turnus; install it, or start it yourself",
        )
    })?;
    let started = Command::new(&program)
        .arg("--directory")
        .arg(&directory)
        .args(["--exit-when-idle-ms", "60000", "--detach"])
        .stdin(Stdio::null())
        .output();
    let failed = |text: String| {
        Failure::new(exit_code::NO_DAEMON, format!("no private turnusd can be started: {text}"))
    };
    let output = started.map_err(|error| failed(format!("{}: {error}", program.display())))?;
    let lost_race = output.status.code() == Some(i32::from(exit_code::ALREADY_RUNNING));
    if !output.status.success() && !lost_race {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let deadline = Instant::now() + PATIENCE;
    let socket_path = directory.join(MEMBER_SOCKET);
    loop {
        match packet::connect(&socket_path) {
            Ok(socket) => return Ok(Daemon { socket_path, socket }),
            Err(error) if Instant::now() > deadline => {
                return Err(failed(format!("{error}; see {}", directory.join("turnusd.log").display())));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A tenant of this name; the token makes processes its members.
pub fn register_run(daemon: &Daemon, name: &str, memory_limit_bytes: Option<u64>) -> Result<Token, Failure> {
    let failed = |text: String| Failure::new(exit_code::NO_DAEMON, text);
    let question =
        ClientMessage::RegisterRun { protocol: PROTOCOL_VERSION, name: name.to_owned(), memory_limit_bytes };
    let bytes = encode(&question).map_err(|error| failed(error.to_string()))?;
    packet::send(&daemon.socket, &bytes, None)
        .map_err(|error| failed(format!("turnusd does not listen: {error}")))?;
    wait_readable(&daemon.socket)?;
    let answer = packet::receive(&daemon.socket, MESSAGE_BYTES_MAX)
        .map_err(|error| failed(format!("turnusd does not answer: {error}")))?
        .ok_or_else(|| failed("turnusd ended the conversation; is it of another version?".to_owned()))?;
    match decode::<DaemonMessage>(&answer.bytes) {
        Ok(DaemonMessage::RunRegistered { token, .. }) => Ok(token),
        Ok(DaemonMessage::Rejected { reason, text }) => {
            Err(failed(format!("turnusd refuses ({reason}): {text}; {}", reason.advice())))
        }
        Ok(other) => Err(failed(format!("turnusd answers something else: {other:?}"))),
        Err(error) => {
            Err(failed(format!("turnusd speaks another language ({error}); install one release of both")))
        }
    }
}

/// Asks an administrator's question of the daemon in this directory; the answer is JSON.
pub fn ask(directory: &Path, request: AdminRequest) -> Result<String, PacketError> {
    let path = directory.join(ADMIN_SOCKET);
    let failed =
        |source: io::Error| PacketError::Io { what: "cannot ask turnusd at", path: path.clone(), source };
    let socket = packet::connect(&path)?;
    if find::given_socket().is_none() && !is_trusted(&socket) {
        return Err(failed(io::Error::other("it is run by another user")));
    }
    let bytes = encode(&request).map_err(|error| failed(io::Error::other(error.to_string())))?;
    packet::send(&socket, &bytes, None).map_err(failed)?;
    let mut text = Vec::new();
    loop {
        wait_readable(&socket).map_err(|failure| failed(io::Error::other(failure.text)))?;
        match packet::receive(&socket, crate::daemon::admin::PIECE_BYTES).map_err(failed)? {
            Some(piece) => text.extend(piece.bytes),
            None => break,
        }
    }
    String::from_utf8(text).map_err(|error| failed(io::Error::other(error)))
}

fn wait_readable(socket: &OwnedFd) -> Result<(), Failure> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let time = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&time)) {
        Ok(0) => Err(Failure::new(exit_code::NO_DAEMON, "turnusd does not answer; is it stopped?")),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(Failure::plain(format!("cannot wait for turnusd: {errno}"))),
    }
}
