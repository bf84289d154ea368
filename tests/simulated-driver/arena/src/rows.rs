//! The tables of one device: rows of allocations, the frames they own, their holders, charges and sums.
//!
//! Every function expects the caller to have the state lock, unless it says otherwise. Life of a row: free ->
//! partial (frames are being marked) -> live -> dying (nobody holds it; content is being scrubbed) -> resting
//! (scrubbed, not yet available) -> partial (frames are being unmarked) -> free. Leaving and entering partial
//! are the commits; what is partial when its process dies becomes free. Files are not touched here (`physical.rs`).

use crate::layout::{CHARGES, DeviceState, HOLDS, ROWS};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// State of a row, the low byte of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RowState {
    Free = 0,
    Partial = 1,
    Live = 2,
    Dying = 3,
    Resting = 4,
}

/// Why a row could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage(pub(crate) &'static str);

const COUNT_BITS: u32 = 18;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;

/// Who holds: a client (1 + slot) or an export (1 + CLIENTS + slot).
pub(crate) type Holder = u16;

fn hold_word(holder: Holder, count: u32) -> u32 {
    u32::from(holder) << COUNT_BITS | count
}

fn hold_of(word: u32) -> (Holder, u32) {
    ((word >> COUNT_BITS) as Holder, word & COUNT_MAX)
}

impl DeviceState<'_> {
    /// Generation and state of a row. Needs no lock for a row that the caller holds.
    pub(crate) fn row(&self, row: u32) -> (u32, RowState) {
        let word = self.tables.states[row as usize].load(Acquire);
        let state = match word & 0xff {
            1 => RowState::Partial,
            2 => RowState::Live,
            3 => RowState::Dying,
            4 => RowState::Resting,
            _ => RowState::Free,
        };
        ((word >> 8) as u32, state)
    }

    pub(crate) fn set_row(&self, row: u32, generation: u32, state: RowState) {
        self.tables.states[row as usize].store(u64::from(generation) << 8 | state as u64, Release);
    }

    /// First frame and number of frames of a row that is not free.
    pub(crate) fn extent(&self, row: u32) -> (usize, u64) {
        let word = self.tables.extents[row as usize].load(Relaxed);
        ((word >> 32) as usize, word & 0xffff_ffff)
    }

    /// Rows that may be in use.
    pub(crate) fn rows(&self) -> std::ops::Range<u32> {
        0..self.tables.row_high.load(Relaxed).min(ROWS as u32)
    }

    /// Bytes that are not free: rows in any state of use, and charges.
    pub(crate) fn used_bytes(&self) -> u64 {
        let frames: u64 = self
            .rows()
            .filter(|row| self.tables.states[*row as usize].load(Relaxed) & 0xff != RowState::Free as u64)
            .map(|row| self.extent(row).1)
            .sum();
        let charged: u64 = self.charges().map(|(_, _, bytes)| bytes).sum();
        frames * self.granularity_bytes + charged
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        (self.frames.len() as u64 * self.granularity_bytes).saturating_sub(self.used_bytes())
    }

    /// Make a live row of `count` frames held once by `holder`. Returns row and generation.
    pub(crate) fn allocate(&self, count: u64, holder: Holder) -> Result<(u32, u32), Shortage> {
        if self.free_bytes() < count * self.granularity_bytes {
            return Err(Shortage("not enough free memory"));
        }
        let row = self.free_row().ok_or(Shortage("no free row in the table of allocations"))?;
        let first = self.find_frames(count).ok_or(Shortage("not enough free frames"))?;
        let generation = self.row(row).0.wrapping_add(1);
        let tables = self.tables;
        self.set_row(row, generation, RowState::Partial);
        tables.extents[row as usize].store((first as u64) << 32 | count, Relaxed);
        let free = self.frames[first..].iter().filter(|frame| frame.load(Relaxed) == 0);
        free.take(count as usize).for_each(|frame| frame.store(row + 1, Relaxed));
        tables.holds[row as usize].iter().for_each(|hold| hold.store(0, Relaxed));
        tables.holds[row as usize][0].store(hold_word(holder, 1), Relaxed);
        self.set_row(row, generation, RowState::Live);
        Ok((row, generation))
    }

    fn free_row(&self) -> Option<u32> {
        let hint = self.tables.row_hint.load(Relaxed) % ROWS as u32;
        let row = (hint..ROWS as u32).chain(0..hint).find(|row| self.row(*row).1 == RowState::Free)?;
        self.tables.row_hint.store(row + 1, Relaxed);
        self.tables.row_high.fetch_max(row + 1, Release);
        Some(row)
    }

    /// Where to begin taking free frames: the first run that is long enough, else the first free frame.
    fn find_frames(&self, count: u64) -> Option<usize> {
        let (mut run, mut first_free, mut free) = (0, None, 0);
        for (index, frame) in self.frames.iter().enumerate() {
            if frame.load(Relaxed) != 0 {
                run = 0;
                continue;
            }
            first_free.get_or_insert(index);
            free += 1;
            run += 1;
            if run == count {
                return Some(index + 1 - count as usize);
            }
        }
        first_free.filter(|_| free >= count)
    }

    /// Runs of frames that the row owns, as (first, length). Needs no lock for a row that the caller holds.
    pub(crate) fn runs(&self, row: u32) -> impl Iterator<Item = (usize, usize)> {
        let frames = self.frames;
        let (mut at, count) = self.extent(row);
        let mut left = count as usize;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let first = at + frames.get(at..)?.iter().position(|frame| frame.load(Relaxed) == row + 1)?;
            let rest = frames[first..].iter().take(left);
            let length = rest.take_while(|frame| frame.load(Relaxed) == row + 1).count();
            at = first + length;
            left -= length;
            Some((first, length))
        })
    }

    /// Return the frames of a row that is scrubbed and free it.
    pub(crate) fn free(&self, row: u32, generation: u32) {
        self.set_row(row, generation, RowState::Partial);
        for (first, length) in self.runs(row) {
            self.frames[first..first + length].iter().for_each(|frame| frame.store(0, Relaxed));
        }
        self.set_row(row, generation, RowState::Free);
        self.tables.row_hint.store(row, Relaxed);
    }

    /// Holds of `holder` on a row. Needs no lock for the caller's own.
    pub(crate) fn hold_count(&self, row: u32, holder: Holder) -> u32 {
        self.holds(row).find(|(_, other, _)| *other == holder).map_or(0, |(_, _, count)| count)
    }

    /// (position, holder, count) of all holders of a row.
    pub(crate) fn holds(&self, row: u32) -> impl Iterator<Item = (usize, Holder, u32)> {
        let holds = self.tables.holds[row as usize].iter().enumerate();
        holds
            .map(|(at, word)| (at, hold_of(word.load(Acquire))))
            .filter(|(_, (_, count))| *count > 0)
            .map(|(at, (holder, count))| (at, holder, count))
    }

    /// One hold more for `holder`.
    pub(crate) fn add_hold(&self, row: u32, holder: Holder) -> Result<(), Shortage> {
        let holds = &self.tables.holds[row as usize];
        let (at, count) = match self.holds(row).find(|(_, other, _)| *other == holder) {
            Some((at, _, count)) => (at, count),
            None => (
                (0..HOLDS)
                    .find(|at| holds[*at].load(Relaxed) == 0)
                    .ok_or(Shortage("too many holders of one allocation"))?,
                0,
            ),
        };
        if count == COUNT_MAX {
            return Err(Shortage("too many holds of one allocation"));
        }
        holds[at].store(hold_word(holder, count + 1), Release);
        Ok(())
    }

    /// One hold less for `holder`; None when it has none, else whether the row is now dying.
    pub(crate) fn drop_hold(&self, row: u32, generation: u32, holder: Holder) -> Option<bool> {
        let (at, _, count) = self.holds(row).find(|(_, other, _)| *other == holder)?;
        let word = if count == 1 { 0 } else { hold_word(holder, count - 1) };
        self.tables.holds[row as usize][at].store(word, Release);
        Some(self.bury_if_unheld(row, generation))
    }

    fn bury_if_unheld(&self, row: u32, generation: u32) -> bool {
        let is_unheld = self.holds(row).next().is_none();
        if is_unheld {
            self.set_row(row, generation, RowState::Dying);
        }
        is_unheld
    }

    /// Drop all holds and charges of holders for which `is_dead` says so.
    pub(crate) fn drop_dead(&self, is_dead: impl Fn(Holder) -> bool) {
        for row in self.rows() {
            let (generation, RowState::Live) = self.row(row) else { continue };
            for hold in &self.tables.holds[row as usize] {
                let word = hold.load(Relaxed);
                if word != 0 && is_dead(hold_of(word).0) {
                    hold.store(0, Release);
                }
            }
            self.bury_if_unheld(row, generation);
        }
        for (row, owner, _) in self.charges() {
            if is_dead(owner as Holder) {
                self.set_charge(row, owner >> 16, 0);
            }
        }
    }

    /// Drop what a dead owner of the lock had not committed.
    pub(crate) fn repair(&self) {
        for row in self.rows() {
            if let (generation, RowState::Live) = self.row(row) {
                // The owner may have died between its last hold and the row's burial.
                self.bury_if_unheld(row, generation);
            }
        }
        for frame in self.frames {
            let owner = frame.load(Relaxed);
            if owner != 0 && matches!(self.row(owner - 1).1, RowState::Free | RowState::Partial) {
                frame.store(0, Relaxed);
            }
        }
        for row in self.rows() {
            if let (generation, RowState::Partial) = self.row(row) {
                self.set_row(row, generation, RowState::Free);
            }
        }
    }

    /// (row, owner word, bytes) of all charges.
    pub(crate) fn charges(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        let high = self.tables.charge_high.load(Relaxed);
        let rows = self.tables.charges.iter().zip(0..high);
        rows.map(|(charge, row)| (row, charge.owner.load(Acquire), charge.bytes.load(Relaxed)))
            .filter(|(_, owner, _)| *owner as Holder != 0)
    }

    /// Charge `holder`. Returns row and generation.
    pub(crate) fn charge(&self, bytes: u64, holder: Holder) -> Result<(u32, u32), Shortage> {
        if self.free_bytes() < bytes {
            return Err(Shortage("not enough free memory"));
        }
        let charges = &self.tables.charges;
        let hint = self.tables.charge_hint.load(Relaxed) as usize % CHARGES;
        let row = (hint..CHARGES)
            .chain(0..hint)
            .find(|row| charges[*row].owner.load(Relaxed) as Holder == 0)
            .ok_or(Shortage("no free row in the table of charges"))?;
        self.tables.charge_hint.store(row as u32 + 1, Relaxed);
        self.tables.charge_high.fetch_max(row as u32 + 1, Release);
        let generation = (charges[row].owner.load(Relaxed) >> 16) as u32;
        let generation = generation.wrapping_add(1);
        charges[row].bytes.store(bytes, Relaxed);
        self.set_charge(row as u32, u64::from(generation), holder);
        Ok((row as u32, generation))
    }

    /// Change a charge of `holder` to `bytes`; false when it is not its own.
    pub(crate) fn change_charge(
        &self,
        row: u32,
        generation: u32,
        holder: Holder,
        bytes: u64,
    ) -> Result<bool, Shortage> {
        let Some(charge) = self.tables.charges.get(row as usize) else { return Ok(false) };
        if charge.owner.load(Relaxed) != u64::from(generation) << 16 | u64::from(holder) {
            return Ok(false);
        }
        if self.free_bytes() < bytes.saturating_sub(charge.bytes.load(Relaxed)) {
            return Err(Shortage("not enough free memory"));
        }
        charge.bytes.store(bytes, Relaxed);
        Ok(true)
    }

    /// Return a charge of `holder`; false when it is not its own.
    pub(crate) fn discharge(&self, row: u32, generation: u32, holder: Holder) -> bool {
        let Some(charge) = self.tables.charges.get(row as usize) else { return false };
        let is_own = charge.owner.load(Relaxed) == u64::from(generation) << 16 | u64::from(holder);
        if is_own {
            self.set_charge(row, u64::from(generation), 0);
            self.tables.charge_hint.store(row, Relaxed);
        }
        is_own
    }

    fn set_charge(&self, row: u32, generation: u64, holder: Holder) {
        let word = generation << 16 | u64::from(holder);
        self.tables.charges[row as usize].owner.store(word, Release);
    }

    /// What contradicts itself in the tables; empty for whole ones.
    pub(crate) fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut owned = vec![0; self.rows().len()];
        for (index, frame) in self.frames.iter().enumerate() {
            let owner = frame.load(Relaxed);
            match owned.get_mut((owner as usize).wrapping_sub(1)) {
                Some(count) => *count += 1,
                None if owner == 0 => {}
                None => found.push(format!("frame {index} belongs to row {} that was never used", owner - 1)),
            }
        }
        for row in self.rows() {
            let (_, state) = self.row(row);
            let expected = if state == RowState::Free { 0 } else { self.extent(row).1 };
            if owned[row as usize] != expected {
                found
                    .push(format!("{state:?} row {row} owns {} frames, not {expected}", owned[row as usize]));
            }
            if state == RowState::Partial || (state == RowState::Live && self.holds(row).next().is_none()) {
                found.push(format!("{state:?} row {row} is held by nobody"));
            }
        }
        found
    }
}
