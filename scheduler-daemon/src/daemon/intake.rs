//! From packets and ended processes to inputs of the core.
//!
//! Introductions (`Hello`, `RegisterRun`) are settled here, since they are about identity; all
//! else goes to the core. A packet that makes no sense costs its sender the connection, nobody
//! anything else.

use crate::daemon::admin;
use crate::daemon::connection::Role;
use crate::daemon::identity;
use crate::daemon::server::Server;
use crate::daemon::state_file::MemberRecord;
use crate::daemon::tenants::Membership;
use crate::daemon::translate;
use crate::packet::{self, Packet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;
use turnus_core::{Input, MemberId, MemberMessage};
use turnus_protocol::admin::AdminRequest;
use turnus_protocol::limits::{DEVICES_MAX, MEMBERS_MAX, PROTOCOL_VERSION, SERVED_MINOR_VERSIONS};
use turnus_protocol::message::Resume;
use turnus_protocol::{ClientMessage, DaemonMessage, Incarnation, Reason, Token, Version, decode};

/// Members that one process can be. One is usual; more are left from connections that just end.
const MEMBERS_OF_PROCESS_MAX: usize = 64;
/// Packets that can lie unread in a socket whose process has ended.
const UNREAD_MAX: usize = 1024;

impl Server {
    /// Reads at most `messages_max` packets of one connection.
    pub(super) fn read_some(&mut self, number: u64, messages_max: usize) {
        for _ in 0..messages_max {
            let Some(connection) = self.connections.get(&number) else { return };
            if connection.closing.is_some() || connection.answer.is_some() {
                return;
            }
            match packet::receive_with(&connection.socket, &mut self.buffer) {
                Ok(Some(packet)) => {
                    self.take_packet(number, packet);
                    if !self.goes_on_listening(number) {
                        return;
                    }
                }
                Ok(None) => return self.disconnect(number),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.disconnect(number),
            }
        }
    }

    fn take_packet(&mut self, number: u64, mut packet: Packet) {
        let surplus = std::mem::take(&mut packet.surplus);
        let too_many = !surplus.is_empty();
        for descriptor in surplus {
            self.closer.close(descriptor);
        }
        let descriptor = packet.descriptor.take();
        let left = self.take_message(number, &packet, too_many, descriptor);
        if let Some(descriptor) = left {
            self.closer.close(descriptor);
        }
    }

    /// Gives back the descriptor if the message has no use for it.
    fn take_message(
        &mut self,
        number: u64,
        packet: &Packet,
        too_many: bool,
        descriptor: Option<OwnedFd>,
    ) -> Option<OwnedFd> {
        let role = self.connections.get(&number).map(|connection| connection.role)?;
        let violation =
            |server: &mut Server, text: &str| server.reject(number, Reason::ProtocolViolation, text);
        if role == Role::Admin {
            self.answer_admin(number, &packet.bytes);
            return descriptor;
        }
        if packet.truncated || too_many {
            violation(self, "the packet is longer, or brings more descriptors, than any message");
            return descriptor;
        }
        let message = match decode::<ClientMessage>(&packet.bytes) {
            Ok(message) => message,
            Err(error) => {
                violation(self, &error.to_string());
                return descriptor;
            }
        };
        match (role, message) {
            (Role::Unknown, ClientMessage::Hello { protocol, token, resume, .. }) => {
                self.introduce(number, protocol, token, resume);
            }
            (Role::Unknown, ClientMessage::RegisterRun { protocol, name, memory_limit_bytes }) => {
                self.register_run(number, protocol, &name, memory_limit_bytes);
            }
            (Role::Member(member), ClientMessage::SegmentClaim { segment, bytes }) => {
                return self.claim_segment(number, member, (segment, bytes), descriptor);
            }
            (Role::Member(member), message) => self.take_member_message(number, member, message),
            _ => violation(self, "the message comes out of order"),
        }
        descriptor
    }

    /// Says why and ends the connection when that is sent.
    pub(super) fn reject(&mut self, number: u64, reason: Reason, text: &str) {
        if let Some(connection) = self.connections.get(&number) {
            tracing::warn!("{reason}: process {} is rejected: {text}", connection.peer.process.pid);
        }
        let text: String = text.chars().take(200).collect();
        self.end_membership(number);
        self.send_wire(number, &DaemonMessage::Rejected { reason, text }, None);
        self.close_when_sent(number);
    }

    fn introduce(&mut self, number: u64, protocol: Version, token: Option<Token>, resume: Option<Resume>) {
        if let Err(text) = check_version(protocol) {
            return self.reject(number, Reason::VersionMismatch, &text);
        }
        if self.members.len() >= MEMBERS_MAX {
            return self.reject(
                number,
                Reason::TooManyMembers,
                "this daemon has all the members it can serve",
            );
        }
        let Some(connection) = self.connections.get(&number) else { return };
        let (process, uid) = (connection.peer.process, connection.peer.uid);
        if self.members.values().filter(|record| record.process == process).count() >= MEMBERS_OF_PROCESS_MAX
        {
            let text = "the process is a member too many times already";
            return self.reject(number, Reason::TooManyMembers, text);
        }
        let former = resume.and_then(|resume| {
            let (record, _) = self.former.get(&resume.member.0)?;
            (record.process == process).then(|| record.clone())
        });
        let membership = match (&former, token) {
            (Some(record), _) => self.tenants.of_record(record),
            (None, Some(token)) => match self.tenants.by_token(token, uid) {
                Some(membership) => membership,
                None => {
                    return self.reject(
                        number,
                        Reason::UnknownToken,
                        "the token belongs to no tenant of this user",
                    );
                }
            },
            (None, None) => self.tenants.alone(process.pid),
        };
        let page = match self
            .tenants
            .page(membership.tenant)
            .and_then(|page| page.descriptor().try_clone_to_owned())
        {
            Ok(page) => page,
            Err(error) => {
                if self.members.values().all(|record| record.tenant != membership.tenant.0) {
                    self.tenants.forget(membership.tenant);
                }
                let text = format!("no gate page can be made: {error}");
                return self.reject(number, Reason::TooManyMembers, &text);
            }
        };
        self.last_member += 1;
        let member = MemberId(self.incarnation << 32 | self.last_member);
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.role = Role::Member(member);
        }
        self.by_member.insert(member, number);
        self.note_member(member, process, &membership);
        let resumes = former.as_ref().map(|record| MemberId(record.member));
        if let Some(record) = former {
            self.former.remove(&record.member);
        }
        self.feed(Input::MemberConnected {
            member,
            pid: process.pid,
            tenant: membership.tenant,
            tenant_name: membership.name.clone(),
            memory_limit_bytes: membership.memory_limit_bytes,
            resumes,
        });
        let welcome = DaemonMessage::Welcome {
            protocol: PROTOCOL_VERSION,
            incarnation: Incarnation(self.incarnation),
            member: turnus_protocol::MemberId(member.0),
            tenant_name: membership.name,
            settings: self.options.member_settings(),
        };
        self.answer_when_saved(number, welcome, Some(page));
    }

    fn answer_when_saved(&mut self, number: u64, message: DaemonMessage, descriptor: Option<OwnedFd>) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.answer = Some((message, descriptor));
            self.unanswered.push(number);
        }
    }

    /// The state has been saved: who has introduced itself is told so.
    pub(super) fn answer_introductions(&mut self) {
        for number in std::mem::take(&mut self.unanswered) {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            let is_runner = connection.role == Role::Runner;
            let Some((message, descriptor)) = connection.answer.take() else { continue };
            self.send_wire(number, &message, descriptor);
            if is_runner {
                self.close_when_sent(number);
            }
        }
    }

    fn note_member(&mut self, member: MemberId, process: identity::Process, membership: &Membership) {
        let record = MemberRecord {
            member: member.0,
            process,
            tenant: membership.tenant.0,
            tenant_name: membership.name.clone(),
            memory_limit_bytes: membership.memory_limit_bytes,
        };
        self.members.insert(member, record);
        self.state_changed = true;
    }

    fn register_run(&mut self, number: u64, protocol: Version, name: &str, limit: Option<u64>) {
        if let Err(text) = check_version(protocol) {
            return self.reject(number, Reason::VersionMismatch, &text);
        }
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.role = Role::Runner;
        match self.tenants.register_run(&connection.peer, name, limit) {
            Ok((token, tenant_name)) => {
                self.state_changed = true;
                self.answer_when_saved(number, DaemonMessage::RunRegistered { token, tenant_name }, None);
            }
            Err(error) => {
                self.reject(number, Reason::UnknownToken, &format!("no token can be made: {error}"))
            }
        }
    }

    fn take_member_message(&mut self, number: u64, member: MemberId, message: ClientMessage) {
        if let ClientMessage::Device { device, .. } = &message
            && let Some(connection) = self.connections.get_mut(&number)
            && connection.devices.len() <= DEVICES_MAX
            && connection.devices.insert(*device)
            && let Err(error) = self.device_locks.take(*device)
        {
            connection.devices.remove(device);
            return self.reject(number, Reason::DeviceTaken, &error.to_string());
        }
        let is_goodbye = message == ClientMessage::Goodbye;
        let Some(message) = translate::to_core(message) else {
            return self.reject(number, Reason::ProtocolViolation, "the message comes out of order");
        };
        if is_goodbye {
            return self.disconnect(number);
        }
        debug_assert_ne!(message, MemberMessage::Goodbye);
        self.feed(Input::Message { member, message });
    }

    /// Gives back the descriptor if it is no segment of a former life.
    fn claim_segment(
        &mut self,
        number: u64,
        member: MemberId,
        (segment, bytes): (turnus_protocol::SegmentId, u64),
        descriptor: Option<OwnedFd>,
    ) -> Option<OwnedFd> {
        let segment = turnus_core::SegmentId(segment.0);
        let left = match descriptor.map(|descriptor| self.segments.claim(segment, descriptor, bytes)) {
            Some(Ok(())) => {
                let message = MemberMessage::SegmentClaim { segment, bytes };
                self.feed(Input::Message { member, message });
                return None;
            }
            Some(Err(descriptor)) => Some(descriptor),
            None => None,
        };
        self.reject(number, Reason::ProtocolViolation, "the claimed segment is none of ours");
        left
    }

    /// The process has ended, though its socket may live on in a child. What it said last is
    /// still read: it may have given things back.
    pub(super) fn process_ended(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.pace.is_paused = true;
        }
        self.read_some(number, UNREAD_MAX);
        self.disconnect(number);
    }

    /// Hands finished segments to who asked for them.
    pub(super) fn take_segments(&mut self) {
        while let Some(made) = self.segments.finished() {
            let descriptor = match made.result {
                Ok(descriptor) => descriptor,
                Err(error) => {
                    tracing::warn!(
                        "budget-exceeded: no host memory for a segment of {} bytes: {error}",
                        made.bytes
                    );
                    self.feed(Input::SegmentFailed { member: made.member, request: made.request });
                    continue;
                }
            };
            let (Some(number), Ok(lessee)) =
                (self.by_member.get(&made.member).copied(), descriptor.try_clone())
            else {
                self.segments.discard(descriptor, made.bytes);
                self.feed(Input::SegmentFailed { member: made.member, request: made.request });
                continue;
            };
            let segment = self.segments.lease(descriptor, made.bytes);
            let (member, request, bytes) = (made.member, made.request, made.bytes);
            self.feed(Input::SegmentLeased { member, request, segment, bytes });
            let message = DaemonMessage::SegmentLeased {
                request: turnus_protocol::RequestId(request.0),
                segment: turnus_protocol::SegmentId(segment.0),
                bytes,
            };
            self.send_wire(number, &message, Some(lessee));
        }
    }

    fn answer_admin(&mut self, number: u64, bytes: &[u8]) {
        let Some(uid) = self.connections.get(&number).map(|connection| connection.peer.uid) else { return };
        let answer = match admin::understand(bytes, uid, rustix::process::geteuid().as_raw()) {
            Err(refusal) => refusal,
            Ok(AdminRequest::Status) => {
                let status = translate::status(self.core.status(self.start.elapsed()));
                serde_json::to_string(&status).unwrap_or_else(|error| admin::refusal(&error.to_string()))
            }
            Ok(AdminRequest::SetQuantum { quantum_ms: 0 }) => {
                admin::refusal("a quantum of 0 ms makes no sense")
            }
            Ok(AdminRequest::SetQuantum { quantum_ms }) => {
                self.feed(Input::SetQuantum { quantum_ms });
                admin::done()
            }
            Ok(AdminRequest::Shutdown) => {
                self.stopping = true;
                admin::done()
            }
        };
        for piece in answer.as_bytes().chunks(admin::PIECE_BYTES) {
            self.send_bytes(number, piece.to_vec(), None);
        }
        self.close_when_sent(number);
    }

    /// Ends the connection now if nothing waits to be sent, else after that, or after a while.
    fn close_when_sent(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.has_backlog() {
            connection.closing = Some(Instant::now());
            self.update_interest(number);
        } else {
            self.disconnect(number);
        }
    }

    /// The peer reads again.
    pub(super) fn flush(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        match connection.flush() {
            Err(_) => self.disconnect(number),
            Ok(()) if connection.closing.is_some() && !connection.has_backlog() => self.disconnect(number),
            Ok(()) => self.update_interest(number),
        }
    }
}

/// Newer minor versions of ours are understood; older ones down to what is promised.
fn check_version(theirs: Version) -> Result<(), String> {
    let oldest = PROTOCOL_VERSION.minor.saturating_sub(SERVED_MINOR_VERSIONS);
    if theirs.major == PROTOCOL_VERSION.major && theirs.minor >= oldest {
        return Ok(());
    }
    Err(format!(
        "the peer speaks protocol {theirs}, this turnusd {} to {PROTOCOL_VERSION}",
        Version { minor: oldest, ..PROTOCOL_VERSION }
    ))
}
