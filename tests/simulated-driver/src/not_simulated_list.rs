//! Keeps the list of functions that are not simulated, in README.md, equal to what the code does.
//!
//! A test compares; with `UPDATE_README=1` in the environment it writes the list instead. The prose around it, on
//! what is refused inside of functions that are simulated, is written by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const BEGIN: &str =
    "<!-- functions that are not simulated, written by the test of src/not_simulated_list.rs -->\n";
const END: &str = "<!-- end of the list -->";

/// Topics, by what names begin with; the first that fits counts.
const TOPICS: [(&str, &[&str]); 14] = [
    ("debugger, core dumps", &["cudbg", "cuCoredump"]),
    ("graphics and video", &["cuGL", "cuEGL", "cuGraphics", "cuVDPAU"]),
    (
        "external memory and semaphores",
        &[
            "cuImportExternal",
            "cuDestroyExternal",
            "cuExternal",
            "cuSignalExternal",
            "cuWaitExternal",
            "cuGraphAddExternal",
            "cuGraphExecExternal",
            "cuGraphExternal",
        ],
    ),
    (
        "textures and surfaces",
        &["cuTex", "cuSurf", "cuModuleGetTexRef", "cuModuleGetSurfRef", "cuParamSetTexRef"],
    ),
    ("tensor maps", &["cuTensorMap"]),
    (
        "arrays",
        &[
            "cuArray",
            "cuMipmapped",
            "cuMemMapArray",
            "cuMemcpyA",
            "cuMemcpyDtoA",
            "cuMemcpyHtoA",
            "cuDeviceGetTexture",
        ],
    ),
    (
        "green contexts and device resources",
        &[
            "cuGreen",
            "cuCtxFromGreen",
            "cuDevResource",
            "cuDevSmResource",
            "cuDeviceGetDevResource",
            "cuCtxGetDevResource",
            "cuStreamGetDevResource",
            "cuStreamGetGreen",
            "cuCtxRecordEvent",
            "cuCtxWaitEvent",
        ],
    ),
    ("multicast, fabric, logical endpoints", &["cuMulticast", "cuLogicalEndpoint", "cuFabric"]),
    ("checkpoints", &["cuCheckpoint"]),
    ("linking", &["cuLink"]),
    ("clusters", &["cuOccupancyMaxActiveClusters", "cuOccupancyMaxPotentialCluster"]),
    ("graphs", &["cuGraph"]),
    ("memory", &["cuMem"]),
    ("other", &[""]),
];

/// The lines between the marks: one per topic, base names with the endings of their versions.
fn list(functions: &BTreeMap<&'static str, bool>) -> String {
    let mut topics: BTreeMap<usize, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (name, _) in functions.iter().filter(|(_, simulated)| !**simulated) {
        let topic = TOPICS.iter().position(|(_, starts)| starts.iter().any(|start| name.starts_with(start)));
        // The versions of a function, and its forms for the stream of the thread, are named after it.
        let end = name.find('_').unwrap_or(name.len());
        let (base, ending) = name.split_at(end);
        topics.entry(topic.unwrap_or(TOPICS.len() - 1)).or_default().entry(base).or_default().insert(ending);
    }
    let mut text = String::new();
    for (topic, names) in topics {
        let names: Vec<String> = names
            .into_iter()
            .map(|(base, endings)| {
                match endings.into_iter().filter(|ending| !ending.is_empty()).collect::<Vec<_>>() {
                    endings
                        if functions.get(base).is_none_or(|simulated| !simulated) && !endings.is_empty() =>
                    {
                        format!("`{base}` ({})", endings.join(" "))
                    }
                    endings if endings.is_empty() => format!("`{base}`"),
                    endings => endings
                        .iter()
                        .map(|ending| format!("`{base}{ending}`"))
                        .collect::<Vec<_>>()
                        .join(", "),
                }
            })
            .collect();
        let _ = writeln!(text, "- {}: {}", TOPICS[topic].0, names.join(", "));
    }
    text
}

#[test]
fn the_readme_lists_every_function_that_is_refused_and_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let readme = std::fs::read_to_string(path).expect("README.md");
    let (before, rest) = readme.split_once(BEGIN).expect("the mark where the list begins");
    let (written, after) = rest.split_once(END).expect("the mark where the list ends");
    let now = list(&crate::exports::simulated());
    if std::env::var_os("UPDATE_README").is_some() {
        return std::fs::write(path, format!("{before}{BEGIN}{now}{END}{after}"))
            .expect("README.md is written");
    }
    assert_eq!(written, now, "README.md is behind the code; UPDATE_README=1 writes it anew");
}

#[test]
fn names_are_grouped_by_topic_with_their_versions() {
    let functions = BTreeMap::from([
        ("cuArrayCreate", false),
        ("cuArrayCreate_v2", false),
        ("cuMemAlloc", false),
        ("cuMemAlloc_v2", true),
        ("cuMemFree_v2", false),
        ("cuMemFree", true),
    ]);
    let expected = "- arrays: `cuArrayCreate` (_v2)\n- memory: `cuMemAlloc`, `cuMemFree_v2`\n";
    assert_eq!(list(&functions), expected);
}
