//! Whole lives of the scheduler, thousands of them, each from one number.
//!
//! Honest programs, liars and silent members on small devices; delays, crashes, stalled drains,
//! restarts of the daemon. After every step of the core the oracles of `world` look at what it
//! did. `TURNUS_SEED=123` repeats one life; a failure prints its seed and the last 50 events.

mod liar;
mod program;
mod random;
mod world;

use world::World;

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("TURNUS_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..std::env::var("TURNUS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000),
    }
}

fn live(seed: u64) -> world::Summary {
    let mut world = World::new(seed);
    let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
    match lived {
        Ok(summary) => summary,
        Err(cause) => {
            println!("life of seed {seed} failed; repeat with TURNUS_SEED={seed}\n{}", world.last_events());
            std::panic::resume_unwind(cause)
        }
    }
}

#[test]
fn no_life_breaks_a_rule() {
    let (mut turns, mut drains, mut evictions, mut restarts, mut shorts) = (0, 0, 0, 0, 0);
    let seeds = seeds();
    let many = seeds.end - seeds.start > 100;
    for seed in seeds {
        let summary = live(seed);
        turns += summary.turns;
        drains += summary.drains;
        evictions += summary.evictions;
        restarts += summary.restarts;
        shorts += summary.shorts;
    }
    println!(
        "{turns} turns, {drains} drains, {evictions} evictions, {restarts} restarts, {shorts} shortages"
    );
    if many {
        // A simulation in which nothing happens proves nothing.
        assert!(turns > 1000 && drains > 100 && evictions > 100 && restarts > 10 && shorts > 10);
    }
}

#[test]
fn a_seed_means_the_same_life() {
    for seed in [3, 14, 159] {
        assert_eq!(live(seed), live(seed));
    }
}
