//! What the driver's documentation says, as tests that run on the simulated driver and on a card.
//!
//! `cargo test` runs them on the simulated driver. With `CONFORMANCE_LIBRARY` set to the folder of a real
//! `libcuda.so.1` they run on that, and the card judges them (`cargo xtask gpu-check --conformance`). So nothing
//! here knows how large the device is or what a context costs; what only the simulator has (its configuration,
//! its faults on demand, its costs) is tested in the files beside this folder.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod arrays;
mod batches;
mod capture;
mod contexts;
mod device_functions;
mod faults;
mod graph_memory;
mod graph_nodes;
mod graph_support;
mod graph_updates;
mod graphs;
mod ipc;
mod kernels;
mod linking;
mod loading;
mod managed;
mod memory;
mod peers;
mod pools;
mod processes;
mod textures;
mod virtual_memory;
