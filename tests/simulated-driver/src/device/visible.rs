//! `CUDA_VISIBLE_DEVICES`: indices or UUID prefixes, in the order the program wants; and MIG devices.
//!
//! As documented in the CUDA programming guide ("CUDA environment variables"): devices before the first invalid entry
//! are visible; a device named twice leaves none. As the MIG user guide has it ("CUDA device enumeration"): a process
//! sees one MIG device and then no other device; of several the first one. A device in MIG mode stands for its first
//! part, and for nothing when it has none.

use turnus_simulated_arena::Device;

/// Indices on the machine of the visible ones of `devices`, by ordinal. Without `wanted` all of them.
pub fn choose(devices: &[&Device], wanted: Option<&str>) -> Vec<usize> {
    let named = match wanted {
        None => devices.iter().filter(|device| device.instance.is_none()).copied().collect(),
        Some(wanted) => named(devices, wanted),
    };
    let usable: Vec<&Device> = named.into_iter().filter_map(|device| usable(devices, device)).collect();
    match usable.iter().find(|device| device.instance.is_some()) {
        Some(part) => vec![part.index],
        None => usable.iter().map(|device| device.index).collect(),
    }
}

/// The device, or the part that stands for it.
fn usable<'a>(devices: &[&'a Device], device: &'a Device) -> Option<&'a Device> {
    if !device.is_divided() {
        return Some(device);
    }
    devices.iter().copied().find(|part| part.instance.is_some_and(|instance| instance.parent == device.index))
}

fn named<'a>(devices: &[&'a Device], wanted: &str) -> Vec<&'a Device> {
    let mut chosen: Vec<&Device> = Vec::new();
    for entry in wanted.split(',') {
        let Some(device) = find(devices, entry.trim()) else { break };
        if chosen.iter().any(|other| other.index == device.index) {
            return Vec::new();
        }
        chosen.push(device);
    }
    chosen
}

fn find<'a>(devices: &[&'a Device], entry: &str) -> Option<&'a Device> {
    let whole = || devices.iter().copied().filter(|device| device.instance.is_none());
    if let Ok(place) = entry.parse::<usize>() {
        return whole().nth(place);
    }
    let entry = entry.to_ascii_lowercase();
    if let Some(path) = entry.strip_prefix("mig-gpu-") {
        return find_by_path(devices, path);
    }
    let (kind, digits) = entry.split_at_checked("gpu-".len())?;
    let is_part = match kind {
        "gpu-" => false,
        "mig-" => true,
        _ => return None,
    };
    if digits.is_empty() {
        return None;
    }
    let mut matching = devices.iter().copied().filter(|device| {
        device.instance.is_some() == is_part && device.uuid_text()["gpu-".len()..].starts_with(digits)
    });
    let first = matching.next()?;
    // An ambiguous prefix names nothing.
    matching.next().is_none().then_some(first)
}

/// The older way to name MIG devices: `<uuid of the whole device>/<GPU instance>/<compute instance>`.
fn find_by_path<'a>(devices: &[&'a Device], path: &str) -> Option<&'a Device> {
    let mut parts = path.split('/');
    let (uuid, gpu_instance, compute_instance) = (parts.next()?, parts.next()?, parts.next()?);
    let (gpu_instance, compute_instance) =
        (gpu_instance.parse().ok()?, compute_instance.parse::<u32>().ok()?);
    let parent = find(devices, &format!("GPU-{uuid}"))?;
    let is_it = |device: &&Device| {
        device.instance.is_some_and(|part| part.parent == parent.index && part.gpu_instance == gpu_instance)
    };
    (compute_instance == 0 && parts.next().is_none()).then(|| devices.iter().copied().find(is_it)).flatten()
}
