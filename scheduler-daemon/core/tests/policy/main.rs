//! The policy, rule by rule: each test names one promise and can only pass if it is kept.

mod exhaustive;
mod harness;
mod head_room;
mod ledger;
mod load;
mod memory;
mod recovery;
mod turns;
