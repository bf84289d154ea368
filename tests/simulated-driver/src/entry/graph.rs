//! Graphs as a whole: CUDA driver API, "Graph Management". Nodes and instantiated graphs have files of their own.
//!
//! All edges are plain ones: data on edges other than zero, for programmatic launches, is not simulated, and
//! neither are conditional nodes.

use std::ffi::{c_uint, c_ulonglong};
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put};
use crate::context::current;
use crate::execution::{Graph, NodeId, NodeKind};
use crate::graphs::{destroy, forget_inner, graph, handle_of, node, node_content, node_handle};
use crate::space::Result;

entry! {
    fn cuGraphCreate(ph_graph: *mut CUgraph, flags: c_uint) {
        needed(ph_graph)?;
        current::get()?;
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        put(ph_graph, handle_of(&Graph::new()) as CUgraph)
    }

    fn cuGraphDestroy(h_graph: CUgraph) {
        destroy(h_graph)
    }

    fn cuGraphClone(ph_graph_clone: *mut CUgraph, original_graph: CUgraph) {
        needed(ph_graph_clone)?;
        let graph = graph(original_graph)?;
        // A graph with memory nodes cannot be cloned.
        if graph.has_memory_nodes() {
            return Err(CUerror::NOT_SUPPORTED);
        }
        put(ph_graph_clone, handle_of(&graph.duplicate()) as CUgraph)
    }

    fn cuGraphGetId(h_graph: CUgraph, graph_id: *mut c_uint) {
        put(graph_id, graph(h_graph)?.id() as c_uint)
    }

    fn cuGraphGetNodes(h_graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize) {
        put_nodes(&graph(h_graph)?.nodes(), nodes, num_nodes)
    }

    fn cuGraphGetRootNodes(h_graph: CUgraph, root_nodes: *mut CUgraphNode, num_root_nodes: *mut usize) {
        let graph = graph(h_graph)?;
        let is_root = |node: &NodeId| graph.dependencies(*node).is_some_and(|dependencies| dependencies.is_empty());
        let roots: Vec<NodeId> = graph.nodes().into_iter().filter(is_root).collect();
        put_nodes(&roots, root_nodes, num_root_nodes)
    }

    fn cuGraphGetEdges(h_graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, num_edges: *mut usize) {
        edges(h_graph, from, to, std::ptr::null_mut(), num_edges)
    }

    fn cuGraphGetEdges_v2(
        h_graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        edge_data: *mut CUgraphEdgeData,
        num_edges: *mut usize,
    ) {
        edges(h_graph, from, to, edge_data, num_edges)
    }

    fn cuGraphNodeGetDependencies(h_node: CUgraphNode, dependencies: *mut CUgraphNode, num_dependencies: *mut usize) {
        put_nodes(&before(h_node)?, dependencies, num_dependencies)
    }

    fn cuGraphNodeGetDependencies_v2(
        h_node: CUgraphNode,
        dependencies: *mut CUgraphNode,
        edge_data: *mut CUgraphEdgeData,
        num_dependencies: *mut usize,
    ) {
        put_plain_edges(edge_data, num_dependencies)?;
        put_nodes(&before(h_node)?, dependencies, num_dependencies)
    }

    fn cuGraphNodeGetDependentNodes(
        h_node: CUgraphNode,
        dependent_nodes: *mut CUgraphNode,
        num_dependent_nodes: *mut usize,
    ) {
        put_nodes(&after(h_node)?, dependent_nodes, num_dependent_nodes)
    }

    fn cuGraphNodeGetDependentNodes_v2(
        h_node: CUgraphNode,
        dependent_nodes: *mut CUgraphNode,
        edge_data: *mut CUgraphEdgeData,
        num_dependent_nodes: *mut usize,
    ) {
        put_plain_edges(edge_data, num_dependent_nodes)?;
        put_nodes(&after(h_node)?, dependent_nodes, num_dependent_nodes)
    }

    fn cuGraphNodeGetType(h_node: CUgraphNode, type_: *mut CUgraphNodeType) {
        put(type_, type_of(node_content(h_node)?.2.kind))
    }

    fn cuGraphNodeGetLocalId(h_node: CUgraphNode, node_id: *mut c_uint) {
        let (entry, id) = node(h_node)?;
        put(node_id, entry.graph.local_id(id).ok_or(CUerror::INVALID_VALUE)?)
    }

    fn cuGraphNodeGetToolsId(h_node: CUgraphNode, tools_node_id: *mut c_ulonglong) {
        put(tools_node_id, node(h_node)?.1.0)
    }

    fn cuGraphNodeFindInClone(ph_node: *mut CUgraphNode, h_original_node: CUgraphNode, h_cloned_graph: CUgraph) {
        needed(ph_node)?;
        let copy = graph(h_cloned_graph)?.copy_of(NodeId(h_original_node as u64));
        put(ph_node, node_handle(copy.ok_or(CUerror::INVALID_VALUE)?))
    }

    fn cuGraphNodeGetContainingGraph(h_node: CUgraphNode, ph_graph: *mut CUgraph) {
        put(ph_graph, node(h_node)?.0.handle as CUgraph)
    }

    fn cuGraphDestroyNode(h_node: CUgraphNode) {
        let (entry, id, content) = node_content(h_node)?;
        entry.graph.remove_node(id)?;
        forget_inner(&content);
        Ok(())
    }

    fn cuGraphAddDependencies(
        h_graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        num_dependencies: usize,
    ) {
        each_edge(h_graph, from, to, num_dependencies, Graph::add_edge)
    }

    fn cuGraphAddDependencies_v2(
        h_graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edge_data: *const CUgraphEdgeData,
        num_dependencies: usize,
    ) {
        check_plain(edge_data, num_dependencies)?;
        each_edge(h_graph, from, to, num_dependencies, Graph::add_edge)
    }

    fn cuGraphRemoveDependencies(
        h_graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        num_dependencies: usize,
    ) {
        each_edge(h_graph, from, to, num_dependencies, Graph::remove_edge)
    }

    fn cuGraphRemoveDependencies_v2(
        h_graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edge_data: *const CUgraphEdgeData,
        num_dependencies: usize,
    ) {
        check_plain(edge_data, num_dependencies)?;
        each_edge(h_graph, from, to, num_dependencies, Graph::remove_edge)
    }
}

/// The number of a kind of nodes in the header.
pub fn type_of(kind: NodeKind) -> CUgraphNodeType {
    match kind {
        NodeKind::Kernel => CU_GRAPH_NODE_TYPE_KERNEL,
        NodeKind::Copy => CU_GRAPH_NODE_TYPE_MEMCPY,
        NodeKind::Fill => CU_GRAPH_NODE_TYPE_MEMSET,
        NodeKind::Host => CU_GRAPH_NODE_TYPE_HOST,
        NodeKind::Child => CU_GRAPH_NODE_TYPE_GRAPH,
        NodeKind::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
        NodeKind::Wait => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        NodeKind::Record => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        NodeKind::Allocate => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        NodeKind::Free => CU_GRAPH_NODE_TYPE_MEM_FREE,
        NodeKind::Values => CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
    }
}

fn before(handle: CUgraphNode) -> Result<Vec<NodeId>> {
    let (entry, id) = node(handle)?;
    entry.graph.dependencies(id).ok_or(CUerror::INVALID_VALUE)
}

fn after(handle: CUgraphNode) -> Result<Vec<NodeId>> {
    let (entry, id) = node(handle)?;
    Ok(entry.graph.edges().into_iter().filter(|(from, _)| *from == id).map(|(_, to)| to).collect())
}

/// Refuses edges that are not plain: `NOT_SUPPORTED` for programmatic launches.
///
/// # Safety
/// `data` is null or has `count` elements.
pub(super) unsafe fn check_plain(data: *const CUgraphEdgeData, count: usize) -> Result<()> {
    if data.is_null() || count == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let edges = unsafe { std::slice::from_raw_parts(data, count) };
    let plain = |edge: &CUgraphEdgeData| edge.from_port == 0 && edge.to_port == 0 && edge.type_ == 0;
    if edges.iter().any(|edge| edge.reserved != [0; 5]) {
        return Err(CUerror::INVALID_VALUE);
    }
    if edges.iter().all(plain) { Ok(()) } else { Err(CUerror::NOT_SUPPORTED) }
}

/// Writes the data of plain edges, for as many as there is room.
///
/// # Safety
/// As `cuGraphNodeGetDependencies_v2`.
unsafe fn put_plain_edges(data: *mut CUgraphEdgeData, count: *const usize) -> Result<()> {
    needed(count)?;
    if !data.is_null() {
        // SAFETY: the caller's promise; all-zero is the plain edge.
        unsafe { (0..count.read()).for_each(|index| data.add(index).write(std::mem::zeroed())) };
    }
    Ok(())
}

/// Writes a list as the query functions do: with a null array only the count; else at most as many as there
/// is room for, the rest of the array being null.
///
/// # Safety
/// `count` is valid for reading and writing, `place` null or an array of as many elements.
unsafe fn put_nodes(nodes: &[NodeId], place: *mut CUgraphNode, count: *mut usize) -> CUresult {
    needed(count)?;
    // SAFETY: the caller's promise.
    unsafe {
        if !place.is_null() {
            for index in 0..count.read() {
                place
                    .add(index)
                    .write(nodes.get(index).map_or(std::ptr::null_mut(), |&node| node_handle(node)));
            }
            count.write(nodes.len().min(count.read()));
        } else {
            count.write(nodes.len());
        }
    }
    Ok(())
}

/// # Safety
/// As `cuGraphGetEdges_v2`.
unsafe fn edges(
    h_graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> CUresult {
    needed(count)?;
    let edges = graph(h_graph)?.edges();
    let (sources, targets): (Vec<NodeId>, Vec<NodeId>) = edges.into_iter().unzip();
    // SAFETY: the caller's promise.
    unsafe {
        put_plain_edges(data, count)?;
        let mut room = count.read();
        put_nodes(&sources, from, &raw mut room)?;
        put_nodes(&targets, to, count)
    }
}

/// # Safety
/// As `cuGraphAddDependencies`.
unsafe fn each_edge(
    h_graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
    change: fn(&Graph, NodeId, NodeId) -> Result<()>,
) -> CUresult {
    let graph: Arc<Graph> = graph(h_graph)?;
    // SAFETY: the caller's promise.
    let (from, to) = unsafe { (super::capture::nodes(from, count)?, super::capture::nodes(to, count)?) };
    from.into_iter().zip(to).try_for_each(|(from, to)| change(&graph, from, to))
}
