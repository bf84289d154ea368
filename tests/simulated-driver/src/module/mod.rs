//! Modules: code and variables that a context loaded.
//!
//! A module takes device memory for its code (a charge on the device) and for its variables (ordinary
//! allocations, initialised at load). Functions are handles into it. `image.rs` finds the code, `jit.rs` handles
//! the options, `library.rs` the libraries that belong to no context, `link.rs` links, `kernel.rs` a launch, `system.rs` what kernels
//! print and allocate.

pub mod builtin;
pub mod cubin;
pub mod endless;
pub mod fatbin;
pub mod image;
pub mod jit;
pub mod kernel;
pub mod library;
pub mod link;
pub mod linked;
pub mod loading;
pub mod system;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use turnus_bindings::CUerror;
use turnus_simulated_ptx as ptx;

use crate::context::Context;
use crate::device::attributes;
use crate::driver::Driver;
use crate::execution::Space as _;
use crate::registry::Registry;
use crate::space::Result;
use loading::CodeMemory;

/// All loaded modules.
pub static MODULES: Registry<Arc<Module>> = Registry::new(4);
/// All functions that programs asked for.
pub static FUNCTIONS: Registry<Arc<Function>> = Registry::new(5);

/// A module in a context.
#[derive(Debug)]
pub struct Module {
    /// Its handle.
    pub handle: usize,
    /// Where it is loaded.
    pub context: Arc<Context>,
    /// Its code.
    pub code: Arc<ptx::Module>,
    /// Variables: address and size by name.
    pub variables: Arc<HashMap<String, (u64, u64)>>,
    functions: Mutex<HashMap<String, Arc<Function>>>,
    memory: Arc<CodeMemory>,
}

/// A kernel in a module.
#[derive(Debug)]
pub struct Function {
    /// Its handle.
    pub handle: usize,
    /// Its name, for `cuFuncGetName`.
    pub name: std::ffi::CString,
    /// Handle of its module.
    pub module: usize,
    /// The module's context.
    pub context: Arc<Context>,
    /// Its code.
    pub entry: ptx::Entry,
    /// The module's variables.
    pub variables: Arc<HashMap<String, (u64, u64)>>,
    /// Attributes that can be set.
    pub settings: Settings,
    /// Whether its code is on the device (`cuFuncIsLoaded`).
    loaded: AtomicBool,
    /// The memory of its module's code.
    memory: Arc<CodeMemory>,
    /// Launch state of the deprecated functions (`cuFuncSetBlockShape` and its kin).
    pub old_launch: Mutex<OldLaunch>,
}

/// What `cuFuncSetAttribute` sets.
#[derive(Debug)]
pub struct Settings {
    /// Most dynamic shared memory of a launch.
    pub dynamic_shared_bytes_max: AtomicU32,
    /// A wish about the split between L1 and shared memory; without effect.
    pub carveout: AtomicU32,
}

/// See `Function::old_launch`.
#[derive(Clone, Debug)]
pub struct OldLaunch {
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// Packed parameters.
    pub parameters: Vec<u8>,
}

/// Compiles a text. Errors are reported through the log.
///
/// # Safety
/// The log's buffers are valid.
pub unsafe fn compile(text: &str, context_capability: (u32, u32), log: &jit::Log) -> Result<ptx::Module> {
    let outcome = check_target(text, context_capability)
        .and_then(|()| ptx::Module::parse(text).map_err(|error| error.to_string()));
    // SAFETY: the caller's promise.
    unsafe {
        match outcome {
            Ok(module) => {
                log.finish();
                Ok(module)
            }
            Err(message) => {
                log.report(&message);
                Err(CUerror::INVALID_PTX)
            }
        }
    }
}

/// Code for a newer device than this one cannot be compiled.
fn check_target(text: &str, (major, minor): (u32, u32)) -> std::result::Result<(), String> {
    let target = text.lines().find_map(|line| line.trim().strip_prefix(".target"));
    let digits: Option<String> = target
        .and_then(|rest| rest.trim().strip_prefix("sm_"))
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect());
    match digits.and_then(|digits| digits.parse::<u32>().ok()) {
        Some(wanted) if wanted > 10 * major + minor => Err(format!(
            "SM version sm_{wanted} of .target is higher than that of the device, sm_{major}{minor}"
        )),
        Some(_) | None => Ok(()),
    }
}

impl Module {
    /// Loads compiled code into a context.
    pub fn load(driver: &Driver, context: &Arc<Context>, code: Arc<ptx::Module>) -> Result<Arc<Module>> {
        // Loading a module is one of the points at which what kernels printed is written.
        context.queue.output().flush();
        if code.uses_heap() {
            system::prepare_heap(driver, context)?;
        }
        let memory = Arc::new(CodeMemory::new(context.device));
        if !loading::is_lazy() {
            memory.take()?;
        }
        let variables = match place_variables(driver, context, &code) {
            Ok(variables) => Arc::new(variables),
            Err(error) => {
                memory.give_back(driver);
                return Err(error);
            }
        };
        let module = Arc::new(Module {
            handle: MODULES.new_handle(),
            context: Arc::clone(context),
            code,
            variables,
            functions: Mutex::default(),
            memory,
        });
        MODULES.put(module.handle, Arc::clone(&module));
        Ok(module)
    }

    /// The function of that name; one handle per function. Its code may not be loaded yet ([`Function::load`]).
    pub fn function(&self, name: &str) -> Result<Arc<Function>> {
        let mut functions = self.functions.lock();
        if let Some(function) = functions.get(name) {
            return Ok(Arc::clone(function));
        }
        let entry = self.code.entry(name).ok_or(CUerror::NOT_FOUND)?;
        let room = u64::from(attributes::SHARED_BYTES).saturating_sub(entry.static_shared_bytes());
        let function = Arc::new(Function {
            handle: FUNCTIONS.new_handle(),
            name: std::ffi::CString::new(name).map_err(|_| CUerror::NOT_FOUND)?,
            module: self.handle,
            context: Arc::clone(&self.context),
            entry: entry.clone(),
            variables: Arc::clone(&self.variables),
            settings: Settings {
                dynamic_shared_bytes_max: AtomicU32::new(room as u32),
                carveout: AtomicU32::new(u32::MAX),
            },
            loaded: AtomicBool::new(!loading::is_lazy()),
            memory: Arc::clone(&self.memory),
            old_launch: Mutex::new(OldLaunch { block: [0; 3], shared_bytes: 0, parameters: Vec::new() }),
        });
        FUNCTIONS.put(function.handle, Arc::clone(&function));
        functions.insert(name.to_owned(), Arc::clone(&function));
        Ok(function)
    }

    /// Gives back what the module holds. The handle has been taken out of the registry.
    pub fn unload(&self, driver: &Driver) {
        FUNCTIONS.remove_where(|function| function.module == self.handle);
        self.context.queue.output().flush();
        for &(address, _) in self.variables.values() {
            // Already gone when the context's allocations were freed.
            let _ = driver.space.free(address);
        }
        self.memory.give_back(driver);
    }
}

/// The context is gone: so are its modules.
pub fn unload_all_of(driver: &Driver, context: u64) {
    for module in MODULES.remove_where(|module| module.context.id() == context) {
        module.unload(driver);
    }
    library::forget_context(context);
}

/// Allocates and initialises the variables of a module.
fn place_variables(
    driver: &Driver,
    context: &Context,
    code: &ptx::Module,
) -> Result<HashMap<String, (u64, u64)>> {
    let mut places: HashMap<String, (u64, u64)> = HashMap::new();
    let free = |places: &HashMap<String, (u64, u64)>| {
        for &(address, _) in places.values() {
            let _ = driver.space.free(address);
        }
    };
    for variable in code.globals().iter().filter(|variable| !variable.is_extern) {
        match driver.space.allocate(context.id(), context.device, variable.size.max(1)) {
            Ok(address) => places.insert(variable.name.clone(), (address, variable.size)),
            Err(error) => {
                free(&places);
                return Err(error);
            }
        };
    }
    let (_, space) = driver.engines(context.device);
    for variable in code.globals().iter().filter(|variable| !variable.is_extern) {
        let mut bytes = variable.initial.clone();
        bytes.resize(variable.size as usize, 0);
        for relocation in &variable.relocations {
            let Some(&(target, _)) = places.get(&relocation.symbol) else {
                free(&places);
                return Err(CUerror::SHARED_OBJECT_SYMBOL_NOT_FOUND);
            };
            let value = target.wrapping_add_signed(relocation.addend).to_le_bytes();
            let at = relocation.offset as usize;
            if let Some(place) = bytes.get_mut(at..at + value.len()) {
                place.copy_from_slice(&value);
            }
        }
        let address = places[&variable.name].0;
        // SAFETY: `bytes` is readable for its length.
        unsafe { space.copy_to_device(address, bytes.as_ptr(), bytes.len() as u64) }
            .map_err(|fault| fault.error)?;
    }
    Ok(places)
}

impl Function {
    /// Brings its code to the device unless it is there.
    pub fn load(&self) -> Result<()> {
        if !self.is_loaded() {
            self.memory.take()?;
            self.loaded.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Whether its code is on the device.
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// The value of a `CUfunction_attribute`; `None` when there is no such attribute.
    pub fn attribute(&self, attribute: u32) -> Option<i32> {
        Some(match attribute {
            0 => self.threads_max() as i32,
            1 => self.entry.static_shared_bytes() as i32,
            2 => 0,
            3 => self.entry.local_bytes() as i32,
            4 => self.registers() as i32,
            5 | 6 => {
                let config =
                    crate::driver::driver().ok()?.arena.devices()[self.context.device].config.clone();
                (10 * config.compute_major + config.compute_minor) as i32
            }
            7 => 0,
            8 => self.settings.dynamic_shared_bytes_max.load(Ordering::Relaxed) as i32,
            9 => self.settings.carveout.load(Ordering::Relaxed) as i32,
            10..=17 => 0,
            _ => return None,
        })
    }

    /// Most threads of a block of this function.
    pub fn threads_max(&self) -> u32 {
        let declared = self.entry.most_threads.or(self.entry.required_threads);
        let threads = declared.map_or(attributes::BLOCK_THREADS_MAX, |threads| threads.iter().product());
        threads.min(attributes::BLOCK_THREADS_MAX)
    }

    /// Registers per thread: as a compiler would need at most, since none chose.
    pub fn registers(&self) -> u32 {
        let most = attributes::REGISTERS / self.threads_max().max(1);
        (self.entry.register_count() as u32).clamp(16, 255).min(most)
    }
}
