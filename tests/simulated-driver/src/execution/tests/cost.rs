//! What submission and idle synchronisation cost the program's thread.
//!
//! Bounds are those of the optimised build; a build with debug assertions gets ten times as much.
//! The best of several rounds counts, since other processes share the cores.

use super::*;

const SLACK: u32 = if cfg!(debug_assertions) { 10 } else { 1 };
const LAUNCHES: u32 = 1000;

fn best(mut round: impl FnMut() -> Duration) -> Duration {
    (0..10).map(|_| round()).min().unwrap_or_default()
}

fn quick() -> Work {
    kernel(|| KernelStep::Finished)
}

fn time_of_submissions(context: &ContextQueue, stream: &Arc<Stream>, work: &Work) -> Duration {
    let start = Instant::now();
    (0..LAUNCHES).for_each(|_| context.submit(stream, work.clone()).unwrap());
    start.elapsed() / LAUNCHES
}

#[test]
fn a_thousand_launches_behind_a_running_kernel_cost_less_than_3_us_each() {
    let bench = bench();
    let (context, work) = (&bench.context, quick());
    let stream = context.create_stream(true, 0);
    let each = best(|| {
        let end = flag();
        context.submit(&stream, kernel_until(&end)).unwrap();
        let each = time_of_submissions(context, &stream, &work);
        end.store(true, Ordering::Release);
        context.synchronize_stream(&stream).unwrap();
        each
    });
    println!("submission behind a running kernel: {each:?}");
    assert!(each < Duration::from_micros(3) * SLACK, "{each:?}");
}

#[test]
fn a_thousand_launches_into_an_idle_stream_cost_less_than_3_us_each() {
    let bench = bench();
    let (context, work) = (&bench.context, quick());
    let stream = context.create_stream(true, 0);
    let each = best(|| {
        let each = time_of_submissions(context, &stream, &work);
        context.synchronize_stream(&stream).unwrap();
        each
    });
    println!("submission into an idle stream: {each:?}");
    assert!(each < Duration::from_micros(3) * SLACK, "{each:?}");
}

#[test]
fn synchronising_an_idle_stream_costs_less_than_a_quarter_of_a_microsecond() {
    let bench = bench();
    let context = &bench.context;
    let stream = context.create_stream(true, 0);
    context.submit(&stream, quick()).unwrap();
    context.synchronize_stream(&stream).unwrap();
    let each = best(|| {
        let start = Instant::now();
        (0..LAUNCHES).for_each(|_| context.synchronize_stream(&stream).unwrap());
        start.elapsed() / LAUNCHES
    });
    println!("synchronising an idle stream: {each:?}");
    assert!(each < Duration::from_nanos(250) * SLACK, "{each:?}");
}
