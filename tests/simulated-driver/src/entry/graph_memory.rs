//! Memory nodes of graphs and the memory of graphs: CUDA driver API, "Graph Management".
//!
//! Allocations of one device per graph, of pinned device memory that no other process can have.

use std::ffi::c_void;
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::capture::nodes;
use super::graph_nodes::of_kind;
use super::virtual_memory::device_of;
use super::{entry, needed, put};
use crate::driver::driver;
use crate::execution::{Content, Graph, NodeId, NodeKind};
use crate::graph_memory::{self, allocation_of, free_of};
use crate::graphs::{graph, node_handle};
use crate::space::Result;

entry! {
    fn cuGraphAddMemAllocNode(
        ph_graph_node: *mut CUgraphNode,
        h_graph: CUgraph,
        dependencies: *const CUgraphNode,
        num_dependencies: usize,
        node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) {
        needed(ph_graph_node)?;
        let graph = graph(h_graph)?;
        let dependencies = nodes(dependencies, num_dependencies)?;
        let content = allocation_content(&graph, &dependencies, node_params)?;
        put(ph_graph_node, node_handle(graph.add_node(content, &dependencies)?))
    }

    fn cuGraphAddMemFreeNode(
        ph_graph_node: *mut CUgraphNode,
        h_graph: CUgraph,
        dependencies: *const CUgraphNode,
        num_dependencies: usize,
        dptr: CUdeviceptr,
    ) {
        needed(ph_graph_node)?;
        let graph = graph(h_graph)?;
        let dependencies = nodes(dependencies, num_dependencies)?;
        let content = free_content(&graph, dptr)?;
        put(ph_graph_node, node_handle(graph.add_node(content, &dependencies)?))
    }

    fn cuGraphMemAllocNodeGetParams(h_node: CUgraphNode, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) {
        needed(params_out)?;
        put(params_out, allocation_said(&of_kind(h_node, NodeKind::Allocate)?)?)
    }

    fn cuGraphMemFreeNodeGetParams(h_node: CUgraphNode, dptr_out: *mut CUdeviceptr) {
        needed(dptr_out)?;
        put(dptr_out, free_said(&of_kind(h_node, NodeKind::Free)?)?)
    }

    fn cuDeviceGraphMemTrim(device: CUdevice) {
        graph_memory::trim(driver()?.index(device)?)
    }

    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        let index = driver()?.index(device)?;
        needed(value)?;
        let numbers = driver()?.space.graph_memory(index);
        let bytes = match attr {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => numbers.used_bytes,
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => numbers.used_high_bytes,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => numbers.reserved_bytes,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => numbers.reserved_high_bytes,
            _ => return Err(CUerror::INVALID_VALUE),
        };
        value.cast::<u64>().write_unaligned(bytes);
        Ok(())
    }

    // High marks can be reset, and nothing else set.
    fn cuDeviceSetGraphMemAttribute(device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        let index = driver()?.index(device)?;
        needed(value)?;
        let used = match attr {
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => true,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => false,
            _ => return Err(CUerror::INVALID_VALUE),
        };
        if value.cast::<u64>().read_unaligned() != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        driver()?.space.reset_graph_mark(index, used);
        Ok(())
    }
}

/// The content of a new allocation node, whose address is written into the structure.
///
/// # Safety
/// As `cuGraphAddMemAllocNode`.
pub(super) unsafe fn allocation_content(
    graph: &Arc<Graph>,
    dependencies: &[NodeId],
    said: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<Content> {
    // SAFETY: the caller's promise.
    let said = unsafe { said.as_mut() }.ok_or(CUerror::INVALID_VALUE)?;
    let properties = &said.poolProps;
    if properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED
        || properties.handleTypes.0 != 0
        || said.bytesize == 0
    {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = device_of(&properties.location)?;
    let mut others = Vec::new();
    if said.accessDescCount > 0 {
        needed(said.accessDescs)?;
        // SAFETY: the caller's promise.
        for access in unsafe { std::slice::from_raw_parts(said.accessDescs, said.accessDescCount) } {
            let other = device_of(&access.location)?;
            // Only reading and writing is accepted (CUDA_MEM_ALLOC_NODE_PARAMS).
            if access.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE {
                return Err(CUerror::INVALID_VALUE);
            }
            if other != device && !driver()?.space.can_access_peer(other, device) {
                return Err(CUerror::INVALID_VALUE);
            }
            others.push(other);
        }
    }
    graph_memory::allocation(graph, dependencies, device, &others, said)
}

/// The content of a new free node.
pub(super) fn free_content(graph: &Arc<Graph>, address: CUdeviceptr) -> Result<Content> {
    graph_memory::free(graph, address)
}

/// The structure of an allocation node.
pub(super) fn allocation_said(content: &Content) -> Result<CUDA_MEM_ALLOC_NODE_PARAMS> {
    allocation_of(content).map(|node| node.said).ok_or(CUerror::INVALID_VALUE)
}

/// The address of a free node.
pub(super) fn free_said(content: &Content) -> Result<CUdeviceptr> {
    free_of(content).map(|node| node.address).ok_or(CUerror::INVALID_VALUE)
}
