//! A second opinion on the signatures: `cudaTypedefs.h` says what type a pointer from `cuGetProcAddress` has
//! for a name and a version, the tables in `tests/data/driver-symbols` say which symbol that pointer is.
//!
//! So each declared signature that a real driver resolves is compared with an independent statement of
//! it. Only tests; nothing is generated from this.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quote::ToTokens as _;
use syn::visit_mut::VisitMut;

use crate::header::{self, Parsed, ShortPaths};

fn include_folder() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    crate::wheel::include_folder(&repository.join("target/cuda-headers")).expect("headers")
}

/// `PFN_cuX_v1234` -> its function type.
fn typedefs(include: &Path) -> BTreeMap<String, syn::TypeBareFn> {
    let bindings = bindgen::Builder::default()
        .header(include.join("cudaTypedefs.h").display().to_string())
        .clang_arg(format!("-I{}", include.display()))
        .clang_arg("-D__CUDA_API_VERSION_INTERNAL")
        .clang_arg("--target=x86_64-unknown-linux-gnu")
        .generate_comments(false)
        .allowlist_type("PFN_cu.*")
        .allowlist_recursively(false)
        .use_core()
        .formatter(bindgen::Formatter::None)
        .generate()
        .expect("cudaTypedefs.h can be read");
    let mut file = syn::parse_file(&bindings.to_string()).expect("bindgen writes Rust");
    ShortPaths.visit_file_mut(&mut file);
    let mut found = BTreeMap::new();
    for item in file.items {
        let syn::Item::Type(alias) = item else { continue };
        let syn::Type::Path(option) = *alias.ty else { continue };
        let last = option.path.segments.last().expect("a path has a segment");
        let syn::PathArguments::AngleBracketed(inner) = &last.arguments else { continue };
        if let Some(syn::GenericArgument::Type(syn::Type::BareFn(function))) = inner.args.first() {
            found.insert(alias.ident.to_string(), function.clone());
        }
    }
    found
}

/// Names of types replaced by what they are aliases of, until nothing changes.
struct Resolve<'a>(&'a BTreeMap<String, syn::Type>);

impl VisitMut for Resolve<'_> {
    fn visit_type_mut(&mut self, ty: &mut syn::Type) {
        while let syn::Type::Path(path) = &*ty
            && let Some(target) = path.path.get_ident().and_then(|name| self.0.get(&name.to_string()))
        {
            *ty = target.clone();
        }
        syn::visit_mut::visit_type_mut(self, ty);
    }

    /// Names of arguments are no part of a type.
    fn visit_bare_fn_arg_mut(&mut self, argument: &mut syn::BareFnArg) {
        argument.name = None;
        syn::visit_mut::visit_bare_fn_arg_mut(self, argument);
    }
}

fn aliases(parsed: &Parsed) -> BTreeMap<String, syn::Type> {
    let mut found = BTreeMap::new();
    for item in &parsed.types {
        match item {
            syn::Item::Type(alias) => {
                found.insert(alias.ident.to_string(), (*alias.ty).clone());
            }
            syn::Item::Use(item) => {
                let syn::UseTree::Path(path) = &item.tree else { continue };
                let syn::UseTree::Rename(rename) = &*path.tree else { continue };
                let target = &rename.ident;
                found.insert(rename.rename.to_string(), syn::parse_quote!(#target));
            }
            _ => {}
        }
    }
    found
}

fn resolved<'a>(
    aliases: &BTreeMap<String, syn::Type>,
    arguments: impl Iterator<Item = &'a syn::Type>,
    returns: &syn::ReturnType,
) -> String {
    let mut text = String::new();
    for ty in arguments {
        let mut ty = ty.clone();
        Resolve(aliases).visit_type_mut(&mut ty);
        text.push_str(&format!("{}, ", ty.to_token_stream()));
    }
    let mut returns = returns.clone();
    Resolve(aliases).visit_return_type_mut(&mut returns);
    text + &returns.to_token_stream().to_string()
}

#[test]
fn every_resolved_symbol_has_the_signature_of_its_typedef() {
    let include = include_folder();
    let stand_ins = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let parsed = header::parse(&include, &stand_ins).expect("headers can be read");
    let (typedefs, aliases) = (typedefs(&include), aliases(&parsed));
    let declared: BTreeMap<_, _> =
        parsed.functions.iter().map(|function| (function.name.as_str(), function)).collect();
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/driver-symbols");
    let table = std::fs::read_to_string(tables.join("gpa_map.555.58.02-4.tsv")).expect("table");

    let (mut compared, mut different) = (0, Vec::new());
    for line in table.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [base, _flag, from_version, symbol] = columns[..] else { panic!("row {line:?}") };
        let (Some(function), Some(typedef)) =
            (declared.get(symbol), typedefs.get(&format!("PFN_{base}_v{from_version}")))
        else {
            continue;
        };
        let ours = resolved(&aliases, function.arguments.iter().map(|(_, ty)| ty), &function.returns);
        let theirs = resolved(&aliases, typedef.inputs.iter().map(|input| &input.ty), &typedef.output);
        compared += 1;
        if ours != theirs {
            different.push(format!("{symbol} from {from_version}:\n  {ours}\n  {theirs}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(compared > 1000, "only {compared} rows could be compared");
}
