//! Graphs and instantiated graphs as handles, and nodes as the pointers that programs see.
//!
//! A graph gets its handle when a program first sees it, which may be while it is still being captured. A graph
//! that is a node of another one belongs to that.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::{CUgraph, CUgraphExec, CUgraphNode};

use crate::execution::{Content, Graph, GraphExec, NodeId, Work};
use crate::graph_memory::ExecMemory;
use crate::registry::Registry;
use crate::space::Result;

/// A graph and its handle.
#[derive(Clone, Debug)]
pub struct GraphEntry {
    /// The graph.
    pub graph: Arc<Graph>,
    /// Its handle.
    pub handle: usize,
    /// A node of another graph: it goes with that.
    pub inside: bool,
    /// Of a graph with memory nodes: what is instantiated from it.
    pub instance: Arc<Mutex<Weak<ExecMemory>>>,
}

/// An instantiated graph.
#[derive(Clone, Debug)]
pub struct ExecEntry {
    /// The graph.
    pub exec: Arc<GraphExec>,
    /// As given at instantiation.
    pub flags: u64,
    /// What its memory nodes do.
    pub memory: Option<Arc<ExecMemory>>,
}

/// All graphs that programs know.
pub static GRAPHS: Registry<GraphEntry> = Registry::new(8);
/// All instantiated graphs.
pub static EXECS: Registry<ExecEntry> = Registry::new(9);

/// The handle of a graph, a new one if the program has not seen it yet.
pub fn handle_of(graph: &Arc<Graph>) -> usize {
    handle_for(graph, false)
}

/// The handle of a graph that is a node of another one.
pub fn handle_of_inner(graph: &Arc<Graph>) -> usize {
    handle_for(graph, true)
}

fn handle_for(graph: &Arc<Graph>, inside: bool) -> usize {
    GRAPHS.find(|entry| entry.graph.id() == graph.id()).unwrap_or_else(|| {
        let handle = GRAPHS.new_handle();
        GRAPHS.put(handle, GraphEntry { graph: Arc::clone(graph), handle, inside, instance: Arc::default() });
        handle
    })
}

/// `cuGraphDestroy`; a graph that is a node of another one is refused.
pub fn destroy(handle: CUgraph) -> Result<()> {
    if entry(handle)?.inside {
        return Err(CUerror::INVALID_VALUE);
    }
    let gone = GRAPHS.remove(handle).map_err(|_| CUerror::INVALID_VALUE)?;
    gone.graph.contents().iter().for_each(|(_, content)| forget_inner(content));
    Ok(())
}

/// The node is gone: so are the handles of graphs inside.
pub fn forget_inner(content: &Content) {
    if let Work::Child(child) = &content.work {
        drop(GRAPHS.remove_where(|entry| entry.graph.id() == child.id()));
        child.contents().iter().for_each(|(_, content)| forget_inner(content));
    }
}

/// The graph of a handle, with what is known of it.
pub fn entry(handle: CUgraph) -> Result<GraphEntry> {
    GRAPHS.get(handle).map_err(|_| CUerror::INVALID_VALUE)
}

/// The graph of a handle.
pub fn graph(handle: CUgraph) -> Result<Arc<Graph>> {
    entry(handle).map(|entry| entry.graph)
}

/// The instantiated graph of a handle, where the documentation names no code for an invalid handle.
pub fn exec(handle: CUgraphExec) -> Result<ExecEntry> {
    EXECS.get(handle).map_err(|_| CUerror::INVALID_VALUE)
}

/// The node of a handle, with the graph that it is in.
pub fn node(handle: CUgraphNode) -> Result<(GraphEntry, NodeId)> {
    let id = NodeId(handle as u64);
    let found = GRAPHS.all().into_iter().find(|entry| entry.graph.local_id(id).is_some());
    found.map(|entry| (entry, id)).ok_or(CUerror::INVALID_VALUE)
}

/// The node of a handle, with what it holds.
pub fn node_content(handle: CUgraphNode) -> Result<(GraphEntry, NodeId, Content)> {
    let (entry, id) = node(handle)?;
    let content = entry.graph.content(id).ok_or(CUerror::INVALID_VALUE)?;
    Ok((entry, id, content))
}

/// The handle of a node.
pub fn node_handle(node: NodeId) -> CUgraphNode {
    node.0 as CUgraphNode
}
