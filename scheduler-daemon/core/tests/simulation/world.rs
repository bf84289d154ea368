//! The world around one core: devices with real memory, members, delays, accidents, oracles.
//!
//! Events lie in a queue by time; messages of one member keep their order. The oracles know
//! nothing of the core's books: they count credits, gates, epochs, segments and running work by
//! what was said, and compare.

use crate::liar::lie;
use crate::program::{Phase, Program};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use turnus_core::{
    Core, DeviceKey, Epoch, Input, Level, MemberId, MemberMessage as Say, Output, RequestId, SegmentId,
    Settings, TenantId, ToMember,
};

const TOTAL_BYTES: u64 = 1000;
const OVERHEAD_BYTES: u64 = 50;
const PIECE_BYTES: u64 = 128;
const CHAOS: Duration = Duration::from_millis(1500);
const CALM: Duration = Duration::from_secs(15);

/// What happened in a life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub turns: u64,
    pub drains: u64,
    pub evictions: u64,
    pub restarts: u64,
    pub shorts: u64,
    pub admissions: u64,
    pub failed_drains: u64,
}

impl Summary {
    pub fn add(&mut self, other: Summary) {
        self.turns += other.turns;
        self.drains += other.drains;
        self.evictions += other.evictions;
        self.restarts += other.restarts;
        self.shorts += other.shorts;
        self.admissions += other.admissions;
        self.failed_drains += other.failed_drains;
    }
}

#[derive(Debug, Clone)]
enum Event {
    ToCore(usize, u64, Say),
    ToMember(usize, u64, ToMember),
    Leased(usize, u64, RequestId, SegmentId, u64),
    Act(usize),
    Work(usize, u64),
    Evict(usize, u64, DeviceKey),
    Report(usize),
    Crash(usize),
    Buried(MemberId),
    Restart,
    Connect(usize, bool),
    Calm,
}

#[derive(Debug, Clone)]
enum Nature {
    Honest(Box<Program>),
    Liar,
    Silent,
}

struct Entry {
    nature: Nature,
    tenant: usize,
    devices: Vec<DeviceKey>,
    id: MemberId,
    /// Counts connections; what was sent over an older one is lost.
    connection: u64,
    alive: bool,
    connected: bool,
    to_core_at: Duration,
    to_member_at: Duration,
    epoch: Epoch,
    order: RequestId,
    /// Credits by what was said.
    credits: BTreeMap<DeviceKey, u64>,
    frames_seen: BTreeMap<DeviceKey, u64>,
}

pub struct World {
    random: Random,
    core: Core,
    settings: Settings,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    next_number: u64,
    entries: Vec<Entry>,
    devices: Vec<DeviceKey>,
    tenants: usize,
    calm: bool,
    gates: BTreeMap<TenantId, Option<Epoch>>,
    epochs: BTreeMap<Epoch, TenantId>,
    segments: BTreeMap<SegmentId, u64>,
    next_segment: u64,
    scrubbing: Vec<(DeviceKey, Duration, u64)>,
    trace: VecDeque<(Duration, Input, Vec<Output>)>,
    summary: Summary,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let devices: Vec<DeviceKey> =
            (0..random.between(1, 3)).map(|n| DeviceKey([n as u8 + 1; 16])).collect();
        let settings = Settings {
            incarnation: 1,
            quantum: Duration::from_millis(random.between(5, 60)),
            drain_timeout: Duration::from_millis(random.between(50, 300)),
            host_pool_bytes: random.between(0, 4000),
            notice_after: Duration::from_millis(200),
            recovery: Duration::from_millis(100),
            slowest_bytes_per_second: 5000,
            move_patience: Duration::from_millis(200),
            segment_bytes_max: 256,
            ..Settings::default()
        };
        let tenants = random.between(1, 5) as usize;
        let mut world = World {
            core: Core::new(settings.clone()),
            settings,
            now: Duration::ZERO,
            events: BTreeMap::new(),
            next_number: 1,
            entries: Vec::new(),
            tenants,
            calm: false,
            gates: BTreeMap::new(),
            epochs: BTreeMap::new(),
            segments: BTreeMap::new(),
            next_segment: 0,
            scrubbing: Vec::new(),
            trace: VecDeque::new(),
            summary: Summary::default(),
            devices,
            random,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        for tenant in 0..self.tenants {
            for _ in 0..self.random.between(1, 3) {
                self.born(tenant);
            }
        }
        if self.random.percent(30) {
            let at = Duration::from_millis(self.random.between(200, 1200));
            self.schedule(at, Event::Restart);
        }
        self.schedule(CHAOS, Event::Calm);
    }

    fn born(&mut self, tenant: usize) {
        let mut devices = vec![self.devices[self.random.below(self.devices.len() as u64) as usize]];
        if self.random.percent(20) {
            devices = self.devices.clone();
        }
        let nature = match self.random.below(10) {
            0 => Nature::Liar,
            1 => Nature::Silent,
            _ => Nature::Honest(Box::new(Program::new(&devices))),
        };
        let index = self.entries.len();
        self.entries.push(Entry {
            nature,
            tenant,
            devices,
            id: MemberId(0),
            connection: 0,
            alive: true,
            connected: false,
            to_core_at: Duration::ZERO,
            to_member_at: Duration::ZERO,
            epoch: Epoch(0),
            order: RequestId(0),
            credits: BTreeMap::new(),
            frames_seen: BTreeMap::new(),
        });
        let start = self.now + Duration::from_millis(self.random.below(300));
        self.schedule(start, Event::Connect(index, false));
        if self.random.percent(25) {
            let at = start + Duration::from_millis(self.random.between(1, 1000));
            self.schedule(at, Event::Crash(index));
        }
    }

    pub fn live(&mut self) -> Summary {
        while let Some((at, _)) = self.events.keys().next().copied() {
            if let Some(deadline) = self.core.next_deadline().filter(|deadline| *deadline < at) {
                self.now = self.now.max(deadline);
                self.step(Input::Tick);
                continue;
            }
            let (_, event) = self.events.pop_first().expect("just seen");
            self.now = at;
            self.happen(event);
            if self.now > CHAOS + CALM {
                break;
            }
        }
        self.end();
        self.summary
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.next_number += 1;
        self.events.insert((at, self.next_number), event);
    }

    fn after(&mut self, low_us: u64, high_us: u64, event: Event) {
        let at = self.now + Duration::from_micros(self.random.between(low_us, high_us));
        self.schedule(at, event);
    }

    fn is_current(&self, index: usize, connection: u64) -> bool {
        let entry = &self.entries[index];
        entry.alive && entry.connected && entry.connection == connection
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToCore(index, connection, message) if self.is_current(index, connection) => {
                let member = self.entries[index].id;
                self.step(Input::Message { member, message });
            }
            Event::ToMember(index, connection, message) if self.is_current(index, connection) => {
                self.hear(index, &message);
            }
            Event::Leased(index, connection, request, segment, bytes)
                if self.is_current(index, connection) =>
            {
                if let Nature::Honest(program) = &mut self.entries[index].nature {
                    program.leased(request, segment, bytes);
                }
                self.flush(index);
            }
            Event::Act(index) if self.entries[index].alive && !self.calm => self.act(index),
            Event::Work(index, connection) if self.is_current(index, connection) => self.work(index),
            Event::Evict(index, connection, key) if self.is_current(index, connection) => {
                if let Nature::Honest(program) = &mut self.entries[index].nature {
                    program.step_evict(key, PIECE_BYTES);
                    if program.memory[&key].evict.is_some() {
                        self.after(500, 5000, Event::Evict(index, connection, key));
                    }
                }
                self.flush(index);
            }
            Event::Report(index) if self.entries[index].alive => self.report(index),
            Event::Crash(index) if self.entries[index].alive && !self.calm => self.crash(index),
            Event::Buried(member) => self.step(Input::MemberGone { member }),
            Event::Restart if !self.calm => self.restart(),
            Event::Connect(index, resumes) if self.entries[index].alive => self.connect(index, resumes),
            Event::Calm => self.calm_down(),
            _ => {}
        }
    }

    fn connect(&mut self, index: usize, resumes: bool) {
        self.next_number += 1;
        let member = MemberId(self.next_number);
        let tenant = TenantId(self.settings.incarnation * 1000 + self.entries[index].tenant as u64);
        let entry = &mut self.entries[index];
        let former = std::mem::replace(&mut entry.id, member);
        (entry.connected, entry.connection) = (true, entry.connection + 1);
        self.gates.entry(tenant).or_insert(None);
        let (pid, limit) = (index as u32, (index % 7 == 3).then_some(600));
        self.step(Input::MemberConnected {
            member,
            pid,
            tenant,
            tenant_name: format!("tenant-{}", self.entries[index].tenant),
            memory_limit_bytes: limit,
            resumes: resumes.then_some(former),
        });
        for device in self.entries[index].devices.clone() {
            let message = self.introduction(index, device);
            self.say(index, message);
        }
        if let Nature::Honest(program) = &self.entries[index].nature {
            let claims =
                program.memory.values().flat_map(|memory| memory.segments.clone()).collect::<Vec<_>>();
            for (segment, _) in claims {
                let bytes = self.segments[&segment];
                self.say(index, Say::SegmentClaim { segment, bytes });
            }
        }
        self.say(index, Say::Ready);
        if let Nature::Honest(program) = &mut self.entries[index].nature {
            if program.phase == Phase::Running {
                program.requested = false;
            } else if program.requested {
                self.say(index, Say::TurnRequested);
            }
        }
        if !resumes {
            self.after(100, 30_000, Event::Act(index));
            self.after(100, 400_000, Event::Report(index));
        }
    }

    fn introduction(&mut self, index: usize, device: DeviceKey) -> Say {
        let free_bytes = self.real_free(device);
        let (mut claims, mut epoch) = ((0, 0, 0), None);
        if let Nature::Honest(program) = &self.entries[index].nature {
            let memory = &program.memory[&device];
            claims = (memory.allocated, memory.frames, memory.host());
            epoch = (program.phase == Phase::Running).then_some(program.epoch);
        }
        Say::Device {
            device,
            name: "small".into(),
            total_bytes: TOTAL_BYTES,
            free_bytes,
            virtual_bytes: claims.0,
            resident_bytes: claims.1,
            host_bytes: claims.2,
            pinned_bytes: 0,
            epoch,
        }
    }

    fn gate(&self, index: usize) -> Option<Epoch> {
        let tenant = TenantId(self.settings.incarnation * 1000 + self.entries[index].tenant as u64);
        self.gates.get(&tenant).copied().flatten()
    }

    fn act(&mut self, index: usize) {
        let (gate, now, devices) = (self.gate(index), self.now, self.devices.clone());
        let connected = self.entries[index].connected;
        let entry = &mut self.entries[index];
        match &mut entry.nature {
            Nature::Honest(program) if connected => {
                program.act(now, gate, &mut self.random);
                if program.phase == Phase::Running && program.work_until > now && self.random.percent(2) {
                    match self.random.below(2) {
                        0 => program.work_until = now + Duration::from_millis(900),
                        _ => program.stalled = true,
                    }
                }
                self.flush(index);
                self.check_exclusive(index);
            }
            Nature::Liar if connected => {
                let message = lie(&devices, TOTAL_BYTES, entry.epoch, entry.order, &mut self.random);
                self.say(index, message);
            }
            Nature::Silent if connected && self.random.percent(20) => {
                let device = entry.devices[0];
                let bytes = self.random.between(1, 300);
                let message = match self.random.below(3) {
                    0 => Say::TurnRequested,
                    1 => Say::CreditsWanted { device, bytes },
                    _ => Say::Reserve { request: RequestId(1), device, bytes },
                };
                self.say(index, message);
            }
            _ => {}
        }
        self.after(1_000, 40_000, Event::Act(index));
    }

    /// Nobody else's work may be under way on a device on which this member works.
    fn check_exclusive(&self, index: usize) {
        let working = |entry: &Entry| match &entry.nature {
            Nature::Honest(program) if entry.alive && (program.work_until > self.now || program.stalled) => {
                program.covered.clone()
            }
            _ => Vec::new(),
        };
        let mine = working(&self.entries[index]);
        for (other, entry) in self.entries.iter().enumerate() {
            if entry.tenant != self.entries[index].tenant {
                let theirs = working(entry);
                assert!(
                    !mine.iter().any(|key| theirs.contains(key)),
                    "members {index} and {other} run at once"
                );
            }
        }
    }

    /// The member looks whether its work is done: to answer a drain, or to give the turn up.
    fn work(&mut self, index: usize) {
        let (now, connection, tenant) =
            (self.now, self.entries[index].connection, self.entries[index].tenant);
        let mut admitted = None;
        let Nature::Honest(program) = &mut self.entries[index].nature else { return };
        if program.phase == Phase::Draining {
            if program.stalled {
                program.out.push(Say::DrainStalled { epoch: program.epoch });
                admitted = Some(tenant);
                self.after(5_000, 20_000, Event::Work(index, connection));
            } else if program.work_until <= now {
                program.phase = Phase::Drained;
                program.out.push(Say::Drained { epoch: program.epoch });
            } else {
                let at = program.work_until;
                self.schedule(at, Event::Work(index, connection));
            }
        } else if program.phase == Phase::Running && program.others > 0 && !program.stalled {
            if program.work_until + Duration::from_millis(2) < now {
                program.phase = Phase::Released;
                program.out.push(Say::TurnReleased { epoch: program.epoch });
            } else {
                let at = program.work_until + Duration::from_millis(3);
                self.schedule(at.max(now), Event::Work(index, connection));
            }
        }
        if admitted.is_some() && self.calm {
            self.heal(index);
        }
        self.flush(index);
    }

    fn heal(&mut self, index: usize) {
        if let Nature::Honest(program) = &mut self.entries[index].nature {
            program.stalled = false;
            program.work_until = program.work_until.min(self.now + Duration::from_millis(5));
        }
    }

    fn hear(&mut self, index: usize, message: &ToMember) {
        let (now, connection, tenant) =
            (self.now, self.entries[index].connection, self.entries[index].tenant);
        match message {
            ToMember::TurnGranted { epoch } => self.entries[index].epoch = *epoch,
            ToMember::Evict { order, .. } => self.entries[index].order = *order,
            _ => {}
        }
        let Nature::Honest(program) = &mut self.entries[index].nature else { return };
        program.hear(message, now);
        match message {
            ToMember::Credits { device, .. } => {
                let (device, free) = (*device, self.real_free(*device));
                if let Nature::Honest(program) = &mut self.entries[index].nature {
                    program.spend(device, TOTAL_BYTES, free);
                }
            }
            ToMember::Evict { device, .. } => self.after(100, 5000, Event::Evict(index, connection, *device)),
            ToMember::AdmitOne { .. } => {
                // The submission that a stalled peer waits for has come through.
                for other in 0..self.entries.len() {
                    if self.entries[other].tenant == tenant && other != index {
                        self.heal(other);
                    }
                }
                self.after(100, 3000, Event::Work(index, connection));
            }
            _ => self.after(10, 3000, Event::Work(index, connection)),
        }
        self.flush(index);
    }

    fn report(&mut self, index: usize) {
        if self.entries[index].connected && matches!(self.entries[index].nature, Nature::Honest(_)) {
            for device in self.entries[index].devices.clone() {
                let free_bytes = self.real_free(device);
                self.say(index, Say::Usage { device, total_bytes: TOTAL_BYTES, free_bytes });
            }
        }
        let pause = if self.calm { 900_000 } else { 300_000 };
        self.after(pause, 2 * pause, Event::Report(index));
    }

    /// Sends what the program wants to say and notices freed frames.
    fn flush(&mut self, index: usize) {
        let Nature::Honest(program) = &mut self.entries[index].nature else { return };
        let out = std::mem::take(&mut program.out);
        let frames: Vec<(DeviceKey, u64)> =
            program.memory.iter().map(|(key, memory)| (*key, memory.frames)).collect();
        for (key, frames) in frames {
            let seen = self.entries[index].frames_seen.insert(key, frames).unwrap_or(0);
            if frames < seen && self.random.percent(50) {
                let until = self.now + Duration::from_millis(self.random.below(30));
                self.scrubbing.push((key, until, seen - frames));
            }
        }
        for message in out {
            if matches!(message, Say::CreditsShort { .. }) {
                self.summary.shorts += 1;
            }
            self.say(index, message);
        }
    }

    fn say(&mut self, index: usize, message: Say) {
        let delay = Duration::from_micros(self.random.between(5, 2000));
        let entry = &mut self.entries[index];
        entry.to_core_at = entry.to_core_at.max(self.now + delay);
        let (at, connection) = (entry.to_core_at, entry.connection);
        self.schedule(at, Event::ToCore(index, connection, message));
    }

    fn real_free(&mut self, key: DeviceKey) -> u64 {
        let now = self.now;
        self.scrubbing.retain(|(_, until, _)| *until > now);
        let scrubbed: u64 =
            self.scrubbing.iter().filter(|(device, ..)| *device == key).map(|entry| entry.2).sum();
        let frames: u64 = self
            .entries
            .iter()
            .filter_map(|entry| match &entry.nature {
                Nature::Honest(program) if entry.alive => {
                    program.memory.get(&key).map(|memory| memory.frames)
                }
                _ => None,
            })
            .sum();
        (TOTAL_BYTES - OVERHEAD_BYTES).saturating_sub(frames + scrubbed)
    }

    fn crash(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        entry.alive = false;
        if entry.connected {
            let member = entry.id;
            self.after(10, 5000, Event::Buried(member));
        } else {
            // Nobody but the process knew of them after a restart.
            let held = held_segments(&self.entries[index]);
            self.segments.retain(|segment, _| !held.contains(segment));
        }
    }

    fn restart(&mut self) {
        self.summary.restarts += 1;
        self.settings.incarnation += 1;
        self.core = Core::new(self.settings.clone());
        self.gates.clear();
        let mut expected = Vec::new();
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            entry.credits.clear();
            if !std::mem::take(&mut entry.connected) || !entry.alive {
                continue;
            }
            let honest = matches!(entry.nature, Nature::Honest(_));
            if honest {
                expected.push(entry.id);
            }
            if let Nature::Honest(program) = &mut entry.nature {
                program.daemon_lost(self.now);
            }
            let high = if honest { 60_000 } else { 300_000 };
            self.after(1_000, high, Event::Connect(index, honest));
        }
        // Segments of the dead fell with their descriptors; those of the living are claimed.
        let held: BTreeSet<SegmentId> =
            self.entries.iter().filter(|entry| entry.alive).flat_map(held_segments).collect();
        self.segments.retain(|segment, _| held.contains(segment));
        self.events.retain(|_, event| !matches!(event, Event::Buried(_)));
        self.step(Input::Recover { expected });
    }

    /// Liars and silent members end, stuck work ends: now everybody must get what it wants.
    fn calm_down(&mut self) {
        for index in 0..self.entries.len() {
            if !matches!(self.entries[index].nature, Nature::Honest(_)) && self.entries[index].alive {
                self.crash(index);
            }
            self.heal(index);
        }
        self.calm = true;
    }

    fn step(&mut self, input: Input) {
        self.note_input(&input);
        let mut outputs = Vec::new();
        self.core.step(self.now, input.clone(), &mut outputs);
        if !outputs.is_empty()
            || !matches!(input, Input::Message { message: Say::Usage { .. }, .. } | Input::Tick)
        {
            if self.trace.len() == 50 {
                self.trace.pop_front();
            }
            self.trace.push_back((self.now, input, outputs.clone()));
        }
        let mut failed_leases = Vec::new();
        for output in outputs {
            self.obey(output, &mut failed_leases);
        }
        self.check_books();
        for input in failed_leases {
            self.step(input);
        }
    }

    fn find(&self, member: MemberId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == member)
    }

    /// Counts credits by what is said.
    fn note_input(&mut self, input: &Input) {
        match input {
            Input::MemberGone { member } => {
                if let Some(index) = self.find(*member) {
                    self.entries[index].credits.clear();
                    self.entries[index].connected = false;
                }
            }
            Input::Message { member, message } => {
                let Some(index) = self.find(*member) else { return };
                let credits = &mut self.entries[index].credits;
                match message {
                    Say::Device { device, resident_bytes, .. } => {
                        credits.entry(*device).or_insert(*resident_bytes);
                    }
                    Say::CreditsReturned { device, bytes } | Say::CreditsShort { device, bytes, .. } => {
                        if let Some(held) = credits.get_mut(device) {
                            *held = held.saturating_sub(*bytes);
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn obey(&mut self, output: Output, replies: &mut Vec<Input>) {
        match output {
            Output::OpenGate { tenant, epoch } => {
                self.summary.turns += 1;
                let newest = self.epochs.keys().next_back().copied();
                match self.epochs.insert(epoch, tenant) {
                    Some(before) => assert_eq!(before, tenant, "{epoch} was given to two tenants"),
                    None => assert!(newest.is_none_or(|newest| newest < epoch), "{epoch} is not new"),
                }
                self.gates.insert(tenant, Some(epoch));
            }
            Output::CloseGate { tenant, epoch } => {
                assert_eq!(
                    self.gates.insert(tenant, None),
                    Some(Some(epoch)),
                    "closed a gate that was not open"
                );
            }
            Output::Send { member, message } => {
                let Some(index) = self.find(member) else { panic!("{member} is unknown") };
                self.note_sent(index, &message);
                let delay = Duration::from_micros(self.random.between(5, 2000));
                let entry = &mut self.entries[index];
                entry.to_member_at = entry.to_member_at.max(self.now + delay);
                let (at, connection) = (entry.to_member_at, entry.connection);
                self.schedule(at, Event::ToMember(index, connection, message));
            }
            Output::LeaseSegment { member, request, bytes } => {
                if self.random.percent(3) {
                    return replies.push(Input::SegmentFailed { member, request });
                }
                self.next_segment += 1;
                let segment = SegmentId(self.next_segment);
                self.segments.insert(segment, bytes);
                replies.push(Input::SegmentLeased { member, request, segment, bytes });
                if let Some(index) = self.find(member) {
                    let entry = &mut self.entries[index];
                    entry.to_member_at = entry.to_member_at.max(self.now + Duration::from_micros(300));
                    let (at, connection) = (entry.to_member_at, entry.connection);
                    self.schedule(at, Event::Leased(index, connection, request, segment, bytes));
                }
            }
            Output::DropSegment { segment } => {
                assert!(self.segments.remove(&segment).is_some(), "{segment} was dropped twice");
            }
            Output::RejectMember { member, text, .. } => {
                let index = self.find(member).expect("known");
                assert!(!matches!(self.entries[index].nature, Nature::Honest(_)), "an honest member: {text}");
                self.entries[index].credits.clear();
                self.entries[index].connected = false;
                self.entries[index].alive = false;
            }
            Output::Log { level: Level::Error, text } => panic!("{text}"),
            Output::SetOthersWaiting { .. } | Output::TenantGone { .. } | Output::Log { .. } => {}
        }
    }

    fn note_sent(&mut self, index: usize, message: &ToMember) {
        match message {
            ToMember::Credits { device, bytes } => {
                let held = self.entries[index].credits.get_mut(device).expect("credits for a strange device");
                *held += bytes;
                let status = self.core.status(self.now);
                let view = status.devices.iter().find(|view| view.device == *device).expect("known");
                assert!(view.resident_bytes <= view.capacity_bytes, "credits beyond capacity: {view:?}");
            }
            ToMember::Evict { .. } => self.summary.evictions += 1,
            ToMember::Drain { .. } => self.summary.drains += 1,
            ToMember::DrainCancelled { .. } => self.summary.failed_drains += 1,
            ToMember::AdmitOne { .. } => self.summary.admissions += 1,
            _ => {}
        }
    }

    /// The view is costly to make, so it is compared after every fourth step.
    fn is_time_to_compare(&self) -> bool {
        self.next_number % 4 == 0
    }

    fn check_books(&self) {
        let faults = self.core.audit();
        assert!(faults.is_empty(), "{faults:?}");
        if !self.is_time_to_compare() {
            return;
        }
        let status = self.core.status(self.now);
        for view in &status.devices {
            let said: u64 = self.entries.iter().filter_map(|entry| entry.credits.get(&view.device)).sum();
            assert_eq!(
                said, view.resident_bytes,
                "credits of {} by what was said and in the books",
                view.device
            );
        }
        let leased: u64 = self.segments.values().sum();
        assert!(status.host_pool.leased_bytes <= leased.max(self.settings.host_pool_bytes), "pool overdrawn");
        for view in &status.tenants {
            let blocked = view.state == "waiting";
            assert!(!blocked || !view.reasons.is_empty(), "nobody is named: {view:?}");
        }
    }

    fn end(&mut self) {
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            if !entry.alive || !entry.connected {
                continue;
            }
            let Nature::Honest(program) = &entry.nature else { continue };
            let busy = program.requested
                || program.phase == Phase::Restoring
                || program.open_questions > 0
                || !program.reserving.is_empty()
                || !program.leasing.is_empty()
                || program.memory.values().any(|memory| memory.evict.is_some());
            if busy && self.was_talked_too_large() {
                continue;
            }
            assert!(
                !busy,
                "member {index} ({}) was never served: {program:?}\n{:#?}",
                entry.id,
                self.core.status(self.now)
            );
        }
        for index in 0..self.entries.len() {
            if self.entries[index].connected {
                let member = self.entries[index].id;
                self.step(Input::MemberGone { member });
            }
        }
        let status = self.core.status(self.now);
        assert!(status.devices.is_empty() && status.tenants.is_empty(), "the gone own something: {status:?}");
        assert_eq!(status.host_pool.leased_bytes, 0);
        assert!(self.segments.is_empty(), "segments nobody can ever return: {:?}", self.segments);
    }

    /// A liar that holds credits without frames makes the device look larger to honest members
    /// (see `sight`), who may then have more than it can hold. The one wait allowed for that is
    /// visible: somebody on the device is named as lacking capacity.
    fn was_talked_too_large(&self) -> bool {
        let liars = self.entries.iter().any(|entry| !matches!(entry.nature, Nature::Honest(_)));
        let capacity = TOTAL_BYTES - OVERHEAD_BYTES - TOTAL_BYTES / 64;
        let status = self.core.status(self.now);
        let too_large = status.tenants.iter().any(|view| {
            view.virtual_bytes > capacity && view.reasons.iter().any(|reason| reason == "capacity-exceeded")
        });
        liars && too_large
    }

    pub fn last_events(&self) -> String {
        let mut text = String::new();
        for (at, input, outputs) in &self.trace {
            text.push_str(&format!("{at:?} {input:?}\n"));
            for output in outputs {
                text.push_str(&format!("        {output:?}\n"));
            }
        }
        text
    }
}

fn held_segments(entry: &Entry) -> Vec<SegmentId> {
    match &entry.nature {
        Nature::Honest(program) => {
            program.memory.values().flat_map(|memory| memory.segments.iter().map(|(id, _)| *id)).collect()
        }
        _ => Vec::new(),
    }
}
