//! An honest member: what the shim of a well-behaved program does, in the small.
//!
//! It allocates, submits, waits at the gate, restores with credits, drains, evicts to leased
//! segments and comes back after a restart of the daemon. It answers with messages only; time,
//! delays and the device's real memory are the world's.

use crate::random::Random;
use std::collections::BTreeMap;
use std::time::Duration;
use turnus_core::{DeviceKey, Epoch, MemberMessage as Say, RequestId, SegmentId, ToMember};

/// What the member knows of its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    None,
    Restoring,
    Running,
    Draining,
    Drained,
    Released,
}

#[derive(Debug, Clone, Default)]
pub struct Memory {
    pub allocated: u64,
    pub frames: u64,
    pub unspent: u64,
    /// Wanted in this turn and not yet given.
    pub asked: u64,
    pub segments: Vec<(SegmentId, u64)>,
    pub evict: Option<(RequestId, u64)>,
}

impl Memory {
    pub fn host(&self) -> u64 {
        self.segments.iter().map(|(_, content)| content).sum()
    }

    fn missing(&self) -> u64 {
        self.allocated - self.frames
    }
}

#[derive(Debug, Clone)]
pub struct Program {
    pub phase: Phase,
    pub epoch: Epoch,
    pub requested: bool,
    pub others: u32,
    pub work_until: Duration,
    /// Its work waits for a submission of a peer.
    pub stalled: bool,
    pub memory: BTreeMap<DeviceKey, Memory>,
    /// Devices that the present turn covered when it was granted.
    pub covered: Vec<DeviceKey>,
    pub reserving: BTreeMap<RequestId, (DeviceKey, u64)>,
    pub leasing: BTreeMap<RequestId, DeviceKey>,
    pub open_questions: u64,
    next_request: u64,
    pub out: Vec<Say>,
    pub granted: u64,
}

impl Program {
    pub fn new(devices: &[DeviceKey]) -> Program {
        Program {
            phase: Phase::None,
            epoch: Epoch(0),
            requested: false,
            others: 0,
            work_until: Duration::ZERO,
            stalled: false,
            memory: devices.iter().map(|key| (*key, Memory::default())).collect(),
            covered: Vec::new(),
            reserving: BTreeMap::new(),
            leasing: BTreeMap::new(),
            open_questions: 0,
            next_request: 0,
            out: Vec::new(),
            granted: 0,
        }
    }

    pub fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// One thing that the program does by itself. `gate` is the epoch of the open gate page.
    pub fn act(&mut self, now: Duration, gate: Option<Epoch>, random: &mut Random) {
        let keys: Vec<DeviceKey> = self.memory.keys().copied().collect();
        let key = keys[random.below(keys.len() as u64) as usize];
        match random.below(100) {
            0..20 => {
                let (request, bytes) = (self.request(), random.between(1, 400));
                self.reserving.insert(request, (key, bytes));
                self.out.push(Say::Reserve { request, device: key, bytes });
            }
            20..28 => self.free(key, random.between(1, 300)),
            28..32 => {
                let request = self.request();
                self.open_questions += 1;
                self.out.push(Say::MemoryQuery { request, device: key });
            }
            32..34 => {
                let request = self.request();
                self.open_questions += 1;
                self.out.push(Say::HeadRoomWanted { request, device: key, bytes: random.between(1, 100) });
            }
            _ => self.submit(now, gate, random.between(1, 40)),
        }
        self.release_if_idle(now);
    }

    pub fn submit(&mut self, now: Duration, gate: Option<Epoch>, work_ms: u64) {
        if self.phase == Phase::Running && gate == Some(self.epoch) {
            self.work_until = self.work_until.max(now) + Duration::from_millis(work_ms);
        } else if !self.requested && self.phase != Phase::Restoring {
            self.requested = true;
            self.out.push(Say::TurnRequested);
        }
    }

    fn release_if_idle(&mut self, now: Duration) {
        if self.phase == Phase::Running
            && self.others > 0
            && !self.stalled
            && self.work_until + Duration::from_millis(2) < now
        {
            self.phase = Phase::Released;
            self.out.push(Say::TurnReleased { epoch: self.epoch });
        }
    }

    fn free(&mut self, key: DeviceKey, bytes: u64) {
        let memory = self.memory.get_mut(&key).expect("own device");
        let bytes = bytes.min(memory.allocated);
        memory.allocated -= bytes;
        self.out.push(Say::Unreserve { device: key, bytes });
        let excess = (memory.frames + memory.host()).saturating_sub(memory.allocated);
        let from_host = excess.min(memory.host());
        self.drop_host(key, from_host);
        self.give_back_frames(key, excess - from_host);
    }

    /// Content of segments is no longer needed; empty ones go back.
    fn drop_host(&mut self, key: DeviceKey, mut bytes: u64) {
        let memory = self.memory.get_mut(&key).expect("own device");
        for (_, content) in &mut memory.segments {
            let gone = bytes.min(*content);
            *content -= gone;
            bytes -= gone;
        }
        let out = &mut self.out;
        memory.segments.retain(|(segment, content)| {
            if *content == 0 {
                out.push(Say::SegmentReturned { segment: *segment });
            }
            *content > 0
        });
    }

    fn give_back_frames(&mut self, key: DeviceKey, bytes: u64) {
        if bytes > 0 {
            self.memory.get_mut(&key).expect("own device").frames -= bytes;
            self.out.push(Say::CreditsReturned { device: key, bytes });
        }
    }

    fn give_back_unspent(&mut self, key: DeviceKey) -> u64 {
        let bytes = std::mem::take(&mut self.memory.get_mut(&key).expect("own device").unspent);
        if bytes > 0 {
            self.out.push(Say::CreditsReturned { device: key, bytes });
        }
        bytes
    }

    /// The gate is open for us: run if everything is here, else ask for what is missing.
    fn go_on(&mut self) {
        let mut complete = true;
        for (key, memory) in &mut self.memory {
            let missing = memory.missing();
            if missing == 0 || !self.covered.contains(key) {
                continue;
            }
            complete = false;
            let more = missing.saturating_sub(memory.unspent + memory.asked);
            if more > 0 {
                memory.asked += more;
                self.out.push(Say::CreditsWanted { device: *key, bytes: more });
            }
        }
        if complete {
            if self.phase == Phase::Restoring {
                self.out.push(Say::Restored { epoch: self.epoch });
            }
            self.phase = Phase::Running;
        } else {
            self.phase = Phase::Restoring;
        }
    }

    /// Makes frames from credits; `real_free` is what the device really has.
    pub fn spend(&mut self, key: DeviceKey, total_bytes: u64, real_free: u64) {
        let memory = self.memory.get_mut(&key).expect("own device");
        let made = memory.unspent.min(memory.missing());
        let possible = made.min(real_free);
        memory.unspent -= made;
        memory.frames += possible;
        let from_host = possible.min(memory.host());
        if made > possible {
            memory.asked += made - possible;
            let (bytes, free_bytes) = (made - possible, real_free - possible);
            self.out.push(Say::CreditsShort { device: key, bytes, total_bytes, free_bytes });
        }
        self.drop_host(key, from_host);
        self.give_back_unspent(key);
        if self.phase == Phase::Restoring {
            self.go_on();
        }
    }

    pub fn hear(&mut self, message: &ToMember, now: Duration) {
        match *message {
            ToMember::TurnGranted { epoch } => {
                if epoch != self.epoch || self.phase == Phase::None {
                    self.memory.values_mut().for_each(|memory| memory.asked = 0);
                    self.covered = self.memory.keys().copied().collect();
                    self.others = 0;
                }
                self.granted += 1;
                self.epoch = epoch;
                self.requested = false;
                self.go_on();
            }
            ToMember::Drain { epoch } => {
                assert!(epoch == self.epoch && self.phase != Phase::None, "drained outside of a turn");
                self.phase = Phase::Draining;
            }
            ToMember::DrainCancelled { epoch } => {
                assert_eq!(epoch, self.epoch, "another turn's drain was cancelled");
                assert_ne!(self.phase, Phase::Released, "a released member was told to go on");
                self.requested = false;
                self.go_on();
            }
            ToMember::AdmitOne { .. } => {
                self.work_until = self.work_until.max(now) + Duration::from_millis(3);
                self.phase = Phase::Draining;
            }
            ToMember::OthersWaiting { count } => self.others = count,
            ToMember::Credits { device, bytes } => {
                let memory = self.memory.get_mut(&device).expect("credits for a strange device");
                memory.unspent += bytes;
                memory.asked = memory.asked.saturating_sub(bytes);
                if !matches!(self.phase, Phase::Restoring | Phase::Running | Phase::Draining | Phase::Drained)
                {
                    self.give_back_unspent(device);
                }
            }
            ToMember::Evict { device, order, bytes } => {
                let memory = self.memory.get_mut(&device).expect("evict on a strange device");
                assert!(memory.evict.is_none(), "two evict orders at once");
                memory.evict = Some((order, bytes));
            }
            ToMember::Reserved { request } => {
                let (key, bytes) = self.reserving.remove(&request).expect("an answer without a question");
                self.memory.get_mut(&key).expect("own device").allocated += bytes;
                if matches!(self.phase, Phase::Running | Phase::Restoring) {
                    self.go_on();
                }
            }
            ToMember::Refused { request, .. } => {
                if self.reserving.remove(&request).is_none() {
                    let key = self.leasing.remove(&request).expect("refused what was not asked");
                    self.finish_evict(key);
                }
            }
            ToMember::MemoryAnswer { total_bytes, free_bytes, .. } => {
                assert!(free_bytes <= total_bytes, "free memory wrapped");
                self.open_questions -= 1;
            }
            ToMember::HeadRoomMade { .. } => self.open_questions -= 1,
            ToMember::WaitNotice { .. } => {}
        }
    }

    pub fn finish_evict(&mut self, key: DeviceKey) {
        let memory = self.memory.get_mut(&key).expect("own device");
        if let Some((order, _)) = memory.evict.take() {
            let (host_bytes, resident_bytes) = (memory.host(), memory.frames);
            self.out.push(Say::Moved {
                device: key,
                to_host_bytes: 0,
                to_device_bytes: 0,
                resident_bytes,
                host_bytes,
                pinned_bytes: 0,
            });
            self.out.push(Say::Evicted { device: key, order, pinned_bytes: 0 });
        }
    }

    /// The next step of an evict order: unspent credits first, then a segment for a piece.
    pub fn step_evict(&mut self, key: DeviceKey, piece: u64) {
        let Some((_, wanted)) = self.memory[&key].evict else { return };
        if self.leasing.values().any(|leasing| *leasing == key) {
            return;
        }
        let in_turn = matches!(self.phase, Phase::Restoring | Phase::Running | Phase::Draining);
        let given = if in_turn { 0 } else { self.give_back_unspent(key) };
        let memory = self.memory.get_mut(&key).expect("own device");
        let left = wanted.saturating_sub(given);
        if let Some((_, rest)) = &mut memory.evict {
            *rest = left;
        }
        let bytes = piece.min(left).min(memory.frames);
        if in_turn || bytes == 0 {
            return self.finish_evict(key);
        }
        let request = self.request();
        self.leasing.insert(request, key);
        self.out.push(Say::SegmentWanted { request, bytes });
    }

    pub fn leased(&mut self, request: RequestId, segment: SegmentId, bytes: u64) {
        let Some(key) = self.leasing.remove(&request) else { return };
        let in_turn = matches!(self.phase, Phase::Restoring | Phase::Running | Phase::Draining);
        let memory = self.memory.get_mut(&key).expect("own device");
        let moved = if in_turn { 0 } else { bytes.min(memory.frames) };
        if moved == 0 {
            return self.out.push(Say::SegmentReturned { segment });
        }
        memory.segments.push((segment, moved));
        if let Some((_, rest)) = &mut memory.evict {
            *rest = rest.saturating_sub(moved);
        }
        self.give_back_frames(key, moved);
    }

    /// The daemon is lost: credits that are not frames are dropped, questions are open again.
    pub fn daemon_lost(&mut self, now: Duration) {
        for memory in self.memory.values_mut() {
            (memory.unspent, memory.asked, memory.evict) = (0, 0, None);
        }
        self.reserving.clear();
        self.leasing.clear();
        self.open_questions = 0;
        self.others = 0;
        // Unfinished work holds the turn, also in a drain or a restore; so does an open gate.
        let holds = self.phase == Phase::Running || self.work_until > now || self.stalled;
        self.phase = if holds { Phase::Running } else { Phase::None };
    }
}
