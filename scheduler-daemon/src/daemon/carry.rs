//! From the core's outputs to acts: gate words, messages, segments, log lines.
//!
//! Outputs are carried out in order. A message that cannot be sent ends the connection, which the
//! core hears as `MemberGone` like any other end; what it says to that comes after the rest.

use crate::daemon::connection::SendError;
use crate::daemon::server::{Server, watch_socket};
use crate::daemon::tenants::Tenants;
use crate::daemon::translate;
use std::os::fd::OwnedFd;
use turnus_core::{Level, Output, TenantId};
use turnus_gate::page::GatePageWriter;
use turnus_protocol::{DaemonMessage, encode};

impl Server {
    /// Does one thing that the core asked for.
    pub(super) fn carry_out(&mut self, output: Output) {
        match output {
            word @ (Output::OpenGate { .. } | Output::CloseGate { .. } | Output::SetOthersWaiting { .. }) => {
                write_word(&self.tenants, &word);
            }
            Output::Send { member, message } => {
                if let Some(number) = self.by_member.get(&member).copied() {
                    self.send_wire(number, &translate::to_wire(message), None);
                }
            }
            Output::LeaseSegment { member, request, bytes } => self.segments.make(member, request, bytes),
            Output::DropSegment { segment } => self.segments.drop_segment(segment),
            Output::RejectMember { member, reason, text } => {
                if let Some(number) = self.by_member.get(&member).copied() {
                    self.reject(number, translate::reason_to_wire(reason), &text);
                }
            }
            Output::TenantGone { tenant } => self.tenants.forget(tenant),
            Output::Log { level, text } => log(level, &text),
        }
    }

    /// Sends a message, or ends the connection.
    pub(super) fn send_wire(&mut self, number: u64, message: &DaemonMessage, descriptor: Option<OwnedFd>) {
        match encode(message) {
            Ok(bytes) => self.send_bytes(number, bytes, descriptor),
            Err(error) => tracing::error!("a message of ours breaks its bounds: {error}: {message:?}"),
        }
    }

    /// Sends a packet, or ends the connection.
    pub(super) fn send_bytes(&mut self, number: u64, bytes: Vec<u8>, descriptor: Option<OwnedFd>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        match connection.send(bytes, descriptor) {
            Ok(()) => self.update_interest(number),
            Err(error) => {
                if let SendError::Full(_) = error {
                    tracing::warn!("flooding: process {}: {error}", connection.peer.process.pid);
                }
                self.disconnect(number);
            }
        }
    }

    /// Watches for writability exactly while something waits to be sent, and for what comes in as
    /// long as we want to hear it.
    pub(super) fn update_interest(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let listens = connection.closing.is_none() && !connection.pace.is_paused;
        let wanted = (listens, connection.has_backlog());
        if wanted != connection.watched {
            connection.watched = wanted;
            if let Err(error) = watch_socket(&self.epoll, number, &connection.socket, wanted) {
                tracing::warn!("cannot watch a socket: {error}");
                self.disconnect(number);
            }
        }
    }
}

/// Carries out what is only a store or a wake-up and stands at the front: who waits for its turn does
/// not wait for the core's bookkeeping.
pub(super) fn hurry(tenants: &Tenants, outputs: &mut Vec<Output>) {
    let words = outputs.iter().take_while(|output| write_word(tenants, output)).count();
    outputs.drain(..words);
}

/// Does what the output asks of a gate page; false if it asks for something else.
fn write_word(tenants: &Tenants, output: &Output) -> bool {
    match *output {
        Output::OpenGate { tenant, epoch } => with_page(tenants, tenant, |page| page.open(epoch.0)),
        Output::CloseGate { tenant, epoch } => with_page(tenants, tenant, |page| page.close(epoch.0)),
        Output::SetOthersWaiting { tenant, count } => {
            with_page(tenants, tenant, |page| page.set_others_waiting(count));
        }
        _ => return false,
    }
    true
}

fn with_page(tenants: &Tenants, tenant: TenantId, act: impl FnOnce(&GatePageWriter)) {
    match tenants.existing_page(tenant) {
        Some(page) => act(page),
        None => tracing::error!("{tenant} has no gate page"),
    }
}

fn log(level: Level, text: &str) {
    match level {
        Level::Debug => tracing::debug!("{text}"),
        Level::Info => tracing::info!("{text}"),
        Level::Warn => tracing::warn!("{text}"),
        Level::Error => tracing::error!("{text}"),
    }
}
