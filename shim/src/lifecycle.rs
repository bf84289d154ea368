//! When the shim begins, what ends it, and what a fork makes of it.
//!
//! It begins when the program's `cuInit` has succeeded, not before. It ends in the exit handler
//! that is registered then, so that it runs before the driver's own: the worker stops, the daemon
//! hears goodbye, nothing is restored. The child of a fork starts from nothing: it is a member
//! only if it initialises CUDA itself. Nothing here exits, aborts or blocks without a bound,
//! except where the person asked for it (`TURNUS_WHEN_DAEMON_MISSING=wait`).

use crate::boundary::{self, Guard};
use crate::client::{self, NoDaemon};
use crate::config::{Config, WhenDaemonMissing};
use crate::connection::Connection;
use crate::marks;
use crate::member::{self, Member};
use crate::memory;
use crate::message;
use crate::real;
use crate::scheduler::MemoryScheduler;
use crate::worker;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use core::time::Duration;
use std::time::Instant;
use turnus_bindings::types::c_uint;
use turnus_bindings::{CUerror, CUresult, fns};
use turnus_protocol::ClientMessage;

/// Where this process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// CUDA has not been initialised.
    Uninitialised,
    /// The daemon is being looked for.
    Starting,
    /// A member, connected.
    Active,
    /// A member whose daemon is lost; it is looked for again.
    Lost,
    /// No member: everything goes straight to the driver.
    PassThrough,
    /// The process is ending.
    Detached,
}

static STATE: AtomicU8 = AtomicU8::new(State::Uninitialised as u8);

/// How often a missing daemon is looked for again.
const LOOK_FOR_DAEMON: Duration = Duration::from_millis(250);
/// How long a program that `turnus run` started looks for its daemon: there was one a moment ago, so
/// it is being restarted.
const RESTART_PATIENCE: Duration = Duration::from_secs(5);
/// How long the process's end waits for the worker to leave the driver.
const WORKER_STOP: Duration = Duration::from_millis(500);

/// Where this process stands.
pub(crate) fn state() -> State {
    use State::*;
    let number = STATE.load(Ordering::Acquire);
    [Uninitialised, Starting, Active, Lost, PassThrough, Detached][usize::from(number)]
}

/// Whether the process is ending.
pub(crate) fn is_detached() -> bool {
    state() == State::Detached
}

/// Goes from one state to another; false if this process stands elsewhere.
pub(crate) fn change(from: State, to: State) -> bool {
    STATE.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Handler of `cuInit`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn initialise(real: fns::cuInit, flags: c_uint) -> CUresult {
    // SAFETY: the argument is passed through.
    unsafe { real(flags) }?;
    while !change(State::Uninitialised, State::Starting) {
        match state() {
            // Another thread is at it; whoever returns from cuInit finds it done.
            State::Starting => std::thread::sleep(Duration::from_millis(1)),
            State::Uninitialised => continue,
            _ => return Ok(()),
        }
    }
    let (result, next) = match boundary::quietly(start) {
        Some(Ok(next)) => (Ok(()), next),
        Some(Err(error)) => (Err(error), State::Uninitialised),
        None => {
            message::error("a fault inside the shim at its start; the program runs unscheduled");
            (Ok(()), State::PassThrough)
        }
    };
    change(State::Starting, next);
    result
}

fn start() -> Result<State, CUerror> {
    let (config, complaints) = Config::of_this_process();
    message::set_verbosity(config.verbosity);
    // Ours is one line and an error of the driver; the default would print a stack.
    std::panic::set_hook(Box::new(|panic| message::debug(|| panic.to_string())));
    complaints.iter().for_each(|complaint| message::error(complaint));
    let mut said = false;
    let began = Instant::now();
    let patience = if config.token.is_some() { RESTART_PATIENCE } else { Duration::ZERO };
    let (socket, welcome) = loop {
        let reason = match client::find_daemon(&config, None) {
            Ok(found) => break found,
            Err(reason) => reason,
        };
        let is_away = matches!(reason, NoDaemon::Away(_));
        match config.when_daemon_missing {
            WhenDaemonMissing::Run | WhenDaemonMissing::Refuse if is_away && began.elapsed() < patience => {
                std::thread::sleep(LOOK_FOR_DAEMON);
            }
            WhenDaemonMissing::Run => {
                message::error(&format!("{reason}; the program runs unscheduled"));
                return Ok(State::PassThrough);
            }
            WhenDaemonMissing::Refuse => {
                message::error(&format!("{reason}; CUDA is refused"));
                return Err(CUerror::SYSTEM_NOT_READY);
            }
            WhenDaemonMissing::Wait => {
                if !said {
                    message::error(&format!("{reason}; waiting for it"));
                }
                said = true;
                std::thread::sleep(LOOK_FOR_DAEMON);
            }
        }
    };
    let handle_bytes = welcome.settings.handle_bytes;
    let member: &'static Member =
        Box::leak(Box::new(Member::new(config, Connection::new(socket), welcome.page, welcome.settings)));
    register_handlers();
    if let Some(api) = real::api() {
        let driver = Box::new(memory::RealDriver::new(api));
        memory::install(driver, Box::new(MemoryScheduler(member)), handle_bytes);
    }
    member.connection.send(&ClientMessage::Ready);
    let identity = welcome.identity;
    let started = spawn("turnus-client", move || client::run(member, identity))
        .and_then(|()| spawn("turnus-worker", move || worker::run(member)))
        .and_then(|()| spawn("turnus-waiter", move || worker::run_waiter(member)));
    if let Err(error) = started {
        message::error(&format!("no thread could be started ({error}); the program runs unscheduled"));
        member.connection.close();
        return Ok(State::PassThrough);
    }
    member::set_current(Some(member));
    message::debug(|| format!("member {} of {}", identity.member.0, welcome.tenant_name));
    Ok(State::Active)
}

/// Starts a thread of ours, which receives no signals: they are the program's.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // SAFETY: the sets are filled before use; the mask of the calling thread is put back.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            Guard::enter_for_ever();
            if boundary::quietly(run).is_none() {
                message::error("a fault in a thread of the shim; work of this program may wait for ever");
            }
        });
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        thread.map(drop)
    }
}

fn register_handlers() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        // SAFETY: both handlers are functions of this library, which is never unloaded.
        unsafe {
            libc::atexit(at_exit);
            libc::pthread_atfork(None, None, Some(in_child));
        }
    }
}

extern "C" fn at_exit() {
    boundary::quietly(|| {
        STATE.store(State::Detached as u8, Ordering::Release);
        let Some(member) = member::current() else { return };
        // From here on every gated call is refused, as the driver does when it is being torn down.
        member::set_current(None);
        {
            let _turn = member.turn();
            member.gate.close();
        }
        member.requests.end();
        member.wake_waiting_threads();
        member.waiter.stop(WORKER_STOP / 2);
        member.worker.stop(WORKER_STOP);
        member.report_unhandled();
        member.connection.send(&ClientMessage::Goodbye);
    });
}

/// Only what is allowed between fork and exec: atomics, thread-locals, `close`.
extern "C" fn in_child() {
    if let Some(member) = member::current() {
        let socket = member.connection.raw();
        if socket >= 0 {
            // SAFETY: the child's copy of our socket, which nothing in the child uses: the value
            // that owns it is leaked and never reached again.
            unsafe { libc::close(socket) };
        }
    }
    member::set_current(None);
    memory::forget();
    marks::forget_in_child();
    Guard::forget_in_child();
    STATE.store(State::Uninitialised as u8, Ordering::Release);
}
