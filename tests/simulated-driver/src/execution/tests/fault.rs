//! What a fault leaves behind: a sticky error, no work done after it, and nobody waiting forever.

use super::*;

fn faulty() -> Work {
    kernel(|| KernelStep::Faulted(Fault::at(CUerror::ILLEGAL_ADDRESS, 0xdead)))
}

#[test]
fn a_kernel_fault_sticks_to_all_calls_of_its_context_and_to_no_other() {
    let (lost, sound) = (bench(), new_bench(Box::new(())));
    let context = &lost.context;
    let (stream, event, seen) = (context.create_stream(false, 0), Event::new(true), list());
    context.submit(&stream, faulty()).unwrap();
    context.submit(&stream, kernel_note(&seen, 1)).ok();
    assert_eq!(context.synchronize_stream(&stream), Err(CUerror::ILLEGAL_ADDRESS));
    assert_eq!(context.submit(&stream, kernel_note(&seen, 2)), Err(CUerror::ILLEGAL_ADDRESS));
    assert_eq!(context.query_stream(&stream), Err(CUerror::ILLEGAL_ADDRESS));
    assert_eq!(context.synchronize_all(), Err(CUerror::ILLEGAL_ADDRESS));
    assert_eq!(context.record_event(&stream, &event, false), Err(CUerror::ILLEGAL_ADDRESS));
    assert_eq!(context.sticky(), Some(CUerror::ILLEGAL_ADDRESS));
    assert!(seen.lock().is_empty(), "nothing runs after a fault");
    let other = sound.context.create_stream(false, 0);
    sound.context.submit(&other, kernel_note(&seen, 3)).unwrap();
    sound.context.synchronize_stream(&other).unwrap();
    assert_eq!(*seen.lock(), [3]);
}

#[test]
fn the_first_fault_stays() {
    let bench = bench();
    bench.context.fault(CUerror::ILLEGAL_ADDRESS);
    bench.context.fault(CUerror::LAUNCH_FAILED);
    assert_eq!(bench.context.check(), Err(CUerror::ILLEGAL_ADDRESS));
}

#[test]
fn a_fault_from_outside_stops_running_and_waiting_work() {
    let bench = bench();
    let context = bench.context.clone();
    let (stream, waiting) = (context.create_stream(true, 0), context.create_stream(true, 0));
    context.submit(&stream, kernel(|| KernelStep::Yielded)).unwrap();
    let wait = Work::WaitValue { address: BASE, value: 1, bytes: 8, condition: WaitCondition::Equal };
    context.submit(&waiting, wait).unwrap();
    while !context.running() {
        std::thread::yield_now();
    }
    context.fault(CUerror::ILLEGAL_ADDRESS);
    within_seconds(move || context.wait_all());
    assert!(!bench.context.running());
}

#[test]
fn a_copy_outside_of_mapped_memory_faults_and_callbacks_hear_of_it() {
    let bench = bench();
    let context = &bench.context;
    let stream = context.create_stream(false, 0);
    let heard = Arc::new(Mutex::new(None));
    let copy = CopyWork::linear(Memory::Device(BASE + (1 << 20) - 4), Memory::Staged([7; 8].into()), 8);
    let step: Arc<Step> = {
        let heard = heard.clone();
        Arc::new(move |state| *heard.lock() = Some(state))
    };
    // Both behind a kernel, so that the callback is submitted before the fault.
    let end = flag();
    context.submit(&stream, kernel_until(&end)).unwrap();
    context.submit(&stream, Work::Copy(Arc::new(copy))).unwrap();
    context.submit(&stream, Work::Callback(step)).unwrap();
    end.store(true, Ordering::Release);
    assert_eq!(context.synchronize_stream(&stream), Err(CUerror::ILLEGAL_ADDRESS));
    assert_eq!(*heard.lock(), Some(Err(CUerror::ILLEGAL_ADDRESS)));
}

#[test]
fn a_kernel_that_panics_is_a_fault_and_not_a_hang() {
    let bench = bench();
    let context = bench.context.clone();
    let stream = context.create_stream(false, 0);
    context.submit(&stream, kernel(|| panic!("a defect of the simulation"))).unwrap();
    assert_eq!(within_seconds(move || context.synchronize_stream(&stream)), Err(CUerror::UNKNOWN));
}

#[test]
fn a_closed_context_refuses_work_and_discards_what_waits() {
    let bench = bench();
    let context = bench.context.clone();
    let (stream, seen) = (context.create_stream(false, 0), list());
    context.submit(&stream, kernel(|| KernelStep::Yielded)).unwrap();
    context.submit(&stream, kernel_note(&seen, 1)).unwrap();
    let closing = context.clone();
    within_seconds(move || closing.close());
    assert_eq!(context.submit(&stream, kernel_note(&seen, 2)), Err(CUerror::CONTEXT_IS_DESTROYED));
    assert!(seen.lock().is_empty());
}

#[test]
fn running_tells_of_started_and_unfinished_work_only() {
    let bench = bench();
    let context = &bench.context;
    let (stream, end) = (context.create_stream(false, 0), flag());
    assert!(!context.running());
    context.submit(&stream, kernel_until(&end)).unwrap();
    while context.query_stream(&stream).is_err() && !context.running() {
        std::thread::yield_now();
    }
    assert!(context.running());
    end.store(true, Ordering::Release);
    context.synchronize_stream(&stream).unwrap();
    assert!(!context.running());
}
