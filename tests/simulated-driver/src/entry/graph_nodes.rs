//! Graph nodes made by hand, and new parameters for them: CUDA driver API, "Graph Management".
//!
//! Parameters are copied when the call is made. Asking for a node's parameters is not simulated.

use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::capture::nodes;
use super::copy_shapes::plan_3d;
use super::{entry, fill, needed, put};
use crate::context::{CONTEXTS, current};
use crate::execution::{HostFunction, HostPointer, Work};
use crate::graphs::{EXECS, graph, node, node_handle};
use crate::launch::{Shape, kernel_work};
use crate::module::library::function_of;
use crate::space::Result;
use crate::stream::own_event;

/// `cuGraphAdd...Node`: node place, graph, dependencies, count, then what is special.
macro_rules! adding {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $make:expr;)*) => {
        entry! {$(
            fn $name(
                ph_graph_node: *mut CUgraphNode,
                h_graph: CUgraph,
                dependencies: *const CUgraphNode,
                num_dependencies: usize,
                $($argument: $type),*
            ) {
                needed(ph_graph_node)?;
                let graph = graph(h_graph)?;
                let dependencies = nodes(dependencies, num_dependencies)?;
                let node = graph.add_node($make?, &dependencies)?;
                put(ph_graph_node, node_handle(node))
            }
        )*}
    };
}

adding! {
    fn cuGraphAddKernelNode(node_params: *const CUDA_KERNEL_NODE_PARAMS_v1) kernel_v1(node_params);
    fn cuGraphAddKernelNode_v2(node_params: *const CUDA_KERNEL_NODE_PARAMS) kernel_v2(node_params);
    fn cuGraphAddMemcpyNode(copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext) copy(copy_params, ctx);
    fn cuGraphAddMemsetNode(memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext) memset(memset_params, ctx);
    fn cuGraphAddHostNode(node_params: *const CUDA_HOST_NODE_PARAMS) host(node_params);
    fn cuGraphAddEmptyNode() Ok::<_, CUerror>(Work::Nothing);
    fn cuGraphAddChildGraphNode(child_graph: CUgraph) child(child_graph);
    fn cuGraphAddEventRecordNode(h_event: CUevent) own_event(h_event).map(|entry| Work::RecordEvent(entry.event));
    fn cuGraphAddEventWaitNode(h_event: CUevent) own_event(h_event).map(|entry| Work::WaitEvent(entry.event));
}

entry! {
    fn cuGraphKernelNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        set(h_node, kernel_v1(node_params)?)
    }

    fn cuGraphKernelNodeSetParams_v2(h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS) {
        set(h_node, kernel_v2(node_params)?)
    }

    fn cuGraphMemcpyNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_MEMCPY3D) {
        set(h_node, copy(node_params, std::ptr::null_mut())?)
    }

    fn cuGraphMemsetNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_MEMSET_NODE_PARAMS) {
        set(h_node, memset(node_params, std::ptr::null_mut())?)
    }

    fn cuGraphHostNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS) {
        set(h_node, host(node_params)?)
    }

    fn cuGraphExecKernelNodeSetParams(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        node_params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        EXECS.get(h_graph_exec)?.exec.set_work(node(h_node)?.1, kernel_v1(node_params)?)
    }

    fn cuGraphExecKernelNodeSetParams_v2(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        node_params: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        EXECS.get(h_graph_exec)?.exec.set_work(node(h_node)?.1, kernel_v2(node_params)?)
    }

    fn cuGraphExecMemcpyNodeSetParams(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        copy_params: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) {
        EXECS.get(h_graph_exec)?.exec.set_work(node(h_node)?.1, copy(copy_params, ctx)?)
    }

    fn cuGraphExecMemsetNodeSetParams(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        memset_params: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) {
        EXECS.get(h_graph_exec)?.exec.set_work(node(h_node)?.1, memset(memset_params, ctx)?)
    }

    fn cuGraphExecHostNodeSetParams(
        h_graph_exec: CUgraphExec,
        h_node: CUgraphNode,
        node_params: *const CUDA_HOST_NODE_PARAMS,
    ) {
        EXECS.get(h_graph_exec)?.exec.set_work(node(h_node)?.1, host(node_params)?)
    }
}

fn set(handle: CUgraphNode, work: Work) -> CUresult {
    let (entry, id) = node(handle)?;
    let kind = entry.graph.work(id).map(|old| std::mem::discriminant(&old));
    if kind != Some(std::mem::discriminant(&work)) {
        return Err(CUerror::INVALID_VALUE);
    }
    entry.graph.set_work(id, work)
}

/// # Safety
/// As `cuGraphAddKernelNode`.
unsafe fn kernel_v1(parameters: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Result<Work> {
    // SAFETY: the caller's promise.
    unsafe {
        let parameters = parameters.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let shape = Shape {
            grid: [parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ],
            block: [parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ],
            shared_bytes: parameters.sharedMemBytes,
            cooperative: false,
        };
        let function = function_of(parameters.func)?;
        kernel_work(&function, shape, parameters.kernelParams, parameters.extra)
    }
}

/// # Safety
/// As `cuGraphAddKernelNode_v2`.
unsafe fn kernel_v2(parameters: *const CUDA_KERNEL_NODE_PARAMS) -> Result<Work> {
    // SAFETY: the caller's promise.
    unsafe {
        let parameters = parameters.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let shape = Shape {
            grid: [parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ],
            block: [parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ],
            shared_bytes: parameters.sharedMemBytes,
            cooperative: false,
        };
        let function = if parameters.func.is_null() {
            function_of(parameters.kern)?
        } else {
            function_of(parameters.func)?
        };
        kernel_work(&function, shape, parameters.kernelParams, parameters.extra)
    }
}

/// # Safety
/// As `cuGraphAddMemcpyNode`.
unsafe fn copy(parameters: *const CUDA_MEMCPY3D, context: CUcontext) -> Result<Work> {
    check_context(context)?;
    // SAFETY: the caller's promise.
    let parameters = unsafe { parameters.as_ref() }.ok_or(CUerror::INVALID_VALUE)?;
    Ok(plan_3d(parameters)?.map_or(Work::Nothing, |copy| Work::Copy(Arc::new(copy))))
}

/// # Safety
/// As `cuGraphAddMemsetNode`.
unsafe fn memset(parameters: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Result<Work> {
    check_context(context)?;
    // SAFETY: the caller's promise.
    let parameters = unsafe { parameters.as_ref() }.ok_or(CUerror::INVALID_VALUE)?;
    if !matches!(parameters.elementSize, 1 | 2 | 4) {
        return Err(CUerror::INVALID_VALUE);
    }
    let work = fill::work(
        parameters.dst,
        parameters.pitch,
        parameters.value,
        parameters.elementSize as u8,
        parameters.width,
        parameters.height,
    )?;
    Ok(work.map_or(Work::Nothing, |work| Work::Fill(Arc::new(work))))
}

/// # Safety
/// As `cuGraphAddHostNode`.
unsafe fn host(parameters: *const CUDA_HOST_NODE_PARAMS) -> Result<Work> {
    // SAFETY: the caller's promise.
    let parameters = unsafe { parameters.as_ref() }.ok_or(CUerror::INVALID_VALUE)?;
    let function = parameters.fn_.ok_or(CUerror::INVALID_VALUE)?;
    Ok(Work::HostFunction(HostFunction { function, data: HostPointer(parameters.userData) }))
}

fn child(handle: CUgraph) -> Result<Work> {
    // The child is copied, as documented.
    Ok(Work::Child(graph(handle)?.duplicate().0))
}

fn check_context(context: CUcontext) -> Result<()> {
    if context.is_null() {
        return current::get().map(drop);
    }
    CONTEXTS.get(context).map(drop).map_err(|_| CUerror::INVALID_CONTEXT)
}
