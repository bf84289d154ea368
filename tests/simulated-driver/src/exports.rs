//! Every symbol of the driver, exported under its C name.
//!
//! The list is that of turnus-bindings. Each export passes [`call::run`](crate::call::run) and then calls the
//! function of the same name in `entry`; where there is none, the one in [`not_simulated`], which refuses.
//! The choice is made by name lookup: the innermost glob import that knows the name wins, so simulating a
//! function means adding it to `entry`, with the signature of the header, and nothing else.

use turnus_bindings::types::*;
use turnus_bindings::{CUerror, driver_api, driver_api_untyped};

use crate::call;

macro_rules! refuse {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(pub unsafe extern "C" fn $name($(_: $type),*) -> $result { Err(CUerror::NOT_SUPPORTED) })*
    };
}
macro_rules! refuse_untyped {
    ($($name:ident;)*) => {
        $(pub unsafe extern "C" fn $name() -> CUresult { Err(CUerror::NOT_SUPPORTED) })*
    };
}

/// What is not simulated says so: `CUDA_ERROR_NOT_SUPPORTED`.
#[allow(non_snake_case, reason = "names of the driver")]
#[allow(dead_code, reason = "those that `entry` simulates are not needed here")]
pub mod not_simulated {
    use super::*;
    driver_api!(refuse);
    driver_api_untyped!(refuse_untyped);
}

macro_rules! export {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            use super::not_simulated::*;
            {
                use crate::entry::*;
                // SAFETY: the caller's promises are those that the header asks of it, passed on unchanged.
                call::run(stringify!($name), || unsafe { $name($($argument),*) })
            }
        }
    )*};
}
macro_rules! export_untyped {
    ($($name:ident;)*) => { export! { $(fn $name() -> CUresult;)* } };
}

/// The exported functions.
#[allow(non_snake_case, reason = "names of the driver")]
#[allow(unused_imports, reason = "of the two globs in each function one is idle")]
pub mod exported {
    use super::*;
    driver_api!(export);
    driver_api_untyped!(export_untyped);
}

macro_rules! addresses {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        /// Typed functions, sorted by name.
        static TYPED: &[(&str, Address)] = &[$((stringify!($name), Address(exported::$name as *const ()))),*];
    };
}
macro_rules! addresses_untyped {
    ($($name:ident;)*) => {
        /// Functions without a known signature, sorted by name.
        static UNTYPED: &[(&str, Address)] = &[$((stringify!($name), Address(exported::$name as *const ()))),*];
    };
}
driver_api!(addresses);
driver_api_untyped!(addresses_untyped);

/// The address of code.
struct Address(*const ());

// SAFETY: code may be named from any thread.
unsafe impl Sync for Address {}

/// The address of the exported function `name`.
pub fn address(name: &str) -> Option<usize> {
    let find = |list: &[(&str, Address)]| {
        list.binary_search_by(|entry| entry.0.cmp(name)).ok().map(|place| list[place].1.0 as usize)
    };
    find(TYPED).or_else(|| find(UNTYPED))
}

/// All functions of the driver, sorted, and whether each is simulated.
#[cfg(test)]
pub fn simulated() -> std::collections::BTreeMap<&'static str, bool> {
    simulated::typed().into_iter().chain(simulated::untyped()).collect()
}

/// Which functions refuse, for the list in README.md.
#[cfg(test)]
#[allow(non_snake_case, reason = "names of the driver")]
#[allow(unused_imports, reason = "of the two globs in each function one is idle")]
mod simulated {
    /// For each function the address of the code that the export calls, beside that of the refusal.
    macro_rules! targets {
        ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
            pub fn typed() -> Vec<(&'static str, bool)> {
                vec![$((stringify!($name), {
                    use super::not_simulated::*;
                    let target = {
                        use crate::entry::*;
                        $name as *const () as usize
                    };
                    target != super::not_simulated::$name as *const () as usize
                })),*]
            }
        };
    }
    macro_rules! targets_untyped {
        ($($name:ident;)*) => {
            pub fn untyped() -> Vec<(&'static str, bool)> {
                vec![$((stringify!($name), {
                    use super::not_simulated::*;
                    let target = {
                        use crate::entry::*;
                        $name as *const () as usize
                    };
                    target != super::not_simulated::$name as *const () as usize
                })),*]
            }
        };
    }
    turnus_bindings::driver_api!(targets);
    turnus_bindings::driver_api_untyped!(targets_untyped);
}
