//! A daemon in a folder of its own, and peers that say what they like.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use turnus_protocol::limits::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use turnus_protocol::message::Resume;
use turnus_protocol::paths::MEMBER_SOCKET;
use turnus_protocol::{
    ClientMessage, DaemonMessage, DeviceUuid, Epoch, Incarnation, MemberId, Reason, RequestId, Token, decode,
    encode,
};
use turnus_scheduler::packet;

pub const DEVICE: DeviceUuid = DeviceUuid([5; 16]);
/// No answer takes longer, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Daemon {
    pub folder: PathBuf,
    pub child: Child,
    options: Vec<String>,
}

impl Daemon {
    pub fn start(options: &[&str]) -> Daemon {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("turnusd-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Daemon::start_in(folder, options)
    }

    pub fn start_in(folder: PathBuf, options: &[&str]) -> Daemon {
        fs::create_dir_all(&folder).expect("folder");
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let child = spawn(&folder, &options);
        let daemon = Daemon { folder, child, options };
        daemon.wait_for_socket();
        daemon
    }

    /// `kill -9`, and another one in its place.
    pub fn kill_and_restart(&mut self) {
        self.child.kill().expect("kill");
        self.restart();
    }

    /// Another one in place of one that ends.
    pub fn restart(&mut self) {
        self.child.wait().expect("wait");
        self.child = spawn(&self.folder, &self.options);
        self.wait_for_socket();
    }

    fn wait_for_socket(&self) {
        wait_until("the daemon listens", || packet::connect(&self.socket()).is_ok());
    }

    pub fn directory(&self) -> PathBuf {
        self.folder.join("d")
    }

    pub fn socket(&self) -> PathBuf {
        self.directory().join(MEMBER_SOCKET)
    }

    pub fn connect(&self) -> Peer {
        Peer { socket: packet::connect(&self.socket()).expect("the daemon listens") }
    }

    /// A member of a tenant of its own.
    pub fn member(&self) -> Member {
        self.connect().join(None, None)
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("signal");
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the daemon ends", || {
            status = self.child.try_wait().expect("wait");
            status.is_some()
        });
        status.expect("it has ended")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).expect("log")
    }

    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs").count()
    }

    pub fn state(&self) -> serde_json::Value {
        let bytes = fs::read(self.directory().join("state.json")).expect("state");
        serde_json::from_slice(&bytes).expect("JSON")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("-- log of turnusd\n{}", self.log());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnusd"));
    command.arg("--directory").arg(folder.join("d"));
    command
}

fn spawn(folder: &Path, options: &[String]) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log")).expect("log");
    let mut command = command(folder);
    if !options.iter().any(|option| option == "--lock-directory") {
        command.arg("--lock-directory").arg(folder.join("locks"));
    }
    command.args(options).stdin(Stdio::null()).stderr(log).spawn().expect("turnusd")
}

#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        sleep(Duration::from_millis(2));
    }
}

pub struct Peer {
    pub socket: OwnedFd,
}

impl Peer {
    pub fn send(&self, message: &ClientMessage) {
        let _ = self.try_send(message);
    }

    pub fn try_send(&self, message: &ClientMessage) -> io::Result<()> {
        self.send_bytes(&encode(message).expect("a message of the protocol"), &[])
    }

    /// Any bytes, any number of descriptors.
    pub fn send_bytes(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    pub fn send_with(&self, message: &ClientMessage, descriptor: impl AsFd) {
        let bytes = encode(message).expect("a message of the protocol");
        self.send_bytes(&bytes, &[descriptor.as_fd()]).expect("the daemon listens");
    }

    pub fn set_nonblocking(&self) {
        rustix::io::ioctl_fionbio(&self.socket, true).expect("flag");
    }

    pub fn is_readable(&self, time: Duration) -> bool {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&time)).is_ok_and(|count| count > 0)
    }

    /// The next message; `None` at the end of the conversation.
    #[track_caller]
    pub fn receive(&self) -> Option<(DaemonMessage, Option<OwnedFd>)> {
        assert!(self.is_readable(PATIENCE), "the daemon says nothing");
        let packet = packet::receive(&self.socket, MESSAGE_BYTES_MAX).ok()??;
        Some((decode(&packet.bytes).expect("a message of the protocol"), packet.descriptor))
    }

    /// The first message for which `pick` has something; others are skipped.
    #[track_caller]
    pub fn expect<T>(&self, pick: impl Fn(&DaemonMessage) -> Option<T>) -> T {
        loop {
            let (message, _) = self.receive().expect("the daemon ended the conversation");
            if let Some(found) = pick(&message) {
                return found;
            }
        }
    }

    /// Why the conversation ends.
    #[track_caller]
    pub fn expect_rejection(&self) -> (Reason, String) {
        let rejection = self.expect(|message| match message {
            DaemonMessage::Rejected { reason, text } => Some((*reason, text.clone())),
            _ => None,
        });
        assert!(self.receive().is_none(), "a rejected peer is still listened to");
        rejection
    }

    /// Whether the conversation ends in the time, whatever is said before.
    pub fn ends(&self) -> bool {
        while self.is_readable(PATIENCE) {
            match packet::receive(&self.socket, MESSAGE_BYTES_MAX) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return true,
            }
        }
        false
    }

    #[track_caller]
    pub fn join(self, token: Option<Token>, resume: Option<Resume>) -> Member {
        self.send(&hello(token, resume));
        let (message, page) = self.receive().expect("an answer");
        let DaemonMessage::Welcome { incarnation, member, tenant_name, .. } = message else {
            panic!("no welcome: {message:?}")
        };
        Member { peer: self, page, identity: Resume { incarnation, member }, tenant_name }
    }
}

pub fn hello(token: Option<Token>, resume: Option<Resume>) -> ClientMessage {
    ClientMessage::Hello { protocol: PROTOCOL_VERSION, shim_version: "test".into(), token, resume }
}

pub fn device(virtual_bytes: u64, resident_bytes: u64, epoch: Option<Epoch>) -> ClientMessage {
    ClientMessage::Device {
        device: DEVICE,
        name: "a device".into(),
        total_bytes: 1 << 30,
        free_bytes: (1 << 30) - resident_bytes,
        virtual_bytes,
        resident_bytes,
        host_bytes: virtual_bytes - resident_bytes,
        pinned_bytes: 0,
        epoch,
    }
}

pub struct Member {
    pub peer: Peer,
    pub page: Option<OwnedFd>,
    pub identity: Resume,
    pub tenant_name: String,
}

impl Member {
    pub fn ready(self) -> Member {
        self.peer.send(&device(0, 0, None));
        self.peer.send(&ClientMessage::Ready);
        self
    }

    #[track_caller]
    pub fn turn(&self) -> Epoch {
        self.peer.send(&ClientMessage::TurnRequested);
        self.granted()
    }

    #[track_caller]
    pub fn granted(&self) -> Epoch {
        self.peer.expect(|message| match message {
            DaemonMessage::TurnGranted { epoch } => Some(*epoch),
            _ => None,
        })
    }

    #[track_caller]
    pub fn reserve(&self, bytes: u64) -> Result<(), Reason> {
        let request = RequestId(77);
        self.peer.send(&ClientMessage::Reserve { request, device: DEVICE, bytes });
        self.peer.expect(|message| match message {
            DaemonMessage::Reserved { request: RequestId(77) } => Some(Ok(())),
            DaemonMessage::Refused { request: RequestId(77), reason } => Some(Err(*reason)),
            _ => None,
        })
    }

    /// Asks something and waits for the answer: what was said before has been heard.
    #[track_caller]
    pub fn is_heard(&self) {
        self.peer.send(&ClientMessage::MemoryQuery { request: RequestId(88), device: DEVICE });
        self.peer.expect(|message| match message {
            DaemonMessage::MemoryAnswer { request: RequestId(88), .. } => Some(()),
            _ => None,
        });
    }
}

pub fn nobody() -> Resume {
    Resume { incarnation: Incarnation(1), member: MemberId(0xdead) }
}
