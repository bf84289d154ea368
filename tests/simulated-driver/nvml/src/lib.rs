//! The simulated NVML: `libnvidia-ml.so.1` for the machine whose `libcuda.so.1` is the simulated driver.
//!
//! Programs and tools that watch GPUs (nvidia-smi, nvidia-ml-py) see the devices, their memory and the
//! processes on them, out of the tables that all processes of the machine share (`turnus-simulated-arena`).
//! Nothing here changes a device. What is not simulated answers `NVML_ERROR_NOT_SUPPORTED`. Read next:
//! `entry/mod.rs` (the functions), `card.rs` (what the simulated card is), `library.rs` (initialisation).
//! Not a line of NVIDIA's header is in here; names, layouts and codes are those of NVML's documentation.

mod call;
mod card;
mod code;
mod device;
mod entry;
mod events;
mod internal;
mod library;
mod load;
mod not_simulated;
mod output;
mod process_name;
mod types;
mod version;
