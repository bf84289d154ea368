//! The nouns that messages are made of: versions, identities, settings, reason words.
//!
//! Plain data without behaviour beyond printing and parsing. Byte counts are `u64` and end in
//! `_bytes`, times are milliseconds and end in `_ms`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A protocol version: a different major number is a different language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// Changes when old messages change their meaning or bytes.
    pub major: u16,
    /// Grows when messages are added at the end of an enum.
    pub minor: u16,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The 16 bytes of `cuDeviceGetUuid_v2`: the only key of a device anywhere in Turnus.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceUuid(pub [u8; 16]);

impl fmt::Display for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One process with the shim in it, numbered by the daemon, never reused in an incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub u64);

/// The number of a turn. Never repeats, also across restarts of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// Which life of the daemon this is; persisted, grows by one at each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// A question's number, chosen by who asks, repeated in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// A host segment, numbered by the daemon; unique over all incarnations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentId(pub u64);

/// An unguessable capability: who shows it belongs to the tenant for which it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub [u8; 16]);

impl fmt::Debug for Token {
    /// Never prints the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// As 32 hexadecimal digits, for an environment variable.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The reverse of [`Token::to_hex`]; `None` for anything else.
    pub fn from_hex(text: &str) -> Option<Token> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0u8; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
        }
        Some(Token(bytes))
    }
}

/// What the daemon tells a member about how to behave; the same for all members of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSettings {
    /// After this long at the gate, one line says who holds the device.
    pub notice_after_ms: u32,
    /// A holder that has submitted nothing and finished everything for this long gives the turn up.
    pub idle_hold_ms: u32,
    /// While a drain stalls, one waiting submission is let through each time this has passed.
    pub drain_step_ms: u32,
    /// Size of a frame handle in bytes; rounded up to the device's granularity.
    pub handle_bytes: u64,
    /// Submitted but unfinished work is bounded to this while others wait.
    pub in_flight_ms: u32,
}

/// Why something was refused or waits. The same words in log, JSON, metric, event and page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The tenant's own limit on virtual bytes would be passed (`--memory`).
    TenantLimit,
    /// The device could not hold the tenant's bytes beside what others have pinned.
    CapacityExceeded,
    /// Host memory could not take what must leave the device at a switch (`host-pool`).
    BudgetExceeded,
    /// Work of the holder does not come to an end, so its turn cannot pass on.
    NotPreemptible,
    /// The two sides speak different major versions, or the peer is older than what is served.
    VersionMismatch,
    /// A message could not be decoded, broke a bound, or came out of order.
    ProtocolViolation,
    /// The daemon has all the members it can serve.
    TooManyMembers,
    /// Another daemon owns the device.
    DeviceTaken,
    /// The capability shown belongs to no tenant or to another user.
    UnknownToken,
    /// The daemon was restarted and still waits for members that held bytes.
    Recovering,
    /// The member sent more than it may between two rounds for too long, or does not read.
    Flooding,
    /// The daemon is about to stop.
    ShuttingDown,
}

impl Reason {
    /// The word, as it is printed everywhere.
    pub fn word(self) -> &'static str {
        match self {
            Reason::TenantLimit => "tenant-limit",
            Reason::CapacityExceeded => "capacity-exceeded",
            Reason::BudgetExceeded => "budget-exceeded",
            Reason::NotPreemptible => "not-preemptible",
            Reason::VersionMismatch => "version-mismatch",
            Reason::ProtocolViolation => "protocol-violation",
            Reason::TooManyMembers => "too-many-members",
            Reason::DeviceTaken => "device-taken",
            Reason::UnknownToken => "unknown-token",
            Reason::Recovering => "recovering",
            Reason::Flooding => "flooding",
            Reason::ShuttingDown => "shutting-down",
        }
    }

    /// The setting to change, in words for the person who reads the line.
    pub fn advice(self) -> &'static str {
        match self {
            Reason::TenantLimit => "raise --memory of turnus run",
            Reason::CapacityExceeded => "ask for less, or for a larger device",
            Reason::BudgetExceeded => "raise --host-pool of turnusd, or run fewer programs",
            Reason::NotPreemptible => "wait for the holder to finish, or stop it",
            Reason::VersionMismatch => "install shim and daemon of the same release",
            Reason::ProtocolViolation => "check what talks to the socket of turnusd",
            Reason::TooManyMembers => "run fewer programs per daemon",
            Reason::DeviceTaken => "use the daemon that owns the device, or stop it",
            Reason::UnknownToken => "start the program again with turnus run",
            Reason::Recovering => "wait a moment",
            Reason::Flooding => "check what talks to the socket of turnusd",
            Reason::ShuttingDown => "start turnusd again",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
