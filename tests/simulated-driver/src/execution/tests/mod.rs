//! Tests of execution by behaviour, on fake memory and fake kernels.
//!
//! Most use hardware without cost, so that order is what they see; `timing.rs`, `time_factor.rs` and `cost.rs` use
//! an arena of their own in a temporary directory.

mod capture;
mod cost;
mod fault;
mod graph;
mod order;
mod stress;
mod teardown;
mod time_factor;
mod timing;

use std::any::Any;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use turnus_bindings::CUerror;
use turnus_simulated_arena::{Direction, now_ns};

use super::*;

/// Where the fake device memory begins.
const BASE: u64 = 0x7000_0000_0000;

/// Hardware without cost.
struct Free;

struct NoGuard;

impl SliceGuard for NoGuard {}

impl Hardware for Free {
    fn compute_slice(&self) -> Box<dyn SliceGuard + '_> {
        Box::new(NoGuard)
    }

    fn book_transfer(&self, _direction: Direction, _bytes: u64) -> u64 {
        now_ns()
    }

    fn chunk_bytes(&self, _direction: Direction) -> u64 {
        64 << 10
    }

    fn launch_cost_ns(&self) -> u64 {
        0
    }

    fn time_slice_ns(&self) -> u64 {
        1_000_000
    }

    fn instructions_per_s(&self) -> u64 {
        0
    }
}

/// A flat device memory of fixed size.
struct FakeSpace(Mutex<Vec<u8>>);

impl FakeSpace {
    fn new(bytes: usize) -> Arc<FakeSpace> {
        Arc::new(FakeSpace(Mutex::new(vec![0; bytes])))
    }

    fn range(&self, address: u64, bytes: u64) -> Result<std::ops::Range<usize>, Fault> {
        let length = self.0.lock().len() as u64;
        let offset = address.wrapping_sub(BASE);
        if offset.checked_add(bytes).is_none_or(|end| end > length) {
            return Err(Fault::at(CUerror::ILLEGAL_ADDRESS, address));
        }
        Ok(offset as usize..(offset + bytes) as usize)
    }
}

impl Space for FakeSpace {
    unsafe fn copy_to_device(&self, destination: u64, source: *const u8, bytes: u64) -> Result<(), Fault> {
        let range = self.range(destination, bytes)?;
        // SAFETY: the caller vouches for the source (contract of the trait).
        let source = unsafe { std::slice::from_raw_parts(source, bytes as usize) };
        self.0.lock()[range].copy_from_slice(source);
        Ok(())
    }

    unsafe fn copy_from_device(&self, source: u64, destination: *mut u8, bytes: u64) -> Result<(), Fault> {
        let range = self.range(source, bytes)?;
        // SAFETY: the caller vouches for the destination (contract of the trait).
        let destination = unsafe { std::slice::from_raw_parts_mut(destination, bytes as usize) };
        destination.copy_from_slice(&self.0.lock()[range]);
        Ok(())
    }

    fn copy_within(&self, destination: u64, source: u64, bytes: u64) -> Result<(), Fault> {
        let (to, from) = (self.range(destination, bytes)?, self.range(source, bytes)?);
        self.0.lock().copy_within(from, to.start);
        Ok(())
    }

    fn fill(&self, destination: u64, value: u32, element_bytes: u8, count: u64) -> Result<(), Fault> {
        let width = usize::from(element_bytes);
        let range = self.range(destination, count * width as u64)?;
        let pattern = value.to_le_bytes();
        self.0.lock()[range]
            .chunks_exact_mut(width)
            .for_each(|chunk| chunk.copy_from_slice(&pattern[..width]));
        Ok(())
    }

    fn prefetch(&self, _address: u64, bytes: u64, _to_host: bool) -> u64 {
        bytes
    }

    fn load_value(&self, address: u64, bytes: u8) -> Result<u64, Fault> {
        let range = self.range(address, u64::from(bytes))?;
        let mut value = [0; 8];
        value[..range.len()].copy_from_slice(&self.0.lock()[range]);
        Ok(u64::from_le_bytes(value))
    }

    fn store_value(&self, address: u64, value: u64, bytes: u8) -> Result<(), Fault> {
        let range = self.range(address, u64::from(bytes))?;
        self.0.lock()[range].copy_from_slice(&value.to_le_bytes()[..usize::from(bytes)]);
        Ok(())
    }
}

/// A kernel whose body says after each slice whether it is finished.
struct FakeKernel<F>(Arc<F>);

struct FakeRun<F>(Arc<F>);

impl<F: Fn() -> KernelStep + Send + Sync + 'static> KernelImage for FakeKernel<F> {
    fn start(&self) -> Box<dyn KernelRun> {
        Box::new(FakeRun(self.0.clone()))
    }

    fn name(&self) -> &str {
        "fake"
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl<F: Fn() -> KernelStep + Send + Sync + 'static> KernelRun for FakeRun<F> {
    fn run(&mut self, until: Instant, _most: u64) -> KernelStep {
        loop {
            match (self.0)() {
                KernelStep::Yielded if Instant::now() < until => std::thread::yield_now(),
                step => return step,
            }
        }
    }
}

/// A kernel that calls `step` until it says that it is finished.
fn kernel(step: impl Fn() -> KernelStep + Send + Sync + 'static) -> Work {
    Work::Kernel(Arc::new(FakeKernel(Arc::new(step))))
}

/// A kernel that runs until the flag is set.
fn kernel_until(flag: &Arc<AtomicBool>) -> Work {
    let flag = flag.clone();
    kernel(move || if flag.load(Ordering::Acquire) { KernelStep::Finished } else { KernelStep::Yielded })
}

/// A kernel that notes a number in a list.
fn kernel_note(list: &Arc<Mutex<Vec<u32>>>, number: u32) -> Work {
    let list = list.clone();
    kernel(move || {
        list.lock().push(number);
        KernelStep::Finished
    })
}

fn host_function(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Work {
    Work::HostFunction(HostFunction { function, data: HostPointer(data) })
}

fn flag() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

fn list() -> Arc<Mutex<Vec<u32>>> {
    Arc::new(Mutex::new(Vec::new()))
}

/// Captures are known to the whole process and break by calls of any thread, so a test that opens
/// one runs alone.
static CAPTURES: RwLock<()> = RwLock::new(());

/// A context on free hardware with a megabyte of memory.
struct Bench {
    context: Arc<ContextQueue>,
    space: Arc<FakeSpace>,
    _alone: Box<dyn Any>,
}

/// For tests that open no capture.
fn bench() -> Bench {
    new_bench(Box::new(CAPTURES.read()))
}

/// For tests that open captures.
fn capture_bench() -> Bench {
    new_bench(Box::new(CAPTURES.write()))
}

fn new_bench(alone: Box<dyn Any>) -> Bench {
    let space = FakeSpace::new(1 << 20);
    Bench { context: ContextQueue::new(Executor::new(Arc::new(Free)), space.clone()), space, _alone: alone }
}

/// Runs `act` on a thread of its own; what would hang fails after ten seconds instead.
fn within_seconds<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(act()));
    receiver.recv_timeout(Duration::from_secs(10)).expect("the call neither hangs nor panics")
}
