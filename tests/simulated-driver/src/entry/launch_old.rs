//! Launches in the style of the first CUDA: CUDA driver API, "Execution Control [DEPRECATED]".
//!
//! Shape and parameters are set on the function one by one, then a grid is launched.

use std::ffi::{c_float, c_int, c_uint, c_void};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed};
use crate::launch::{Shape, check, packed_work, submit};
use crate::module::library::function_of;
use crate::space::Result;
use crate::stream::{Default, resolve};

/// Most bytes of parameters.
const PARAMETER_BYTES_MAX: usize = 4096;

entry! {
    fn cuFuncSetBlockShape(hfunc: CUfunction, x: c_int, y: c_int, z: c_int) {
        let function = function_of(hfunc)?;
        function.old_launch.lock().block = [positive(x)?, positive(y)?, positive(z)?];
        Ok(())
    }

    fn cuFuncSetSharedSize(hfunc: CUfunction, bytes: c_uint) {
        function_of(hfunc)?.old_launch.lock().shared_bytes = bytes;
        Ok(())
    }

    fn cuParamSetSize(hfunc: CUfunction, numbytes: c_uint) {
        let function = function_of(hfunc)?;
        if numbytes as usize > PARAMETER_BYTES_MAX {
            return Err(CUerror::INVALID_VALUE);
        }
        function.old_launch.lock().parameters.resize(numbytes as usize, 0);
        Ok(())
    }

    fn cuParamSeti(hfunc: CUfunction, offset: c_int, value: c_uint) {
        set(hfunc, offset, &value.to_ne_bytes())
    }

    fn cuParamSetf(hfunc: CUfunction, offset: c_int, value: c_float) {
        set(hfunc, offset, &value.to_ne_bytes())
    }

    fn cuParamSetv(hfunc: CUfunction, offset: c_int, ptr: *mut c_void, numbytes: c_uint) {
        needed(ptr)?;
        set(hfunc, offset, std::slice::from_raw_parts(ptr.cast::<u8>(), numbytes as usize))
    }

    fn cuLaunch(f: CUfunction) {
        launch(f, [1, 1], std::ptr::null_mut(), Default::Legacy)
    }

    fn cuLaunchGrid(f: CUfunction, grid_width: c_int, grid_height: c_int) {
        launch(f, [positive(grid_width)?, positive(grid_height)?], std::ptr::null_mut(), Default::Legacy)
    }

    fn cuLaunchGridAsync(f: CUfunction, grid_width: c_int, grid_height: c_int, h_stream: CUstream) {
        launch(f, [positive(grid_width)?, positive(grid_height)?], h_stream, Default::Legacy)
    }
}

fn positive(value: c_int) -> Result<u32> {
    u32::try_from(value).ok().filter(|&value| value > 0).ok_or(CUerror::INVALID_VALUE)
}

/// Writes into the packed parameters, which grow up to what a kernel can take.
fn set(handle: CUfunction, offset: c_int, bytes: &[u8]) -> CUresult {
    let function = function_of(handle)?;
    let start = usize::try_from(offset).map_err(|_| CUerror::INVALID_VALUE)?;
    let end = start + bytes.len();
    if end > PARAMETER_BYTES_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut launch = function.old_launch.lock();
    if launch.parameters.len() < end {
        launch.parameters.resize(end, 0);
    }
    launch.parameters[start..end].copy_from_slice(bytes);
    Ok(())
}

fn launch(handle: CUfunction, grid: [u32; 2], stream: CUstream, default: Default) -> CUresult {
    let entry = resolve(stream, default)?;
    entry.context.queue.check()?;
    let function = function_of(handle)?;
    if function.context.id() != entry.context.id() {
        return Err(CUerror::INVALID_HANDLE);
    }
    let old = function.old_launch.lock().clone();
    let shape = Shape {
        grid: [grid[0], grid[1], 1],
        block: old.block,
        shared_bytes: old.shared_bytes,
        cooperative: false,
    };
    check(&function, &shape)?;
    let needed = function.entry.parameter_bytes() as usize;
    if old.parameters.len() < needed {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut parameters = old.parameters;
    parameters.truncate(needed);
    submit(&entry, &function, packed_work(&function, shape, parameters)?)
}
