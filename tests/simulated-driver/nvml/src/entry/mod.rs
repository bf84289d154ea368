//! The functions of NVML that are simulated, by topic.
//!
//! Each checks its arguments in the order handle, pointers, values, and writes through the caller's pointers
//! what the machine says (`device.rs`, `load.rs`) or the card is (`card.rs`). `build.rs` finds a function here
//! by its `fn nvml...` and leaves it out of those that refuse.
//!
//! The C contract of every function written with [`entry!`]: a pointer argument is null, or valid for what the
//! documentation of that function reads or writes through it. Handles are never followed.

mod clocks;
mod discovery;
mod errors;
mod event;
mod field;
mod identity;
mod init;
mod internal;
mod memory;
mod mig;
mod modes;
mod pci;
mod power;
pub mod process;
mod system;
mod topology;
mod utilization;

/// Defines and exports entry points. The body may follow the caller's pointers.
macro_rules! entry {
    ($($(#[$note:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$note])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unused_unsafe, reason = "names of NVML; some bodies follow no pointer")]
        unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            // SAFETY: the C contract, stated at the top of `entry`.
            $crate::call::run(stringify!($name), || unsafe { $body })
        }
    )*};
}

use entry;
