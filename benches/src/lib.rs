//! What the benches share: a stage with its own simulated GPU and daemon, compiled programs, numbers.
//!
//! A bench measures something of ours and a reference in the same run, takes all timing outside of
//! the daemon, and prints one table. The README shows the results with machine and date. Read
//! next: `stage`, `statistics`, `bin/`.
#![forbid(unsafe_code)]

pub mod stage;
pub mod statistics;
