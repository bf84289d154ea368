//! Names of physical memory.

/// Name of one allocation of physical memory, valid in every process of the machine. Never used twice: after
/// the memory was freed the id is stale for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhysicalId {
    pub(crate) device: u16,
    pub(crate) row: u32,
    pub(crate) generation: u32,
}

impl PhysicalId {
    /// Index of the device that the memory is on.
    pub fn device(self) -> usize {
        usize::from(self.device)
    }

    /// 12 bytes that another process can turn back with [`PhysicalId::from_bytes`] (as in an IPC handle).
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&u32::from(self.device).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.row.to_le_bytes());
        bytes[8..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    /// The id that [`PhysicalId::to_bytes`] gave. Bytes that name nothing make every operation fail.
    pub fn from_bytes(bytes: [u8; 12]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { device: word(0).min(0xffff) as u16, row: word(4), generation: word(8) }
    }
}
