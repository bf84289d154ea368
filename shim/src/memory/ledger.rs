//! Frame credits of one device, as this process sees them.
//!
//! What the daemon has given is either unspent, being spent (a frame is being made for it), or a
//! frame. The sum is what the daemon believes; every way out of it is a message. Wants belong to a
//! turn: the daemon forgets them at its end, and so does this side.

use super::Scheduler;
use turnus_protocol::{ClientMessage, DeviceUuid};

/// Credits without frames, and wants.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    unspent_bytes: u64,
    spending_bytes: u64,
    wanted_bytes: u64,
}

impl Ledger {
    /// Credits that no frame has been made for.
    pub(crate) fn unspent_bytes(&self) -> u64 {
        self.unspent_bytes
    }

    /// Credits for which a frame may exist any moment: they count as resident.
    pub(crate) fn spending_bytes(&self) -> u64 {
        self.spending_bytes
    }

    /// The daemon gave, or a frame was dissolved to make another one.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.unspent_bytes = self.unspent_bytes.saturating_add(bytes);
    }

    /// The daemon gave what was wanted.
    pub(crate) fn arrived(&mut self, bytes: u64) {
        self.wanted_bytes = self.wanted_bytes.saturating_sub(bytes);
        self.add(bytes);
    }

    /// Begins to make a frame, if there is credit for it.
    pub(crate) fn begin_spending(&mut self, bytes: u64) -> bool {
        let has_credit = self.unspent_bytes >= bytes;
        if has_credit {
            self.unspent_bytes -= bytes;
            self.spending_bytes += bytes;
        }
        has_credit
    }

    /// The frame was made.
    pub(crate) fn spent(&mut self, bytes: u64) {
        self.spending_bytes -= bytes;
    }

    /// The frame was not made: the credit is unspent again, or goes back if the turn has ended.
    pub(crate) fn not_spent(
        &mut self,
        scheduler: &dyn Scheduler,
        device: DeviceUuid,
        bytes: u64,
        in_turn: bool,
    ) {
        self.spending_bytes -= bytes;
        if in_turn {
            self.add(bytes);
        } else {
            scheduler.send(ClientMessage::CreditsReturned { device, bytes });
        }
    }

    /// The driver has no memory although there is credit: all of it goes back and is wanted again.
    pub(crate) fn short(
        &mut self,
        scheduler: &dyn Scheduler,
        device: DeviceUuid,
        (total_bytes, free_bytes): (u64, u64),
    ) {
        let bytes = std::mem::take(&mut self.unspent_bytes);
        if bytes > 0 {
            self.wanted_bytes = self.wanted_bytes.saturating_add(bytes);
            scheduler.send(ClientMessage::CreditsShort { device, bytes, total_bytes, free_bytes });
        }
    }

    /// Asks for what `lacking_bytes` of frames need beyond what is unspent or already wanted.
    pub(crate) fn want(&mut self, scheduler: &dyn Scheduler, device: DeviceUuid, lacking_bytes: u64) {
        let bytes = lacking_bytes.saturating_sub(self.unspent_bytes + self.wanted_bytes);
        if bytes > 0 {
            self.wanted_bytes += bytes;
            scheduler.send(ClientMessage::CreditsWanted { device, bytes });
        }
    }

    /// Gives unspent credits back.
    pub(crate) fn return_unspent(&mut self, scheduler: &dyn Scheduler, device: DeviceUuid) {
        let bytes = std::mem::take(&mut self.unspent_bytes);
        if bytes > 0 {
            scheduler.send(ClientMessage::CreditsReturned { device, bytes });
        }
    }

    /// The turn has ended: the daemon forgets what is wanted.
    pub(crate) fn forget_wants(&mut self) {
        self.wanted_bytes = 0;
    }

    /// The daemon that gave them is gone. What is being spent stays: it is claimed as resident.
    pub(crate) fn drop_all(&mut self) {
        self.unspent_bytes = 0;
        self.wanted_bytes = 0;
    }
}
