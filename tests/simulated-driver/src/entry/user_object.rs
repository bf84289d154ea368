//! Objects of the program's that live as long as graphs need them: CUDA driver API, `cuUserObjectCreate`.
//!
//! The destructor runs when the program has given its references back and no graph, instance or launch under way
//! has one. References of graphs, and of what is made from them, are held through one count each.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put};
use crate::execution::HostPointer;
use crate::graphs::graph;
use crate::registry::Registry;
use crate::space::Result;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: u32 = 1;

/// Objects that the program has references to.
static OBJECTS: Registry<Arc<Held>> = Registry::new(11);

/// The object with the references of the program.
#[derive(Debug)]
struct Held {
    life: Arc<Life>,
    count: Mutex<u64>,
}

/// The object itself; its end calls the destructor.
struct Life {
    destroy: unsafe extern "C" fn(*mut c_void),
    pointer: HostPointer,
}

impl std::fmt::Debug for Life {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Life").field("pointer", &self.pointer).finish_non_exhaustive()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let (destroy, pointer) = (self.destroy, self.pointer);
        let call = move || {
            // Bound whole, so that the thread is given the pointer's wrapper and not the pointer.
            let pointer = pointer;
            // SAFETY: the program handed both to cuUserObjectCreate for one call on a driver thread.
            unsafe { destroy(pointer.0) }
        };
        // A thread that cannot be started leaks the object, which is better than running the program's code here.
        let _ = std::thread::Builder::new().name("cuda-destructor".into()).spawn(call);
    }
}

entry! {
    fn cuUserObjectCreate(
        object_out: *mut CUuserObject,
        ptr: *mut c_void,
        destroy: CUhostFn,
        initial_refcount: c_uint,
        flags: c_uint,
    ) {
        needed(object_out)?;
        let destroy = destroy.ok_or(CUerror::INVALID_VALUE)?;
        if flags != NO_DESTRUCTOR_SYNC {
            return Err(CUerror::INVALID_VALUE);
        }
        let count = Mutex::new(checked(initial_refcount)?);
        let life = Arc::new(Life { destroy, pointer: HostPointer(ptr) });
        put(object_out, OBJECTS.add(Arc::new(Held { life, count })) as CUuserObject)
    }

    fn cuUserObjectRetain(object: CUuserObject, count: c_uint) {
        let held = held(object)?;
        *held.count.lock() += checked(count)?;
        Ok(())
    }

    fn cuUserObjectRelease(object: CUuserObject, count: c_uint) {
        release(object, checked(count)?)
    }

    fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) {
        let (count, held, kept_by) = (checked(count)?, held(object)?, crate::graphs::graph(graph)?);
        if flags & !MOVE != 0 || flags & MOVE != 0 && *held.count.lock() < count {
            return Err(CUerror::INVALID_VALUE);
        }
        kept_by.keep(object as usize, held.life.clone(), count);
        if flags & MOVE != 0 {
            release(object, count)?;
        }
        Ok(())
    }

    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) {
        self::graph(graph)?.let_go(object as usize, checked(count)?)
    }
}

fn held(object: CUuserObject) -> Result<Arc<Held>> {
    OBJECTS.get(object).map_err(|_| CUerror::INVALID_VALUE)
}

/// A number of references: not zero, and at most `INT_MAX`.
fn checked(count: c_uint) -> Result<u64> {
    if count == 0 || i32::try_from(count).is_err() { Err(CUerror::INVALID_VALUE) } else { Ok(count.into()) }
}

fn release(object: CUuserObject, count: u64) -> CUresult {
    let held = held(object)?;
    let mut left = held.count.lock();
    *left = left.checked_sub(count).ok_or(CUerror::INVALID_VALUE)?;
    if *left == 0 {
        drop(left);
        drop(OBJECTS.remove(object));
    }
    Ok(())
}
