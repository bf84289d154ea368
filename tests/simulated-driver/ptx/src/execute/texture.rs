//! Reads through textures and accesses to surfaces, lane by lane.
//!
//! The caller's memory knows what an object is; here coordinates are taken from registers and results put there.

use super::registers::{Registers, lanes_of};
use super::{Failure, Machine};
use crate::program::{Op, Slot, Texel};
use crate::texture::{Coordinates, Fetch, SurfaceAccess};
use crate::types::LANE_COUNT;

/// Executes `tex`.
pub(super) fn fetch(
    machine: &mut Machine<'_>,
    registers: &mut Registers,
    texel: &Texel,
    d: [Slot; 4],
    active: u32,
) -> Result<(), Failure> {
    let mut found = [[0; LANE_COUNT]; 4];
    for lane in lanes_of(active) {
        let at = texel.at.map(|slot| registers.get(slot)[lane] as u32);
        let at = match texel.real {
            true => Coordinates::Real(at.map(f32::from_bits)),
            false => Coordinates::Whole(at.map(|bits| bits as i32)),
        };
        let (object, layer) = object_and_layer(registers, texel, lane);
        let fetch = Fetch { object, geometry: texel.geometry, at, layer };
        for (component, value) in found.iter_mut().zip(machine.memory.fetch(&fetch)?) {
            component[lane] = u64::from(value);
        }
    }
    d.iter().zip(&found).for_each(|(slot, lanes)| registers.set(*slot, active, lanes));
    Ok(())
}

/// Executes `suld` and `sust`.
pub(super) fn surface(
    machine: &mut Machine<'_>,
    registers: &mut Registers,
    op: &Op,
    active: u32,
) -> Result<(), Failure> {
    let Op::Surface { texel, outside, stores, slots, width, count } = op else { return Ok(()) };
    let (width, count) = (usize::from(*width), usize::from(*count));
    let mut values = [[0; LANE_COUNT]; 4];
    for lane in lanes_of(active) {
        let at = texel.at.map(|slot| registers.get(slot)[lane] as u32 as i32);
        let (object, layer) = object_and_layer(registers, texel, lane);
        let access = SurfaceAccess { object, geometry: texel.geometry, at, layer, outside: *outside };
        let mut bytes = [0_u8; 32];
        let bytes = &mut bytes[..width * count];
        if *stores {
            for (part, slot) in bytes.chunks_mut(width).zip(slots) {
                part.copy_from_slice(&registers.get(*slot)[lane].to_le_bytes()[..width]);
            }
            machine.memory.store_surface(&access, bytes)?;
        } else {
            machine.memory.load_surface(&access, bytes)?;
            for (part, component) in bytes.chunks(width).zip(&mut values) {
                let mut whole = [0; 8];
                whole[..width].copy_from_slice(part);
                component[lane] = u64::from_le_bytes(whole);
            }
        }
    }
    if !stores {
        slots.iter().zip(&values).take(count).for_each(|(slot, lanes)| registers.set(*slot, active, lanes));
    }
    Ok(())
}

fn object_and_layer(registers: &Registers, texel: &Texel, lane: usize) -> (u64, u32) {
    let layer = texel.layer.map_or(0, |slot| registers.get(slot)[lane] as u32);
    (registers.get(texel.object)[lane], layer)
}
