//! A software GPU behind the interface of `libcuda.so.1`, for programs that were built for the real one.
//!
//! Everything a program can call is in `exports.rs`; what is simulated is in `entry`, by topic, over plain Rust
//! modules: `context`, `space` (device addresses), `module` (code), `execution` (streams and engines). The
//! machine itself, shared by all processes, is the crate turnus-simulated-arena; kernels run in
//! turnus-simulated-ptx. What is not simulated answers `CUDA_ERROR_NOT_SUPPORTED`, never success.
//! README.md says how to use it.

mod arrays;
mod call;
mod configuration;
mod context;
mod copying;
mod device;
mod driver;
mod entry;
mod error_text;
#[allow(dead_code, unused_imports, reason = "an interface offered as a whole; its tests use the rest")]
mod execution;
mod exports;
mod graph_content;
mod graph_memory;
mod graphs;
mod host_memory;
mod launch;
mod module;
#[cfg(test)]
mod not_simulated_list;
mod pointer;
mod pools;
mod proc_address;
mod registry;
mod sampling;
mod shared_event;
mod space;
mod stream;
mod tables;
mod textures;
