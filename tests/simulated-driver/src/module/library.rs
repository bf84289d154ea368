//! Libraries and kernels: code that belongs to no context and is loaded into each one that uses it.
//!
//! CUDA driver API, "Library Management". A `CUkernel` may be used as a `CUfunction` in launches; it then
//! means the function in the current context.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_simulated_ptx as ptx;

use super::{FUNCTIONS, Function, MODULES, Module, loading};
use crate::context::{CONTEXTS, Context, current};
use crate::driver::driver;
use crate::registry::Registry;
use crate::space::Result;

/// All libraries.
pub static LIBRARIES: Registry<Arc<Library>> = Registry::new(6);
/// All kernels that programs asked for.
pub static KERNELS: Registry<Arc<Kernel>> = Registry::new(7);

/// A library.
#[derive(Debug)]
pub struct Library {
    /// Its handle.
    pub handle: usize,
    /// Its code.
    pub code: Arc<ptx::Module>,
    /// Where it is loaded, by context id.
    modules: Mutex<HashMap<u64, Arc<Module>>>,
    kernels: Mutex<HashMap<String, Arc<Kernel>>>,
}

/// A kernel of a library.
#[derive(Debug)]
pub struct Kernel {
    /// Its handle.
    pub handle: usize,
    /// Its name.
    pub name: std::ffi::CString,
    /// Where it is from.
    pub library: Arc<Library>,
}

impl Library {
    /// Makes compiled code available; where loading is eager, in all contexts at once.
    pub fn load(code: Arc<ptx::Module>) -> Result<Arc<Library>> {
        let handle = LIBRARIES.new_handle();
        let library =
            Arc::new(Library { handle, code, modules: Mutex::default(), kernels: Mutex::default() });
        if !loading::is_lazy() {
            for context in CONTEXTS.all() {
                if let Err(error) = library.module(&context) {
                    library.unload()?;
                    return Err(error);
                }
            }
        }
        LIBRARIES.put(handle, Arc::clone(&library));
        Ok(library)
    }

    /// The module that the library is in a context, loaded now if need be.
    pub fn module(&self, context: &Arc<Context>) -> Result<Arc<Module>> {
        let mut modules = self.modules.lock();
        if let Some(module) = modules.get(&context.id()) {
            return Ok(Arc::clone(module));
        }
        let module = Module::load(driver()?, context, Arc::clone(&self.code))?;
        modules.insert(context.id(), Arc::clone(&module));
        Ok(module)
    }

    /// The kernel of that name; one handle per kernel.
    pub fn kernel(self: &Arc<Self>, name: &str) -> Result<Arc<Kernel>> {
        self.code.entry(name).ok_or(CUerror::NOT_FOUND)?;
        let mut kernels = self.kernels.lock();
        if let Some(kernel) = kernels.get(name) {
            return Ok(Arc::clone(kernel));
        }
        let kernel = Arc::new(Kernel {
            handle: KERNELS.new_handle(),
            name: std::ffi::CString::new(name).map_err(|_| CUerror::NOT_FOUND)?,
            library: Arc::clone(self),
        });
        KERNELS.put(kernel.handle, Arc::clone(&kernel));
        kernels.insert(name.to_owned(), Arc::clone(&kernel));
        Ok(kernel)
    }

    /// Unloads it from all contexts. The handle has been taken out of the registry.
    pub fn unload(&self) -> Result<()> {
        let driver = driver()?;
        KERNELS.remove_where(|kernel| kernel.library.handle == self.handle);
        self.kernels.lock().clear();
        for (_, module) in self.modules.lock().drain() {
            if MODULES.remove(module.handle as *mut ()).is_ok() {
                module.context.queue.wait_all();
                module.unload(driver);
            }
        }
        Ok(())
    }
}

impl Kernel {
    /// The function that the kernel is in a context.
    pub fn function(&self, context: &Arc<Context>) -> Result<Arc<Function>> {
        let name = self.name.to_str().map_err(|_| CUerror::NOT_FOUND)?;
        self.library.module(context)?.function(name)
    }
}

/// The function of a handle that may also be a kernel's.
pub fn function_of<T>(handle: *mut T) -> Result<Arc<Function>> {
    FUNCTIONS.get(handle).or_else(|_| KERNELS.get(handle)?.function(&current::get()?))
}

/// A new context: eager loading brings all libraries into it.
pub fn load_all_into(context: &Arc<Context>) -> Result<()> {
    if loading::is_lazy() {
        return Ok(());
    }
    LIBRARIES.all().iter().try_for_each(|library| library.module(context).map(drop))
}

/// The context is gone: libraries are no longer loaded in it.
pub fn forget_context(context: u64) {
    for library in LIBRARIES.all() {
        library.modules.lock().remove(&context);
    }
}
