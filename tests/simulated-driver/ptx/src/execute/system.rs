//! Functions that every device has: `vprintf`, `malloc`, `free`, `__assertfail`.
//!
//! Lanes call them one after another, lowest first. Texts come out of device memory and are bounded. Read next:
//! `format.rs`.

use super::format::{Arguments, format};
use super::memory::{local_addresses, space_of};
use super::registers::{Registers, lanes_of};
use super::{Failure, Machine};
use crate::error::Fault;
use crate::memory::{DeviceMemory, ReadOnlyWindow, Window};
use crate::program::{Slot, SystemCall};
use crate::types::{LANE_COUNT, SHARED_WINDOW, Space};

/// Longest text that is read from device memory, in bytes.
const TEXT_LIMIT: usize = 1 << 16;

pub(super) fn system(
    machine: &mut Machine<'_>,
    registers: &mut Registers,
    local: &mut [u8],
    call: SystemCall,
    arguments: [Slot; 5],
    d: Slot,
    active: u32,
) -> Result<(), Failure> {
    let system = machine.system.ok_or(Failure::Trapped)?;
    let mut results = [0; LANE_COUNT];
    for lane in lanes_of(active) {
        let given = arguments.map(|slot| registers.get(slot)[lane]);
        results[lane] = match call {
            SystemCall::Print => print(machine, local, lane, given[0], given[1])?,
            SystemCall::Allocate => system.allocate(given[0]),
            SystemCall::Free if given[0] == 0 || system.free(given[0]) => 0,
            SystemCall::Free => return Err(Failure::Trapped),
            SystemCall::AssertionFailed => {
                let line = assertion(machine, local, lane, given)?;
                system.assertion_failed(&line);
                0
            }
        };
    }
    if call == SystemCall::AssertionFailed {
        return Err(Failure::Assertion);
    }
    registers.set(d, active, &results);
    Ok(())
}

/// The number of arguments, or -1 without a format.
fn print(
    machine: &mut Machine<'_>,
    local: &mut [u8],
    lane: usize,
    text: u64,
    arguments: u64,
) -> Result<u64, Fault> {
    let Some(system) = machine.system.filter(|_| text != 0) else { return Ok(u64::from(u32::MAX)) };
    let text = read_text(machine, local, lane, text)?;
    let mut reader = Reader { machine, local, lane, at: arguments };
    let (line, count) = format(&text, &mut reader)?;
    system.print(&line);
    Ok(count)
}

/// The line that the CUDA C++ Programming Guide shows under "Assertion".
fn assertion(
    machine: &mut Machine<'_>,
    local: &mut [u8],
    lane: usize,
    [message, file, line, function, _]: [u64; 5],
) -> Result<Vec<u8>, Fault> {
    let [message, file, function] = {
        let mut read = |address| match address {
            0 => Ok(b"?".to_vec()),
            address => read_text(machine, local, lane, address),
        };
        [read(message)?, read(file)?, read(function)?].map(|text| String::from_utf8_lossy(&text).into_owned())
    };
    let [x, y, _] = machine.block_extent;
    let thread = machine.first_thread + lane as u32;
    let [bx, by, bz] = machine.block_index;
    let (tx, ty, tz) = (thread % x, thread / x % y, thread / x / y);
    let text = format!(
        "{file}:{}: {function}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{message}` failed.\n",
        line as u32
    );
    Ok(text.into_bytes())
}

/// Reads a list of arguments one behind another, each aligned to its size.
struct Reader<'r, 'm> {
    machine: &'r mut Machine<'m>,
    local: &'r mut [u8],
    lane: usize,
    at: u64,
}

impl Arguments for Reader<'_, '_> {
    fn number(&mut self, bytes: u64) -> Result<u64, Fault> {
        let at = self.at.next_multiple_of(bytes);
        self.at = at + bytes;
        let mut number = [0; 8];
        read(self.machine, self.local, self.lane, at, &mut number[..bytes as usize])?;
        Ok(u64::from_le_bytes(number))
    }

    fn text(&mut self, address: u64) -> Result<Vec<u8>, Fault> {
        read_text(self.machine, self.local, self.lane, address)
    }
}

/// A text up to its terminator, or to the limit.
fn read_text(
    machine: &mut Machine<'_>,
    local: &mut [u8],
    lane: usize,
    address: u64,
) -> Result<Vec<u8>, Fault> {
    let mut text = Vec::new();
    while text.len() < TEXT_LIMIT {
        let mut byte = [0];
        read(machine, local, lane, address.wrapping_add(text.len() as u64), &mut byte)?;
        if byte[0] == 0 {
            break;
        }
        text.push(byte[0]);
    }
    Ok(text)
}

/// Reads at a generic address.
fn read(
    machine: &mut Machine<'_>,
    local: &mut [u8],
    lane: usize,
    address: u64,
    bytes: &mut [u8],
) -> Result<(), Fault> {
    let inside = address & (SHARED_WINDOW - 1);
    match space_of(address) {
        Space::Shared => Window { bytes: machine.shared }.load(inside, bytes),
        Space::Parameter => ReadOnlyWindow { bytes: machine.parameters }.load(inside, bytes),
        Space::Local => {
            let own =
                local_addresses(local.len(), &[inside; LANE_COUNT], 1 << lane, bytes.len() as u64)?[lane];
            Window { bytes: local }.load(own, bytes)
        }
        Space::Global | Space::Generic => machine.memory.load(address, bytes),
    }
}
