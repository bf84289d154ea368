//! What the memory asks of the daemon and the gate; see [`crate::memory::Scheduler`].

use crate::member::Member;
use crate::memory::{Lease, Scheduler};
use crate::requests::Unanswered;
use crate::unhandled;
use core::time::Duration;
use turnus_gate::word::READY_FOR_NONE;
use turnus_protocol::{ClientMessage, DaemonMessage, DeviceUuid, Reason};

/// How long an allocation waits for a lost daemon before it is refused.
const WAIT_FOR_DAEMON: Duration = Duration::from_secs(10);

/// The member, as its memory sees it.
#[derive(Debug)]
pub(crate) struct MemoryScheduler(pub(crate) &'static Member);

impl Scheduler for MemoryScheduler {
    fn reserve(&self, device: DeviceUuid, bytes: u64) -> Result<u64, Option<Reason>> {
        loop {
            let answer = self.0.requests.ask(&self.0.connection, |request| ClientMessage::Reserve {
                request,
                device,
                bytes,
            });
            match answer {
                Ok((DaemonMessage::Reserved { .. }, _, connection)) => return Ok(connection),
                Ok((DaemonMessage::Refused { reason, .. }, _, _)) => return Err(Some(reason)),
                Err(Unanswered::Lost) if self.0.requests.wait_for_daemon(WAIT_FOR_DAEMON) => {}
                _ => return Err(None),
            }
        }
    }

    fn query(&self, device: DeviceUuid) -> Option<(u64, u64)> {
        let answer =
            self.0.requests.ask(&self.0.connection, |request| ClientMessage::MemoryQuery { request, device });
        match answer {
            Ok((DaemonMessage::MemoryAnswer { total_bytes, free_bytes, .. }, _, _)) => {
                Some((total_bytes, free_bytes))
            }
            _ => None,
        }
    }

    fn lease(&self, bytes: u64) -> Option<Lease> {
        let answer = self
            .0
            .requests
            .ask(&self.0.connection, |request| ClientMessage::SegmentWanted { request, bytes });
        match answer {
            Ok((DaemonMessage::SegmentLeased { segment, bytes, .. }, Some(descriptor), connection)) => {
                Some(Lease { segment, bytes, descriptor, connection })
            }
            _ => None,
        }
    }

    fn send(&self, message: ClientMessage) {
        self.0.connection.send(&message);
    }

    fn frames_missing(&self) {
        // No barrier: the program does not know the new address yet.
        self.0.gate.set_ready(READY_FOR_NONE);
    }

    fn wake_worker(&self) {
        self.0.worker.want_tidy();
    }

    fn capture_is_open(&self) -> bool {
        self.0.captures.any_open()
    }

    fn submissions(&self) -> Option<u64> {
        unhandled::sees_all_work().then(|| self.0.marks.submissions())
    }
}
