//! What the driver knows about a pointer: the values of `CUpointer_attribute`.
//!
//! Read from the address space; nothing is changed here. How values are written to the caller is in
//! `entry/pointer.rs`.

use turnus_bindings::CUerror;

use crate::context::{CONTEXTS, current};
use crate::driver::{Driver, driver};
use crate::space::{HostRange, Origin, Place, Result};

/// A value of the width that the attribute has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// `unsigned int`, `int`, or a boolean of one `int`.
    Word(u32),
    /// `unsigned long long`, `size_t`, a pointer or a handle.
    Long(u64),
    /// A boolean of one byte (`bool`).
    Byte(u8),
}

const MEMORY_TYPE_HOST: u32 = 1;
const MEMORY_TYPE_DEVICE: u32 = 2;
/// `CU_POINTER_ATTRIBUTE_ACCESS_FLAGS`: read and write.
const ACCESS_READ_WRITE: u32 = 3;

/// The value of `attribute` for `address`.
///
/// Errors: `INVALID_VALUE` when the driver does not know the address, or the attribute has no value for it;
/// `NOT_SUPPORTED` for tokens of RDMA, which simulated devices do not have.
pub fn get(attribute: u32, address: u64) -> Result<Value> {
    let driver = driver()?;
    match driver.space.place(address) {
        Some(place) => of_device_memory(driver, attribute, address, &place),
        None => {
            let range = driver.space.host().find(address).ok_or(CUerror::INVALID_VALUE)?;
            of_host_memory(driver, attribute, address, &range)
        }
    }
}

/// What the batch query gives for an address that the driver does not know, or an attribute without value.
pub fn nothing(attribute: u32) -> Result<Value> {
    Ok(match attribute {
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20 => Value::Long(0),
        2 | 16 | 22 => Value::Word(0),
        9 => Value::Word(-2_i32 as u32),
        6 | 8 | 10 | 13 | 15 | 21 => Value::Byte(0),
        _ => return Err(CUerror::INVALID_VALUE),
    })
}

fn of_device_memory(driver: &Driver, attribute: u32, address: u64, place: &Place) -> Result<Value> {
    let no_value = Err(CUerror::INVALID_VALUE);
    let facts = Facts::of(place);
    Ok(match attribute {
        // Memory of pools, and what cuMemMap mapped, belongs to no context.
        1 => Value::Long(facts.context.map_or(0, handle_of)),
        2 => Value::Word(MEMORY_TYPE_DEVICE),
        3 => {
            current::get()?;
            Value::Long(address)
        }
        4 if facts.managed => Value::Long(address),
        4 => return no_value,
        5 => return Err(CUerror::NOT_SUPPORTED),
        6 => Value::Byte(u8::from(facts.sync_memops)),
        7 => Value::Long(facts.buffer_id),
        8 => Value::Byte(u8::from(facts.managed)),
        10 => Value::Byte(u8::from(facts.ipc_capable)),
        21 => Value::Byte(0),
        9 => Value::Word(facts.device.and_then(|device| driver.ordinal(device)).unwrap_or(-2) as u32),
        11 => Value::Long(facts.range.0),
        12 => Value::Long(facts.range.1),
        13 => Value::Byte(u8::from(facts.mapping.is_some())),
        14 => Value::Long(u64::from(facts.handle_types)),
        15 => Value::Byte(u8::from(facts.rdma_capable)),
        16 if facts.managed => Value::Word(ACCESS_READ_WRITE),
        16 => Value::Word(driver.space.rights(current::get()?.device, address) as u32),
        17 => Value::Long(facts.pool),
        18 => Value::Long(facts.mapping.ok_or(CUerror::INVALID_VALUE)?.1),
        19 => Value::Long(facts.mapping.ok_or(CUerror::INVALID_VALUE)?.0),
        20 => Value::Long(facts.block_id),
        22 => Value::Word(-1_i32 as u32),
        _ => return no_value,
    })
}

/// What attributes are made of.
#[derive(Default)]
struct Facts {
    context: Option<u64>,
    device: Option<usize>,
    buffer_id: u64,
    block_id: u64,
    handle_types: u32,
    rdma_capable: bool,
    /// Handle of the pool.
    pool: u64,
    sync_memops: bool,
    managed: bool,
    ipc_capable: bool,
    range: (u64, u64),
    mapping: Option<(u64, u64)>,
}

impl Facts {
    fn of(place: &Place) -> Facts {
        match place {
            Place::Allocation(base, allocation) => Facts {
                context: Some(allocation.context),
                device: Some(allocation.device),
                buffer_id: allocation.buffer_id,
                block_id: allocation.buffer_id,
                handle_types: allocation.pool().map_or(0, |pool| pool.properties.handle_types),
                pool: allocation.pool().map_or(0, |pool| pool.handle as u64),
                sync_memops: allocation.sync_memops,
                managed: allocation.managed().is_some(),
                ipc_capable: matches!(allocation.origin, Origin::Context),
                range: (*base, allocation.bytes),
                mapping: Some((*base, allocation.bytes)),
                ..Facts::default()
            },
            Place::Mapping(base, mapping, range, reservation) => Facts {
                device: Some(mapping.physical.device()),
                buffer_id: mapping.buffer_id,
                block_id: mapping.physical.block_id,
                handle_types: mapping.physical.handle_types,
                rdma_capable: mapping.physical.rdma_capable,
                range: (*range, reservation.bytes),
                mapping: Some((*base, mapping.bytes)),
                ..Facts::default()
            },
            Place::Reserved(base, reservation) => {
                Facts { range: (*base, reservation.bytes), ..Facts::default() }
            }
        }
    }
}

fn of_host_memory(driver: &Driver, attribute: u32, address: u64, range: &HostRange) -> Result<Value> {
    Ok(match attribute {
        1 => Value::Long(handle_of(range.context)),
        2 => Value::Word(MEMORY_TYPE_HOST),
        3 => {
            current::get()?;
            Value::Long(address)
        }
        4 => Value::Long(address),
        5 => return Err(CUerror::NOT_SUPPORTED),
        6 | 8 | 10 | 15 | 21 => Value::Byte(0),
        7 | 20 => Value::Long(range.buffer_id),
        9 => Value::Word(driver.ordinal(range.device).unwrap_or(-2) as u32),
        11 | 19 => Value::Long(range.start),
        12 | 18 => Value::Long(range.bytes),
        13 => Value::Byte(1),
        14 | 17 => Value::Long(0),
        16 => Value::Word(ACCESS_READ_WRITE),
        22 => Value::Word(-1_i32 as u32),
        _ => return Err(CUerror::INVALID_VALUE),
    })
}

fn handle_of(context: u64) -> u64 {
    let found = CONTEXTS.all().into_iter().find(|living| living.id() == context);
    found.map_or(0, |living| living.handle as u64)
}
