//! Linking: several texts become one module (PTX ISA section "Linking Directives").
//!
//! A name that is `.visible` means the same thing in all texts; names that are not are renamed where another text
//! has them too. Messages are those of the CUDA linker. Compiles nothing itself. Read next: `module.rs`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use thiserror::Error as ThisError;

use crate::compile::functions::{Undefined, initial_names, used_names};
use crate::compile::system;
use crate::error::Error;
use crate::lexer::{TokenKind, tokens};
use crate::module::Module;
use crate::parser;
use crate::syntax::{Linkage, ModuleSyntax};
use crate::types::Space;

/// One text.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// For messages.
    pub name: &'a str,
    /// PTX.
    pub text: &'a str,
}

/// Why texts cannot be linked.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum LinkError {
    /// A text cannot be compiled.
    #[error("{input}: {error}")]
    Input {
        /// Name of the text.
        input: String,
        /// What is wrong with it.
        error: Error,
    },
    /// Two texts define one name, or say different things of it; one line per name.
    #[error("{0}")]
    Conflict(String),
    /// Names that are used and nowhere defined; one line per name.
    #[error("{0}")]
    Undefined(String),
}

impl Module {
    /// Links `inputs` into one module.
    ///
    /// # Errors
    /// `LinkError`: see there.
    pub fn link(inputs: &[Input<'_>]) -> Result<Self, LinkError> {
        check_conflicts(inputs)?;
        let texts = renamed(inputs)?;
        let parsed = parse_all(inputs, texts.iter().map(String::as_str))?;
        let undefined = undefined(inputs, &parsed);
        if !undefined.is_empty() {
            return Err(LinkError::Undefined(undefined));
        }
        let merged = merge(parsed);
        Self::compile(&merged, Undefined::Refused)
            .map_err(|error| LinkError::Input { input: "linked code".into(), error })
    }

    /// Whether names of the last of `inputs` conflict with those of the ones before it.
    ///
    /// # Errors
    /// `LinkError::Conflict`, or `Input` for a text that is no PTX.
    pub fn check_conflicts(inputs: &[Input<'_>]) -> Result<(), LinkError> {
        check_conflicts(inputs)
    }
}

fn parse_all<'t>(
    inputs: &[Input<'_>],
    texts: impl Iterator<Item = &'t str>,
) -> Result<Vec<ModuleSyntax<'t>>, LinkError> {
    let parsed = inputs.iter().zip(texts).map(|(input, text)| {
        parser::parse(text).map_err(|error| LinkError::Input { input: input.name.to_owned(), error })
    });
    parsed.collect()
}

/// What one text says of a name at module level.
#[derive(Debug, Clone, Copy)]
struct Symbol<'a> {
    name: &'a str,
    linkage: Linkage,
    /// Defined here, not only declared.
    is_defined: bool,
    /// Space and size of a variable.
    variable: Option<(Space, bool, u64)>,
}

fn symbols<'a>(module: &ModuleSyntax<'a>) -> Vec<Symbol<'a>> {
    let functions = module.functions.iter().map(|function| Symbol {
        name: function.name,
        // A kernel is found by its name, whatever its linkage.
        linkage: if function.is_entry && function.linkage == Linkage::Local {
            Linkage::Visible
        } else {
            function.linkage
        },
        is_defined: function.body.is_some(),
        variable: None,
    });
    let variables = module.variables.iter().map(|variable| Symbol {
        name: variable.name,
        // Shared memory is a block's: what several texts declare under one name stays apart or is dynamic.
        linkage: variable.linkage,
        is_defined: variable.linkage != Linkage::Extern,
        variable: Some((variable.space, variable.is_constant, variable.size().unwrap_or(0))),
    });
    functions.chain(variables).collect()
}

fn check_conflicts(inputs: &[Input<'_>]) -> Result<(), LinkError> {
    let parsed = parse_all(inputs, inputs.iter().map(|input| input.text))?;
    let mut first: BTreeMap<&str, (Symbol<'_>, &str)> = BTreeMap::new();
    let mut lines = String::new();
    for (input, module) in inputs.iter().zip(&parsed) {
        let found = symbols(module).into_iter().filter(|symbol| symbol.linkage != Linkage::Local);
        for symbol in found.filter(|symbol| symbol.is_defined) {
            let Some((earlier, place)) = first.get(symbol.name).copied() else {
                first.insert(symbol.name, (symbol, input.name));
                continue;
            };
            let mut say = |what: &str, word: &str| {
                let (name, input) = (symbol.name, input.name);
                lines += &format!("error   : {what} '{name}' in '{input}', first {word} in '{place}'\n");
            };
            match (earlier.variable, symbol.variable) {
                (Some((space, constant, _)), Some((other, constant_too, _)))
                    if (space, constant) != (other, constant_too) =>
                {
                    say("Memory space doesn't match for", "specified");
                }
                (Some((.., size)), Some((.., other))) if size != other && !is_common(&earlier, &symbol) => {
                    say("Size doesn't match for", "specified");
                }
                (None, Some(_)) | (Some(_), None) => say("Memory space doesn't match for", "specified"),
                _ => {}
            }
            let strong = |symbol: &Symbol<'_>| symbol.linkage == Linkage::Visible;
            if strong(&earlier) && strong(&symbol) {
                say("Multiple definition of", "defined");
            } else if strong(&symbol) {
                first.insert(symbol.name, (symbol, input.name));
            }
        }
    }
    if lines.is_empty() { Ok(()) } else { Err(LinkError::Conflict(lines.trim_end().to_owned())) }
}

fn is_common(a: &Symbol<'_>, b: &Symbol<'_>) -> bool {
    a.linkage == Linkage::Common || b.linkage == Linkage::Common
}

/// The texts with other names for what is local to one and known in another.
fn renamed(inputs: &[Input<'_>]) -> Result<Vec<String>, LinkError> {
    let parsed = parse_all(inputs, inputs.iter().map(|input| input.text))?;
    let names: Vec<HashSet<&str>> =
        parsed.iter().map(|module| symbols(module).iter().map(|symbol| symbol.name).collect()).collect();
    let mut texts = Vec::new();
    for (place, (input, module)) in inputs.iter().zip(&parsed).enumerate() {
        let elsewhere = |name: &str| {
            names.iter().enumerate().any(|(other, names)| other != place && names.contains(name))
        };
        let local: BTreeSet<&str> = symbols(module)
            .iter()
            .filter(|symbol| symbol.linkage == Linkage::Local && elsewhere(symbol.name))
            .map(|symbol| symbol.name)
            .collect();
        texts.push(rename(input, &local, place)?);
    }
    Ok(texts)
}

fn rename(input: &Input<'_>, names: &BTreeSet<&str>, place: usize) -> Result<String, LinkError> {
    let text = input.text;
    let refuse = |error| LinkError::Input { input: input.name.to_owned(), error };
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for token in tokens(text).map_err(refuse)? {
        if let TokenKind::Word(word) = token.kind
            && names.contains(word)
        {
            out.push_str(&text[copied..token.end]);
            out.push_str(&format!("$of_input_{place}"));
            copied = token.end;
        }
        if token.kind == TokenKind::End {
            out.push_str(&text[copied..token.start]);
        }
    }
    Ok(out)
}

/// A line for each name that a text uses and none defines.
fn undefined(inputs: &[Input<'_>], parsed: &[ModuleSyntax<'_>]) -> String {
    let defined: HashSet<&str> = parsed
        .iter()
        .flat_map(symbols)
        .filter(|symbol| symbol.is_defined)
        .map(|symbol| symbol.name)
        .collect();
    let mut lines = Vec::new();
    for (input, module) in inputs.iter().zip(parsed) {
        let mut used = HashSet::new();
        let mut take = |name| {
            used.insert(name);
        };
        for body in module.functions.iter().filter_map(|function| function.body.as_ref()) {
            used_names(body, &mut take);
        }
        for initial in module.variables.iter().filter_map(|variable| variable.initial.as_ref()) {
            initial_names(initial, &mut take);
        }
        let mut seen = HashSet::new();
        for symbol in symbols(module) {
            // Dynamic shared memory is declared so and defined by the launch.
            let dynamic = symbol.variable.is_some_and(|(space, ..)| space == Space::Shared);
            if used.contains(symbol.name)
                && !defined.contains(symbol.name)
                && !dynamic
                && !system::is_known(symbol.name)
                && seen.insert(symbol.name)
            {
                lines.push(format!("error   : Undefined reference to '{}' in '{}'", symbol.name, input.name));
            }
        }
    }
    lines.join("\n")
}

/// All of them in one, with one definition of each name.
fn merge(parsed: Vec<ModuleSyntax<'_>>) -> ModuleSyntax<'_> {
    let mut merged = ModuleSyntax::default();
    for module in parsed {
        merged.functions.extend(module.functions);
        merged.variables.extend(module.variables);
    }
    let order = |linkage: Linkage| match linkage {
        Linkage::Visible | Linkage::Local => 0,
        Linkage::Common => 1,
        Linkage::Weak => 2,
        Linkage::Extern => 3,
    };
    // Definitions that go before others come first; the sort keeps the order among equals.
    merged.functions.sort_by_key(|function| (function.body.is_none(), order(function.linkage)));
    let mut seen = HashSet::new();
    merged.functions.retain(|function| function.body.is_none() || seen.insert(function.name));
    let mut variables = merged.variables;
    variables
        .sort_by_key(|variable| (order(variable.linkage), std::cmp::Reverse(variable.size().unwrap_or(0))));
    let mut seen = HashSet::new();
    variables.retain(|variable| seen.insert(variable.name));
    merged.variables = variables;
    merged
}
