//! Tests of the memory against a strict stand-in for the driver and for the daemon.
//!
//! `fake_driver.rs` refuses what a real driver would not survive, and can fail any call;
//! `fake_daemon.rs` keeps the ledger that the real daemon keeps; `world.rs` plays the program and
//! compares every byte with what it has written.

mod accounting;
mod copies;
mod fake_daemon;
mod fake_driver;
mod faults;
mod lifetimes;
mod pointers;
mod random;
mod threads;
mod world;
