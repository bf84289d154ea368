//! Device attributes: those of an A100 where nothing is simulated to depend on them, else what is simulated.
//!
//! A capability that the simulator lacks is reported as lacking, so that programs take the road that works.
//! Numbers are those of the `CUdevice_attribute` enum.

use turnus_simulated_arena::Device;

/// Largest number of threads in a block.
pub const BLOCK_THREADS_MAX: u32 = 1024;
/// Largest block, by dimension.
pub const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];
/// Largest grid, by dimension.
pub const GRID_MAX: [u32; 3] = [2_147_483_647, 65535, 65535];
/// Shared memory of a block unless the function asks for more.
pub const SHARED_BYTES: u32 = 49152;
/// Shared memory of a block that a function can ask for.
pub const SHARED_BYTES_OPTIN: u32 = 166_912;
/// Shared memory of a multiprocessor.
pub const SHARED_BYTES_MULTIPROCESSOR: u32 = 167_936;
/// Shared memory of each block that the system keeps.
pub const SHARED_BYTES_RESERVED: u32 = 1024;
/// Registers of a block and of a multiprocessor.
pub const REGISTERS: u32 = 65536;
/// Blocks that a multiprocessor holds.
pub const BLOCKS_MULTIPROCESSOR: u32 = 32;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_MODE`, which the machine has, not the device.
pub const COMPUTE_MODE: u32 = 20;
/// Constant memory.
pub const CONSTANT_BYTES: u32 = 65536;

/// The value of an attribute; `None` when there is no such attribute.
pub fn get(device: &Device, attribute: u32) -> Option<i32> {
    let pci = |part| pci_number(&device.pci_bus_id, part);
    Some(match attribute {
        1 => BLOCK_THREADS_MAX as i32,
        2..=4 => BLOCK_MAX[attribute as usize - 2] as i32,
        5..=7 => GRID_MAX[attribute as usize - 5] as i32,
        8 => SHARED_BYTES as i32,
        9 => CONSTANT_BYTES as i32,
        16 => device.config.multiprocessor_count as i32,
        33 => pci(1),
        34 => pci(2),
        39 => device.config.threads_per_multiprocessor as i32,
        50 => pci(0),
        75 => device.config.compute_major as i32,
        76 => device.config.compute_minor as i32,
        81 => SHARED_BYTES_MULTIPROCESSOR as i32,
        97 => SHARED_BYTES_OPTIN as i32,
        111 => SHARED_BYTES_RESERVED as i32,
        _ => FIXED.binary_search_by_key(&attribute, |entry| entry.0).map(|place| FIXED[place].1).ok()?,
    })
}

/// Part 0, 1 or 2 (domain, bus, device) of `domain:bus:device.function`.
fn pci_number(address: &str, part: usize) -> i32 {
    let text = address.split([':', '.']).nth(part).unwrap_or("0");
    i32::from_str_radix(text, 16).unwrap_or(0)
}

/// Attributes that are the same on all simulated devices, by number.
#[rustfmt::skip]
static FIXED: &[(u32, i32)] = &[
    (10, 32),                // warp size
    (11, i32::MAX),          // pitch of copies
    (12, REGISTERS as i32),
    (13, 1_410_000),         // clock, kHz
    (14, 512),               // texture alignment
    (15, 1),                 // copies beside kernels
    (17, 0), (18, 0),        // no time-out, not integrated
    (19, 1),                 // maps host memory
    (21, 131_072), (22, 131_072), (23, 65536), (24, 16384), (25, 16384), (26, 16384),
    (27, 32768), (28, 32768), (29, 2048), (30, 512),
    (31, 1),                 // concurrent kernels
    (32, 1),                 // ECC
    (35, 0),
    (36, 1_512_000),         // memory clock, kHz
    (37, 5120),              // memory bus, bits
    (38, 41_943_040),        // L2 cache
    (40, 2),                 // copy engines: one per direction
    (41, 1),                 // unified addressing
    (42, 32768), (43, 2048), (44, 1), (45, 32768), (46, 32768), (47, 8192), (48, 8192), (49, 32768),
    (51, 32),                // texture pitch alignment
    (52, 32768), (53, 32768), (54, 2046), (55, 32768), (56, 131_072), (57, 65536), (58, 16384), (59, 16384),
    (60, 16384), (61, 32768), (62, 2048), (63, 32768), (64, 32768), (65, 2048), (66, 32768), (67, 32768),
    (68, 2046), (69, 268_435_456), (70, 131_072), (71, 65000), (72, 2_097_120), (73, 32768), (74, 32768),
    (77, 32768),
    (78, 1),                 // stream priorities
    (79, 1), (80, 1),
    (82, REGISTERS as i32),
    (83, 1),                 // managed memory
    (84, 0), (85, 0),
    (86, 0),
    (87, 2),                 // single to double precision
    (88, 0),
    (89, 1),                 // managed memory used by host and device at once
    (90, 1),                 // compute preemption
    (91, 1),                 // registered memory has one address for host and device
    (92, 1), (93, 1), (94, 1),
    (95, 1), (96, 0),        // cooperative launch, not over several devices
    (98, 0),
    (99, 1),                 // host registration
    (100, 0), (101, 0),
    (102, 1), (103, 1),      // virtual memory management, export as file descriptor
    (104, 0), (105, 0),
    (106, BLOCKS_MULTIPROCESSOR as i32),
    (107, 0), (108, 0), (109, 0), (110, 0),
    (112, 0), (113, 0), (114, 0),
    (115, 1),                // memory pools
    (116, 0), (117, 0), (118, 0),
    (119, 1),                // pools exported as file descriptor
    (120, 0), (121, 0),
    (122, 1), (123, 1),      // 64-bit stream memory operations
    (124, 0),
    (125, 1),                // events for several processes
    (126, 1), (127, 0), (128, 0), (129, 1), (130, 0), (131, -1), (132, 0), (133, 0), (134, -1), (135, 0),
    (136, 0), (137, 0), (138, 0),
    (139, 0x20b5_10de), (140, 0x1533_10de), // PCI ids
    (141, 0), (142, 0), (143, 0), (144, 0), (145, 0), (146, 0), (147, 0), (148, 0),
    (149, 1),                // locality domains
    (150, 0), (151, 0), (152, 0), (153, 0), (154, 0), (155, 0), (156, 0), (157, 0), (158, 0), (159, 0), (160, 0),
    (161, 0),
];
