//! The one loop: whatever can wake the daemon is one [`Source`], handled on this screen.
//!
//! Each event becomes inputs of the core (`intake`), each output of the core an act (`carry`).
//! No client can hold the loop up: reads are bounded per round, sends never block, and what
//! strangers have made is closed elsewhere (`closer`). Outputs are carried out in the order in which
//! the core gave them, also when carrying one out causes the next input.

use crate::daemon::Options;
use crate::daemon::carry;
use crate::daemon::closer::Closer;
use crate::daemon::connection::{Connection, Role};
use crate::daemon::device_lock::DeviceLocks;
use crate::daemon::directory::{Directory, DirectoryError};
use crate::daemon::identity::{self, Peer};
use crate::daemon::segments::Segments;
use crate::daemon::state_file::{MemberRecord, State, StateError, StateFile};
use crate::daemon::tenants::Tenants;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use turnus_core::{Core, Input, MemberId, Output};
use turnus_protocol::limits::{MEMBERS_MAX, MESSAGE_BYTES_MAX, MESSAGES_PER_ROUND_MAX};

/// How often overdue connections are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Connections that have not said who they are.
const STRANGERS_MAX: usize = 1024;

/// Why the daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Its directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Its state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// What can wake the loop, as the 64 bits that epoll gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Members,
    Admins,
    Signals,
    Segments,
    Socket(u64),
    Process(u64),
    Former(u64),
}

impl Source {
    fn to_bits(self) -> u64 {
        match self {
            Source::Members => 0,
            Source::Admins => 1,
            Source::Signals => 2,
            Source::Segments => 3,
            Source::Socket(number) => 4 | number << 3,
            Source::Process(number) => 5 | number << 3,
            Source::Former(number) => 6 | number << 3,
        }
    }

    fn from_bits(bits: u64) -> Source {
        match bits & 7 {
            0 => Source::Members,
            1 => Source::Admins,
            2 => Source::Signals,
            3 => Source::Segments,
            4 => Source::Socket(bits >> 3),
            5 => Source::Process(bits >> 3),
            _ => Source::Former(bits >> 3),
        }
    }
}

/// Everything that the daemon has at hand.
#[derive(Debug)]
pub struct Server {
    pub(super) options: Options,
    pub(super) core: Core,
    pub(super) incarnation: u64,
    pub(super) tenants: Tenants,
    pub(super) segments: Segments,
    pub(super) device_locks: DeviceLocks,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) members: BTreeMap<MemberId, MemberRecord>,
    pub(super) by_member: BTreeMap<MemberId, u64>,
    /// Members of the former life that have not come back, and their pidfds.
    pub(super) former: BTreeMap<u64, (MemberRecord, OwnedFd)>,
    pub(super) last_member: u64,
    pub(super) stopping: bool,
    pub(super) state_changed: bool,
    pub(super) start: Instant,
    pub(super) epoll: OwnedFd,
    pub(super) closer: Closer,
    /// Where packets arrive.
    pub(super) buffer: Vec<u8>,
    /// Outputs that are not carried out yet, and whether somebody is at it.
    outputs: VecDeque<Output>,
    carrying: bool,
    /// Connections with an answer that waits for the state file.
    pub(super) unanswered: Vec<u64>,
    /// Connections that are not listened to for a moment, by time.
    pub(super) paused: VecDeque<(Instant, u64)>,
    /// When connections were last searched for overdue ones.
    swept: Instant,
    state_file: StateFile,
    last_connection: u64,
    idle_since: Instant,
    spare: Option<OwnedFd>,
    members_listener: OwnedFd,
    admins_listener: OwnedFd,
    signals: SignalFd,
}

/// Runs the daemon until a signal, an administrator, or idleness ends it.
pub fn serve(options: Options, mut directory: Directory) -> Result<(), ServerError> {
    directory.announce()?;
    let mut server = Server::start(options, &directory)?;
    tracing::info!("turnusd {} serves {}", env!("CARGO_PKG_VERSION"), directory.path().display());
    server.run()
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> ServerError {
    move |source| ServerError::Io { what, source }
}

impl Server {
    fn start(options: Options, directory: &Directory) -> Result<Server, ServerError> {
        raise_descriptor_limit();
        let state_file = StateFile::new(directory.path());
        let mut state = state_file.read()?;
        state.incarnation += 1;
        state_file.write(&state, true)?;
        let signals = block_signals().map_err(failed("cannot receive signals"))?;
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| failed("cannot make epoll")(e.into()))?;
        let mut server = Server {
            core: Core::new(options.core_settings(state.incarnation)),
            incarnation: state.incarnation,
            tenants: Tenants::new(state.runs, &state.members),
            segments: Segments::start(state.incarnation).map_err(failed("cannot start a thread"))?,
            device_locks: DeviceLocks::new(&options.lock_folders(), directory.path()),
            connections: BTreeMap::new(),
            members: BTreeMap::new(),
            by_member: BTreeMap::new(),
            former: BTreeMap::new(),
            last_member: 0,
            stopping: false,
            state_changed: false,
            start: Instant::now(),
            epoll,
            closer: Closer::start().map_err(failed("cannot start a thread"))?,
            buffer: vec![0; MESSAGE_BYTES_MAX],
            outputs: VecDeque::new(),
            carrying: false,
            unanswered: Vec::new(),
            paused: VecDeque::new(),
            swept: Instant::now(),
            state_file,
            last_connection: 0,
            idle_since: Instant::now(),
            spare: spare_descriptor(),
            // The members' socket last: who finds it finds the other one too.
            admins_listener: directory.listen_admin()?,
            members_listener: directory.listen_members()?,
            signals,
            options,
        };
        server.expect_former(state.members);
        let sources: [(Source, &dyn AsFd); 4] = [
            (Source::Members, &server.members_listener),
            (Source::Admins, &server.admins_listener),
            (Source::Signals, &server.signals),
            (Source::Segments, &server.segments.wake_descriptor()),
        ];
        for (source, descriptor) in sources {
            watch(&server.epoll, source, descriptor.as_fd()).map_err(failed("cannot watch a descriptor"))?;
        }
        Ok(server)
    }

    /// Members of the former life whose processes live: the core waits for them.
    fn expect_former(&mut self, records: Vec<MemberRecord>) {
        for record in records {
            if let Some(pidfd) = identity::pidfd_of(record.process)
                && watch(&self.epoll, Source::Former(record.member), pidfd.as_fd()).is_ok()
            {
                self.former.insert(record.member, (record, pidfd));
            }
        }
        if !self.former.is_empty() {
            let expected = self.former.keys().map(|number| MemberId(*number)).collect();
            self.feed(Input::Recover { expected });
        }
    }

    fn run(&mut self) -> Result<(), ServerError> {
        let mut events = Vec::with_capacity(256);
        while !self.is_over() {
            events.clear();
            let timeout = self.timeout().map(|time| rustix::time::Timespec {
                tv_sec: time.as_secs().min(3600) as i64,
                tv_nsec: i64::from(time.subsec_nanos()),
            });
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("cannot wait for events")(errno.into())),
            }
            for event in &events {
                self.handle(Source::from_bits(event.data.u64()), event.flags);
            }
            self.serve_timers();
            self.save_state(false);
            self.answer_introductions();
        }
        // Before the connections end: their members are to be waited for by the next daemon.
        self.save_state(true);
        self.feed(Input::Shutdown);
        tracing::info!("turnusd ends");
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        let idle = self.options.exit_when_idle_ms.is_some_and(|limit| {
            self.has_no_programs() && self.idle_since.elapsed() >= Duration::from_millis(limit)
        });
        // A program that still prepares its work counts on finding us.
        if idle && self.tenants.has_live_run() {
            self.idle_since = Instant::now();
            return self.stopping;
        }
        self.stopping || idle
    }

    /// Who only asks for the status does not keep a private daemon.
    fn has_no_programs(&self) -> bool {
        self.connections.values().all(|connection| connection.role == Role::Admin)
    }

    /// Until the core's next deadline or our own housekeeping.
    fn timeout(&self) -> Option<Duration> {
        let now = self.start.elapsed();
        let core = self.core.next_deadline().map(|deadline| deadline.saturating_sub(now));
        let idle = self
            .options
            .exit_when_idle_ms
            .filter(|_| self.has_no_programs())
            .map(|limit| Duration::from_millis(limit).saturating_sub(self.idle_since.elapsed()));
        let passing = self.connections.values().any(Connection::is_passing);
        let sweep = passing.then_some(SWEEP);
        [core, idle, sweep, self.pause_left()].into_iter().flatten().min()
    }

    fn handle(&mut self, source: Source, flags: epoll::EventFlags) {
        match source {
            Source::Members => self.accept(Role::Unknown),
            Source::Admins => self.accept(Role::Admin),
            Source::Signals => {
                self.stopping |= matches!(self.signals.read_signal(), Ok(Some(_)));
            }
            Source::Segments => self.take_segments(),
            Source::Former(number) => {
                if self.former.remove(&number).is_some() {
                    self.feed(Input::ExpectedGone { former: MemberId(number) });
                    self.state_changed = true;
                }
            }
            Source::Process(number) => self.process_ended(number),
            Source::Socket(number) => {
                if flags.contains(epoll::EventFlags::OUT) {
                    self.flush(number);
                }
                let is_closing = self.connections.get(&number).is_some_and(|known| known.closing.is_some());
                if is_closing && flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                    self.disconnect(number);
                } else if flags
                    .intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
                {
                    self.read_some(number, MESSAGES_PER_ROUND_MAX);
                }
            }
        }
    }

    fn accept(&mut self, role: Role) {
        let listener = if role == Role::Admin { &self.admins_listener } else { &self.members_listener };
        let socket = match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE) => return self.refuse_for_want_of_descriptors(role),
            Err(_) => return,
        };
        if self.connections.len() >= 2 * MEMBERS_MAX {
            self.closer.end(socket);
            return;
        }
        self.limit_strangers();
        // A peer that has ended already needs no answer.
        let Ok(peer) = Peer::of(&socket) else { return self.closer.end(socket) };
        self.last_connection += 1;
        let number = self.last_connection;
        let watched = watch(&self.epoll, Source::Socket(number), socket.as_fd())
            .and_then(|()| watch(&self.epoll, Source::Process(number), peer.pidfd.as_fd()));
        if let Err(error) = watched {
            tracing::warn!("cannot watch process {}: {error}", peer.process.pid);
            return self.closer.end(socket);
        }
        self.connections.insert(number, Connection::new(socket, peer, role));
    }

    /// Who connects and says nothing holds a place for a while; when there are too many of those,
    /// the first of them goes.
    fn limit_strangers(&mut self) {
        if self.connections.len() < STRANGERS_MAX {
            return;
        }
        let mut strangers =
            self.connections.iter().filter(|(_, connection)| connection.role == Role::Unknown);
        let first = strangers.next().map(|(number, _)| *number);
        if strangers.count() >= STRANGERS_MAX
            && let Some(first) = first
        {
            self.disconnect(first);
        }
    }

    /// No descriptor is left: with the spare one, take the connection and end it, so that the
    /// loop does not spin on a listener that stays readable.
    fn refuse_for_want_of_descriptors(&mut self, role: Role) {
        self.spare = None;
        let listener = if role == Role::Admin { &self.admins_listener } else { &self.members_listener };
        drop(rustix::net::accept_with(listener, SocketFlags::CLOEXEC));
        self.spare = spare_descriptor();
        tracing::warn!(
            "no file descriptor is left; a connection was refused (raise the limit on open files)"
        );
    }

    /// Ends a connection; a member's things return to the core.
    pub(super) fn disconnect(&mut self, number: u64) {
        self.end_membership(number);
        let Some(connection) = self.connections.remove(&number) else { return };
        if connection.role != Role::Admin {
            self.idle_since = Instant::now();
        }
        // It is closed later and elsewhere; until then nothing of it is to wake us.
        let _ = epoll::delete(&self.epoll, &connection.socket);
        self.closer.end(connection.socket);
    }

    /// The connection may still have to bring last words; the member is gone.
    pub(super) fn end_membership(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        for device in std::mem::take(&mut connection.devices) {
            self.device_locks.release(device);
        }
        let Role::Member(member) = connection.role else { return };
        connection.role = Role::Runner;
        self.by_member.remove(&member);
        self.members.remove(&member);
        self.segments.cancel(member);
        self.state_changed = true;
        self.feed(Input::MemberGone { member });
    }

    /// Gives the core one input and does what it says, after all that it said before.
    pub(super) fn feed(&mut self, input: Input) {
        let mut outputs: Vec<Output> = Vec::new();
        let (tenants, nothing_before) = (&self.tenants, !self.carrying && self.outputs.is_empty());
        self.core.step_with_haste(self.start.elapsed(), input, &mut outputs, |outputs| {
            if nothing_before {
                carry::hurry(tenants, outputs);
            }
        });
        self.outputs.extend(outputs);
        if std::mem::replace(&mut self.carrying, true) {
            return;
        }
        while let Some(output) = self.outputs.pop_front() {
            self.carry_out(output);
        }
        self.carrying = false;
    }

    fn serve_timers(&mut self) {
        let now = Instant::now();
        if self.core.next_deadline().is_some_and(|deadline| deadline <= self.start.elapsed()) {
            self.feed(Input::Tick);
        }
        self.end_pauses();
        if now.duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let overdue: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.is_overdue(now))
            .map(|(number, _)| *number)
            .collect();
        for number in overdue {
            self.disconnect(number);
        }
    }

    fn save_state(&mut self, last: bool) {
        if !std::mem::take(&mut self.state_changed) && !last {
            return;
        }
        let members = self.members.values().chain(self.former.values().map(|(record, _)| record));
        let state = State {
            incarnation: self.incarnation,
            members: members.cloned().collect(),
            runs: self.tenants.runs(),
        };
        if let Err(error) = self.state_file.write(&state, last) {
            tracing::error!("{error}; after a restart members could not be recognised");
        }
    }
}

/// Adds a descriptor to the loop, level-triggered: what is left unread comes again next round.
fn watch(epoll: &OwnedFd, source: Source, descriptor: impl AsFd) -> io::Result<()> {
    let data = epoll::EventData::new_u64(source.to_bits());
    Ok(epoll::add(epoll, descriptor, data, epoll::EventFlags::IN)?)
}

/// Asks the loop to tell when the socket can be read, written, or no longer.
pub(super) fn watch_socket(
    epoll: &OwnedFd,
    number: u64,
    socket: &OwnedFd,
    (readable, writable): (bool, bool),
) -> io::Result<()> {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, readable);
    flags.set(epoll::EventFlags::OUT, writable);
    Ok(epoll::modify(epoll, socket, epoll::EventData::new_u64(Source::Socket(number).to_bits()), flags)?)
}

fn spare_descriptor() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // As many members as the system lets us have; a refusal leaves the limit as it was.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

fn block_signals() -> io::Result<SignalFd> {
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_survives_its_way_through_epoll() {
        for source in [
            Source::Members,
            Source::Admins,
            Source::Signals,
            Source::Segments,
            Source::Socket(1),
            Source::Process(u32::MAX.into()),
            Source::Former(5 << 32 | 3),
        ] {
            assert_eq!(Source::from_bits(source.to_bits()), source);
        }
    }
}
