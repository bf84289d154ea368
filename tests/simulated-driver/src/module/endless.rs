//! Kernels that never end, by a fault rule: they take their turns on the compute engine and get nowhere.
//!
//! With a time-out the driver ends them, as a card with a display does (`CUDA_ERROR_LAUNCH_TIMEOUT`); without one
//! only the end of the process, or of the device, does.

use std::time::{Duration, Instant};

use turnus_bindings::CUerror;

use crate::execution::{Fault, KernelImage, KernelRun, KernelStep};

/// See the module's words.
#[derive(Debug)]
pub struct Endless {
    /// When the driver ends it.
    pub timeout: Option<Duration>,
}

impl KernelImage for Endless {
    fn start(&self) -> Box<dyn KernelRun> {
        Box::new(Run { end: self.timeout.map(|timeout| Instant::now() + timeout) })
    }

    fn name(&self) -> &str {
        "a kernel without end"
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

struct Run {
    end: Option<Instant>,
}

impl KernelRun for Run {
    fn run(&mut self, until: Instant, _most: u64) -> KernelStep {
        let until = self.end.map_or(until, |end| end.min(until));
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return KernelStep::Faulted(Fault::at(CUerror::LAUNCH_TIMEOUT, 0));
        }
        KernelStep::Yielded
    }
}
