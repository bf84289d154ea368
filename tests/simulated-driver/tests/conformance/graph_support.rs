//! What the tests of graphs share: nodes that are made in one line.
//!
//! Used by `graph_nodes.rs` and `graph_updates.rs`.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use turnus_bindings::types::*;

/// A stream that does not wait for the legacy one.
pub fn stream() -> CUstream {
    let mut stream = std::ptr::null_mut();
    ok!(cuStreamCreate(&mut stream, 1));
    stream
}

/// An empty graph.
pub fn graph() -> CUgraph {
    let mut graph = std::ptr::null_mut();
    ok!(cuGraphCreate(&mut graph, 0));
    graph
}

/// The number at a device address.
pub fn read(place: CUdeviceptr) -> u32 {
    let mut value = 0_u32;
    ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), place, 4));
    value
}

/// The current context.
pub fn current() -> CUcontext {
    let mut current = std::ptr::null_mut();
    ok!(cuCtxGetCurrent(&mut current));
    current
}

/// A memset of one number.
pub fn fill_of(dst: CUdeviceptr, value: u32) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst, pitch: 0, value, elementSize: 4, width: 1, height: 1 }
}

/// Adds a memset of one number.
pub fn add_fill(graph: CUgraph, after: &[CUgraphNode], dst: CUdeviceptr, value: u32) -> CUgraphNode {
    let mut node = std::ptr::null_mut();
    let said = fill_of(dst, value);
    ok!(cuGraphAddMemsetNode(&mut node, graph, after.as_ptr(), after.len(), &said, current()));
    node
}

/// Adds a node that does nothing.
pub fn add_empty(graph: CUgraph, after: &[CUgraphNode]) -> CUgraphNode {
    let mut node = std::ptr::null_mut();
    ok!(cuGraphAddEmptyNode(&mut node, graph, after.as_ptr(), after.len()));
    node
}

/// A copy of bytes within the device.
pub fn copy_of(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
    // SAFETY: all-zero is a valid value.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, src);
    (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, dst);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (bytes, 1, 1);
    copy
}

/// Adds a copy of one number.
pub fn add_copy(graph: CUgraph, after: &[CUgraphNode], dst: CUdeviceptr, src: CUdeviceptr) -> CUgraphNode {
    let mut node = std::ptr::null_mut();
    let said = copy_of(dst, src, 4);
    ok!(cuGraphAddMemcpyNode(&mut node, graph, after.as_ptr(), after.len(), &said, current()));
    node
}

/// A launch of one thread.
pub fn run_of(function: CUfunction, arguments: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    // SAFETY: all-zero is a valid value.
    let mut run: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    (run.func, run.kernelParams) = (function, arguments.as_mut_ptr());
    (run.gridDimX, run.gridDimY, run.gridDimZ) = (1, 1, 1);
    (run.blockDimX, run.blockDimY, run.blockDimZ) = (1, 1, 1);
    run
}

/// Makes a graph launchable.
pub fn instantiate(graph: CUgraph) -> CUgraphExec {
    let mut exec = std::ptr::null_mut();
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

/// Launches once and waits.
pub fn run(exec: CUgraphExec) {
    let stream = stream();
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuStreamDestroy_v2(stream));
}

/// The structure that holds the parameters of any node.
pub fn zeroed() -> CUgraphNodeParams {
    // SAFETY: all-zero is a valid value.
    unsafe { std::mem::zeroed() }
}

/// Counts the calls in the atomic that it is given.
pub extern "C" fn add_to(data: *mut c_void) {
    // SAFETY: the tests pass a pointer to an atomic that outlives the work.
    unsafe { (*data.cast::<AtomicU32>()).fetch_add(1, Ordering::SeqCst) };
}
