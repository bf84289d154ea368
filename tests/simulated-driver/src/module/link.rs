//! A link under way: inputs are taken one by one, then made into one image.
//!
//! CUDA driver API, `cuLinkCreate` and its kin. What can be said of an input by itself, or with those before it,
//! is said when it is added; names that nobody defines are found in the end. Read next: `linked.rs`.

use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_simulated_ptx as ptx;

use super::linked::{self, Input};
use super::{check_target, cubin, image, jit};
use crate::registry::Registry;
use crate::space::Result;

/// All links under way.
pub static LINKS: Registry<Arc<Link>> = Registry::new(30);

/// `CUjitInputType`.
pub mod kind {
    /// Machine code.
    pub const CUBIN: u32 = 0;
    /// PTX text.
    pub const PTX: u32 = 1;
    /// A fat binary.
    pub const FAT_BINARY: u32 = 2;
    /// The first number that is no kind.
    pub const END: u32 = 7;
}

/// See the module's words.
#[derive(Debug)]
pub struct Link {
    capability: (u32, u32),
    log: jit::Log,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    inputs: Vec<Input>,
    /// The outcome; it lives as long as the link.
    image: Option<Vec<u8>>,
}

// SAFETY: the log's pointers are the program's, which promises that they stay valid as long as the link; they are
// used under the lock of `state` only.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

impl Link {
    /// Begins a link for a device. Its log's buffers are valid as long as it.
    pub fn begin(capability: (u32, u32), log: jit::Log) -> usize {
        LINKS.add(Arc::new(Link { capability, log, state: Mutex::default() }))
    }

    /// Takes one input.
    pub fn add(&self, input_kind: u32, bytes: &[u8], name: &str) -> Result<()> {
        let mut state = self.state.lock();
        if state.image.is_some() {
            return Err(CUerror::INVALID_HANDLE);
        }
        let input = match input_kind {
            kind::PTX => Input::Text(name.to_owned(), text_of(bytes)?),
            kind::CUBIN | kind::FAT_BINARY => match image::part_of(bytes, self.capability)? {
                image::Image::Ptx(text) => Input::Text(name.to_owned(), text.into_owned()),
                image::Image::Cubin(bytes) => Input::Cubin(bytes.into_owned()),
            },
            // Objects and libraries of the host, and intermediate code.
            _ => return Err(CUerror::NOT_SUPPORTED),
        };
        if let Input::Text(name, text) = &input {
            let checked = check_target(text, self.capability)
                .and_then(|()| ptx::Module::check_input(text).map_err(|error| error.to_string()));
            if let Err(message) = checked {
                return Err(self.say(&format!("{name}: {message}"), CUerror::INVALID_PTX));
            }
        }
        if let Input::Cubin(bytes) = &input
            && let Some(linked) = linked::unpack(bytes)?
        {
            state.inputs.extend(linked);
        } else {
            state.inputs.push(input);
        }
        if let Err(error) = ptx::Module::check_conflicts(&linked::texts(&state.inputs)) {
            state.inputs.pop();
            return Err(self.say(&error.to_string(), CUerror::INVALID_SOURCE));
        }
        Ok(())
    }

    /// The image: where it begins and how long it is. It stays until the link is destroyed.
    pub fn complete(&self) -> Result<(*const u8, usize)> {
        let mut state = self.state.lock();
        if state.image.is_none() {
            // SAFETY: the buffers are valid by the promise to `begin`.
            unsafe { linked::module_of(&state.inputs, &self.log)? };
            let (major, minor) = self.capability;
            let only_cubin = match &state.inputs[..] {
                [Input::Cubin(bytes)] => Some(bytes.clone()),
                _ => None,
            };
            let image = only_cubin.unwrap_or_else(|| linked::pack(&state.inputs, 10 * major + minor));
            // SAFETY: as above.
            unsafe { self.log.finish() };
            state.image = Some(image);
        }
        let image = state.image.as_ref().ok_or(CUerror::UNKNOWN)?;
        Ok((image.as_ptr(), image.len()))
    }

    fn say(&self, message: &str, code: CUerror) -> CUerror {
        // SAFETY: the buffers are valid by the promise to `begin`.
        unsafe { self.log.report(message) };
        code
    }
}

/// A text may come with or without its terminator.
fn text_of(bytes: &[u8]) -> Result<String> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Err(CUerror::INVALID_IMAGE);
    }
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Whether a whole file of machine code lies in these bytes.
pub(super) fn holds_whole_cubin(bytes: &[u8]) -> bool {
    let header = bytes.first_chunk();
    header.is_some_and(|header| cubin::length(header).is_ok_and(|length| length <= bytes.len()))
}
