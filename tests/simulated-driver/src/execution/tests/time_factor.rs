//! A time factor makes everything faster and changes no order.

use turnus_simulated_arena::{Arena, ArenaConfig, TemporaryMachine, now_ns};

use super::*;

/// Bytes per second of the link, one way alone.
const LINK: u64 = 40_000_000;
/// Instructions of threads per second.
const INSTRUCTIONS: u64 = 32_000_000;
const STREAMS: usize = 3;
const ITEMS: usize = 3;
/// Ends that are closer than this at factor 1 may change places: the test machine is not that exact at 0.1.
const CLOSE_NS: u64 = 30_000_000;

/// A kernel that has all its instructions to count in its first slice.
struct Counted(u64);

struct CountedRun(u64, u64);

impl KernelImage for Counted {
    fn start(&self) -> Box<dyn KernelRun> {
        Box::new(CountedRun(self.0, 0))
    }

    fn name(&self) -> &str {
        "counted"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl KernelRun for CountedRun {
    fn run(&mut self, _until: Instant, most: u64) -> KernelStep {
        self.1 = self.0.min(self.1 + most);
        if self.1 == self.0 { KernelStep::Finished } else { KernelStep::Yielded }
    }

    fn executed_instructions(&self) -> u64 {
        self.1
    }
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Kernel { ms: u64 },
    ToDevice { ms: u64 },
    ToHost { ms: u64 },
}

/// Items of each stream, one after the other in it.
type Schedule = [[Item; ITEMS]; STREAMS];

fn schedule(seed: u64) -> Schedule {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    std::array::from_fn(|_| {
        std::array::from_fn(|_| {
            let ms = 10 + below(100);
            match below(3) {
                0 => Item::Kernel { ms },
                1 => Item::ToDevice { ms },
                _ => Item::ToHost { ms },
            }
        })
    })
}

fn work(item: Item, host: &mut [u8]) -> Work {
    let copy = |ms: u64, to_device: bool, host: &mut [u8]| {
        let (device, host) = (Memory::Device(BASE), Memory::Host(HostPointer(host.as_mut_ptr().cast())));
        let (destination, source) = if to_device { (device, host) } else { (host, device) };
        Work::Copy(Arc::new(CopyWork::linear(destination, source, ms * LINK / 1000)))
    };
    match item {
        Item::Kernel { ms } => Work::Kernel(Arc::new(Counted(ms * INSTRUCTIONS / 1000 / 32))),
        Item::ToDevice { ms } => copy(ms, true, host),
        Item::ToHost { ms } => copy(ms, false, host),
    }
}

/// When each item ended, from the beginning, by stream and item.
fn ends(schedule: &Schedule, time_factor: f64) -> [[u64; ITEMS]; STREAMS] {
    let mut config = ArenaConfig { scale: 1, time_factor, ..ArenaConfig::default() };
    let device = &mut config.devices[0];
    device.memory_bytes = 16 << 20;
    device.host_to_device_bytes_per_s = LINK;
    device.device_to_host_bytes_per_s = LINK;
    device.duplex_bytes_per_s = LINK / 4 * 3;
    device.instructions_per_s = INSTRUCTIONS;
    let directory = TemporaryMachine::new(&config).unwrap();
    let arena = Arena::open_at(directory.directory()).unwrap();
    let executor = Executor::new(ArenaDevice::new(arena, 0));
    let context = ContextQueue::new(executor, FakeSpace::new(8 << 20));
    let mut hosts = vec![vec![0_u8; 8 << 20]; STREAMS];
    let begun = now_ns();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (schedule.iter().zip(&mut hosts))
            .enumerate()
            .map(|(place, (items, host))| {
                let stream = context.create_stream(true, 0);
                let context = &context;
                scope.spawn(move || {
                    // Streams begin one after the other: who comes first to an engine is served first.
                    std::thread::sleep(Duration::from_millis(5 * place as u64).mul_f64(time_factor));
                    items.map(|item| {
                        context.submit_and_wait(&stream, work(item, host)).unwrap();
                        now_ns() - begun
                    })
                })
            })
            .collect();
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        ends.try_into().unwrap()
    })
}

/// Pairs of items whose ends are in another order than at factor 1.
fn swapped(whole: &[u64], tenth: &[u64]) -> Vec<(usize, usize)> {
    let places = 0..whole.len();
    let pairs = places.clone().flat_map(|first| places.clone().map(move |second| (first, second)));
    pairs
        .filter(|&(first, second)| whole[first] + CLOSE_NS <= whole[second] && tenth[first] >= tenth[second])
        .collect()
}

#[test]
fn work_ends_in_the_same_order_at_a_tenth_of_the_time() {
    let _alone = CAPTURES.read();
    for seed in 1..=5 {
        let schedule = schedule(seed);
        // A busy test machine delays threads by milliseconds, so that work which is ready at nearly the same time may
        // be served in either order, at either factor: a difference has to show every time.
        let mut tries = Vec::new();
        let is_right = (0..10).any(|_| {
            let (whole, tenth) = (ends(&schedule, 1.0), ends(&schedule, 0.1));
            let last = |ends: &[[u64; ITEMS]; STREAMS]| ends.concat().into_iter().max().unwrap_or(0);
            let swapped = swapped(&whole.concat(), &tenth.concat());
            let is_right = swapped.is_empty() && last(&tenth) * 4 < last(&whole);
            tries.push((swapped, whole, tenth));
            is_right
        });
        assert!(is_right, "seed {seed}: {schedule:?}\nswapped, at 1, at 0.1: {tries:?}");
    }
}
