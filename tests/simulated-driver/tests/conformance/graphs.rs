//! Streams, events, values, capture and graphs through the C interface.
//!
//! The rules behind are tested in the library itself (`src/execution/tests`); here it is shown that handles,
//! arrays and structures arrive there and come back.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{STORE_ONE, VECTOR_ADD, allocate, context, function, isolated, launch};
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

fn stream() -> CUstream {
    let mut stream = std::ptr::null_mut();
    ok!(cuStreamCreate(&mut stream, 1));
    stream
}

fn read(place: CUdeviceptr) -> u32 {
    let mut value = 0_u32;
    ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), place, 4));
    value
}

#[test]
fn a_captured_graph_repeats_the_work_with_its_arguments() {
    isolated("a_captured_graph_repeats_the_work_with_its_arguments", &[], || {
        context();
        let kernel = function(VECTOR_ADD, c"vector_add");
        let (a, b) = (allocate(4), allocate(4));
        ok!(cuMemsetD32_v2(a, 1.0_f32.to_bits(), 1));
        ok!(cuMemsetD32_v2(b, 2.0_f32.to_bits(), 1));
        ok!(cuCtxSynchronize());
        let stream = stream();
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        ok!(cuStreamIsCapturing(stream, &mut status));
        assert_eq!(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
        {
            // a += b; the arguments are gone when the graph runs.
            let arguments = [a, b, a, 1];
            assert_eq!(launch(kernel, 1, 32, stream, &arguments.each_ref()), Ok(()));
        }
        let (mut id, mut building, mut last, mut count) = (0, std::ptr::null_mut(), std::ptr::null(), 0);
        ok!(cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut building, &mut last, &mut count));
        assert!(id > 0 && !building.is_null() && !last.is_null());
        assert_eq!(count, 1);
        let mut graph = std::ptr::null_mut();
        ok!(cuStreamEndCapture(stream, &mut graph));
        assert_eq!(graph, building);
        let mut nodes = 0;
        ok!(cuGraphGetNodes(graph, std::ptr::null_mut(), &mut nodes));
        assert_eq!(nodes, 1);
        assert_eq!(f32::from_bits(read(a)), 1.0, "capturing runs nothing");
        let mut exec = std::ptr::null_mut();
        ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok!(cuGraphDestroy(graph));
        for _ in 0..3 {
            ok!(cuGraphLaunch(exec, stream));
        }
        ok!(cuStreamSynchronize(stream));
        assert_eq!(f32::from_bits(read(a)), 7.0);
        ok!(cuGraphExecDestroy(exec));
        fails!(INVALID_HANDLE, cuGraphLaunch(exec, stream));
    });
}

#[test]
fn what_a_capture_forbids_breaks_it() {
    isolated("what_a_capture_forbids_breaks_it", &[], || {
        context();
        let (stream, mut graph, mut address) = (stream(), std::ptr::null_mut(), 0);
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        fails!(STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&mut address, 4096));
        fails!(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &mut graph));
        assert!(graph.is_null());
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        ok!(cuMemAlloc_v2(&mut address, 4096));
        ok!(cuStreamEndCapture(stream, &mut graph));
        fails!(ILLEGAL_STATE, cuStreamEndCapture(stream, &mut graph));
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        ok!(cuThreadExchangeStreamCaptureMode(&mut mode));
        assert_eq!(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        fails!(STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
        fails!(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &mut graph));
    });
}

#[test]
fn a_synchronous_call_of_another_thread_breaks_a_global_capture_and_no_other() {
    let name = "a_synchronous_call_of_another_thread_breaks_a_global_capture_and_no_other";
    isolated(name, &[], || {
        let current = context() as usize;
        let (stream, mut graph, place) = (stream(), std::ptr::null_mut(), allocate(4096));
        let elsewhere = |call: fn(CUdeviceptr) -> CUresult| {
            let thread = std::thread::spawn(move || {
                ok!(cuCtxSetCurrent(current as CUcontext));
                call(place)
            });
            thread.join().expect("the other thread ends")
        };
        let calls: [fn(CUdeviceptr) -> CUresult; 4] = [
            |_| call!(cuCtxSynchronize()),
            |place| call!(cuMemcpyDtoH_v2([0_u8; 4].as_mut_ptr().cast(), place, 4)),
            |place| call!(cuMemFree_v2(place)),
            |_| call!(cuMemAlloc_v2(&mut 0, 4096)),
        ];
        for (number, call) in calls.into_iter().enumerate() {
            ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
            assert_eq!(elsewhere(call), Err(CUerror::STREAM_CAPTURE_UNSUPPORTED), "call {number}");
            fails!(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &mut graph));
            assert!(graph.is_null(), "call {number}");
        }
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        assert_eq!(elsewhere(calls[3]), Ok(()));
        ok!(cuStreamEndCapture(stream, &mut graph));
        assert!(!graph.is_null());
    });
}

extern "C" fn count_up(data: *mut c_void) {
    // SAFETY: the test passes a pointer to an atomic that outlives the work.
    unsafe { (*data.cast::<AtomicU32>()).fetch_add(1, Ordering::SeqCst) };
    let mut address = 0;
    let refused = call!(cuMemAlloc_v2(&mut address, 4096));
    assert_eq!(refused, Err(turnus_bindings::CUerror::NOT_PERMITTED), "no driver calls in a host function");
}

#[test]
fn a_graph_is_built_by_hand() {
    isolated("a_graph_is_built_by_hand", &[], || {
        let current = context();
        let kernel = function(STORE_ONE, c"store_one");
        let (place, other) = (allocate(4), allocate(4));
        let calls = AtomicU32::new(0);
        let mut graph = std::ptr::null_mut();
        ok!(cuGraphCreate(&mut graph, 0));
        let mut nodes = [std::ptr::null_mut(); 4];
        // SAFETY: all-zero is a valid value of each structure.
        unsafe {
            let mut fill: CUDA_MEMSET_NODE_PARAMS = std::mem::zeroed();
            (fill.dst, fill.elementSize, fill.width, fill.height) = (place, 4, 1, 1);
            ok!(cuGraphAddMemsetNode(&mut nodes[0], graph, std::ptr::null(), 0, &fill, current));
            let mut run: CUDA_KERNEL_NODE_PARAMS = std::mem::zeroed();
            let mut argument = place;
            let mut pointers = [(&raw mut argument).cast::<c_void>()];
            (run.func, run.kernelParams) = (kernel, pointers.as_mut_ptr());
            (run.gridDimX, run.gridDimY, run.gridDimZ) = (1, 1, 1);
            (run.blockDimX, run.blockDimY, run.blockDimZ) = (1, 1, 1);
            let first = nodes[0];
            ok!(cuGraphAddKernelNode_v2(&mut nodes[1], graph, &first, 1, &run));
            let mut copy: CUDA_MEMCPY3D = std::mem::zeroed();
            (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, place);
            (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, other);
            (copy.WidthInBytes, copy.Height, copy.Depth) = (4, 1, 1);
            let second = nodes[1];
            ok!(cuGraphAddMemcpyNode(&mut nodes[2], graph, &second, 1, &copy, current));
            let host = CUDA_HOST_NODE_PARAMS {
                fn_: Some(count_up),
                userData: std::ptr::from_ref(&calls).cast_mut().cast(),
            };
            let third = nodes[2];
            ok!(cuGraphAddHostNode(&mut nodes[3], graph, &third, 1, &host));
        }
        let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
        ok!(cuGraphNodeGetType(nodes[1], &mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_KERNEL);
        let mut edges = 0;
        ok!(cuGraphGetEdges(graph, std::ptr::null_mut(), std::ptr::null_mut(), &mut edges));
        assert_eq!(edges, 3);
        fails!(
            INVALID_VALUE,
            cuGraphAddEmptyNode(&mut nodes[0], graph, &std::ptr::without_provenance_mut(12), 1)
        );
        let mut exec = std::ptr::null_mut();
        ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        let stream = stream();
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!((read(place), read(other), calls.load(Ordering::SeqCst)), (1, 1, 1));
    });
}

#[test]
fn events_and_values_order_streams() {
    isolated("events_and_values_order_streams", &[], || {
        context();
        let (first, second, place, flag) = (stream(), stream(), allocate(4), allocate(4));
        ok!(cuMemsetD32_v2(flag, 0, 1));
        ok!(cuCtxSynchronize());
        let (mut begun, mut ended) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuEventCreate(&mut begun, 0));
        ok!(cuEventCreate(&mut ended, 0));
        ok!(cuEventRecord(begun, first));
        ok!(cuStreamWaitValue32_v2(first, flag, 5, 0));
        ok!(cuMemsetD32Async(place, 77, 1, first));
        ok!(cuEventRecord(ended, first));
        ok!(cuStreamWaitEvent(second, ended, 0));
        fails!(NOT_READY, cuEventQuery(ended));
        fails!(NOT_READY, cuStreamQuery(second));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let third = stream();
        ok!(cuStreamWriteValue32_v2(third, flag, 6, 0));
        ok!(cuStreamSynchronize(second));
        assert_eq!(read(place), 77);
        let mut milliseconds = 0.0;
        ok!(cuEventElapsedTime(&mut milliseconds, begun, ended));
        assert!(milliseconds > 15.0, "{milliseconds}");
        fails!(INVALID_VALUE, cuStreamWaitValue32_v2(first, flag + 1, 5, 0));
        fails!(INVALID_VALUE, cuStreamWaitValue32_v2(first, 0x10, 5, 0));
    });
}
