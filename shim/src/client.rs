//! The thread that talks to the daemon: welcome, messages, the end of a connection, the next one.
//!
//! It never calls the driver and never waits for who does: waiting for work is the worker's, and
//! how a drain or an idle holder goes on is decided in `watch.rs` between two messages. While nothing
//! is under way it wakes once a second, for the counts of unhandled calls.

use crate::config::{Config, WhenDaemonMissing};
use crate::connection::{ReceiveError, Socket};
use crate::lifecycle::{self, State};
use crate::member::Member;
use crate::memory;
use crate::message;
use crate::watch::Watch;
use crate::worker;
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::time::Instant;
use turnus_gate::page::GatePage;
use turnus_protocol::limits::PROTOCOL_VERSION;
use turnus_protocol::message::Resume;
use turnus_protocol::{ClientMessage, DaemonMessage, MemberSettings, Reason};

/// How long a daemon may take to say welcome.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_BACK_OFF: Duration = Duration::from_millis(50);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(1);
/// How long a new daemon's member waits for fresh numbers of its devices.
const ASK_WORKER: Duration = Duration::from_millis(250);
/// How often counts of unhandled calls are reported.
const REPORT: Duration = Duration::from_secs(1);

/// What a daemon said first.
#[derive(Debug)]
pub(crate) struct Welcome {
    pub(crate) identity: Resume,
    pub(crate) tenant_name: String,
    pub(crate) settings: MemberSettings,
    pub(crate) page: GatePage,
}

/// Why this process has no daemon, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoDaemon {
    /// There is none, or it does not answer. It may be on its way.
    #[error("{0}")]
    Away(String),
    /// It does not want this program, or the two do not understand each other.
    #[error("{0}")]
    Refuses(String),
}

/// The first daemon that answers, in the order of the configuration.
pub(crate) fn find_daemon(config: &Config, resume: Option<Resume>) -> Result<(Socket, Welcome), NoDaemon> {
    let mut reason = NoDaemon::Away("no daemon: no socket to look for".to_owned());
    for path in &config.sockets {
        match Socket::connect(path) {
            Ok(socket) if !config.is_socket_named && !socket.is_served_by_a_friend() => {
                let text = format!("the daemon at {} belongs to another user", path.display());
                reason = NoDaemon::Refuses(text);
            }
            Ok(socket) => match say_hello(&socket, config, resume) {
                Ok(welcome) => return Ok((socket, welcome)),
                Err(NoDaemon::Away(text)) => {
                    reason = NoDaemon::Away(format!("the daemon at {} {text}", path.display()));
                }
                Err(NoDaemon::Refuses(text)) => {
                    reason = NoDaemon::Refuses(format!("the daemon at {} {text}", path.display()));
                }
            },
            Err(error) => {
                reason = NoDaemon::Away(format!("no daemon at {}: {error}", path.display()));
            }
        }
    }
    Err(reason)
}

fn say_hello(socket: &Socket, config: &Config, resume: Option<Resume>) -> Result<Welcome, NoDaemon> {
    let refuses = |text: String| Err(NoDaemon::Refuses(text));
    let hello = ClientMessage::Hello {
        protocol: PROTOCOL_VERSION,
        shim_version: env!("CARGO_PKG_VERSION").to_owned(),
        token: config.token,
        resume,
    };
    socket.send(&hello, None).map_err(|error| NoDaemon::Away(format!("did not listen: {error}")))?;
    let (answer, descriptor) = socket
        .receive(WELCOME_TIMEOUT)
        .map_err(|error| NoDaemon::Away(format!("did not answer: {error}")))?;
    match (answer, descriptor) {
        (
            DaemonMessage::Welcome { protocol, incarnation, member, tenant_name, settings },
            Some(descriptor),
        ) => {
            if protocol.major != PROTOCOL_VERSION.major {
                return refuses(format!("speaks protocol {protocol}, this shim {PROTOCOL_VERSION}"));
            }
            let page = GatePage::map(descriptor)
                .map_err(|error| NoDaemon::Refuses(format!("sent no gate page: {error}")))?;
            Ok(Welcome { identity: Resume { incarnation, member }, tenant_name, settings, page })
        }
        (DaemonMessage::Rejected { reason, text }, _) => {
            refuses(format!("refused this program: {text} ({reason}; {})", reason.advice()))
        }
        _ => refuses("did not say welcome".to_owned()),
    }
}

/// The thread's life.
pub(crate) fn run(member: &'static Member, mut identity: Resume) {
    let mut client = Client { member, watch: Watch::new(), reported: Instant::now(), rejected: None };
    loop {
        client.serve();
        if lifecycle::is_detached() {
            return;
        }
        if client.stand_aside() {
            return;
        }
        client.daemon_is_lost();
        match client.find_next_daemon(identity) {
            Some(next) => identity = next,
            None => return,
        }
    }
}

struct Client {
    member: &'static Member,
    watch: Watch,
    reported: Instant,
    /// What the daemon said last when it ended a connection.
    rejected: Option<(Reason, String)>,
}

impl Client {
    /// Until the connection ends.
    fn serve(&mut self) {
        loop {
            match self.member.connection.receive() {
                Ok((message, descriptor)) => self.handle(message, descriptor),
                Err(ReceiveError::Empty) => {
                    let pause = self.watch.go_on(self.member);
                    self.report_unhandled();
                    self.member.wait_for_news(pause.min(REPORT));
                }
                Err(ReceiveError::Closed) => return,
                Err(error) => {
                    message::debug(|| format!("the connection ends: {error}"));
                    return;
                }
            }
            if lifecycle::is_detached() {
                return;
            }
        }
    }

    fn handle(&mut self, message: DaemonMessage, descriptor: Option<OwnedFd>) {
        use DaemonMessage as D;
        let member = self.member;
        message::debug(|| format!("from the daemon: {message:?}"));
        match message {
            D::TurnGranted { epoch } => self.watch.granted(member, epoch),
            D::Drain { epoch } => self.watch.drain(member, epoch),
            D::DrainCancelled { epoch } => self.watch.drain_cancelled(member, epoch),
            D::AdmitOne { epoch } => self.watch.admit_one(member, epoch),
            D::OthersWaiting { count } => self.watch.others_waiting(count),
            D::Credits { device, bytes } => {
                if let Some(memory) = memory::get() {
                    memory.credits_arrived(device, bytes);
                } else {
                    member.connection.send(&ClientMessage::CreditsReturned { device, bytes });
                }
                member.worker.want_restore();
            }
            D::Evict { device, order, bytes } => {
                member.worker.post(move |member| worker::evict(member, device, order, bytes));
            }
            D::Reserved { request }
            | D::Refused { request, .. }
            | D::MemoryAnswer { request, .. }
            | D::SegmentLeased { request, .. }
            | D::HeadRoomMade { request, .. } => {
                member.requests.answered(request, (message, descriptor, member.connection.number()));
            }
            D::WaitNotice { holder_name, ahead, waited_ms } => {
                message::notice(member.config.notice, &waiting_line(&holder_name, ahead, waited_ms));
            }
            D::Rejected { reason, text } => {
                let line = format!("the daemon ended the connection: {text} ({reason}; {})", reason.advice());
                let is_news = self.rejected.as_ref().is_none_or(|(_, before)| *before != line);
                self.rejected = Some((reason, line.clone()));
                if is_news && !self.may_stand_aside() {
                    message::error(&line);
                }
            }
            // Only before the first message of ours, or to `turnus run`.
            D::Welcome { .. } | D::RunRegistered { .. } => {}
        }
    }

    fn report_unhandled(&mut self) {
        if self.reported.elapsed() >= REPORT {
            self.reported = Instant::now();
            self.member.report_unhandled();
        }
    }

    /// Whether the daemon has refused this member for good and the program may run without one.
    fn may_stand_aside(&self) -> bool {
        let is_final = self.rejected.as_ref().is_some_and(|(reason, _)| {
            matches!(
                reason,
                Reason::DeviceTaken | Reason::VersionMismatch | Reason::UnknownToken | Reason::TooManyMembers
            )
        });
        is_final
            && self.member.config.when_daemon_missing == WhenDaemonMissing::Run
            && memory::get().is_none_or(|memory| memory.is_unused())
    }

    /// Lets the program run without a daemon if that has refused it for good and nothing of the
    /// program's lies in our frames. True: there is no more to do for this thread.
    fn stand_aside(&mut self) -> bool {
        if !self.may_stand_aside() {
            return false;
        }
        let line = self.rejected.as_ref().map_or("", |(_, line)| line);
        message::error(&format!("{line}; the program runs unscheduled"));
        memory::forget();
        crate::member::set_current(None);
        lifecycle::change(State::Active, State::PassThrough);
        self.member.connection.close();
        self.member.requests.end();
        self.member.wake_waiting_threads();
        true
    }

    fn daemon_is_lost(&mut self) {
        let member = self.member;
        member.connection.close();
        lifecycle::change(State::Active, State::Lost);
        member.turn().lost();
        if let Some(memory) = memory::get() {
            memory.turn_ended();
        }
        self.watch.lost(member);
        member.requests.lost();
        message::debug(|| "the daemon is lost".to_owned());
    }

    /// Looks until there is one. `None` when the process ends.
    fn find_next_daemon(&mut self, identity: Resume) -> Option<Resume> {
        let mut back_off = FIRST_BACK_OFF;
        let mut said = None;
        let mut is_said = false;
        loop {
            std::thread::sleep(back_off);
            if lifecycle::is_detached() {
                return None;
            }
            match find_daemon(&self.member.config, Some(identity)) {
                Ok((socket, welcome)) => return Some(self.resume(socket, welcome, identity)),
                Err(reason) => {
                    if said.as_ref() != Some(&reason) {
                        message::debug(|| reason.to_string());
                    }
                    // A daemon that is away comes back; one that refuses has to be told about.
                    if matches!(reason, NoDaemon::Refuses(_)) && !is_said {
                        message::error(&format!("{reason}; the program waits for another daemon"));
                        is_said = true;
                    }
                    said = Some(reason);
                }
            }
            back_off = (back_off * 2).min(LONGEST_BACK_OFF);
        }
    }

    /// Tells a new daemon what this member holds, and makes it the one everybody talks to.
    fn resume(&mut self, socket: Socket, welcome: Welcome, former: Resume) -> Resume {
        let member = self.member;
        let number = member.connection.number() + 1;
        let is_restarted = former.incarnation != welcome.identity.incarnation;
        // The worker may be moving bytes for longer than the daemon waits for us.
        let devices = member.worker.run_within(ASK_WORKER, |member| member.contexts.device_messages());
        let devices = devices.unwrap_or_else(|| member.contexts.last_device_messages());
        let epoch = member.turn().claimed_epoch().filter(|_| is_restarted);
        let claim = |claims: Option<memory::Claims<'_>>| {
            let held = claims.as_ref().map(|claims| claims.devices.as_slice()).unwrap_or_default();
            for mut message in devices {
                if let ClientMessage::Device {
                    device,
                    virtual_bytes,
                    resident_bytes,
                    host_bytes,
                    pinned_bytes,
                    epoch: claimed,
                    ..
                } = &mut message
                {
                    *claimed = epoch;
                    if let Some(held) = held.iter().find(|held| held.device == *device) {
                        *virtual_bytes = held.virtual_bytes;
                        *resident_bytes = held.resident_bytes;
                        *host_bytes = held.host_bytes;
                        *pinned_bytes = held.pinned_bytes;
                    }
                }
                let _ = socket.send(&message, None);
            }
            for (segment, bytes, descriptor) in claims.iter().flat_map(|claims| &claims.segments) {
                let message = ClientMessage::SegmentClaim { segment: *segment, bytes: *bytes };
                let _ = socket.send(&message, Some(*descriptor));
            }
            let _ = socket.send(&ClientMessage::Ready, None);
            member.connection.replace(socket, number);
        };
        match memory::get() {
            Some(memory) => memory.with_claims(number, |claims| claim(Some(claims))),
            None => claim(None),
        }
        member.set_settings(welcome.settings);
        self.watch.resumed(member, welcome.page, epoch.is_some());
        if is_restarted {
            member.report_unhandled_anew();
        }
        member.requests.reconnected();
        lifecycle::change(State::Lost, State::Active);
        message::debug(|| format!("member {} of {} again", welcome.identity.member.0, welcome.tenant_name));
        welcome.identity
    }
}

/// The one line that a person sees while the program waits.
fn waiting_line(holder_name: &str, ahead: u32, waited_ms: u64) -> String {
    let holder = turnus_protocol::name::clean(holder_name);
    let seconds = waited_ms / 1000;
    match ahead {
        0 | 1 => format!("waiting for the GPU for {seconds} s: {holder} has it"),
        ahead => {
            format!("waiting for the GPU for {seconds} s: {holder} has it, {ahead} are ahead of this program")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waiting_line_says_who_and_how_many_and_is_one_clean_line() {
        assert_eq!(waiting_line("train\x1b[2J", 0, 10_400), "waiting for the GPU for 10 s: train?[2J has it");
        let line = waiting_line("a\nb", 3, 1000);
        assert!(line.contains("3 are ahead") && !line.contains('\n'), "{line}");
    }
}
