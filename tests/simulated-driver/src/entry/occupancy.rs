//! Occupancy: CUDA driver API, "Occupancy".
//!
//! Counts the blocks that threads, shared memory and registers let a multiprocessor hold. Clusters are not
//! simulated.

use std::ffi::{c_int, c_uint};

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put};
use crate::device::attributes::{
    BLOCK_THREADS_MAX, BLOCKS_MULTIPROCESSOR, REGISTERS, SHARED_BYTES_MULTIPROCESSOR, SHARED_BYTES_RESERVED,
};
use crate::driver::driver;
use crate::module::Function;
use crate::module::library::function_of;

const WARP: u32 = 32;

entry! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        num_blocks: *mut c_int,
        func: CUfunction,
        block_size: c_int,
        dynamic_s_mem_size: usize,
    ) {
        active_blocks(num_blocks, func, block_size, dynamic_s_mem_size)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        num_blocks: *mut c_int,
        func: CUfunction,
        block_size: c_int,
        dynamic_s_mem_size: usize,
        flags: c_uint,
    ) {
        if flags > 1 {
            return Err(CUerror::INVALID_VALUE);
        }
        active_blocks(num_blocks, func, block_size, dynamic_s_mem_size)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        dynamic_smem_size: *mut usize,
        func: CUfunction,
        num_blocks: c_int,
        block_size: c_int,
    ) {
        let function = function_of(func)?;
        let count = |number: c_int| u32::try_from(number).ok().filter(|&number| number > 0);
        let (Some(blocks_wanted), Some(threads)) = (count(num_blocks), count(block_size)) else {
            return Err(CUerror::INVALID_VALUE);
        };
        if blocks(&function, threads, 0) < blocks_wanted {
            return Err(CUerror::INVALID_VALUE);
        }
        let taken = function.entry.static_shared_bytes() + u64::from(SHARED_BYTES_RESERVED);
        put(dynamic_smem_size, (u64::from(SHARED_BYTES_MULTIPROCESSOR / blocks_wanted) - taken) as usize)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        min_grid_size: *mut c_int,
        block_size: *mut c_int,
        func: CUfunction,
        block_size_to_dynamic_s_mem_size: CUoccupancyB2DSize,
        dynamic_s_mem_size: usize,
        block_size_limit: c_int,
    ) {
        potential(min_grid_size, block_size, func, block_size_to_dynamic_s_mem_size, dynamic_s_mem_size, block_size_limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        min_grid_size: *mut c_int,
        block_size: *mut c_int,
        func: CUfunction,
        block_size_to_dynamic_s_mem_size: CUoccupancyB2DSize,
        dynamic_s_mem_size: usize,
        block_size_limit: c_int,
        flags: c_uint,
    ) {
        if flags > 1 {
            return Err(CUerror::INVALID_VALUE);
        }
        potential(min_grid_size, block_size, func, block_size_to_dynamic_s_mem_size, dynamic_s_mem_size, block_size_limit)
    }
}

/// Blocks of `threads` threads that a multiprocessor holds at once.
pub fn blocks(function: &Function, threads: u32, dynamic_bytes: u64) -> u32 {
    if threads == 0 || threads > function.threads_max() {
        return 0;
    }
    let threads = threads.next_multiple_of(WARP);
    let shared = function.entry.static_shared_bytes() + dynamic_bytes + u64::from(SHARED_BYTES_RESERVED);
    let by_shared = u64::from(SHARED_BYTES_MULTIPROCESSOR) / shared;
    let by_registers = REGISTERS / (function.registers() * threads);
    let most = driver().map_or(0, |driver| {
        driver.arena.devices()[function.context.device].config.threads_per_multiprocessor
    });
    BLOCKS_MULTIPROCESSOR.min(most / threads).min(by_registers).min(by_shared as u32)
}

/// # Safety
/// As the entry points.
unsafe fn active_blocks(
    place: *mut c_int,
    func: CUfunction,
    block_size: c_int,
    dynamic_bytes: usize,
) -> CUresult {
    let function = function_of(func)?;
    let threads =
        u32::try_from(block_size).ok().filter(|&threads| threads > 0).ok_or(CUerror::INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    unsafe { put(place, blocks(&function, threads, dynamic_bytes as u64) as c_int) }
}

/// # Safety
/// As the entry points.
unsafe fn potential(
    min_grid_size: *mut c_int,
    block_size: *mut c_int,
    func: CUfunction,
    shared_of: CUoccupancyB2DSize,
    dynamic_bytes: usize,
    limit: c_int,
) -> CUresult {
    needed(min_grid_size)?;
    needed(block_size)?;
    let function = function_of(func)?;
    let largest = if limit > 0 { (limit as u32).min(BLOCK_THREADS_MAX) } else { BLOCK_THREADS_MAX };
    let largest = largest.min(function.threads_max());
    let held = |threads: u32| {
        // SAFETY: the program's own function, asked as documented.
        let bytes = shared_of.map_or(dynamic_bytes, |shared| unsafe { shared(threads as c_int) });
        blocks(&function, threads, bytes as u64)
    };
    // The largest block among those that fill most threads.
    let sizes = (1..=largest.div_ceil(WARP)).rev().map(|warps| (warps * WARP).min(largest));
    let best = sizes.max_by_key(|&threads| (held(threads) * threads, threads)).unwrap_or(largest);
    let processors = driver()?.arena.devices()[function.context.device].config.multiprocessor_count;
    // SAFETY: the caller's promise.
    unsafe {
        put(min_grid_size, (held(best) * processors) as c_int)?;
        put(block_size, best as c_int)
    }
}
