//! New parameters for single nodes of instantiated graphs: CUDA driver API, "Graph Management".
//!
//! They count for later launches; the node of the graph stays as it is. Limits: `graph_content.rs`.

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::entry;
use super::graph_nodes::{host, kernel_v1, kernel_v2, record, values, wait};
use crate::execution::{Content, NodeKind};
use crate::graph_content::{self as content, check_set, check_update};
use crate::graphs::{exec, graph, node_content};

entry! {
    fn cuGraphExecKernelNodeSetParams(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        node_params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        set(h_graph_exec, h_node, kernel_v1(node_params)?)
    }

    fn cuGraphExecKernelNodeSetParams_v2(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        node_params: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        set(h_graph_exec, h_node, kernel_v2(node_params)?)
    }

    fn cuGraphExecMemcpyNodeSetParams(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        copy_params: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) {
        set(h_graph_exec, h_node, content::copy(copy_params, ctx)?)
    }

    fn cuGraphExecMemsetNodeSetParams(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        memset_params: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) {
        set(h_graph_exec, h_node, content::memset(memset_params, ctx)?)
    }

    fn cuGraphExecHostNodeSetParams(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        node_params: *const CUDA_HOST_NODE_PARAMS,
    ) {
        set(h_graph_exec, h_node, host(node_params)?)
    }

    fn cuGraphExecChildGraphNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode, child_graph: CUgraph) {
        set_child(h_graph_exec, h_node, child_graph)
    }

    fn cuGraphExecEventRecordNodeSetEvent(h_graph_exec: CUgraphExec, h_node: CUgraphNode, event: CUevent) {
        set(h_graph_exec, h_node, record(event)?)
    }

    fn cuGraphExecEventWaitNodeSetEvent(h_graph_exec: CUgraphExec, h_node: CUgraphNode, event: CUevent) {
        set(h_graph_exec, h_node, wait(event)?)
    }

    fn cuGraphExecBatchMemOpNodeSetParams(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) {
        set(h_graph_exec, h_node, values(node_params)?)
    }
}

/// Gives one node new parameters.
pub(super) fn set(handle: CUgraphExec, node: CUgraphNode, content: Content) -> CUresult {
    let exec = exec(handle)?.exec;
    // The node must still be in its graph.
    let (_, id, _) = node_content(node)?;
    check_set(&exec.content(id)?, &content)?;
    exec.set_content(id, content)
}

/// Gives the nodes of a graph inside new parameters.
pub(super) fn set_child(handle: CUgraphExec, node: CUgraphNode, child: CUgraph) -> CUresult {
    let (_, id, content) = node_content(node)?;
    if content.kind != NodeKind::Child {
        return Err(CUerror::INVALID_VALUE);
    }
    exec(handle)?.exec.update_inside(id, &*graph(child)?, &check_update)
}
