//! One piece of submitted work and what must wait for it.
//!
//! A node starts with one blocker (its own submission) plus one for each predecessor that is not
//! done; the last blocker to go hands it to the executor. Nodes refer forwards only, so what is
//! done is freed at once. Nothing here knows streams: see `context.rs` for who precedes whom.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::context::Domain;
use super::event::Mark;
use super::launch_queue::LaunchQueue;
use super::work::Work;

/// How long a waiting thread looks for itself before it sleeps: short work is over by then.
const LOOK: Duration = Duration::from_micros(20);

/// What a node does when its turn comes.
#[derive(Debug)]
pub(super) enum Task {
    /// Something that an engine or a driver thread carries out.
    Work(Work),
    /// Notes the time for an event.
    Mark(Arc<Mark>),
}

/// One piece of submitted work.
pub(super) struct Node {
    pub(super) domain: Arc<Domain>,
    pub(super) priority: i32,
    task: Mutex<Option<Task>>,
    blockers: AtomicUsize,
    done: AtomicBool,
    /// The launch queue in which it takes a place until it is done.
    launches: OnceLock<Arc<LaunchQueue>>,
    /// `None` once done: whoever comes later need not wait.
    followers: Mutex<Option<Vec<Follower>>>,
}

enum Follower {
    Node(Arc<Node>),
    Waiter(Arc<Waiter>),
}

#[derive(Default)]
struct Waiter {
    woken: Mutex<bool>,
    condition: Condvar,
}

impl fmt::Debug for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Node").field("done", &self.is_done()).finish_non_exhaustive()
    }
}

impl Node {
    /// A node that waits for `release`.
    pub(super) fn new(domain: Arc<Domain>, priority: i32, task: Option<Task>) -> Arc<Node> {
        Arc::new(Node {
            domain,
            priority,
            task: Mutex::new(task),
            blockers: AtomicUsize::new(1),
            done: AtomicBool::new(false),
            launches: OnceLock::new(),
            followers: Mutex::new(Some(Vec::new())),
        })
    }

    /// Gives the node its task before release (an event's mark names its own node).
    pub(super) fn set_task(&self, task: Task) {
        *self.task.lock() = Some(task);
    }

    /// Takes a place in the launch queue, before release.
    pub(super) fn count_in(&self, launches: &Arc<LaunchQueue>) {
        launches.enter();
        // The first queue stays; a node is counted once.
        let _ = self.launches.set(launches.clone());
    }

    /// Takes the task; a second caller finds none.
    pub(super) fn take_task(&self) -> Option<Task> {
        self.task.lock().take()
    }

    /// True once the work is finished or was discarded by a fault.
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Makes the node wait for `predecessor`. Only before `release`.
    pub(super) fn after(self: &Arc<Node>, predecessor: &Arc<Node>) {
        if predecessor.is_done() {
            return;
        }
        if let Some(followers) = predecessor.followers.lock().as_mut() {
            self.blockers.fetch_add(1, Ordering::Relaxed);
            followers.push(Follower::Node(self.clone()));
        }
    }

    /// Ends submission: from here on the node runs as soon as its predecessors are done.
    pub(super) fn release(self: Arc<Node>) {
        if self.unblock() {
            start_all(self);
        }
    }

    /// Marks the node done and starts what waited only for it.
    pub(super) fn complete(&self) {
        let mut next = Vec::new();
        self.finish(&mut next);
        for node in next {
            start_all(node);
        }
    }

    /// Blocks the calling thread until the node is done.
    pub(super) fn wait(&self) {
        if self.is_done() {
            return;
        }
        let since = Instant::now();
        while since.elapsed() < LOOK {
            std::thread::yield_now();
            if self.is_done() {
                return;
            }
        }
        let waiter = Arc::new(Waiter::default());
        match self.followers.lock().as_mut() {
            Some(followers) => followers.push(Follower::Waiter(waiter.clone())),
            None => return,
        }
        let mut woken = waiter.woken.lock();
        while !*woken {
            waiter.condition.wait(&mut woken);
        }
    }

    fn unblock(&self) -> bool {
        self.blockers.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn finish(&self, next: &mut Vec<Arc<Node>>) {
        let followers = {
            let mut followers = self.followers.lock();
            self.done.store(true, Ordering::Release);
            followers.take()
        };
        if let Some(launches) = self.launches.get() {
            launches.leave();
        }
        for follower in followers.into_iter().flatten() {
            match follower {
                Follower::Node(node) => {
                    if node.unblock() {
                        next.push(node);
                    }
                }
                Follower::Waiter(waiter) => {
                    *waiter.woken.lock() = true;
                    waiter.condition.notify_one();
                }
            }
        }
    }
}

/// Starts a node, and whatever follows from those that need no engine; iterative, so that a long
/// chain of marks does not use up the stack.
fn start_all(node: Arc<Node>) {
    let mut ready = vec![node];
    while let Some(node) = ready.pop() {
        let executor = node.domain.executor.clone();
        if let Some(finished) = executor.start(node) {
            finished.finish(&mut ready);
        }
    }
}
