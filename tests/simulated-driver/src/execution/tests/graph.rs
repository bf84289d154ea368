//! Graphs: launches follow edges, repeat, and never overlap with themselves.

use std::sync::atomic::AtomicUsize;

use super::super::capture::{begin, end};
use super::*;

fn record(bench: &Bench, submit: impl FnOnce(&Arc<Stream>)) -> Arc<Graph> {
    let stream = bench.context.create_stream(true, 0);
    begin(&bench.context, &stream, CaptureMode::ThreadLocal, None).unwrap();
    submit(&stream);
    end(&bench.context, &stream).unwrap()
}

#[test]
fn a_captured_graph_replays_a_hundred_times_with_the_parameters_of_capture() {
    let bench = capture_bench();
    let context = &bench.context;
    let (before, after, calls) = (list(), list(), Arc::new(AtomicUsize::new(0)));
    unsafe extern "C" fn count(data: *mut c_void) {
        // SAFETY: the test passes a counter that lives until the stream is synchronised.
        unsafe { &*data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::AcqRel);
    }
    let graph = record(&bench, |stream| {
        context.submit(stream, kernel_note(&before, 7)).unwrap();
        context
            .submit(
                stream,
                Work::Copy(Arc::new(CopyWork::linear(
                    Memory::Device(BASE),
                    Memory::Staged([1, 2, 3, 4].into()),
                    4,
                ))),
            )
            .unwrap();
        context.submit(stream, host_function(count, Arc::as_ptr(&calls).cast_mut().cast())).unwrap();
        context.submit(stream, kernel_note(&after, 8)).unwrap();
    });
    let exec = graph.instantiate().unwrap();
    drop(graph);
    let stream = context.create_stream(false, 0);
    (0..100).for_each(|_| context.submit(&stream, Work::Graph(exec.clone())).unwrap());
    context.synchronize_stream(&stream).unwrap();
    assert_eq!((before.lock().len(), after.lock().len(), calls.load(Ordering::Acquire)), (100, 100, 100));
    assert_eq!(bench.space.load_value(BASE, 4), Ok(0x0403_0201));
}

#[test]
fn branches_run_beside_each_other_and_launches_of_one_exec_do_not_overlap() {
    let bench = bench();
    let (graph, inside, most) = (Graph::new(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // Each branch ends only when both have started: they must be able to run at the same time.
    let branch = |met: &Arc<AtomicUsize>| {
        let (met, entered) = (met.clone(), AtomicBool::new(false));
        kernel(move || {
            if !entered.swap(true, Ordering::AcqRel) {
                met.fetch_add(1, Ordering::AcqRel);
            }
            if met.load(Ordering::Acquire) >= 2 { KernelStep::Finished } else { KernelStep::Yielded }
        })
    };
    let enter = {
        let (inside, most) = (inside.clone(), most.clone());
        kernel(move || {
            most.fetch_max(inside.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
            KernelStep::Finished
        })
    };
    let leave = {
        let inside = inside.clone();
        kernel(move || {
            inside.fetch_sub(1, Ordering::AcqRel);
            KernelStep::Finished
        })
    };
    let met = Arc::new(AtomicUsize::new(0));
    let root = graph.add_node(enter, &[]).unwrap();
    let branches =
        [graph.add_node(branch(&met), &[root]).unwrap(), graph.add_node(branch(&met), &[root]).unwrap()];
    graph.add_node(leave, &branches).unwrap();
    let exec = graph.instantiate().unwrap();
    let streams = [bench.context.create_stream(true, 0), bench.context.create_stream(true, 0)];
    for _ in 0..20 {
        streams.iter().for_each(|stream| bench.context.submit(stream, Work::Graph(exec.clone())).unwrap());
    }
    let context = bench.context.clone();
    within_seconds(move || context.synchronize_all()).unwrap();
    assert_eq!(most.load(Ordering::Acquire), 1);
    assert_eq!(inside.load(Ordering::Acquire), 0);
}

#[test]
fn a_cycle_or_an_unknown_dependency_is_refused() {
    let graph = Graph::new();
    let first = graph.add_node(Work::Nothing, &[]).unwrap();
    let second = graph.add_node(Work::Nothing, &[first]).unwrap();
    assert_eq!(graph.add_node(Work::Nothing, &[NodeId(u64::MAX)]), Err(CUerror::INVALID_VALUE));
    assert_eq!(graph.add_edge(first, second), Err(CUerror::INVALID_VALUE), "the edge exists");
    graph.add_edge(second, first).unwrap();
    assert_eq!(graph.instantiate().unwrap_err(), CUerror::INVALID_VALUE);
    graph.remove_edge(second, first).unwrap();
    assert!(graph.instantiate().is_ok());
}

#[test]
fn children_copies_and_updates_keep_their_meaning() {
    let bench = bench();
    let context = &bench.context;
    let (seen, child, parent) = (list(), Graph::new(), Graph::new());
    let first = child.add_node(kernel_note(&seen, 2), &[]).unwrap();
    child.add_node(kernel_note(&seen, 3), &[first]).unwrap();
    let head = parent.add_node(kernel_note(&seen, 1), &[]).unwrap();
    let middle = parent.add_node(Work::Child(child), &[head]).unwrap();
    parent.add_node(kernel_note(&seen, 4), &[middle]).unwrap();
    let copy = parent.duplicate();
    let head_of_copy = copy.copy_of(head).unwrap();
    let exec = parent.instantiate().unwrap();
    copy.set_content(head_of_copy, kernel_note(&seen, 10)).unwrap();
    let stream = context.create_stream(false, 0);
    context.submit(&stream, Work::Graph(exec.clone())).unwrap();
    assert_eq!(exec.update(&copy, &|_, _| Ok(())), Ok(Ok(())));
    context.submit(&stream, Work::Graph(exec.clone())).unwrap();
    exec.set_content(head, kernel_note(&seen, 20)).unwrap();
    context.submit(&stream, Work::Graph(exec.clone())).unwrap();
    context.synchronize_stream(&stream).unwrap();
    assert_eq!(*seen.lock(), [1, 2, 3, 4, 10, 2, 3, 4, 20, 2, 3, 4]);
    copy.remove_node(head_of_copy).unwrap();
    let other = Mismatch { difference: Difference::Topology, node: None, from: None };
    assert_eq!(exec.update(&copy, &|_, _| Ok(())), Ok(Err(other)), "another number of nodes");
}

#[test]
fn external_events_are_recorded_and_waited_for_at_launch() {
    let bench = capture_bench();
    let context = &bench.context;
    let (wait, mark, seen, end) = (Event::new(false), Event::new(false), list(), flag());
    let graph = record(&bench, |stream| {
        context.wait_event(stream, &wait, true).unwrap();
        context.submit(stream, kernel_note(&seen, 1)).unwrap();
        context.record_event(stream, &mark, true).unwrap();
    });
    let (exec, stream, other) =
        (graph.instantiate().unwrap(), context.create_stream(true, 0), context.create_stream(true, 0));
    context.submit(&other, kernel_until(&end)).unwrap();
    context.record_event(&other, &wait, false).unwrap();
    context.submit(&stream, Work::Graph(exec)).unwrap();
    assert_eq!(mark.query(), Err(CUerror::NOT_READY));
    assert!(seen.lock().is_empty());
    end.store(true, Ordering::Release);
    mark.synchronize().unwrap();
    assert_eq!(*seen.lock(), [1]);
}
