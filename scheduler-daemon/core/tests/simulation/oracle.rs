//! The oracles: they obey the core and count what was said, and compare after each step.

use crate::program::Phase;
use crate::world::{Event, Nature, OVERHEAD_BYTES, TOTAL_BYTES, World};
use std::time::Duration;
use turnus_core::{Input, Level, MemberId, MemberMessage as Say, Output, SegmentId, ToMember};

impl World {
    pub(crate) fn step(&mut self, input: Input) {
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
        if failed_leases.is_empty() {
            let leased: u64 = self.segments.values().sum();
            assert!(
                self.core.status(self.now).host_pool.leased_bytes <= leased,
                "leased what does not exist"
            );
        }
        for input in failed_leases {
            self.step(input);
        }
    }

    pub(crate) fn find(&self, member: MemberId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == member)
    }

    /// Counts credits by what is said.
    pub(crate) fn note_input(&mut self, input: &Input) {
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

    pub(crate) fn obey(&mut self, output: Output, replies: &mut Vec<Input>) {
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

    pub(crate) fn note_sent(&mut self, index: usize, message: &ToMember) {
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
    pub(crate) fn is_time_to_compare(&self) -> bool {
        self.next_number.is_multiple_of(4)
    }

    pub(crate) fn check_books(&self) {
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
        for view in &status.tenants {
            let blocked = view.state == "waiting";
            assert!(!blocked || !view.reasons.is_empty(), "nobody is named: {view:?}");
        }
    }

    pub(crate) fn end(&mut self) {
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            if !entry.alive || !entry.connected {
                continue;
            }
            let Nature::Honest(program) = &entry.nature else { continue };
            for (key, memory) in &program.memory {
                let credits = entry.credits.get(key).copied().unwrap_or(0);
                assert_eq!(
                    credits,
                    memory.frames + memory.unspent,
                    "bytes of member {index} were lost on {key}"
                );
            }
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
    pub(crate) fn was_talked_too_large(&self) -> bool {
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
