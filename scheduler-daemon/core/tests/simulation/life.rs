//! What members do and what happens to them: acts, answers, crashes, restarts of the daemon.

use crate::liar::lie;
use crate::program::Phase;
use crate::world::{Entry, Event, Nature, OVERHEAD_BYTES, TOTAL_BYTES, World, held_segments};
use std::collections::BTreeSet;
use std::time::Duration;
use turnus_core::{
    Core, DeviceKey, Epoch, Input, MemberId, MemberMessage as Say, RequestId, SegmentId, TenantId, ToMember,
};

impl World {
    pub(crate) fn connect(&mut self, index: usize, resumes: bool) {
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

    pub(crate) fn introduction(&mut self, index: usize, device: DeviceKey) -> Say {
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

    pub(crate) fn gate(&self, index: usize) -> Option<Epoch> {
        let tenant = TenantId(self.settings.incarnation * 1000 + self.entries[index].tenant as u64);
        self.gates.get(&tenant).copied().flatten()
    }

    pub(crate) fn act(&mut self, index: usize) {
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
    pub(crate) fn check_exclusive(&self, index: usize) {
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
    pub(crate) fn work(&mut self, index: usize) {
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

    pub(crate) fn heal(&mut self, index: usize) {
        if let Nature::Honest(program) = &mut self.entries[index].nature {
            program.stalled = false;
            program.work_until = program.work_until.min(self.now + Duration::from_millis(5));
        }
    }

    pub(crate) fn hear(&mut self, index: usize, message: &ToMember) {
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

    pub(crate) fn report(&mut self, index: usize) {
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
    pub(crate) fn flush(&mut self, index: usize) {
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

    pub(crate) fn say(&mut self, index: usize, message: Say) {
        let delay = Duration::from_micros(self.random.between(5, 2000));
        let entry = &mut self.entries[index];
        entry.to_core_at = entry.to_core_at.max(self.now + delay);
        let (at, connection) = (entry.to_core_at, entry.connection);
        self.schedule(at, Event::ToCore(index, connection, message));
    }

    pub(crate) fn real_free(&mut self, key: DeviceKey) -> u64 {
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

    pub(crate) fn crash(&mut self, index: usize) {
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

    pub(crate) fn restart(&mut self) {
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
    pub(crate) fn calm_down(&mut self) {
        for index in 0..self.entries.len() {
            if !matches!(self.entries[index].nature, Nature::Honest(_)) && self.entries[index].alive {
                self.crash(index);
            }
            self.heal(index);
        }
        self.calm = true;
    }
}
