//! Loads and stores of a warp: state spaces, generic addresses, vectors, alignment.
//!
//! Each access becomes one call on a `DeviceMemory`: the caller's for global memory, a window over bytes for
//! shared, local and parameter memory. Read next: `atomic.rs`.

use super::registers::{Registers, lanes_of};
use super::{Failure, Machine};
use crate::error::Fault;
use crate::memory::{DeviceMemory, ReadOnlyWindow, Window, is_run};
use crate::program::{Place, Slot};
use crate::types::{
    ALL_LANES, LANE_COUNT, LOCAL_WINDOW, Lanes, PARAMETER_WINDOW, SHARED_WINDOW, Space, sign_extend,
    width_mask,
};

/// Most bytes one lane accesses at once.
const LANE_BYTES: usize = 16;

/// What is done with the memory that an address leads to.
pub(super) type Access<'f> = &'f mut dyn FnMut(&mut dyn DeviceMemory, &Lanes, u32) -> Result<(), Fault>;

/// The addresses of the lanes, checked for alignment.
pub(super) fn addresses(registers: &Registers, place: &Place, mask: u32) -> Result<Lanes, Failure> {
    let base = registers.get(place.base);
    let unit = u64::from(place.width) * u64::from(place.count) - 1;
    let mut found = [0; LANE_COUNT];
    let mut odd = 0;
    for lane in 0..LANE_COUNT {
        found[lane] = base[lane].wrapping_add(place.offset as u64);
        odd |= u32::from(found[lane] & unit != 0) << lane;
    }
    match lanes_of(odd & mask).next() {
        Some(lane) => Err(Failure::Misaligned(found[lane])),
        None => Ok(found),
    }
}

/// Runs `act` on the memory behind `addresses`, once or, where lanes lead to several spaces, lane by lane.
pub(super) fn access(
    machine: &mut Machine<'_>,
    local: &mut [u8],
    place: &Place,
    addresses: &Lanes,
    mask: u32,
    act: Access<'_>,
) -> Result<(), Fault> {
    match place.space {
        Space::Global => act(machine.memory, addresses, mask),
        Space::Shared => act(&mut Window { bytes: machine.shared }, addresses, mask),
        Space::Parameter => act(&mut ReadOnlyWindow { bytes: machine.parameters }, addresses, mask),
        Space::Local => {
            let bytes = u64::from(place.width) * u64::from(place.count);
            let own = local_addresses(local.len(), addresses, mask, bytes)?;
            act(&mut Window { bytes: local }, &own, mask)
        }
        Space::Generic => access_generic(machine, local, place, addresses, mask, act),
    }
}

fn access_generic(
    machine: &mut Machine<'_>,
    local: &mut [u8],
    place: &Place,
    addresses: &Lanes,
    mask: u32,
    act: Access<'_>,
) -> Result<(), Fault> {
    let Some(first) = lanes_of(mask).next() else { return Ok(()) };
    let window = addresses[first] >> WINDOW_SHIFT;
    let same = lanes_of(mask).all(|lane| addresses[lane] >> WINDOW_SHIFT == window);
    let place = Place { space: space_of(addresses[first]), ..*place };
    if same && place.space == Space::Global {
        return access(machine, local, &place, addresses, mask, act);
    }
    let inside = addresses.map(|address| address & (SHARED_WINDOW - 1));
    if same {
        return access(machine, local, &place, &inside, mask, act);
    }
    for lane in lanes_of(mask) {
        let place = Place { space: space_of(addresses[lane]), ..place };
        let target = if place.space == Space::Global { addresses } else { &inside };
        access(machine, local, &place, target, 1 << lane, act)?;
    }
    Ok(())
}

const WINDOW_SHIFT: u32 = SHARED_WINDOW.trailing_zeros();

/// The space a generic address leads to.
pub(super) fn space_of(address: u64) -> Space {
    match address & !(SHARED_WINDOW - 1) {
        SHARED_WINDOW => Space::Shared,
        LOCAL_WINDOW => Space::Local,
        PARAMETER_WINDOW => Space::Parameter,
        _ => Space::Global,
    }
}

/// Places in the warp's local memory, in which the lanes' parts lie one behind another.
pub(super) fn local_addresses(
    all_bytes: usize,
    addresses: &Lanes,
    mask: u32,
    bytes: u64,
) -> Result<Lanes, Fault> {
    let each = (all_bytes / LANE_COUNT) as u64;
    let mut own = [0; LANE_COUNT];
    for lane in lanes_of(mask) {
        let address = addresses[lane];
        if address.checked_add(bytes).is_none_or(|end| end > each) {
            return Err(Fault { address });
        }
        own[lane] = lane as u64 * each + address;
    }
    Ok(own)
}

pub(super) fn load(
    machine: &mut Machine<'_>,
    registers: &mut Registers,
    local: &mut [u8],
    place: &Place,
    d: [Slot; 4],
    extend: Option<(u8, u8)>,
    mask: u32,
) -> Result<(), Failure> {
    let addresses = addresses(registers, place, mask)?;
    let (width, count) = (usize::from(place.width), usize::from(place.count));
    if count == 1 {
        let mut values = [0; LANE_COUNT];
        access(machine, local, place, &addresses, mask, &mut |memory, addresses, mask| {
            memory.load_lanes(addresses, mask, width, &mut values)
        })?;
        extend_lanes(&mut values, extend);
        registers.set(d[0], mask, &values);
        return Ok(());
    }
    let mut values = [[0; LANE_COUNT]; 4];
    access(machine, local, place, &addresses, mask, &mut |memory, addresses, mask| {
        load_vectors(memory, addresses, mask, width, &mut values[..count])
    })?;
    for (slot, lanes) in d.iter().zip(&mut values).take(count) {
        extend_lanes(lanes, extend);
        registers.set(*slot, mask, lanes);
    }
    Ok(())
}

fn extend_lanes(lanes: &mut Lanes, extend: Option<(u8, u8)>) {
    if let Some((from, to)) = extend {
        let keep = width_mask(u32::from(to));
        lanes.iter_mut().for_each(|value| *value = sign_extend(*value, u32::from(from)) & keep);
    }
}

/// Loads vectors of `values.len()` elements per lane.
fn load_vectors(
    memory: &mut dyn DeviceMemory,
    addresses: &Lanes,
    mask: u32,
    width: usize,
    values: &mut [Lanes],
) -> Result<(), Fault> {
    let total = width * values.len();
    let mut bytes = [0; LANE_COUNT * LANE_BYTES];
    let bytes = &mut bytes[..LANE_COUNT * total];
    let whole =
        mask == ALL_LANES && is_run(addresses, total as u64) && memory.load(addresses[0], bytes).is_ok();
    if !whole {
        for lane in lanes_of(mask) {
            memory.load(addresses[lane], &mut bytes[lane * total..][..total])?;
        }
    }
    for lane in lanes_of(mask) {
        for (element, lanes) in values.iter_mut().enumerate() {
            let mut number = [0; 8];
            number[..width].copy_from_slice(&bytes[lane * total + element * width..][..width]);
            lanes[lane] = u64::from_le_bytes(number);
        }
    }
    Ok(())
}

/// Loads from a place in the parameters that was checked at compile time.
pub(super) fn load_parameter(
    machine: &Machine<'_>,
    registers: &mut Registers,
    offset: u32,
    width: u8,
    d: Slot,
    extend: Option<(u8, u8)>,
    mask: u32,
) {
    let mut number = [0; 8];
    let width = usize::from(width);
    number[..width].copy_from_slice(&machine.parameters[offset as usize..][..width]);
    let mut lanes = [u64::from_le_bytes(number); LANE_COUNT];
    extend_lanes(&mut lanes, extend);
    registers.set(d, mask, &lanes);
}

pub(super) fn store(
    machine: &mut Machine<'_>,
    registers: &Registers,
    local: &mut [u8],
    place: &Place,
    s: [Slot; 4],
    mask: u32,
) -> Result<(), Failure> {
    let addresses = addresses(registers, place, mask)?;
    let (width, count) = (usize::from(place.width), usize::from(place.count));
    let values = s.map(|slot| registers.get(slot));
    access(machine, local, place, &addresses, mask, &mut |memory, addresses, mask| {
        if count == 1 {
            memory.store_lanes(addresses, mask, width, values[0])
        } else {
            store_vectors(memory, addresses, mask, width, &values[..count])
        }
    })?;
    Ok(())
}

fn store_vectors(
    memory: &mut dyn DeviceMemory,
    addresses: &Lanes,
    mask: u32,
    width: usize,
    values: &[&Lanes],
) -> Result<(), Fault> {
    let total = width * values.len();
    let mut bytes = [0; LANE_COUNT * LANE_BYTES];
    for lane in lanes_of(mask) {
        for (element, lanes) in values.iter().enumerate() {
            let place = lane * total + element * width;
            bytes[place..place + width].copy_from_slice(&lanes[lane].to_le_bytes()[..width]);
        }
    }
    let run = mask == ALL_LANES && is_run(addresses, total as u64);
    if run && memory.store(addresses[0], &bytes[..LANE_COUNT * total]).is_ok() {
        return Ok(());
    }
    for lane in lanes_of(mask) {
        memory.store(addresses[lane], &bytes[lane * total..][..total])?;
    }
    Ok(())
}
