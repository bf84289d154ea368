//! Watches the daemon's status while the programs run, and counts what the table will say.
//!
//! A sample every 20 ms. A switch is a turn that began after another tenant's; the time of the
//! switches is the part of the samples in which nobody's kernels could run. Both are seen from
//! outside: the daemon's own timing is not asked.

use super::DemoArguments;
use super::programs::Cast;
use super::stage::Stage;
use super::view::View;
use crate::cli::{Failure, contact, status};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use turnus_protocol::admin::{AdminRequest, Status, TenantStatus};

const SAMPLE: Duration = Duration::from_millis(20);

/// What was seen in all.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// Changes of the holder.
    pub switches: u64,
    /// From the first switch to the last sample.
    pub watched: Duration,
    /// Of that, time in which a tenant had the turn with all its bytes.
    pub running: Duration,
    /// By tenant name, the last seen counters.
    pub tenants: BTreeMap<String, TenantStatus>,
}

impl Seen {
    fn add(&mut self, status: &Status, elapsed: Duration) {
        let running = status.tenants.iter().any(|tenant| tenant.state.eq_ignore_ascii_case("running"));
        if self.switches > 0 {
            self.watched += elapsed;
            if running {
                self.running += elapsed;
            }
        }
        let turns: u64 = status.tenants.iter().map(|tenant| tenant.turns).sum();
        self.switches = self.switches.max(turns.saturating_sub(1));
        for tenant in &status.tenants {
            self.tenants.insert(tenant.name.clone(), tenant.clone());
        }
    }

    /// Time per switch in which nobody could compute.
    pub fn time_per_switch(&self) -> Option<Duration> {
        let idle = self.watched.saturating_sub(self.running);
        u32::try_from(self.switches).ok().filter(|switches| *switches > 0).map(|switches| idle / switches)
    }
}

/// Until enough switches have happened, or the time is over.
pub fn watch(
    stage: &Stage,
    cast: &mut Cast,
    arguments: &DemoArguments,
    limit: Duration,
) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    let mut view = View::new(arguments.plain, arguments.switches);
    let start = Instant::now();
    let mut last = start;
    while seen.switches < arguments.switches {
        std::thread::sleep(SAMPLE);
        cast.check_alive()?;
        let text = contact::ask(&stage.directory(), AdminRequest::Status)
            .map_err(|error| Failure::plain(format!("the demo's turnusd is gone: {error}")))?;
        let status = status::parse(&text)?;
        let now = Instant::now();
        seen.add(&status, now - last);
        last = now;
        view.show(&status, cast, &seen, start.elapsed());
        if start.elapsed() > limit {
            return Err(Failure::plain(format!(
                "only {} of {} switches in {} s",
                seen.switches,
                arguments.switches,
                limit.as_secs()
            )));
        }
    }
    view.end();
    Ok(seen)
}
