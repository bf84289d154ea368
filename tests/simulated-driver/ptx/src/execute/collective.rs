//! shfl, vote, match, redux: values pass between the lanes of a warp.
//!
//! Which lanes take part together is decided in `warp.rs`; here they have met. Read next: `warp.rs`.

use super::atomic::apply;
use super::matrix;
use super::registers::{Registers, lanes_of};
use crate::program::{Collective, ShuffleMode, Slot, VoteResult};
use crate::types::{LANE_COUNT, Lanes, width_mask};

/// Performs the operation for the lanes of `active`. `members` gives each lane the lanes it looks at.
pub(super) fn collective(registers: &mut Registers, active: u32, kind: &Collective, members: Option<Slot>) {
    let members = match members {
        Some(slot) => registers.get(slot).map(|lanes| lanes as u32 & active),
        None => [active; LANE_COUNT],
    };
    match *kind {
        Collective::WarpBarrier => {}
        Collective::MatrixMultiply { product, ref d, ref a, ref b, ref c } => {
            matrix::multiply(registers, active, product, [d, a, b, c]);
        }
        Collective::Shuffle { mode, d, in_range, a, b, c } => {
            let (out, inside) = shuffle(mode, registers.get(a), registers.get(b), registers.get(c));
            registers.set(d, active, &out);
            if let Some(in_range) = in_range {
                registers.set_predicate(in_range, active, inside);
            }
        }
        Collective::Vote { result, predicate } => {
            let predicate = registers.guard(predicate);
            vote(registers, active, result, predicate, &members);
        }
        Collective::MatchAny { d, a, bits } => {
            let values = registers.get(a).map(|value| value & width_mask(bits));
            let mut out = [0; LANE_COUNT];
            for lane in lanes_of(active) {
                let same = lanes_of(members[lane]).filter(|other| values[*other] == values[lane]);
                out[lane] = same.fold(0, |mask, other| mask | 1 << other);
            }
            registers.set(d, active, &out);
        }
        Collective::MatchAll { d, all, a, bits } => {
            let values = registers.get(a).map(|value| value & width_mask(bits));
            let mut out = [0; LANE_COUNT];
            let mut agreed = 0;
            for lane in lanes_of(active) {
                if lanes_of(members[lane]).all(|other| values[other] == values[lane]) {
                    out[lane] = u64::from(members[lane]);
                    agreed |= 1 << lane;
                }
            }
            registers.set(d, active, &out);
            if let Some(all) = all {
                registers.set_predicate(all, active, agreed);
            }
        }
        Collective::Reduce { op, element, d, a } => {
            let values = *registers.get(a);
            let mut out = [0; LANE_COUNT];
            for lane in lanes_of(active) {
                let mut others = lanes_of(members[lane]).map(|other| values[other]);
                let first = others.next().unwrap_or(0);
                out[lane] = others.fold(first, |sum, value| apply(op, element, sum, value, 0));
            }
            registers.set(d, active, &out);
        }
    }
}

/// Values and the mask of lanes whose source lies in range (PTX ISA, "shfl.sync").
fn shuffle(mode: ShuffleMode, a: &Lanes, b: &Lanes, c: &Lanes) -> (Lanes, u32) {
    let mut out = [0; LANE_COUNT];
    let mut inside = 0;
    for lane in 0..LANE_COUNT {
        let own = lane as i64;
        let distance = (b[lane] & 31) as i64;
        let clamp = (c[lane] & 31) as i64;
        let segment = (c[lane] >> 8 & 31) as i64;
        let lowest = own & segment;
        let highest = lowest | (clamp & !segment);
        let (source, in_range) = match mode {
            ShuffleMode::Up => (own - distance, own - distance >= highest),
            ShuffleMode::Down => (own + distance, own + distance <= highest),
            ShuffleMode::Butterfly => (own ^ distance, own ^ distance <= highest),
            ShuffleMode::Index => {
                let source = lowest | (distance & !segment);
                (source, source <= highest)
            }
        };
        let source = if in_range { source } else { own };
        out[lane] = a[(source & 31) as usize] & width_mask(32);
        inside |= u32::from(in_range) << lane;
    }
    (out, inside)
}

fn vote(
    registers: &mut Registers,
    active: u32,
    result: VoteResult,
    predicate: u32,
    members: &[u32; LANE_COUNT],
) {
    let decide = |holds: &dyn Fn(u32, u32) -> bool| {
        let agreeing = lanes_of(active).filter(|lane| holds(predicate & members[*lane], members[*lane]));
        agreeing.fold(0u32, |mask, lane| mask | 1 << lane)
    };
    match result {
        VoteResult::All(d) => registers.set_predicate(d, active, decide(&|yes, all| yes == all)),
        VoteResult::Any(d) => registers.set_predicate(d, active, decide(&|yes, _| yes != 0)),
        VoteResult::Uniform(d) => {
            registers.set_predicate(d, active, decide(&|yes, all| yes == all || yes == 0));
        }
        VoteResult::Ballot(d) => {
            let ballots = members.map(|members| u64::from(predicate & members));
            registers.set(d, active, &ballots);
        }
    }
}
