//! What the tests of this crate share: flat device memory and ways to run a kernel to its end.
//!
//! Read next: `kernels.rs`.
#![allow(dead_code, reason = "each test file uses a part of this")]

mod card;

use turnus_simulated_ptx::{DeviceMemory, Fault, Launch, Module, Progress, Trap};

/// Address of the first byte of `Flat`.
pub const BASE: u64 = 0x7_0000_0000;

/// Device memory that is one run of bytes from `BASE` on.
pub struct Flat {
    pub bytes: Vec<u8>,
}

impl Flat {
    pub fn new(size: usize) -> Self {
        Self { bytes: vec![0; size] }
    }

    /// Memory that holds these numbers.
    pub fn of<const N: usize>(numbers: impl IntoIterator<Item = [u8; N]>) -> Self {
        Self { bytes: numbers.into_iter().flatten().collect() }
    }

    pub fn read<const N: usize>(&self, offset: usize, count: usize) -> Vec<[u8; N]> {
        let bytes = &self.bytes[offset..offset + count * N];
        bytes.chunks_exact(N).map(|part| part.try_into().expect("a whole number")).collect()
    }

    pub fn u32s(&self, offset: usize, count: usize) -> Vec<u32> {
        self.read(offset, count).into_iter().map(u32::from_le_bytes).collect()
    }

    pub fn u64s(&self, offset: usize, count: usize) -> Vec<u64> {
        self.read(offset, count).into_iter().map(u64::from_le_bytes).collect()
    }

    pub fn f32s(&self, offset: usize, count: usize) -> Vec<f32> {
        self.read(offset, count).into_iter().map(f32::from_le_bytes).collect()
    }

    fn part(&mut self, address: u64, length: usize) -> Result<&mut [u8], Fault> {
        let start = address.checked_sub(BASE).ok_or(Fault { address })? as usize;
        let end = start.checked_add(length).ok_or(Fault { address })?;
        self.bytes.get_mut(start..end).ok_or(Fault { address })
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
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(part);
        let old = u64::from_le_bytes(bytes);
        part.copy_from_slice(&update(old).to_le_bytes()[..width]);
        Ok(old)
    }
}

/// The text of a file in `tests/data/ptx`.
pub fn text(name: &str) -> String {
    let path = format!("{}/../../data/ptx/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Parameters laid out with natural alignment.
#[derive(Default, Clone)]
pub struct Parameters {
    pub bytes: Vec<u8>,
    /// Where addresses stand in the bytes, for a card that has the memory elsewhere.
    addresses: Vec<usize>,
}

impl Parameters {
    pub fn push<const N: usize>(mut self, bytes: [u8; N]) -> Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(N), 0);
        self.bytes.extend(bytes);
        self
    }

    pub fn pointer(self, offset: usize) -> Self {
        let mut with = self.push((BASE + offset as u64).to_le_bytes());
        with.addresses.push(with.bytes.len() - 8);
        with
    }

    /// The bytes with all addresses as if the memory began at `base`.
    fn moved_to(&self, base: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for place in &self.addresses {
            let number = &mut bytes[*place..*place + 8];
            let address = u64::from_le_bytes(number.try_into().expect("eight bytes")) - BASE + base;
            number.copy_from_slice(&address.to_le_bytes());
        }
        bytes
    }
}

/// A launch of the module's kernel `k`.
pub fn launch(
    module: &Module,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u64,
    parameters: &Parameters,
) -> Launch {
    if card::card().is_some() {
        // The interpreter runs it all the same, so that the test ends; its verdict does not count for the card.
        println!("NOT RUN: looks into the interpreter");
    }
    let entry = module.entry("k").expect("a kernel k");
    Launch::new(entry, grid, block, shared, &parameters.bytes, &|_| None).expect("launches")
}

/// Runs a launch to its end in slices of `budget`.
pub fn finish(launch: &mut Launch, memory: &mut Flat, budget: u64) -> Result<(), Trap> {
    for _ in 0..100_000_000u64 {
        if launch.run(memory, budget, &|| 0)? == Progress::Finished {
            return Ok(());
        }
    }
    panic!("the kernel does not end");
}

/// Parses, launches and finishes; on a card if the environment names one.
pub fn run(source: &str, grid: u32, block: u32, parameters: &Parameters, memory: &mut Flat) {
    match card::card() {
        Some(card) if card.can_run(source) => return card.run(source, grid, block, parameters, memory),
        Some(_) => println!("NOT RUN: needs a newer device"),
        None => {}
    }
    let module = Module::parse(source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let mut launch = launch(&module, [grid, 1, 1], [block, 1, 1], 0, parameters);
    finish(&mut launch, memory, u64::MAX).unwrap_or_else(|trap| panic!("{trap}\n{source}"));
}

/// Line at which the body of `kernel` begins.
pub const BODY_LINE: u32 = 16;

/// A module with one kernel `k` that takes one pointer; the body finds it in `%rd0`, the thread's number in
/// `%r0` and the address of the thread's 64 bytes in `%rd1`.
pub fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .pred %p<16>;\n.reg .b16 %h<16>;\n.reg .b32 %r<32>;\n.reg .f32 %f<32>;\n.reg .b64 %rd<32>;\n\
         .reg .f64 %fd<32>;\n\
         ld.param.u64 %rd0, [p];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %rd1, %r0, 64;\nadd.s64 %rd1, %rd0, %rd1;\n\
         {body}\nret;\n}}\n"
    )
}

/// Operands of one instruction, different for each lane.
pub type Operands = [[u64; 4]; 32];

/// Runs `instruction` once, on 32 lanes. It finds operands of `bits` in `%a0` to `%a3`, the same numbers cut to 32
/// bits in `%c0` to `%c3`, and leaves its result, of `out_bits`, in `%d`.
pub fn evaluate(instruction: &str, bits: u32, out_bits: u32, operands: &Operands) -> Vec<u64> {
    let mut body = format!(".reg .b{bits} %a<4>;\n.reg .b32 %c<4>;\n.reg .b{out_bits} %d;\n");
    for k in 0..4 {
        body +=
            &format!("ld.global.b{bits} %a{k}, [%rd1+{}];\nld.global.b32 %c{k}, [%rd1+{}];\n", 8 * k, 8 * k);
    }
    body += &format!("{instruction}\nst.global.b{out_bits} [%rd1+56], %d;\n");
    let mut memory = Flat::new(64 * 32);
    for (lane, numbers) in operands.iter().enumerate() {
        for (k, number) in numbers.iter().enumerate() {
            let place = lane * 64 + k * 8;
            memory.bytes[place..place + 8].copy_from_slice(&number.to_le_bytes());
        }
    }
    run(&kernel(&body), 1, 32, &Parameters::default().pointer(0), &mut memory);
    (0..32).map(|lane| memory.u64s(lane * 64 + 56, 1)[0]).collect()
}

/// Checks `instruction` against `model` in every lane.
pub fn check(
    instruction: &str,
    bits: u32,
    out_bits: u32,
    operands: &Operands,
    model: impl Fn(u64, u64, u64, u64) -> u64,
) {
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let found = evaluate(instruction, bits, out_bits, operands);
    for (found, numbers) in found.iter().zip(operands) {
        let [a, b, c, d] = numbers.map(|number| number & mask);
        let expected = model(a, b, c, d);
        assert_eq!(*found, expected, "{instruction} of {a:#x}, {b:#x}, {c:#x}, {d:#x} is {found:#x}");
    }
}
