//! Devices as programs see them: which are visible (`visible.rs`) and what they are (`attributes.rs`).
//!
//! Numbers that differ between simulated devices come from the arena's configuration.

pub mod attributes;
pub mod visible;
