//! Who has the turn for how long, as programs feel it.

use turnus_tests::contest::SHARE_BYTES;
use turnus_tests::{Road, Sandbox, Setup, compile};

/// Fault kind: thrashing. A pause of the host that is short beside a switch must not cost one.
#[test]
fn programs_with_short_pauses_do_not_move_their_bytes_at_each_of_them() {
    const ROUNDS: u64 = 40;
    let setup = Setup { link_bytes_per_s: 50_000_000, ..Setup::default() };
    let sandbox = Sandbox::new(setup.daemon(&["--quantum-ms", "2000"]));
    let (bytes, rounds) = (SHARE_BYTES.to_string(), ROUNDS.to_string());
    let chain = compile("chain", Road::Dlsym);
    let start = |name: &str| {
        sandbox.start_under(name, &chain, &["--bytes", &bytes, "--rounds", &rounds, "--host-ms", "10"])
    };
    let (mut first, mut second) = (start("first"), start("second"));
    let (mut turns, mut moved_bytes) = (0, 0);
    sandbox.wait_for("the end of both", &mut [&mut first, &mut second], |programs| {
        if let (Some(first), Some(second)) = (sandbox.tenant("first"), sandbox.tenant("second")) {
            turns = first.turns + second.turns;
            moved_bytes = first.to_host_bytes + second.to_host_bytes;
        }
        programs.iter_mut().all(|program| !program.is_running()).then_some(())
    });
    sandbox.wait(&mut first).assert_right();
    sandbox.wait(&mut second).assert_right();
    assert!(moved_bytes > 0, "the two did not compete");
    assert!(turns <= ROUNDS / 2, "{turns} turns for {ROUNDS} rounds each");
}
