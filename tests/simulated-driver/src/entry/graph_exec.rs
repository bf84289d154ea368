//! Instantiated graphs: CUDA driver API, "Graph Management".
//!
//! Launches and updates of the whole graph; new parameters for single nodes are in `graph_exec_nodes.rs`.
//! Launches from the device are not simulated.

use std::ffi::{c_char, c_uint, c_ulonglong};
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put, put_if_wanted, stream_entry};
use crate::context::current;
use crate::driver::driver;
use crate::execution::{Difference, NodeKind, Work, check_unsafe_call};
use crate::graph_content::check_update;
use crate::graph_memory::{self, FLAG_AUTO_FREE};
use crate::graphs::{EXECS, ExecEntry, entry, exec, graph, node_content, node_handle};
use crate::space::Result;
use crate::stream::resolve;

/// Instantiation flags: auto free on launch, upload, device launch, node priority.
const FLAG_UPLOAD: u64 = 2;
const FLAG_DEVICE_LAUNCH: u64 = 4;
const FLAGS_MASK: u64 = 15;

entry! {
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
        cuGraphInstantiate(ph_graph_exec, h_graph, ph_error_node, log_buffer, buffer_size)
    }

    fn cuGraphInstantiateWithFlags(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, flags: c_ulonglong) {
        instantiate(ph_graph_exec, h_graph, flags)
    }

    fn cuGraphExecGetId(h_graph_exec: CUgraphExec, graph_id: *mut c_uint) {
        put(graph_id, EXECS.get(h_graph_exec)?.exec.id() as c_uint)
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
        let information = update(h_graph_exec, h_graph)?;
        put_if_wanted(h_error_node_out, information.errorNode);
        put(update_result_out, information.result)?;
        outcome(&information)
    }

    fn cuGraphExecUpdate_v2(
        h_graph_exec: CUgraphExec,
        h_graph: CUgraph,
        result_info: *mut CUgraphExecUpdateResultInfo,
    ) {
        needed(result_info)?;
        let information = update(h_graph_exec, h_graph)?;
        put(result_info, information)?;
        outcome(&information)
    }

    fn cuGraphNodeGetEnabled(h_graph_exec: CUgraphExec, h_node: CUgraphNode, is_enabled: *mut c_uint) {
        needed(is_enabled)?;
        let id = switchable(h_node)?;
        put(is_enabled, exec(h_graph_exec)?.exec.is_enabled(id)?.into())
    }

    fn cuGraphNodeSetEnabled(h_graph_exec: CUgraphExec, h_node: CUgraphNode, is_enabled: c_uint) {
        let id = switchable(h_node)?;
        exec(h_graph_exec)?.exec.enable(id, is_enabled != 0)
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
        parameters.result_out = if outcome.is_ok() { CUDA_GRAPH_INSTANTIATE_SUCCESS } else { CUDA_GRAPH_INSTANTIATE_ERROR };
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
        let exec = EXECS.get(h_graph)?;
        match &exec.memory {
            Some(memory) => graph_memory::launch(&entry, &exec, memory),
            None => entry.context.queue.submit(&entry.stream, Work::Graph(exec.exec)),
        }
    }
}

/// # Safety
/// As `cuGraphInstantiateWithFlags`.
unsafe fn instantiate(place: *mut CUgraphExec, h_graph: CUgraph, flags: u64) -> CUresult {
    needed(place)?;
    current::get_sound()?;
    check_unsafe_call()?;
    if flags & !FLAGS_MASK != 0 || flags & FLAG_DEVICE_LAUNCH != 0 && flags & FLAG_AUTO_FREE != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if flags & FLAG_DEVICE_LAUNCH != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let entry = entry(h_graph)?;
    let mut instance = entry.instance.lock();
    let memory = graph_memory::instantiate(&entry.graph)?.map(Arc::new);
    if let Some(memory) = &memory {
        // One at a time, since the addresses are one; the code is from memory.
        if instance.upgrade().is_some() {
            return Err(CUerror::NOT_SUPPORTED);
        }
        *instance = Arc::downgrade(memory);
    }
    let exec = entry.graph.instantiate()?;
    current::get_sound()?.need_local_memory(driver()?, entry.graph.local_bytes())?;
    // SAFETY: the caller's promise.
    unsafe { put(place, EXECS.add(ExecEntry { exec, flags, memory }) as CUgraphExec) }
}

fn update(h_graph_exec: CUgraphExec, h_graph: CUgraph) -> Result<CUgraphExecUpdateResultInfo> {
    let updated = EXECS.get(h_graph_exec)?.exec.update(&*graph(h_graph)?, &check_update)?;
    let handle = |node: Option<_>| node.map_or(std::ptr::null_mut(), node_handle);
    Ok(match updated {
        Ok(()) => CUgraphExecUpdateResultInfo {
            result: CU_GRAPH_EXEC_UPDATE_SUCCESS,
            errorNode: std::ptr::null_mut(),
            errorFromNode: std::ptr::null_mut(),
        },
        Err(mismatch) => CUgraphExecUpdateResultInfo {
            result: match mismatch.difference {
                Difference::Topology => CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
                Difference::Kind => CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED,
                Difference::Parameters => CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
                Difference::Attributes => CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED,
                Difference::Function => CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE,
                Difference::Unsupported => CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED,
            },
            errorNode: handle(mismatch.node),
            errorFromNode: handle(mismatch.from),
        },
    })
}

fn outcome(information: &CUgraphExecUpdateResultInfo) -> CUresult {
    match information.result {
        CU_GRAPH_EXEC_UPDATE_SUCCESS => Ok(()),
        _ => Err(CUerror::GRAPH_EXEC_UPDATE_FAILURE),
    }
}

/// A node of a kind that can be switched off.
fn switchable(handle: CUgraphNode) -> Result<crate::execution::NodeId> {
    let (_, id, content) = node_content(handle)?;
    match content.kind {
        NodeKind::Kernel | NodeKind::Copy | NodeKind::Fill => Ok(id),
        _ => Err(CUerror::INVALID_VALUE),
    }
}
