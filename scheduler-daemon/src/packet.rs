//! One packet out, one packet in, on a Unix SEQPACKET socket, with at most one descriptor.
//!
//! Used by daemon and command line; the shim has its own, which may not depend on this crate.
//! Received descriptors are close-on-exec. All of them are taken out of the packet, also those that
//! the protocol does not allow, so that the caller decides on which thread they are closed: closing
//! a stranger's descriptor may block.

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Why there is no conversation.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// `sun_path` has 108 bytes.
    #[error("socket path {0} is longer than the 107 bytes that Linux allows; choose a shorter directory")]
    PathTooLong(PathBuf),
    /// A system call failed.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl PacketError {
    fn io(what: &'static str, path: &Path) -> impl Fn(Errno) -> PacketError {
        let path = path.to_owned();
        move |errno| PacketError::Io { what, path: path.clone(), source: errno.into() }
    }
}

fn new_socket(path: &Path, flags: SocketFlags) -> Result<(OwnedFd, SocketAddrUnix), PacketError> {
    if !turnus_protocol::paths::fits_socket(path) {
        return Err(PacketError::PathTooLong(path.to_owned()));
    }
    let address = SocketAddrUnix::new(path).map_err(PacketError::io("cannot use socket", path))?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags | SocketFlags::CLOEXEC,
        None,
    )
    .map_err(PacketError::io("cannot make a socket for", path))?;
    Ok((socket, address))
}

/// A blocking connection to the daemon's socket.
pub fn connect(path: &Path) -> Result<OwnedFd, PacketError> {
    let (socket, address) = new_socket(path, SocketFlags::empty())?;
    rustix::net::connect(&socket, &address).map_err(PacketError::io("cannot connect to", path))?;
    Ok(socket)
}

/// Like [`listen`], and the socket's file has this mode. That comes from the umask, not from a
/// later `chmod`: who may write in the folder could put a link in the file's place between the two.
pub fn listen_with_mode(path: &Path, mode: u32) -> Result<OwnedFd, PacketError> {
    let umask = rustix::process::umask(Mode::from_raw_mode(0o777 & !mode));
    let listener = listen(path);
    rustix::process::umask(umask);
    listener
}

/// A non-blocking listener. The caller has made sure that no other daemon uses the path.
pub fn listen(path: &Path) -> Result<OwnedFd, PacketError> {
    let (socket, address) = new_socket(path, SocketFlags::NONBLOCK)?;
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(PacketError::io("cannot replace", path)(errno)),
    }
    rustix::net::bind(&socket, &address).map_err(PacketError::io("cannot bind", path))?;
    rustix::net::listen(&socket, 1024).map_err(PacketError::io("cannot listen on", path))?;
    Ok(socket)
}

/// Sends one packet, with a descriptor beside it if given. `WouldBlock` if the peer does not read.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors
        && !control.push(SendAncillaryMessage::ScmRights(descriptors))
    {
        return Err(io::Error::other("no space for a descriptor"));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What came in.
#[derive(Debug)]
pub struct Packet {
    /// Its bytes; none at the end of the conversation.
    pub bytes: Vec<u8>,
    /// The descriptor beside it.
    pub descriptor: Option<OwnedFd>,
    /// More descriptors than the protocol allows.
    pub surplus: Vec<OwnedFd>,
    /// It was longer than the buffer: the peer does not speak this protocol.
    pub truncated: bool,
}

/// Most descriptors that Linux lets travel with one packet (`SCM_MAX_FD`).
const SCM_MAX_FD: usize = 253;

/// Receives one packet of at most `bytes_max`. `Ok(None)` at the end of the conversation.
pub fn receive(socket: impl AsFd, bytes_max: usize) -> io::Result<Option<Packet>> {
    receive_with(socket, &mut vec![0u8; bytes_max])
}

/// Like [`receive`], by way of a buffer that the caller keeps.
pub fn receive_with(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(SCM_MAX_FD))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    // An empty packet looks like the end, but only a packet carries descriptors.
    if received.bytes == 0 && descriptors.is_empty() {
        return Ok(None);
    }
    let surplus = descriptors.split_off(descriptors.len().min(1));
    let bytes = buffer[..received.bytes.min(buffer.len())].to_vec();
    let truncated = received.flags.contains(rustix::net::ReturnFlags::TRUNC);
    Ok(Some(Packet { bytes, descriptor: descriptors.pop(), surplus, truncated }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_path_that_cannot_be_is_named() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        let error = listen(&path).expect_err("too long").to_string();
        assert!(error.contains("107 bytes") && error.contains("/tmp/xxx"), "{error}");
    }

    #[test]
    fn an_empty_packet_with_descriptors_is_no_end_and_all_of_them_are_handed_over() {
        let (left, right) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("pair");
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [left.as_fd(); 3];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        rustix::net::sendmsg(&left, &[], &mut control, SendFlags::NOSIGNAL).expect("send");
        let packet = receive(&right, 16).expect("receive").expect("no end");
        assert!(packet.bytes.is_empty() && packet.descriptor.is_some());
        assert_eq!(packet.surplus.len(), 2);
    }

    #[test]
    fn packets_keep_their_bounds_and_descriptors() {
        let (left, right) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("pair");
        send(&left, b"one", None).expect("send");
        send(&left, b"second", Some(left.as_fd())).expect("send");
        let first = receive(&right, 4).expect("receive").expect("packet");
        assert!(first.bytes == b"one" && first.descriptor.is_none() && !first.truncated);
        let second = receive(&right, 4).expect("receive").expect("packet");
        assert!(second.bytes == b"seco" && second.truncated && second.descriptor.is_some());
        drop(left);
        drop(second);
        assert!(receive(&right, 4).expect("end").is_none());
    }
}
