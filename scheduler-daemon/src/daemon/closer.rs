//! Closes what strangers have sent or left unread, on threads of its own.
//!
//! Closing a descriptor can block for as long as its maker likes: a network socket that lingers, a
//! file of a file system that does not answer. So the loop never closes a peer's descriptor, nor a
//! connection in whose queue such descriptors may lie. Unread packets are taken out before the
//! close: they would turn our last words into a reset at the peer.

use crate::packet;
use rustix::net::Shutdown;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use turnus_protocol::limits::MESSAGE_BYTES_MAX;

/// More threads would only help who means harm.
const THREADS_MAX: usize = 16;
/// More packets than a socket's queue holds.
const UNREAD_MAX: usize = 4096;

#[derive(Debug)]
enum Job {
    Close(OwnedFd),
    End(OwnedFd),
}

/// The threads, and what they have to do.
#[derive(Debug)]
pub struct Closer {
    jobs: Sender<Job>,
    todo: Arc<Mutex<Receiver<Job>>>,
    /// Jobs that are not done.
    open: Arc<AtomicUsize>,
    threads: usize,
}

impl Closer {
    /// With one thread; more come when that one is held up.
    pub fn start() -> io::Result<Closer> {
        let (jobs, todo) = channel();
        let todo = Arc::new(Mutex::new(todo));
        let mut closer = Closer { jobs, todo, open: Arc::new(AtomicUsize::new(0)), threads: 0 };
        closer.add_thread()?;
        Ok(closer)
    }

    /// Closes a descriptor that somebody sent.
    pub fn close(&mut self, descriptor: OwnedFd) {
        self.give(Job::Close(descriptor));
    }

    /// Ends a conversation: the peer sees it at once, whenever the socket is closed.
    pub fn end(&mut self, socket: OwnedFd) {
        // Fails only if the peer has ended it already.
        let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        self.give(Job::End(socket));
    }

    fn give(&mut self, job: Job) {
        let open = self.open.fetch_add(1, Ordering::AcqRel) + 1;
        if open > self.threads && self.threads < THREADS_MAX {
            // Without another thread it only takes longer.
            let _ = self.add_thread();
        }
        // The receiver is ours too, so it is there.
        let _ = self.jobs.send(job);
    }

    fn add_thread(&mut self) -> io::Result<()> {
        let (todo, open) = (self.todo.clone(), self.open.clone());
        thread::Builder::new().name("closer".to_owned()).spawn(move || {
            while let Some(job) = next(&todo) {
                work(job);
                open.fetch_sub(1, Ordering::AcqRel);
            }
        })?;
        self.threads += 1;
        Ok(())
    }
}

fn next(todo: &Mutex<Receiver<Job>>) -> Option<Job> {
    todo.lock().ok()?.recv().ok()
}

fn work(job: Job) {
    match job {
        Job::Close(descriptor) => drop(descriptor),
        Job::End(socket) => {
            for _ in 0..UNREAD_MAX {
                match packet::receive(&socket, MESSAGE_BYTES_MAX) {
                    Ok(Some(packet)) => drop(packet),
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }
}
