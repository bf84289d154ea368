//! From launch arguments to work: the checks of the driver, and parameters copied out of the caller's memory.
//!
//! CUDA driver API, `cuLaunchKernel`. Used by launches and by kernel nodes of graphs.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use turnus_bindings::CUerror;

use crate::call;
use crate::device::attributes::{BLOCK_MAX, BLOCK_THREADS_MAX, GRID_MAX, SHARED_BYTES_OPTIN};
use crate::driver::driver;
use crate::entry::occupancy;
use crate::execution::{CaptureStatus, Work, status};
use crate::module::Function;
use crate::module::endless::Endless;
use crate::module::kernel::Kernel;
use crate::space::Result;
use crate::stream::StreamEntry;

/// Markers in the `extra` list (`CU_LAUNCH_PARAM_...`).
const END: usize = 0;
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// Grid, block and what else shapes a launch.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// All blocks must be able to run at once.
    pub cooperative: bool,
}

/// A launch as work, with its parameters copied.
///
/// # Safety
/// `parameters` and `extra` are as `cuLaunchKernel` takes them for this function.
pub unsafe fn kernel_work(
    function: &Arc<Function>,
    shape: Shape,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Work> {
    check(function, &shape)?;
    // SAFETY: the caller's promise.
    let bytes = unsafe {
        match (parameters.is_null(), extra.is_null()) {
            (false, false) => return Err(CUerror::INVALID_VALUE),
            (true, false) => packed(function, extra)?,
            _ => gathered(function, parameters)?,
        }
    };
    packed_work(function, shape, bytes)
}

/// A launch with parameters that lie as the kernel wants them. The shape has been checked.
pub fn packed_work(function: &Arc<Function>, shape: Shape, parameters: Vec<u8>) -> Result<Work> {
    function.load()?;
    if let Some(hang) = call::take_hang() {
        return Ok(Work::Kernel(Arc::new(Endless { timeout: hang.timeout })));
    }
    let (_, space) = driver()?.engines(function.context.device);
    Ok(Work::Kernel(Arc::new(Kernel { space, function: Arc::clone(function), shape, parameters })))
}

/// Submits a launch; its context first gets the local memory that it needs, unless a graph is captured.
pub fn submit(entry: &StreamEntry, function: &Function, work: Work) -> Result<()> {
    let (context, needed) = (&entry.context, function.entry.local_bytes());
    if context.lacks_local_memory(needed) && status(&context.queue, &entry.stream) == Ok(CaptureStatus::None)
    {
        context.need_local_memory(driver()?, needed)?;
    }
    context.queue.submit(&entry.stream, work)
}

/// What the driver refuses at once.
pub fn check(function: &Function, shape: &Shape) -> Result<()> {
    let too_large =
        |given: [u32; 3], most: [u32; 3]| given.iter().zip(most).any(|(&given, most)| given > most);
    if shape.grid.contains(&0) || shape.block.contains(&0) {
        return Err(CUerror::INVALID_VALUE);
    }
    if too_large(shape.grid, GRID_MAX) || too_large(shape.block, BLOCK_MAX) {
        return Err(CUerror::INVALID_VALUE);
    }
    let threads: u32 = shape.block.iter().product();
    if threads > BLOCK_THREADS_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    if threads > function.threads_max() {
        return Err(CUerror::LAUNCH_OUT_OF_RESOURCES);
    }
    if function.entry.required_threads.is_some_and(|required| required != shape.block) {
        return Err(CUerror::INVALID_VALUE);
    }
    let shared = function.entry.static_shared_bytes() + u64::from(shape.shared_bytes);
    let allowed = function.settings.dynamic_shared_bytes_max.load(Ordering::Relaxed);
    if shape.shared_bytes > allowed || shared > u64::from(SHARED_BYTES_OPTIN) {
        return Err(CUerror::INVALID_VALUE);
    }
    if shape.cooperative {
        let processors = driver()?.arena.devices()[function.context.device].config.multiprocessor_count;
        let held = u64::from(occupancy::blocks(function, threads, shape.shared_bytes.into()))
            * u64::from(processors);
        let blocks: u64 = shape.grid.iter().map(|&blocks| u64::from(blocks)).product();
        if blocks > held {
            return Err(CUerror::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
    }
    Ok(())
}

/// One pointer per parameter.
///
/// # Safety
/// `pointers` is null or has as many pointers as the function has parameters, each valid for its size.
unsafe fn gathered(function: &Function, pointers: *mut *mut c_void) -> Result<Vec<u8>> {
    let mut bytes = vec![0; function.entry.parameter_bytes() as usize];
    if function.entry.parameters.is_empty() {
        return Ok(bytes);
    }
    if pointers.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    for (index, parameter) in function.entry.parameters.iter().enumerate() {
        // SAFETY: the caller's promise.
        let source = unsafe { *pointers.add(index) }.cast::<u8>();
        if source.is_null() {
            return Err(CUerror::INVALID_VALUE);
        }
        let (offset, size) = (parameter.offset as usize, parameter.size as usize);
        // SAFETY: the source has `size` bytes by the caller's promise, the slice by its own length.
        unsafe { std::ptr::copy_nonoverlapping(source, bytes[offset..offset + size].as_mut_ptr(), size) };
    }
    Ok(bytes)
}

/// One buffer with all parameters.
///
/// # Safety
/// `extra` is a list that ends with `CU_LAUNCH_PARAM_END`, its buffer valid for the size it names.
unsafe fn packed(function: &Function, extra: *mut *mut c_void) -> Result<Vec<u8>> {
    let (mut buffer, mut size) = (std::ptr::null::<u8>(), None);
    let mut at = extra;
    // SAFETY: the caller's promise: the list has an end, and every marker but it a value behind it.
    unsafe {
        loop {
            match (*at) as usize {
                END => break,
                BUFFER_POINTER => buffer = (*at.add(1)).cast::<u8>().cast_const(),
                BUFFER_SIZE => size = (*at.add(1)).cast::<usize>().as_ref().copied(),
                _ => return Err(CUerror::INVALID_VALUE),
            }
            at = at.add(2);
        }
    }
    let needed = function.entry.parameter_bytes() as usize;
    let size = size.ok_or(CUerror::INVALID_VALUE)?;
    if size < needed || (buffer.is_null() && needed > 0) {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut bytes = vec![0; needed];
    // SAFETY: `needed` <= size bytes are readable by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(buffer, bytes.as_mut_ptr(), needed) };
    Ok(bytes)
}
