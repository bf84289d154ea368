//! What waits for what: streams, the legacy stream, events, host functions, memory waits.

use super::*;

#[test]
fn work_of_one_stream_runs_in_order_of_submission() {
    let bench = bench();
    let stream = bench.context.create_stream(false, 0);
    let seen = list();
    (0..200).for_each(|number| bench.context.submit(&stream, kernel_note(&seen, number)).unwrap());
    bench.context.synchronize_stream(&stream).unwrap();
    assert_eq!(*seen.lock(), (0..200).collect::<Vec<_>>());
}

#[test]
fn submission_returns_while_the_kernel_runs() {
    let bench = bench();
    let (stream, end) = (bench.context.create_stream(false, 0), flag());
    bench.context.submit(&stream, kernel_until(&end)).unwrap();
    assert_eq!(bench.context.query_stream(&stream), Err(CUerror::NOT_READY));
    end.store(true, Ordering::Release);
    bench.context.synchronize_stream(&stream).unwrap();
    assert_eq!(bench.context.query_stream(&stream), Ok(()));
}

#[test]
fn a_launch_into_a_full_queue_waits_until_a_kernel_has_finished() {
    let bench = bench();
    let (context, end) = (bench.context.clone(), flag());
    let stream = context.create_stream(true, 0);
    context.submit(&stream, kernel_until(&end)).unwrap();
    let (submitted, seen) = (flag(), list());
    let thread = {
        let (context, stream, submitted, seen) =
            (context.clone(), stream.clone(), submitted.clone(), seen.clone());
        std::thread::spawn(move || {
            (0..1200).for_each(|number| context.submit(&stream, kernel_note(&seen, number)).unwrap());
            submitted.store(true, Ordering::Release);
        })
    };
    std::thread::sleep(Duration::from_millis(50));
    assert!(!submitted.load(Ordering::Acquire), "the queue is full");
    let other = context.create_stream(true, 0);
    context.submit(&other, kernel_note(&seen, 0)).unwrap();
    let waiting = (context.clone(), other.clone());
    within_seconds(move || waiting.0.synchronize_stream(&waiting.1)).unwrap();
    end.store(true, Ordering::Release);
    thread.join().unwrap();
    context.synchronize_stream(&stream).unwrap();
    assert_eq!(seen.lock().len(), 1201);
}

#[test]
fn a_stream_of_another_context_is_refused() {
    let (first, second) = (bench(), new_bench(Box::new(())));
    let stream = first.context.create_stream(false, 0);
    assert_eq!(second.context.submit(&stream, Work::Nothing), Err(CUerror::INVALID_HANDLE));
    assert_eq!(second.context.query_stream(&stream), Err(CUerror::INVALID_HANDLE));
}

#[test]
fn kernels_of_two_streams_that_wait_for_each_other_both_end() {
    let bench = bench();
    let (first, second) = (flag(), flag());
    let meet = |mine: &Arc<AtomicBool>, other: &Arc<AtomicBool>| {
        let (mine, other) = (mine.clone(), other.clone());
        kernel(move || {
            mine.store(true, Ordering::Release);
            if other.load(Ordering::Acquire) { KernelStep::Finished } else { KernelStep::Yielded }
        })
    };
    bench.context.submit(&bench.context.create_stream(false, 0), meet(&first, &second)).unwrap();
    bench.context.submit(&bench.context.create_stream(false, -1), meet(&second, &first)).unwrap();
    let context = bench.context.clone();
    within_seconds(move || context.synchronize_all()).unwrap();
}

#[test]
fn legacy_work_waits_for_blocking_streams_and_holds_them_up() {
    let bench = bench();
    let context = &bench.context;
    let (stream, legacy, end, seen) =
        (context.create_stream(false, 0), context.legacy_stream(), flag(), list());
    context.submit(&stream, kernel_until(&end)).unwrap();
    context.submit(&stream, kernel_note(&seen, 1)).unwrap();
    context.submit(&legacy, kernel_note(&seen, 2)).unwrap();
    context.submit(&context.create_stream(false, 0), kernel_note(&seen, 3)).unwrap();
    context.submit(&context.per_thread_stream(), kernel_note(&seen, 4)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(seen.lock().is_empty(), "all of it waits for the first kernel");
    assert_eq!(context.query_stream(&legacy), Err(CUerror::NOT_READY));
    end.store(true, Ordering::Release);
    context.synchronize_all().unwrap();
    let seen = seen.lock().clone();
    assert_eq!(&seen[..2], [1, 2]);
    assert_eq!(seen.len(), 4);
}

#[test]
fn non_blocking_streams_and_the_legacy_stream_do_not_wait_for_each_other() {
    let bench = bench();
    let context = &bench.context;
    let (stream, legacy, end, seen) =
        (context.create_stream(true, 0), context.legacy_stream(), flag(), list());
    context.submit(&stream, kernel_until(&end)).unwrap();
    context.submit(&legacy, kernel_note(&seen, 1)).unwrap();
    let waiting = (context.clone(), legacy.clone());
    within_seconds(move || waiting.0.synchronize_stream(&waiting.1)).unwrap();
    assert_eq!(*seen.lock(), [1]);
    end.store(true, Ordering::Release);
    context.synchronize_stream(&stream).unwrap();

    let held = flag();
    context.submit(&legacy, kernel_until(&held)).unwrap();
    context.submit(&stream, kernel_note(&seen, 2)).unwrap();
    let waiting = (context.clone(), stream.clone());
    within_seconds(move || waiting.0.synchronize_stream(&waiting.1)).unwrap();
    assert_eq!(*seen.lock(), [1, 2]);
    held.store(true, Ordering::Release);
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let bench = bench();
    let context = bench.context.clone();
    let (own, end) = (context.per_thread_stream(), flag());
    assert_eq!(own.id(), context.per_thread_stream().id());
    context.submit(&own, kernel_until(&end)).unwrap();
    let other = context.clone();
    let other_id = within_seconds(move || {
        let stream = other.per_thread_stream();
        let seen = list();
        other.submit(&stream, kernel_note(&seen, 1)).unwrap();
        other.synchronize_stream(&stream).unwrap();
        stream.id()
    });
    assert_ne!(own.id(), other_id);
    end.store(true, Ordering::Release);
    context.synchronize_stream(&own).unwrap();
}

#[test]
fn a_stream_waits_for_an_event_of_another_stream_as_it_was_last_recorded() {
    let bench = bench();
    let context = &bench.context;
    let (first, second) = (context.create_stream(true, 0), context.create_stream(true, 0));
    let (event, end, seen) = (Event::new(true), flag(), list());
    assert_eq!(event.query(), Ok(()), "an event never recorded is complete");
    context.submit(&first, kernel_until(&end)).unwrap();
    context.record_event(&first, &event, false).unwrap();
    context.wait_event(&second, &event, false).unwrap();
    context.submit(&second, kernel_note(&seen, 1)).unwrap();
    assert_eq!(event.query(), Err(CUerror::NOT_READY));
    std::thread::sleep(Duration::from_millis(10));
    assert!(seen.lock().is_empty());
    // A later record elsewhere does not change what the stream waits for.
    context.record_event(&context.create_stream(true, 0), &event, false).unwrap();
    event.synchronize().unwrap();
    assert!(seen.lock().is_empty());
    end.store(true, Ordering::Release);
    context.synchronize_stream(&second).unwrap();
    assert_eq!(*seen.lock(), [1]);
}

#[test]
fn events_of_another_context_can_be_waited_for() {
    let (first, second) = (bench(), new_bench(Box::new(())));
    let (here, there) = (first.context.create_stream(false, 0), second.context.create_stream(false, 0));
    let (event, end, seen) = (Event::new(false), flag(), list());
    first.context.submit(&here, kernel_until(&end)).unwrap();
    first.context.record_event(&here, &event, false).unwrap();
    second.context.wait_event(&there, &event, false).unwrap();
    second.context.submit(&there, kernel_note(&seen, 1)).unwrap();
    assert_eq!(second.context.query_stream(&there), Err(CUerror::NOT_READY));
    end.store(true, Ordering::Release);
    second.context.synchronize_stream(&there).unwrap();
    assert_eq!(*seen.lock(), [1]);
}

#[test]
fn elapsed_time_needs_two_reached_events_with_timing() {
    let bench = bench();
    let context = &bench.context;
    let stream = context.create_stream(false, 0);
    let (start, stop, end) = (Event::new(true), Event::new(true), flag());
    assert_eq!(start.elapsed_ms(&stop), Err(CUerror::INVALID_HANDLE), "not recorded");
    context.record_event(&stream, &start, false).unwrap();
    context.submit(&stream, kernel_until(&end)).unwrap();
    context.record_event(&stream, &stop, false).unwrap();
    assert_eq!(start.elapsed_ms(&stop), Err(CUerror::NOT_READY));
    std::thread::sleep(Duration::from_millis(30));
    end.store(true, Ordering::Release);
    stop.synchronize().unwrap();
    let elapsed = start.elapsed_ms(&stop).unwrap();
    assert!((29.0..2000.0).contains(&elapsed), "{elapsed}");
    assert!(stop.elapsed_ms(&start).unwrap() < 0.0);
    assert_eq!(start.elapsed_ms(&Event::new(false)), Err(CUerror::INVALID_HANDLE));
}

#[test]
fn a_dropped_stream_lets_its_work_finish_and_the_legacy_stream_waits_for_it() {
    let bench = bench();
    let context = &bench.context;
    let (stream, end, seen) = (context.create_stream(false, 0), flag(), list());
    context.submit(&stream, kernel_until(&end)).unwrap();
    context.submit(&stream, kernel_note(&seen, 1)).unwrap();
    drop(stream);
    context.submit(&context.legacy_stream(), kernel_note(&seen, 2)).unwrap();
    assert!(seen.lock().is_empty());
    end.store(true, Ordering::Release);
    context.synchronize_all().unwrap();
    assert_eq!(*seen.lock(), [1, 2]);
}

#[test]
fn a_host_function_may_block_on_a_mutex_without_stopping_other_streams() {
    static HELD: Mutex<()> = Mutex::new(());
    unsafe extern "C" fn wait_for_mutex(data: *mut c_void) {
        assert!(in_host_function());
        drop(HELD.lock());
        // SAFETY: the test passes a flag that lives until the stream is synchronised.
        unsafe { &*data.cast::<AtomicBool>() }.store(true, Ordering::Release);
    }
    let bench = bench();
    let context = &bench.context;
    let (stream, other, called, seen) =
        (context.create_stream(true, 0), context.create_stream(true, 0), flag(), list());
    let guard = HELD.lock();
    context.submit(&stream, host_function(wait_for_mutex, Arc::as_ptr(&called).cast_mut().cast())).unwrap();
    context.submit(&stream, kernel_note(&seen, 2)).unwrap();
    context.submit(&other, kernel_note(&seen, 1)).unwrap();
    let waiting = (context.clone(), other.clone());
    within_seconds(move || waiting.0.synchronize_stream(&waiting.1)).unwrap();
    assert_eq!(*seen.lock(), [1]);
    assert_eq!(context.query_stream(&stream), Err(CUerror::NOT_READY));
    drop(guard);
    context.synchronize_stream(&stream).unwrap();
    assert!(called.load(Ordering::Acquire) && !in_host_function());
    assert_eq!(*seen.lock(), [1, 2]);
}

#[test]
fn a_stream_waits_for_a_value_that_another_stream_writes() {
    let bench = bench();
    let context = &bench.context;
    let (waiting, writing, seen) = (context.create_stream(true, 0), context.create_stream(true, 0), list());
    let wait =
        Work::WaitValue { address: BASE, value: 5, bytes: 4, condition: WaitCondition::GreaterOrEqual };
    context.submit(&waiting, wait).unwrap();
    context.submit(&waiting, kernel_note(&seen, 1)).unwrap();
    context.submit(&writing, Work::WriteValue { address: BASE, value: 4, bytes: 4 }).unwrap();
    context.synchronize_stream(&writing).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(context.query_stream(&waiting), Err(CUerror::NOT_READY));
    context.submit(&writing, Work::WriteValue { address: BASE, value: 5, bytes: 4 }).unwrap();
    context.synchronize_stream(&waiting).unwrap();
    assert_eq!(*seen.lock(), [1]);
}

#[test]
fn copies_move_rows_and_fills_write_elements() {
    let bench = bench();
    let context = &bench.context;
    let stream = context.create_stream(false, 0);
    let source: Vec<u8> = (0..64).collect();
    let mut destination = vec![0u8; 64];
    let end = |memory, row_pitch_bytes| CopyEnd { memory, row_pitch_bytes, slice_pitch_bytes: 0 };
    let to_device = CopyWork {
        destination: end(Memory::Device(BASE), 100),
        source: end(Memory::Staged(source.clone().into()), 16),
        width_bytes: 16,
        height: 4,
        depth: 1,
    };
    context.submit(&stream, Work::Copy(Arc::new(to_device))).unwrap();
    let fill = FillWork {
        destination: BASE + 100,
        row_pitch_bytes: 0,
        value: 0xBBAA,
        element_bytes: 2,
        width: 4,
        height: 1,
    };
    context.submit(&stream, Work::Fill(Arc::new(fill))).unwrap();
    let to_host = CopyWork {
        destination: end(Memory::Host(HostPointer(destination.as_mut_ptr().cast())), 16),
        source: end(Memory::Device(BASE), 100),
        width_bytes: 16,
        height: 4,
        depth: 1,
    };
    context.submit_and_wait(&stream, Work::Copy(Arc::new(to_host))).unwrap();
    let mut expected = source;
    expected[16..24].copy_from_slice(&[0xAA, 0xBB, 0xAA, 0xBB, 0xAA, 0xBB, 0xAA, 0xBB]);
    assert_eq!(destination, expected);
    assert_eq!(
        bench.space.load_value(BASE + 300, 8),
        Ok(u64::from_le_bytes(*b"\x30\x31\x32\x33\x34\x35\x36\x37"))
    );
}
