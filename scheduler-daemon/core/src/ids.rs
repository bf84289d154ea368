//! Numbers that name things, and the reason words: the nouns shared by inputs and outputs.
//!
//! They mirror the types of the protocol one to one, so that the daemon translates without
//! thinking; this crate depends on nobody and therefore has its own. Byte counts are `u64` and end
//! in `_bytes`; times are `Duration` since the daemon's start. Read next: `input`, `output`.

use std::fmt;

/// The 16 bytes of `cuDeviceGetUuid_v2`: the only key of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey(pub [u8; 16]);

impl fmt::Display for DeviceKey {
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

impl fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! number {
    ($(#[$comment:meta])* $name:ident, $prefix:literal) => {
        $(#[$comment])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, " {}"), self.0)
            }
        }
    };
}

number!(
    /// One process with the shim in it; numbered by the daemon, never reused in an incarnation.
    MemberId,
    "member"
);
number!(
    /// Who is scheduled and accounted; numbered by the daemon, never reused in an incarnation.
    TenantId,
    "tenant"
);
number!(
    /// The number of a turn: incarnation in the upper half, a counter in the lower. Never repeats.
    Epoch,
    "epoch"
);
number!(
    /// A question's number, chosen by who asks, repeated in the answer.
    RequestId,
    "request"
);
number!(
    /// A host segment, numbered by the daemon; unique over all incarnations.
    SegmentId,
    "segment"
);

/// Why something was refused or waits. The words are the same in log, status and message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The tenant's own limit on virtual bytes would be passed.
    TenantLimit,
    /// The device could not hold the tenant's bytes beside what others have pinned.
    CapacityExceeded,
    /// Host memory could not take what must leave the device at a switch.
    BudgetExceeded,
    /// Work of the holder does not come to an end, so its turn cannot pass on.
    NotPreemptible,
    /// A message broke a bound or came out of order.
    ProtocolViolation,
    /// The daemon was restarted and still waits for members that held bytes.
    Recovering,
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
            Reason::ProtocolViolation => "protocol-violation",
            Reason::Recovering => "recovering",
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
            Reason::ProtocolViolation => "check what talks to the socket of turnusd",
            Reason::Recovering => "wait a moment",
            Reason::ShuttingDown => "start turnusd again",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
