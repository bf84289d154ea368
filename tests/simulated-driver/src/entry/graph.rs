//! Graphs as a whole: CUDA driver API, "Graph Management". Nodes have a file of their own.
//!
//! Memory nodes, conditional nodes and device-side launches are not simulated.

use std::ffi::{c_char, c_uint, c_ulonglong};
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put, put_if_wanted, stream_entry};
use crate::context::current;
use crate::execution::{Graph, NodeId, Work, check_unsafe_call};
use crate::graphs::{EXECS, ExecEntry, GRAPHS, graph, handle_of, node, node_handle};
use crate::space::Result;
use crate::stream::resolve;

/// Instantiation flags: auto free on launch, upload, device launch, node priority.
const FLAG_UPLOAD: u64 = 2;
const FLAG_DEVICE_LAUNCH: u64 = 4;
const FLAGS_MASK: u64 = 15;
/// `CU_GRAPH_EXEC_UPDATE_ERROR` for a graph of another shape.
const UPDATE_TOPOLOGY_CHANGED: u32 = 2;

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
        GRAPHS.remove(h_graph).map(drop).map_err(|_| CUerror::INVALID_VALUE)
    }

    fn cuGraphClone(ph_graph_clone: *mut CUgraph, original_graph: CUgraph) {
        needed(ph_graph_clone)?;
        put(ph_graph_clone, handle_of(&graph(original_graph)?.duplicate().0) as CUgraph)
    }

    fn cuGraphGetId(h_graph: CUgraph, graph_id: *mut c_uint) {
        put(graph_id, graph(h_graph)?.id() as c_uint)
    }

    fn cuGraphExecGetId(h_graph_exec: CUgraphExec, graph_id: *mut c_uint) {
        put(graph_id, EXECS.get(h_graph_exec)?.exec.id() as c_uint)
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
        let (entry, id) = node(h_node)?;
        put_nodes(&entry.graph.dependencies(id).unwrap_or_default(), dependencies, num_dependencies)
    }

    fn cuGraphNodeGetDependentNodes(
        h_node: CUgraphNode,
        dependent_nodes: *mut CUgraphNode,
        num_dependent_nodes: *mut usize,
    ) {
        let (entry, id) = node(h_node)?;
        let after = entry.graph.edges().into_iter().filter(|(from, _)| *from == id).map(|(_, to)| to);
        put_nodes(&after.collect::<Vec<_>>(), dependent_nodes, num_dependent_nodes)
    }

    fn cuGraphNodeGetType(h_node: CUgraphNode, type_: *mut CUgraphNodeType) {
        let (entry, id) = node(h_node)?;
        put(type_, CUgraphNodeType_enum(match entry.graph.work(id) {
            Some(Work::Kernel(_)) => 0,
            Some(Work::Copy(_)) => 1,
            Some(Work::Fill(_)) => 2,
            Some(Work::HostFunction(_) | Work::Callback(_)) => 3,
            Some(Work::Child(_) | Work::Graph(_)) => 4,
            Some(Work::WaitEvent(_)) => 6,
            Some(Work::RecordEvent(_)) => 7,
            Some(Work::WriteValue { .. } | Work::WaitValue { .. }) => 12,
            Some(_) | None => 5,
        }))
    }

    fn cuGraphNodeGetContainingGraph(h_node: CUgraphNode, ph_graph: *mut CUgraph) {
        put(ph_graph, node(h_node)?.0.handle as CUgraph)
    }

    fn cuGraphDestroyNode(h_node: CUgraphNode) {
        let (entry, id) = node(h_node)?;
        entry.graph.remove_node(id)
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
        let _ = edge_data;
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
        let _ = edge_data;
        each_edge(h_graph, from, to, num_dependencies, Graph::remove_edge)
    }

    fn cuGraphInstantiate(
        ph_graph_exec: *mut CUgraphExec,
        h_graph: CUgraph,
        ph_error_node: *mut CUgraphNode,
        log_buffer: *mut c_char,
        buffer_size: usize,
    ) {
        put_if_wanted(ph_error_node, std::ptr::null_mut());
        if buffer_size > 0 {
            put_if_wanted(log_buffer, 0);
        }
        instantiate(ph_graph_exec, h_graph, 0)
    }

    fn cuGraphInstantiate_v2(
        ph_graph_exec: *mut CUgraphExec,
        h_graph: CUgraph,
        ph_error_node: *mut CUgraphNode,
        log_buffer: *mut c_char,
        buffer_size: usize,
    ) {
        put_if_wanted(ph_error_node, std::ptr::null_mut());
        if buffer_size > 0 {
            put_if_wanted(log_buffer, 0);
        }
        instantiate(ph_graph_exec, h_graph, 0)
    }

    fn cuGraphInstantiateWithFlags(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, flags: c_ulonglong) {
        instantiate(ph_graph_exec, h_graph, flags)
    }

    fn cuGraphExecGetFlags(h_graph_exec: CUgraphExec, flags: *mut cuuint64_t) {
        put(flags, EXECS.get(h_graph_exec)?.flags)
    }

    fn cuGraphExecDestroy(h_graph_exec: CUgraphExec) {
        EXECS.remove(h_graph_exec).map(drop).map_err(|_| CUerror::INVALID_VALUE)
    }

    fn cuGraphExecUpdate(
        h_graph_exec: CUgraphExec,
        h_graph: CUgraph,
        h_error_node_out: *mut CUgraphNode,
        update_result_out: *mut CUgraphExecUpdateResult,
    ) {
        needed(update_result_out)?;
        let updated = EXECS.get(h_graph_exec)?.exec.update(&*graph(h_graph)?)?;
        put_if_wanted(h_error_node_out, std::ptr::null_mut());
        put(update_result_out, CUgraphExecUpdateResult_enum(if updated { 0 } else { UPDATE_TOPOLOGY_CHANGED }))?;
        if updated { Ok(()) } else { Err(CUerror::GRAPH_EXEC_UPDATE_FAILURE) }
    }

    fn cuGraphExecUpdate_v2(
        h_graph_exec: CUgraphExec,
        h_graph: CUgraph,
        result_info: *mut CUgraphExecUpdateResultInfo,
    ) {
        needed(result_info)?;
        let updated = EXECS.get(h_graph_exec)?.exec.update(&*graph(h_graph)?)?;
        put(result_info, CUgraphExecUpdateResultInfo {
            result: CUgraphExecUpdateResult_enum(if updated { 0 } else { UPDATE_TOPOLOGY_CHANGED }),
            errorNode: std::ptr::null_mut(),
            errorFromNode: std::ptr::null_mut(),
        })?;
        if updated { Ok(()) } else { Err(CUerror::GRAPH_EXEC_UPDATE_FAILURE) }
    }
}

stream_entry! {
    fn cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz [default] (
        ph_graph_exec: *mut CUgraphExec,
        h_graph: CUgraph,
        instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) {
        let parameters = instantiate_params.as_mut().ok_or(CUerror::INVALID_VALUE)?;
        if parameters.flags & FLAG_UPLOAD != 0 {
            resolve(parameters.hUploadStream, default)?;
        }
        let outcome = instantiate(ph_graph_exec, h_graph, parameters.flags);
        parameters.hErrNode_out = std::ptr::null_mut();
        parameters.result_out = CUgraphInstantiateResult_enum(if outcome.is_ok() { 0 } else { 1 });
        outcome
    }

    // Graphs need no upload here; the arguments must be right all the same.
    fn cuGraphUpload | cuGraphUpload_ptsz [default] (h_graph: CUgraphExec, h_stream: CUstream) {
        let entry = resolve(h_stream, default)?;
        EXECS.get(h_graph)?;
        entry.context.queue.check()
    }

    fn cuGraphLaunch | cuGraphLaunch_ptsz [default] (h_graph: CUgraphExec, h_stream: CUstream) {
        let entry = resolve(h_stream, default)?;
        let exec = EXECS.get(h_graph)?.exec;
        entry.context.queue.submit(&entry.stream, Work::Graph(exec))
    }
}

/// # Safety
/// As `cuGraphInstantiateWithFlags`.
unsafe fn instantiate(place: *mut CUgraphExec, h_graph: CUgraph, flags: u64) -> CUresult {
    needed(place)?;
    current::get_sound()?;
    check_unsafe_call()?;
    if flags & !FLAGS_MASK != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if flags & FLAG_DEVICE_LAUNCH != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let exec = graph(h_graph)?.instantiate()?;
    // SAFETY: the caller's promise.
    unsafe { put(place, EXECS.add(ExecEntry { exec, flags }) as CUgraphExec) }
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
    // SAFETY: the caller's promise; all-zero is the plain edge.
    unsafe {
        let mut room = count.read();
        if !data.is_null() {
            (0..room).for_each(|index| data.add(index).write(std::mem::zeroed()));
        }
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
