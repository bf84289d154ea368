//! What the 32 bits of the gate word mean.
//!
//! Bit 0: open. Bits 1 to 31: the low bits of the turn's epoch. Epochs never repeat, so a word
//! that was seen open is a different word from the same tenant's next turn. Epoch 0 is never
//! granted, which leaves its open word free to mean "ready for no turn".

/// No member is ever ready for epoch 0: compares unequal to every word the daemon writes.
pub const READY_FOR_NONE: u32 = 1;

/// The word of an open gate in this epoch.
pub const fn open(epoch: u64) -> u32 {
    ((epoch as u32) << 1) | 1
}

/// The word of a closed gate after this epoch.
pub const fn closed(epoch: u64) -> u32 {
    (epoch as u32) << 1
}

/// Whether calls may pass, as far as the daemon is concerned.
pub const fn is_open(word: u32) -> bool {
    word & 1 == 1 && word != READY_FOR_NONE
}

/// Whether the word belongs to this epoch, open or closed.
pub const fn is_of_epoch(word: u32, epoch: u64) -> bool {
    word >> 1 == (epoch as u32) & (u32::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_and_closed_words_of_an_epoch_differ_and_belong_to_it() {
        for epoch in [1, 2, 77, u64::from(u32::MAX) - 1, 1 << 40] {
            assert_ne!(open(epoch), closed(epoch));
            assert!(is_of_epoch(open(epoch), epoch) && is_of_epoch(closed(epoch), epoch));
            assert!(!is_of_epoch(open(epoch), epoch + 1));
        }
    }

    #[test]
    fn ready_for_none_is_no_open_word() {
        assert!(!is_open(READY_FOR_NONE));
        assert_ne!(open(1), READY_FOR_NONE);
        assert_ne!(closed(0), READY_FOR_NONE);
    }
}
