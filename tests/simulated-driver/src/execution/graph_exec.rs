//! Instantiated graphs: a plan that is launched any number of times, and changes to it.
//!
//! A launch makes a node of each entry of the plan behind the stream's last work. Two launches of one
//! `GraphExec` never overlap (CUDA driver API, `cuGraphLaunch`). Streams reach this through `Work::Graph`.

use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;

use super::context::ContextQueue;
use super::event::Mark;
use super::graph::{Content, Given, Graph, NodeId, next_id};
use super::graph_plan::{self, CompareContents, Mismatch, Planned, Shape};
use super::node::{Node, Task};
use super::stream::Stream;
use super::work::Work;

/// A `CUgraphExec`. Dropping it lets launches under way finish.
#[derive(Debug)]
pub struct GraphExec {
    id: u64,
    plan: Mutex<Arc<Vec<Planned>>>,
    /// The graph's shape when it was instantiated or last updated.
    shape: Mutex<Vec<Shape>>,
    /// What has to live until the last launch is over.
    kept: Mutex<Arc<Vec<Given>>>,
    last: Mutex<Option<Arc<Node>>>,
}

impl Graph {
    /// Makes the graph launchable; `INVALID_VALUE` when it has a cycle.
    pub fn instantiate(&self) -> Result<Arc<GraphExec>, CUerror> {
        let plan = self.plan()?;
        Ok(Arc::new(GraphExec {
            id: next_id(),
            plan: Mutex::new(Arc::new(plan)),
            shape: Mutex::new(self.shape()),
            kept: Mutex::new(Arc::new(self.kept())),
            last: Mutex::new(None),
        }))
    }
}

impl GraphExec {
    /// A number unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What a node does in later launches; `INVALID_VALUE` when the node is not in it.
    pub fn content(&self, node: NodeId) -> Result<Content, CUerror> {
        let plan = self.plan.lock();
        let found = plan.iter().find(|planned| planned.node == node);
        found.map(|planned| planned.content.clone()).ok_or(CUerror::INVALID_VALUE)
    }

    /// Replaces what a node does in later launches (`cuGraphExecKernelNodeSetParams` and its
    /// like); `INVALID_VALUE` when the node is not in it.
    pub fn set_content(&self, node: NodeId, content: impl Into<Content>) -> Result<(), CUerror> {
        self.change(node, |planned| planned.content = content.into())
    }

    /// Whether a node does its work (`cuGraphNodeGetEnabled`).
    pub fn is_enabled(&self, node: NodeId) -> Result<bool, CUerror> {
        let plan = self.plan.lock();
        let found = plan.iter().find(|planned| planned.node == node);
        found.map(|planned| planned.enabled).ok_or(CUerror::INVALID_VALUE)
    }

    /// Lets a node do its work in later launches, or nothing (`cuGraphNodeSetEnabled`).
    pub fn enable(&self, node: NodeId, enabled: bool) -> Result<(), CUerror> {
        self.change(node, |planned| planned.enabled = enabled)
    }

    fn change(&self, node: NodeId, change: impl FnOnce(&mut Planned)) -> Result<(), CUerror> {
        let mut plan = self.plan.lock();
        let index = plan.iter().position(|planned| planned.node == node).ok_or(CUerror::INVALID_VALUE)?;
        change(&mut Arc::make_mut(&mut plan)[index]);
        Ok(())
    }

    /// Takes over what the nodes of a graph of the same shape hold (`cuGraphExecUpdate`), or says where it
    /// differs and stays as it is. `INVALID_VALUE` for a graph with a cycle.
    pub fn update(
        &self,
        graph: &Graph,
        compare: &CompareContents<'_>,
    ) -> Result<Result<(), Mismatch>, CUerror> {
        let fresh = graph.plan()?;
        if let Err(mismatch) = graph_plan::compare(&self.shape.lock(), &graph.shape(), compare) {
            return Ok(Err(mismatch));
        }
        let mut plan = self.plan.lock();
        let renewed = plan
            .iter()
            .zip(fresh)
            .map(|(old, new)| Planned { content: new.content, ..old.clone() })
            .collect();
        *plan = Arc::new(renewed);
        *self.kept.lock() = Arc::new(graph.kept());
        Ok(Ok(()))
    }

    /// Takes over what the nodes of `graph` hold into the graph inside that `node` is
    /// (`cuGraphExecChildGraphNodeSetParams`).
    pub fn update_inside(
        &self,
        node: NodeId,
        graph: &Graph,
        compare: &CompareContents<'_>,
    ) -> Result<(), CUerror> {
        let fresh = graph.plan()?;
        let mut plan = self.plan.lock();
        let ends: Vec<usize> =
            plan.iter().enumerate().filter(|(_, planned)| planned.node == node).map(|(at, _)| at).collect();
        let &[start, end] = &ends[..] else { return Err(CUerror::INVALID_VALUE) };
        let inside = &plan[start + 1..end];
        let same = |(old, new): (&Planned, &Planned)| {
            let after: Vec<usize> = new.after.iter().map(|index| index + start + 1).collect();
            // Entries of the graph itself wait for the join before them, too.
            old.after.strip_suffix(&[start]) == Some(&after[..])
                && old.content.kind == new.content.kind
                && compare(&old.content, &new.content).is_ok()
        };
        if inside.len() != fresh.len() || !inside.iter().zip(&fresh).all(same) {
            return Err(CUerror::INVALID_VALUE);
        }
        let renewed = Arc::make_mut(&mut plan);
        for (place, new) in fresh.into_iter().enumerate() {
            renewed[start + 1 + place].content = new.content;
        }
        Ok(())
    }

    /// The plan as a graph, for a capture that launches it.
    pub(super) fn as_graph(&self) -> Result<Arc<Graph>, CUerror> {
        let (graph, plan) = (Graph::new(), self.plan.lock().clone());
        let mut nodes: Vec<NodeId> = Vec::with_capacity(plan.len());
        for planned in plan.iter() {
            let content =
                if planned.enabled { planned.content.clone() } else { Content::from(Work::Nothing) };
            let after: Vec<NodeId> = planned.after.iter().map(|index| nodes[*index]).collect();
            nodes.push(graph.add_node(content, &after)?);
        }
        Ok(graph)
    }

    /// Blocks the calling thread until no launch is under way.
    pub fn wait(&self) {
        let last = self.last.lock().clone();
        last.iter().for_each(|node| node.wait());
    }

    /// One launch behind the stream's last work and behind the launch before.
    pub(super) fn enqueue(&self, context: &ContextQueue, stream: &Stream) {
        let plan = self.plan.lock().clone();
        let waited: Vec<_> = plan.iter().map(|planned| waited_before(&planned.content.work)).collect();
        let new_node = |task| Node::new(context.domain.clone(), stream.priority(), task);
        let start = new_node(Some(Task::Work(Work::Nothing)));
        let end = new_node(Some(Task::Work(self.end_of_launch())));
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
        let mut others: Vec<Arc<Node>> = Vec::new();
        for (planned, waited) in plan.iter().zip(waited) {
            let mut works = works_of(planned);
            let last_work = works.pop().unwrap_or(Work::Nothing);
            let mut ready = start.clone();
            let mut follow = |work: Work, first: bool| {
                let node = new_node(None);
                node.after(&ready);
                if first {
                    planned.after.iter().for_each(|index| node.after(&nodes[*index]));
                    waited.iter().for_each(|marked| node.after(marked));
                }
                node.set_task(task_of(&work, &node));
                ready = node.clone();
                node
            };
            let mut first = true;
            for work in works {
                others.push(follow(work, std::mem::take(&mut first)));
            }
            let node = follow(last_work, first);
            end.after(&node);
            nodes.push(node);
        }
        nodes.into_iter().chain(others).for_each(Node::release);
        end.release();
        start.release();
    }

    /// What the last node of a launch does: letting go of what had to live so long.
    fn end_of_launch(&self) -> Work {
        let kept = self.kept.lock().clone();
        if kept.is_empty() {
            return Work::Nothing;
        }
        Work::Action(Arc::new(move |_| {
            let _alive = &kept;
        }))
    }
}

/// What an entry does, one after the other.
fn works_of(planned: &Planned) -> Vec<Work> {
    match &planned.content.work {
        _ if !planned.enabled => Vec::new(),
        Work::Batch(works) => works.to_vec(),
        work => vec![work.clone()],
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
