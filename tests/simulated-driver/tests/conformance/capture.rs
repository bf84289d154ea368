//! What a capture allows, and what breaks it: in all modes, from the capturing thread and from others.
//!
//! Rules: CUDA driver API, cuStreamBeginCapture, cuThreadExchangeStreamCaptureMode and the entries of the codes
//! 900 to 908.

use std::ffi::c_void;

use crate::common::{allocate, context, isolated};
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

fn stream(flags: u32) -> CUstream {
    let mut stream = std::ptr::null_mut();
    ok!(cuStreamCreate(&mut stream, flags));
    stream
}

fn event() -> CUevent {
    let mut event = std::ptr::null_mut();
    ok!(cuEventCreate(&mut event, 0));
    event
}

fn begin(stream: CUstream, mode: CUstreamCaptureMode) {
    ok!(cuStreamBeginCapture_v2(stream, mode));
}

/// What ending the capture says; the graph, if any, is destroyed.
fn end(stream: CUstream) -> CUresult {
    let mut graph = std::ptr::null_mut();
    let outcome = call!(cuStreamEndCapture(stream, &mut graph));
    assert_eq!(outcome.is_ok(), !graph.is_null());
    if !graph.is_null() {
        ok!(cuGraphDestroy(graph));
    }
    outcome
}

fn status(stream: CUstream) -> CUstreamCaptureStatus {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    ok!(cuStreamIsCapturing(stream, &mut status));
    status
}

/// Calls in another thread, with the context current there.
fn elsewhere<T: Send>(context: CUcontext, body: impl FnOnce() -> T + Send) -> T {
    let address = context as usize;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            ok!(cuCtxSetCurrent(address as CUcontext));
            body()
        });
        thread.join().expect("the other thread ends")
    })
}

const MODES: [CUstreamCaptureMode; 3] =
    [CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED];

#[test]
fn unsafe_calls_of_other_threads_break_global_captures_only() {
    isolated("unsafe_calls_of_other_threads_break_global_captures_only", &[], || {
        let context = context();
        let (stream, place, mut host) = (stream(1), allocate(4), [0_u32; 1]);
        let place_of_host = host.as_mut_ptr() as usize;
        for mode in MODES {
            let global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
            let refused = if global { Err(CUerror::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) };
            let ended = if global { Err(CUerror::STREAM_CAPTURE_INVALIDATED) } else { Ok(()) };
            begin(stream, mode);
            let outcome = elsewhere(context, || {
                let mut address = 0;
                let outcome = call!(cuMemAlloc_v2(&mut address, 4096));
                if outcome.is_ok() {
                    ok!(cuMemFree_v2(address));
                }
                outcome
            });
            assert_eq!((outcome, end(stream)), (refused, ended), "allocation in mode {}", mode.0);
            begin(stream, mode);
            let outcome = elsewhere(context, || {
                // A thread may say that its calls are none of the capture's business.
                let mut own = CU_STREAM_CAPTURE_MODE_RELAXED;
                ok!(cuThreadExchangeStreamCaptureMode(&mut own));
                let mut address = 0;
                let outcome = call!(cuMemAlloc_v2(&mut address, 4096));
                outcome.and_then(|()| call!(cuMemFree_v2(address)))
            });
            assert_eq!((outcome, end(stream)), (Ok(()), Ok(())), "relaxed thread, mode {}", mode.0);
        }
        // A synchronous copy in a stream of its own is such a call too.
        begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        let outcome = elsewhere(context, || call!(cuMemcpyDtoH_v2(place_of_host as *mut c_void, place, 4)));
        assert!(outcome.is_err());
        assert_eq!(status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        assert_eq!(end(stream), Err(CUerror::STREAM_CAPTURE_INVALIDATED));
        assert_eq!(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    });
}

#[test]
fn unsafe_calls_of_the_capturing_thread_need_relaxed_mode() {
    isolated("unsafe_calls_of_the_capturing_thread_need_relaxed_mode", &[], || {
        context();
        let stream = stream(1);
        for mode in MODES {
            let relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
            begin(stream, mode);
            let mut address = 0;
            let outcome = call!(cuMemAlloc_v2(&mut address, 4096));
            assert_eq!(outcome.is_ok(), relaxed, "mode {}", mode.0);
            assert_eq!(end(stream).is_ok(), relaxed, "mode {}", mode.0);
        }
    });
}

#[test]
fn synchronising_a_captured_stream_breaks_it_in_every_mode() {
    isolated("synchronising_a_captured_stream_breaks_it_in_every_mode", &[], || {
        context();
        let stream = stream(1);
        let calls: [(&str, &dyn Fn() -> CUresult); 3] = [
            ("cuStreamSynchronize", &|| call!(cuStreamSynchronize(stream))),
            ("cuStreamQuery", &|| call!(cuStreamQuery(stream))),
            ("cuCtxSynchronize", &|| call!(cuCtxSynchronize())),
        ];
        for mode in MODES {
            for (name, call) in calls {
                begin(stream, mode);
                assert_eq!(call(), Err(CUerror::STREAM_CAPTURE_UNSUPPORTED), "{name}, mode {}", mode.0);
                assert_eq!(end(stream), Err(CUerror::STREAM_CAPTURE_INVALIDATED), "{name}, mode {}", mode.0);
            }
        }
    });
}

#[test]
fn the_legacy_stream_and_blocking_captures_exclude_each_other() {
    isolated("the_legacy_stream_and_blocking_captures_exclude_each_other", &[], || {
        context();
        let (blocking, free, place) = (stream(0), stream(1), allocate(4));
        let legacy: CUstream = std::ptr::null_mut();
        fails!(STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(legacy, CU_STREAM_CAPTURE_MODE_RELAXED));
        begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
        fails!(STREAM_CAPTURE_IMPLICIT, cuMemsetD32Async(place, 1, 1, legacy));
        assert_eq!(end(blocking), Err(CUerror::STREAM_CAPTURE_INVALIDATED));
        begin(free, CU_STREAM_CAPTURE_MODE_RELAXED);
        ok!(cuMemsetD32Async(place, 1, 1, legacy));
        assert_eq!(end(free), Ok(()));
        begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        fails!(STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(legacy, &mut status));
        assert_eq!(end(blocking), Ok(()), "asking breaks nothing");
    });
}

#[test]
fn captured_events_order_streams_and_answer_no_questions() {
    isolated("captured_events_order_streams_and_answer_no_questions", &[], || {
        context();
        let (first, second, third, place) = (stream(1), stream(1), stream(1), allocate(8));
        let (fork, join, other) = (event(), event(), event());
        begin(first, CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok!(cuEventRecord(fork, first));
        ok!(cuStreamWaitEvent(second, fork, 0));
        assert_eq!(status(second), CU_STREAM_CAPTURE_STATUS_ACTIVE, "a stream joins by waiting");
        ok!(cuMemsetD32Async(place, 1, 1, second));
        ok!(cuMemsetD32Async(place + 4, 1, 1, first));
        ok!(cuEventRecord(join, second));
        ok!(cuStreamWaitEvent(first, join, 0));
        assert_eq!(end(first), Ok(()));
        fails!(CAPTURED_EVENT, cuEventQuery(join));

        begin(first, CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok!(cuEventRecord(fork, first));
        ok!(cuStreamWaitEvent(second, fork, 0));
        ok!(cuMemsetD32Async(place, 1, 1, second));
        let mut graph = std::ptr::null_mut();
        fails!(STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(second, &mut graph));
        assert_eq!(end(first), Err(CUerror::STREAM_CAPTURE_UNJOINED));

        begin(first, CU_STREAM_CAPTURE_MODE_GLOBAL);
        begin(third, CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok!(cuEventRecord(other, third));
        fails!(STREAM_CAPTURE_MERGE, cuStreamWaitEvent(first, other, 0));
        assert!(end(first).is_err());
        assert!(end(third).is_err());

        ok!(cuEventRecord(other, second));
        begin(first, CU_STREAM_CAPTURE_MODE_GLOBAL);
        fails!(STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(first, other, 0));
        assert_eq!(end(first), Err(CUerror::STREAM_CAPTURE_INVALIDATED));
    });
}

#[test]
fn a_capture_ends_in_the_thread_where_it_began() {
    isolated("a_capture_ends_in_the_thread_where_it_began", &[], || {
        let context = context();
        let stream = stream(1);
        let address = stream as usize;
        for mode in MODES {
            begin(stream, mode);
            let outcome = elsewhere(context, || end(address as CUstream));
            if mode == CU_STREAM_CAPTURE_MODE_RELAXED {
                assert_eq!(outcome, Ok(()));
            } else {
                assert_eq!(outcome, Err(CUerror::STREAM_CAPTURE_WRONG_THREAD), "mode {}", mode.0);
                assert_eq!(end(stream), Ok(()));
            }
        }
        fails!(ILLEGAL_STATE, cuStreamEndCapture(stream, &mut std::ptr::null_mut()));
        begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        fails!(ILLEGAL_STATE, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        assert_eq!(end(stream), Ok(()));
    });
}

extern "C" fn nothing(_: CUstream, _: CUresult, _: *mut c_void) {}

#[test]
fn callbacks_cannot_be_captured() {
    isolated("callbacks_cannot_be_captured", &[], || {
        context();
        let stream = stream(1);
        begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        let callback: CUstreamCallback = Some(nothing);
        fails!(STREAM_CAPTURE_UNSUPPORTED, cuStreamAddCallback(stream, callback, std::ptr::null_mut(), 0));
        assert_eq!(end(stream), Err(CUerror::STREAM_CAPTURE_INVALIDATED));
    });
}

#[test]
fn a_capture_adds_to_a_graph_behind_what_it_is_told() {
    isolated("a_capture_adds_to_a_graph_behind_what_it_is_told", &[], || {
        context();
        let (stream, place, mut own) = (stream(1), allocate(4), std::ptr::null_mut());
        ok!(cuGraphCreate(&mut own, 0));
        let (mut first, mut second) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuGraphAddEmptyNode(&mut first, own, std::ptr::null(), 0));
        ok!(cuGraphAddEmptyNode(&mut second, own, std::ptr::null(), 0));
        let mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        ok!(cuStreamBeginCaptureToGraph(stream, own, &first, std::ptr::null(), 1, mode));
        let (mut id, mut graph, mut last, mut count) = (0, std::ptr::null_mut(), std::ptr::null(), 0);
        let mut state = CU_STREAM_CAPTURE_STATUS_NONE;
        let mut edges = std::ptr::null();
        ok!(cuStreamGetCaptureInfo_v3(
            stream, &mut state, &mut id, &mut graph, &mut last, &mut edges, &mut count
        ));
        assert_eq!((state, graph, count), (CU_STREAM_CAPTURE_STATUS_ACTIVE, own, 1));
        // SAFETY: the driver returned an array of one node.
        assert_eq!(unsafe { *last }, first);
        ok!(cuStreamUpdateCaptureDependencies(stream, &mut second, 1, 0));
        ok!(cuMemsetD32Async(place, 1, 1, stream));
        let mut stray: CUgraphNode = std::ptr::without_provenance_mut(0x1230);
        fails!(INVALID_VALUE, cuStreamUpdateCaptureDependencies(stream, &mut stray, 1, 1));
        ok!(cuStreamUpdateCaptureDependencies(stream, &mut second, 1, 1));
        ok!(cuMemsetD32Async(place, 2, 1, stream));
        ok!(cuStreamEndCapture(stream, &mut graph));
        assert_eq!(graph, own, "no new graph");
        let (mut nodes, mut count) = ([std::ptr::null_mut(); 4], 4);
        ok!(cuGraphGetNodes(own, nodes.as_mut_ptr(), &mut count));
        assert_eq!(count, 4);
        let fills: Vec<_> = nodes.into_iter().filter(|node| *node != first && *node != second).collect();
        let mut before: Vec<_> = fills
            .iter()
            .map(|fill| {
                let mut count = 0;
                ok!(cuGraphNodeGetDependencies(*fill, std::ptr::null_mut(), &mut count));
                count
            })
            .collect();
        before.sort_unstable();
        assert_eq!(before, [1, 2], "one behind both, one behind the second alone");
        let (mut later, mut none) = (CU_STREAM_CAPTURE_STATUS_ACTIVE, 7);
        ok!(cuStreamGetCaptureInfo(stream, &mut later, &mut none));
        assert_eq!(later, CU_STREAM_CAPTURE_STATUS_NONE);
    });
}

#[test]
fn a_graph_launched_in_a_capture_is_a_graph_inside() {
    isolated("a_graph_launched_in_a_capture_is_a_graph_inside", &[], || {
        context();
        let (stream, place) = (stream(1), allocate(4));
        let (mut inner, mut outer, mut exec) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok!(cuMemsetD32Async(place, 6, 1, stream));
        ok!(cuStreamEndCapture(stream, &mut inner));
        ok!(cuGraphInstantiateWithFlags(&mut exec, inner, 0));
        begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamEndCapture(stream, &mut outer));
        let (mut node, mut count, mut kind) = (std::ptr::null_mut(), 1, CU_GRAPH_NODE_TYPE_EMPTY);
        ok!(cuGraphGetNodes(outer, &mut node, &mut count));
        ok!(cuGraphNodeGetType(node, &mut kind));
        assert_eq!((count, kind), (1, CU_GRAPH_NODE_TYPE_GRAPH));
        ok!(cuGraphExecDestroy(exec));
        ok!(cuGraphInstantiateWithFlags(&mut exec, outer, 0));
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        let mut value = 0_u32;
        ok!(cuMemcpyDtoH_v2((&raw mut value).cast(), place, 4));
        assert_eq!(value, 6);
    });
}
