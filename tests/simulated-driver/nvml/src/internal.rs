//! The table of internal functions without which nvidia-smi does not start.
//!
//! Its first word is its length in bytes, the others are functions; newer releases of NVML only append, so a
//! long table fits all. Places and signatures are those that NVIDIA's own mock of NVML has published
//! (github.com/NVIDIA/k8s-test-infra, `pkg/gpu/mocknvml`), checked here with nvidia-smi of releases 535.261.03
//! and 550.163.01. All places that are not known answer `NVML_ERROR_NOT_SUPPORTED`; a trace shows them as
//! `internal 26`.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

use crate::call;
use crate::code::{Error, Result};
use crate::device::{Handle, device, handle};
use crate::library::arena;
use crate::output::{fixed_text, needed, put};
use crate::process_name::process_name;

/// Words of the table; `build.rs` makes as many functions.
const WORDS: usize = 512;
/// The id under which nvidia-smi asks for the table.
const ID: [u8; 16] =
    [0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4];
/// (index, place for the handle, flags)
const DEVICE_BY_INDEX: usize = 81;
/// (device, count: room and then number, entries)
const COMPUTE_PROCESSES: usize = 213;
const GRAPHICS_PROCESSES: usize = 214;
const MPS_PROCESSES: usize = 215;
/// (device, place for the number)
const HOST_LINK_GENERATION: usize = 230;

type Function = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> u32;

#[repr(C)]
struct Table {
    bytes: usize,
    functions: [Function; WORDS - 1],
}

static TABLE: Table =
    Table { bytes: size_of::<Table>(), functions: include!(concat!(env!("OUT_DIR"), "/internal_slots.rs")) };

/// A process in the lists: `nvmlProcessDetail_v1_t` and its name.
#[repr(C)]
struct Process {
    pid: c_uint,
    unused: c_uint,
    used_bytes: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
    protected_bytes: c_ulonglong,
    name: [c_char; 4096],
}

/// The table with this id, if there is one.
pub fn table(id: &[u8; 16]) -> Result<*const c_void> {
    if *id == ID { Ok(std::ptr::from_ref(&TABLE).cast()) } else { Err(Error::NOT_SUPPORTED) }
}

unsafe extern "C" fn slot<const PLACE: usize>(
    first: *mut c_void,
    second: *mut c_void,
    third: *mut c_void,
) -> u32 {
    // SAFETY: the caller passes what the function at this place takes.
    call::run(&format!("internal {PLACE}"), || unsafe { answer(PLACE, first, second, third) })
}

/// # Safety
/// The arguments are those of the function at `place`, as its constant says; others are not looked at.
unsafe fn answer(place: usize, first: *mut c_void, second: *mut c_void, third: *mut c_void) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        match place {
            DEVICE_BY_INDEX => put_device(first.addr(), second.cast()),
            COMPUTE_PROCESSES => put_processes(first, second.cast(), third.cast()),
            GRAPHICS_PROCESSES | MPS_PROCESSES => device(first).and_then(|_| put(second.cast(), 0 as c_uint)),
            HOST_LINK_GENERATION => {
                device(first).and_then(|_| put(second.cast::<c_uint>(), crate::card::PCIE_GENERATION))
            }
            _ => Err(Error::NOT_SUPPORTED),
        }
    }
}

/// # Safety
/// `place` is null or valid for writing.
unsafe fn put_device(index: usize, place: *mut Handle) -> Result<()> {
    needed(place)?;
    if index >= arena()?.whole_devices().len() {
        return Err(Error::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { put(place, device(handle(index))?.handle()) }
}

/// A list that does not fit is cut: nvidia-smi asks once, with room for hundreds.
///
/// # Safety
/// `count` is null or valid, `entries` null or valid for `*count` processes.
unsafe fn put_processes(handle: Handle, count: *mut c_uint, entries: *mut Process) -> Result<()> {
    let device = device(handle)?;
    needed(count)?;
    let mut usage = crate::entry::process::processes(&device)?;
    // SAFETY: checked for null, else the caller's promise.
    let room = unsafe { count.read_unaligned() } as usize;
    usage.truncate(room);
    let number = usage.len();
    if number > 0 {
        needed(entries)?;
    }
    for (at, info) in usage.into_iter().enumerate() {
        let process = Process {
            pid: info.pid,
            unused: 0,
            used_bytes: info.used_bytes,
            gpu_instance: info.gpu_instance,
            compute_instance: info.compute_instance,
            protected_bytes: 0,
            name: fixed_text(&process_name(info.pid).unwrap_or_default()),
        };
        // SAFETY: at < room, for which the caller vouches.
        unsafe { put(entries.add(at), process)? };
    }
    // SAFETY: the caller's promise.
    unsafe { put(count, number as c_uint) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_its_length() {
        assert_eq!((TABLE.bytes, size_of::<Table>()), (WORDS * 8, WORDS * 8));
        assert_eq!(size_of::<Process>(), 4128);
    }
}
