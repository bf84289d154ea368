//! Time on the arena's links and engine, measured from the program's side.

use turnus_simulated_arena::{Arena, ArenaConfig, TemporaryMachine};

use super::*;

const BYTES: u64 = 24 << 20;

struct Machine {
    arena: Arc<Arena>,
    context: Arc<ContextQueue>,
    _directory: TemporaryMachine,
    _alone: Box<dyn Any>,
}

fn machine() -> Machine {
    let alone = Box::new(CAPTURES.read());
    let directory = TemporaryMachine::new(&ArenaConfig::with_devices(1)).unwrap();
    let arena = Arena::open_at(directory.directory()).unwrap();
    let executor = Executor::new(ArenaDevice::new(arena.clone(), 0));
    let context = ContextQueue::new(executor, FakeSpace::new(BYTES as usize));
    Machine { arena, context, _directory: directory, _alone: alone }
}

/// The smallest relative deviation from `expected_s` in up to twenty tries: what the cores' other
/// users add is not the link's.
fn deviation(expected_s: f64, mut seconds: impl FnMut() -> f64) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..20 {
        least = least.min((seconds() / expected_s - 1.0).abs());
        if least < 0.01 {
            break;
        }
    }
    least
}

fn host_copy(host: &mut [u8], to_device: bool) -> Work {
    let (device, host) = (Memory::Device(BASE), Memory::Host(HostPointer(host.as_mut_ptr().cast())));
    let (destination, source) = if to_device { (device, host) } else { (host, device) };
    Work::Copy(Arc::new(CopyWork::linear(destination, source, BYTES)))
}

#[test]
fn copies_in_one_direction_take_the_time_of_the_link_within_3_percent() {
    let machine = machine();
    let (context, config) = (&machine.context, &machine.arena.devices()[0].config);
    let stream = context.create_stream(true, 0);
    let mut host = vec![1u8; BYTES as usize];
    for (to_device, rate) in
        [(true, config.host_to_device_bytes_per_s), (false, config.device_to_host_bytes_per_s)]
    {
        let copy = host_copy(&mut host, to_device);
        let off = deviation(BYTES as f64 / rate as f64, || {
            let start = Instant::now();
            context.submit_and_wait(&stream, copy.clone()).unwrap();
            start.elapsed().as_secs_f64()
        });
        println!("one direction: {:.2} % off", off * 100.0);
        assert!(off < 0.03, "{off}");
    }
}

#[test]
fn copies_in_both_directions_share_the_link_at_the_duplex_rate() {
    let machine = machine();
    let (context, config) = (&machine.context, &machine.arena.devices()[0].config);
    let streams = [context.create_stream(true, 0), context.create_stream(true, 0)];
    let mut hosts = [vec![1u8; BYTES as usize], vec![2u8; BYTES as usize]];
    let copies = [host_copy(&mut hosts[0], true), host_copy(&mut hosts[1], false)];
    let off = deviation(BYTES as f64 / config.duplex_bytes_per_s as f64, || {
        let start = Instant::now();
        for (stream, copy) in streams.iter().zip(&copies) {
            context.submit(stream, copy.clone()).unwrap();
        }
        context.synchronize_all().unwrap();
        start.elapsed().as_secs_f64()
    });
    println!("both directions: {:.2} % off", off * 100.0);
    assert!(off < 0.03, "{off}");
}

#[test]
fn copies_go_on_beside_a_kernel() {
    let machine = machine();
    let context = &machine.context;
    let (computing, copying, end) = (context.create_stream(true, 0), context.create_stream(true, 0), flag());
    let mut host = vec![1u8; BYTES as usize];
    context.submit(&computing, kernel_until(&end)).unwrap();
    context.submit_and_wait(&copying, host_copy(&mut host, true)).unwrap();
    assert_eq!(context.query_stream(&computing), Err(CUerror::NOT_READY));
    end.store(true, Ordering::Release);
    context.synchronize_all().unwrap();
}

#[test]
fn kernels_of_two_attachments_that_wait_for_each_other_both_end() {
    let first = machine();
    let arena = Arena::open_at(first._directory.directory()).unwrap();
    let executor = Executor::new(ArenaDevice::new(arena, 0));
    let second = ContextQueue::new(executor, FakeSpace::new(64));
    let (here, there) = (flag(), flag());
    let meet = |mine: Arc<AtomicBool>, other: Arc<AtomicBool>| {
        kernel(move || {
            mine.store(true, Ordering::Release);
            if other.load(Ordering::Acquire) { KernelStep::Finished } else { KernelStep::Yielded }
        })
    };
    first.context.submit(&first.context.create_stream(true, 0), meet(here.clone(), there.clone())).unwrap();
    second.submit(&second.create_stream(true, 0), meet(there, here)).unwrap();
    let context = first.context.clone();
    within_seconds(move || context.wait_all());
    within_seconds(move || second.wait_all());
}

#[test]
fn a_launch_occupies_the_engine_for_its_cost_and_returns_soon() {
    let machine = machine();
    let (context, config) = (&machine.context, &machine.arena.devices()[0].config);
    let stream = context.create_stream(true, 0);
    let launches = 1000;
    let start = Instant::now();
    (0..launches).for_each(|_| context.submit(&stream, kernel(|| KernelStep::Finished)).unwrap());
    let submitted = start.elapsed();
    context.synchronize_stream(&stream).unwrap();
    let finished = start.elapsed();
    println!("{launches} launches: submitted in {submitted:?}, finished in {finished:?}");
    assert!(finished >= Duration::from_secs_f64(config.launch_cost_us / 1e6) * launches);
    let start = Instant::now();
    for _ in 0..100 {
        context.submit(&stream, kernel(|| KernelStep::Finished)).unwrap();
        context.synchronize_stream(&stream).unwrap();
    }
    println!("launch and synchronise: {:?}", start.elapsed() / 100);
}
