//! Memory and events of other processes: CUDA driver API, `cuIpc...`.
//!
//! A handle carries the name of what it stands for on the machine. The importer holds the memory by itself, so
//! it stays when the exporter frees it; the exporter is not told. Whether bytes are a handle is found by a magic
//! number, and whether they are stale by the machine.

use std::ffi::{c_char, c_uint};
use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::*;
use turnus_simulated_arena::PhysicalId;

use super::{entry, needed, put};
use crate::context::{current, of_device};
use crate::driver::driver;
use crate::execution::{Event, check_unsafe_call};
use crate::shared_event::{SharedEvent, SharedEventName};
use crate::space::{Origin, SharedPart};
use crate::stream::{EVENTS, EventEntry, event};

const MEMORY_MAGIC: u64 = u64::from_le_bytes(*b"SimIpcM1");
const EVENT_MAGIC: u64 = u64::from_le_bytes(*b"SimIpcE1");
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag and needed.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;
/// Keeps two threads from opening one handle twice.
static OPENING: Mutex<()> = Mutex::new(());

entry! {
    fn cuIpcGetMemHandle(p_handle: *mut CUipcMemHandle, dptr: CUdeviceptr) {
        needed(p_handle)?;
        current::get_sound()?;
        let space = &driver()?.space;
        if !matches!(space.allocation(dptr)?.origin, Origin::Context) {
            return Err(CUerror::INVALID_VALUE);
        }
        let part = space.shared_part(dptr)?;
        let process = u64::from(std::process::id());
        let words = [MEMORY_MAGIC, process, part.offset_bytes, part.bytes, part.serial];
        put(p_handle, CUipcMemHandle_st { reserved: handle(words, &part.id.to_bytes()) })
    }

    fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) {
        open(pdptr, &handle, flags)
    }

    fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) {
        open(pdptr, &handle, flags)
    }

    fn cuIpcCloseMemHandle(dptr: CUdeviceptr) {
        current::get_sound()?;
        check_unsafe_call()?;
        let space = &driver()?.space;
        let device = space.allocation(dptr)?.device;
        if space.close(dptr)? {
            of_device(device).iter().for_each(|context| context.queue.wait_all());
            space.free(dptr)?;
        }
        Ok(())
    }

    fn cuIpcGetEventHandle(p_handle: *mut CUipcEventHandle, event_handle: CUevent) {
        needed(p_handle)?;
        let entry = event(event_handle)?;
        let shared = entry.shared.ok_or(CUerror::INVALID_HANDLE)?;
        let words = [EVENT_MAGIC, shared.name.process.into(), shared.name.number.into(), 0, 0];
        put(p_handle, CUipcEventHandle_st { reserved: handle(words, &[]) })
    }

    fn cuIpcOpenEventHandle(ph_event: *mut CUevent, handle: CUipcEventHandle) {
        needed(ph_event)?;
        let context = current::get_sound()?;
        let [magic, process, number, ..] = words(&handle.reserved);
        let (Ok(process), Ok(number), EVENT_MAGIC) = (process.try_into(), number.try_into(), magic) else {
            return Err(CUerror::INVALID_VALUE);
        };
        // As for memory (from memory): not in the process that made it.
        if process == std::process::id() {
            return Err(CUerror::INVALID_CONTEXT);
        }
        let shared = Some(Arc::new(SharedEvent::open(SharedEventName { process, number })?));
        put(ph_event, EVENTS.add(EventEntry { event: Event::new(false), context, shared }) as CUevent)
    }
}

/// # Safety
/// As `cuIpcOpenMemHandle`.
unsafe fn open(place: *mut CUdeviceptr, handle: &CUipcMemHandle, flags: c_uint) -> CUresult {
    needed(place)?;
    let context = current::get_sound()?;
    check_unsafe_call()?;
    let [magic, process, offset_bytes, bytes, serial] = words(&handle.reserved);
    if flags != LAZY_ENABLE_PEER_ACCESS || magic != MEMORY_MAGIC {
        return Err(CUerror::INVALID_VALUE);
    }
    if process == u64::from(std::process::id()) {
        return Err(CUerror::INVALID_CONTEXT);
    }
    let mut name = [0; 12];
    name.iter_mut().zip(&handle.reserved[40..]).for_each(|(to, from)| *to = *from as u8);
    let part = SharedPart { id: PhysicalId::from_bytes(name), offset_bytes, bytes, serial };
    let _one_at_a_time = OPENING.lock();
    let space = &driver()?.space;
    let reaches = |device| device == context.device || space.can_access_peer(context.device, device);
    let address = match space.open_again(part, context.id()) {
        Some(address) => address,
        None if !reaches(part.id.device()) => return Err(CUerror::PEER_ACCESS_UNSUPPORTED),
        None => space.import_part(part, context.id(), Origin::Opened(part, 1), context.device)?,
    };
    // SAFETY: the caller's promise.
    unsafe { put(place, address) }
}

/// Five words and what follows them.
fn handle(words: [u64; 5], rest: &[u8]) -> [c_char; 64] {
    let mut handle = [0; 64];
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).chain(rest.iter().copied());
    handle.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as c_char);
    handle
}

fn words(handle: &[c_char; 64]) -> [u64; 5] {
    [0, 1, 2, 3, 4].map(|index| {
        let mut word = [0; 8];
        word.iter_mut().zip(&handle[8 * index..]).for_each(|(to, from)| *to = *from as u8);
        u64::from_le_bytes(word)
    })
}
