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

mod admission;
mod drain;
mod evict;
mod head_room;
mod ids;
mod input;
mod invariant;
mod ledger;
mod members;
mod messages;
mod output;
mod records;
mod recovery;
mod segments;
mod settings;
mod sight;
mod state;
mod status;
mod timers;
mod turns;
mod victims;

pub use ids::{DeviceKey, Epoch, MemberId, Reason, RequestId, SegmentId, TenantId};
pub use input::{Input, MemberMessage};
pub use output::{Level, Output, ToMember};
pub use settings::Settings;
pub use status::{DeviceView, PoolView, StatusView, TenantView};

use records::{Device, Member, Tenant};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use timers::{Purpose, Timers};

/// All that the daemon knows and decides.
#[derive(Debug, Clone)]
pub struct Core {
    settings: Settings,
    now: Duration,
    /// The caller's list during a step.
    outputs: Vec<Output>,
    members: BTreeMap<MemberId, Member>,
    tenants: BTreeMap<TenantId, Tenant>,
    devices: BTreeMap<DeviceKey, Device>,
    /// Tickets by number: the oldest first.
    queue: BTreeMap<u64, TenantId>,
    next_ticket: u64,
    /// Lower half of the last epoch.
    turn_counter: u64,
    next_order: u64,
    timers: Timers,
    recovery: recovery::Recovery,
    segments: BTreeMap<SegmentId, MemberId>,
    /// Of all tenants, pending ones included.
    leased_bytes: u64,
    /// Of all segments ever leased or claimed.
    largest_segment_bytes: u64,
    /// The queue or a holder has changed since the last look at the queue.
    look_at_queue: bool,
    /// Devices to look at before the step ends.
    touched: BTreeSet<DeviceKey>,
    /// Devices that changed since the last check.
    unchecked: BTreeSet<DeviceKey>,
    steps_since_audit: usize,
    stopping: bool,
}

impl Core {
    /// A core without members. If the former life had any, the first input is `Input::Recover`.
    pub fn new(settings: Settings) -> Core {
        Core {
            settings,
            now: Duration::ZERO,
            outputs: Vec::new(),
            members: BTreeMap::new(),
            tenants: BTreeMap::new(),
            devices: BTreeMap::new(),
            queue: BTreeMap::new(),
            next_ticket: 0,
            turn_counter: 0,
            next_order: 0,
            timers: Timers::default(),
            recovery: recovery::Recovery::default(),
            segments: BTreeMap::new(),
            leased_bytes: 0,
            largest_segment_bytes: 0,
            look_at_queue: false,
            touched: BTreeSet::new(),
            unchecked: BTreeSet::new(),
            steps_since_audit: 0,
            stopping: false,
        }
    }

    /// Takes one event and appends what to do to `outputs`, to be done in that order. Timers that
    /// are due are served first. A `now` before an earlier one counts as that earlier one.
    pub fn step(&mut self, now: Duration, input: Input, outputs: &mut Vec<Output>) {
        self.step_with_haste(now, input, outputs, |_| ());
    }

    /// Like [`Core::step`], for who is in haste: `early` gets the outputs that are there once turns
    /// are granted, before bookkeeping and checks, and may take some off the front.
    pub fn step_with_haste(
        &mut self,
        now: Duration,
        input: Input,
        outputs: &mut Vec<Output>,
        early: impl FnOnce(&mut Vec<Output>),
    ) {
        self.now = self.now.max(now);
        std::mem::swap(&mut self.outputs, outputs);
        if !self.stopping {
            self.serve_timers();
            self.take(input);
            self.look_at_queue();
            early(&mut self.outputs);
            self.settle();
            self.check_step();
        }
        std::mem::swap(&mut self.outputs, outputs);
    }

    /// When `Input::Tick` is needed at the latest; `None`: not until something else happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.stopping { None } else { self.timers.next() }
    }

    /// Changes the bound on host memory, for instance when a device became known.
    pub fn set_host_pool_bytes(&mut self, bytes: u64) {
        self.settings.host_pool_bytes = bytes;
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Recover { expected } => self.begin_recovery(expected),
            Input::ExpectedGone { former } => self.expected_gone(former),
            Input::MemberConnected { member, pid, tenant, tenant_name, memory_limit_bytes, resumes } => {
                self.connect(member, pid, (tenant, tenant_name, memory_limit_bytes), resumes);
            }
            Input::MemberGone { member } => self.remove_member(member),
            Input::Message { member, message } => self.message(member, message),
            Input::SegmentLeased { member, request, segment, bytes } => {
                self.segment_leased(member, request, segment, bytes);
            }
            Input::SegmentFailed { member, request } => self.segment_failed(member, request),
            Input::Tick => {}
            Input::SetQuantum { quantum_ms } => {
                self.settings.quantum = Duration::from_millis(quantum_ms.max(1));
                self.log(Level::Info, format!("quantum-changed: now {} ms", quantum_ms.max(1)));
            }
            Input::Shutdown => self.shut_down(),
        }
    }

    fn serve_timers(&mut self) {
        while let Some(purpose) = self.timers.take_due(self.now) {
            match purpose {
                Purpose::Recovery => self.end_recovery(),
                Purpose::Quantum(tenant) => self.watch_quantum(tenant),
                Purpose::Drain(tenant) => self.cancel_drain(tenant),
                Purpose::Restore(tenant) => self.restore_patience_over(tenant),
                Purpose::Notice(tenant) => self.notice(tenant),
                Purpose::Order(member, device) => self.order_overdue(member, device),
                Purpose::Credits(device) => self.touch(device),
            }
        }
    }

    /// Lets what has changed take effect: the queue first, then credits and notices.
    fn settle(&mut self) {
        loop {
            self.look_at_queue();
            let Some(device) = self.touched.pop_first() else { break };
            self.announce_waiters(device);
            self.grant_credits(device);
        }
    }

    fn look_at_queue(&mut self) {
        if std::mem::take(&mut self.look_at_queue) {
            self.grant_turns();
        }
    }

    fn shut_down(&mut self) {
        self.stopping = true;
        for member in self.members.keys() {
            self.outputs.push(Output::RejectMember {
                member: *member,
                reason: Reason::ShuttingDown,
                text: "the daemon stops".into(),
            });
        }
    }

    fn touch(&mut self, device: DeviceKey) {
        self.touched.insert(device);
        self.unchecked.insert(device);
    }

    fn send(&mut self, member: MemberId, message: ToMember) {
        self.outputs.push(Output::Send { member, message });
    }

    fn log(&mut self, level: Level, text: String) {
        self.outputs.push(Output::Log { level, text });
    }

    /// Logs a member's misbehaviour: at most 5 lines in 10 s for each member.
    fn complain(&mut self, member: MemberId, reason: &str, text: &str) {
        const WINDOW: Duration = Duration::from_secs(10);
        let Some(record) = self.members.get_mut(&member) else { return };
        let complaints = &mut record.complaints;
        if self.now.saturating_sub(complaints.window_start) >= WINDOW {
            complaints.window_start = self.now;
            complaints.lines = 0;
        }
        if complaints.lines >= 5 {
            complaints.suppressed = complaints.suppressed.saturating_add(1);
            return;
        }
        complaints.lines += 1;
        let more = match std::mem::take(&mut complaints.suppressed) {
            0 => String::new(),
            count => format!(" (and {count} lines about it were left out)"),
        };
        let pid = record.pid;
        self.log(Level::Warn, format!("{reason}: {member} (process {pid}) {text}{more}"));
    }
}
