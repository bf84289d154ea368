//! Moves the lanes of one warp through the code.
//!
//! Lanes at one place form a group. The group that is furthest behind runs, so that groups meet again where the
//! paths join; groups at one place become one. A group that goes round a loop for long while others could run
//! steps aside for them, so that lanes of one warp can wait for each other. Read next: `block.rs`.

use super::registers::{Registers, lanes_of};
use super::stack::Stacks;
use super::{Failure, Machine, collective, execute};
use crate::error::Trap;
use crate::program::{AtomicOp, Barrier, CallTarget, Op, Program, SharedBarrier, Slot};
use crate::types::LANE_COUNT;

/// Turns of loops, weighted, after which a group steps aside.
const SPIN_LIMIT: u32 = 1024;
/// Weight of a loop's turn in which memory was polled.
const POLL_WEIGHT: u32 = 32;
/// Branches that the group executes for which another stepped aside.
const FAVOUR_BRANCHES: u32 = 64;
/// Turns of polling loops after which another warp runs.
const POLL_LIMIT: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Ready,
    /// For the lanes that a `.sync` operation names.
    Members,
    Barrier(u8),
}

#[derive(Debug, Clone, Copy)]
struct Group {
    position: u32,
    /// Calls that its lanes are in.
    depth: u32,
    mask: u32,
    wait: Wait,
    /// When it last ran, in steps aside.
    last_run: u64,
}

impl Group {
    /// Order in which groups run: whoever is in more calls, then whoever is further behind.
    fn place(&self) -> (u32, u32) {
        (u32::MAX - self.depth, self.position)
    }

    /// The same place with other lanes.
    fn with(&self, mask: u32, wait: Wait) -> Self {
        Self { mask, wait, ..*self }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Warp {
    pub(crate) registers: Registers,
    /// Local memory of all lanes, one behind another.
    pub(crate) local: Vec<u8>,
    stacks: Stacks,
    live: u32,
    /// The group that runs on when the warp does.
    current: Option<Group>,
    others: Vec<Group>,
    spin: u32,
    favour: u32,
    asides: u64,
    polled: bool,
    polls: u32,
}

/// Lanes that came to a barrier.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) id: u8,
    /// Lanes that came.
    pub(crate) lanes: u32,
    /// Whether they are all lanes of the warp that have not exited.
    pub(crate) whole: bool,
    /// Threads that the barrier waits for, where the instruction says so.
    pub(crate) threads: Option<u32>,
    /// Lanes whose predicate holds, for a reduction.
    pub(crate) holds: u32,
}

/// Why a warp stopped running.
#[derive(Debug)]
pub(crate) enum Pause {
    /// All allowed instructions are executed.
    Spent,
    /// It polls memory or asked to sleep; another should run.
    Polling,
    /// No lane can run.
    Waiting,
    Arrived(Arrival),
    Exited,
}

/// What follows an instruction.
enum Step {
    Next,
    Jumped { backward: bool },
    Pause(Pause),
}

impl Warp {
    /// A warp whose lanes have `local_bytes` of local memory each.
    pub(crate) fn new(local_bytes: usize) -> Self {
        Self { local: vec![0; local_bytes * LANE_COUNT], ..Self::default() }
    }

    /// Puts the lanes of `live` at the start of the code.
    pub(crate) fn begin(&mut self, program: &Program, live: u32) {
        self.live = live;
        self.stacks.begin(program, (self.local.len() / LANE_COUNT) as u64);
        self.others.clear();
        self.current = Some(Group { position: 0, depth: 0, mask: live, wait: Wait::Ready, last_run: 0 });
        (self.spin, self.favour, self.asides, self.polled, self.polls) = (0, 0, 0, false, 0);
    }

    /// Lanes that have not exited.
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// Runs until it has to wait, or `left` instructions are executed.
    pub(crate) fn run(&mut self, machine: &mut Machine<'_>, left: &mut u64) -> Result<Pause, Trap> {
        let Some(mut group) = self.current.take().or_else(|| self.furthest_behind()) else {
            return Ok(Pause::Waiting);
        };
        let program = machine.program;
        let mut meeting = self.meeting(&group);
        loop {
            if *left == 0 {
                self.current = Some(group);
                return Ok(Pause::Spent);
            }
            if group.position == meeting {
                self.join(&mut group);
                meeting = self.meeting(&group);
            }
            *left -= 1;
            let instruction = &program.code[group.position as usize];
            let active = match instruction.guard {
                None => group.mask,
                Some(guard) => group.mask & self.registers.guard(guard),
            };
            let step = self.step(machine, &mut group, &instruction.op, active);
            match step.map_err(|failure| trap(failure, &program.name, instruction.line))? {
                Step::Next => group.position += 1,
                Step::Jumped { backward } => {
                    let polled = backward && std::mem::take(&mut self.polled);
                    if !self.others.is_empty() {
                        group = self.reschedule(group, backward, polled);
                        meeting = self.meeting(&group);
                    }
                    self.polls += u32::from(polled);
                    if self.polls >= POLL_LIMIT {
                        self.polls = 0;
                        self.current = Some(group);
                        return Ok(Pause::Polling);
                    }
                }
                Step::Pause(Pause::Waiting) => {
                    // Some lanes wait for others of the warp.
                    self.current = None;
                    let Some(next) = self.furthest_behind() else { return Ok(Pause::Waiting) };
                    group = next;
                    meeting = self.meeting(&group);
                }
                Step::Pause(pause) => {
                    self.current = (group.mask != 0).then_some(group);
                    return Ok(pause);
                }
            }
        }
    }

    #[inline(always)]
    fn step(
        &mut self,
        machine: &mut Machine<'_>,
        group: &mut Group,
        op: &Op,
        active: u32,
    ) -> Result<Step, Failure> {
        match *op {
            Op::Branch { target } => Ok(self.branch(group, target, active)),
            Op::BranchTable { index, table } => Ok(self.branch_table(machine, group, index, table, active)),
            Op::Exit => Ok(self.exit(group, active)),
            _ if active == 0 => Ok(Step::Next),
            Op::Call { target, ref passed } => self.call(machine, group, target, passed, active),
            Op::Return => self.leave(machine.program, group, active),
            Op::StackAllocate { d, bytes, align } => {
                let found = self.stacks.allocate(self.registers.get(bytes), align, active)?;
                self.registers.set(d, active, &found);
                Ok(Step::Next)
            }
            Op::StackSave { d } => {
                self.registers.set(d, active, &self.stacks.ends());
                Ok(Step::Next)
            }
            Op::StackRestore { a } => {
                self.stacks.restore_ends(self.registers.get(a), active)?;
                Ok(Step::Next)
            }
            Op::Barrier(ref barrier) => Ok(self.arrive(group, barrier, active)),
            Op::Collective { ref kind, members } => {
                let ready = self.ready(members, active);
                if ready == group.mask {
                    collective::collective(&mut self.registers, ready, kind, members);
                    return Ok(Step::Next);
                }
                if ready != 0 {
                    collective::collective(&mut self.registers, ready, kind, members);
                }
                Ok(self.part(group, active & !ready))
            }
            Op::Pause => {
                group.position += 1;
                Ok(Step::Pause(Pause::Polling))
            }
            _ => {
                self.polled |= is_poll(op);
                execute(machine, &mut self.registers, &mut self.local, op, active)?;
                Ok(Step::Next)
            }
        }
    }

    #[inline(always)]
    fn branch(&mut self, group: &mut Group, target: u32, active: u32) -> Step {
        if active == 0 {
            return Step::Next;
        }
        let backward = target <= group.position;
        if active == group.mask {
            group.position = target;
        } else {
            let taken = Group { position: target, last_run: self.asides, ..group.with(active, Wait::Ready) };
            self.others.push(taken);
            group.mask &= !active;
            group.position += 1;
        }
        Step::Jumped { backward }
    }

    /// `brx.idx`: every lane goes to the target its index names. An index beyond the table is undefined in PTX;
    /// here it goes to the last target.
    fn branch_table(
        &mut self,
        machine: &Machine<'_>,
        group: &mut Group,
        index: u16,
        table: u32,
        active: u32,
    ) -> Step {
        let targets = &machine.program.tables[table as usize];
        let indices = *self.registers.get(index);
        let mut backward = false;
        for lane in lanes_of(active) {
            let last = targets.len() - 1;
            let target = targets[(indices[lane] as u32 as usize).min(last)];
            backward |= target <= group.position;
            let last_run = self.asides;
            self.others.push(Group { position: target, last_run, ..group.with(1 << lane, Wait::Ready) });
        }
        self.go_on_without(group, active);
        Step::Jumped { backward }
    }

    /// The lanes of `gone` are in other groups now; one of these takes the group's place if it has no more lanes.
    fn go_on_without(&mut self, group: &mut Group, gone: u32) {
        group.mask &= !gone;
        group.position += 1;
        if group.mask == 0
            && let Some(next) = self.furthest_behind()
        {
            *group = next;
        }
    }

    fn call(
        &mut self,
        machine: &Machine<'_>,
        group: &mut Group,
        target: CallTarget,
        passed: &[Slot],
        active: u32,
    ) -> Result<Step, Failure> {
        let program = machine.program;
        let mut left = active;
        while let Some(first) = lanes_of(left).next() {
            let (number, together) = match target {
                CallTarget::Known(number) => (number, left),
                CallTarget::Pointer(slot) => {
                    let addresses = self.registers.get(slot);
                    let number = program.callee_of_address.get(&addresses[first]);
                    let same = lanes_of(left).filter(|lane| addresses[*lane] == addresses[first]);
                    let together = same.fold(0, |mask, lane| mask | 1 << lane);
                    (*number.ok_or(Failure::InvalidCall)?, together)
                }
            };
            let callee = &program.callees[number as usize];
            let back = group.position + 1;
            self.stacks.enter(&mut self.registers, (number, callee), passed, together, back)?;
            let (position, depth, last_run) = (callee.position, group.depth + 1, self.asides);
            self.others.push(Group { position, depth, last_run, ..group.with(together, Wait::Ready) });
            left &= !together;
        }
        self.go_on_without(group, active);
        Ok(Step::Jumped { backward: false })
    }

    fn leave(&mut self, program: &Program, group: &mut Group, active: u32) -> Result<Step, Failure> {
        let depth = group.depth.checked_sub(1).ok_or(Failure::InvalidCall)?;
        let first_new = self.others.len();
        for lane in lanes_of(active) {
            let back = self.stacks.leave(&mut self.registers, program, lane).ok_or(Failure::InvalidCall)?;
            match self.others[first_new..].iter_mut().find(|other| other.position == back) {
                Some(other) => other.mask |= 1 << lane,
                None => {
                    let last_run = self.asides;
                    let returned = group.with(1 << lane, Wait::Ready);
                    self.others.push(Group { position: back, depth, last_run, ..returned });
                }
            }
        }
        self.go_on_without(group, active);
        Ok(Step::Jumped { backward: false })
    }

    fn exit(&mut self, group: &mut Group, active: u32) -> Step {
        if active == 0 {
            return Step::Next;
        }
        self.live &= !active;
        group.mask &= !active;
        group.position += 1;
        // Whoever waits for lanes of this warp must look again.
        for other in self.others.iter_mut().filter(|other| other.wait == Wait::Members) {
            other.wait = Wait::Ready;
        }
        Step::Pause(Pause::Exited)
    }

    fn arrive(&mut self, group: &mut Group, barrier: &Barrier, active: u32) -> Step {
        let first = lanes_of(active).next().unwrap_or(0);
        let id = (self.registers.get(barrier.id)[first] & 15) as u8;
        let threads = barrier.threads.map(|slot| self.registers.get(slot)[first] as u32);
        let holds = barrier.reduction.map_or(0, |(predicate, _)| self.registers.guard(predicate) & active);
        group.position += 1;
        if !barrier.arrive_only {
            group.mask &= !active;
            let waiting = group.with(active, Wait::Barrier(id));
            self.others.push(Group { last_run: self.asides, ..waiting });
        }
        Step::Pause(Pause::Arrived(Arrival { id, lanes: active, whole: active == self.live, threads, holds }))
    }

    /// The active lanes whose members have all come or exited.
    fn ready(&self, members: Option<u16>, active: u32) -> u32 {
        let Some(members) = members else { return active };
        let members = self.registers.get(members);
        let missing = self.live & !active;
        let mut ready = 0;
        for (lane, members) in members.iter().enumerate() {
            ready |= u32::from(*members as u32 & missing == 0) << lane;
        }
        ready & active
    }

    /// Leaves the lanes of `waiting` where they are and moves the rest of the group on.
    fn part(&mut self, group: &mut Group, waiting: u32) -> Step {
        if waiting == 0 {
            return Step::Next;
        }
        self.others.push(Group { last_run: self.asides, ..group.with(waiting, Wait::Members) });
        group.mask &= !waiting;
        group.position += 1;
        if group.mask == 0 {
            return Step::Pause(Pause::Waiting);
        }
        Step::Jumped { backward: false }
    }

    /// The next position at which another group can be met.
    fn meeting(&self, group: &Group) -> u32 {
        let ahead = self.others.iter().filter(|other| !matches!(other.wait, Wait::Barrier(_)));
        let ahead = ahead.filter(|other| other.depth == group.depth && other.position >= group.position);
        ahead.map(|other| other.position).min().unwrap_or(u32::MAX)
    }

    /// Takes in the groups at the same position.
    fn join(&mut self, group: &mut Group) {
        self.others.retain(|other| {
            let joins = other.place() == group.place() && !matches!(other.wait, Wait::Barrier(_));
            if joins {
                group.mask |= other.mask;
            }
            !joins
        });
    }

    fn take(&mut self, index: usize) -> Group {
        let mut group = self.others.swap_remove(index);
        self.join(&mut group);
        group
    }

    /// Takes the ready group with the lowest position.
    fn furthest_behind(&mut self) -> Option<Group> {
        self.favour = 0;
        let ready = self.others.iter().enumerate().filter(|(_, other)| other.wait == Wait::Ready);
        let index = ready.min_by_key(|(_, other)| other.place()).map(|(index, _)| index)?;
        Some(self.take(index))
    }

    /// Decides after a branch which group runs on.
    fn reschedule(&mut self, mut group: Group, backward: bool, polled: bool) -> Group {
        self.join(&mut group);
        let ready = || self.others.iter().enumerate().filter(|(_, other)| other.wait == Wait::Ready);
        let Some((behind, place)) =
            ready().min_by_key(|(_, other)| other.place()).map(|(index, other)| (index, other.place()))
        else {
            return group;
        };
        if self.favour > 0 {
            self.favour -= 1;
            return group;
        }
        if backward {
            self.spin += if polled { POLL_WEIGHT } else { 1 };
        }
        let chosen = if self.spin >= SPIN_LIMIT {
            let longest_ago =
                ready().min_by_key(|(_, other)| other.last_run).map_or(behind, |(index, _)| index);
            self.spin = 0;
            self.favour = FAVOUR_BRANCHES;
            longest_ago
        } else if place < group.place() {
            behind
        } else {
            return group;
        };
        self.asides += 1;
        group.last_run = self.asides;
        group.wait = Wait::Ready;
        self.others.push(group);
        self.take(chosen)
    }

    /// Lets the lanes that wait at a barrier go on; `answer` gets each group's lanes and its barrier.
    pub(crate) fn release(&mut self, id: u8, mut answer: impl FnMut(&mut Registers, u32, u32)) {
        for other in &mut self.others {
            if other.wait == Wait::Barrier(id) {
                other.wait = Wait::Ready;
                answer(&mut self.registers, other.mask, other.position - 1);
            }
        }
    }
}

/// Whether the instruction reads what another thread may be about to write.
fn is_poll(op: &Op) -> bool {
    match op {
        Op::Load { polls, .. } => *polls,
        Op::SharedBarrier { act, .. } => matches!(**act, SharedBarrier::Test { .. }),
        Op::Atomic { op, .. } => matches!(op, AtomicOp::CompareAndSwap | AtomicOp::Exchange),
        _ => false,
    }
}

fn trap(failure: Failure, entry: &str, line: u32) -> Trap {
    let entry = entry.to_owned();
    match failure {
        Failure::Illegal(address) => Trap::IllegalAddress { address, entry, line },
        Failure::Misaligned(address) => Trap::MisalignedAddress { address, entry, line },
        Failure::Trapped => Trap::Trapped { entry, line },
        Failure::Assertion => Trap::AssertionFailed { entry, line },
        Failure::StackOverflow => Trap::StackOverflow { entry, line },
        Failure::InvalidCall => Trap::InvalidCall { entry, line },
    }
}
