//! Calls in which the driver takes memory of its own: when it has none, room is made.
//!
//! Contexts, modules, graphs and limits take device memory that no credit covers. The call is
//! made; only if the driver is out of memory the daemon is asked to move others' bytes away, and
//! the call is made again, a few times, since freed memory is scrubbed before it can be used.

use crate::contexts;
use crate::member;
use crate::message;
use core::time::Duration;
use turnus_bindings::{CUerror, CUresult};
use turnus_protocol::{ClientMessage, DaemonMessage, DeviceUuid};

/// First guess of what the driver lacks; doubled at each further attempt.
const FIRST_GUESS_BYTES: u64 = 64 << 20;
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// Makes the call; on `CUDA_ERROR_OUT_OF_MEMORY` makes room and tries again. `device`: whose
/// memory; `None` for that of the calling thread's context.
pub(crate) fn with_room(name: &str, device: Option<DeviceUuid>, call: impl Fn() -> CUresult) -> CUresult {
    let mut result = call();
    if result != Err(CUerror::OUT_OF_MEMORY) {
        return result;
    }
    let Some(device) = device.or_else(contexts::device_of_current) else { return result };
    for attempt in 0..ATTEMPTS {
        let Some(member) = member::current() else { break };
        let bytes = FIRST_GUESS_BYTES << attempt;
        let answer = member.requests.ask(&member.connection, |request| ClientMessage::HeadRoomWanted {
            request,
            device,
            bytes,
        });
        message::debug(|| format!("{name} is out of memory; {bytes} bytes wanted: {answer:?}"));
        let Ok((DaemonMessage::HeadRoomMade { bytes: made, .. }, _, _)) = answer else { break };
        std::thread::sleep(FIRST_PAUSE * (1 << attempt));
        result = call();
        if result != Err(CUerror::OUT_OF_MEMORY) || made == 0 {
            break;
        }
    }
    result
}
