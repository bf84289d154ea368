//! Kernel launches: CUDA driver API, "Execution Control".
//!
//! A launch returns when the work is queued. Attributes that are hints are accepted; those that would change
//! what the program observes, and are not simulated, are refused.

use std::ffi::{c_uint, c_void};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::stream_entry;
use crate::launch::{Shape, kernel_work, submit};
use crate::module::library::function_of;
use crate::space::Result;
use crate::stream::{Default, resolve};

stream_entry! {
    fn cuLaunchKernel | cuLaunchKernel_ptsz [default] (
        f: CUfunction,
        grid_dim_x: c_uint,
        grid_dim_y: c_uint,
        grid_dim_z: c_uint,
        block_dim_x: c_uint,
        block_dim_y: c_uint,
        block_dim_z: c_uint,
        shared_mem_bytes: c_uint,
        h_stream: CUstream,
        kernel_params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let shape = Shape {
            grid: [grid_dim_x, grid_dim_y, grid_dim_z],
            block: [block_dim_x, block_dim_y, block_dim_z],
            shared_bytes: shared_mem_bytes,
            cooperative: false,
        };
        launch(f, shape, h_stream, default, kernel_params, extra)
    }

    fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz [default] (
        f: CUfunction,
        grid_dim_x: c_uint,
        grid_dim_y: c_uint,
        grid_dim_z: c_uint,
        block_dim_x: c_uint,
        block_dim_y: c_uint,
        block_dim_z: c_uint,
        shared_mem_bytes: c_uint,
        h_stream: CUstream,
        kernel_params: *mut *mut c_void,
    ) {
        let shape = Shape {
            grid: [grid_dim_x, grid_dim_y, grid_dim_z],
            block: [block_dim_x, block_dim_y, block_dim_z],
            shared_bytes: shared_mem_bytes,
            cooperative: true,
        };
        launch(f, shape, h_stream, default, kernel_params, std::ptr::null_mut())
    }

    fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz [default] (
        config: *const CUlaunchConfig,
        f: CUfunction,
        kernel_params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let config = config.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let shape = Shape {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared_bytes: config.sharedMemBytes,
            cooperative: is_cooperative(config)?,
        };
        launch(f, shape, config.hStream, default, kernel_params, extra)
    }
}

/// # Safety
/// As `cuLaunchKernel`.
unsafe fn launch(
    function: CUfunction,
    shape: Shape,
    stream: CUstream,
    default: Default,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let entry = resolve(stream, default)?;
    entry.context.queue.check()?;
    let function = function_of(function)?;
    if function.context.id() != entry.context.id() {
        return Err(CUerror::INVALID_HANDLE);
    }
    // SAFETY: the caller's promise.
    let work = unsafe { kernel_work(&function, shape, parameters, extra)? };
    submit(&entry, &function, work)
}

/// Reads the attributes of an extended launch.
///
/// # Safety
/// The configuration is what `cuLaunchKernelEx` takes.
unsafe fn is_cooperative(config: &CUlaunchConfig) -> Result<bool> {
    if config.numAttrs == 0 {
        return Ok(false);
    }
    if config.attrs.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut cooperative = false;
    // SAFETY: the caller's promise; the variant read is that which the id names.
    for attribute in unsafe { std::slice::from_raw_parts(config.attrs, config.numAttrs as usize) } {
        // SAFETY: as above.
        unsafe {
            match attribute.id.0 {
                // Ignored ones, and hints: window, policy, scheduling, serialisation, priority, domains, carveout.
                0 | 1 | 3 | 5 | 6 | 8 | 9 | 10 | 14 | 16 => {}
                2 => cooperative = attribute.value.cooperative != 0,
                4 => {
                    let size = attribute.value.clusterDim;
                    if (size.x, size.y, size.z) != (1, 1, 1) {
                        return Err(CUerror::NOT_SUPPORTED);
                    }
                }
                _ => return Err(CUerror::NOT_SUPPORTED),
            }
        }
    }
    Ok(cooperative)
}
