//! Being laid out; see docs/architecture.md.
fn main() {}
