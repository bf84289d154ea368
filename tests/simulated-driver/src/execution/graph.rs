//! Graphs as templates: nodes with their work, and the edges between them.
//!
//! A node keeps, beside its work, what the program said about it (`Given`), which execution never looks into.
//! Instantiation is in `graph_plan.rs`, what is launched in `graph_exec.rs`.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use turnus_bindings::CUerror;

use super::work::Work;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Names a node of a graph; unique in the process, so that it can serve as `CUgraphNode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

pub(super) fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Something of the surface's that lives as long as what it is given to.
pub type Given = Arc<dyn Any + Send + Sync>;

/// What a node is, whatever its work is reduced to (a copy of no bytes is a copy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A launch.
    Kernel,
    /// A copy.
    Copy,
    /// A memset.
    Fill,
    /// A host function.
    Host,
    /// A graph inside.
    Child,
    /// A join.
    Empty,
    /// A wait for an event.
    Wait,
    /// A mark of an event.
    Record,
    /// An allocation.
    Allocate,
    /// A free.
    Free,
    /// Writes of values and waits for them.
    Values,
}

impl NodeKind {
    fn of(work: &Work) -> NodeKind {
        match work {
            Work::Kernel(_) => NodeKind::Kernel,
            Work::Copy(_) => NodeKind::Copy,
            Work::Fill(_) => NodeKind::Fill,
            Work::HostFunction(_) | Work::Callback(_) => NodeKind::Host,
            Work::Child(_) | Work::Graph(_) => NodeKind::Child,
            Work::WaitEvent(_) => NodeKind::Wait,
            Work::RecordEvent(_) => NodeKind::Record,
            Work::WriteValue { .. } | Work::WaitValue { .. } | Work::Batch(_) => NodeKind::Values,
            Work::Nothing | Work::Prefetch(_) | Work::Action(_) | Work::WaitUntil(_) => NodeKind::Empty,
        }
    }
}

/// What a node holds.
#[derive(Clone, Debug)]
pub struct Content {
    /// What it is.
    pub kind: NodeKind,
    /// What it does.
    pub work: Work,
    /// What the program said, if it has to be told again.
    pub given: Option<Given>,
}

impl From<Work> for Content {
    fn from(work: Work) -> Self {
        Content { kind: NodeKind::of(&work), work, given: None }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) content: Content,
    pub(super) dependencies: Vec<NodeId>,
    /// Its number in the graph, which a copy keeps.
    local: u32,
}

/// A `CUgraph`.
#[derive(Debug)]
pub struct Graph {
    id: u64,
    pub(super) entries: Mutex<BTreeMap<NodeId, Entry>>,
    /// Of a copy: which node of the original became which.
    names: BTreeMap<NodeId, NodeId>,
    /// What lives at least as long as the graph, by number, with a count of the surface's.
    kept: Mutex<BTreeMap<usize, (Given, u64)>>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Arc<Graph> {
        Arc::new(Graph {
            id: next_id(),
            entries: Mutex::default(),
            names: BTreeMap::new(),
            kept: Mutex::default(),
        })
    }

    /// A number unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Adds a node; `INVALID_VALUE` when a dependency is not in the graph or comes twice.
    pub fn add_node(&self, content: impl Into<Content>, dependencies: &[NodeId]) -> Result<NodeId, CUerror> {
        let mut entries = self.entries.lock();
        let distinct: BTreeSet<_> = dependencies.iter().collect();
        if distinct.len() != dependencies.len() || dependencies.iter().any(|node| !entries.contains_key(node))
        {
            return Err(CUerror::INVALID_VALUE);
        }
        let node = NodeId(next_id());
        let local = entries.last_key_value().map_or(0, |(_, last)| last.local + 1);
        entries.insert(node, Entry { content: content.into(), dependencies: dependencies.to_vec(), local });
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

    /// Removes an edge (`cuGraphRemoveDependencies`); one that is not there is refused.
    pub fn remove_edge(&self, from: NodeId, to: NodeId) -> Result<(), CUerror> {
        self.check_changeable()?;
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&to).ok_or(CUerror::INVALID_VALUE)?;
        let position =
            entry.dependencies.iter().position(|node| *node == from).ok_or(CUerror::INVALID_VALUE)?;
        entry.dependencies.remove(position);
        Ok(())
    }

    /// Removes a node and its edges (`cuGraphDestroyNode`).
    pub fn remove_node(&self, node: NodeId) -> Result<(), CUerror> {
        self.check_changeable()?;
        let mut entries = self.entries.lock();
        entries.remove(&node).ok_or(CUerror::INVALID_VALUE)?;
        entries.values_mut().for_each(|entry| entry.dependencies.retain(|other| *other != node));
        Ok(())
    }

    /// Nodes and edges of a graph with memory nodes cannot be deleted (cuGraphAddMemAllocNode).
    fn check_changeable(&self) -> Result<(), CUerror> {
        if self.has_memory_nodes() { Err(CUerror::NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Whether a node of it, or of a graph inside, allocates or frees.
    pub fn has_memory_nodes(&self) -> bool {
        self.entries.lock().values().any(|entry| match &entry.content.work {
            Work::Child(graph) => graph.has_memory_nodes(),
            _ => matches!(entry.content.kind, NodeKind::Allocate | NodeKind::Free),
        })
    }

    /// All nodes, oldest first.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.entries.lock().keys().copied().collect()
    }

    /// What a node holds.
    pub fn content(&self, node: NodeId) -> Option<Content> {
        self.entries.lock().get(&node).map(|entry| entry.content.clone())
    }

    /// What all nodes hold, oldest first.
    pub fn contents(&self) -> Vec<(NodeId, Content)> {
        self.entries.lock().iter().map(|(node, entry)| (*node, entry.content.clone())).collect()
    }

    /// The node's number in the graph.
    pub fn local_id(&self, node: NodeId) -> Option<u32> {
        self.entries.lock().get(&node).map(|entry| entry.local)
    }

    /// Replaces what a node holds (`cuGraphKernelNodeSetParams` and its like).
    pub fn set_content(&self, node: NodeId, content: impl Into<Content>) -> Result<(), CUerror> {
        self.entries.lock().get_mut(&node).ok_or(CUerror::INVALID_VALUE)?.content = content.into();
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

    /// A copy with nodes of its own (`cuGraphClone`), graphs inside copied too.
    pub fn duplicate(&self) -> Arc<Graph> {
        let entries = self.entries.lock();
        let names: BTreeMap<_, _> = entries.keys().map(|node| (*node, NodeId(next_id()))).collect();
        let copied = entries.iter().map(|(node, entry)| {
            let dependencies = entry.dependencies.iter().map(|other| names[other]).collect();
            let mut content = entry.content.clone();
            if let Work::Child(child) = &content.work {
                content.work = Work::Child(child.duplicate());
            }
            (names[node], Entry { content, dependencies, local: entry.local })
        });
        let entries = Mutex::new(copied.collect());
        Arc::new(Graph { id: next_id(), entries, names, kept: Mutex::new(self.kept.lock().clone()) })
    }

    /// Of a copy: the node that `original` became, while it is there (`cuGraphNodeFindInClone`).
    pub fn copy_of(&self, original: NodeId) -> Option<NodeId> {
        let copy = *self.names.get(&original)?;
        self.entries.lock().contains_key(&copy).then_some(copy)
    }

    /// Lets the graph, its copies and what is instantiated from them keep `object` alive, `count` times more.
    pub fn keep(&self, number: usize, object: Given, count: u64) {
        self.kept.lock().entry(number).or_insert((object, 0)).1 += count;
    }

    /// Takes `count` of what `keep` counted back; `INVALID_VALUE` when there are not as many.
    pub fn let_go(&self, number: usize, count: u64) -> Result<(), CUerror> {
        let mut kept = self.kept.lock();
        let entry = kept.get_mut(&number).filter(|entry| entry.1 >= count).ok_or(CUerror::INVALID_VALUE)?;
        entry.1 -= count;
        let gone = if entry.1 == 0 { kept.remove(&number) } else { None };
        drop(kept);
        drop(gone);
        Ok(())
    }

    /// All that is kept alive, by graphs inside too.
    pub(super) fn kept(&self) -> Vec<Given> {
        let mut kept: Vec<Given> = self.kept.lock().values().map(|entry| entry.0.clone()).collect();
        for entry in self.entries.lock().values() {
            if let Work::Child(child) = &entry.content.work {
                kept.extend(child.kept());
            }
        }
        kept
    }

    /// The most local memory that a thread of one of its kernels needs.
    pub fn local_bytes(&self) -> u64 {
        let entries = self.entries.lock();
        let of_work = |work: &Work| match work {
            Work::Kernel(image) => image.local_bytes(),
            Work::Child(graph) => graph.local_bytes(),
            _ => 0,
        };
        entries.values().map(|entry| of_work(&entry.content.work)).max().unwrap_or(0)
    }

    /// Every node that `ends` wait for, and they themselves.
    pub fn ancestors(&self, ends: &[NodeId]) -> BTreeSet<NodeId> {
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
}
