//! Gives the library the name and the binding of the real driver.
//!
//! SONAME `libcuda.so.1` is what programs were linked against; symbolic binding keeps a preloaded library
//! from catching calls that the driver makes to itself; `nodelete` because engine threads outlive dlclose.

fn main() {
    for argument in ["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
