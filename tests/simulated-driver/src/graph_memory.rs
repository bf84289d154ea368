//! Allocation and free nodes: who owns an address, what a graph may free, and what a launch allocates.
//!
//! CUDA driver API, `cuGraphAddMemAllocNode` and `cuGraphAddMemFreeNode`. The nodes themselves do nothing when a
//! launch gets to them: memory is put in place when the launch is submitted (`space/graph_pool.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::CUDA_MEM_ALLOC_NODE_PARAMS;

use crate::driver::driver;
use crate::execution::{Content, Event, Graph, NodeId, NodeKind, Work};
use crate::graphs::ExecEntry;
use crate::space::{GraphLaunch, Result};
use crate::stream::StreamEntry;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
pub const FLAG_AUTO_FREE: u64 = 1;

/// One launch at a time is prepared and submitted.
static LAUNCHING: Mutex<()> = Mutex::new(());
/// Where each address that graphs own is freed, for the rule that only one graph may have free nodes for it.
static FREED_IN: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// An address that a graph owns; it goes with the last graph and instance that knows it.
#[derive(Debug)]
pub struct OwnedRange {
    /// The first address.
    pub base: u64,
    bytes: u64,
    device: usize,
}

impl Drop for OwnedRange {
    fn drop(&mut self) {
        FREED_IN.lock().remove(&self.base);
        if let Ok(driver) = driver() {
            driver.space.abandon_graph_range(self.device, self.base);
        }
    }
}

/// What an allocation node holds.
pub struct AllocationNode {
    /// Where.
    pub range: Arc<OwnedRange>,
    /// As the program gave it, with the address.
    pub said: CUDA_MEM_ALLOC_NODE_PARAMS,
}

// SAFETY: the pointer in `said` is null: descriptions are not kept.
unsafe impl Send for AllocationNode {}
// SAFETY: as above.
unsafe impl Sync for AllocationNode {}

/// What a free node holds.
#[derive(Debug)]
pub struct FreeNode {
    /// The address.
    pub address: u64,
}

/// What the memory nodes of an instantiated graph do.
#[derive(Debug)]
pub struct ExecMemory {
    device: usize,
    /// Keeps the addresses, though the graph may be gone.
    _owned: Vec<Arc<OwnedRange>>,
    allocates: BTreeSet<u64>,
    leaves: BTreeSet<u64>,
    frees: BTreeSet<u64>,
}

/// A new allocation node's content, in `graph` behind `dependencies`. `said` gets the address.
pub fn allocation(
    graph: &Graph,
    dependencies: &[NodeId],
    device: usize,
    others: &[usize],
    said: &mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<Content> {
    let bytes = said.bytesize as u64;
    let range = match reusable(graph, dependencies, device, bytes) {
        Some(range) => range,
        None => {
            let base = driver()?.space.reserve_for_graph(device, bytes, others)?;
            Arc::new(OwnedRange { base, bytes, device })
        }
    };
    said.dptr = range.base;
    let mut said = *said;
    (said.accessDescs, said.accessDescCount) = (std::ptr::null(), 0);
    let given = Arc::new(AllocationNode { range, said });
    Ok(Content { kind: NodeKind::Allocate, work: Work::Nothing, given: Some(given) })
}

/// An address of the graph whose allocations are all freed before `dependencies` are done.
fn reusable(graph: &Graph, dependencies: &[NodeId], device: usize, bytes: u64) -> Option<Arc<OwnedRange>> {
    let before = graph.ancestors(dependencies);
    let contents = graph.contents();
    let count = |base: u64, early: bool| {
        let counted = contents.iter().filter(|(node, _)| !early || before.contains(node));
        let (mut allocations, mut frees) = (0, 0);
        for (_, content) in counted {
            match (allocation_of(content), free_of(content)) {
                (Some(allocation), _) if allocation.range.base == base => allocations += 1,
                (_, Some(free)) if free.address == base => frees += 1,
                _ => {}
            }
        }
        (allocations, frees)
    };
    let ranges = contents.iter().filter_map(|(_, content)| allocation_of(content).map(|node| &node.range));
    ranges
        .filter(|range| range.device == device && range.bytes >= bytes)
        .find(|range| {
            let (allocations, _) = count(range.base, false);
            let (earlier, freed) = count(range.base, true);
            allocations == earlier && freed == earlier
        })
        .cloned()
}

/// A new free node's content, in `graph`.
pub fn free(graph: &Graph, address: u64) -> Result<Content> {
    let space = &driver()?.space;
    if !matches!(space.allocation(address)?.origin, crate::space::Origin::Graph) {
        return Err(CUerror::INVALID_VALUE);
    }
    let contents = graph.contents();
    let here = |content: &Content| allocation_of(content).is_some_and(|node| node.range.base == address);
    let allocations = contents.iter().filter(|(_, content)| here(content)).count();
    let frees = contents
        .iter()
        .filter(|(_, content)| free_of(content).is_some_and(|free| free.address == address))
        .count();
    let mut freed_in = FREED_IN.lock();
    let elsewhere = freed_in.get(&address).is_some_and(|other| *other != graph.id());
    if elsewhere || frees >= allocations.max(1) {
        return Err(CUerror::INVALID_VALUE);
    }
    freed_in.insert(address, graph.id());
    Ok(Content { kind: NodeKind::Free, work: Work::Nothing, given: Some(Arc::new(FreeNode { address })) })
}

/// What an allocation node holds.
pub fn allocation_of(content: &Content) -> Option<&AllocationNode> {
    content.given.as_ref()?.downcast_ref()
}

/// What a free node holds.
pub fn free_of(content: &Content) -> Option<&FreeNode> {
    content.given.as_ref()?.downcast_ref()
}

/// What the memory nodes of `graph` will do; `None` when it has none.
///
/// Errors: `NOT_SUPPORTED` for allocations on several devices in one graph, which are not simulated.
pub fn instantiate(graph: &Graph) -> Result<Option<ExecMemory>> {
    let contents = graph.contents();
    let owned: Vec<Arc<OwnedRange>> = contents
        .iter()
        .filter_map(|(_, content)| allocation_of(content))
        .map(|node| Arc::clone(&node.range))
        .collect();
    let freed: Vec<u64> =
        contents.iter().filter_map(|(_, content)| free_of(content)).map(|free| free.address).collect();
    let device = match (owned.first(), freed.first()) {
        (Some(range), _) => range.device,
        (None, Some(address)) => driver()?.space.allocation(*address)?.device,
        (None, None) => return Ok(None),
    };
    if owned.iter().any(|range| range.device != device) {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let allocates: BTreeSet<u64> = owned.iter().map(|range| range.base).collect();
    let is_left = |base: &&u64| {
        let allocations = owned.iter().filter(|range| range.base == **base).count();
        allocations > freed.iter().filter(|address| *address == *base).count()
    };
    let leaves = allocates.iter().filter(is_left).copied().collect();
    let frees = freed.iter().filter(|address| !allocates.contains(address)).copied().collect();
    Ok(Some(ExecMemory { device, _owned: owned, allocates, leaves, frees }))
}

/// `cuGraphLaunch` of a graph with memory nodes.
pub fn launch(entry: &StreamEntry, exec: &ExecEntry, memory: &ExecMemory) -> Result<()> {
    entry.check_outside_capture()?;
    let space = &driver()?.space;
    let launch = GraphLaunch {
        allocates: &memory.allocates,
        leaves: &memory.leaves,
        frees: &memory.frees,
        auto_free: exec.flags & FLAG_AUTO_FREE != 0,
        stream: entry.stream.id(),
    };
    let _one_at_a_time = LAUNCHING.lock();
    let (queue, stream) = (&entry.context.queue, &entry.stream);
    for event in space.prepare_graph_launch(memory.device, &launch, &|| exec.exec.wait())? {
        queue.wait_event(stream, &event, false)?;
    }
    queue.submit(stream, Work::Graph(Arc::clone(&exec.exec)))?;
    let event = Event::new(false);
    queue.record_event(stream, &event, false)?;
    space.note_graph_launch(memory.device, &launch, &event);
    Ok(())
}

/// `cuDeviceGraphMemTrim`.
pub fn trim(device: usize) -> Result<()> {
    let _no_launch = LAUNCHING.lock();
    driver()?.space.trim_graph_memory(device);
    Ok(())
}
