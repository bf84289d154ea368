//! The scheduler's mind: tenants, turns, ledger, admission, recovery, as a pure state machine.
//!
//! `Core::step(now, input, outputs)` takes one event and says what to do; nothing here reads a
//! clock, opens a file, starts a thread or iterates in an order that is not fixed, so that any run
//! can be repeated from its inputs. What members say is untrusted and can at worst cost the
//! member its own connection. Times are durations since the daemon's start and never go back.
//!
//! Read next: `input` and `output` (the interface), `turns` (who runs), `ledger` (who may be on
//! the device), `admission` (who may allocate), `invariant` (what must always hold).
#![forbid(unsafe_code)]

mod ids;
mod input;
mod output;
mod settings;
mod status;

pub use ids::{DeviceKey, Epoch, MemberId, Reason, RequestId, SegmentId, TenantId};
pub use input::{Input, MemberMessage};
pub use output::{Level, Output, ToMember};
pub use settings::Settings;
pub use status::{DeviceView, PoolView, StatusView, TenantView};

use std::time::Duration;

/// All that the daemon knows and decides.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    now: Duration,
}

impl Core {
    /// A core without members. If the former life had any, the first input is `Input::Recover`.
    pub fn new(settings: Settings) -> Core {
        Core { settings, now: Duration::ZERO }
    }

    /// Takes one event and appends what to do to `outputs`, to be done in that order. Timers that
    /// are due are served first. A `now` before an earlier one counts as that earlier one.
    pub fn step(&mut self, now: Duration, input: Input, outputs: &mut Vec<Output>) {
        self.now = self.now.max(now);
        let _ = (input, outputs);
    }

    /// When `Input::Tick` is needed at the latest; `None`: not until something else happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        None
    }
}
