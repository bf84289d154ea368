//! What the end-to-end tests share: a sandbox with its own simulated GPU, daemon and programs.
#![forbid(unsafe_code)]
