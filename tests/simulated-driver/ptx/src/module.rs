//! A loaded module: its entries, ready to launch, and the variables the driver has to allocate for it.
//!
//! Allocates no device memory and knows no addresses; those come with each launch. Read next: `launch.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compile;
use crate::compile::functions::{Functions, Undefined};
use crate::error::Error;
use crate::parser;
use crate::program::Program;
use crate::syntax::ModuleSyntax;
use crate::types::Space;

/// A parsed and compiled PTX text.
#[derive(Debug)]
pub struct Module {
    entries: BTreeMap<String, Entry>,
    globals: Vec<GlobalVariable>,
}

/// One kernel.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Parameters in the order of declaration.
    pub parameters: Vec<Parameter>,
    /// `.maxntid`: most threads of a block in x, y, z.
    pub most_threads: Option<[u32; 3]>,
    /// `.reqntid`: exact threads of a block in x, y, z.
    pub required_threads: Option<[u32; 3]>,
    pub(crate) program: Arc<Program>,
}

/// Place of one kernel parameter, in bytes from the start of the parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Name in the text.
    pub name: String,
    /// Offset in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// Alignment in bytes.
    pub align: u64,
}

/// A module variable in global or constant space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalVariable {
    /// Name in the text.
    pub name: String,
    /// Size in bytes; zero for an unsized array.
    pub size: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// Declared `.const`.
    pub is_constant: bool,
    /// Declared `.extern`: another module holds it.
    pub is_extern: bool,
    /// The first bytes; what follows up to `size` is zero.
    pub initial: Vec<u8>,
    /// Addresses that have to be written into it.
    pub relocations: Vec<Relocation>,
}

/// At `offset` of a variable, eight bytes hold the device address of `symbol` plus `addend`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    /// Offset in the variable, in bytes.
    pub offset: u64,
    /// Name of the variable whose address is written.
    pub symbol: String,
    /// Added to that address.
    pub addend: i64,
}

impl Module {
    /// Parses and compiles every entry of `text`. A zero byte ends the text.
    ///
    /// # Errors
    /// `Error::Unsupported` for an instruction outside the executed subset in any kernel, or in a function that one calls;
    /// the other kinds for a text that is no valid PTX.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::compile(&parser::parse(text)?, Undefined::Refused)
    }

    /// Checks a text that will be linked with others, which may define the functions it calls.
    ///
    /// # Errors
    /// As `parse`.
    pub fn check_input(text: &str) -> Result<(), Error> {
        Self::compile(&parser::parse(text)?, Undefined::Allowed).map(|_| ())
    }

    pub(crate) fn compile(syntax: &ModuleSyntax<'_>, undefined: Undefined) -> Result<Self, Error> {
        let functions = Functions::of(syntax, undefined)?;
        let mut entries = BTreeMap::new();
        for function in &syntax.functions {
            let (true, Some(body)) = (function.is_entry, &function.body) else { continue };
            let (parameters, _) = compile::layout::parameters(function)?;
            let program = Arc::new(compile::compile(syntax, &functions, function, body)?);
            let entry = Entry {
                parameters,
                most_threads: function.most_threads,
                required_threads: function.required_threads,
                program,
            };
            entries.insert(function.name.to_owned(), entry);
        }
        let mut globals = Vec::new();
        for variable in syntax.variables.iter().filter(|variable| variable.space == Space::Global) {
            let mut global = compile::layout::global(variable)?;
            functions.relocate(&mut global);
            globals.push(global);
        }
        Ok(Self { entries, globals })
    }

    /// Names of the kernels, in alphabetical order.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The kernel of that name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Replaces the kernel of that name by the other module's, and takes over the variables that are missing
    /// here. False if one of the two has no such kernel.
    pub fn adopt(&mut self, name: &str, other: &Module) -> bool {
        let (Some(place), Some(entry)) = (self.entries.get_mut(name), other.entries.get(name)) else {
            return false;
        };
        *place = entry.clone();
        for variable in &other.globals {
            if self.globals.iter().all(|known| known.name != variable.name) {
                self.globals.push(variable.clone());
            }
        }
        true
    }

    /// Adds the kernels and variables of another module that are missing here.
    pub fn merge(&mut self, other: Module) {
        for (name, entry) in other.entries {
            self.entries.entry(name).or_insert(entry);
        }
        for variable in other.globals {
            if self.globals.iter().all(|known| known.name != variable.name) {
                self.globals.push(variable);
            }
        }
    }

    /// Whether any kernel takes memory of the device's heap (`malloc` in a kernel).
    pub fn uses_heap(&self) -> bool {
        self.entries.values().any(|entry| entry.program.uses_heap)
    }

    /// Variables in global and constant space, in the order of declaration.
    pub fn globals(&self) -> &[GlobalVariable] {
        &self.globals
    }
}

impl Entry {
    /// Name of the kernel.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Bytes of parameters that a launch passes.
    pub fn parameter_bytes(&self) -> u64 {
        self.program.parameter_bytes
    }

    /// Bytes of static shared memory per block.
    pub fn static_shared_bytes(&self) -> u64 {
        self.program.static_shared_bytes
    }

    /// Bytes of local memory per thread.
    pub fn local_bytes(&self) -> u64 {
        self.program.local_bytes
    }

    /// Registers that the executor keeps per thread; a device's count differs.
    pub fn register_count(&self) -> usize {
        self.program.slots.len()
    }
}
