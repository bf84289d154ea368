//! `turnus status`: who holds each device and where the bytes are.
//!
//! A header line per device, a line per tenant; `--json` prints the daemon's document unchanged.

use crate::cli::{Failure, contact, find};
use crate::packet::PacketError;
use crate::{exit_code, size};
use std::fmt::Write as _;
use std::io::ErrorKind;
use turnus_protocol::admin::{AdminRequest, DeviceStatus, Status, TenantStatus};

/// Shows devices and tenants.
#[derive(Debug, clap::Args)]
pub struct StatusArguments {
    /// The daemon's own document
    #[arg(long)]
    pub json: bool,
}

/// Prints the state of the first daemon that answers.
pub fn run(arguments: &StatusArguments) -> Result<(), Failure> {
    let text = ask()?;
    if arguments.json {
        println!("{text}");
    } else {
        print!("{}", render(&parse(&text)?));
    }
    Ok(())
}

/// The document, or what the daemon said instead.
pub fn parse(text: &str) -> Result<Status, Failure> {
    serde_json::from_str(text).map_err(|_| {
        let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        match value["error"].as_str() {
            Some(error) => Failure::plain(format!("turnusd refuses: {error}")),
            None => {
                Failure::plain("turnusd speaks another language; install one release of turnus and turnusd")
            }
        }
    })
}

fn ask() -> Result<String, Failure> {
    for directory in find::candidate_directories() {
        match contact::ask(&directory, AdminRequest::Status) {
            Ok(text) => return Ok(text),
            Err(PacketError::Io { source, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
            Err(error) => {
                return Err(Failure::new(
                    exit_code::NO_DAEMON,
                    format!("{error}; status is for root and for the user who runs turnusd"),
                ));
            }
        }
    }
    Err(Failure::new(
        exit_code::NO_DAEMON,
        "no turnusd is running, so nothing is shared; turnus run starts a private one, turnusd a lasting one",
    ))
}

/// As people read it.
pub fn render(status: &Status) -> String {
    let mut text = String::new();
    if status.recovering {
        text.push_str("recovering: waiting for the members of the former turnusd\n");
    }
    for device in &status.devices {
        text.push_str(&device_line(device, status));
        let tenants: Vec<&TenantStatus> =
            status.tenants.iter().filter(|tenant| tenant.device == device.uuid).collect();
        text.push_str(&tenant_table(&tenants));
    }
    if status.devices.is_empty() {
        text.push_str("no program uses a device\n");
    }
    text
}

fn device_line(device: &DeviceStatus, status: &Status) -> String {
    let mut line = format!(
        "{} ({})  mode {}  wants {} of {}  holder {}",
        device.uuid,
        device.name,
        device.mode,
        size::show(device.wanted_bytes),
        size::show(device.capacity_bytes),
        device.holder.as_deref().unwrap_or("nobody"),
    );
    if let Some(left) = device.time_left_ms {
        let _ = write!(line, "  time left {left} ms");
    }
    let pool = &status.host_pool;
    let _ = write!(line, "  host pool {} of {}", size::show(pool.leased_bytes), size::show(pool.limit_bytes));
    if let Some(text) = &device.quarantined {
        let _ = write!(line, "  QUARANTINED: {text}");
    }
    line.push('\n');
    line
}

fn tenant_table(tenants: &[&TenantStatus]) -> String {
    const TITLES: [&str; 10] =
        ["TENANT", "STATE", "PIDS", "VIRTUAL", "RESIDENT", "HOST", "PINNED", "TURNS", "TURN/WAIT S", "NOTES"];
    if tenants.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 10]> = tenants.iter().map(|tenant| tenant_cells(tenant)).collect();
    let mut text = String::new();
    let titles = TITLES.map(str::to_owned);
    for row in std::iter::once(&titles).chain(&rows) {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let width =
                rows.iter().chain([&titles]).map(|row| row[column].chars().count()).max().unwrap_or(0);
            let _ = write!(line, " {cell:width$} ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn tenant_cells(tenant: &TenantStatus) -> [String; 10] {
    let pids: Vec<String> = tenant.pids.iter().map(u32::to_string).collect();
    let mut notes = tenant.reasons.clone();
    if let Some(place) = tenant.queue_place {
        notes.insert(0, format!("place {place}"));
    }
    if !tenant.unhandled.is_empty() {
        let calls: Vec<String> =
            tenant.unhandled.iter().map(|(name, count)| format!("{name} x {count}")).collect();
        notes.push(format!("unhandled: {}", calls.join(", ")));
    }
    [
        tenant.name.clone(),
        tenant.state.clone(),
        pids.join(","),
        size::show(tenant.virtual_bytes),
        size::show(tenant.resident_bytes),
        size::show(tenant.host_bytes),
        size::show(tenant.pinned_bytes),
        tenant.turns.to_string(),
        format!("{:.1}/{:.1}", tenant.turn_ms as f64 / 1000.0, tenant.wait_ms as f64 / 1000.0),
        notes.join("; "),
    ]
}
