//! How the shim is linked.
//!
//! - Calls inside the library reach its own functions, not those of whoever comes first.
//! - The unwinder is linked in: a preload that needs `libgcc_s.so.1` kills every program of an
//!   image that has none. The standard library asks the linker for `gcc_s`; a linker script of that
//!   name, found first, answers with the static unwinder.

use std::path::PathBuf;
use std::{env, fs, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--as-needed");
    if let (Some(directory), true) = (env::var_os("OUT_DIR").map(PathBuf::from), has_static_unwinder()) {
        let script = directory.join("libgcc_s.so");
        if fs::write(&script, "GROUP ( libgcc_eh.a libgcc.a )\n").is_ok() {
            println!("cargo:rustc-cdylib-link-arg=-L{}", directory.display());
        }
    }
}

/// Whether the C compiler that links knows a static unwinder.
fn has_static_unwinder() -> bool {
    let compiler = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let answer = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output();
    answer.is_ok_and(|output| output.stdout.starts_with(b"/"))
}
