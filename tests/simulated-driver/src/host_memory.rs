//! Pages for `cuMemHostAlloc`: anonymous, resident, and made unavailable again at once when freed.
//!
//! The pages are touched when they are given, as pinned pages are; they are not locked, since simulated
//! devices need no fixed frames and the limit on locked memory is small on many machines.

use turnus_bindings::CUerror;

use crate::space::Result;

const PAGE_BYTES: u64 = 4096;
/// Size from which on pages are huge.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Zeroed pages for `bytes` bytes.
pub fn take(bytes: u64) -> Result<u64> {
    let length = length(bytes).ok_or(CUerror::OUT_OF_MEMORY)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(CUerror::OUT_OF_MEMORY) } else { Ok(start as u64) }
}

/// Gives back what `take(bytes)` returned.
pub fn release(start: u64, bytes: u64) {
    if let Some(length) = length(bytes) {
        // SAFETY: the range is one that `take` mapped, and its owner in the range table has been removed,
        // so that nobody else gives it back.
        unsafe { libc::munmap(start as *mut libc::c_void, length) };
    }
}

fn length(bytes: u64) -> Option<usize> {
    usize::try_from(bytes.checked_next_multiple_of(PAGE_BYTES)?).ok()
}

/// Whether the mapping around `address` lies in huge pages, reserved ones or (most of it) those that the kernel
/// puts together; as `/proc/self/smaps` says. Where that cannot be read it does not.
pub fn is_in_huge_pages(address: u64) -> bool {
    std::fs::read_to_string("/proc/self/smaps").is_ok_and(|text| has_huge_pages(&text, address))
}

fn has_huge_pages(smaps: &str, address: u64) -> bool {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = |line: &str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some(number(start)?..number(end)?)
    };
    let mut lines =
        smaps.lines().skip_while(|line| !range(line).is_some_and(|range| range.contains(&address)));
    lines.next();
    let own = lines.take_while(|line| range(line).is_none());
    let (mut resident, mut huge) = (0, 0);
    for line in own {
        let mut words = line.split_whitespace();
        let (Some(name), Some(Ok(kibibytes))) = (words.next(), words.next().map(str::parse::<u64>)) else {
            continue;
        };
        match name {
            "KernelPageSize:" if kibibytes << 10 >= HUGE_PAGE_BYTES => return true,
            "Rss:" => resident = kibibytes,
            "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:" => huge += kibibytes,
            _ => {}
        }
    }
    huge > 0 && huge * 2 >= resident
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_found_by_the_mapping_around_an_address() {
        let smaps = "1000-200000 rw-p 00000000 00:00 0\nSize: 2044 kB\nKernelPageSize: 4 kB\nRss: 2044 kB\n\
                     AnonHugePages: 0 kB\n\
                     200000-600000 rw-p 00000000 00:00 0\nKernelPageSize: 4 kB\nRss: 4096 kB\n\
                     AnonHugePages: 2048 kB\nVmFlags: rd wr\n\
                     600000-800000 rw-s 00000000 00:0f 9 /dev/hugepages/x\nKernelPageSize: 2048 kB\nRss: 0 kB\n";
        let answers =
            [0x1000, 0x1f_ffff, 0x20_0000, 0x60_0000, 0x90_0000].map(|at| has_huge_pages(smaps, at));
        assert_eq!(answers, [false, false, true, true, false]);
        assert!(!is_in_huge_pages(&raw const smaps as u64), "a stack lies in small pages");
    }
}
