//! Parses PTX and executes it: the kernels of the simulated driver.
//!
//! ```text
//! let module = Module::parse(text)?;                   // names what it cannot execute, with its line
//! for variable in module.globals() { ... }             // the driver allocates, writes `initial`, relocates
//! let entry = module.entry("k").ok_or(...)?;           // parameters, shared and local bytes, block limits
//! let mut launch = Launch::new(entry, grid, block, dynamic_shared_bytes, &parameters, &address_of)?;
//! while launch.run(&mut memory, 100_000, &clock)? == Progress::Yielded { ... }
//! ```
//!
//! - Memory comes in through [`DeviceMemory`]; only `load`, `store` and `atomic` must be implemented.
//! - `run` executes about so many instructions of warps and can be called again; a [`Launch`] is `Send`, owns its
//!   code and gives the same result whatever the budgets are. A kernel that waits for ever yields for ever.
//! - Generic addresses below 2^60 are device addresses; the windows of shared, local and parameter memory lie above.
//! - Floats are exact IEEE 754 with the rounding the text asks for; `.ftz` flushes only where it is written.
//!   `.approx` functions are computed in double and rounded once.
//! - Textures and surfaces are numbers that [`DeviceMemory`] knows; without its `fetch` and its like they fault.
//! - All accesses happen in program order; fences reach the host through [`DeviceMemory::fence`].
//!
//! - `Module::link` makes one module of several texts.
//!
//! Outside the subset, and named when met, for instance: textures with levels, clusters, asynchronous copies in bulk.
//! Read next: `module.rs`, `launch.rs`, `memory.rs`.

#![forbid(unsafe_code)]

mod compile;
mod error;
mod execute;
mod launch;
mod lexer;
mod link;
mod memory;
mod module;
mod parser;
mod program;
mod soft;
mod syntax;
mod texture;
mod types;

pub use error::{Error, Fault, LaunchError, Trap};
pub use launch::{BLOCK_THREADS_LIMIT, Launch, Progress, RESIDENT_BLOCKS, STACK_BYTES};
pub use link::{Input, LinkError};
pub use memory::{DeviceMemory, System};
pub use module::{Entry, GlobalVariable, Module, Parameter, Relocation};
pub use texture::{Coordinates, Fetch, Geometry, Outside, SurfaceAccess};
pub use types::{ALL_LANES, LANE_COUNT, LOCAL_WINDOW, Lanes, PARAMETER_WINDOW, SHARED_WINDOW};
