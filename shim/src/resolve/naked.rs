//! The exported `dlsym` and `dlvsym`.
//!
//! glibc takes the return address of its caller to know where `RTLD_NEXT` starts. So these are
//! naked functions that ask [`super::decide`] for an answer and otherwise jump to the real
//! function, with every argument and the return address as they found them.

use super::{REAL_DLSYM, REAL_DLVSYM, decide, decide_versioned};
use core::arch::naked_asm;

/// `dlsym(handle, name)`, see dlsym(3).
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn dlsym() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, [rsp + 24]", // the caller's return address
        "call {decide}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jne 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "ret",
        decide = sym decide,
        real = sym REAL_DLSYM,
    )
}

/// `dlvsym(handle, name, version)`, see dlvsym(3).
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn dlvsym() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, [rsp + 24]", // the caller's return address
        "call {decide}",
        "mov rcx, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rcx, rcx",
        "jne 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "ret",
        decide = sym decide_versioned,
        real = sym REAL_DLVSYM,
    )
}

/// `dlsym(handle, name)`, see dlsym(3).
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn dlsym() {
    naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "mov x2, x30", // the caller's return address
        "bl {decide}",
        "mov x9, x0",
        "mov x10, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x10, 2f",
        "mov x0, x9",
        "ret",
        "2:",
        "adrp x9, {real}",
        "ldr x9, [x9, :lo12:{real}]",
        "br x9",
        decide = sym decide,
        real = sym REAL_DLSYM,
    )
}

/// `dlvsym(handle, name, version)`, see dlvsym(3).
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn dlvsym() {
    naked_asm!(
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "mov x3, x30", // the caller's return address
        "bl {decide}",
        "mov x9, x0",
        "mov x10, x1",
        "ldp x0, x1, [sp, #16]",
        "ldr x2, [sp, #32]",
        "ldp x29, x30, [sp], #48",
        "cbz x10, 2f",
        "mov x0, x9",
        "ret",
        "2:",
        "adrp x9, {real}",
        "ldr x9, [x9, :lo12:{real}]",
        "br x9",
        decide = sym decide_versioned,
        real = sym REAL_DLVSYM,
    )
}
