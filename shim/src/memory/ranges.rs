//! Free space in one range of numbers: first fit, neighbours coalesce.
//!
//! Used for the small allocations in a slab and for evicted bytes in a host segment. Pure numbers;
//! what they mean is the owner's business.

use std::collections::BTreeMap;

/// The free parts of `0..bytes`.
#[derive(Debug, Clone)]
pub(crate) struct Ranges {
    bytes: u64,
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// All of `0..bytes` is free.
    pub(crate) fn new(bytes: u64) -> Ranges {
        let free = if bytes == 0 { BTreeMap::new() } else { BTreeMap::from([(0, bytes)]) };
        Ranges { bytes, free }
    }

    /// Takes the lowest free part that is long enough.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let (&offset, &length) = self.free.iter().find(|(_, length)| **length >= bytes)?;
        self.free.remove(&offset);
        if length > bytes {
            self.free.insert(offset + bytes, length - bytes);
        }
        Some(offset)
    }

    /// Gives a part back that `take` gave.
    pub(crate) fn give(&mut self, offset: u64, bytes: u64) {
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((&before, &length)) = self.free.range(..offset).next_back() {
            debug_assert!(before + length <= offset, "given back twice: {offset}");
            if before + length == offset {
                start = before;
            }
        }
        if let Some((&after, &length)) = self.free.range(offset..).next() {
            debug_assert!(end <= after, "given back twice: {offset}");
            if after == end {
                end += length;
                self.free.remove(&after);
            }
        }
        self.free.insert(start, end - start);
    }

    /// Whether nothing is taken.
    pub(crate) fn is_all_free(&self) -> bool {
        self.bytes == self.free.values().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_coalesce_whatever_the_order_of_giving_back() {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for order in orders {
            let mut ranges = Ranges::new(300);
            let taken = [0; 3].map(|_| ranges.take(100).expect("room for three"));
            assert_eq!(ranges.take(1), None);
            for index in order {
                assert!(!ranges.is_all_free());
                ranges.give(taken[index], 100);
            }
            assert!(ranges.is_all_free());
            assert_eq!(ranges.take(300), Some(0), "order {order:?}");
        }
    }

    #[test]
    fn the_lowest_hole_that_fits_is_taken() {
        let mut ranges = Ranges::new(100);
        for expected in [0, 10, 20, 30] {
            assert_eq!(ranges.take(10), Some(expected));
        }
        ranges.give(0, 10);
        ranges.give(20, 10);
        assert_eq!(ranges.take(20), Some(40));
        assert_eq!(ranges.take(10), Some(0));
        assert_eq!(ranges.take(5), Some(20));
    }
}
