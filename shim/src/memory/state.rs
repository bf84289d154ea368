//! Everything behind the memory's one lock: devices, table, segments, credits.
//!
//! Methods here take no lock, call no driver and never wait; messages that belong to a change are
//! sent together with it, so that claims are never between the two.

use super::driver::Context;
use super::frames::{Content, Frame};
use super::ledger::Ledger;
use super::ranges::Ranges;
use super::segments::Segments;
use super::table::{Allocation, Block, Life, Place, Table};
use super::{Claims, DeviceClaim, Scheduler};
use std::collections::{BTreeMap, BTreeSet};
use turnus_bindings::types::CUdevice;
use turnus_protocol::limits::SEGMENT_BYTES_MAX;
use turnus_protocol::{ClientMessage, DeviceUuid};

/// Addresses and sizes in a slab are multiples of this, as the driver's are.
const SLAB_ALIGNMENT_BYTES: u64 = 512;
/// Requests below this share slabs, if the granularity is not smaller.
const SMALL_BYTES: u64 = 1 << 20;

/// One device that the program uses.
#[derive(Debug)]
pub(crate) struct Device {
    /// Its key.
    pub(crate) uuid: DeviceUuid,
    /// Smallest unit of frames.
    pub(crate) granule_bytes: u64,
    /// Size of a whole frame.
    pub(crate) frame_bytes: u64,
    /// All memory, as the driver says.
    pub(crate) total_bytes: u64,
    /// Living contexts, oldest first.
    pub(crate) contexts: Vec<Context>,
    /// Credits.
    pub(crate) ledger: Ledger,
    /// What the daemon said last about total and free bytes, and the virtual bytes of that time.
    pub(crate) last_answer: Option<(u64, u64, u64)>,
}

impl Device {
    /// The bytes of frames that a request takes; `None` for one beyond all numbers.
    pub(crate) fn block_bytes(&self, bytes: u64) -> Option<u64> {
        if self.slab_part_bytes(bytes).is_some() {
            return Some(self.granule_bytes);
        }
        bytes.checked_next_multiple_of(self.granule_bytes)
    }

    /// The bytes that a small request takes in a slab; `None` if it gets a block of its own.
    pub(crate) fn slab_part_bytes(&self, bytes: u64) -> Option<u64> {
        let is_small = bytes < SMALL_BYTES.min(self.granule_bytes / 2);
        is_small.then(|| bytes.next_multiple_of(SLAB_ALIGNMENT_BYTES))
    }
}

/// A part of a slab that is freed but may still be touched by running work.
#[derive(Debug)]
struct PendingPart {
    block: u64,
    offset: u64,
    bytes: u64,
    /// As in `Life::Freed`.
    in_use_since: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    handle_bytes: u64,
    devices: BTreeMap<CUdevice, Device>,
    /// Allocations and blocks.
    pub(crate) table: Table,
    /// Host memory.
    pub(crate) segments: Segments,
    /// Contexts that are being destroyed: nothing of ours may be made in them.
    pub(crate) leaving: BTreeSet<Context>,
    pending: Vec<PendingPart>,
    last_freeing: u64,
    in_turn: bool,
    /// Nothing runs, and nothing can begin to: the gate was closed and has not been opened since.
    pub(crate) is_quiet: bool,
    /// The worker unmaps cached frames in the quiet: the gate must not open before it is done.
    pub(crate) is_tidying: bool,
    connection: u64,
    last_buffer_id: u64,
}

impl State {
    /// Nothing yet.
    pub(crate) fn new(handle_bytes: u64) -> State {
        State {
            handle_bytes,
            devices: BTreeMap::new(),
            table: Table::default(),
            segments: Segments::default(),
            leaving: BTreeSet::new(),
            pending: Vec::new(),
            last_freeing: 0,
            in_turn: false,
            is_quiet: true,
            is_tidying: false,
            connection: 0,
            // The driver's own ids are small numbers; ours stay clear of them.
            last_buffer_id: 1 << 48,
        }
    }

    /// The device with this number.
    pub(crate) fn device(&self, ordinal: CUdevice) -> Option<&Device> {
        self.devices.get(&ordinal)
    }

    /// The device with this number, to be changed.
    pub(crate) fn device_mut(&mut self, ordinal: CUdevice) -> Option<&mut Device> {
        self.devices.get_mut(&ordinal)
    }

    /// Number of the device with this key.
    pub(crate) fn ordinal_of(&self, uuid: DeviceUuid) -> Option<CUdevice> {
        self.devices.iter().find(|(_, device)| device.uuid == uuid).map(|(&ordinal, _)| ordinal)
    }

    /// Numbers of all devices.
    pub(crate) fn ordinals(&self) -> Vec<CUdevice> {
        self.devices.keys().copied().collect()
    }

    /// A device is used from now on.
    pub(crate) fn add_device(
        &mut self,
        ordinal: CUdevice,
        uuid: DeviceUuid,
        granule_bytes: u64,
        total_bytes: u64,
    ) {
        let granule_bytes = granule_bytes.max(SLAB_ALIGNMENT_BYTES);
        let most = (SEGMENT_BYTES_MAX / granule_bytes).max(1) * granule_bytes;
        let frame_bytes = self
            .handle_bytes
            .max(1)
            .checked_next_multiple_of(granule_bytes)
            .map_or(most, |bytes| bytes.min(most));
        let (contexts, ledger, last_answer) = (Vec::new(), Ledger::default(), None);
        self.devices.entry(ordinal).or_insert(Device {
            uuid,
            granule_bytes,
            frame_bytes,
            total_bytes,
            contexts,
            ledger,
            last_answer,
        });
    }

    /// A context lives.
    pub(crate) fn add_context(&mut self, ordinal: CUdevice, context: Context) {
        if let Some(device) = self.devices.get_mut(&ordinal)
            && !device.contexts.contains(&context)
        {
            device.contexts.push(context);
        }
    }

    /// A context is no more.
    pub(crate) fn remove_context(&mut self, context: Context) {
        self.leaving.remove(&context);
        for device in self.devices.values_mut() {
            device.contexts.retain(|known| *known != context);
        }
    }

    /// Whether the daemon's answer of this connection still counts.
    pub(crate) fn is_connection(&self, connection: u64) -> bool {
        self.connection == connection
    }

    /// Whether credits may be asked for.
    pub(crate) fn in_turn(&self) -> bool {
        self.in_turn
    }

    /// A turn begins or ends.
    pub(crate) fn set_in_turn(&mut self, in_turn: bool) {
        self.in_turn = in_turn;
    }

    /// The turn has ended.
    pub(crate) fn return_all_credits(&mut self, scheduler: &dyn Scheduler) {
        for device in self.devices.values_mut() {
            device.ledger.return_unspent(scheduler, device.uuid);
            device.ledger.forget_wants();
        }
    }

    /// The daemon gives.
    pub(crate) fn credits_arrived(&mut self, scheduler: &dyn Scheduler, uuid: DeviceUuid, bytes: u64) {
        let in_turn = self.in_turn;
        match self.devices.values_mut().find(|device| device.uuid == uuid) {
            Some(device) if in_turn => device.ledger.arrived(bytes),
            _ => scheduler.send(ClientMessage::CreditsReturned { device: uuid, bytes }),
        }
    }

    /// The daemon that gave credits is gone; another one answers from here on.
    pub(crate) fn drop_credits(&mut self, connection: u64) {
        self.connection = connection;
        for device in self.devices.values_mut() {
            device.ledger.drop_all();
        }
    }

    /// What this process holds.
    pub(crate) fn claims(&self) -> Claims<'_> {
        let mut devices: Vec<DeviceClaim> =
            self.devices.iter().map(|(&ordinal, device)| self.claim(ordinal, device)).collect();
        devices.sort_by_key(|claim| claim.device);
        Claims { devices, segments: self.segments.claims() }
    }

    /// What this process holds on one device.
    pub(crate) fn claim(&self, ordinal: CUdevice, device: &Device) -> DeviceClaim {
        let mut claim = DeviceClaim {
            device: device.uuid,
            virtual_bytes: 0,
            resident_bytes: device.ledger.spending_bytes(),
            host_bytes: 0,
            // A block that cannot leave would be counted here; all of ours can.
            pinned_bytes: 0,
        };
        for (_, block) in self.table.blocks_of(ordinal) {
            claim.virtual_bytes += if block.life == Life::Live { block.bytes } else { 0 };
            claim.resident_bytes += block.frames.iter().map(Frame::resident_bytes).sum::<u64>();
            claim.host_bytes += block.frames.iter().map(Frame::host_bytes).sum::<u64>();
        }
        claim
    }

    /// Tells the daemon where the bytes are after a move.
    pub(crate) fn report_move(
        &self,
        scheduler: &dyn Scheduler,
        ordinal: CUdevice,
        to_host_bytes: u64,
        to_device_bytes: u64,
    ) {
        let Some(device) = self.devices.get(&ordinal) else { return };
        let DeviceClaim { device, resident_bytes, host_bytes, pinned_bytes, .. } =
            self.claim(ordinal, device);
        scheduler.send(ClientMessage::Moved {
            device,
            to_host_bytes,
            to_device_bytes,
            resident_bytes,
            host_bytes,
            pinned_bytes,
        });
    }

    /// Whether all allocated bytes of the device are there.
    fn is_device_complete(&self, ordinal: CUdevice) -> bool {
        self.table.live_frames(ordinal).all(Frame::is_ready)
    }

    /// Whether all allocated bytes are there.
    pub(crate) fn is_complete(&self) -> bool {
        self.devices.keys().all(|&ordinal| self.is_device_complete(ordinal))
    }

    /// The devices on which something is not there.
    pub(crate) fn incomplete_devices(&self) -> Vec<DeviceUuid> {
        let incomplete = |(ordinal, _): &(&CUdevice, &Device)| !self.is_device_complete(**ordinal);
        self.devices.iter().filter(incomplete).map(|(_, device)| device.uuid).collect()
    }

    /// Makes a live block of unwritten frames at addresses that the driver gave.
    pub(crate) fn add_block(&mut self, ordinal: CUdevice, base: u64, bytes: u64, slab: Option<Ranges>) {
        let frame_bytes = self.devices.get(&ordinal).map_or(bytes, |device| device.frame_bytes);
        let frames = Frame::cut(bytes, frame_bytes);
        self.table.add_block(base, Block { bytes, ordinal, frames, slab, life: Life::Live });
    }

    /// Enters an allocation.
    pub(crate) fn add_allocation(
        &mut self,
        address: u64,
        bytes: u64,
        block: u64,
        context: Context,
        ordinal: CUdevice,
    ) {
        self.last_buffer_id += 1;
        let buffer_id = self.last_buffer_id;
        let has_sync_memops = false;
        self.table.add_allocation(Allocation {
            address,
            bytes,
            block,
            context,
            ordinal,
            buffer_id,
            has_sync_memops,
        });
    }

    /// Number of the last freeing that did not wait for work.
    pub(crate) fn last_freeing(&self) -> u64 {
        self.last_freeing
    }

    /// The program has freed `allocation`, which is no longer in the table. If work may still touch
    /// it, its place is used again only after the next synchronisation.
    pub(crate) fn free(&mut self, scheduler: &dyn Scheduler, allocation: &Allocation, is_synchronised: bool) {
        let Some(device) = self.devices.get(&allocation.ordinal) else { return };
        let part = device.slab_part_bytes(allocation.bytes);
        let is_slab = self.table.block(allocation.block).is_some_and(|block| block.slab.is_some());
        self.last_freeing += u64::from(!is_synchronised);
        let in_use_since = (!is_synchronised).then_some(self.last_freeing);
        let (block, offset) = (allocation.block, allocation.address - allocation.block);
        match (part.filter(|_| is_slab), in_use_since) {
            (None, _) => self.free_block(scheduler, block, in_use_since),
            (Some(bytes), None) => self.give_part(scheduler, block, offset, bytes),
            (Some(bytes), Some(in_use_since)) => {
                self.pending.push(PendingPart { block, offset, bytes, in_use_since });
            }
        }
    }

    fn give_part(&mut self, scheduler: &dyn Scheduler, block: u64, offset: u64, bytes: u64) {
        let Some(slab) = self.table.block_mut(block).and_then(|block| block.slab.as_mut()) else { return };
        slab.give(offset, bytes);
        if slab.is_all_free() {
            self.free_block(scheduler, block, None);
        }
    }

    fn free_block(&mut self, scheduler: &dyn Scheduler, base: u64, in_use_since: Option<u64>) {
        let Some(block) = self.table.block(base) else { return };
        let (ordinal, bytes) = (block.ordinal, block.bytes);
        self.table.free_block(base, in_use_since, &mut self.segments);
        if let Some(device) = self.devices.get(&ordinal) {
            scheduler.send(ClientMessage::Unreserve { device: device.uuid, bytes });
        }
    }

    /// All work on the device has ended that is older than freeing number `last`: what was freed
    /// until then may be used again.
    pub(crate) fn promote_freed(&mut self, scheduler: &dyn Scheduler, ordinal: CUdevice, last: u64) {
        self.table.promote_freed(ordinal, last);
        let is_due = |table: &Table, part: &PendingPart| {
            part.in_use_since <= last && table.block(part.block).is_none_or(|block| block.ordinal == ordinal)
        };
        let due: Vec<PendingPart> = self.pending.extract_if(.., |part| is_due(&self.table, part)).collect();
        for PendingPart { block, offset, bytes, .. } in due {
            self.give_part(scheduler, block, offset, bytes);
        }
    }

    /// The worker is done with a frame.
    pub(crate) fn stop_moving(&mut self, place: Place) {
        if let Some(frame) = self.table.frame_mut(place) {
            frame.is_moving = false;
        }
        self.table.settle(place.block, &mut self.segments);
    }

    /// Exchanges where a moving frame's bytes are; space in host memory that is no longer needed
    /// becomes free.
    pub(crate) fn set_content(&mut self, place: Place, content: Content) {
        let Some(frame) = self.table.frame_mut(place) else { return };
        if let Content::Host(span) = std::mem::replace(&mut frame.content, content) {
            self.segments.give(span);
        }
    }
}
