//! Status codes of the driver API as a Rust `Result` with the layout of the C number.
//!
//! `Result<(), CUerror>` is guaranteed to be laid out as the number inside `CUerror`, with `Ok(())` as 0
//! (core::result, "Representation"). So a hook is written with `?` and passes through the C boundary
//! unchanged, and a code that this header does not know stays what it is.

use core::fmt;
use core::num::NonZeroU32;

/// What every driver call returns: `Ok(())` is `CUDA_SUCCESS`.
pub type CUresult = Result<(), CUerror>;

/// A status code other than success, known to the header or not.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CUerror(NonZeroU32);

const _: () =
    assert!(size_of::<CUresult>() == size_of::<u32>() && align_of::<CUresult>() == align_of::<u32>());

impl CUerror {
    /// The error with this number; `None` for 0, which is success.
    pub const fn new(code: u32) -> Option<Self> {
        match NonZeroU32::new(code) {
            Some(code) => Some(Self(code)),
            None => None,
        }
    }

    /// The number that C sees.
    pub const fn code(self) -> u32 {
        self.0.get()
    }
}

/// The result that the number `code` stands for.
pub const fn from_code(code: u32) -> CUresult {
    match CUerror::new(code) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// The number that stands for `result`; 0 for success.
pub const fn to_code(result: CUresult) -> u32 {
    match result {
        Ok(()) => 0,
        Err(error) => error.code(),
    }
}

macro_rules! known_codes {
    ($($name:ident = $code:literal;)*) => {
        #[allow(missing_docs, reason = "NVIDIA's documentation describes each code by name")]
        impl CUerror {
            $(pub const $name: Self = Self(NonZeroU32::new($code).unwrap());)*

            /// The name in the header, `CUDA_ERROR_OUT_OF_MEMORY`; `None` for a code it does not know.
            pub const fn name(self) -> Option<&'static str> {
                match self.code() {
                    $($code => Some(concat!("CUDA_ERROR_", stringify!($name))),)*
                    _ => None,
                }
            }

            /// Every error that the header knows, sorted by number.
            pub const KNOWN: &[Self] = &[$(Self::$name),*];
        }
    };
}
crate::error_codes::error_codes!(known_codes);

impl fmt::Display for CUerror {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(formatter, "{name} ({})", self.code()),
            None => write!(formatter, "unknown CUDA error {}", self.code()),
        }
    }
}

impl fmt::Debug for CUerror {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl core::error::Error for CUerror {}
