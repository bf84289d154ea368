//! Every bound of the protocol in one place, with the reason for its size.
//!
//! A peer that breaks a bound is answered with a reason and disconnected; nobody else notices.
//! Nothing here may depend on configuration: a bound that moves is no bound.

use crate::types::Version;

/// The protocol that this build speaks. Shims of the two previous minor versions are served.
pub const PROTOCOL_VERSION: Version = Version { major: 1, minor: 0 };
/// How many minor versions back a daemon still serves.
pub const SERVED_MINOR_VERSIONS: u16 = 2;
/// Longest packet. Every message fits with room to spare; a longer one is garbage.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Most descriptors that travel with one message.
pub const DESCRIPTORS_MAX: usize = 1;
/// Most devices one member may use: more than any host carries, small enough for a bitmap.
pub const DEVICES_MAX: usize = 64;
/// Longest name of a tenant, device or function, in bytes after cleaning.
pub const NAME_BYTES_MAX: usize = 96;
/// Longest free text (reasons, notices), in bytes.
pub const TEXT_BYTES_MAX: usize = 512;
/// Largest host segment that one lease may carry.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Messages of one member that the daemon reads per round, so that a flood delays nobody else.
pub const MESSAGES_PER_ROUND_MAX: usize = 64;
/// Messages that wait for a member that does not read; past it the member is disconnected.
pub const OUTBOX_MESSAGES_MAX: usize = 4096;
/// Members that one daemon serves.
pub const MEMBERS_MAX: usize = 8192;
/// Length of the window in which a connection may say [`MESSAGES_PER_WINDOW_MAX`] messages, in
/// milliseconds; then it is not listened to until the window is over.
pub const WINDOW_MS: u64 = 10;
/// About as many as a program that does nothing but ask and wait for answers could say.
pub const MESSAGES_PER_WINDOW_MAX: usize = 256;
