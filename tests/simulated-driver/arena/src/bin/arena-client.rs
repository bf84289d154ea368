//! A process that uses a machine as told by its arguments; the other side of the cross-process tests.
//!
//! Protocol: it prints `ready`, waits for a line on its input where the order says so, prints its result and
//! leaves when its input ends. It dies with its parent.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use turnus_simulated_arena::{Arena, ArenaError, Direction, Operation, now_ns};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let arena = Arena::open()?;
    match words.as_slice() {
        ["churn"] => churn(&arena),
        ["hold", bytes] => hold(&arena, bytes.parse()?),
        ["hold-and-fork", bytes] => hold_and_fork(&arena, bytes.parse()?),
        ["fill", bytes] => fill(&arena, bytes.parse()?),
        ["import", descriptor] => import(&arena, descriptor.parse()?),
        ["copy", direction, bytes] => copy(&arena, direction, bytes.parse()?),
        ["slices", milliseconds, slice_us] => slices(&arena, milliseconds.parse()?, slice_us.parse()?),
        ["keep-slice"] => keep_slice(&arena),
        ["measure"] => measure(&arena),
        _ => Err(format!("unknown order {words:?}").into()),
    }
}

fn say(line: impl std::fmt::Display) {
    println!("{line}");
    // The reader waits for the line; if it is gone the next wait for input ends this process.
    let _ = std::io::stdout().flush();
}

fn wait_for_line() {
    let mut line = String::new();
    // An end of input or an error both mean that the parent wants no more.
    let _ = std::io::stdin().lock().read_line(&mut line);
}

/// Change the tables in every way, as fast as possible, for ever.
fn churn(arena: &Arena) -> Result<(), Failure> {
    let mut random = now_ns() | 1;
    let mut below = |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    let (mut ids, mut charges) = (Vec::new(), Vec::new());
    let unit = arena.devices()[0].config.granularity_bytes;
    say("ready");
    loop {
        match below(6) {
            0 | 1 => match arena.allocate(0, unit * (1 + below(500))) {
                Ok(id) => ids.push(id),
                Err(ArenaError::OutOfMemory { .. }) => {}
                Err(other) => return Err(other.into()),
            },
            2 | 3 if !ids.is_empty() => arena.release(ids.swap_remove(below(ids.len() as u64) as usize))?,
            4 if !ids.is_empty() => {
                let id = ids[below(ids.len() as u64) as usize];
                let descriptor = arena.export(id)?;
                arena.import(std::os::fd::AsFd::as_fd(&descriptor))?;
                ids.push(id);
                let piece = arena.pieces(id)?[0];
                // SAFETY: the piece is held, and its first byte lies in this process's window.
                unsafe { piece.window_pointer.write_volatile(0xab) };
            }
            5 if charges.len() < 4 => charges.extend(arena.charge(0, 1 + below(unit)).ok()),
            5 => arena.discharge(charges.swap_remove(0))?,
            _ => {}
        }
    }
}

fn hold(arena: &Arena, bytes: u64) -> Result<(), Failure> {
    let id = arena.allocate(0, bytes)?;
    arena.charge(0, 1000)?;
    for piece in arena.pieces(id)? {
        // SAFETY: the piece is held, so all its bytes may be written.
        unsafe { std::ptr::write_bytes(piece.window_pointer, 0xcd, piece.bytes as usize) };
    }
    say("ready");
    wait_for_line();
    Ok(())
}

/// Allocate, then leave a child that has the descriptors; the child lives until the input ends.
fn hold_and_fork(arena: &Arena, bytes: u64) -> Result<(), Failure> {
    arena.allocate(0, bytes)?;
    // SAFETY: this process has one thread, so that the child may do anything.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refusal = arena.allocate(0, bytes);
        // Kept to the end of the child, and what it holds with it.
        let own = Arena::open_at(arena.directory());
        let is_right = matches!(refusal, Err(ArenaError::Forked))
            && own.as_ref().is_ok_and(|own| own.allocate(0, 4096).is_ok());
        say(if is_right { "child" } else { "child is not a client of its own" });
        wait_for_line();
    }
    // SAFETY: ends the process at once in parent and child, without running destructors, like a crash.
    unsafe { libc::_exit(0) }
}

fn fill(arena: &Arena, bytes: u64) -> Result<(), Failure> {
    say("ready");
    wait_for_line();
    let mut count = 0;
    while arena.allocate(0, bytes).is_ok() {
        count += 1;
    }
    say(count);
    wait_for_line();
    Ok(())
}

fn import(arena: &Arena, descriptor: i32) -> Result<(), Failure> {
    // SAFETY: the parent left this descriptor open for this process, and nobody here closes it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let id = arena.import(borrowed)?;
    // SAFETY: closing gives up the inherited export; `borrowed` is not used any more.
    unsafe { libc::close(borrowed.as_raw_fd()) };
    let piece = arena.pieces(id)?[0];
    // SAFETY: the piece is held by this client.
    say(unsafe { piece.window_pointer.read_volatile() });
    wait_for_line();
    Ok(())
}

/// Print the rate of one copy in bytes per second.
fn copy(arena: &Arena, direction: &str, bytes: usize) -> Result<(), Failure> {
    let direction = match direction {
        "in" => Direction::HostToDevice,
        "out" => Direction::DeviceToHost,
        _ => return Err("direction must be in or out".into()),
    };
    let (mut destination, source) = (vec![1_u8; bytes], vec![2_u8; bytes]);
    say("ready");
    wait_for_line();
    let (start, never) = (Instant::now(), AtomicBool::new(false));
    // SAFETY: both buffers have `bytes` bytes and live on.
    unsafe { arena.copy(0, direction, destination.as_mut_ptr(), source.as_ptr(), bytes as u64, &never)? };
    say((bytes as f64 / start.elapsed().as_secs_f64()) as u64);
    wait_for_line();
    Ok(())
}

fn slices(arena: &Arena, milliseconds: u64, slice_us: u64) -> Result<(), Failure> {
    say("ready");
    wait_for_line();
    let (start, mut count) = (Instant::now(), 0_u64);
    while start.elapsed() < Duration::from_millis(milliseconds) {
        let _slice = arena.engine_slice(0)?;
        turnus_simulated_arena::sleep_until(now_ns() + slice_us * 1000);
        count += 1;
    }
    say(count);
    wait_for_line();
    Ok(())
}

fn keep_slice(arena: &Arena) -> Result<(), Failure> {
    let _slice = arena.engine_slice(0)?;
    say("ready");
    wait_for_line();
    Ok(())
}

/// Print what operations cost here, in nanoseconds, and the rate of copies without a limit.
fn measure(arena: &Arena) -> Result<(), Failure> {
    let unit = arena.devices()[0].config.granularity_bytes;
    let per_call = |name: &str, count: u32, call: &mut dyn FnMut() -> Result<(), ArenaError>| {
        let start = Instant::now();
        for _ in 0..count {
            call()?;
        }
        say(format!("{name}: {} ns", start.elapsed().as_nanos() / u128::from(count)));
        Ok::<(), ArenaError>(())
    };
    per_call("allocate and release one unit", 2000, &mut || arena.release(arena.allocate(0, unit)?))?;
    let id = arena.allocate(0, 1000 * unit)?;
    per_call("hold and release", 10_000, &mut || arena.hold(id).and_then(|()| arena.release(id)))?;
    per_call("pieces of 1000 units", 10_000, &mut || arena.pieces(id).map(|pieces| drop(black_box(pieces))))?;
    per_call("export and close", 500, &mut || arena.export(id).map(drop))?;
    per_call("charge and discharge", 10_000, &mut || {
        arena.charge(0, 1).and_then(|charge| arena.discharge(charge))
    })?;
    per_call("memory", 2000, &mut || {
        arena.memory(0).map(|memory| {
            black_box(memory);
        })
    })?;
    per_call("engine slice", 10_000, &mut || arena.engine_slice(0).map(drop))?;
    per_call("link reserve of 0 bytes", 10_000, &mut || {
        arena.link_reserve(0, Direction::HostToDevice, 0).map(|deadline| {
            black_box(deadline);
        })
    })?;
    per_call("mapping cost", 50, &mut || arena.mapping_cost(0, Operation::Map, 1, 0))?;
    let bytes = 256 << 20;
    let (source, never) = (vec![7_u8; bytes as usize], AtomicBool::new(false));
    let big = arena.allocate(0, bytes)?;
    let piece = arena.pieces(big)?[0];
    for round in ["first touch", "again", "again"] {
        let start = Instant::now();
        // SAFETY: the piece is held and contiguous on an empty device, the source has as many bytes.
        unsafe {
            arena.copy(
                0,
                Direction::HostToDevice,
                piece.window_pointer,
                source.as_ptr(),
                piece.bytes,
                &never,
            )?;
        }
        say(format!("copy in, {round}: {:.2} GB/s", piece.bytes as f64 / start.elapsed().as_nanos() as f64));
    }
    let start = Instant::now();
    arena.release(big)?;
    say(format!("release of {bytes} written bytes: {} us", start.elapsed().as_micros()));
    Ok(())
}
