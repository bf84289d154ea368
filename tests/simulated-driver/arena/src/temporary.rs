//! A machine for one test: a directory of its own, removed at the end.
//!
//! For tests and demos of all crates, so that many run side by side.

use crate::config::{ArenaConfig, ConfigError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory below /dev/shm with a configuration; removed, with all its files, when dropped.
#[derive(Debug)]
pub struct TemporaryMachine {
    directory: PathBuf,
}

impl TemporaryMachine {
    /// A new machine. Processes find it by `SIMULATED_CUDA_DIR` = [`TemporaryMachine::directory`].
    pub fn new(config: &ArenaConfig) -> Result<Self, ConfigError> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("simulated-cuda-{}-{}-{number}", std::process::id(), crate::clock::now_ns());
        let machine = Self { directory: Path::new("/dev/shm").join(name) };
        config.write(&machine.directory)?;
        Ok(machine)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for TemporaryMachine {
    fn drop(&mut self) {
        // What is left of a directory in /dev/shm is seen by the next test run; a drop cannot report it.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
