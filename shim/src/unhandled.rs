//! Functions that Turnus does not handle yet: counted on their way to the driver, never silent.
//!
//! Each is a stub without a signature: add one to a counter, jump to the driver with everything as
//! it was. The client thread reports the counts, `turnus status` shows them. The list is that of
//! `bindings/src/class.rs` (a test in `hooks.rs` compares); a name leaves it when it gets a hook.

#![allow(non_snake_case, reason = "a stub has the name of its function")]

use crate::boundary;
use crate::driver;
use crate::hooks::Entry;
use crate::message;
use core::arch::naked_asm;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use turnus_bindings::CUresult;
use turnus_bindings::class::{Class, Handling, base_name, class_of};

/// What a stub reads and writes. The layout is known to the assembly below.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slot {
    /// Where the stub jumps: the driver's function once it is known.
    target: AtomicPtr<c_void>,
    calls: AtomicU64,
}

impl Slot {
    const fn new() -> Slot {
        Slot { target: AtomicPtr::new(first_call as *mut c_void), calls: AtomicU64::new(0) }
    }
}

macro_rules! counted {
    ($($name:ident)*) => {
        $(
            mod $name {
                pub(super) static SLOT: super::Slot = super::Slot::new();
            }

            #[cfg(target_arch = "x86_64")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                // r11 belongs to nobody across a call in the System V convention.
                naked_asm!(
                    "lea r11, [rip + {slot}]",
                    "lock inc qword ptr [r11 + 8]",
                    "jmp qword ptr [r11]",
                    slot = sym $name::SLOT,
                )
            }

            #[cfg(target_arch = "aarch64")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                // x9, x10, x16 and x17 are scratch at a call; exclusive pairs work on every core.
                naked_asm!(
                    "adrp x16, {slot}",
                    "add x16, x16, :lo12:{slot}",
                    "add x17, x16, #8",
                    "2:",
                    "ldxr x9, [x17]",
                    "add x9, x9, #1",
                    "stxr w10, x9, [x17]",
                    "cbnz w10, 2b",
                    "ldr x17, [x16]",
                    "br x17",
                    slot = sym $name::SLOT,
                )
            }
        )*

        /// The counted names, in the order of the list.
        pub(crate) static COUNTED: &[Entry] = &[$(Entry {
            // SAFETY: the text ends with the NUL that concat! appends and has no other.
            name: unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
            hook: $name as *const c_void,
            real: &$name::SLOT.target,
        }),*];

        static SLOTS: &[&Slot] = &[$(&$name::SLOT),*];
    };
}

counted! {
    cuArray3DCreate cuArray3DCreate_v2 cuArrayCreate cuArrayCreate_v2 cuArrayDestroy
    cuCheckpointOperationComplete cuCheckpointProcessCheckpoint cuCheckpointProcessRestore cuCtxAttach
    cuCtxDetach cuCtxDisablePeerAccess cuCtxEnablePeerAccess cuDestroyExternalMemory
    cuDeviceGetDefaultMemPool cuDeviceGetGraphMemAttribute cuDeviceGetMemPool cuDeviceGraphMemTrim
    cuDeviceSetGraphMemAttribute cuDeviceSetMemPool cuEGLStreamConsumerAcquireFrame
    cuEGLStreamConsumerConnect cuEGLStreamConsumerConnectWithFlags cuEGLStreamConsumerDisconnect
    cuEGLStreamConsumerReleaseFrame cuEGLStreamProducerConnect cuEGLStreamProducerDisconnect
    cuEGLStreamProducerPresentFrame cuEGLStreamProducerReturnFrame cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray cuGLCtxCreate cuGLCtxCreate_v2 cuGLMapBufferObject
    cuGLMapBufferObjectAsync cuGLMapBufferObjectAsync_v2 cuGLMapBufferObjectAsync_v2_ptsz
    cuGLMapBufferObject_v2 cuGLMapBufferObject_v2_ptds cuGLRegisterBufferObject cuGLUnmapBufferObject
    cuGLUnmapBufferObjectAsync cuGLUnregisterBufferObject cuGraphAddMemAllocNode cuGraphAddMemFreeNode
    cuGraphicsEGLRegisterImage cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage cuGraphicsMapResources
    cuGraphicsMapResources_ptsz cuGraphicsResourceGetMappedEglFrame
    cuGraphicsResourceGetMappedMipmappedArray cuGraphicsResourceGetMappedPointer
    cuGraphicsResourceGetMappedPointer_v2 cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources
    cuGraphicsUnmapResources_ptsz cuGraphicsUnregisterResource cuGraphicsVDPAURegisterOutputSurface
    cuGraphicsVDPAURegisterVideoSurface cuGreenCtxCreate cuGreenCtxDestroy cuImportExternalMemory
    cuIpcCloseMemHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuLogicalEndpointAddDevice
    cuLogicalEndpointBindAddr cuLogicalEndpointBindMem cuLogicalEndpointCreate cuLogicalEndpointDestroy
    cuLogicalEndpointExport cuLogicalEndpointGetLimits cuLogicalEndpointIdRelease cuLogicalEndpointIdReserve
    cuLogicalEndpointImport cuLogicalEndpointQuery cuLogicalEndpointUnbind cuMemAddressFree
    cuMemAddressReserve cuMemAdvise cuMemAdvise_v2 cuMemAllocAsync cuMemAllocAsync_ptsz
    cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemAllocManaged cuMemCreate
    cuMemExportToShareableHandle cuMemFreeAsync cuMemFreeAsync_ptsz cuMemGetAccess
    cuMemGetAllocationPropertiesFromHandle cuMemGetAttribute cuMemGetAttribute_v2 cuMemGetDefaultMemPool
    cuMemGetMemPool cuMemImportFromShareableHandle cuMemMap cuMemMapArrayAsync
    cuMemMapArrayAsync_ptsz cuMemPoolCreate cuMemPoolDestroy cuMemPoolExportPointer
    cuMemPoolExportToShareableHandle cuMemPoolGetAccess cuMemPoolGetAttribute
    cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuMemPoolSetAccess cuMemPoolSetAttribute
    cuMemPoolTrimTo cuMemRelease cuMemSetAccess cuMemSetMemPool cuMemUnmap
    cuMipmappedArrayCreate cuMipmappedArrayDestroy cuMulticastAddDevice cuMulticastBindAddr
    cuMulticastBindAddr_v2 cuMulticastBindMem cuMulticastBindMem_v2 cuMulticastCreate cuMulticastUnbind
    cuStreamBeginCaptureToCig cuStreamBeginCaptureToCig_ptsz cuStreamEndCaptureToCig
    cuStreamEndCaptureToCig_ptsz cuVDPAUCtxCreate cuVDPAUCtxCreate_v2
}

/// Where a stub jumps before the driver is known (direct linking): finds the driver with all
/// argument registers saved, then goes on to the function.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn first_call() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 192",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov [rsp + 48], rax",
        "movups [rsp + 64], xmm0",
        "movups [rsp + 80], xmm1",
        "movups [rsp + 96], xmm2",
        "movups [rsp + 112], xmm3",
        "movups [rsp + 128], xmm4",
        "movups [rsp + 144], xmm5",
        "movups [rsp + 160], xmm6",
        "movups [rsp + 176], xmm7",
        "mov rdi, r11",
        "call {find}",
        "mov r11, rax",
        "movups xmm7, [rsp + 176]",
        "movups xmm6, [rsp + 160]",
        "movups xmm5, [rsp + 144]",
        "movups xmm4, [rsp + 128]",
        "movups xmm3, [rsp + 112]",
        "movups xmm2, [rsp + 96]",
        "movups xmm1, [rsp + 80]",
        "movups xmm0, [rsp + 64]",
        "mov rax, [rsp + 48]",
        "mov r9, [rsp + 40]",
        "mov r8, [rsp + 32]",
        "mov rcx, [rsp + 24]",
        "mov rdx, [rsp + 16]",
        "mov rsi, [rsp + 8]",
        "mov rdi, [rsp]",
        "leave",
        "jmp r11",
        find = sym find_target,
    )
}

/// As above; the slot's address comes in x16.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn first_call() {
    naked_asm!(
        "stp x29, x30, [sp, #-224]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "str x8, [sp, #80]",
        "stp q0, q1, [sp, #96]",
        "stp q2, q3, [sp, #128]",
        "stp q4, q5, [sp, #160]",
        "stp q6, q7, [sp, #192]",
        "mov x0, x16",
        "bl {find}",
        "mov x17, x0",
        "ldp q6, q7, [sp, #192]",
        "ldp q4, q5, [sp, #160]",
        "ldp q2, q3, [sp, #128]",
        "ldp q0, q1, [sp, #96]",
        "ldr x8, [sp, #80]",
        "ldp x6, x7, [sp, #64]",
        "ldp x4, x5, [sp, #48]",
        "ldp x2, x3, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #224",
        "br x17",
        find = sym find_target,
    )
}

/// Finds the driver, which fills all slots; a slot that stays empty names a function that this
/// driver lacks, and answers an error from then on.
extern "C" fn find_target(slot: &Slot) -> *mut c_void {
    boundary::quietly(driver::get_or_load);
    let target = slot.target.load(Ordering::Acquire);
    if core::ptr::eq(target, first_call as *const c_void) { absent as *mut c_void } else { target }
}

extern "C" fn absent() -> CUresult {
    boundary::ABSENT
}

/// Work may reach the device past the gate: a name that gives work or copies was given out that has
/// no hook here.
static IS_BLIND: AtomicBool = AtomicBool::new(false);

/// Whether every call that can write device memory is counted at the gate.
pub(crate) fn sees_all_work() -> bool {
    !IS_BLIND.load(Ordering::Acquire)
}

/// A program is given a function of the driver that has no hook. `is_there`: the driver has it.
pub(crate) fn note_unhooked(name: &CStr, is_there: impl FnOnce() -> bool) {
    let Ok(text) = name.to_str() else { return };
    if sees_all_work() && may_write_unseen(text) && is_there() {
        IS_BLIND.store(true, Ordering::Release);
        message::debug(|| format!("{text} is unknown here: all bytes count as written from now on"));
    }
}

/// Whether the name is younger than our list, and not of a family that is known to write nothing.
fn may_write_unseen(name: &str) -> bool {
    let may_write = class_of(name).is_none_or(|entry| {
        entry.handling == Handling::NotHandledYet && matches!(entry.class, Class::Submits | Class::Copies)
    });
    may_write && !turnus_bindings::NAMES.iter().any(|known| base_name(known) == base_name(name))
}

static ESCAPED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// Counts a name whose address was out of our reach; true the first time.
pub(crate) fn count_escape(name: &str) -> bool {
    IS_BLIND.store(true, Ordering::Release);
    let mut escaped = ESCAPED.lock().unwrap_or_else(PoisonError::into_inner);
    let count = escaped.entry(name.to_owned()).or_insert(0);
    *count += 1;
    *count == 1
}

/// What was counted so far and has not been reported.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    reported: BTreeMap<String, u64>,
}

impl Reporter {
    /// Names with the number of calls since the last time, in order of the names.
    pub(crate) fn news(&mut self) -> Vec<(String, u64)> {
        let called = COUNTED.iter().zip(SLOTS).filter_map(|(entry, slot)| {
            let calls = slot.calls.load(Ordering::Relaxed);
            (calls > 0).then(|| (entry.name.to_string_lossy().into_owned(), calls))
        });
        let escaped = ESCAPED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut news = Vec::new();
        for (name, calls) in called.chain(escaped) {
            let before = self.reported.insert(name.clone(), calls).unwrap_or(0);
            if calls > before {
                news.push((name, calls - before));
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_young_names_that_may_write_end_the_belief_that_bytes_are_unwritten() {
        for name in ["cuMemcpyQuantum", "cuLaunchKernelSideways", "cuNewThing", "cuStreamWriteValue128_ptsz"]
        {
            assert!(may_write_unseen(name), "{name}");
        }
        for name in
            ["cuMemAdvise", "cuMemAdvise_v2", "cuEventRecord", "cuLaunchHostFunc", "cuMemPoolExportNew"]
        {
            assert!(!may_write_unseen(name), "{name}");
        }
    }
}
