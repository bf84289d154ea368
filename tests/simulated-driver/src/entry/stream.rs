//! Streams and host functions: CUDA driver API, "Stream Management" and "Execution Control".
//!
//! Capture has a file of its own.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put, stream_entry};
use crate::context::current;
use crate::driver::driver;
use crate::execution::{HostFunction, HostPointer, StreamKind, Work};
use crate::pools;
use crate::space::Result;
use crate::stream::{STREAMS, StreamEntry, event, resolve};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_WAIT_EXTERNAL`.
const WAIT_EXTERNAL: u32 = 1;
/// Where `cuCtxGetStreamPriorityRange` ends; other values are moved into it.
const PRIORITIES: std::ops::RangeInclusive<c_int> = -5..=0;

entry! {
    fn cuStreamCreate(ph_stream: *mut CUstream, flags: c_uint) {
        create(ph_stream, flags, 0)
    }

    fn cuStreamCreateWithPriority(ph_stream: *mut CUstream, flags: c_uint, priority: c_int) {
        create(ph_stream, flags, priority.clamp(*PRIORITIES.start(), *PRIORITIES.end()))
    }

    fn cuStreamDestroy(h_stream: CUstream) {
        destroy(h_stream)
    }

    fn cuStreamDestroy_v2(h_stream: CUstream) {
        destroy(h_stream)
    }
}

stream_entry! {
    fn cuStreamGetPriority | cuStreamGetPriority_ptsz [default] (h_stream: CUstream, priority: *mut c_int) {
        put(priority, resolve(h_stream, default)?.stream.priority())
    }

    fn cuStreamGetFlags | cuStreamGetFlags_ptsz [default] (h_stream: CUstream, flags: *mut c_uint) {
        let kind = resolve(h_stream, default)?.stream.kind();
        put(flags, if kind == StreamKind::NonBlocking { NON_BLOCKING } else { 0 })
    }

    fn cuStreamGetId | cuStreamGetId_ptsz [default] (h_stream: CUstream, stream_id: *mut c_ulonglong) {
        put(stream_id, resolve(h_stream, default)?.stream.id())
    }

    fn cuStreamGetCtx | cuStreamGetCtx_ptsz [default] (h_stream: CUstream, pctx: *mut CUcontext) {
        put(pctx, resolve(h_stream, default)?.context.handle as CUcontext)
    }

    fn cuStreamGetCtx_v2 | cuStreamGetCtx_v2_ptsz [default] (
        h_stream: CUstream,
        p_ctx: *mut CUcontext,
        p_green_ctx: *mut CUgreenCtx,
    ) {
        needed(p_green_ctx)?;
        put(p_ctx, resolve(h_stream, default)?.context.handle as CUcontext)?;
        put(p_green_ctx, std::ptr::null_mut())
    }

    fn cuStreamGetDevice | cuStreamGetDevice_ptsz [default] (h_stream: CUstream, device: *mut CUdevice) {
        let index = resolve(h_stream, default)?.context.device;
        put(device, driver()?.ordinal(index).ok_or(CUerror::INVALID_CONTEXT)?)
    }

    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz [default] (h_stream: CUstream, h_event: CUevent, flags: c_uint) {
        let entry = resolve(h_stream, default)?;
        let event = event(h_event)?;
        if flags & !WAIT_EXTERNAL != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        if let Some(shared) = event.shared {
            entry.check_outside_capture()?;
            let number = shared.recorded();
            let is_over = move || shared.is_over(number);
            return entry.context.queue.submit(&entry.stream, Work::WaitUntil(Arc::new(is_over)));
        }
        entry.context.queue.wait_event(&entry.stream, &event.event, flags & WAIT_EXTERNAL != 0)
    }

    fn cuStreamQuery | cuStreamQuery_ptsz [default] (h_stream: CUstream) {
        let entry = resolve(h_stream, default)?;
        entry.context.queue.query_stream(&entry.stream)
    }

    fn cuStreamSynchronize | cuStreamSynchronize_ptsz [default] (h_stream: CUstream) {
        let entry = resolve(h_stream, default)?;
        entry.context.queue.synchronize_stream(&entry.stream)?;
        pools::synchronised()
    }

    fn cuStreamAddCallback | cuStreamAddCallback_ptsz [default] (
        h_stream: CUstream,
        callback: CUstreamCallback,
        user_data: *mut c_void,
        flags: c_uint,
    ) {
        let entry = resolve(h_stream, default)?;
        let callback = callback.ok_or(CUerror::INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let (handle, data) = (h_stream as usize, HostPointer(user_data));
        let step = move |state: Result<()>| {
            let data = data;
            // SAFETY: the program asked for this call with these arguments.
            unsafe { callback(handle as CUstream, state, data.0) }
        };
        entry.context.queue.submit(&entry.stream, Work::Callback(Arc::new(step)))
    }

    fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz [default] (h_stream: CUstream, fn_: CUhostFn, user_data: *mut c_void) {
        launch(&resolve(h_stream, default)?, fn_, user_data)
    }

    fn cuLaunchHostFunc_v2 | cuLaunchHostFunc_v2_ptsz [default] (
        h_stream: CUstream,
        fn_: CUhostFn,
        user_data: *mut c_void,
        sync_mode: c_uint,
    ) {
        let entry = resolve(h_stream, default)?;
        if sync_mode > 1 {
            return Err(CUerror::INVALID_VALUE);
        }
        launch(&entry, fn_, user_data)
    }
}

/// # Safety
/// As `cuStreamCreate`.
unsafe fn create(place: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult {
    needed(place)?;
    let context = current::get_sound()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let stream = context.queue.create_stream(flags & NON_BLOCKING != 0, priority);
    // SAFETY: the caller's promise.
    unsafe { put(place, STREAMS.add(StreamEntry { stream, context }) as CUstream) }
}

fn destroy(handle: CUstream) -> CUresult {
    current::peek()?;
    // The default streams cannot be destroyed.
    if (handle as usize) <= 2 {
        return Err(CUerror::INVALID_HANDLE);
    }
    let entry = STREAMS.remove(handle)?;
    // An event may still be the last use of the stream; pending work finishes by itself.
    drop(entry);
    Ok(())
}

fn launch(entry: &StreamEntry, function: CUhostFn, data: *mut c_void) -> CUresult {
    let function = function.ok_or(CUerror::INVALID_VALUE)?;
    let work = Work::HostFunction(HostFunction { function, data: HostPointer(data) });
    entry.context.queue.submit(&entry.stream, work)
}
