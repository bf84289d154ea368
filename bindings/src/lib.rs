//! The CUDA driver API, declared once: every function, type, constant and error code. No logic.
//!
//! | to get | use |
//! |---|---|
//! | the type of a function pointer | [`fns::cuMemAlloc_v2`](fns) |
//! | structures, handles, constants | [`types`] |
//! | results of calls | [`CUresult`], [`CUerror`] |
//! | all names | [`NAMES`], [`TYPED`], [`UNTYPED`] |
//! | something for each function | [`driver_api!`], [`driver_api_untyped!`] |
//! | what a function does to a shared GPU, and what we do about it | [`class::class_of`] |
//!
//! `api.rs`, `types.rs`, `layout.rs` and `error_codes.rs` are generated from `cuda.h` of the wheel
//! `nvidia-cuda-runtime` 13.5.37 and from the export lists in `tests/data/driver-symbols`:
//! `cargo run -p turnus-bindings-generate` rewrites them, `--check` compares (a test does). Names are
//! those that a driver exports: `cuMemAlloc` is the first version of the call and `cuMemAlloc_v2` what
//! a program compiled today calls. `_ptds` and `_ptsz` forms use the per-thread default stream.
//!
//! A macro receives the whole list and makes of each function what it needs. The types are bare names,
//! so the caller imports them:
//!
//! ```
//! # #![allow(dead_code)]
//! use turnus_bindings::{driver_api, types::*};
//!
//! macro_rules! table {
//!     ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
//!         #[allow(non_snake_case)]
//!         struct Table { $($name: Option<unsafe extern "C" fn($($argument: $type),*) -> $result>,)* }
//!     };
//! }
//! driver_api!(table);
//! assert_eq!(size_of::<Table>(), turnus_bindings::TYPED.len() * size_of::<usize>());
//! ```

mod api;
pub mod class;
mod constants;
mod error_codes;
pub mod fns;
#[rustfmt::skip]
#[allow(clippy::unnecessary_operation, clippy::identity_op, reason = "generated assertions")]
mod layout;
mod names;
pub mod result;
#[rustfmt::skip]
#[allow(missing_docs, reason = "generated; NVIDIA's documentation describes each item by name")]
#[allow(missing_debug_implementations, reason = "a union cannot print itself")]
#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "the names are those of C")]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks, reason = "generated; see generate/src/header.rs")]
pub mod types;

pub use names::{NAMES, TYPED, UNTYPED};
pub use result::{CUerror, CUresult};
