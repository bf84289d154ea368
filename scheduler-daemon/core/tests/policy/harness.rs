//! A core with a clock and short words for what members say; outputs are kept for questions.

use std::time::Duration;
use turnus_core::{
    Core, DeviceKey, Epoch, Input, Level, MemberId, MemberMessage as Say, Output, Reason, RequestId,
    Settings, TenantId, TenantView, ToMember,
};

pub const DEVICE: DeviceKey = DeviceKey([1; 16]);
pub const OTHER: DeviceKey = DeviceKey([2; 16]);

pub fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[derive(Clone)]
pub struct Harness {
    pub core: Core,
    pub now: Duration,
    /// Of the last call.
    pub outputs: Vec<Output>,
    pub all: Vec<Output>,
}

pub fn settings() -> Settings {
    Settings { quantum: ms(100), head_room_bytes: Some(0), host_pool_bytes: 1 << 40, ..Settings::default() }
}

impl Harness {
    pub fn new(settings: Settings) -> Harness {
        Harness { core: Core::new(settings), now: Duration::ZERO, outputs: Vec::new(), all: Vec::new() }
    }

    /// Members 1 to `count`, each its own tenant, on one device of 1,000 bytes.
    pub fn with_tenants(count: u64) -> Harness {
        let mut harness = Harness::new(settings());
        for number in 1..=count {
            harness.join(number, number, &[DEVICE]);
        }
        harness
    }

    pub fn input(&mut self, input: Input) {
        self.outputs.clear();
        self.core.step(self.now, input, &mut self.outputs);
        self.all.extend(self.outputs.iter().cloned());
        let faults = self.core.audit();
        assert!(faults.is_empty(), "{faults:?}");
        let broken =
            self.outputs.iter().find(|output| matches!(output, Output::Log { level: Level::Error, .. }));
        assert_eq!(broken, None);
    }

    /// Lets time pass, with a tick at every deadline.
    pub fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        let mut seen = Vec::new();
        while let Some(deadline) = self.core.next_deadline().filter(|deadline| *deadline <= until) {
            self.now = self.now.max(deadline);
            self.input(Input::Tick);
            seen.append(&mut self.outputs);
        }
        self.now = until;
        self.outputs = seen;
    }

    pub fn connect(&mut self, member: u64, tenant: u64, resumes: Option<u64>) {
        self.input(Input::MemberConnected {
            member: MemberId(member),
            pid: member as u32,
            tenant: TenantId(tenant),
            tenant_name: format!("t{tenant}"),
            memory_limit_bytes: None,
            resumes: resumes.map(MemberId),
        });
    }

    pub fn join(&mut self, member: u64, tenant: u64, devices: &[DeviceKey]) {
        self.connect(member, tenant, None);
        for device in devices {
            self.say(member, device_message(*device, 0, 0, None));
        }
        self.say(member, Say::Ready);
    }

    pub fn say(&mut self, member: u64, message: Say) {
        self.input(Input::Message { member: MemberId(member), message });
    }

    pub fn reserve(&mut self, member: u64, bytes: u64) -> Result<(), Reason> {
        self.say(member, Say::Reserve { request: RequestId(7), device: DEVICE, bytes });
        let answers = self.sent(member);
        match answers[..] {
            [ToMember::Reserved { request: RequestId(7) }] => Ok(()),
            [ToMember::Refused { request: RequestId(7), reason }] => Err(reason),
            _ => panic!("no answer to a reserve: {answers:?}"),
        }
    }

    pub fn want(&mut self, member: u64, bytes: u64) {
        self.say(member, Say::CreditsWanted { device: DEVICE, bytes });
    }

    /// Gets the turn and these bytes onto the device.
    pub fn fill(&mut self, member: u64, bytes: u64) {
        assert_eq!(self.reserve(member, bytes), Ok(()));
        self.say(member, Say::TurnRequested);
        let epoch = self.granted(member).expect("nobody else has the turn");
        self.want(member, bytes);
        assert_eq!(self.sent(member), [ToMember::Credits { device: DEVICE, bytes }]);
        self.say(member, Say::Restored { epoch });
    }

    pub fn release(&mut self, member: u64) {
        let epoch = self.epoch(member).expect("a turn was granted before");
        self.say(member, Say::TurnReleased { epoch });
    }

    /// What the last call sent to the member.
    pub fn sent(&self, member: u64) -> Vec<ToMember> {
        sent_to(&self.outputs, member)
    }

    /// The turn that the last call granted to the member.
    pub fn granted(&self, member: u64) -> Option<Epoch> {
        self.sent(member).iter().find_map(|message| match message {
            ToMember::TurnGranted { epoch } => Some(*epoch),
            _ => None,
        })
    }

    /// The newest turn that was ever granted to the member.
    pub fn epoch(&self, member: u64) -> Option<Epoch> {
        sent_to(&self.all, member).iter().rev().find_map(|message| match message {
            ToMember::TurnGranted { epoch } => Some(*epoch),
            _ => None,
        })
    }

    pub fn line(&self, tenant: u64) -> TenantView {
        let status = self.core.status(self.now);
        status.tenants.into_iter().find(|view| view.tenant == TenantId(tenant)).expect("tenant has a line")
    }
}

pub fn sent_to(outputs: &[Output], to: u64) -> Vec<ToMember> {
    let messages = outputs.iter().filter_map(|output| match output {
        Output::Send { member, message } if *member == MemberId(to) => Some(message.clone()),
        _ => None,
    });
    messages.collect()
}

pub fn device_message(
    device: DeviceKey,
    virtual_bytes: u64,
    resident_bytes: u64,
    epoch: Option<Epoch>,
) -> Say {
    Say::Device {
        device,
        name: "small".into(),
        total_bytes: 1000,
        free_bytes: 1000 - resident_bytes,
        virtual_bytes,
        resident_bytes,
        host_bytes: virtual_bytes - resident_bytes,
        pinned_bytes: 0,
        epoch,
    }
}
