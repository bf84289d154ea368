//! Pools and their allocations in other processes: CUDA driver API, `cuMemPoolExport...` and `cuMemPoolImport...`.
//!
//! The descriptor of a pool is a file of a few bytes with the pool's name; exported pointers carry that name
//! and the place of their memory on the machine. The memory itself is held by the importer, so that it stays
//! when the exporter frees it.

use std::ffi::{c_int, c_ulonglong, c_void};
use std::fs::File;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd as _, IntoRawFd as _};
use std::os::unix::fs::FileExt as _;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;
use turnus_simulated_arena::PhysicalId;

use super::pool::handle_of;
use super::virtual_memory::check_descriptor_type;
use super::{entry, needed, put};
use crate::context::current;
use crate::driver::driver;
use crate::pools;
use crate::space::{Origin, Result, SharedPart};

const POOL_MAGIC: u64 = u64::from_le_bytes(*b"SimPool1");
const POINTER_MAGIC: u64 = u64::from_le_bytes(*b"SimPtr_1");
/// Magic, name of the pool (two words), device.
const POOL_FILE_BYTES: usize = 32;

entry! {
    fn cuMemPoolExportToShareableHandle(
        handle_out: *mut c_void,
        pool: CUmemoryPool,
        handle_type: CUmemAllocationHandleType,
        flags: c_ulonglong,
    ) {
        needed(handle_out)?;
        let pool = pools::pool(pool)?;
        check_descriptor_type(handle_type)?;
        if flags != 0 || pool.properties.handle_types & handle_type.0 == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let [first, second] = pool.properties.identity;
        let file = pool_file(&[POOL_MAGIC, first, second, pool.properties.device as u64])?;
        put(handle_out.cast::<c_int>(), file.into_raw_fd())
    }

    fn cuMemPoolImportFromShareableHandle(
        pool_out: *mut CUmemoryPool,
        handle: *mut c_void,
        handle_type: CUmemAllocationHandleType,
        flags: c_ulonglong,
    ) {
        needed(pool_out)?;
        check_descriptor_type(handle_type)?;
        let number = handle as usize as c_int;
        if flags != 0 || number < 0 || libc::fcntl(number, libc::F_GETFD) < 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        // The descriptor stays the caller's: it is not closed here.
        let file = ManuallyDrop::new(File::from_raw_fd(number));
        let mut bytes = [0; POOL_FILE_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(|_| CUerror::INVALID_VALUE)?;
        let [magic, first, second, device] = [0, 1, 2, 3].map(|index| word(&bytes, index));
        let known = driver()?.arena.devices().len() as u64;
        if magic != POOL_MAGIC || device >= known {
            return Err(CUerror::INVALID_VALUE);
        }
        put(pool_out, handle_of(&pools::import(device as usize, [first, second])))
    }

    fn cuMemPoolExportPointer(share_data_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr) {
        needed(share_data_out)?;
        let space = &driver()?.space;
        let Origin::Pool(pool) = space.allocation(ptr)?.origin else { return Err(CUerror::INVALID_VALUE) };
        if pool.properties.handle_types == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let part = space.shared_part(ptr)?;
        let [first, second] = pool.properties.identity;
        let mut data = [0; 64];
        for (index, value) in [POINTER_MAGIC, first, second, part.offset_bytes, part.bytes].into_iter().enumerate() {
            data[8 * index..8 * index + 8].copy_from_slice(&value.to_le_bytes());
        }
        data[40..52].copy_from_slice(&part.id.to_bytes());
        put(share_data_out, CUmemPoolPtrExportData_st { reserved: data })
    }

    fn cuMemPoolImportPointer(
        ptr_out: *mut CUdeviceptr,
        pool: CUmemoryPool,
        share_data: *mut CUmemPoolPtrExportData,
    ) {
        needed(ptr_out)?;
        current::get_sound()?;
        let pool = pools::pool(pool)?;
        let data = share_data.as_ref().ok_or(CUerror::INVALID_VALUE)?.reserved;
        let [magic, first, second, offset_bytes, bytes] = [0, 1, 2, 3, 4].map(|index| word(&data, index));
        if !pool.properties.imported || magic != POINTER_MAGIC || pool.properties.identity != [first, second] {
            return Err(CUerror::INVALID_VALUE);
        }
        let mut name = [0; 12];
        name.copy_from_slice(&data[40..52]);
        let part = SharedPart { id: PhysicalId::from_bytes(name), offset_bytes, bytes, serial: 0 };
        let device = part.id.device();
        put(ptr_out, driver()?.space.import_part(part, 0, Origin::ImportedPool(pool), device)?)
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
    u64::from_le_bytes(word)
}

/// A file without a name that holds these words.
fn pool_file(words: &[u64]) -> Result<File> {
    // SAFETY: the name is a C string; the descriptor is new and ours.
    let mut file = unsafe {
        let descriptor = libc::memfd_create(c"simulated-cuda-pool".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(CUerror::OPERATING_SYSTEM);
        }
        File::from_raw_fd(descriptor)
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all(&bytes).map_err(|_| CUerror::OPERATING_SYSTEM)?;
    Ok(file)
}
