//! Constants of the header that are casts, which bindgen does not see. Offered as part of `types`.

use crate::types::{CUdevice, CUstream, c_void};

/// The default stream that synchronises with all blocking streams of its context.
pub const CU_STREAM_LEGACY: CUstream = core::ptr::without_provenance_mut(1);
/// The default stream of the calling thread.
pub const CU_STREAM_PER_THREAD: CUstream = core::ptr::without_provenance_mut(2);
/// Ends the `extra` list of a kernel launch.
pub const CU_LAUNCH_PARAM_END: *mut c_void = core::ptr::null_mut();
/// In the `extra` list of a kernel launch: the next entry points to the packed arguments.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: *mut c_void = core::ptr::without_provenance_mut(1);
/// In the `extra` list of a kernel launch: the next entry points to the size of the packed arguments, in bytes.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: *mut c_void = core::ptr::without_provenance_mut(2);
/// Stands for the host where a device is asked for.
pub const CU_DEVICE_CPU: CUdevice = -1;
/// Stands for no device.
pub const CU_DEVICE_INVALID: CUdevice = -2;
