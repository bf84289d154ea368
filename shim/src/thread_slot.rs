//! One pointer per thread, found in two instructions.
//!
//! What `thread_local!` makes of a thread-local in a shared library is a call of `__tls_get_addr`
//! for each access, a third of what the gate costs. A preloaded library is there when the program
//! starts, so its thread-locals have a fixed distance from the thread pointer: the initial-exec
//! model of the ELF TLS ABI. Rust has no stable way to ask for it, hence the assembly. Loaded later
//! by `dlopen`, these 8 bytes come out of the surplus that glibc keeps for such libraries.
//! Must not be used for anything that needs a destructor.

use core::arch::{asm, global_asm};
use core::ffi::c_void;

// Hidden, not local: the accesses are inlined into other object files of this library.
global_asm!(
    ".pushsection .tbss.turnus_thread_slot, \"awT\", @nobits",
    ".p2align 3",
    ".globl turnus_thread_slot",
    ".hidden turnus_thread_slot",
    ".type turnus_thread_slot, @object",
    ".size turnus_thread_slot, 8",
    "turnus_thread_slot:",
    ".zero 8",
    ".popsection",
);

/// This thread's pointer; null in a thread that has set none.
#[inline(always)]
pub(crate) fn get() -> *const c_void {
    let pointer: *const c_void;
    // SAFETY: the slot is 8 aligned bytes of this thread's static TLS block, zero at its start; the
    // assembly reads them, and the offset of the slot, and touches nothing else.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "mov {pointer}, qword ptr [rip + turnus_thread_slot@GOTTPOFF]",
            "mov {pointer}, qword ptr fs:[{pointer}]",
            pointer = out(reg) pointer,
            options(nostack, preserves_flags, readonly),
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "adrp {pointer}, :gottprel:turnus_thread_slot",
            "ldr {pointer}, [{pointer}, :gottprel_lo12:turnus_thread_slot]",
            "mrs {thread}, tpidr_el0",
            "ldr {pointer}, [{thread}, {pointer}]",
            pointer = out(reg) pointer,
            thread = out(reg) _,
            options(nostack, preserves_flags, readonly),
        );
    }
    pointer
}

/// Sets this thread's pointer.
pub(crate) fn set(pointer: *const c_void) {
    // SAFETY: as in `get`; only this thread reads or writes its slot.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "mov {offset}, qword ptr [rip + turnus_thread_slot@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {pointer}",
            pointer = in(reg) pointer,
            offset = out(reg) _,
            options(nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "adrp {offset}, :gottprel:turnus_thread_slot",
            "ldr {offset}, [{offset}, :gottprel_lo12:turnus_thread_slot]",
            "mrs {thread}, tpidr_el0",
            "str {pointer}, [{thread}, {offset}]",
            pointer = in(reg) pointer,
            offset = out(reg) _,
            thread = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_a_pointer_of_its_own_and_begins_without_one() {
        let value = 7u64;
        set((&raw const value).cast());
        std::thread::spawn(|| {
            assert!(get().is_null(), "a new thread has another one's pointer");
            set(core::ptr::dangling());
        })
        .join()
        .expect("thread");
        assert_eq!(get(), (&raw const value).cast());
        set(core::ptr::null());
    }
}
