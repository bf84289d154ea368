//! Memory of arrays: pages of the device at addresses that programs are not told.
//!
//! Copy engines reach it as they reach other device memory. What an array is: `arrays.rs`.

use std::sync::Arc;

use turnus_bindings::CUerror;

use super::physical::Physical;
use super::{AddressSpace, Result};

/// The memory of an array, given back when dropped; nothing may use it any more then.
#[derive(Debug)]
pub struct ArrayMemory {
    /// The first address.
    pub base: u64,
    physical: Arc<Physical>,
    space: Arc<AddressSpace>,
}

impl ArrayMemory {
    /// Takes memory of a device for the context with this id, in whole units.
    pub fn allocate(space: &Arc<AddressSpace>, context: u64, device: usize, bytes: u64) -> Result<Self> {
        let unit_bytes = space.granularity_bytes(device);
        let rounded = bytes.checked_next_multiple_of(unit_bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
        let devices = space.devices_of(context, device);
        let (base, physical) = space.allocate_pages(device, rounded, 0, devices)?;
        Ok(ArrayMemory { base, physical, space: Arc::clone(space) })
    }
}

impl Drop for ArrayMemory {
    fn drop(&mut self) {
        self.space.free_pages(self.base, Arc::clone(&self.physical));
    }
}
