//! Measures how many lane-instructions per second the executor runs, for kernels of `tests/data/ptx`.
//!
//! `cargo run --release -p turnus-simulated-ptx --example speed`. Prints one line per kernel; checks nothing.
//! Counts processor time, so that other work on the machine disturbs it little.

use turnus_simulated_ptx::{DeviceMemory, Fault, Launch, Module, Progress};

/// Address of the first byte of device memory.
const BASE: u64 = 0x7_0000_0000;
/// Elements that each kernel works on.
const COUNT: u32 = 1 << 20;

struct Flat {
    bytes: Vec<u8>,
}

impl Flat {
    fn part(&mut self, address: u64, length: usize) -> Result<&mut [u8], Fault> {
        let start = address.wrapping_sub(BASE) as usize;
        self.bytes.get_mut(start..start.wrapping_add(length)).ok_or(Fault { address })
    }
}

impl DeviceMemory for Flat {
    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        bytes.copy_from_slice(self.part(address, bytes.len())?);
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.part(address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(
        &mut self,
        address: u64,
        width: usize,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let part = self.part(address, width)?;
        let mut number = [0; 8];
        number[..width].copy_from_slice(part);
        let old = u64::from_le_bytes(number);
        part.copy_from_slice(&update(old).to_le_bytes()[..width]);
        Ok(old)
    }
}

/// Seconds that this thread has run, from the kernel's account of it.
fn processor_seconds() -> f64 {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_else(|error| panic!("{error}"));
    let nanoseconds = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
    nanoseconds.unwrap_or_else(|| panic!("schedstat holds no number: {text}")) as f64 / 1e9
}

fn parameters(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.resize(usize::next_multiple_of(bytes.len(), part.len()), 0);
        bytes.extend_from_slice(part);
    }
    bytes
}

fn main() {
    let count = COUNT.to_le_bytes();
    let pointer = |index: u64| (BASE + index * 4 * u64::from(COUNT)).to_le_bytes();
    let (p0, p1, p2) = (pointer(0), pointer(1), pointer(2));
    let (half, long, side) = (0.5f32.to_le_bytes(), u64::from(COUNT).to_le_bytes(), 512u32.to_le_bytes());
    let linear = [COUNT / 256, 1, 1];
    type Case<'a> = (&'a str, [u32; 3], [u32; 3], Vec<u8>);
    let cases: [Case<'_>; 7] = [
        ("fill", [64, 1, 1], [256, 1, 1], parameters(&[&p0, &half, &long])),
        ("vadd", linear, [256, 1, 1], parameters(&[&p0, &p1, &p2, &count])),
        ("saxpy", linear, [256, 1, 1], parameters(&[&half, &p0, &p1, &count])),
        ("hash_i64", linear, [256, 1, 1], parameters(&[&p0, &count])),
        ("reduce_shared", linear, [256, 1, 1], parameters(&[&p0, &p1, &count])),
        ("reduce_warp", [64, 1, 1], [256, 1, 1], parameters(&[&p0, &p1, &count])),
        ("matmul", [32, 32, 1], [16, 16, 1], parameters(&[&p0, &p1, &p2, &side])),
    ];
    for (name, grid, block, parameters) in cases {
        let path = format!("{}/../../data/ptx/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let module = Module::parse(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let entry = module.entry("k").unwrap_or_else(|| panic!("{path} has no kernel k"));
        let mut memory = Flat { bytes: vec![0; 16 * COUNT as usize] };
        let mut best = f64::MAX;
        let mut executed = 0;
        for _ in 0..3 {
            let started = processor_seconds();
            let launch = Launch::new(entry, grid, block, 0, &parameters, &|_| None);
            let mut launch = launch.unwrap_or_else(|error| panic!("{name}: {error}"));
            while launch.run(&mut memory, 100_000, &|| 0).unwrap_or_else(|trap| panic!("{trap}"))
                == Progress::Yielded
            {}
            best = best.min(processor_seconds() - started);
            executed = launch.executed_instructions();
        }
        let rate = executed as f64 * 32.0 / best / 1e6;
        println!(
            "{name:14} {executed:10} warp instructions {:8.1} ms {rate:7.0} M lane-instructions/s",
            best * 1e3
        );
    }
}
