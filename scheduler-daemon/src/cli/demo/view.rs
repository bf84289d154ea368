//! What the demo prints: a live view in a terminal, plain lines elsewhere, a table at the end.
//!
//! Only formatting. The live view redraws its own lines and nothing above them.

use super::programs::{ActorResult, Cast};
use super::watch::Seen;
use crate::size::show;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use turnus_protocol::admin::{Status, TenantStatus};

const REDRAW: Duration = Duration::from_millis(100);
const BAR_CELLS: u64 = 40;

/// The view while it runs.
#[derive(Debug)]
pub struct View {
    live: bool,
    wanted: u64,
    drawn_lines: usize,
    last_draw: Option<Instant>,
    last_switches: u64,
}

impl View {
    /// Live in a terminal, unless plain lines are asked for.
    pub fn new(plain: bool, wanted: u64) -> View {
        let live = !plain && std::io::stdout().is_terminal();
        View { live, wanted, drawn_lines: 0, last_draw: None, last_switches: u64::MAX }
    }

    /// Shows one sample, if it is time to.
    pub fn show(&mut self, status: &Status, cast: &Cast, seen: &Seen, elapsed: Duration) {
        if !self.live {
            if seen.switches != self.last_switches {
                self.last_switches = seen.switches;
                println!("{}", plain_line(status, seen, elapsed));
            }
            return;
        }
        if self.last_draw.is_some_and(|last| last.elapsed() < REDRAW) {
            return;
        }
        self.last_draw = Some(Instant::now());
        let lines = live_lines(status, cast, seen, self.wanted, elapsed);
        let mut text = String::new();
        if self.drawn_lines > 0 {
            let _ = write!(text, "\x1b[{}A", self.drawn_lines);
        }
        for line in &lines {
            let _ = write!(text, "\x1b[2K{line}\r\n");
        }
        self.drawn_lines = lines.len();
        // A closed terminal ends the view, not the demo.
        let _ = std::io::stdout().write_all(text.as_bytes());
        let _ = std::io::stdout().flush();
    }

    /// Leaves the last picture where it is.
    pub fn end(&self) {
        println!();
    }
}

fn holder(status: &Status) -> &str {
    status.devices.first().and_then(|device| device.holder.as_deref()).unwrap_or("nobody")
}

fn plain_line(status: &Status, seen: &Seen, elapsed: Duration) -> String {
    let mut line =
        format!("{:6.1} s  switch {:3}  turn: {:16}", elapsed.as_secs_f64(), seen.switches, holder(status));
    for tenant in &status.tenants {
        let _ = write!(
            line,
            "  {} {}: {} on device, {} in host memory",
            tenant.name,
            tenant.state,
            show(tenant.resident_bytes),
            show(tenant.host_bytes)
        );
    }
    line
}

fn live_lines(status: &Status, cast: &Cast, seen: &Seen, wanted: u64, elapsed: Duration) -> Vec<String> {
    let mut lines = vec![format!(
        "{:6.1} s   switches {} of {wanted}   turn: {}",
        elapsed.as_secs_f64(),
        seen.switches,
        holder(status)
    )];
    for actor in &cast.actors {
        let tenant = status.tenants.iter().find(|tenant| tenant.name == actor.name);
        lines.push(match tenant {
            Some(tenant) => {
                format!("  {:16} {:10} {} round {}", actor.name, tenant.state, bar(tenant), actor.rounds())
            }
            None => format!("  {:16} starting", actor.name),
        });
    }
    lines
}

/// Device bytes as `#`, host bytes as `.`, of what the program has allocated.
fn bar(tenant: &TenantStatus) -> String {
    let total = tenant.virtual_bytes.max(1);
    let resident = (tenant.resident_bytes.min(total) * BAR_CELLS / total) as usize;
    let host = (tenant.host_bytes.min(total) * BAR_CELLS / total) as usize;
    let mut text = "#".repeat(resident);
    text.push_str(&".".repeat(host.min(BAR_CELLS as usize - resident)));
    format!("[{text:40}] {:>8} device {:>8} host", show(tenant.resident_bytes), show(tenant.host_bytes))
}

/// The last word.
pub fn table(seen: &Seen, results: &[ActorResult]) -> String {
    let mut text = format!(
        "{:16} {:>7} {:>7} {:>14} {:>14}  RESULT\n",
        "PROGRAM", "ROUNDS", "TURNS", "TO HOST", "TO DEVICE"
    );
    for result in results {
        let tenant = seen.tenants.get(&result.name);
        let cell = |value: fn(&TenantStatus) -> u64| {
            tenant.map_or_else(|| "-".to_owned(), |tenant| show(value(tenant)))
        };
        let _ = writeln!(
            text,
            "{:16} {:>7} {:>7} {:>14} {:>14}  {}",
            result.name,
            result.rounds,
            tenant.map_or(0, |tenant| tenant.turns),
            cell(|tenant| tenant.to_host_bytes),
            cell(|tenant| tenant.to_device_bytes),
            result.verdict
        );
    }
    let per_switch =
        seen.time_per_switch().map_or_else(|| "-".to_owned(), |time| format!("{:.3} s", time.as_secs_f64()));
    let _ = write!(
        text,
        "switches: {}, time per switch in which nobody could compute: {per_switch}",
        seen.switches
    );
    text
}
