//! Options of the just-in-time compiler, of which two matter here: the buffers for messages.
//!
//! Options that tune code generation are accepted without effect, as there is no code generation.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::CUjit_option;

use crate::space::Result;

const INFO_LOG_BUFFER: u32 = 3;
const INFO_LOG_BUFFER_SIZE: u32 = 4;
const ERROR_LOG_BUFFER: u32 = 5;
const ERROR_LOG_BUFFER_SIZE: u32 = 6;
/// `CU_JIT_NUM_OPTIONS` of the newest header.
const OPTIONS_END: u32 = 36;

const WALL_TIME: u32 = 2;
const TARGET_FROM_CONTEXT: u32 = 8;
const TARGET: u32 = 9;

/// Options of a single input of a link: those that only the whole link has are refused.
///
/// # Safety
/// `options` and `values` have `count` elements or `count` is 0.
pub unsafe fn check_input_options(
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Result<()> {
    const OF_THE_LINK: [u32; 5] = [WALL_TIME, INFO_LOG_BUFFER, ERROR_LOG_BUFFER, TARGET_FROM_CONTEXT, TARGET];
    if count == 0 {
        return Ok(());
    }
    if options.is_null() || values.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let options = unsafe { std::slice::from_raw_parts(options, count as usize) };
    if options.iter().any(|option| option.0 >= OPTIONS_END || OF_THE_LINK.contains(&option.0)) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(())
}

/// The compute capability that `CU_JIT_TARGET` names.
///
/// # Safety
/// As `check_input_options`; `Log::from_options` has accepted them.
pub unsafe fn target(count: u32, options: *mut CUjit_option, values: *mut *mut c_void) -> Option<(u32, u32)> {
    let wanted = (0..count as usize).find(|index| {
        // SAFETY: the caller's promise.
        unsafe { (*options.add(*index)).0 == TARGET }
    })?;
    // SAFETY: as above. The number is stored in the pointer's low half; from 0x10000 on it has flags above.
    let number = unsafe { *values.add(wanted) } as usize as u32 & 0xffff;
    Some((number / 10, number % 10))
}

/// Where messages go.
#[derive(Debug)]
pub struct Log {
    error: Option<Buffer>,
    info: Option<Buffer>,
}

#[derive(Debug)]
struct Buffer {
    text: *mut c_char,
    room: usize,
    /// The option value in which the driver returns the length it wrote.
    length: *mut *mut c_void,
}

impl Log {
    /// Reads the options of `cuModuleLoadDataEx` or `cuLibraryLoadData`.
    ///
    /// # Safety
    /// `options` and `values` have `count` elements or `count` is 0; a log buffer is valid for writing as many
    /// bytes as its size option says.
    pub unsafe fn from_options(
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> Result<Log> {
        let mut log = Log { error: None, info: None };
        if count == 0 {
            return Ok(log);
        }
        if options.is_null() || values.is_null() {
            return Err(CUerror::INVALID_VALUE);
        }
        // SAFETY: the caller's promise.
        let (options, places) = unsafe {
            let options = std::slice::from_raw_parts(options, count as usize);
            (options, (0..count as usize).map(|index| values.add(index)).collect::<Vec<_>>())
        };
        if options.iter().any(|option| option.0 >= OPTIONS_END) {
            return Err(CUerror::INVALID_VALUE);
        }
        let place_of =
            |wanted: u32| options.iter().position(|option| option.0 == wanted).map(|place| places[place]);
        let buffer = |text: u32, size: u32| {
            let (text, length) = (place_of(text)?, place_of(size)?);
            // SAFETY: both point into the array of values. The size is stored in the pointer's low half.
            let (text, room) = unsafe { ((*text).cast::<c_char>(), *length as usize as u32 as usize) };
            (!text.is_null() && room > 0).then_some(Buffer { text, room, length })
        };
        log.error = buffer(ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE);
        log.info = buffer(INFO_LOG_BUFFER, INFO_LOG_BUFFER_SIZE);
        Ok(log)
    }

    /// Fills the error buffer, and says the message once on stderr.
    ///
    /// # Safety
    /// The buffers of `from_options` are still valid.
    pub unsafe fn report(&self, message: &str) {
        // SAFETY: the caller's promise.
        unsafe { fill(self.error.as_ref(), message) };
        static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        if SAID.lock().insert(message.to_owned()) {
            eprintln!("simulated driver: PTX not loaded: {message}");
        }
    }

    /// Says that nothing was said.
    ///
    /// # Safety
    /// As `report`.
    pub unsafe fn finish(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            fill(self.error.as_ref(), "");
            fill(self.info.as_ref(), "");
        }
    }
}

/// # Safety
/// The buffer is valid for writing.
unsafe fn fill(buffer: Option<&Buffer>, message: &str) {
    let Some(buffer) = buffer else { return };
    let length = message.len().min(buffer.room - 1);
    // SAFETY: length + 1 <= room; `length` points into the array of option values.
    unsafe {
        std::ptr::copy_nonoverlapping(message.as_ptr(), buffer.text.cast(), length);
        buffer.text.add(length).write(0);
        buffer.length.write(length as *mut c_void);
    }
}
