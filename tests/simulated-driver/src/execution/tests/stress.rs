//! Many threads, streams and events at random: everything ends, and each stream stays in order.
//!
//! The choices come from a fixed seed; what the threads interleave does not.

use super::*;

const THREADS: u64 = 4;
const STREAMS: usize = 6;
const STEPS: u32 = 1500;

/// xorshift64: enough to mix choices.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// The numbers that one thread submitted to one stream, as they ran.
type Seen = Arc<Mutex<Vec<u32>>>;

/// What one thread submits; returns what it saw, by stream.
fn submit_at_random(
    context: &Arc<ContextQueue>,
    streams: &[Arc<Stream>],
    events: &[Arc<Event>],
    seed: u64,
) -> Vec<Seen> {
    let mut random = Random(seed);
    let seen: Vec<Seen> = streams.iter().map(|_| list()).collect();
    let graph = Graph::new();
    let root = graph.add_node(kernel(|| KernelStep::Finished), &[]).unwrap();
    graph.add_node(Work::Callback(Arc::new(|_| {})), &[root]).unwrap();
    graph.add_node(Work::RecordEvent(events[0].clone()), &[root]).unwrap();
    let exec = graph.instantiate().unwrap();
    for step in 0..STEPS {
        let index = random.below(streams.len());
        let stream = &streams[index];
        let event = &events[random.below(events.len())];
        match random.below(10) {
            0..4 => context.submit(stream, kernel_note(&seen[index], step)),
            4 => context.record_event(stream, event, false),
            5 => context.wait_event(stream, event, false),
            6 => context.submit(stream, Work::Graph(exec.clone())),
            7 => context.submit(&context.legacy_stream(), Work::Nothing),
            8 => {
                let copy = CopyWork::linear(Memory::Device(BASE), Memory::Staged([1; 8].into()), 8);
                context.submit(stream, Work::Copy(Arc::new(copy)))
            }
            _ => {
                drop(context.create_stream(false, -1));
                event.query().or(Ok(()))
            }
        }
        .unwrap();
    }
    seen
}

#[test]
fn random_work_of_many_threads_ends_and_keeps_the_order_of_each_stream() {
    let bench = bench();
    let context = bench.context.clone();
    let mut streams: Vec<_> = (0..STREAMS).map(|index| context.create_stream(index % 2 == 0, 0)).collect();
    streams.push(context.legacy_stream());
    let events: Vec<_> = (0..5).map(|_| Event::new(true)).collect();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (context, streams, events) = (context.clone(), streams.clone(), events.clone());
            std::thread::spawn(move || submit_at_random(&context, &streams, &events, thread + 1))
        })
        .collect();
    let seen: Vec<_> = within_seconds(move || {
        let seen = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        context.synchronize_all().unwrap();
        seen
    });
    assert_eq!(seen.len(), THREADS as usize * (STREAMS + 1));
    for numbers in seen {
        let numbers = numbers.lock();
        assert!(numbers.len() > 20 && numbers.is_sorted(), "{numbers:?}");
    }
    assert!(!bench.context.running());
}
