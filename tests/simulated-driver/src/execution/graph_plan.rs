//! From a graph to the list that is launched, and whether two graphs have the same shape.
//!
//! Graphs inside are flattened between two joins; the order is that of dependencies, and of age where they
//! leave a choice, so that graphs of one shape have plans of one shape. Rules of comparison: CUDA driver API,
//! `cuGraphExecUpdate`. Next: `graph_exec.rs`.

use std::collections::BTreeMap;

use turnus_bindings::CUerror;

use super::graph::{Content, Graph, NodeId, NodeKind};
use super::work::Work;

/// One piece of a launch.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) node: NodeId,
    pub(super) content: Content,
    /// Earlier entries of the plan.
    pub(super) after: Vec<usize>,
    /// False for a node that does nothing until it is enabled again.
    pub(super) enabled: bool,
}

/// Why an instantiated graph cannot take over another one's parameters (`CUgraphExecUpdateResult`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Nodes or edges differ.
    Topology,
    /// A node is of another kind.
    Kind,
    /// A parameter changed that cannot.
    Parameters,
    /// An attribute changed that cannot.
    Attributes,
    /// The function changed in a way that it cannot.
    Function,
    /// A node cannot be updated at all.
    Unsupported,
}

/// Where two graphs differ: nodes are those of the new graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// How.
    pub difference: Difference,
    /// At which node; none when their numbers differ.
    pub node: Option<NodeId>,
    /// The dependency that does not match.
    pub from: Option<NodeId>,
}

/// Compares what two nodes of one kind hold.
pub type CompareContents<'a> = dyn Fn(&Content, &Content) -> Result<(), Difference> + 'a;

/// What is compared of a node.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) node: NodeId,
    pub(super) content: Content,
    /// Places of dependencies, in the order of edges.
    after: Vec<usize>,
    inside: Vec<Shape>,
}

impl Graph {
    /// The list to launch; `INVALID_VALUE` when there is a cycle.
    pub(super) fn plan(&self) -> Result<Vec<Planned>, CUerror> {
        let entries = self.entries.lock().clone();
        let mut plan = Vec::new();
        let mut placed: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut open: Vec<NodeId> = entries.keys().copied().collect();
        while !open.is_empty() {
            let before = open.len();
            let mut blocked = Vec::new();
            for node in open {
                let entry = &entries[&node];
                let after: Option<Vec<usize>> =
                    entry.dependencies.iter().map(|other| placed.get(other).copied()).collect();
                match after {
                    Some(after) => {
                        let last = place(&mut plan, node, &entry.content, after)?;
                        placed.insert(node, last);
                    }
                    None => blocked.push(node),
                }
            }
            if blocked.len() == before {
                return Err(CUerror::INVALID_VALUE);
            }
            open = blocked;
        }
        Ok(plan)
    }

    /// What is compared of the graph, oldest node first.
    pub(super) fn shape(&self) -> Vec<Shape> {
        let entries = self.entries.lock();
        let places: BTreeMap<NodeId, usize> =
            entries.keys().enumerate().map(|(place, node)| (*node, place)).collect();
        let shape = entries.iter().map(|(node, entry)| Shape {
            node: *node,
            content: entry.content.clone(),
            after: entry.dependencies.iter().map(|other| places[other]).collect(),
            inside: match &entry.content.work {
                Work::Child(graph) => graph.shape(),
                _ => Vec::new(),
            },
        });
        shape.collect()
    }
}

/// Appends a node's work, that of a graph inside between two joins; returns where it ends.
fn place(
    plan: &mut Vec<Planned>,
    node: NodeId,
    content: &Content,
    after: Vec<usize>,
) -> Result<usize, CUerror> {
    let Work::Child(graph) = &content.work else {
        plan.push(Planned { node, content: content.clone(), after, enabled: true });
        return Ok(plan.len() - 1);
    };
    let join = |after| Planned { node, content: Work::Nothing.into(), after, enabled: true };
    plan.push(join(after));
    let start = plan.len() - 1;
    let mut ends = vec![start];
    for child in graph.plan()? {
        let mut after: Vec<_> = child.after.iter().map(|index| index + start + 1).collect();
        after.push(start);
        plan.push(Planned { after, ..child });
        ends.push(plan.len() - 1);
    }
    plan.push(join(ends));
    Ok(plan.len() - 1)
}

/// Compares shapes, and contents by `compare`, in the order that the documentation gives.
pub(super) fn compare(old: &[Shape], new: &[Shape], compare: &CompareContents<'_>) -> Result<(), Mismatch> {
    let mismatch = |difference, node, from| Err(Mismatch { difference, node, from });
    if old.len() != new.len() {
        return mismatch(Difference::Topology, None, None);
    }
    let (old_exits, new_exits) = (exits(old), exits(new));
    if new_exits.len() > old_exits.len() {
        return mismatch(Difference::Topology, new_exits.last().map(|place| new[*place].node), None);
    }
    for (before, after) in old.iter().zip(new) {
        if before.after.len() != after.after.len() {
            return mismatch(Difference::Topology, Some(after.node), None);
        }
        if let Some((_, from)) = before.after.iter().zip(&after.after).find(|(old, new)| old != new) {
            return mismatch(Difference::Topology, Some(after.node), Some(new[*from].node));
        }
    }
    for (before, after) in old.iter().zip(new) {
        if before.content.kind != after.content.kind {
            return mismatch(Difference::Kind, Some(after.node), None);
        }
        if after.content.kind == NodeKind::Child {
            self::compare(&before.inside, &after.inside, compare)?;
        } else if let Err(difference) = compare(&before.content, &after.content) {
            return mismatch(difference, Some(after.node), None);
        }
    }
    Ok(())
}

/// Places of the nodes that nothing waits for.
fn exits(shape: &[Shape]) -> Vec<usize> {
    let waited: std::collections::BTreeSet<usize> =
        shape.iter().flat_map(|node| node.after.iter().copied()).collect();
    (0..shape.len()).filter(|place| !waited.contains(place)).collect()
}
