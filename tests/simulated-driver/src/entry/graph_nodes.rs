//! Graph nodes made by hand, asked for what they are, and given new parameters: CUDA driver API, "Graph
//! Management", the functions with a structure per kind.
//!
//! Parameters are copied when the call is made. From structures to contents and back: `graph_content.rs`.

use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::capture::nodes;
use super::{entry, needed, put};
use crate::execution::{Content, Event, NodeKind, Work};
use crate::graph_content::{self as content, KernelSaid};
use crate::graphs::{graph, handle_of_inner, node_content, node_handle};
use crate::space::Result;
use crate::stream::{EVENTS, own_event};

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
    fn cuGraphAddMemcpyNode(copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext) content::copy(copy_params, ctx);
    fn cuGraphAddMemsetNode(memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext) content::memset(memset_params, ctx);
    fn cuGraphAddHostNode(node_params: *const CUDA_HOST_NODE_PARAMS) host(node_params);
    fn cuGraphAddEmptyNode() Ok::<_, CUerror>(Work::Nothing);
    fn cuGraphAddChildGraphNode(child_graph: CUgraph) child(child_graph);
    fn cuGraphAddEventRecordNode(event: CUevent) record(event);
    fn cuGraphAddEventWaitNode(event: CUevent) wait(event);
    fn cuGraphAddBatchMemOpNode(node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) values(node_params);
}

entry! {
    fn cuGraphKernelNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        set(h_node, kernel_v1(node_params)?)
    }

    fn cuGraphKernelNodeSetParams_v2(h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS) {
        set(h_node, kernel_v2(node_params)?)
    }

    fn cuGraphMemcpyNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_MEMCPY3D) {
        set(h_node, content::copy(node_params, std::ptr::null_mut())?)
    }

    fn cuGraphMemsetNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_MEMSET_NODE_PARAMS) {
        set(h_node, content::memset(node_params, std::ptr::null_mut())?)
    }

    fn cuGraphHostNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS) {
        set(h_node, host(node_params)?)
    }

    fn cuGraphEventRecordNodeSetEvent(h_node: CUgraphNode, event: CUevent) {
        set(h_node, record(event)?)
    }

    fn cuGraphEventWaitNodeSetEvent(h_node: CUgraphNode, event: CUevent) {
        set(h_node, wait(event)?)
    }

    fn cuGraphBatchMemOpNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) {
        set(h_node, values(node_params)?)
    }

    fn cuGraphKernelNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS_v1) {
        needed(node_params)?;
        let said = kernel_said(h_node)?;
        put(node_params, CUDA_KERNEL_NODE_PARAMS_v1 {
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
        })
    }

    fn cuGraphKernelNodeGetParams_v2(h_node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS) {
        needed(node_params)?;
        put(node_params, kernel_said(h_node)?)
    }

    fn cuGraphMemcpyNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_MEMCPY3D) {
        needed(node_params)?;
        put(node_params, content::copy_said(&of_kind(h_node, NodeKind::Copy)?)?)
    }

    fn cuGraphMemsetNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_MEMSET_NODE_PARAMS) {
        needed(node_params)?;
        put(node_params, content::memset_said(&of_kind(h_node, NodeKind::Fill)?)?)
    }

    fn cuGraphHostNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_HOST_NODE_PARAMS) {
        needed(node_params)?;
        let (fn_, data) = content::host_said(&of_kind(h_node, NodeKind::Host)?)?;
        put(node_params, CUDA_HOST_NODE_PARAMS { fn_, userData: data })
    }

    fn cuGraphChildGraphNodeGetGraph(h_node: CUgraphNode, ph_graph: *mut CUgraph) {
        needed(ph_graph)?;
        put(ph_graph, child_said(&of_kind(h_node, NodeKind::Child)?)?)
    }

    fn cuGraphEventRecordNodeGetEvent(h_node: CUgraphNode, event_out: *mut CUevent) {
        needed(event_out)?;
        put(event_out, event_said(&of_kind(h_node, NodeKind::Record)?)?)
    }

    fn cuGraphEventWaitNodeGetEvent(h_node: CUgraphNode, event_out: *mut CUevent) {
        needed(event_out)?;
        put(event_out, event_said(&of_kind(h_node, NodeKind::Wait)?)?)
    }

    fn cuGraphBatchMemOpNodeGetParams(h_node: CUgraphNode, node_params_out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS) {
        needed(node_params_out)?;
        let (operations, count) = values_said(h_node)?;
        let ctx = std::ptr::null_mut();
        put(node_params_out, CUDA_BATCH_MEM_OP_NODE_PARAMS { ctx, count, paramArray: operations, flags: 0 })
    }

    // Cooperation is the only attribute that is simulated.
    fn cuGraphKernelNodeGetAttribute(
        h_node: CUgraphNode,
        attr: CUkernelNodeAttrID,
        value_out: *mut CUkernelNodeAttrValue,
    ) {
        needed(value_out)?;
        let content = of_kind(h_node, NodeKind::Kernel)?;
        let kernel = content::kernel_of(&content)?;
        if attr != CU_LAUNCH_ATTRIBUTE_COOPERATIVE {
            return Err(CUerror::NOT_SUPPORTED);
        }
        (*value_out).cooperative = kernel.shape.cooperative.into();
        Ok(())
    }

    fn cuGraphKernelNodeSetAttribute(
        h_node: CUgraphNode,
        attr: CUkernelNodeAttrID,
        value: *const CUkernelNodeAttrValue,
    ) {
        needed(value)?;
        let (entry, id, content) = node_content(h_node)?;
        content::kernel_of(&content)?;
        if attr != CU_LAUNCH_ATTRIBUTE_COOPERATIVE {
            return Err(CUerror::NOT_SUPPORTED);
        }
        entry.graph.set_content(id, content::with_cooperation(&content, (*value).cooperative != 0)?)
    }

    fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode) {
        let cooperative = content::kernel_of(&of_kind(src, NodeKind::Kernel)?)?.shape.cooperative;
        let (entry, id, content) = node_content(dst)?;
        entry.graph.set_content(id, content::with_cooperation(&content, cooperative)?)
    }
}

/// What a node holds, if it is of this kind.
pub(super) fn of_kind(handle: CUgraphNode, kind: NodeKind) -> Result<Content> {
    let content = node_content(handle)?.2;
    if content.kind == kind { Ok(content) } else { Err(CUerror::INVALID_VALUE) }
}

/// Gives a node new parameters of its kind.
pub(super) fn set(handle: CUgraphNode, content: impl Into<Content>) -> CUresult {
    let (entry, id, old) = node_content(handle)?;
    let content = content.into();
    if old.kind != content.kind {
        return Err(CUerror::INVALID_VALUE);
    }
    entry.graph.set_content(id, content)
}

/// # Safety
/// As `cuGraphAddKernelNode`.
pub(super) unsafe fn kernel_v1(parameters: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Result<Content> {
    // SAFETY: the caller's promise.
    unsafe {
        let parameters = parameters.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        content::kernel(&KernelSaid {
            function: parameters.func.cast(),
            grid: [parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ],
            block: [parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ],
            shared_bytes: parameters.sharedMemBytes,
            parameters: parameters.kernelParams,
            extra: parameters.extra,
        })
    }
}

/// # Safety
/// As `cuGraphAddKernelNode_v2`.
pub(super) unsafe fn kernel_v2(parameters: *const CUDA_KERNEL_NODE_PARAMS) -> Result<Content> {
    // SAFETY: the caller's promise.
    unsafe {
        let parameters = parameters.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let by_kernel = parameters.func.is_null();
        content::kernel(&KernelSaid {
            function: if by_kernel { parameters.kern.cast() } else { parameters.func.cast() },
            grid: [parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ],
            block: [parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ],
            shared_bytes: parameters.sharedMemBytes,
            parameters: parameters.kernelParams,
            extra: parameters.extra,
        })
    }
}

/// The structure of a kernel node; what it points to lives as long as the node keeps these parameters.
pub(super) fn kernel_said(handle: CUgraphNode) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    let (entry, id, content) = node_content(handle)?;
    let content = content::with_pointers(&content)?;
    entry.graph.set_content(id, content.clone())?;
    let kernel = content::kernel_of(&content)?;
    let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (kernel.shape.grid, kernel.shape.block);
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: kernel.function.handle as CUfunction,
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: kernel.shape.shared_bytes,
        kernelParams: content::pointers_of(&content),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: kernel.function.context.handle as CUcontext,
    })
}

/// # Safety
/// As `cuGraphAddHostNode`.
pub(super) unsafe fn host(parameters: *const CUDA_HOST_NODE_PARAMS) -> Result<Content> {
    // SAFETY: the caller's promise.
    let parameters = unsafe { parameters.as_ref() }.ok_or(CUerror::INVALID_VALUE)?;
    content::host(parameters.fn_, parameters.userData)
}

/// # Safety
/// As `cuGraphAddBatchMemOpNode`.
pub(super) unsafe fn values(parameters: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Result<Content> {
    // SAFETY: the caller's promise.
    unsafe {
        let parameters = parameters.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        content::values(parameters.paramArray, parameters.count, parameters.flags, parameters.ctx)
    }
}

/// The operations of a node, which live as long as the node keeps them.
pub(super) fn values_said(handle: CUgraphNode) -> Result<(*mut CUstreamBatchMemOpParams, u32)> {
    let (entry, id, content) = node_content(handle)?;
    if content.kind != NodeKind::Values {
        return Err(CUerror::INVALID_VALUE);
    }
    let content = content::with_values(&content)?;
    entry.graph.set_content(id, content.clone())?;
    Ok(content::values_of(&content))
}

/// A graph as a node: it is copied, as documented.
pub(super) fn child(handle: CUgraph) -> Result<Content> {
    let graph = graph(handle)?;
    // One with memory nodes could only be moved, which is not simulated.
    if graph.has_memory_nodes() {
        return Err(CUerror::NOT_SUPPORTED);
    }
    Ok(Work::Child(graph.duplicate()).into())
}

/// The handle of the graph that a node is.
pub(super) fn child_said(content: &Content) -> Result<CUgraph> {
    match &content.work {
        Work::Child(graph) => Ok(handle_of_inner(graph) as CUgraph),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

pub(super) fn record(event: CUevent) -> Result<Content> {
    own_event(event).map(|entry| Work::RecordEvent(entry.event).into())
}

pub(super) fn wait(event: CUevent) -> Result<Content> {
    own_event(event).map(|entry| Work::WaitEvent(entry.event).into())
}

/// The handle of the event of a node; `INVALID_VALUE` when it was destroyed.
pub(super) fn event_said(content: &Content) -> Result<CUevent> {
    let (Work::RecordEvent(event) | Work::WaitEvent(event)) = &content.work else {
        return Err(CUerror::INVALID_VALUE);
    };
    let same = |other: &Arc<Event>| other.id() == event.id();
    EVENTS.find(|entry| same(&entry.event)).map(|handle| handle as CUevent).ok_or(CUerror::INVALID_VALUE)
}
