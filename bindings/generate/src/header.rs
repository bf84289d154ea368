//! Parses the driver API headers with bindgen and splits the result: functions, types, error codes.
//!
//! The header is read as the driver's own build reads it (`__CUDA_API_VERSION_INTERNAL`): then each ABI
//! version is declared under the name that a driver exports, `cuMemAlloc` beside `cuMemAlloc_v2`, and
//! the per-thread-stream forms carry their `_ptds`/`_ptsz` suffix. GL, EGL and VDPAU are not needed:
//! `bindings/generate/include` has stand-ins for the few typedefs that the interop headers name.

use std::path::Path;

use anyhow::{Context, Result, bail};
use syn::visit_mut::VisitMut;

/// One function of the driver API.
#[derive(Debug, Clone)]
pub struct Function {
    pub name: String,
    pub arguments: Vec<(String, syn::Type)>,
    pub returns: syn::ReturnType,
}

/// What the headers say.
#[derive(Debug)]
pub struct Parsed {
    pub functions: Vec<Function>,
    /// Types and constants, as Rust items.
    pub types: Vec<syn::Item>,
    /// Compile-time assertions of size, alignment and offsets.
    pub layout: Vec<syn::Item>,
    /// `(name without CUDA_ERROR_, code)`, sorted by code.
    pub error_codes: Vec<(String, u32)>,
}

/// Name of the C type of a status code; it becomes `crate::result::CUresult`.
const STATUS: &str = "cudaError_enum";

/// Parses the headers in `include`; `stand_ins` holds what they include from elsewhere.
pub fn parse(include: &Path, stand_ins: &Path) -> Result<Parsed> {
    let bindings = bindgen::Builder::default()
        .header(stand_ins.join("driver_api.h").display().to_string())
        .clang_arg(format!("-I{}", include.display()))
        .clang_arg(format!("-I{}", stand_ins.display()))
        .clang_arg("-D__CUDA_API_VERSION_INTERNAL")
        // Headers are read for the one ABI the project supports, whatever machine generates.
        .clang_arg("--target=x86_64-unknown-linux-gnu")
        .generate_comments(false)
        .allowlist_function("cu[A-Z].*")
        .allowlist_type("CU.*|cuda.*|cu[A-Z].*|cuuint.*")
        .allowlist_var("CU_.*|CUDA_.*|CU[A-Z_0-9]+")
        .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: true })
        .prepend_enum_name(false)
        .anon_fields_prefix("anonymous_")
        .derive_default(true)
        .impl_debug(true)
        .use_core()
        .sort_semantically(true)
        .formatter(bindgen::Formatter::None)
        .generate()
        .context("bindgen could not read the CUDA headers")?;
    // A nameless inner structure is called after the one that holds it.
    let text = bindings.to_string().replace("__bindgen_ty_", "_anonymous_");
    let mut file = syn::parse_file(&text).context("bindgen wrote something unexpected")?;
    ShortPaths.visit_file_mut(&mut file);
    split(file)
}

fn split(file: syn::File) -> Result<Parsed> {
    let mut parsed =
        Parsed { functions: Vec::new(), types: Vec::new(), layout: Vec::new(), error_codes: Vec::new() };
    for item in file.items {
        match item {
            syn::Item::ForeignMod(foreign) => {
                for item in foreign.items {
                    let syn::ForeignItem::Fn(function) = item else { continue };
                    parsed.functions.push(read_function(function)?);
                }
            }
            syn::Item::Const(constant) if is_status(&constant.ty) => {
                parsed.error_codes.extend(read_error_code(&constant)?);
            }
            syn::Item::Const(mut constant) if constant.ident == "_" => {
                constant.attrs.clear();
                parsed.layout.push(syn::Item::Const(constant));
            }
            syn::Item::Struct(item) if item.ident == STATUS => {}
            syn::Item::Use(item) if names_status(&item.tree) => {}
            other => parsed.types.push(other),
        }
    }
    parsed.functions.sort_by(|left, right| left.name.cmp(&right.name));
    parsed.functions.dedup_by(|left, right| left.name == right.name);
    parsed.error_codes.sort_by_key(|(_, code)| *code);
    if parsed.functions.len() < 600 || parsed.error_codes.len() < 90 {
        bail!("only {} functions and {} codes found", parsed.functions.len(), parsed.error_codes.len());
    }
    Ok(parsed)
}

fn read_function(function: syn::ForeignItemFn) -> Result<Function> {
    let name = function.sig.ident.to_string();
    let mut arguments = Vec::new();
    for (position, input) in function.sig.inputs.into_iter().enumerate() {
        let syn::FnArg::Typed(typed) = input else { bail!("{name} has a receiver") };
        let argument = match *typed.pat {
            syn::Pat::Ident(pattern) => snake_case(&pattern.ident.to_string()),
            _ => format!("argument_{position}"),
        };
        arguments.push((argument, *typed.ty));
    }
    Ok(Function { name, arguments, returns: function.sig.output })
}

/// `numExtSems` becomes `num_ext_sems`, so that no caller of the macros has to silence a lint.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (position, &letter) in letters.iter().enumerate() {
        let before = position.checked_sub(1).map(|before| letters[before]);
        let starts_word = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_ascii_digit()
                    || (before.is_uppercase()
                        && letters.get(position + 1).is_some_and(|next| next.is_lowercase()))
            });
        if starts_word {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// `CUDA_ERROR_X = code` gives `(X, code)`; success is no error.
fn read_error_code(constant: &syn::ItemConst) -> Result<Option<(String, u32)>> {
    let name = constant.ident.to_string();
    let syn::Expr::Call(call) = &*constant.expr else { bail!("{name} is not a call") };
    let Some(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(code), .. })) = call.args.first() else {
        bail!("{name} has no number")
    };
    let code: u32 = code.base10_parse()?;
    if code == 0 {
        return Ok(None);
    }
    let short = name.strip_prefix("CUDA_ERROR_").with_context(|| format!("{name} is no CUDA_ERROR_"))?;
    Ok(Some((short.to_owned(), code)))
}

fn is_status(ty: &syn::Type) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.is_ident(STATUS))
}

fn names_status(tree: &syn::UseTree) -> bool {
    match tree {
        syn::UseTree::Path(path) => names_status(&path.tree),
        syn::UseTree::Rename(rename) => rename.ident == STATUS,
        syn::UseTree::Name(name) => name.ident == STATUS,
        _ => false,
    }
}

/// `::core::ffi::c_int` reads `c_int`, `::core::option::Option` reads `Option`.
pub struct ShortPaths;

impl VisitMut for ShortPaths {
    fn visit_path_mut(&mut self, path: &mut syn::Path) {
        syn::visit_mut::visit_path_mut(self, path);
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if matches!(names.as_slice(), ["core", "ffi", _] | ["core", "option", "Option"]) {
            let last = path.segments.pop().map(syn::punctuated::Pair::into_value);
            path.leading_colon = None;
            path.segments = last.into_iter().collect();
        }
    }
}
