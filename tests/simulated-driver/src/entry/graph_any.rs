//! Graph nodes of any kind by one structure: CUDA driver API, `cuGraphAddNode` and its kin.
//!
//! Each member of the structure goes the way of the function with a structure of its own. Conditional nodes,
//! external semaphores and batches of copies are not simulated.

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::capture::nodes;
use super::graph::{check_plain, type_of};
use super::graph_memory::{allocation_content, allocation_said, free_content, free_said};
use super::graph_nodes::{
    self as typed, child, child_said, event_said, kernel_said, kernel_v2, record, values_said, wait,
};
use super::{entry, graph_exec_nodes, needed, put};
use crate::execution::{Content, NodeId, NodeKind, Work};
use crate::graph_content as content;
use crate::graphs::{graph, node_content, node_handle};
use crate::space::Result;

entry! {
    fn cuGraphAddNode(
        ph_graph_node: *mut CUgraphNode,
        h_graph: CUgraph,
        dependencies: *const CUgraphNode,
        num_dependencies: usize,
        node_params: *mut CUgraphNodeParams,
    ) {
        add(ph_graph_node, h_graph, nodes(dependencies, num_dependencies)?, node_params)
    }

    fn cuGraphAddNode_v2(
        ph_graph_node: *mut CUgraphNode,
        h_graph: CUgraph,
        dependencies: *const CUgraphNode,
        dependency_data: *const CUgraphEdgeData,
        num_dependencies: usize,
        node_params: *mut CUgraphNodeParams,
    ) {
        check_plain(dependency_data, num_dependencies)?;
        add(ph_graph_node, h_graph, nodes(dependencies, num_dependencies)?, node_params)
    }

    fn cuGraphAddNode_v3(
        ph_graph_node: *mut CUgraphNode,
        h_graph: CUgraph,
        dependencies: *const CUgraphNode,
        dependency_data: *const CUgraphEdgeData,
        num_dependencies: usize,
        node_params: *mut CUgraphNodeParams,
    ) {
        check_plain(dependency_data, num_dependencies)?;
        add(ph_graph_node, h_graph, nodes(dependencies, num_dependencies)?, node_params)
    }

    fn cuGraphNodeSetParams(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) {
        typed::set(h_node, changed(node_params)?)
    }

    fn cuGraphNodeSetParams_v2(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) {
        typed::set(h_node, changed(node_params)?)
    }

    fn cuGraphExecNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) {
        let parameters = node_params.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        if parameters.type_ == CU_GRAPH_NODE_TYPE_GRAPH {
            return graph_exec_nodes::set_child(h_graph_exec, h_node, parameters.anonymous_1.graph.graph);
        }
        graph_exec_nodes::set(h_graph_exec, h_node, changed(node_params)?)
    }

    fn cuGraphNodeGetParams(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) {
        needed(node_params)?;
        put(node_params, told(h_node)?)
    }
}

/// # Safety
/// As `cuGraphAddNode`.
unsafe fn add(
    place: *mut CUgraphNode,
    h_graph: CUgraph,
    dependencies: Vec<NodeId>,
    parameters: *mut CUgraphNodeParams,
) -> CUresult {
    needed(place)?;
    let graph = graph(h_graph)?;
    // SAFETY: the caller's promise; the member read is that which the type names.
    unsafe {
        let parameters = parameters.as_mut().ok_or(CUerror::INVALID_VALUE)?;
        if parameters.reserved0 != [0; 3] || parameters.reserved2 != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let content = match parameters.type_ {
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                // The two versions of the structure are the same.
                let said = (&raw mut parameters.anonymous_1.alloc).cast();
                allocation_content(&graph, &dependencies, said)?
            }
            CU_GRAPH_NODE_TYPE_MEM_FREE => free_content(&graph, parameters.anonymous_1.free.dptr)?,
            CU_GRAPH_NODE_TYPE_GRAPH => {
                let said = parameters.anonymous_1.graph;
                if said.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE {
                    return Err(CUerror::NOT_SUPPORTED);
                }
                let content = child(said.graph)?;
                // The node's own graph is given back, as documented.
                parameters.anonymous_1.graph.graph = child_said(&content)?;
                content
            }
            _ => changed(parameters)?,
        };
        put(place, node_handle(graph.add_node(content, &dependencies)?))
    }
}

/// The content of a node that can be given new parameters.
///
/// # Safety
/// As `cuGraphNodeSetParams`.
unsafe fn changed(parameters: *const CUgraphNodeParams) -> Result<Content> {
    // SAFETY: the caller's promise; the member read is that which the type names.
    unsafe {
        let parameters = parameters.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let member = &parameters.anonymous_1;
        match parameters.type_ {
            CU_GRAPH_NODE_TYPE_KERNEL => kernel_v2((&raw const member.kernel).cast()),
            CU_GRAPH_NODE_TYPE_MEMCPY => {
                content::copy(&raw const member.memcpy.copyParams, member.memcpy.copyCtx)
            }
            CU_GRAPH_NODE_TYPE_MEMSET => {
                content::memset((&raw const member.memset).cast(), member.memset.ctx)
            }
            CU_GRAPH_NODE_TYPE_HOST => content::host(member.host.fn_, member.host.userData),
            CU_GRAPH_NODE_TYPE_EMPTY => Ok(Work::Nothing.into()),
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => record(member.eventRecord.event),
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => wait(member.eventWait.event),
            CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => content::values(
                member.memOp.paramArray,
                member.memOp.count,
                member.memOp.flags,
                member.memOp.ctx,
            ),
            // Semaphores, conditions, batches of copies.
            CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
            | CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT
            | CU_GRAPH_NODE_TYPE_CONDITIONAL
            | CU_GRAPH_NODE_TYPE_MEMCPY_BATCH
            | CU_GRAPH_NODE_TYPE_FABRIC_CPY_BATCH => Err(CUerror::NOT_SUPPORTED),
            _ => Err(CUerror::INVALID_VALUE),
        }
    }
}

fn told(handle: CUgraphNode) -> Result<CUgraphNodeParams> {
    let (_, _, content) = node_content(handle)?;
    // SAFETY: all-zero is a valid value of the structure.
    let mut told: CUgraphNodeParams = unsafe { std::mem::zeroed() };
    told.type_ = type_of(content.kind);
    let member = &mut told.anonymous_1;
    match content.kind {
        NodeKind::Kernel => {
            let said = kernel_said(handle)?;
            member.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
                func: said.func,
                gridDimX: said.gridDimX,
                gridDimY: said.gridDimY,
                gridDimZ: said.gridDimZ,
                blockDimX: said.blockDimX,
                blockDimY: said.blockDimY,
                blockDimZ: said.blockDimZ,
                sharedMemBytes: said.sharedMemBytes,
                kernelParams: said.kernelParams,
                extra: said.extra,
                kern: said.kern,
                ctx: said.ctx,
            };
        }
        NodeKind::Copy => {
            member.memcpy = CUDA_MEMCPY_NODE_PARAMS {
                flags: 0,
                reserved: 0,
                copyCtx: std::ptr::null_mut(),
                copyParams: content::copy_said(&content)?,
            };
        }
        NodeKind::Fill => {
            let said = content::memset_said(&content)?;
            member.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
                dst: said.dst,
                pitch: said.pitch,
                value: said.value,
                elementSize: said.elementSize,
                width: said.width,
                height: said.height,
                ctx: std::ptr::null_mut(),
            };
        }
        NodeKind::Host => {
            let (function, data) = content::host_said(&content)?;
            // SAFETY: all-zero is a valid value.
            member.host = unsafe { std::mem::zeroed() };
            (member.host.fn_, member.host.userData) = (function, data);
        }
        NodeKind::Child => member.graph.graph = child_said(&content)?,
        NodeKind::Wait => member.eventWait.event = event_said(&content)?,
        NodeKind::Record => member.eventRecord.event = event_said(&content)?,
        NodeKind::Allocate => {
            let said = allocation_said(&content)?;
            member.alloc = CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
                poolProps: said.poolProps,
                accessDescs: said.accessDescs,
                accessDescCount: said.accessDescCount,
                bytesize: said.bytesize,
                dptr: said.dptr,
            };
        }
        NodeKind::Free => member.free.dptr = free_said(&content)?,
        NodeKind::Values => {
            let (operations, count) = values_said(handle)?;
            // SAFETY: all-zero is a valid value.
            member.memOp = unsafe { std::mem::zeroed() };
            (member.memOp.paramArray, member.memOp.count) = (operations, count);
        }
        NodeKind::Empty => {}
    }
    Ok(told)
}
