//! Whole lives of the scheduler, thousands of them, each from one number.
//!
//! Honest programs, liars and silent members on small devices; delays, crashes, stalled drains,
//! restarts of the daemon. After every step of the core the oracles of `world` look at what it
//! did. `TURNUS_SEED=123` repeats one life; a failure prints its seed and the last 50 events.

mod liar;
mod life;
mod oracle;
mod program;
mod random;
mod world;

use world::World;

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("TURNUS_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..std::env::var("TURNUS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600),
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
    let mut sum = world::Summary::default();
    let seeds = seeds();
    let many = seeds.end - seeds.start > 100;
    for seed in seeds {
        sum.add(live(seed));
    }
    println!("{sum:?}");
    if many {
        // A simulation in which nothing happens proves nothing.
        assert!(sum.turns > 1000 && sum.drains > 100 && sum.evictions > 100 && sum.restarts > 10);
        assert!(sum.shorts > 10 && sum.admissions > 10 && sum.failed_drains > 10);
    }
}

#[test]
fn a_seed_means_the_same_life() {
    for seed in [3, 14, 159] {
        assert_eq!(live(seed), live(seed));
    }
}
