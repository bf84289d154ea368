//! Misfortunes of devices that a test, a tool or a fault rule brings about by files in the machine's directory.
//!
//! `lost-<index>`: while it exists the device has fallen off the bus. `xid`: lines `<index> <xid>`, appended as
//! the kernel module would log them. Neither changes memory or tables. The simulated NVML reports both; the
//! simulated driver asks often whether a device is lost, and so looks at the file only now and then.

use crate::arena::Arena;
use crate::clock::coarse_now_ns;
use crate::error::ArenaError;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Every so many questions the clock is looked at, which costs more than all else in a launch.
const QUESTIONS: u32 = 16;
/// How long a device counts as present after a look at its marker.
const LOOK_NS: u64 = 4_000_000;
/// "GPU has fallen off the bus": NVIDIA, Xid catalog.
pub const XID_FALLEN_OFF_THE_BUS: u64 = 79;

/// What this process knows of a device's presence.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    is_lost: AtomicBool,
    /// Questions; threads may overwrite each other's.
    asked: AtomicU32,
    looked_ns: AtomicU64,
}

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
    /// Whether the marker `lost-<index>` lies in the directory; a MIG device is lost with the whole one.
    pub fn device_is_lost(&self, device: usize) -> bool {
        let device = self.devices().get(device).map_or(device, |device| device.whole());
        self.directory().join(format!("lost-{device}")).exists()
    }

    /// Whether the device was lost at any time since this process attached: it stays lost to it. A new marker is
    /// seen within some milliseconds and some questions; for who asks all the time.
    pub fn device_was_lost(&self, device: usize) -> bool {
        let Some(presence) = self.presences.get(device) else { return false };
        if presence.is_lost.load(Relaxed) {
            return true;
        }
        let asked = presence.asked.load(Relaxed).wrapping_add(1);
        presence.asked.store(asked, Relaxed);
        if !asked.is_multiple_of(QUESTIONS) {
            return false;
        }
        let now_ns = coarse_now_ns();
        if now_ns.saturating_sub(presence.looked_ns.load(Relaxed)) < LOOK_NS {
            return false;
        }
        presence.looked_ns.store(now_ns, Relaxed);
        self.look_for_device(device)
    }

    /// Like [`Arena::device_was_lost`], by a look at the marker now.
    pub fn look_for_device(&self, device: usize) -> bool {
        let is_lost = self.device_is_lost(device);
        let presence = self.presences.get(device);
        is_lost | presence.is_some_and(|presence| presence.is_lost.fetch_or(is_lost, Relaxed))
    }

    /// Let a device fall off the bus: its marker and the line in the log.
    pub fn lose_device(&self, device: usize) -> Result<(), ArenaError> {
        let device = self.device(device)?.whole();
        let path = self.directory().join(format!("lost-{device}"));
        std::fs::write(&path, "").map_err(|source| ArenaError::File { what: "writing", path, source })?;
        let lost = self.devices().iter().filter(|lost| lost.whole() == device);
        lost.for_each(|lost| self.presences[lost.index].is_lost.store(true, Relaxed));
        self.report_xid(device, XID_FALLEN_OFF_THE_BUS)
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
        let device = self.device(device)?.whole();
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

    #[test]
    fn a_device_that_was_lost_stays_lost_to_the_process_that_saw_it() {
        let machine = TemporaryMachine::new(&ArenaConfig::with_devices(2)).unwrap();
        let arena = Arena::open_at(machine.directory()).unwrap();
        assert!(!arena.device_was_lost(0) && !arena.device_was_lost(1));
        arena.lose_device(1).unwrap();
        assert!(!arena.device_was_lost(0) && arena.device_was_lost(1));
        assert_eq!(arena.xids(0).last().map(|xid| (xid.device, xid.code)), Some((1, 79)));
        std::fs::remove_file(machine.directory().join("lost-1")).unwrap();
        assert!(arena.device_was_lost(1) && !arena.device_is_lost(1));
        let later = Arena::open_at(machine.directory()).unwrap();
        assert!(!later.device_was_lost(1), "a new process finds the device again");
    }

    #[test]
    fn a_marker_is_seen_soon() {
        let machine = TemporaryMachine::new(&ArenaConfig::with_devices(1)).unwrap();
        let arena = Arena::open_at(machine.directory()).unwrap();
        assert!(!arena.device_was_lost(0));
        std::fs::write(machine.directory().join("lost-0"), "").unwrap();
        let begun = std::time::Instant::now();
        while !arena.device_was_lost(0) {
            assert!(begun.elapsed() < std::time::Duration::from_secs(5), "the marker is not seen");
        }
    }
}
