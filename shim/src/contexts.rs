//! The live contexts of this process: where our threads may go, and which devices are in use.
//!
//! Contexts are only found, never made or kept, and made current only for the length of a call of
//! ours. Before one is destroyed or reset our threads and streams have left it. The daemon hears of
//! a device when its first context appears.

use crate::devices;
use crate::headroom::with_room;
use crate::member::{self, Member};
use crate::memory::{self, Context};
use crate::message;
use crate::real;
use core::ffi::c_int;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use turnus_bindings::types::*;
use turnus_bindings::{CUerror, CUresult, fns};
use turnus_protocol::{ClientMessage, DeviceUuid};

/// The contexts of a member.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    state: Mutex<State>,
    /// One of us has left a context.
    left: Condvar,
    /// Held while a context is destroyed: the driver may give its handle to a new one at once.
    ending: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    live: Vec<Live>,
    /// Devices that the daemon knows.
    announced: BTreeMap<DeviceUuid, CUdevice>,
    /// What it was told of them last.
    said: BTreeMap<DeviceUuid, ClientMessage>,
    /// Retains less releases of each primary context, as far as we saw them.
    retains: BTreeMap<CUdevice, u64>,
    faulted: BTreeMap<DeviceUuid, u32>,
}

#[derive(Debug, Clone, Copy)]
struct Live {
    context: Context,
    ordinal: CUdevice,
    uuid: DeviceUuid,
    is_primary: bool,
    /// How many of us have it current.
    inside: u32,
    is_leaving: bool,
}

/// Errors after which a context does no work any more.
const STICKY: [u32; 14] = [214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719, 720, 721, 999];

impl Contexts {
    /// Runs `act` inside the context; `None` if it is gone or about to go.
    fn inside<R>(&self, context: Context, act: impl FnOnce(&real::Api) -> R) -> Option<R> {
        let api = real::api()?;
        {
            let mut state = self.state();
            let live = state.live.iter_mut().find(|live| live.context == context && !live.is_leaving)?;
            live.inside += 1;
        }
        // SAFETY: the context is live and its destruction waits for us; what is current for the
        // calling thread is put back.
        let result = unsafe {
            match api.cuCtxPushCurrent_v2(context.0 as CUcontext) {
                Ok(()) => {
                    let result = act(api);
                    let mut popped: CUcontext = core::ptr::null_mut();
                    let _ = api.cuCtxPopCurrent_v2(&mut popped);
                    Some(result)
                }
                Err(_) => None,
            }
        };
        let mut state = self.state();
        if let Some(live) = state.live.iter_mut().find(|live| live.context == context) {
            live.inside -= 1;
        }
        self.left.notify_all();
        result
    }

    /// Waits for all work of all contexts. Only the waiter and the worker call this.
    pub(crate) fn synchronise(&self, member: &'static Member) {
        let live: Vec<Live> = self.state().live.clone();
        for live in live {
            // SAFETY: takes no argument; waits for the context that `inside` made current.
            let result = self.inside(live.context, |api| unsafe { api.cuCtxSynchronize() });
            if let Some(Err(error)) = result {
                self.note_fault(member, live.uuid, error);
            }
        }
    }

    /// An error came back from the device. True if it sticks: then the daemon is told, once.
    pub(crate) fn note_fault(&self, member: &Member, uuid: DeviceUuid, error: CUerror) -> bool {
        message::debug(|| format!("work of {uuid}: {error}"));
        let code = error.code();
        let sticks = STICKY.contains(&code);
        if sticks && self.state().faulted.insert(uuid, code).is_none() {
            // Under the turn's lock: nobody may ask for the next turn before the daemon has heard
            // that this one is over.
            let mut turn = member.turn();
            member.connection.send(&ClientMessage::Faulted { device: uuid, code });
            if turn.faulted() {
                member.gate.close();
                if let Some(memory) = memory::get() {
                    memory.turn_ended();
                }
            }
            drop(turn);
            member.wake_waiting_threads();
        }
        sticks
    }

    /// Tells the daemon what the driver says about the device's memory. Only the worker calls it.
    pub(crate) fn report_usage(&self, member: &Member, uuid: DeviceUuid) {
        let Some(live) = self.state().live.iter().find(|live| live.uuid == uuid).copied() else { return };
        if let Some(Some((total_bytes, free_bytes))) = self.inside(live.context, memory_info) {
            member.connection.send(&ClientMessage::Usage { device: uuid, total_bytes, free_bytes });
        }
    }

    /// Devices that the daemon was told about, with their messages anew, for a new daemon. Only
    /// the worker calls this.
    pub(crate) fn device_messages(&self) -> Vec<ClientMessage> {
        let announced: Vec<_> =
            self.state().announced.iter().map(|(uuid, ordinal)| (*uuid, *ordinal)).collect();
        announced.into_iter().filter_map(|(uuid, ordinal)| self.device_message(uuid, ordinal)).collect()
    }

    /// As far as they are known without asking the driver.
    pub(crate) fn last_device_messages(&self) -> Vec<ClientMessage> {
        self.state().said.values().cloned().collect()
    }

    fn device_message(&self, uuid: DeviceUuid, ordinal: CUdevice) -> Option<ClientMessage> {
        let fresh = self.ask_device(uuid, ordinal);
        let mut state = self.state();
        if let Some(message) = &fresh {
            state.said.insert(uuid, message.clone());
        }
        // Without a context nobody can be asked, but bytes may still be there.
        fresh.or_else(|| state.said.get(&uuid).cloned())
    }

    fn ask_device(&self, uuid: DeviceUuid, ordinal: CUdevice) -> Option<ClientMessage> {
        let context = self.state().live.iter().find(|live| live.uuid == uuid)?.context;
        let (name, (total_bytes, free_bytes)) =
            self.inside(context, |api| memory_info(api).map(|info| (devices::name_of(api, ordinal), info)))??;
        Some(ClientMessage::Device {
            device: uuid,
            name,
            total_bytes,
            free_bytes,
            virtual_bytes: 0,
            resident_bytes: 0,
            host_bytes: 0,
            pinned_bytes: 0,
            epoch: None,
        })
    }

    fn found(&self, member: &'static Member, context: Context, ordinal: CUdevice, is_primary: bool) {
        let Some(api) = real::api() else { return };
        let uuid = match devices::uuid_of(api, ordinal) {
            Ok(uuid) => uuid,
            Err(error) => {
                return message::error(&format!(
                    "device {ordinal} has no UUID ({error}); it stays unscheduled"
                ));
            }
        };
        drop(self.ending());
        let is_new_device = {
            let mut state = self.state();
            if state.live.iter().any(|live| live.context == context) {
                return;
            }
            let live = Live { context, ordinal, uuid, is_primary, inside: 0, is_leaving: false };
            state.live.push(live);
            state.announced.insert(uuid, ordinal).is_none()
        };
        if is_new_device {
            // Here and now: the daemon must know the device before this context's first call waits.
            match self.device_message(uuid, ordinal) {
                Some(message) => member.connection.send(&message),
                None => drop(self.state().announced.remove(&uuid)),
            }
        } else {
            member.worker.post(move |member| member.contexts.report_usage(member, uuid));
        }
        if let Some(memory) = memory::get()
            && let Err(error) = memory.context_created(context, ordinal, uuid)
        {
            message::error(&format!("memory of device {ordinal} stays with the driver: {error}"));
        }
    }

    /// Makes our threads leave the context and keeps them out.
    fn leave(&self, context: Context) {
        let mut state = self.state();
        match state.live.iter_mut().find(|live| live.context == context) {
            Some(live) => live.is_leaving = true,
            None => return,
        }
        while state.live.iter().any(|live| live.context == context && live.inside > 0) {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        if let Some(memory) = memory::get() {
            memory.context_leaving(context);
        }
    }

    /// After [`Contexts::leave`]: the context is gone, or stays after all.
    fn left(&self, context: Context, is_gone: bool) {
        let mut state = self.state();
        if is_gone {
            state.live.retain(|live| live.context != context);
            if let Some(member) = member::current().filter(|_| state.live.is_empty()) {
                member.captures.forget_all();
            }
        } else if let Some(live) = state.live.iter_mut().find(|live| live.context == context) {
            live.is_leaving = false;
        }
        drop(state);
        match memory::get() {
            Some(memory) if is_gone => memory.context_gone(context),
            Some(memory) => memory.context_stays(context),
            None => {}
        }
    }

    fn primary_of(&self, ordinal: CUdevice) -> Option<Context> {
        self.state()
            .live
            .iter()
            .find(|live| live.is_primary && live.ordinal == ordinal)
            .map(|live| live.context)
    }

    fn ending(&self) -> MutexGuard<'_, ()> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn memory_info(api: &real::Api) -> Option<(u64, u64)> {
    let (mut free, mut total) = (0usize, 0usize);
    // SAFETY: both may be written; the caller has made a context current.
    unsafe { api.cuMemGetInfo_v2(&mut free, &mut total) }.ok()?;
    Some((total as u64, free as u64))
}

/// The device of the calling thread's context, if it has one.
pub(crate) fn device_of_current() -> Option<DeviceUuid> {
    let api = real::api()?;
    let mut ordinal = 0;
    // SAFETY: `ordinal` may be written.
    unsafe { api.cuCtxGetDevice(&mut ordinal) }.ok()?;
    devices::uuid_of(api, ordinal).ok()
}

fn device_of(ordinal: CUdevice) -> Option<DeviceUuid> {
    devices::uuid_of(real::api()?, ordinal).ok()
}

/// Makes a call that makes a context, and notes what it made.
fn created(name: &str, context: *mut CUcontext, ordinal: CUdevice, call: impl Fn() -> CUresult) -> CUresult {
    with_room(name, device_of(ordinal), call)?;
    if let Some(member) = member::current() {
        // SAFETY: the driver has written the new context there.
        let context = unsafe { *context };
        member.contexts.found(member, Context(context as usize), ordinal, false);
    }
    Ok(())
}

/// Handler of `cuCtxCreate` and `cuCtxCreate_v2`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn create(
    real: fns::cuCtxCreate_v2,
    context: *mut CUcontext,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the arguments are passed through.
    created("cuCtxCreate", context, device, || unsafe { real(context, flags, device) })
}

/// Handler of `cuCtxCreate_v3`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn create_v3(
    real: fns::cuCtxCreate_v3,
    context: *mut CUcontext,
    parameters: *mut CUexecAffinityParam,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the arguments are passed through.
    created("cuCtxCreate", context, device, || unsafe { real(context, parameters, count, flags, device) })
}

/// Handler of `cuCtxCreate_v4`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn create_v4(
    real: fns::cuCtxCreate_v4,
    context: *mut CUcontext,
    parameters: *mut CUctxCreateParams,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the arguments are passed through.
    created("cuCtxCreate", context, device, || unsafe { real(context, parameters, flags, device) })
}

/// Handler of `cuCtxDestroy` and `cuCtxDestroy_v2`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn destroy(real: fns::cuCtxDestroy_v2, context: CUcontext) -> CUresult {
    let ours = member::current().map(|member| (member, Context(context as usize)));
    let _ending = ours.map(|(member, context)| {
        let ending = member.contexts.ending();
        member.contexts.leave(context);
        ending
    });
    // SAFETY: the argument is passed through.
    let result = unsafe { real(context) };
    if let Some((member, context)) = ours {
        member.contexts.left(context, result.is_ok());
    }
    result
}

/// Handler of `cuDevicePrimaryCtxRetain`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn primary_retain(
    real: fns::cuDevicePrimaryCtxRetain,
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the arguments are passed through.
    with_room("cuDevicePrimaryCtxRetain", device_of(device), || unsafe { real(context, device) })?;
    if let Some(member) = member::current() {
        *member.contexts.state().retains.entry(device).or_insert(0) += 1;
        // SAFETY: the driver has written the context there.
        let context = unsafe { *context };
        member.contexts.found(member, Context(context as usize), device, true);
    }
    Ok(())
}

/// Handler of `cuDevicePrimaryCtxRelease` and `cuDevicePrimaryCtxRelease_v2`.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn primary_release(real: fns::cuDevicePrimaryCtxRelease_v2, device: CUdevice) -> CUresult {
    let is_last = member::current().is_some_and(|member| {
        let mut state = member.contexts.state();
        let retains = state.retains.entry(device).or_insert(0);
        *retains = retains.saturating_sub(1);
        *retains == 0
    });
    // SAFETY: the argument is passed through.
    ending_primary(device, is_last, || unsafe { real(device) })
}

/// Handler of `cuDevicePrimaryCtxReset` and `cuDevicePrimaryCtxReset_v2`: the context is destroyed
/// whoever holds it.
///
/// # Safety
/// Arguments as of the driver's function.
pub(crate) unsafe fn primary_reset(real: fns::cuDevicePrimaryCtxReset_v2, device: CUdevice) -> CUresult {
    // SAFETY: the argument is passed through.
    ending_primary(device, true, || unsafe { real(device) })
}

fn ending_primary(device: CUdevice, may_end: bool, call: impl FnOnce() -> CUresult) -> CUresult {
    let primary = member::current()
        .filter(|_| may_end)
        .and_then(|member| Some((member, member.contexts.primary_of(device)?)));
    let Some((member, context)) = primary else { return call() };
    let _ending = member.contexts.ending();
    member.contexts.leave(context);
    let result = call();
    member.contexts.left(context, result.is_ok() && !is_primary_active(device));
    result
}

fn is_primary_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both may be written; the call makes no context.
    let asked =
        real::api().map(|api| unsafe { api.cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) });
    !matches!(asked, Some(Ok(()))) || active != 0
}
