//! Misfortunes of devices that a test or a tool brings about by files in the machine's directory.
//!
//! `lost-<index>`: while it exists the device has fallen off the bus. `xid`: lines `<index> <xid>`, appended as
//! the kernel module would log them. Neither changes memory or tables. The simulated NVML reports both.

use crate::arena::Arena;
use crate::error::ArenaError;
use std::io::Write;

/// Name of the log of XID errors in the directory of the machine.
pub const XID_FILE: &str = "xid";

/// One line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// Index of the device.
    pub device: usize,
    /// Number of the error, as in the kernel's log.
    pub code: u64,
    /// Where the line ends in the log, in bytes.
    pub end_bytes: u64,
}

impl Arena {
    /// Whether the marker `lost-<index>` lies in the directory.
    pub fn device_is_lost(&self, device: usize) -> bool {
        self.directory().join(format!("lost-{device}")).exists()
    }

    /// The XID errors of all devices since the log was `from_bytes` long. A last line without its end, and lines
    /// that are not two numbers, are passed over.
    pub fn xids(&self, from_bytes: u64) -> Vec<Xid> {
        let log = std::fs::read(self.directory().join(XID_FILE)).unwrap_or_default();
        let mut end_bytes = 0;
        let lines = log.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        lines
            .filter_map(|line| {
                end_bytes += line.len() as u64;
                let (device, code) = std::str::from_utf8(line).ok()?.trim().split_once(' ')?;
                Some(Xid { device: device.parse().ok()?, code: code.trim().parse().ok()?, end_bytes })
            })
            .filter(|xid| xid.end_bytes > from_bytes)
            .collect()
    }

    /// Length of the log of XID errors: where to go on reading.
    pub fn xid_log_bytes(&self) -> u64 {
        std::fs::metadata(self.directory().join(XID_FILE)).map_or(0, |data| data.len())
    }

    /// Append an XID error of a device to the log.
    pub fn report_xid(&self, device: usize, code: u64) -> Result<(), ArenaError> {
        self.device(device)?;
        let path = self.directory().join(XID_FILE);
        let written = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut log| log.write_all(format!("{device} {code}\n").as_bytes()));
        written.map_err(|source| ArenaError::File { what: "writing", path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArenaConfig, TemporaryMachine};

    #[test]
    fn the_log_is_read_from_where_the_reader_stopped() {
        let machine = TemporaryMachine::new(&ArenaConfig::with_devices(2)).unwrap();
        let arena = Arena::open_at(machine.directory()).unwrap();
        assert_eq!((arena.xid_log_bytes(), arena.xids(0)), (0, Vec::new()));
        arena.report_xid(1, 79).unwrap();
        let seen = arena.xid_log_bytes();
        std::fs::write(machine.directory().join(XID_FILE), "1 79\nnonsense\n0 31\n1 4").unwrap();
        let codes = |from| arena.xids(from).iter().map(|xid| (xid.device, xid.code)).collect::<Vec<_>>();
        assert_eq!(codes(0), [(1, 79), (0, 31)], "the unfinished line waits for its end");
        assert_eq!(codes(seen), [(0, 31)]);
        assert!(matches!(arena.report_xid(2, 79), Err(ArenaError::NoDevice { device: 2 })));
    }

    #[test]
    fn a_marker_makes_its_device_lost_and_no_other() {
        let machine = TemporaryMachine::new(&ArenaConfig::with_devices(2)).unwrap();
        let arena = Arena::open_at(machine.directory()).unwrap();
        std::fs::write(machine.directory().join("lost-1"), "").unwrap();
        assert_eq!([0, 1].map(|device| arena.device_is_lost(device)), [false, true]);
    }
}
