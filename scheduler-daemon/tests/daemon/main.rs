//! `turnusd` as a process: what it promises to whoever connects, is lost, lies, or comes back.
//!
//! Each test starts a daemon in a folder of its own and speaks the protocol by hand. What turns and
//! memory do in detail is tested in `core`; here it is about sockets, processes and files.

mod abuse;
mod control;
mod harness;
mod introduction;
mod restart;
