//! What shim, daemon and command line say to each other: messages, versions, limits.
//!
//! A connection is a Unix SEQPACKET socket, so one packet is one message and a half-read
//! message cannot exist. Descriptors (gate page, host segments) travel beside a message with
//! `SCM_RIGHTS`. This crate only describes and encodes; it opens no socket, reads no clock and
//! keeps no state. `docs/protocol.md` explains each exchange; `tests/golden.rs` holds the bytes
//! of every message, so that a change of the wire format is always seen.
//!
//! Read next: [`message`] (the two enums), [`limits`] (every bound), [`codec`] (bytes).
#![forbid(unsafe_code)]

pub mod admin;
pub mod codec;
pub mod limits;
pub mod message;
pub mod name;
pub mod paths;
pub mod types;

pub use codec::{CodecError, decode, encode};
pub use message::{ClientMessage, DaemonMessage};
pub use types::{
    DeviceUuid, Epoch, Incarnation, MemberId, MemberSettings, Reason, RequestId, SegmentId, Token, Version,
};
