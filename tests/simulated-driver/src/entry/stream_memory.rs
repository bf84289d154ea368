//! Values in memory as signals: CUDA driver API, "Stream Memory Operations".
//!
//! Both versions of the API behave alike here; the first needed a module parameter on real machines.

use std::ffi::c_uint;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::stream_entry;
use crate::copying::device_memory;
use crate::execution::{WaitCondition, Work};
use crate::space::Result;
use crate::stream::{Default, StreamEntry, resolve};

/// `CU_STREAM_WAIT_VALUE_FLUSH`, which asks for nothing that simulated memory lacks.
const WAIT_FLUSH: u32 = 1 << 30;
/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
const WRITE_NO_BARRIER: u32 = 1;
/// `CUstreamBatchMemOpType`.
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;
const BARRIER: u32 = 6;
/// Most operations of one batch.
const BATCH_MAX: u32 = 256;

macro_rules! value_functions {
    ($($name:ident $thread:ident $make:ident $type:ty, $bytes:literal;)*) => {
        stream_entry! {$(
            fn $name | $thread [default] (stream: CUstream, addr: CUdeviceptr, value: $type, flags: c_uint) {
                submit(stream, default, || $make(addr, value.into(), $bytes, flags))
            }
        )*}
    };
}

value_functions! {
    cuStreamWaitValue32 cuStreamWaitValue32_ptsz wait cuuint32_t, 4;
    cuStreamWaitValue32_v2 cuStreamWaitValue32_v2_ptsz wait cuuint32_t, 4;
    cuStreamWaitValue64 cuStreamWaitValue64_ptsz wait cuuint64_t, 8;
    cuStreamWaitValue64_v2 cuStreamWaitValue64_v2_ptsz wait cuuint64_t, 8;
    cuStreamWriteValue32 cuStreamWriteValue32_ptsz write cuuint32_t, 4;
    cuStreamWriteValue32_v2 cuStreamWriteValue32_v2_ptsz write cuuint32_t, 4;
    cuStreamWriteValue64 cuStreamWriteValue64_ptsz write cuuint64_t, 8;
    cuStreamWriteValue64_v2 cuStreamWriteValue64_v2_ptsz write cuuint64_t, 8;
}

stream_entry! {
    fn cuStreamBatchMemOp | cuStreamBatchMemOp_ptsz [default] (
        stream: CUstream,
        count: c_uint,
        param_array: *mut CUstreamBatchMemOpParams,
        flags: c_uint,
    ) {
        batch(&resolve(stream, default)?, count, param_array, flags)
    }

    fn cuStreamBatchMemOp_v2 | cuStreamBatchMemOp_v2_ptsz [default] (
        stream: CUstream,
        count: c_uint,
        param_array: *mut CUstreamBatchMemOpParams,
        flags: c_uint,
    ) {
        batch(&resolve(stream, default)?, count, param_array, flags)
    }
}

fn submit(stream: CUstream, default: Default, make: impl FnOnce() -> Result<Work>) -> CUresult {
    let entry = resolve(stream, default)?;
    entry.context.queue.check()?;
    entry.context.queue.submit(&entry.stream, make()?)
}

fn wait(address: u64, value: u64, bytes: u8, flags: c_uint) -> Result<Work> {
    check(address, bytes)?;
    let condition = match flags & !WAIT_FLUSH {
        0 => WaitCondition::GreaterOrEqual,
        1 => WaitCondition::Equal,
        2 => WaitCondition::And,
        3 => WaitCondition::Nor,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    Ok(Work::WaitValue { address, value, bytes, condition })
}

fn write(address: u64, value: u64, bytes: u8, flags: c_uint) -> Result<Work> {
    check(address, bytes)?;
    if flags & !WRITE_NO_BARRIER != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Work::WriteValue { address, value, bytes })
}

fn check(address: u64, bytes: u8) -> Result<()> {
    if !address.is_multiple_of(u64::from(bytes)) {
        return Err(CUerror::INVALID_VALUE);
    }
    device_memory(address, bytes.into()).map(drop)
}

/// # Safety
/// As `cuStreamBatchMemOp`.
unsafe fn batch(
    entry: &StreamEntry,
    count: c_uint,
    operations: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> CUresult {
    entry.context.queue.check()?;
    if count == 0 || count > BATCH_MAX || operations.is_null() || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let operations = unsafe { std::slice::from_raw_parts(operations, count as usize) };
    let works: Vec<Work> = operations.iter().map(operation).collect::<Result<_>>()?;
    entry.context.queue.submit(&entry.stream, Work::Batch(works.into()))
}

/// One operation of a batch as work.
pub fn operation(parameters: &CUstreamBatchMemOpParams) -> Result<Work> {
    // SAFETY: every variant begins with the operation, and all are plain numbers.
    unsafe {
        let (waits, writes) = (&parameters.waitValue, &parameters.writeValue);
        match parameters.operation.0 {
            WAIT_32 => wait(waits.address, waits.anonymous_1.value.into(), 4, waits.flags),
            WAIT_64 => wait(waits.address, waits.anonymous_1.value64, 8, waits.flags),
            WRITE_32 => write(writes.address, writes.anonymous_1.value.into(), 4, writes.flags),
            WRITE_64 => write(writes.address, writes.anonymous_1.value64, 8, writes.flags),
            BARRIER => Ok(Work::Nothing),
            _ => Err(CUerror::NOT_SUPPORTED),
        }
    }
}
