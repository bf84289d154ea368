//! Graphs and instantiated graphs as handles, and nodes as the pointers that programs see.
//!
//! A graph gets its handle when a program first sees it, which may be while it is still being captured.

use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::{CUgraph, CUgraphNode};

use crate::execution::{Graph, GraphExec, NodeId};
use crate::registry::Registry;
use crate::space::Result;

/// A graph and its handle.
#[derive(Clone, Debug)]
pub struct GraphEntry {
    /// The graph.
    pub graph: Arc<Graph>,
    /// Its handle.
    pub handle: usize,
}

/// An instantiated graph.
#[derive(Clone, Debug)]
pub struct ExecEntry {
    /// The graph.
    pub exec: Arc<GraphExec>,
    /// As given at instantiation.
    pub flags: u64,
}

/// All graphs that programs know.
pub static GRAPHS: Registry<GraphEntry> = Registry::new(8);
/// All instantiated graphs.
pub static EXECS: Registry<ExecEntry> = Registry::new(9);

/// The handle of a graph, a new one if the program has not seen it yet.
pub fn handle_of(graph: &Arc<Graph>) -> usize {
    let known = GRAPHS.all().into_iter().find(|entry| entry.graph.id() == graph.id());
    known.map_or_else(
        || {
            let handle = GRAPHS.new_handle();
            GRAPHS.put(handle, GraphEntry { graph: Arc::clone(graph), handle });
            handle
        },
        |entry| entry.handle,
    )
}

/// The graph of a handle.
pub fn graph(handle: CUgraph) -> Result<Arc<Graph>> {
    GRAPHS.get(handle).map(|entry| entry.graph).map_err(|_| CUerror::INVALID_VALUE)
}

/// The node of a handle, with the graph that it is in.
pub fn node(handle: CUgraphNode) -> Result<(GraphEntry, NodeId)> {
    let id = NodeId(handle as u64);
    let found = GRAPHS.all().into_iter().find(|entry| entry.graph.work(id).is_some());
    found.map(|entry| (entry, id)).ok_or(CUerror::INVALID_VALUE)
}

/// The handle of a node.
pub fn node_handle(node: NodeId) -> CUgraphNode {
    node.0 as CUgraphNode
}
