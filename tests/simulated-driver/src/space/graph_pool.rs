//! Memory of graphs: addresses that stay with their graph, and the physical memory that launches put there.
//!
//! One pool per device. A range is the address of one or more allocation nodes of one graph whose lifetimes do
//! not overlap; a block is physical memory that ranges of several graphs may share, as long as no two of them
//! use it at once. Rules: CUDA C++ programming guide, "Graph Memory Nodes"; driver API, cuGraphAddMemAllocNode.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_simulated_arena::Operation;

use super::allocation::Origin;
use super::peers::{Devices, only};
use super::physical::Physical;
use super::pool::Freed;
use super::{AddressSpace, READ, Result, WRITE};
use crate::driver::arena_error;
use crate::execution::Event;

/// The graph memory of one device.
#[derive(Debug, Default)]
pub struct GraphPool(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    ranges: BTreeMap<u64, Range>,
    blocks: BTreeMap<u64, Block>,
    next_block: u64,
    used_high_bytes: u64,
    reserved_high_bytes: u64,
}

#[derive(Debug)]
struct Range {
    taken_bytes: u64,
    devices: Devices,
    /// The memory mapped there.
    block: Option<u64>,
    /// Allocated by a launch and not freed.
    live: bool,
    /// No graph has it any more: it goes when it is freed.
    orphan: bool,
}

#[derive(Debug)]
struct Block {
    physical: Arc<Physical>,
    /// The range whose unfreed allocation is in it.
    holder: Option<u64>,
    /// The last launch that used it, or the free of what it held.
    last: Option<Freed>,
}

/// What programs can read (`CUgraphMem_attribute`).
#[derive(Clone, Copy, Debug)]
pub struct GraphPoolNumbers {
    /// Physical memory that is mapped for a graph.
    pub used_bytes: u64,
    /// Most of it since the mark was reset.
    pub used_high_bytes: u64,
    /// Physical memory held.
    pub reserved_bytes: u64,
    /// Most of it since the mark was reset.
    pub reserved_high_bytes: u64,
}

/// What a launch needs to know.
#[derive(Clone, Copy, Debug)]
pub struct GraphLaunch<'a> {
    /// Ranges that the graph allocates.
    pub allocates: &'a BTreeSet<u64>,
    /// Those of them that it does not free.
    pub leaves: &'a BTreeSet<u64>,
    /// Ranges of other graphs that it frees.
    pub frees: &'a BTreeSet<u64>,
    /// What an earlier launch left is freed, instead of being an error.
    pub auto_free: bool,
    /// The stream (by its id).
    pub stream: u64,
}

impl State {
    fn numbers(&self) -> (u64, u64) {
        let bound: BTreeSet<u64> = self.ranges.values().filter_map(|range| range.block).collect();
        let bytes = |number: &u64| self.blocks[number].physical.bytes;
        (bound.iter().map(bytes).sum(), self.blocks.values().map(|block| block.physical.bytes).sum())
    }

    fn note_marks(&mut self) {
        let (used_bytes, reserved_bytes) = self.numbers();
        self.used_high_bytes = self.used_high_bytes.max(used_bytes);
        self.reserved_high_bytes = self.reserved_high_bytes.max(reserved_bytes);
    }
}

impl Block {
    /// Whether work of `stream` may use it without waiting.
    fn is_free_for(&self, stream: u64) -> bool {
        let ordered = |last: &Freed| last.stream == stream || last.event.is_over();
        self.holder.is_none() && self.last.as_ref().is_none_or(ordered)
    }

    fn is_idle(&self) -> bool {
        self.holder.is_none() && self.last.as_ref().is_none_or(|last| last.event.is_over())
    }
}

impl AddressSpace {
    fn graph_pool(&self, device: usize) -> &Mutex<State> {
        &self.graph_pools[device].0
    }

    /// An address for allocations of a graph, without memory.
    pub fn reserve_for_graph(&self, device: usize, bytes: u64, others: &[usize]) -> Result<u64> {
        if bytes == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let unit_bytes = self.granularity_bytes(device).next_power_of_two();
        let taken_bytes = bytes.checked_next_multiple_of(unit_bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        let base = self.state.lock().free.take(taken_bytes, unit_bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        let devices = others.iter().fold(only(device), |devices, other| devices | only(*other));
        let range = Range { taken_bytes, devices, block: None, live: false, orphan: false };
        self.graph_pool(device).lock().ranges.insert(base, range);
        self.enter(base, bytes, device, 0, Origin::Graph, None, 0);
        Ok(base)
    }

    /// The graph of a range is gone: so is the range, once it is free.
    pub fn abandon_graph_range(&self, device: usize, base: u64) {
        let mut state = self.graph_pool(device).lock();
        match state.ranges.get_mut(&base) {
            Some(range) if range.live => range.orphan = true,
            _ => self.remove_range(&mut state, base),
        }
    }

    fn remove_range(&self, state: &mut State, base: u64) {
        let Some(range) = state.ranges.remove(&base) else { return };
        // The allocation first, so that nobody finds an address that means something else.
        let _ = self.take_out(base);
        self.table.clear(base, range.taken_bytes);
        self.shoot_down();
        self.state.lock().free.give(base, range.taken_bytes);
    }

    /// Puts memory behind the ranges of a launch, which is the next thing to be submitted. Returns what it has
    /// to wait for. `wait` waits for earlier launches of the same graph.
    ///
    /// Errors: `INVALID_VALUE` for an allocation that is not freed yet, or a free of one that is not there
    /// (from memory); `OUT_OF_MEMORY`. Nothing is allocated or freed then.
    pub fn prepare_graph_launch(
        &self,
        device: usize,
        launch: &GraphLaunch<'_>,
        wait: &dyn Fn(),
    ) -> Result<Vec<Arc<Event>>> {
        let mut state = self.graph_pool(device).lock();
        let is_live = |base: &u64| state.ranges.get(base).is_some_and(|range| range.live);
        let left = launch.allocates.iter().any(is_live) && !launch.auto_free;
        if left || !launch.frees.iter().all(is_live) {
            return Err(CUerror::INVALID_VALUE);
        }
        let mut waits = Vec::new();
        let mut chosen = BTreeSet::new();
        for &base in launch.allocates {
            let number = self.bind(&mut state, device, base, launch.stream, &chosen, wait)?;
            chosen.insert(number);
            let last = state.blocks[&number].last.as_ref();
            waits
                .extend(last.filter(|last| last.stream != launch.stream).map(|last| Arc::clone(&last.event)));
        }
        state.note_marks();
        Ok(waits)
    }

    /// The block for a range: that which it has, one that is free, or a new one; mapped.
    fn bind(
        &self,
        state: &mut State,
        device: usize,
        base: u64,
        stream: u64,
        taken: &BTreeSet<u64>,
        wait: &dyn Fn(),
    ) -> Result<u64> {
        let range = &state.ranges[&base];
        let (bytes, devices) = (range.taken_bytes, range.devices);
        if let Some(number) = range.block {
            let block = &state.blocks[&number];
            if block.holder.is_none_or(|holder| holder == base) && !taken.contains(&number) {
                return Ok(number);
            }
            // Another graph's allocation is in there now: this range needs other memory.
            wait();
            self.table.clear(base, bytes);
            self.shoot_down();
        }
        let fits = |(number, block): &(&u64, &Block)| {
            block.physical.bytes >= bytes && block.is_free_for(stream) && !taken.contains(number)
        };
        let found = state.blocks.iter().filter(fits).min_by_key(|(_, block)| block.physical.bytes);
        let number = match found.map(|(number, _)| *number) {
            Some(number) => number,
            None => self.add_block(state, device, bytes, taken)?,
        };
        self.map_pages(base, bytes, &state.blocks[&number].physical, devices, READ | WRITE)?;
        if let Some(range) = state.ranges.get_mut(&base) {
            range.block = Some(number);
        }
        Ok(number)
    }

    fn add_block(&self, state: &mut State, device: usize, bytes: u64, taken: &BTreeSet<u64>) -> Result<u64> {
        let physical = self.allocate_physical(device, bytes, 0).or_else(|_| {
            // What idle graphs hold goes first.
            self.trim_blocks(state, taken);
            self.allocate_physical(device, bytes, 0)
        })?;
        self.arena.mapping_cost(device, Operation::Create, 1, bytes).map_err(arena_error)?;
        let number = state.next_block;
        state.next_block += 1;
        state.blocks.insert(number, Block { physical: Arc::new(physical), holder: None, last: None });
        Ok(number)
    }

    /// The prepared launch is submitted; `event` is recorded behind it.
    pub fn note_graph_launch(&self, device: usize, launch: &GraphLaunch<'_>, event: &Arc<Event>) {
        let mut state = self.graph_pool(device).lock();
        let freed = || Some(Freed { stream: launch.stream, event: Arc::clone(event) });
        for base in launch.allocates {
            let live = launch.leaves.contains(base);
            let Some(range) = state.ranges.get_mut(base) else { continue };
            range.live = live;
            let number = range.block;
            if let Some(block) = number.and_then(|number| state.blocks.get_mut(&number)) {
                block.last = freed();
                block.holder = live.then_some(*base);
            }
        }
        for base in launch.frees {
            self.release_range(&mut state, *base, freed());
        }
    }

    /// Frees what a launch left behind an address: at once, or when `freed` has been reached. `INVALID_VALUE`
    /// when nothing is allocated there.
    pub fn free_graph_allocation(&self, device: usize, base: u64, freed: Option<Freed>) -> Result<()> {
        let mut state = self.graph_pool(device).lock();
        if !state.ranges.get(&base).is_some_and(|range| range.live) {
            return Err(CUerror::INVALID_VALUE);
        }
        self.release_range(&mut state, base, freed);
        Ok(())
    }

    fn release_range(&self, state: &mut State, base: u64, freed: Option<Freed>) {
        let Some(range) = state.ranges.get_mut(&base) else { return };
        range.live = false;
        let (number, orphan) = (range.block, range.orphan);
        if let Some(block) = number.and_then(|number| state.blocks.get_mut(&number)) {
            block.holder = None;
            block.last = freed;
        }
        if orphan {
            self.remove_range(state, base);
        }
    }

    /// `cuDeviceGraphMemTrim`: physical memory that nothing uses goes back to the device.
    pub fn trim_graph_memory(&self, device: usize) {
        self.trim_blocks(&mut self.graph_pool(device).lock(), &BTreeSet::new());
    }

    fn trim_blocks(&self, state: &mut State, kept: &BTreeSet<u64>) {
        let idle = state.blocks.iter().filter(|(number, block)| block.is_idle() && !kept.contains(number));
        let idle: Vec<u64> = idle.map(|(number, _)| *number).collect();
        for (base, range) in &mut state.ranges {
            if range.block.is_some_and(|number| idle.contains(&number)) {
                range.block = None;
                self.table.clear(*base, range.taken_bytes);
            }
        }
        self.shoot_down();
        idle.iter().for_each(|number| drop(state.blocks.remove(number)));
    }

    /// The numbers of the moment.
    pub fn graph_memory(&self, device: usize) -> GraphPoolNumbers {
        let state = self.graph_pool(device).lock();
        let (used_bytes, reserved_bytes) = state.numbers();
        GraphPoolNumbers {
            used_bytes,
            used_high_bytes: state.used_high_bytes,
            reserved_bytes,
            reserved_high_bytes: state.reserved_high_bytes,
        }
    }

    /// Lets high marks begin again: that of used memory, or that of memory held.
    pub fn reset_graph_mark(&self, device: usize, used: bool) {
        let mut state = self.graph_pool(device).lock();
        let (used_bytes, reserved_bytes) = state.numbers();
        match used {
            true => state.used_high_bytes = used_bytes,
            false => state.reserved_high_bytes = reserved_bytes,
        }
    }
}
