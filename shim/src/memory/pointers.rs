//! What a program hears when it asks about an address of ours: as if the driver had allocated it.
//!
//! CUDA driver API, "Unified Addressing". The driver would answer for the mapping of a frame, which
//! changes at every move; the table's answers do not. What no allocation of `cuMemAlloc` has
//! (managed, pool, exportable handles) is answered with no.

use super::Memory;
use super::table::Allocation;
use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use turnus_bindings::types::*;
use turnus_bindings::{CUerror, CUresult};

/// Writes one attribute of `allocation`, asked for at `address`. `None`: this attribute's answer is
/// the driver's own, since it does not depend on who made the allocation.
///
/// # Safety
/// `data` may be written with a value of the attribute's type, aligned or not.
pub(super) unsafe fn write(
    allocation: &Allocation,
    address: u64,
    attribute: CUpointer_attribute,
    data: *mut c_void,
) -> Option<CUresult> {
    macro_rules! answer {
        ($type:ty, $value:expr) => {{
            let value: $type = $value;
            // SAFETY: the caller gives room for the attribute's type, which is this one.
            unsafe { data.cast::<$type>().write_unaligned(value) };
            Some(Ok(()))
        }};
    }
    match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => answer!(usize, allocation.context.0),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => answer!(c_uint, CU_MEMORYTYPE_DEVICE.0),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => answer!(CUdeviceptr, address),
        CU_POINTER_ATTRIBUTE_BUFFER_ID => answer!(c_ulonglong, allocation.buffer_id),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => answer!(c_uint, allocation.has_sync_memops.into()),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => answer!(c_uint, 0),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => answer!(c_int, allocation.ordinal),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => answer!(CUdeviceptr, allocation.address),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => answer!(usize, allocation.bytes as usize),
        CU_POINTER_ATTRIBUTE_MAPPED => answer!(c_uint, 1),
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => answer!(c_ulonglong, 0),
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => answer!(c_uint, 0),
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => answer!(c_uint, 0),
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
            answer!(c_uint, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE.0)
        }
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => answer!(usize, 0),
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE => answer!(usize, allocation.bytes as usize),
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => answer!(CUdeviceptr, allocation.address),
        CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => answer!(c_ulonglong, allocation.buffer_id),
        CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => answer!(c_uint, 0),
        // Device memory has no host address; tokens for peers need memory that does not move.
        CU_POINTER_ATTRIBUTE_HOST_POINTER | CU_POINTER_ATTRIBUTE_P2P_TOKENS => {
            Some(Err(CUerror::INVALID_VALUE))
        }
        _ => None,
    }
}

impl Memory {
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`. The driver has it for memory of its own only; for a whole
    /// context it means the same and more. It cannot be taken back from one allocation then.
    pub(super) fn set_sync_memops(&self, address: u64, on: bool) -> CUresult {
        let Some(allocation) = self.find(address) else { return Err(CUerror::INVALID_VALUE) };
        if on && !allocation.has_sync_memops {
            self.driver.set_sync_memops(allocation.context)?;
        }
        if let Some(known) = self.state().table.find_mut(allocation.address) {
            known.has_sync_memops = on;
        }
        Ok(())
    }
}
