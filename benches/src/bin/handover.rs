//! A hand-over with nothing to move: from release to the next tenant's first launch.
//!
//! One tenant is a real program under the shim, waiting in `cuLaunchKernel`; the other is this bench,
//! speaking the protocol, so that the moment of its release is known exactly. Both read
//! CLOCK_MONOTONIC. The driver does nothing (`benches/workloads/null_driver.c`): a simulated launch
//! wakes engine threads, which is no part of a hand-over. The references are what the kernel needs at
//! least, in the same run: a packet that wakes a relay which wakes a sleeper on the same kind of page
//! (a hand-over is these two), and that sleeper alone.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use clap::Parser;
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{BufRead, BufReader, Lines};
use std::os::fd::OwnedFd;
use std::process::{ChildStdout, ExitCode};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use turnus_benches::stage::{Stage, quick_machine};
use turnus_benches::statistics::{Samples, machine};
use turnus_gate::page::{GatePage, GatePageWriter};
use turnus_protocol::limits::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use turnus_protocol::{ClientMessage, DaemonMessage, DeviceUuid, Epoch, decode, encode};
use turnus_scheduler::packet;

/// The program idles 20 ms between its launches.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Parser)]
struct Arguments {
    /// Hand-overs to measure.
    #[arg(long, default_value_t = 200)]
    rounds: usize,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut stage = Stage::new(&quick_machine(64 << 20, 1_000_000_000))?;
    let turns = stage.compile("turns.c", "turns", &["-DDRIVER_MAY_LACK"])?;
    stage.use_null_driver()?;
    stage.start_daemon(&["--idle-hold-ms", "1", "--quantum-ms", "60000"])?;
    // The program idles 20 ms after each launch and so gives its turn up; then it asks again.
    let mut child = stage
        .under_turnus("program", &turns)
        // On a busy machine it may launch twice before it is seen idle, so it goes on until it is killed.
        .args([(1 << 20).to_string(), i32::MAX.to_string(), "20".to_owned()])
        .spawn()
        .context("the program cannot be started")?;
    let mut lines = BufReader::new(child.stdout.take().context("a piped output is missing")?).lines();
    if lines.next().transpose()?.as_deref() != Some("ready") {
        bail!("the program does not start");
    }
    let device = stage.status()?.devices.first().context("the daemon knows no device")?.uuid.clone();
    let mut tenant = Tenant::join(&stage, parse_uuid(&device)?)?;
    let mut times = Vec::new();
    for _ in 0..arguments.rounds {
        times.push(tenant.hand_over(&mut lines)?);
    }
    drop(tenant);
    let _ = child.kill();
    child.wait()?;
    let ours = Samples::new(times);
    let (relay, futex) = (relay_floor(arguments.rounds)?, futex_floor(arguments.rounds)?);
    println!("hand-over with nothing to move, {} rounds, microseconds", ours.count());
    println!("  {:34} {:>8} {:>8} {:>8}", "", "p50", "p90", "p99");
    for (name, samples) in [
        ("release to first launch (target 50)", &ours),
        ("bare packet, then bare futex wake", &relay),
        ("bare futex wake", &futex),
    ] {
        let (p50, p90, p99) = (samples.median(), samples.quantile(0.9), samples.quantile(0.99));
        println!("  {name:34} {p50:>8.1} {p90:>8.1} {p99:>8.1}");
    }
    println!("  {:.2} times the bare packet and futex wake of the same run", ours.median() / relay.median());
    println!("  machine: {}", machine());
    Ok(ExitCode::SUCCESS)
}

/// This bench as a tenant of its own.
struct Tenant {
    socket: OwnedFd,
    waiting: GatePage,
}

impl Tenant {
    fn join(stage: &Stage, device: DeviceUuid) -> Result<Tenant> {
        let socket = packet::connect(&stage.socket())?;
        let say =
            |message: &ClientMessage| -> Result<()> { Ok(packet::send(&socket, &encode(message)?, None)?) };
        let (protocol, shim_version) = (PROTOCOL_VERSION, "bench".to_owned());
        say(&ClientMessage::Hello { protocol, shim_version, token: None, resume: None })?;
        let welcome =
            packet::receive(&socket, MESSAGE_BYTES_MAX)?.context("turnusd ended the conversation")?;
        let page = GatePage::map(welcome.descriptor.context("no gate page came")?)?;
        say(&ClientMessage::Device {
            device,
            name: "bench".to_owned(),
            total_bytes: 64 << 20,
            free_bytes: 60 << 20,
            virtual_bytes: 0,
            resident_bytes: 0,
            host_bytes: 0,
            pinned_bytes: 0,
            epoch: None,
        })?;
        say(&ClientMessage::Ready)?;
        Ok(Tenant { socket, waiting: page })
    }

    fn say(&self, message: &ClientMessage) -> Result<()> {
        Ok(packet::send(&self.socket, &encode(message)?, None)?)
    }

    /// Takes the turn when the program idles, lets it wait, gives the turn up; microseconds.
    fn hand_over(&mut self, lines: &mut Lines<BufReader<ChildStdout>>) -> Result<f64> {
        self.say(&ClientMessage::TurnRequested)?;
        let epoch = self.wait_for_grant()?;
        let start = Instant::now();
        while self.waiting.others_waiting() == 0 {
            if start.elapsed() > PATIENCE {
                bail!("the program does not ask for its turn");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        // It has asked; give it the time to fall asleep.
        std::thread::sleep(Duration::from_millis(3));
        let released = now_ns();
        self.say(&ClientMessage::TurnReleased { epoch })?;
        loop {
            let line = lines.next().context("the program has ended")??;
            let launched: u64 = line
                .split(' ')
                .find_map(|word| word.strip_prefix("launched=")?.parse().ok())
                .with_context(|| format!("the program said {line}"))?;
            // An earlier one is of a launch before this bench had the turn.
            if let Some(time) = launched.checked_sub(released) {
                return Ok(time as f64 / 1000.0);
            }
        }
    }

    fn wait_for_grant(&self) -> Result<Epoch> {
        loop {
            let packet = packet::receive(&self.socket, MESSAGE_BYTES_MAX)?
                .context("turnusd ended the conversation")?;
            match decode::<DaemonMessage>(&packet.bytes)? {
                DaemonMessage::TurnGranted { epoch } => return Ok(epoch),
                DaemonMessage::Rejected { reason, text } => bail!("turnusd refuses ({reason}): {text}"),
                _ => {}
            }
        }
    }
}

/// The least that two wake-ups cost: a packet wakes a relay that does nothing but open the gate,
/// which wakes who waits for it. A thread each, which is cheaper than a process each.
fn relay_floor(rounds: usize) -> Result<Samples> {
    let (near, far) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &far, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let (writer, mut round) = (GatePageWriter::create()?, 0);
    let relay = move |writer: &GatePageWriter| {
        let (mut events, mut bytes) = (Vec::with_capacity(1), [0; 16]);
        round += 1;
        let _ = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None);
        let _ = packet::receive_with(&far, &mut bytes);
        writer.open(round);
    };
    wake_times(rounds, &writer, relay, |_| packet::send(&near, b"turn", None).map_err(Into::into))
}

/// One wake-up over a page as the daemon makes them.
fn futex_floor(rounds: usize) -> Result<Samples> {
    let (writer, mut round) = (GatePageWriter::create()?, 0);
    wake_times(
        rounds,
        &writer,
        |_| (),
        |writer| {
            round += 1;
            writer.open(round);
            Ok(())
        },
    )
}

/// From `begin` until a thread runs that slept on the page; `relay` runs on another one meanwhile.
fn wake_times(
    rounds: usize,
    writer: &GatePageWriter,
    mut relay: impl FnMut(&GatePageWriter) + Send,
    mut begin: impl FnMut(&GatePageWriter) -> Result<()>,
) -> Result<Samples> {
    let page = GatePage::map(writer.descriptor().try_clone_to_owned()?)?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let seen = page.word().load(Ordering::Acquire);
        let (woken, began) = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                while page.word().load(Ordering::Acquire) == seen {
                    page.wait_while(seen, Duration::from_secs(1));
                }
                now_ns()
            });
            scope.spawn(|| relay(writer));
            std::thread::sleep(Duration::from_millis(3));
            let began = now_ns();
            (begin(writer).map(|()| waiter.join()), began)
        });
        let woken = woken?.ok().context("the waiter failed")?;
        times.push(woken.saturating_sub(began) as f64 / 1000.0);
    }
    Ok(Samples::new(times))
}

fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn parse_uuid(text: &str) -> Result<DeviceUuid> {
    let digits: String = text.trim_start_matches("GPU-").chars().filter(char::is_ascii_hexdigit).collect();
    let mut bytes = [0u8; 16];
    if digits.len() != 32 {
        bail!("{text} is no UUID");
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[index * 2..index * 2 + 2], 16)?;
    }
    Ok(DeviceUuid(bytes))
}
