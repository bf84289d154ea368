//! The functions of the driver API that are simulated, by topic.
//!
//! Each checks its arguments as the driver does, calls the modules beside this one, and writes results
//! through the caller's pointers. `exports.rs` finds a function here by its name; nothing else calls them.
//!
//! The C contract of every function written with [`entry!`]: a pointer argument is null, or valid for what
//! the documentation of that function reads or writes through it. Null is refused where it is not allowed.

mod array;
mod array_copy;
mod capture;
mod context;
mod copy;
mod copy_batch;
mod copy_shapes;
mod device;
mod event;
mod fill;
mod function;
mod graph;
mod graph_any;
mod graph_exec;
mod graph_exec_nodes;
mod graph_memory;
mod graph_nodes;
mod graph_picture;
mod host_memory;
mod init;
mod ipc;
mod launch;
mod launch_old;
mod library;
mod linker;
mod managed;
mod managed_batch;
mod memory;
mod module;
pub mod occupancy;
mod peer;
mod pointer;
mod pool;
mod pool_memory;
mod pool_sharing;
mod primary;
mod profiler;
mod stream;
mod stream_attribute;
mod stream_memory;
mod texture;
mod texture_reference;
mod user_object;
mod virtual_memory;

pub use array::*;
pub use array_copy::*;
pub use capture::*;
pub use context::*;
pub use copy::*;
pub use copy_batch::*;
pub use copy_shapes::*;
pub use device::*;
pub use event::*;
pub use fill::*;
pub use function::*;
pub use graph::*;
pub use graph_any::*;
pub use graph_exec::*;
pub use graph_exec_nodes::*;
pub use graph_memory::*;
pub use graph_nodes::*;
pub use graph_picture::*;
pub use host_memory::*;
pub use init::*;
pub use ipc::*;
pub use launch::*;
pub use launch_old::*;
pub use library::*;
pub use linker::*;
pub use managed::*;
pub use managed_batch::*;
pub use memory::*;
pub use module::*;
pub use occupancy::*;
pub use peer::*;
pub use pointer::*;
pub use pool::*;
pub use pool_memory::*;
pub use pool_sharing::*;
pub use primary::*;
pub use profiler::*;
pub use stream::*;
pub use stream_attribute::*;
pub use stream_memory::*;
pub use texture::*;
pub use texture_reference::*;
pub use user_object::*;
pub use virtual_memory::*;

use turnus_bindings::CUerror;

use crate::space::Result;

/// Defines entry points. The body may follow the caller's pointers.
macro_rules! entry {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[allow(non_snake_case, unused_unsafe, reason = "names of the driver; some bodies follow no pointer")]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> turnus_bindings::CUresult {
            // SAFETY: the C contract, stated at the top of `entry`.
            unsafe { $body }
        }
    )*};
}

/// Defines pairs of entry points that differ in what the null stream means.
macro_rules! stream_entry {
    ($(fn $name:ident | $per_thread:ident [$default:ident] ($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[allow(non_snake_case, unused_unsafe, reason = "names of the driver; some bodies follow no pointer")]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> turnus_bindings::CUresult {
            let $default = crate::stream::Default::Legacy;
            // SAFETY: the C contract, stated at the top of `entry`.
            unsafe { $body }
        }
        #[allow(non_snake_case, unused_unsafe, reason = "names of the driver; some bodies follow no pointer")]
        pub unsafe extern "C" fn $per_thread($($argument: $type),*) -> turnus_bindings::CUresult {
            let $default = crate::stream::Default::PerThread;
            // SAFETY: the C contract, stated at the top of `entry`.
            unsafe { $body }
        }
    )*};
}

use {entry, stream_entry};

/// Writes a result through the caller's pointer; null is refused.
///
/// # Safety
/// `place` is null or valid for writing a `T`.
unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a result through the caller's pointer unless it is null.
///
/// # Safety
/// `place` is null or valid for writing a `T`.
unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// Refuses null where a result or a structure is needed, before anything is done.
fn needed<T>(place: *const T) -> Result<()> {
    if place.is_null() { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
}

/// Copies a text with its terminator into a buffer of `room` bytes, cutting it if need be.
///
/// # Safety
/// `place` is valid for writing `room` bytes.
unsafe fn put_text(place: *mut std::ffi::c_char, room: usize, text: &str) -> Result<()> {
    if place.is_null() || room == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let length = text.len().min(room - 1);
    // SAFETY: length + 1 <= room, and `text` has `length` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), length);
        place.add(length).write(0);
    }
    Ok(())
}
