//! Capture: what becomes a node, what breaks a capture, and with which code.

use super::super::capture::{begin, check_unsafe_call, end, exchange_thread_mode, info, status};
use super::*;

fn started(mode: CaptureMode) -> (Bench, Arc<Stream>) {
    let bench = capture_bench();
    let stream = bench.context.create_stream(true, 0);
    begin(&bench.context, &stream, mode, None).unwrap();
    (bench, stream)
}

fn assert_broken(bench: &Bench, stream: &Arc<Stream>) {
    assert_eq!(status(&bench.context, stream), Ok(CaptureStatus::Invalidated));
    assert_eq!(bench.context.submit(stream, Work::Nothing), Err(CUerror::STREAM_CAPTURE_INVALIDATED));
    assert_eq!(end(&bench.context, stream).unwrap_err(), CUerror::STREAM_CAPTURE_INVALIDATED);
    assert_eq!(status(&bench.context, stream), Ok(CaptureStatus::None));
    assert_eq!(bench.context.synchronize_stream(stream), Ok(()), "the stream is usable again");
}

#[test]
fn captured_work_does_not_run_and_becomes_a_chain() {
    let (bench, stream) = started(CaptureMode::Global);
    let seen = list();
    (0..3).for_each(|number| bench.context.submit(&stream, kernel_note(&seen, number)).unwrap());
    let (active, details) = info(&bench.context, &stream).unwrap();
    assert_eq!(active, CaptureStatus::Active);
    assert_eq!(details.unwrap().dependencies.len(), 1);
    let graph = end(&bench.context, &stream).unwrap();
    assert_eq!((graph.nodes().len(), graph.edges().len()), (3, 2));
    assert!(seen.lock().is_empty());
}

#[test]
fn synchronising_or_asking_a_capturing_stream_breaks_its_capture() {
    for call in [ContextQueue::synchronize_stream, ContextQueue::query_stream] {
        let (bench, stream) = started(CaptureMode::Relaxed);
        assert_eq!(call(&bench.context, &stream), Err(CUerror::STREAM_CAPTURE_UNSUPPORTED));
        assert_broken(&bench, &stream);
    }
    let (bench, stream) = started(CaptureMode::Relaxed);
    assert_eq!(bench.context.synchronize_all(), Err(CUerror::STREAM_CAPTURE_UNSUPPORTED));
    assert_broken(&bench, &stream);
    drop(bench);
    let (bench, stream) = started(CaptureMode::Relaxed);
    assert_eq!(
        bench.context.submit_and_wait(&stream, Work::Nothing),
        Err(CUerror::STREAM_CAPTURE_UNSUPPORTED)
    );
    assert_broken(&bench, &stream);
}

#[test]
fn a_stream_callback_cannot_be_captured() {
    let (bench, stream) = started(CaptureMode::Relaxed);
    let callback = Work::Callback(Arc::new(|_| {}));
    assert_eq!(bench.context.submit(&stream, callback), Err(CUerror::STREAM_CAPTURE_UNSUPPORTED));
    assert_broken(&bench, &stream);
}

#[test]
fn asking_a_captured_event_breaks_the_capture() {
    let (bench, stream) = started(CaptureMode::Relaxed);
    let event = Event::new(true);
    bench.context.record_event(&stream, &event, false).unwrap();
    assert_eq!(event.query(), Err(CUerror::CAPTURED_EVENT));
    assert_broken(&bench, &stream);
}

#[test]
fn legacy_work_breaks_captures_of_blocking_streams_only() {
    let bench = capture_bench();
    let context = &bench.context;
    let (blocking, legacy) = (context.create_stream(false, 0), context.legacy_stream());
    assert_eq!(begin(context, &legacy, CaptureMode::Global, None), Err(CUerror::STREAM_CAPTURE_UNSUPPORTED));
    begin(context, &blocking, CaptureMode::Relaxed, None).unwrap();
    assert_eq!(context.submit(&legacy, Work::Nothing), Err(CUerror::STREAM_CAPTURE_IMPLICIT));
    assert_broken(&bench, &blocking);
    drop(bench);
    let (bench, stream) = started(CaptureMode::Relaxed);
    assert_eq!(bench.context.submit(&bench.context.legacy_stream(), Work::Nothing), Ok(()));
    assert!(end(&bench.context, &stream).is_ok());
}

#[test]
fn unsafe_calls_are_refused_by_the_modes_of_capture_and_thread() {
    let elsewhere = || std::thread::spawn(check_unsafe_call).join().unwrap();
    let refused = Err(CUerror::STREAM_CAPTURE_UNSUPPORTED);
    for (mode, here, there) in [
        (CaptureMode::Global, refused, refused),
        (CaptureMode::ThreadLocal, refused, Ok(())),
        (CaptureMode::Relaxed, Ok(()), Ok(())),
    ] {
        let (bench, stream) = started(mode);
        assert_eq!(elsewhere(), there, "{mode:?}");
        if there.is_err() {
            assert_broken(&bench, &stream);
            begin(&bench.context, &stream, mode, None).unwrap();
        }
        assert_eq!(exchange_thread_mode(CaptureMode::Relaxed), CaptureMode::Global);
        assert_eq!(check_unsafe_call(), Ok(()), "a relaxed thread may");
        assert_eq!(exchange_thread_mode(CaptureMode::Global), CaptureMode::Relaxed);
        assert_eq!(check_unsafe_call(), here, "{mode:?}");
        assert_eq!(end(&bench.context, &stream).is_ok(), here.is_ok());
    }
}

#[test]
fn another_thread_that_synchronises_breaks_a_global_capture() {
    let (bench, stream) = started(CaptureMode::Global);
    let (context, other) = (bench.context.clone(), bench.context.create_stream(true, 0));
    let outcome = within_seconds(move || context.synchronize_stream(&other));
    assert_eq!(outcome, Err(CUerror::STREAM_CAPTURE_UNSUPPORTED));
    assert_broken(&bench, &stream);
}

#[test]
fn a_stream_joins_by_an_event_and_must_join_back() {
    for joined_back in [true, false] {
        let (bench, stream) = started(CaptureMode::Global);
        let context = &bench.context;
        let (side, fork, join) = (context.create_stream(true, 0), Event::new(false), Event::new(false));
        context.submit(&stream, Work::Nothing).unwrap();
        context.record_event(&stream, &fork, false).unwrap();
        context.wait_event(&side, &fork, false).unwrap();
        assert_eq!(status(context, &side), Ok(CaptureStatus::Active));
        context.submit(&side, Work::Nothing).unwrap();
        context.submit(&stream, Work::Nothing).unwrap();
        if joined_back {
            context.record_event(&side, &join, false).unwrap();
            context.wait_event(&stream, &join, false).unwrap();
        }
        assert_eq!(end(context, &side).unwrap_err(), CUerror::STREAM_CAPTURE_UNMATCHED);
        context.submit(&stream, Work::Nothing).unwrap();
        match end(context, &stream) {
            Ok(graph) => {
                assert!(joined_back);
                assert_eq!((graph.nodes().len(), graph.edges().len()), (4, 4), "a diamond");
            }
            Err(error) => {
                assert!(!joined_back);
                assert_eq!(error, CUerror::STREAM_CAPTURE_UNJOINED);
            }
        }
        assert_eq!(status(context, &side), Ok(CaptureStatus::None));
    }
}

#[test]
fn dependencies_may_not_cross_the_edge_of_a_capture() {
    let (bench, stream) = started(CaptureMode::Relaxed);
    let context = &bench.context;
    let (event, never) = (Event::new(false), Event::new(false));
    context.record_event(&context.create_stream(true, 0), &event, false).unwrap();
    assert_eq!(context.wait_event(&stream, &never, false), Ok(()));
    assert_eq!(context.wait_event(&stream, &event, false), Err(CUerror::STREAM_CAPTURE_ISOLATION));
    assert_broken(&bench, &stream);

    let other = context.create_stream(true, 0);
    begin(context, &stream, CaptureMode::Relaxed, None).unwrap();
    begin(context, &other, CaptureMode::Relaxed, None).unwrap();
    context.record_event(&stream, &event, false).unwrap();
    assert_eq!(context.wait_event(&other, &event, false), Err(CUerror::STREAM_CAPTURE_MERGE));
    assert_broken(&bench, &stream);
    assert_broken(&bench, &other);
}

#[test]
fn a_capture_ends_on_the_thread_and_in_the_stream_it_began_in() {
    let (bench, stream) = started(CaptureMode::Global);
    let there = (bench.context.clone(), stream.clone());
    let outcome = within_seconds(move || end(&there.0, &there.1).map(drop));
    assert_eq!(outcome, Err(CUerror::STREAM_CAPTURE_WRONG_THREAD));
    assert_eq!(begin(&bench.context, &stream, CaptureMode::Global, None), Err(CUerror::ILLEGAL_STATE));
    assert!(end(&bench.context, &stream).is_ok());
    assert_eq!(end(&bench.context, &stream).unwrap_err(), CUerror::ILLEGAL_STATE);
}

#[test]
fn dropping_the_first_stream_ends_its_capture() {
    let (bench, stream) = started(CaptureMode::Global);
    drop(stream);
    assert_eq!(check_unsafe_call(), Ok(()), "no capture is left open");
    assert_eq!(bench.context.synchronize_all(), Ok(()));
}
