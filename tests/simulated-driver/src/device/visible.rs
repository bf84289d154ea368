//! `CUDA_VISIBLE_DEVICES`: indices or UUID prefixes, in the order the program wants.
//!
//! As documented in the CUDA programming guide ("CUDA environment variables"): devices before the first
//! invalid entry are visible; a device named twice leaves none.

use turnus_simulated_arena::Device;

/// Indices on the machine of the visible ones of `devices`, by ordinal. `None` shows all.
pub fn choose(devices: &[&Device], wanted: Option<&str>) -> Vec<usize> {
    let Some(wanted) = wanted else { return devices.iter().map(|device| device.index).collect() };
    let mut chosen = Vec::new();
    for entry in wanted.split(',') {
        let Some(index) = find(devices, entry.trim()) else { break };
        if chosen.contains(&index) {
            return Vec::new();
        }
        chosen.push(index);
    }
    chosen
}

fn find(devices: &[&Device], entry: &str) -> Option<usize> {
    if let Ok(place) = entry.parse::<usize>() {
        return devices.get(place).map(|device| device.index);
    }
    let mut matching = devices.iter().filter(|device| {
        entry.len() > "GPU-".len()
            && uuid_text(&device.uuid).starts_with(&entry.to_ascii_lowercase().replace("gpu-", "GPU-"))
    });
    let first = matching.next()?;
    // An ambiguous prefix names nothing.
    matching.next().is_none().then_some(first.index)
}

/// `GPU-` and the usual groups of hex digits.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!(
        "GPU-{}-{}-{}-{}-{}",
        hex(&uuid[..4]),
        hex(&uuid[4..6]),
        hex(&uuid[6..8]),
        hex(&uuid[8..10]),
        hex(&uuid[10..])
    )
}
