//! Divergence, barriers, lanes that meet, threads that wait for each other, and interruption anywhere.
//!
//! The kernels are written so that a scheduler without fairness, or a wrong set of lanes, would not end or would
//! leave other numbers. Read next: `refusals.rs`.

mod common;

use common::{Flat, Parameters, finish, kernel, launch, run, text};
use proptest::prelude::*;
use turnus_simulated_ptx::{Module, Progress};

/// Runs a body on one warp; answers the first word of each lane's 64 bytes.
fn words(body: &str) -> Vec<u32> {
    let mut memory = Flat::new(64 * 32);
    run(&kernel(body), 1, 32, &Parameters::default().pointer(0), &mut memory);
    (0..32).map(|lane| memory.u32s(lane * 64, 1)[0]).collect()
}

#[test]
fn lanes_that_part_in_nested_branches_and_loops_meet_again() {
    let body = "mov.u32 %r1, 0; mov.u32 %r2, 0; and.b32 %r3, %r0, 1; setp.eq.u32 %p1, %r3, 1;
        @%p1 bra ODD;
        LOOP: setp.ge.u32 %p2, %r2, %r0; @%p2 bra DONE;
        add.u32 %r1, %r1, %r2; add.u32 %r2, %r2, 1;
        rem.u32 %r4, %r2, 3; setp.eq.u32 %p3, %r4, 0; @%p3 bra LOOP;
        add.u32 %r1, %r1, 100; bra LOOP;
        ODD: mul.lo.u32 %r1, %r0, 1000; setp.gt.u32 %p4, %r0, 20; @!%p4 bra DONE;
        add.u32 %r1, %r1, 7;
        DONE: activemask.b32 %r5; st.global.u32 [%rd1], %r1; st.global.u32 [%rd1+4], %r5;";
    let mut memory = Flat::new(64 * 32);
    run(&kernel(body), 1, 32, &Parameters::default().pointer(0), &mut memory);
    for lane in 0..32u32 {
        let expected = if lane % 2 == 1 {
            lane * 1000 + if lane > 20 { 7 } else { 0 }
        } else {
            (0..lane).map(|i| i + if (i + 1) % 3 == 0 { 0 } else { 100 }).sum()
        };
        assert_eq!(memory.u32s(lane as usize * 64, 2), [expected, u32::MAX], "lane {lane}");
    }
}

#[test]
fn a_table_of_branches_sends_each_lane_its_way() {
    let found = words(
        "and.b32 %r1, %r0, 3;
         ts: .branchtargets A, B, C, B;
         brx.idx %r1, ts;
         A: mov.u32 %r2, 10; bra.uni END;
         B: mov.u32 %r2, 20; bra.uni END;
         C: mov.u32 %r2, 30;
         END: st.global.u32 [%rd1], %r2;",
    );
    assert_eq!(found, (0..32).map(|lane| [10, 20, 30, 20][lane % 4]).collect::<Vec<u32>>());
}

#[test]
fn blocks_of_inline_assembly_have_labels_of_their_own() {
    let wait =
        "{ .reg .pred %q; .reg .b32 %n; mov.u32 %n, 0; LAB: add.u32 %n, %n, 1; setp.lt.u32 %q, %n, %r0;
        @%q bra LAB; add.u32 %r1, %r1, %n; }";
    let found = words(&format!("mov.u32 %r1, 0; {wait} {wait} st.global.u32 [%rd1], %r1;"));
    assert_eq!(found, (0..32u32).map(|lane| 2 * lane.max(1)).collect::<Vec<_>>());
}

#[test]
fn special_registers_tell_each_thread_its_place() {
    let body = "mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.x;
        mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.z; mov.u32 %r7, %ntid.x; mov.u32 %r8, %ntid.y;
        mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y; mov.u32 %r11, %laneid; mov.u32 %r12, %warpid;
        mov.u32 %r13, %lanemask_lt;
        mad.lo.u32 %r14, %r6, %r10, %r5; mad.lo.u32 %r14, %r14, %r9, %r4;
        mad.lo.u32 %r15, %r3, %r8, %r2; mad.lo.u32 %r15, %r15, %r7, %r1;
        mad.lo.u32 %r16, %r14, 60, %r15; mad.wide.u32 %rd2, %r16, 16, %rd0;
        st.global.v4.u32 [%rd2], {%r15, %r11, %r12, %r13};";
    let module = Module::parse(&kernel(body)).expect("loads");
    let mut started = launch(&module, [3, 2, 2], [5, 4, 3], 0, &Parameters::default().pointer(0));
    let mut memory = Flat::new(16 * 60 * 12);
    memory.bytes.fill(0xff);
    finish(&mut started, &mut memory, u64::MAX).expect("no trap");
    for thread in 0..720u32 {
        let (inside, lane) = (thread % 60, thread % 60 % 32);
        let expected = [inside, lane, inside / 32, (1u64 << lane) as u32 - 1];
        assert_eq!(memory.u32s(thread as usize * 16, 4), expected, "thread {thread}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn shuffles_read_the_lane_the_manual_names(
        mode in 0usize..4, b in prop::array::uniform32(0u32..64), clamp in 0u32..32, segment in 0usize..6,
    ) {
        let word = ["up", "down", "bfly", "idx"][mode];
        let segment = [0, 0x10, 0x18, 0x1c, 0x1e, 0x1f][segment];
        let c = segment << 8 | clamp;
        let mut memory = Flat::new(64 * 32);
        for (lane, b) in b.iter().enumerate() {
            memory.bytes[lane * 64..lane * 64 + 4].copy_from_slice(&b.to_le_bytes());
        }
        let body = format!(
            "ld.global.u32 %r1, [%rd1]; add.u32 %r2, %r0, 500;
             shfl.sync.{word}.b32 %r3|%p1, %r2, %r1, {c}, -1;
             selp.u32 %r4, 1, 0, %p1; st.global.u32 [%rd1+4], %r3; st.global.u32 [%rd1+8], %r4;"
        );
        run(&kernel(&body), 1, 32, &Parameters::default().pointer(0), &mut memory);
        for lane in 0..32i64 {
            let (distance, clamp, segment) = (i64::from(b[lane as usize] & 31), i64::from(clamp), i64::from(segment));
            let (highest, lowest) = ((lane & segment) | (clamp & !segment), lane & segment);
            let (source, inside) = match word {
                "up" => (lane - distance, lane - distance >= highest),
                "down" => (lane + distance, lane + distance <= highest),
                "bfly" => (lane ^ distance, lane ^ distance <= highest),
                _ => (lowest | (distance & !segment), lowest | (distance & !segment) <= highest),
            };
            let source = if inside { source } else { lane };
            let found = memory.u32s(lane as usize * 64 + 4, 2);
            prop_assert_eq!(found, [500 + source as u32, u32::from(inside)], "{} lane {}", word, lane);
        }
    }

    #[test]
    fn votes_and_matches_look_at_the_members(values in prop::array::uniform32(0u32..4), split in 0u32..33) {
        // The lanes below `split` and the others vote among themselves, in one instruction.
        let mut memory = Flat::new(64 * 32);
        for (lane, value) in values.iter().enumerate() {
            memory.bytes[lane * 64..lane * 64 + 4].copy_from_slice(&value.to_le_bytes());
        }
        let low = ((1u64 << split) - 1) as u32;
        let body = format!(
            "ld.global.u32 %r1, [%rd1]; setp.lt.u32 %p1, %r0, {split}; selp.b32 %r2, {low}, {high}, %p1;
             setp.eq.u32 %p2, %r1, 1;
             vote.sync.ballot.b32 %r3, %p2, %r2; vote.sync.all.pred %p3, %p2, %r2; vote.sync.any.pred %p4, %p2, %r2;
             vote.sync.uni.pred %p5, !%p2, %r2; match.any.sync.b32 %r4, %r1, %r2;
             match.all.sync.b32 %r5|%p6, %r1, %r2; redux.sync.add.u32 %r6, %r1, %r2;
             redux.sync.max.s32 %r7, %r1, %r2; redux.sync.xor.b32 %r8, %r1, %r2;
             selp.u32 %r9, 1, 0, %p3; selp.u32 %r10, 2, 0, %p4; selp.u32 %r11, 4, 0, %p5; selp.u32 %r12, 8, 0, %p6;
             or.b32 %r9, %r9, %r10; or.b32 %r9, %r9, %r11; or.b32 %r9, %r9, %r12;
             st.global.v4.u32 [%rd1+16], {{%r3, %r4, %r5, %r9}}; st.global.v4.u32 [%rd1+32], {{%r6, %r7, %r8, 0}};",
            high = !low,
        );
        run(&kernel(&body), 1, 32, &Parameters::default().pointer(0), &mut memory);
        for lane in 0..32u32 {
            let members: Vec<u32> = (0..32).filter(|other| (*other < split) == (lane < split)).collect();
            let mask = |keep: &dyn Fn(u32) -> bool| {
                members.iter().filter(|other| keep(**other)).fold(0, |mask, other| mask | 1u32 << other)
            };
            let value = |lane: u32| values[lane as usize];
            let ones = mask(&|other| value(other) == 1);
            let everyone = mask(&|_| true);
            let same = mask(&|other| value(other) == value(lane));
            let all_same = if same == everyone { everyone } else { 0 };
            let bits = u32::from(ones == everyone) | u32::from(ones != 0) << 1
                | u32::from(ones == 0 || ones == everyone) << 2 | u32::from(all_same != 0) << 3;
            let own = members.iter().map(|other| value(*other));
            let reduced = [own.clone().sum(), own.clone().max().unwrap_or(0), own.fold(0, |a, b| a ^ b), 0];
            prop_assert_eq!(memory.u32s(lane as usize * 64 + 16, 4), [ones, same, all_same, bits], "lane {}", lane);
            prop_assert_eq!(memory.u32s(lane as usize * 64 + 32, 4), reduced, "lane {}", lane);
        }
    }
}

#[test]
fn lanes_that_come_late_to_a_shuffle_are_waited_for() {
    // Odd lanes reach the shuffle by a branch that jumps over the even lanes' work and back.
    let found = words(
        "mov.u32 %r1, %r0; and.b32 %r2, %r0, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra LATER;
         NOW: shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1; bra END;
         LATER: mov.u32 %r4, 0;
         L: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r0; @%p2 bra L;
         add.u32 %r1, %r1, 100; bra NOW;
         END: st.global.u32 [%rd1], %r3;",
    );
    let expected: Vec<u32> =
        (0..32u32).map(|lane| (lane ^ 1) + if lane % 2 == 0 { 100 } else { 0 }).collect();
    assert_eq!(found, expected);
}

#[test]
fn exited_lanes_are_not_waited_for() {
    let found = words(
        "setp.ge.u32 %p1, %r0, 8; @%p1 exit; bar.warp.sync -1; vote.sync.ballot.b32 %r1, 1, -1; bar.sync 0;
         st.global.u32 [%rd1], %r1;",
    );
    assert_eq!(found[..8], [0xff; 8]);
    assert_eq!(found[8..], [0; 24]);
}

#[test]
fn lanes_of_one_warp_pass_a_lock_around() {
    // The loser's loop lies before the winner's way on: without fairness the winner would never release.
    let found = words(
        "TRY: atom.global.cas.b32 %r1, [%rd0+60], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra TRY;
         ld.volatile.global.u32 %r2, [%rd0+56]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%rd0+56], %r2;
         membar.gl; atom.global.exch.b32 %r3, [%rd0+60], 0;
         st.global.u32 [%rd1], %r2;",
    );
    let mut sorted = found.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=32).collect::<Vec<_>>(), "every lane held the lock once");
}

#[test]
fn a_lane_may_wait_for_another_without_polling_atomically() {
    let found = words(
        "setp.eq.u32 %p1, %r0, 0; @%p1 bra SET;
         WAIT: ld.relaxed.gpu.global.u32 %r1, [%rd0+60]; setp.eq.u32 %p2, %r1, 0; @%p2 bra WAIT; bra END;
         SET: mov.u32 %r1, 9; st.release.gpu.global.u32 [%rd0+60], 9;
         END: st.global.u32 [%rd1], %r1;",
    );
    assert_eq!(found, [9; 32]);
}

#[test]
fn blocks_of_a_grid_wait_for_each_other() {
    // A barrier over the whole grid: each block adds one and waits for all.
    let body = "mov.u32 %r1, %nctaid.x; setp.ne.u32 %p1, %r0, 0; @%p1 bra JOIN;
        atom.global.add.u32 %r2, [%rd0], 1;
        WAIT: ld.acquire.gpu.global.u32 %r3, [%rd0]; setp.lt.u32 %p2, %r3, %r1; @!%p2 bra JOIN;
        nanosleep.u32 100; bra WAIT;
        JOIN: bar.sync 0; red.global.add.u32 [%rd0+4], 1;";
    let module = Module::parse(&kernel(body)).expect("loads");
    for (blocks, resident) in [(16, None), (40, Some(40))] {
        let mut memory = Flat::new(8);
        let mut started = launch(&module, [blocks, 1, 1], [64, 1, 1], 0, &Parameters::default().pointer(0));
        if let Some(resident) = resident {
            started.set_resident_blocks(resident);
        }
        assert_eq!(started.run(&mut memory, 1_000_000, &|| 0), Ok(Progress::Finished), "{blocks} blocks");
        assert_eq!(memory.u32s(0, 2), [blocks, blocks * 64]);
    }
}

#[test]
fn a_kernel_that_waits_for_the_host_yields_until_the_host_acts() {
    let body = "WAIT: ld.volatile.global.u32 %r1, [%rd0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra WAIT;
        st.global.u32 [%rd1+4], %r1;";
    let module = Module::parse(&kernel(body)).expect("loads");
    let mut started = launch(&module, [2, 1, 1], [32, 1, 1], 0, &Parameters::default().pointer(0));
    let mut memory = Flat::new(64 * 32);
    for _ in 0..100 {
        assert_eq!(started.run(&mut memory, 777, &|| 0), Ok(Progress::Yielded));
    }
    memory.bytes[0] = 5;
    assert_eq!(started.run(&mut memory, 100_000, &|| 0), Ok(Progress::Finished));
    assert_eq!(memory.u32s(31 * 64 + 4, 1), [5]);
}

#[test]
fn a_barrier_that_cannot_open_yields_for_ever() {
    let body =
        "setp.eq.u32 %p1, %r0, 0; @%p1 bra L; bar.sync 1; bra E; L: bar.sync 2; E: st.global.u32 [%rd1], 1;";
    let module = Module::parse(&kernel(body)).expect("loads");
    let mut started = launch(&module, [1, 1, 1], [32, 1, 1], 0, &Parameters::default().pointer(0));
    let mut memory = Flat::new(64 * 32);
    for _ in 0..5 {
        assert_eq!(started.run(&mut memory, 1000, &|| 0), Ok(Progress::Yielded));
    }
    assert!(started.executed_instructions() < 100, "a warp that waits executes nothing");
    assert_eq!(memory.u32s(0, 1), [0]);
}

#[test]
fn barriers_reduce_predicates_over_the_block() {
    let body = "setp.lt.u32 %p1, %r0, 70; bar.red.popc.u32 %r1, 0, %p1; bar.red.and.pred %p2, 0, %p1;
        barrier.cta.red.or.pred %p3, 1, 128, !%p1; selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 1, 0, %p3;
        st.global.v4.u32 [%rd1], {%r1, %r2, %r3, 0};";
    let mut memory = Flat::new(64 * 128);
    run(&kernel(body), 1, 128, &Parameters::default().pointer(0), &mut memory);
    for thread in 0..128 {
        assert_eq!(memory.u32s(thread * 64, 4), [70, 0, 1, 0], "thread {thread}");
    }
}

#[test]
fn producers_arrive_and_consumers_wait() {
    // Warp 0 writes and arrives at barrier 1 without waiting; warp 1 waits there for 64 threads.
    let body = ".shared .align 4 .b8 s[128]; mov.u32 %r1, s; setp.ge.u32 %p1, %r0, 32; @%p1 bra CONSUMER;
        mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0; bar.arrive 1, 64; bra END;
        CONSUMER: bar.sync 1, 64; sub.u32 %r3, 63, %r0; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4];
        st.global.u32 [%rd1], %r5;
        END:";
    let module = Module::parse(&kernel(body)).expect("loads");
    for budget in [1, 3, 1000] {
        let mut memory = Flat::new(64 * 64);
        let mut started = launch(&module, [1, 1, 1], [64, 1, 1], 0, &Parameters::default().pointer(0));
        finish(&mut started, &mut memory, budget).expect("no trap");
        let found: Vec<u32> = (32..64).map(|thread| memory.u32s(thread * 64, 1)[0]).collect();
        assert_eq!(found, (0..32).rev().collect::<Vec<u32>>());
    }
}

/// Interrupted after every number of instructions, a kernel leaves the same bytes: also those that depend on the
/// order of floating-point additions.
#[test]
fn every_budget_gives_the_same_result() {
    let n = 160usize;
    let values: Vec<f32> = (0..n).map(|i| 1.0 / (i as f32 + 0.7)).collect();
    let input = || Flat::of(values.iter().map(|value| value.to_le_bytes()).chain([[0; 4]; 17]));
    let parameters = Parameters::default().pointer(0).pointer(4 * n).push((n as u32).to_le_bytes());
    let lock = kernel(
        "TRY: atom.global.cas.b32 %r1, [%rd0+700], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra TRY;
         ld.global.f32 %f1, [%rd0+696]; mad.rn.f32 %f1, %f1, 0f3F000000, 0f3F800000; st.global.f32 [%rd0+696], %f1;
         atom.global.exch.b32 %r3, [%rd0+700], 0;",
    );
    for (source, grid, block) in [(text("reduce_shared"), 3, 64), (text("reduce_warp"), 2, 64), (lock, 2, 8)]
    {
        let module = Module::parse(&source).expect("loads");
        let result = |budget: u64| {
            let mut memory = input();
            let mut started = launch(&module, [grid, 1, 1], [block, 1, 1], 0, &parameters);
            finish(&mut started, &mut memory, budget).expect("no trap");
            (memory.bytes, started.executed_instructions())
        };
        let (whole, executed) = result(u64::MAX);
        assert_ne!(whole, input().bytes, "the kernel does something");
        for budget in 1..=executed.min(400) {
            assert_eq!(result(budget), (whole.clone(), executed), "budget {budget}");
        }
    }
}

#[test]
fn a_launch_moves_between_threads() {
    let module = Module::parse(&text("hash_i64")).expect("loads");
    let parameters = Parameters::default().pointer(0).push(64u32.to_le_bytes());
    let mut started = launch(&module, [1, 1, 1], [64, 1, 1], 0, &parameters);
    let mut memory = Flat::new(8 * 64);
    assert_eq!(started.run(&mut memory, 100, &|| 0), Ok(Progress::Yielded));
    let other = std::thread::spawn(move || finish(&mut started, &mut memory, 100));
    assert_eq!(other.join().expect("no panic"), Ok(()));
}
