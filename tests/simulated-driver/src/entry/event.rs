//! Events: CUDA driver API, "Event Management".
//!
//! Events that processes share have counters of their own (`shared_event.rs`); their handles are in `ipc.rs`.

use std::ffi::{c_float, c_uint};
use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put, stream_entry};
use crate::context::current;
use crate::execution::{Event, Work, check_unsafe_call};
use crate::pools;
use crate::shared_event::SharedEvent;
use crate::space::Result;
use crate::stream::{EVENTS, EventEntry, event, resolve};

/// `CU_EVENT_BLOCKING_SYNC`, `DISABLE_TIMING`, `INTERPROCESS`.
const FLAGS_MASK: u32 = 7;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
/// `CU_EVENT_RECORD_EXTERNAL`.
const RECORD_EXTERNAL: u32 = 1;

entry! {
    fn cuEventCreate(ph_event: *mut CUevent, flags: c_uint) {
        needed(ph_event)?;
        let context = current::get_sound()?;
        if flags & !FLAGS_MASK != 0 || flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let shared =
            if flags & INTERPROCESS == 0 { None } else { Some(Arc::new(SharedEvent::create()?)) };
        let event = Event::new(flags & DISABLE_TIMING == 0);
        put(ph_event, EVENTS.add(EventEntry { event, context, shared }) as CUevent)
    }

    fn cuEventDestroy(h_event: CUevent) {
        current::peek()?;
        EVENTS.remove(h_event).map(drop)
    }

    fn cuEventDestroy_v2(h_event: CUevent) {
        current::peek()?;
        EVENTS.remove(h_event).map(drop)
    }

    fn cuEventQuery(h_event: CUevent) {
        current::peek()?;
        let entry = event(h_event)?;
        entry.context.queue.check()?;
        match entry.shared {
            Some(shared) => {
                check_unsafe_call()?;
                if shared.is_over(shared.recorded()) { Ok(()) } else { Err(CUerror::NOT_READY) }
            }
            None => entry.event.query(),
        }
    }

    fn cuEventSynchronize(h_event: CUevent) {
        current::peek()?;
        let entry = event(h_event)?;
        entry.context.queue.check()?;
        match entry.shared {
            Some(shared) => {
                check_unsafe_call()?;
                shared.wait();
                entry.context.queue.check()?;
            }
            None => entry.event.synchronize()?,
        }
        pools::synchronised()
    }

    fn cuEventElapsedTime(p_milliseconds: *mut c_float, h_start: CUevent, h_end: CUevent) {
        needed(p_milliseconds)?;
        current::peek()?;
        put(p_milliseconds, event(h_start)?.event.elapsed_ms(&event(h_end)?.event)?)
    }

    fn cuEventElapsedTime_v2(p_milliseconds: *mut c_float, h_start: CUevent, h_end: CUevent) {
        needed(p_milliseconds)?;
        current::peek()?;
        put(p_milliseconds, event(h_start)?.event.elapsed_ms(&event(h_end)?.event)?)
    }
}

stream_entry! {
    fn cuEventRecord | cuEventRecord_ptsz [default] (h_event: CUevent, h_stream: CUstream) {
        record(h_event, resolve(h_stream, default)?, false)
    }

    fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz [default] (
        h_event: CUevent,
        h_stream: CUstream,
        flags: c_uint,
    ) {
        let entry = resolve(h_stream, default)?;
        if flags & !RECORD_EXTERNAL != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        record(h_event, entry, flags & RECORD_EXTERNAL != 0)
    }
}

/// The event and the stream must be of the same context.
fn record(handle: CUevent, entry: crate::stream::StreamEntry, external: bool) -> CUresult {
    let event = event(handle)?;
    if event.context.id() != entry.context.id() {
        return Err(CUerror::INVALID_HANDLE);
    }
    if let Some(shared) = event.shared {
        entry.check_outside_capture()?;
        let number = shared.record();
        // Also in a lost context: other processes must not wait for it.
        let step = move |_: Result<()>| shared.reach(number);
        return entry.context.queue.submit(&entry.stream, Work::Action(Arc::new(step)));
    }
    entry.context.queue.record_event(&entry.stream, &event.event, external)
}
