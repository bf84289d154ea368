//! The command line `turnus`: `run`, `status`, `demo`.
//!
//! Every command prints one clear line when it fails, says what to do, and ends with a code of
//! `exit_code`. Read next: `run` (becomes the program), `find` (where daemon and shim are).

pub mod contact;
pub mod demo;
pub mod find;
pub mod program;
pub mod run;
pub mod status;

use crate::exit_code;

/// A failure that knows its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// For a person: what happened and what to do.
    pub text: String,
    /// One of `exit_code`.
    pub code: u8,
}

impl Failure {
    /// With this code.
    pub fn new(code: u8, text: impl Into<String>) -> Failure {
        Failure { text: text.into(), code }
    }

    /// Something failed while running.
    pub fn plain(text: impl Into<String>) -> Failure {
        Failure::new(exit_code::FAILURE, text)
    }
}
