//! A launch of a PTX kernel as the engines run it: in slices, until it ends or fails.
//!
//! Stands between `execution`, which knows no PTX, and the executor, which knows no streams. A kernel that
//! fails says where on stderr, since its program will see only a code.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use turnus_bindings::CUerror;
use turnus_simulated_arena::now_ns;
use turnus_simulated_ptx::{Launch, LaunchError, Progress, Trap};

use super::Function;
use super::system::DeviceSystem;
use crate::context::Context;
use crate::context::limits::STACK_BYTES;
use crate::driver::driver;
use crate::execution::{Fault, KernelImage, KernelRun, KernelStep, Space as _};
use crate::launch::Shape;
use crate::space::DeviceSpace;

/// Instructions between two looks at the clock: some tens of microseconds.
const INSTRUCTIONS_BETWEEN_LOOKS: u64 = 2000;

/// Size that stands in the first word of what a cooperative launch gets; its barrier is in the second.
const WORKSPACE_BYTES: u32 = 8;

/// A kernel with shape and parameters.
pub struct Kernel {
    /// The memory that it works on.
    pub space: Arc<DeviceSpace>,
    /// The code.
    pub function: Arc<Function>,
    /// The launch's shape.
    pub shape: Shape,
    /// Laid out as the kernel wants them.
    pub parameters: Vec<u8>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Kernel({}, {:?})", self.name(), self.shape)
    }
}

impl KernelImage for Kernel {
    fn start(&self) -> Box<dyn KernelRun> {
        let variables = &self.function.variables;
        let launch = Launch::new(
            &self.function.entry,
            self.shape.grid,
            self.shape.block,
            self.shape.shared_bytes.into(),
            &self.parameters,
            &|name| variables.get(name).map(|place| place.0),
        );
        let context = &self.function.context;
        let workspace = if self.shape.cooperative { Workspace::of(context) } else { None };
        let launch = launch.map(|mut launch| {
            launch.set_system(Arc::new(DeviceSystem { context: Arc::clone(context) }));
            let stack_bytes = context.limits.lock().get(STACK_BYTES).map_or(0, |bytes| bytes as u64);
            launch.set_stack_bytes(stack_bytes);
            if self.shape.cooperative {
                if let Some(workspace) = &workspace {
                    launch.set_workspace(workspace.address);
                }
                launch.set_resident_blocks(self.shape.grid.iter().product::<u32>() as usize);
            }
            launch
        });
        Box::new(Run { launch, space: Arc::clone(&self.space), _workspace: workspace })
    }

    fn name(&self) -> &str {
        self.function.entry.name()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }

    fn local_bytes(&self) -> u64 {
        self.function.entry.local_bytes()
    }
}

/// A launch under way, or why there is none.
struct Run {
    launch: Result<Launch, LaunchError>,
    space: Arc<DeviceSpace>,
    _workspace: Option<Workspace>,
}

/// Device memory in which the blocks of a cooperative launch meet, as long as it runs.
struct Workspace {
    address: u64,
}

impl Workspace {
    /// None where there is no memory left; the grid of cooperative groups then says that it is not valid.
    fn of(context: &Context) -> Option<Workspace> {
        let driver = driver().ok()?;
        let bytes = WORKSPACE_BYTES.to_le_bytes();
        let address = driver.space.allocate(context.id(), context.device, bytes.len() as u64 * 2).ok()?;
        let workspace = Workspace { address };
        let start: [u8; 8] = [bytes, [0; 4]].concat().try_into().ok()?;
        let (_, space) = driver.engines(context.device);
        // SAFETY: `start` is readable for its length.
        unsafe { space.copy_to_device(address, start.as_ptr(), start.len() as u64) }.ok()?;
        Some(workspace)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            // Gone already when the context is.
            let _ = driver.space.free(self.address);
        }
    }
}

impl KernelRun for Run {
    fn executed_instructions(&self) -> u64 {
        self.launch.as_ref().map_or(0, Launch::executed_instructions)
    }

    fn run(&mut self, until: Instant, most: u64) -> KernelStep {
        let mut memory = self.space.kernel_memory();
        let launch = match &mut self.launch {
            Ok(launch) => launch,
            Err(error) => {
                eprintln!("simulated driver: {error}");
                return KernelStep::Faulted(Fault::at(CUerror::LAUNCH_FAILED, 0));
            }
        };
        let end = launch.executed_instructions().saturating_add(most);
        loop {
            let before = launch.executed_instructions();
            let budget = INSTRUCTIONS_BETWEEN_LOOKS.min(end.saturating_sub(before));
            match launch.run(&mut memory, budget, &now_ns) {
                Ok(Progress::Finished) => return KernelStep::Finished,
                // All threads wait: let others run.
                Ok(Progress::Yielded) if launch.executed_instructions() == before => {
                    return KernelStep::Yielded;
                }
                Ok(Progress::Yielded) if launch.executed_instructions() >= end || Instant::now() >= until => {
                    return KernelStep::Yielded;
                }
                Ok(Progress::Yielded) => {}
                // It has said what failed where.
                Err(Trap::AssertionFailed { .. }) => {
                    return KernelStep::Faulted(Fault::at(CUerror::ASSERT, 0));
                }
                Err(trap) => {
                    eprintln!("simulated driver: {trap}");
                    return KernelStep::Faulted(fault_of(&trap));
                }
            }
        }
    }
}

fn fault_of(trap: &Trap) -> Fault {
    match trap {
        Trap::IllegalAddress { address, .. } => Fault::at(CUerror::ILLEGAL_ADDRESS, *address),
        Trap::MisalignedAddress { address, .. } => Fault::at(CUerror::MISALIGNED_ADDRESS, *address),
        Trap::Trapped { .. } => Fault::at(CUerror::LAUNCH_FAILED, 0),
        Trap::AssertionFailed { .. } => Fault::at(CUerror::ASSERT, 0),
        Trap::StackOverflow { .. } => Fault::at(CUerror::HARDWARE_STACK_ERROR, 0),
        Trap::InvalidCall { .. } => Fault::at(CUerror::INVALID_PC, 0),
    }
}
