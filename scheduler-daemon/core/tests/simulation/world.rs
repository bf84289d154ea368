//! The world around one core: devices with real memory, members, delays, accidents, oracles.
//!
//! Events lie in a queue by time; messages of one member keep their order. The oracles know
//! nothing of the core's books: they count credits, gates, epochs, segments and running work by
//! what was said, and compare.

use crate::program::Program;
use crate::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use turnus_core::{
    Core, DeviceKey, Epoch, Input, MemberId, MemberMessage as Say, Output, RequestId, SegmentId, Settings,
    TenantId, ToMember,
};

pub(crate) const TOTAL_BYTES: u64 = 1000;
pub(crate) const OVERHEAD_BYTES: u64 = 50;
pub(crate) const PIECE_BYTES: u64 = 128;
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
pub(crate) enum Event {
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
pub(crate) enum Nature {
    Honest(Box<Program>),
    Liar,
    Silent,
}

pub(crate) struct Entry {
    pub(crate) nature: Nature,
    pub(crate) tenant: usize,
    pub(crate) devices: Vec<DeviceKey>,
    pub(crate) id: MemberId,
    /// Counts connections; what was sent over an older one is lost.
    pub(crate) connection: u64,
    pub(crate) alive: bool,
    pub(crate) connected: bool,
    pub(crate) to_core_at: Duration,
    pub(crate) to_member_at: Duration,
    pub(crate) epoch: Epoch,
    pub(crate) order: RequestId,
    /// Credits by what was said.
    pub(crate) credits: BTreeMap<DeviceKey, u64>,
    pub(crate) frames_seen: BTreeMap<DeviceKey, u64>,
}

pub struct World {
    pub(crate) random: Random,
    pub(crate) core: Core,
    pub(crate) settings: Settings,
    pub(crate) now: Duration,
    pub(crate) events: BTreeMap<(Duration, u64), Event>,
    pub(crate) next_number: u64,
    pub(crate) entries: Vec<Entry>,
    pub(crate) devices: Vec<DeviceKey>,
    pub(crate) tenants: usize,
    pub(crate) calm: bool,
    pub(crate) gates: BTreeMap<TenantId, Option<Epoch>>,
    pub(crate) epochs: BTreeMap<Epoch, TenantId>,
    pub(crate) segments: BTreeMap<SegmentId, u64>,
    pub(crate) next_segment: u64,
    pub(crate) scrubbing: Vec<(DeviceKey, Duration, u64)>,
    pub(crate) trace: VecDeque<(Duration, Input, Vec<Output>)>,
    pub(crate) summary: Summary,
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

    pub(crate) fn populate(&mut self) {
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

    pub(crate) fn born(&mut self, tenant: usize) {
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

    pub(crate) fn schedule(&mut self, at: Duration, event: Event) {
        self.next_number += 1;
        self.events.insert((at, self.next_number), event);
    }

    pub(crate) fn after(&mut self, low_us: u64, high_us: u64, event: Event) {
        let at = self.now + Duration::from_micros(self.random.between(low_us, high_us));
        self.schedule(at, event);
    }

    pub(crate) fn is_current(&self, index: usize, connection: u64) -> bool {
        let entry = &self.entries[index];
        entry.alive && entry.connected && entry.connection == connection
    }

    pub(crate) fn happen(&mut self, event: Event) {
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
            Event::Buried(member) => {
                self.step(Input::MemberGone { member });
                // A claim that was still on its way took its segment with it.
                let held =
                    self.find(member).map(|index| held_segments(&self.entries[index])).unwrap_or_default();
                self.segments.retain(|segment, _| !held.contains(segment));
            }
            Event::Restart if !self.calm => self.restart(),
            Event::Connect(index, resumes) if self.entries[index].alive => self.connect(index, resumes),
            Event::Calm => self.calm_down(),
            _ => {}
        }
    }
}

pub(crate) fn held_segments(entry: &Entry) -> Vec<SegmentId> {
    match &entry.nature {
        Nature::Honest(program) => {
            program.memory.values().flat_map(|memory| memory.segments.iter().map(|(id, _)| *id)).collect()
        }
        _ => Vec::new(),
    }
}
