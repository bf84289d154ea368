//! Graphs: work as a template (`Graph`), and instantiated for launch (`GraphExec`).
//!
//! Instantiation flattens children into one list in dependency order; a launch makes a node of
//! each entry behind the stream's last work. Two launches of one `GraphExec` never overlap
//! (CUDA driver API, `cuGraphLaunch`). Streams reach this through `Work::Graph`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use turnus_bindings::CUerror;

use super::context::ContextQueue;
use super::event::Mark;
use super::node::{Node, Task};
use super::stream::Stream;
use super::work::Work;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Names a node of a graph; unique in the process, so that it can serve as `CUgraphNode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

#[derive(Clone, Debug)]
struct Entry {
    work: Work,
    dependencies: Vec<NodeId>,
}

/// A `CUgraph`.
#[derive(Debug)]
pub struct Graph {
    id: u64,
    entries: Mutex<BTreeMap<NodeId, Entry>>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Arc<Graph> {
        Arc::new(Graph { id: next_id(), entries: Mutex::new(BTreeMap::new()) })
    }

    /// A number unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Adds a node; `INVALID_VALUE` when a dependency is not in the graph or comes twice.
    pub fn add_node(&self, work: Work, dependencies: &[NodeId]) -> Result<NodeId, CUerror> {
        let mut entries = self.entries.lock();
        let distinct: BTreeSet<_> = dependencies.iter().collect();
        if distinct.len() != dependencies.len() || dependencies.iter().any(|node| !entries.contains_key(node))
        {
            return Err(CUerror::INVALID_VALUE);
        }
        let node = NodeId(next_id());
        entries.insert(node, Entry { work, dependencies: dependencies.to_vec() });
        Ok(node)
    }

    /// Adds an edge (`cuGraphAddDependencies`); one that exists already is refused.
    pub fn add_edge(&self, from: NodeId, to: NodeId) -> Result<(), CUerror> {
        let mut entries = self.entries.lock();
        let known = entries.contains_key(&from) && from != to;
        match entries.get_mut(&to) {
            Some(entry) if known && !entry.dependencies.contains(&from) => entry.dependencies.push(from),
            _ => return Err(CUerror::INVALID_VALUE),
        }
        Ok(())
    }

    /// Removes an edge (`cuGraphRemoveDependencies`).
    pub fn remove_edge(&self, from: NodeId, to: NodeId) -> Result<(), CUerror> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&to).ok_or(CUerror::INVALID_VALUE)?;
        let position =
            entry.dependencies.iter().position(|node| *node == from).ok_or(CUerror::INVALID_VALUE)?;
        entry.dependencies.remove(position);
        Ok(())
    }

    /// Removes a node and its edges (`cuGraphDestroyNode`).
    pub fn remove_node(&self, node: NodeId) -> Result<(), CUerror> {
        let mut entries = self.entries.lock();
        entries.remove(&node).ok_or(CUerror::INVALID_VALUE)?;
        entries.values_mut().for_each(|entry| entry.dependencies.retain(|other| *other != node));
        Ok(())
    }

    /// All nodes, oldest first.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.entries.lock().keys().copied().collect()
    }

    /// What a node does.
    pub fn work(&self, node: NodeId) -> Option<Work> {
        self.entries.lock().get(&node).map(|entry| entry.work.clone())
    }

    /// Replaces what a node does (`cuGraphKernelNodeSetParams` and its like).
    pub fn set_work(&self, node: NodeId, work: Work) -> Result<(), CUerror> {
        self.entries.lock().get_mut(&node).ok_or(CUerror::INVALID_VALUE)?.work = work;
        Ok(())
    }

    /// What a node waits for.
    pub fn dependencies(&self, node: NodeId) -> Option<Vec<NodeId>> {
        self.entries.lock().get(&node).map(|entry| entry.dependencies.clone())
    }

    /// All edges as (from, to).
    pub fn edges(&self) -> Vec<(NodeId, NodeId)> {
        let entries = self.entries.lock();
        entries.iter().flat_map(|(to, entry)| entry.dependencies.iter().map(|from| (*from, *to))).collect()
    }

    /// A copy with nodes of its own, and which node became which (`cuGraphClone`).
    pub fn duplicate(&self) -> (Arc<Graph>, BTreeMap<NodeId, NodeId>) {
        let entries = self.entries.lock();
        let names: BTreeMap<_, _> = entries.keys().map(|node| (*node, NodeId(next_id()))).collect();
        let copied = entries.iter().map(|(node, entry)| {
            let dependencies = entry.dependencies.iter().map(|other| names[other]).collect();
            (names[node], Entry { work: entry.work.clone(), dependencies })
        });
        let graph = Graph { id: next_id(), entries: Mutex::new(copied.collect()) };
        (Arc::new(graph), names)
    }

    /// Makes the graph launchable; `INVALID_VALUE` when it has a cycle.
    pub fn instantiate(&self) -> Result<Arc<GraphExec>, CUerror> {
        let plan = self.plan()?;
        Ok(Arc::new(GraphExec { id: next_id(), plan: Mutex::new(Arc::new(plan)), last: Mutex::new(None) }))
    }

    /// Every node that `ends` wait for, and they themselves.
    pub(super) fn ancestors(&self, ends: &[NodeId]) -> BTreeSet<NodeId> {
        let entries = self.entries.lock();
        let mut found = BTreeSet::new();
        let mut open = ends.to_vec();
        while let Some(node) = open.pop() {
            if found.insert(node)
                && let Some(entry) = entries.get(&node)
            {
                open.extend(&entry.dependencies);
            }
        }
        found
    }

    fn plan(&self) -> Result<Vec<Planned>, CUerror> {
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
                        let last = place(&mut plan, node, &entry.work, after)?;
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
}

/// Appends a node's work, a child's flattened between two joins; returns where it ends.
fn place(plan: &mut Vec<Planned>, node: NodeId, work: &Work, after: Vec<usize>) -> Result<usize, CUerror> {
    let children = match work {
        Work::Child(graph) => graph.plan()?,
        Work::Graph(exec) => exec.plan.lock().to_vec(),
        work => {
            plan.push(Planned { node, work: work.clone(), after });
            return Ok(plan.len() - 1);
        }
    };
    plan.push(Planned { node, work: Work::Nothing, after });
    let start = plan.len() - 1;
    let mut ends = vec![start];
    for child in children {
        let mut after: Vec<_> = child.after.iter().map(|index| index + start + 1).collect();
        after.push(start);
        plan.push(Planned { node: child.node, work: child.work, after });
        ends.push(plan.len() - 1);
    }
    plan.push(Planned { node, work: Work::Nothing, after: ends });
    Ok(plan.len() - 1)
}

#[derive(Clone, Debug)]
struct Planned {
    node: NodeId,
    work: Work,
    /// Earlier entries of the plan.
    after: Vec<usize>,
}

/// A `CUgraphExec`. Dropping it lets launches under way finish.
#[derive(Debug)]
pub struct GraphExec {
    id: u64,
    plan: Mutex<Arc<Vec<Planned>>>,
    last: Mutex<Option<Arc<Node>>>,
}

impl GraphExec {
    /// A number unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Replaces what a node does in later launches (`cuGraphExecKernelNodeSetParams` and its
    /// like); `INVALID_VALUE` when the node is not in it.
    pub fn set_work(&self, node: NodeId, work: Work) -> Result<(), CUerror> {
        let mut plan = self.plan.lock();
        let index = plan.iter().position(|planned| planned.node == node).ok_or(CUerror::INVALID_VALUE)?;
        Arc::make_mut(&mut plan)[index].work = work;
        Ok(())
    }

    /// Takes over the work of a graph of the same shape (`cuGraphExecUpdate`); false and
    /// unchanged when kinds or edges differ.
    pub fn update(&self, graph: &Graph) -> Result<bool, CUerror> {
        let fresh = graph.plan()?;
        let mut plan = self.plan.lock();
        let same = |old: &Planned, new: &Planned| {
            old.after == new.after && std::mem::discriminant(&old.work) == std::mem::discriminant(&new.work)
        };
        if plan.len() != fresh.len() || !plan.iter().zip(&fresh).all(|(old, new)| same(old, new)) {
            return Ok(false);
        }
        let nodes: Vec<_> = plan.iter().map(|planned| planned.node).collect();
        let renamed = fresh.into_iter().zip(nodes).map(|(planned, node)| Planned { node, ..planned });
        *plan = Arc::new(renamed.collect());
        Ok(true)
    }

    /// One launch behind the stream's last work and behind the launch before.
    pub(super) fn enqueue(&self, context: &ContextQueue, stream: &Stream) {
        let plan = self.plan.lock().clone();
        let waited: Vec<_> = plan.iter().map(|planned| waited_before(&planned.work)).collect();
        let new_node = |task| Node::new(context.domain.clone(), stream.priority(), task);
        let start = new_node(Some(Task::Work(Work::Nothing)));
        let end = new_node(Some(Task::Work(Work::Nothing)));
        end.after(&start);
        {
            let mut last = self.last.lock();
            if let Some(last) = &*last {
                start.after(last);
            }
            context.append(stream, &start, &end);
            *last = Some(end.clone());
        }
        let mut nodes: Vec<Arc<Node>> = Vec::with_capacity(plan.len());
        for (planned, waited) in plan.iter().zip(waited) {
            let node = new_node(None);
            node.after(&start);
            planned.after.iter().for_each(|index| node.after(&nodes[*index]));
            waited.iter().for_each(|marked| node.after(marked));
            node.set_task(task_of(&planned.work, &node));
            end.after(&node);
            nodes.push(node);
        }
        nodes.into_iter().for_each(Node::release);
        end.release();
        start.release();
    }
}

/// What a wait node waits for: the event as it stands when the launch is submitted. Edges order
/// it behind records of the same graph.
fn waited_before(work: &Work) -> Option<Arc<Node>> {
    match work {
        Work::WaitEvent(event) => event.waited_node(),
        _ => None,
    }
}

/// The task of an entry; records take effect when the launch is submitted, as in streams.
fn task_of(work: &Work, node: &Arc<Node>) -> Task {
    match work {
        Work::RecordEvent(event) => {
            let mark = Mark::new(node.clone());
            event.set_mark(mark.clone());
            Task::Mark(mark)
        }
        Work::WaitEvent(_) => Task::Work(Work::Nothing),
        work => Task::Work(work.clone()),
    }
}
