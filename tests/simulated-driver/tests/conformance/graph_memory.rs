//! Memory nodes of graphs: addresses, lifetimes, and the physical memory behind.
//!
//! Rules: CUDA driver API, cuGraphAddMemAllocNode, and the programming guide's chapter on graph memory nodes, whose
//! footprint examples are followed here. Sizes are in units of the device's memory, so that they fit a real card.

use std::ffi::c_void;

use crate::common::{VECTOR_ADD, WAIT_FOR_FLAG, allocate, context, function, isolated, launch, properties};
use turnus_bindings::types::*;

fn stream() -> CUstream {
    let mut stream = std::ptr::null_mut();
    ok!(cuStreamCreate(&mut stream, 1));
    stream
}

/// 64 MiB on a card with units of 2 MiB.
fn large() -> usize {
    let mut unit = 0;
    ok!(cuMemGetAllocationGranularity(&mut unit, &properties(0), CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    32 * unit
}

fn graph() -> CUgraph {
    let mut graph = std::ptr::null_mut();
    ok!(cuGraphCreate(&mut graph, 0));
    graph
}

fn wanted(bytes: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    // SAFETY: all-zero is a valid value.
    let mut wanted: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.poolProps.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.bytesize = bytes;
    wanted
}

fn add_allocation(graph: CUgraph, after: &[CUgraphNode], bytes: usize) -> (CUgraphNode, CUdeviceptr) {
    let (mut node, mut said) = (std::ptr::null_mut(), wanted(bytes));
    ok!(cuGraphAddMemAllocNode(&mut node, graph, after.as_ptr(), after.len(), &mut said));
    assert_ne!(said.dptr, 0);
    (node, said.dptr)
}

fn add_free(graph: CUgraph, after: &[CUgraphNode], address: CUdeviceptr) -> CUgraphNode {
    let mut node = std::ptr::null_mut();
    ok!(cuGraphAddMemFreeNode(&mut node, graph, after.as_ptr(), after.len(), address));
    node
}

fn add_fill(
    graph: CUgraph,
    after: &[CUgraphNode],
    address: CUdeviceptr,
    value: u32,
    count: usize,
) -> CUgraphNode {
    let mut node = std::ptr::null_mut();
    let mut current = std::ptr::null_mut();
    ok!(cuCtxGetCurrent(&mut current));
    let fill =
        CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 4, width: count, height: 1 };
    ok!(cuGraphAddMemsetNode(&mut node, graph, after.as_ptr(), after.len(), &fill, current));
    node
}

fn instantiate(graph: CUgraph, flags: u64) -> CUgraphExec {
    let mut exec = std::ptr::null_mut();
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, flags));
    exec
}

fn attribute(attribute: CUgraphMem_attribute) -> u64 {
    let mut value = 0_u64;
    ok!(cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut value).cast()));
    value
}

fn footprint() -> u64 {
    attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
}

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    free
}

fn read(place: CUdeviceptr) -> u32 {
    let mut value = 0_u32;
    ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), place, 4));
    value
}

/// Allocates, fills and frees.
fn scratch_graph(bytes: usize) -> (CUgraph, CUdeviceptr) {
    let graph = graph();
    let (allocation, address) = add_allocation(graph, &[], bytes);
    let fill = add_fill(graph, &[allocation], address, 7, 16);
    add_free(graph, &[fill], address);
    (graph, address)
}

/// Allocates and fills with `value`.
fn leaving_graph(bytes: usize, value: u32) -> (CUgraph, CUdeviceptr) {
    let graph = graph();
    let (allocation, address) = add_allocation(graph, &[], bytes);
    add_fill(graph, &[allocation], address, value, 16);
    (graph, address)
}

#[test]
fn an_allocation_outlives_its_launch_until_it_is_freed() {
    isolated("an_allocation_outlives_its_launch_until_it_is_freed", &[], || {
        context();
        let (graph, address) = leaving_graph(large(), 0x0102_0304);
        let exec = instantiate(graph, 0);
        let stream = stream();
        for _ in 0..3 {
            ok!(cuGraphLaunch(exec, stream));
            ok!(cuStreamSynchronize(stream));
            assert_eq!(read(address), 0x0102_0304, "the address is the same for all launches");
            fails!(INVALID_VALUE, cuGraphLaunch(exec, stream));
            ok!(cuMemFreeAsync(address, stream));
        }
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        ok!(cuMemFree_v2(address));
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuGraphExecDestroy(exec));
        ok!(cuGraphDestroy(graph));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(read(address), 0x0102_0304, "the allocation does not need its graph");
        ok!(cuMemFreeAsync(address, stream));
        ok!(cuStreamSynchronize(stream));
    });
}

#[test]
fn free_on_launch_lets_a_graph_be_launched_again() {
    isolated("free_on_launch_lets_a_graph_be_launched_again", &[], || {
        context();
        let (graph, address) = leaving_graph(large(), 5);
        let exec = instantiate(graph, u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0));
        let mut flags = 0;
        ok!(cuGraphExecGetFlags(exec, &mut flags));
        assert_eq!(flags, u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0));
        let stream = stream();
        ok!(cuGraphLaunch(exec, stream));
        let first = footprint();
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(footprint(), first, "the memory is used again");
        assert_eq!(read(address), 5);
        ok!(cuMemFree_v2(address));
    });
}

#[test]
fn what_a_graph_frees_itself_cannot_be_freed_elsewhere() {
    isolated("what_a_graph_frees_itself_cannot_be_freed_elsewhere", &[], || {
        context();
        let (own, address) = scratch_graph(large());
        let mut node = std::ptr::null_mut();
        fails!(INVALID_VALUE, cuGraphAddMemFreeNode(&mut node, own, std::ptr::null(), 0, address));
        let other = graph();
        fails!(INVALID_VALUE, cuGraphAddMemFreeNode(&mut node, other, std::ptr::null(), 0, address));
        fails!(INVALID_VALUE, cuGraphAddMemFreeNode(&mut node, other, std::ptr::null(), 0, allocate(4096)));
        fails!(INVALID_VALUE, cuGraphAddMemFreeNode(&mut node, other, std::ptr::null(), 0, 0x10));
        let exec = instantiate(own, 0);
        let stream = stream();
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        fails!(INVALID_VALUE, cuMemFree_v2(address));
        fails!(INVALID_VALUE, cuMemFreeAsync(address, stream));
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
    });
}

#[test]
fn another_graph_frees_what_a_graph_left() {
    isolated("another_graph_frees_what_a_graph_left", &[], || {
        context();
        let (first, address) = leaving_graph(large(), 9);
        let (second, result) = (graph(), allocate(4));
        let mut current = std::ptr::null_mut();
        ok!(cuCtxGetCurrent(&mut current));
        // SAFETY: all-zero is a valid value.
        let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, address);
        (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, result);
        (copy.WidthInBytes, copy.Height, copy.Depth) = (4, 1, 1);
        let mut node = std::ptr::null_mut();
        ok!(cuGraphAddMemcpyNode(&mut node, second, std::ptr::null(), 0, &copy, current));
        add_free(second, &[node], address);
        // Now the owner can no longer free it.
        fails!(INVALID_VALUE, cuGraphAddMemFreeNode(&mut node, first, std::ptr::null(), 0, address));
        let (first, second) = (instantiate(first, 0), instantiate(second, 0));
        let stream = stream();
        for _ in 0..2 {
            ok!(cuGraphLaunch(first, stream));
            ok!(cuGraphLaunch(second, stream));
        }
        ok!(cuStreamSynchronize(stream));
        assert_eq!(read(result), 9);
        fails!(INVALID_VALUE, cuMemFree_v2(address));
    });
}

#[test]
fn graphs_with_memory_nodes_have_their_limits() {
    isolated("graphs_with_memory_nodes_have_their_limits", &[], || {
        context();
        let own = graph();
        let (allocation, address) = add_allocation(own, &[], large());
        let free = add_free(own, &[allocation], address);
        let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
        ok!(cuGraphNodeGetType(allocation, &mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        ok!(cuGraphNodeGetType(free, &mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_MEM_FREE);
        let mut said = wanted(0);
        ok!(cuGraphMemAllocNodeGetParams(allocation, &mut said));
        assert_eq!((said.dptr, said.bytesize), (address, large()));
        let mut freed = 0;
        ok!(cuGraphMemFreeNodeGetParams(free, &mut freed));
        assert_eq!(freed, address);
        fails!(INVALID_VALUE, cuGraphMemFreeNodeGetParams(allocation, &mut freed));

        let mut copy = std::ptr::null_mut();
        assert!(call!(cuGraphClone(&mut copy, own)).is_err());
        assert!(call!(cuGraphDestroyNode(free)).is_err());
        assert!(call!(cuGraphRemoveDependencies(own, &allocation, &free, 1)).is_err());
        let (parent, mut node) = (graph(), std::ptr::null_mut());
        assert!(call!(cuGraphAddChildGraphNode(&mut node, parent, std::ptr::null(), 0, own)).is_err());
        let exec = instantiate(own, 0);
        let mut second = std::ptr::null_mut();
        assert!(call!(cuGraphInstantiateWithFlags(&mut second, own, 0)).is_err(), "one at a time");
        ok!(cuGraphExecDestroy(exec));
        ok!(cuGraphExecDestroy(instantiate(own, 0)));

        let mut nothing = wanted(0);
        fails!(INVALID_VALUE, cuGraphAddMemAllocNode(&mut node, parent, std::ptr::null(), 0, &mut nothing));
        let mut shared = wanted(4096);
        shared.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        fails!(INVALID_VALUE, cuGraphAddMemAllocNode(&mut node, parent, std::ptr::null(), 0, &mut shared));
        fails!(
            INVALID_VALUE,
            cuGraphAddMemAllocNode(&mut node, parent, std::ptr::null(), 0, std::ptr::null_mut())
        );
    });
}

#[test]
fn a_graph_uses_addresses_again() {
    isolated("a_graph_uses_addresses_again", &[], || {
        context();
        let own = graph();
        let (first, one) = add_allocation(own, &[], large());
        let freed = add_free(own, &[first], one);
        let (second, two) = add_allocation(own, &[freed], large());
        let (_, three) = add_allocation(own, &[first], large());
        assert_eq!(one, two, "lifetimes are apart");
        assert_ne!(one, three, "lifetimes overlap");
        add_free(own, &[second], two);
        let exec = instantiate(own, 0);
        let stream = stream();
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        fails!(INVALID_VALUE, cuMemFree_v2(one));
        ok!(cuMemFree_v2(three));
    });
}

#[test]
fn graphs_of_one_stream_share_physical_memory() {
    isolated("graphs_of_one_stream_share_physical_memory", &[], || {
        context();
        let (stream, before) = (stream(), free_bytes());
        let graphs: Vec<_> = (0..4).map(|_| scratch_graph(large())).collect();
        let execs: Vec<_> = graphs.iter().map(|(graph, _)| instantiate(*graph, 0)).collect();
        assert_ne!(graphs[0].1, graphs[1].1, "each graph has its own address");
        assert_eq!(footprint(), 0, "instantiation takes no memory");
        ok!(cuGraphLaunch(execs[0], stream));
        let one = footprint();
        assert!(one >= large() as u64, "{one}");
        execs.iter().for_each(|exec| ok!(cuGraphLaunch(*exec, stream)));
        assert_eq!(footprint(), one);
        assert!(before - free_bytes() >= large(), "graph memory is memory of the device");
        ok!(cuStreamSynchronize(stream));
        ok!(cuDeviceGraphMemTrim(0));
        assert_eq!(footprint(), 0);
        assert_eq!(free_bytes(), before);
        // A trimmed graph gets memory again.
        ok!(cuGraphLaunch(execs[1], stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(footprint(), one);
    });
}

#[test]
fn graphs_that_run_at_once_have_memory_of_their_own() {
    isolated("graphs_that_run_at_once_have_memory_of_their_own", &[], || {
        context();
        let (kernel, flag) = (function(WAIT_FOR_FLAG, c"wait_for_flag"), allocate(4));
        ok!(cuMemsetD32_v2(flag, 0, 1));
        ok!(cuCtxSynchronize());
        let execs: Vec<_> = (0..2).map(|_| instantiate(scratch_graph(large()).0, 0)).collect();
        let streams = [stream(), stream()];
        // The first stream is held up, so that its graph is not over when the other is launched.
        assert_eq!(launch(kernel, 1, 1, streams[0], &[&flag]), Ok(()));
        ok!(cuGraphLaunch(execs[0], streams[0]));
        let one = footprint();
        ok!(cuGraphLaunch(execs[1], streams[1]));
        assert_eq!(footprint(), 2 * one);
        ok!(cuDeviceGraphMemTrim(0));
        assert!(footprint() >= one, "a pending launch keeps its memory");
        ok!(cuMemsetD32Async(flag, 1, 1, streams[1]));
        ok!(cuStreamSynchronize(streams[0]));
    });
}

#[test]
fn unfreed_allocations_keep_their_memory() {
    isolated("unfreed_allocations_keep_their_memory", &[], || {
        context();
        let stream = stream();
        let graphs: Vec<_> = (1..=3).map(|value| leaving_graph(large(), value)).collect();
        let execs: Vec<_> = graphs.iter().map(|(graph, _)| instantiate(*graph, 0)).collect();
        let mut last = 0;
        for exec in &execs {
            ok!(cuGraphLaunch(*exec, stream));
            assert!(footprint() > last, "each launch takes more");
            last = footprint();
        }
        ok!(cuStreamSynchronize(stream));
        ok!(cuDeviceGraphMemTrim(0));
        assert_eq!(footprint(), last, "nothing is unused");
        assert_eq!(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), last);
        for ((_, address), value) in graphs.iter().zip(1..) {
            assert_eq!(read(*address), value);
            ok!(cuMemFreeAsync(*address, stream));
        }
        ok!(cuStreamSynchronize(stream));
        assert_eq!(footprint(), last, "freed memory stays with the graphs");
        ok!(cuDeviceGraphMemTrim(0));
        assert_eq!(footprint(), 0);
        assert_eq!(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), last);
        assert_eq!(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), last);
        let (mut zero, mut one) = (0_u64, 1_u64);
        let set = |which, value: &mut u64| {
            call!(cuDeviceSetGraphMemAttribute(0, which, std::ptr::from_mut(value).cast::<c_void>()))
        };
        assert_eq!(set(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &mut zero), Ok(()));
        assert_eq!(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 0);
        assert_eq!(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), last, "the marks are apart");
        assert!(set(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &mut one).is_err(), "only zero can be set");
        assert!(set(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &mut zero).is_err());
        let mut value = 0_u64;
        fails!(
            INVALID_DEVICE,
            cuDeviceGetGraphMemAttribute(99, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, (&raw mut value).cast())
        );
        fails!(INVALID_DEVICE, cuDeviceGraphMemTrim(99));
    });
}

#[test]
fn a_captured_allocation_is_a_node() {
    isolated("a_captured_allocation_is_a_node", &[], || {
        context();
        let kernel = function(VECTOR_ADD, c"vector_add");
        let (stream, outside, result) = (stream(), allocate(4096), allocate(4));
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        let (mut scratch, mut left) = (0, 0);
        ok!(cuMemAllocAsync(&mut scratch, large(), stream));
        ok!(cuMemsetD32Async(scratch, 1.5_f32.to_bits(), 1, stream));
        let arguments = [scratch, scratch, result, 1];
        assert_eq!(launch(kernel, 1, 32, stream, &arguments.each_ref()), Ok(()));
        ok!(cuMemFreeAsync(scratch, stream));
        ok!(cuMemAllocAsync(&mut left, 4096, stream));
        ok!(cuMemsetD32Async(left, 77, 1, stream));
        fails!(INVALID_VALUE, cuMemFreeAsync(outside, stream));
        let mut graph = std::ptr::null_mut();
        ok!(cuStreamEndCapture(stream, &mut graph));
        let mut nodes = [std::ptr::null_mut(); 8];
        let mut count = nodes.len();
        ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
        let kinds: Vec<_> = nodes[..count]
            .iter()
            .map(|node| {
                let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
                ok!(cuGraphNodeGetType(*node, &mut kind));
                kind
            })
            .collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC).count(), 2);
        assert_eq!(kinds.iter().filter(|kind| **kind == CU_GRAPH_NODE_TYPE_MEM_FREE).count(), 1);
        assert_eq!(kinds.len(), 6);
        let exec = instantiate(graph, 0);
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!((f32::from_bits(read(result)), read(left)), (3.0, 77));
        ok!(cuMemFreeAsync(left, stream));
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuMemFreeAsync(left, stream));
        ok!(cuStreamSynchronize(stream));
    });
}

#[test]
fn a_launch_without_room_is_refused() {
    isolated("a_launch_without_room_is_refused", &[], || {
        context();
        let exec = instantiate(scratch_graph(free_bytes() * 2).0, 0);
        let stream = stream();
        fails!(OUT_OF_MEMORY, cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(footprint(), 0);
    });
}
