//! Free address ranges: first fit from the lowest address, as the real driver reuses addresses at once.
//!
//! Knows numbers only; what lies in a taken range is kept elsewhere.

use std::collections::BTreeMap;

/// Free ranges, start to length in bytes, never adjacent to each other.
#[derive(Clone, Debug)]
pub struct FreeRanges {
    ranges: BTreeMap<u64, u64>,
}

impl FreeRanges {
    /// One free range.
    pub fn new(start: u64, bytes: u64) -> Self {
        Self { ranges: BTreeMap::from([(start, bytes)]) }
    }

    /// Takes `bytes` at a multiple of `alignment_bytes`; `None` when no range is large enough.
    pub fn take(&mut self, bytes: u64, alignment_bytes: u64) -> Option<u64> {
        let start = self.ranges.iter().find_map(|(&start, &length)| {
            let aligned = start.checked_next_multiple_of(alignment_bytes)?;
            (aligned.checked_add(bytes)? <= start + length).then_some(aligned)
        })?;
        self.take_at(start, bytes).then_some(start)
    }

    /// Takes exactly this range; false when a part of it is taken.
    pub fn take_at(&mut self, start: u64, bytes: u64) -> bool {
        let Some((&free, &length)) = self.ranges.range(..=start).next_back() else { return false };
        let (end, free_end) = (start.saturating_add(bytes), free + length);
        if end > free_end {
            return false;
        }
        self.ranges.remove(&free);
        if free < start {
            self.ranges.insert(free, start - free);
        }
        if end < free_end {
            self.ranges.insert(end, free_end - end);
        }
        true
    }

    /// Gives a taken range back.
    pub fn give(&mut self, start: u64, bytes: u64) {
        let (mut start, mut end) = (start, start + bytes);
        if let Some((&before, &length)) = self.ranges.range(..start).next_back()
            && before + length == start
        {
            start = before;
        }
        if let Some(length) = self.ranges.remove(&end) {
            end += length;
        }
        self.ranges.insert(start, end - start);
    }

    /// Takes what of these bytes is free; whether anything was.
    pub fn carve(&mut self, start: u64, bytes: u64) -> bool {
        let end = start + bytes;
        let before = self.ranges.range(..end).rev();
        let met: Vec<(u64, u64)> = before
            .map(|(&free, &length)| (free, free + length))
            .take_while(|(_, free_end)| *free_end > start)
            .collect();
        for &(free, free_end) in &met {
            self.ranges.remove(&free);
            if free < start {
                self.ranges.insert(free, start - free);
            }
            if end < free_end {
                self.ranges.insert(end, free_end - end);
            }
        }
        !met.is_empty()
    }

    /// The free ranges as (start, length), in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().map(|(&start, &length)| (start, length))
    }

    /// Whether this is one range of `bytes`: nothing is taken.
    pub fn is_whole(&self, bytes: u64) -> bool {
        self.ranges.len() == 1 && self.ranges.values().next() == Some(&bytes)
    }
}
