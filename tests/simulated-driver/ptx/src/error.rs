//! What can go wrong: with the text (`Error`), with a launch's arguments (`LaunchError`), with one memory access
//! (`Fault`) and with a running kernel (`Trap`).
//!
//! The driver maps these to result codes; this crate knows none. Read next: `module.rs` and `launch.rs`, which
//! return them.

use thiserror::Error as ThisError;

/// Why a PTX text cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The text is not PTX, or breaks a rule of PTX.
    #[error("line {line}: {message}")]
    Syntax {
        /// Line in the text, from 1.
        line: u32,
        /// What is wrong with it.
        message: String,
    },
    /// Valid PTX, as far as can be told, outside the executed subset.
    #[error("line {line}: instruction outside the executed subset: {instruction}")]
    Unsupported {
        /// The instruction as written, spaces collapsed.
        instruction: String,
        /// Line in the text, from 1.
        line: u32,
    },
    /// A name that no declaration introduces.
    #[error("line {line}: nothing is declared under the name {name}")]
    Undefined {
        /// The name as written.
        name: String,
        /// Line in the text, from 1.
        line: u32,
    },
    /// A program beyond what this executor, or any device, holds.
    #[error("line {line}: {what} exceeds {limit}")]
    TooLarge {
        /// Which quantity.
        what: &'static str,
        /// The most that is accepted.
        limit: u64,
        /// Line in the text, from 1.
        line: u32,
    },
}

impl Error {
    pub(crate) fn syntax(line: u32, message: impl Into<String>) -> Self {
        Self::Syntax { line, message: message.into() }
    }
}

/// An access that device memory refused: nothing is mapped at `address`, or the kind of access is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
#[error("address {address:#x} cannot be accessed")]
pub struct Fault {
    /// First address of the refused access.
    pub address: u64,
}

/// Why `Launch::new` refused a launch.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum LaunchError {
    /// A grid or block with a zero extent.
    #[error("grid {grid:?} with blocks {block:?} holds no thread")]
    EmptyShape {
        /// Blocks in x, y, z.
        grid: [u32; 3],
        /// Threads in x, y, z.
        block: [u32; 3],
    },
    /// More threads in a block than the device or the kernel's `.maxntid` allows, or other than its `.reqntid`.
    #[error("blocks of {block:?} threads are not allowed by {rule}")]
    BlockShape {
        /// Threads in x, y, z.
        block: [u32; 3],
        /// The rule that is broken.
        rule: &'static str,
    },
    /// Fewer parameter bytes than the kernel declares.
    #[error("{given} bytes of parameters where the kernel takes {needed}")]
    ParametersTooShort {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// A module variable whose device address the caller does not know.
    #[error("no device address for the module variable {name}")]
    SymbolMissing {
        /// Name of the variable.
        name: String,
    },
    /// Static and dynamic shared memory beyond what a block can have.
    #[error("{bytes} bytes of shared memory exceed {limit}")]
    SharedTooLarge {
        /// Static and dynamic bytes together.
        bytes: u64,
        /// The most a block can have.
        limit: u64,
    },
}

/// Why a running kernel stopped for good.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Trap {
    /// An access to memory that is not there (CUDA_ERROR_ILLEGAL_ADDRESS).
    #[error("illegal address {address:#x} in kernel {entry}, line {line}")]
    IllegalAddress {
        /// Address of the access in its state space.
        address: u64,
        /// Name of the kernel.
        entry: String,
        /// Line in the text, from 1.
        line: u32,
    },
    /// An address that is not a multiple of the access width (CUDA_ERROR_MISALIGNED_ADDRESS).
    #[error("misaligned address {address:#x} in kernel {entry}, line {line}")]
    MisalignedAddress {
        /// Address of the access in its state space.
        address: u64,
        /// Name of the kernel.
        entry: String,
        /// Line in the text, from 1.
        line: u32,
    },
    /// The instruction `trap` or `brkpt` (CUDA_ERROR_LAUNCH_FAILED).
    #[error("trap in kernel {entry}, line {line}")]
    Trapped {
        /// Name of the kernel.
        entry: String,
        /// Line in the text, from 1.
        line: u32,
    },
    /// A failed device-side `assert` (CUDA_ERROR_ASSERT).
    #[error("assertion failed in kernel {entry}, line {line}")]
    AssertionFailed {
        /// Name of the kernel.
        entry: String,
        /// Line in the text, from 1.
        line: u32,
    },
    /// Calls or variables beyond the thread's stack (CUDA_ERROR_HARDWARE_STACK_ERROR).
    #[error("stack overflow in kernel {entry}, line {line}")]
    StackOverflow {
        /// Name of the kernel.
        entry: String,
        /// Line in the text, from 1.
        line: u32,
    },
    /// A call through a pointer that leads to no function with these parameters (CUDA_ERROR_INVALID_PC).
    #[error("call of what is no function in kernel {entry}, line {line}")]
    InvalidCall {
        /// Name of the kernel.
        entry: String,
        /// Line in the text, from 1.
        line: u32,
    },
}
