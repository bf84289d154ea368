//! Where each allocation ends, for the check of every copy and fill.
//!
//! The driver would refuse a range that leaves an allocation, but it sees only whole frames, which
//! neighbours share. So the shim refuses it, exactly at the size that the program asked for: that
//! is what address queries answer too, whatever the driver rounds to inside. Kept beside the table,
//! which is the only one to change it, under a lock of its own that nobody holds for longer than
//! one look or one entry: no copy waits while memory moves. Read next: `bounds.rs`, who asks.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

/// The extents of all allocations, and of the addresses in which they lie.
#[derive(Debug, Default)]
pub(crate) struct Extents(RwLock<Known>);

/// Lengths in bytes by first address.
#[derive(Debug, Default)]
struct Known {
    /// As the program asked for them.
    allocations: BTreeMap<u64, u64>,
    /// The blocks: no address in them is anybody else's, allocated or not.
    blocks: BTreeMap<u64, u64>,
}

impl Known {
    fn admits(&self, address: u64, bytes: u64) -> bool {
        if bytes == 0 {
            return true;
        }
        if let Some((&start, &length)) = self.allocations.range(..=address).next_back()
            && address - start < length
        {
            return bytes <= length - (address - start);
        }
        // In no allocation: then it must not touch what is ours at all.
        let last = address.saturating_add(bytes - 1);
        let before_end = self.blocks.range(..=last).next_back();
        before_end.is_none_or(|(&start, &length)| start + length <= address)
    }
}

impl Extents {
    /// Whether the driver would let a call touch these bytes: all of one allocation, or none of
    /// ours. `bytes` of `u64::MAX` stands for more than any number.
    pub(crate) fn admits(&self, address: u64, bytes: u64) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).admits(address, bytes)
    }

    /// The program has an allocation from here on.
    pub(super) fn add_allocation(&self, address: u64, bytes: u64) {
        self.known().allocations.insert(address, bytes);
    }

    /// It has it no more.
    pub(super) fn remove_allocation(&self, address: u64) {
        self.known().allocations.remove(&address);
    }

    /// These addresses are ours.
    pub(super) fn add_block(&self, base: u64, bytes: u64) {
        self.known().blocks.insert(base, bytes);
    }

    /// Before the addresses go back to the driver, which may give them to anybody.
    pub(super) fn remove_block(&self, base: u64) {
        self.known().blocks.remove(&base);
    }

    fn known(&self) -> RwLockWriteGuard<'_, Known> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slab of 8192 bytes from 4096 with 5 bytes, then 1000, then nothing; beyond it a block that
    /// is all allocated but for its last bytes.
    fn neighbours() -> Extents {
        let extents = Extents::default();
        extents.add_block(4096, 8192);
        extents.add_allocation(4096, 5);
        extents.add_allocation(4608, 1000);
        extents.add_block(12288, 4096);
        extents.add_allocation(12288, 4000);
        extents
    }

    #[test]
    fn a_range_inside_an_allocation_is_admitted_up_to_its_very_end() {
        let extents = neighbours();
        for (address, bytes) in [(4096, 5), (4100, 1), (4608, 1000), (5000, 608), (5607, 1), (12288, 4000)] {
            assert!(extents.admits(address, bytes), "{bytes} bytes at {address}");
        }
    }

    #[test]
    fn one_byte_too_many_is_refused_from_the_start_and_from_inside() {
        let extents = neighbours();
        for (address, bytes) in [(4096, 6), (4100, 2), (4608, 1001), (5000, 609), (5607, 2), (12288, 4001)] {
            assert!(!extents.admits(address, bytes), "{bytes} bytes at {address}");
        }
    }

    #[test]
    fn a_range_over_two_allocations_is_refused_even_if_they_touch() {
        let extents = neighbours();
        extents.add_allocation(5608, 1000);
        assert!(extents.admits(4608, 1000) && extents.admits(5608, 1000));
        assert!(!extents.admits(5000, 1000));
        assert!(!extents.admits(4608, 2000));
    }

    #[test]
    fn more_bytes_than_there_are_addresses_are_refused() {
        let extents = neighbours();
        for bytes in [u64::MAX, u64::MAX - 4096, 1 << 63] {
            assert!(!extents.admits(4096, bytes));
            assert!(!extents.admits(5607, bytes));
            assert!(!extents.admits(100, bytes), "it begins outside and runs over what is ours");
        }
        assert!(extents.admits(u64::MAX - 1, u64::MAX), "not ours: the driver's to refuse");
    }

    #[test]
    fn no_bytes_are_no_error_anywhere() {
        let extents = neighbours();
        for address in [0, 4096, 4101, 4608, 5608, 16384, u64::MAX] {
            assert!(extents.admits(address, 0), "{address}");
        }
    }

    #[test]
    fn what_is_not_ours_is_left_to_the_driver_and_ours_begins_and_ends_with_the_block() {
        let extents = neighbours();
        for (address, bytes) in [(0, 4096), (16384, 1 << 40), (1 << 47, 1)] {
            assert!(extents.admits(address, bytes), "{bytes} bytes at {address}");
        }
        for (address, bytes) in [(0, 4097), (4101, 1), (4200, 400), (5608, 1), (16288, 1), (16383, 1)] {
            assert!(!extents.admits(address, bytes), "{bytes} bytes at {address}");
        }
    }

    #[test]
    fn freed_bytes_are_refused_until_their_addresses_go_back() {
        let extents = neighbours();
        extents.remove_allocation(12288);
        assert!(!extents.admits(12288, 1));
        extents.remove_block(12288);
        assert!(extents.admits(12288, 1), "whoever has them now may use them");
    }
}
