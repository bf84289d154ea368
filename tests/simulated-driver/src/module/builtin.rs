//! What the kernels of a cubin do here: machine code cannot be executed.
//!
//! A kernel whose name is that of a kernel in the folder of `SIMULATED_CUDA_KERNELS` does what the PTX there
//! says. For the others `SIMULATED_CUDA_MACHINE_CODE` decides: `refuse` (default), and the load fails as on a
//! card that the code was not compiled for, or `without-effect`, and they are launched and change nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};
use turnus_bindings::CUerror;
use turnus_simulated_ptx as ptx;

use super::cubin::Cubin;
use super::jit;
use crate::space::Result;

/// Folder with PTX files.
pub const KERNELS_VARIABLE: &str = "SIMULATED_CUDA_KERNELS";
/// What to do with machine code that has no PTX there.
pub const MACHINE_CODE_VARIABLE: &str = "SIMULATED_CUDA_MACHINE_CODE";

/// The module of a cubin.
///
/// # Safety
/// The log's buffers are valid.
pub unsafe fn module_of(cubin: &Cubin, log: &jit::Log) -> Result<ptx::Module> {
    let mut module = match ptx::Module::parse(&cubin.text) {
        Ok(module) => module,
        Err(error) => {
            // SAFETY: the caller's promise.
            unsafe { log.report(&format!("the cubin cannot be described: {error}")) };
            return Err(CUerror::INVALID_IMAGE);
        }
    };
    let known = folder();
    for name in &cubin.kernels {
        if known.values().flatten().any(|known| module.adopt(name, known)) {
            continue;
        }
        if !allows_without_effect() {
            let message = format!(
                "{name} is machine code, which cannot be executed; put its PTX into the folder of \
                 {KERNELS_VARIABLE}, or set {MACHINE_CODE_VARIABLE}=without-effect"
            );
            // SAFETY: the caller's promise.
            unsafe { log.report(&message) };
            return Err(CUerror::NO_BINARY_FOR_GPU);
        }
        say_once(&format!("{name} is machine code and is launched without effect"));
    }
    Ok(module)
}

fn allows_without_effect() -> bool {
    static ALLOWS: OnceLock<bool> = OnceLock::new();
    *ALLOWS.get_or_init(|| match std::env::var(MACHINE_CODE_VARIABLE).as_deref() {
        Ok("without-effect") => true,
        Ok("refuse") | Err(_) => false,
        Ok(other) => {
            say_once(&format!("{MACHINE_CODE_VARIABLE}={other:?} is neither refuse nor without-effect"));
            false
        }
    })
}

/// The modules of the folder, in the order of their names, with files that came since the last look. What is in a
/// file is read once; nothing, if it cannot be.
fn folder() -> MutexGuard<'static, BTreeMap<PathBuf, Option<ptx::Module>>> {
    static KNOWN: Mutex<BTreeMap<PathBuf, Option<ptx::Module>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock();
    if let Some(folder) = std::env::var_os(KERNELS_VARIABLE) {
        match files(Path::new(&folder)) {
            Ok(files) => {
                for file in files {
                    known.entry(file).or_insert_with_key(|file| read(file));
                }
            }
            Err(error) => say_once(&format!("{KERNELS_VARIABLE}: {}: {error}", Path::new(&folder).display())),
        }
    }
    known
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ptx") {
            files.push(path);
        }
    }
    Ok(files)
}

fn read(file: &Path) -> Option<ptx::Module> {
    let parsed = std::fs::read_to_string(file)
        .map_err(|error| error.to_string())
        .and_then(|text| ptx::Module::parse(&text).map_err(|error| error.to_string()));
    parsed.inspect_err(|error| say_once(&format!("{}: {error}", file.display()))).ok()
}

fn say_once(message: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().insert(message.to_owned()) {
        eprintln!("simulated driver: {message}");
    }
}
