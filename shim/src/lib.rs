//! `libturnus.so`: a guest in a CUDA program that it did not write.
//!
//! Preloaded, it offers the program hooks for the driver calls that submit work or handle memory,
//! and nothing else; every other call keeps the driver's own pointer. It does nothing at all until
//! the program initialises CUDA, and it never exits, aborts or unwinds into its host.
//!
//! Read next: [`hooks`] (the one list of what is hooked), [`resolve`] (how a program gets a hook),
//! [`gate`] (how a call waits for the turn), [`turn`] (what the member knows about its turn),
//! [`worker`] (the only thread that calls the driver for us), [`memory`] (frames under stable
//! addresses).

mod bell;
mod boundary;
mod capture;
mod client;
mod config;
mod connection;
mod contexts;
mod devices;
mod driver;
mod gate;
mod headroom;
pub mod hooks;
mod lifecycle;
mod marks;
mod member;
mod memory;
mod message;
mod real;
mod requests;
mod resolve;
mod scheduler;
mod switch_cost;
mod thread_slot;
mod turn;
mod unhandled;
mod watch;
mod worker;
