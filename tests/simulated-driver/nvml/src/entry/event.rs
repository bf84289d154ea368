//! Events: XID errors out of the machine's log.

use std::ffi::{c_uint, c_ulonglong, c_void};

use super::entry;
use super::process::NO_INSTANCE;
use crate::code::Error;
use crate::device::{Handle, device, handle};
use crate::events::{self, XID_CRITICAL_ERROR};
use crate::output::{needed, put};
use crate::types::{EventData, EventDataV1};

/// `nvmlEventSet_t`: the number of the set.
type Set = *mut c_void;

entry! {
    fn nvmlDeviceGetSupportedEventTypes(handle: Handle, types: *mut c_ulonglong) {
        device(handle)?;
        put(types, XID_CRITICAL_ERROR)
    }

    fn nvmlEventSetCreate(set: *mut Set) {
        needed(set)?;
        put(set, std::ptr::without_provenance_mut(events::create()))
    }

    fn nvmlDeviceRegisterEvents(handle: Handle, types: c_ulonglong, set: Set) {
        needed(set)?;
        events::register(set.addr(), &device(handle)?, types)
    }

    fn nvmlEventSetWait(set: Set, data: *mut EventDataV1, timeout_ms: c_uint) {
        needed(data)?;
        let event = events::wait(set.addr(), timeout_ms)?;
        put(data, EventDataV1 {
            device: handle(event.device),
            event_type: XID_CRITICAL_ERROR,
            event_data: event.xid,
        })
    }

    fn nvmlEventSetWait_v2(set: Set, data: *mut EventData, timeout_ms: c_uint) {
        needed(data)?;
        let event = events::wait(set.addr(), timeout_ms)?;
        put(data, EventData {
            device: handle(event.device),
            event_type: XID_CRITICAL_ERROR,
            event_data: event.xid,
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
        })
    }

    fn nvmlEventSetFree(set: Set) {
        if set.is_null() {
            return Err(Error::INVALID_ARGUMENT);
        }
        events::free(set.addr())
    }
}
