//! The ledger against a model too simple to be wrong: two maps and a subtraction.
//!
//! One tenant holds the turn and wants, two others are idle and return. Whatever they say, the
//! holder has at once got all that it wants or all that is free, and what is lacking is ordered
//! back as far as somebody has it.

use crate::harness::{DEVICE, Harness};
use proptest::prelude::*;
use turnus_core::{MemberMessage as Say, Output, ToMember};

#[derive(Debug, Clone)]
enum Move {
    Want(u64),
    Return(u64, u64),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        (0u64..600).prop_map(Move::Want),
        ((1u64..=3), (0u64..600)).prop_map(|(member, bytes)| Move::Return(member, bytes)),
    ];
    prop::collection::vec(one, 1..40)
}

#[derive(Default)]
struct Model {
    resident: [u64; 4],
    ordered: [u64; 4],
    wanted: u64,
    capacity: u64,
}

impl Model {
    fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.resident.iter().sum())
    }

    fn give(&mut self) -> u64 {
        let bytes = self.wanted.min(self.free());
        self.wanted -= bytes;
        self.resident[1] += bytes;
        bytes
    }
}

fn credits(outputs: &[Output]) -> u64 {
    let given = outputs.iter().map(|output| match output {
        Output::Send { message: ToMember::Credits { bytes, .. }, .. } => *bytes,
        _ => 0,
    });
    given.sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_agrees_with_the_model(moves in moves()) {
        let mut harness = Harness::with_tenants(3);
        for member in [2, 3] {
            harness.fill(member, 400);
            harness.release(member);
        }
        harness.say(1, Say::TurnRequested);
        let mut model = Model { resident: [0, 0, 400, 400], capacity: 1000, ..Model::default() };
        let mut orders = std::collections::BTreeMap::new();
        for step in moves {
            match step {
                Move::Want(bytes) => {
                    model.wanted += bytes;
                    harness.want(1, bytes);
                }
                Move::Return(member, bytes) => {
                    let bytes = bytes.min(model.resident[member as usize]);
                    model.resident[member as usize] -= bytes;
                    let ordered = &mut model.ordered[member as usize];
                    *ordered = ordered.saturating_sub(bytes);
                    let fulfilled = *ordered == 0;
                    harness.say(member, Say::CreditsReturned { device: DEVICE, bytes });
                    if let Some(order) = fulfilled.then(|| orders.remove(&member)).flatten() {
                        let before = harness.outputs.clone();
                        harness.say(member, Say::Evicted { device: DEVICE, order, pinned_bytes: 0 });
                        harness.outputs.extend(before);
                    }
                }
            }
            prop_assert_eq!(credits(&harness.outputs), model.give(), "{:?}", harness.outputs);
            for output in &harness.outputs {
                if let Output::Send { member, message: ToMember::Evict { bytes, order, .. } } = output {
                    prop_assert_eq!(model.ordered[member.0 as usize], 0, "two orders at once");
                    model.ordered[member.0 as usize] = *bytes;
                    orders.insert(member.0, *order);
                    let coming: u64 = model.ordered.iter().sum();
                    prop_assert!(coming <= model.wanted, "more was ordered than is lacking");
                }
            }
            for member in [1, 2, 3] {
                prop_assert_eq!(harness.line(member).resident_bytes, model.resident[member as usize]);
            }
            if model.wanted > 0 && model.ordered == [0; 4] {
                prop_assert_eq!(model.resident[2] + model.resident[3], 0, "lacking, and nobody was asked");
            }
        }
    }
}
