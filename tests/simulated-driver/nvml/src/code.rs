//! Status codes (`nvmlReturn_t`) and their texts.
//!
//! Numbers are those of NVML's documentation, "nvmlReturn_t"; texts are those that `nvmlErrorString` is
//! known to give (nvidia-ml-py repeats them), and worded here for codes that nvidia-ml-py does not know.

use std::ffi::CStr;

/// A code that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(u32);

/// Outcome of an entry point.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub const UNINITIALIZED: Self = Self(1);
    pub const INVALID_ARGUMENT: Self = Self(2);
    pub const NOT_SUPPORTED: Self = Self(3);
    pub const NO_PERMISSION: Self = Self(4);
    pub const NOT_FOUND: Self = Self(6);
    pub const INSUFFICIENT_SIZE: Self = Self(7);
    pub const TIMEOUT: Self = Self(10);
    pub const GPU_IS_LOST: Self = Self(15);
    pub const LIB_RM_VERSION_MISMATCH: Self = Self(18);
    pub const MEMORY: Self = Self(20);
    pub const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub const UNKNOWN: Self = Self(999);

    /// The error with this number; 0 is none.
    pub fn new(code: u32) -> Option<Self> {
        (code != 0).then_some(Self(code))
    }

    pub fn code(self) -> u32 {
        self.0
    }
}

/// What C sees.
pub fn to_code(result: Result<()>) -> u32 {
    result.map_or_else(Error::code, |()| 0)
}

/// The text of a code; codes that are not known have the text of the unknown error.
pub fn text(code: u32) -> &'static CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires restart",
        17 => c"The operating system has blocked the request.",
        18 => c"RM has detected an NVML/RM version mismatch.",
        19 => c"In Use",
        20 => c"Insufficient Memory",
        21 => c"No Data",
        22 => c"vGPU ECC Not Supported",
        23 => c"Insufficient Resources",
        24 => c"Frequency Not Supported",
        25 => c"Argument Version Mismatch",
        26 => c"Deprecated",
        27 => c"Not Ready",
        28 => c"GPU Not Found",
        29 => c"Invalid State",
        _ => c"Unknown Error",
    }
}
