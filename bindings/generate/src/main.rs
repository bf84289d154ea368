//! Writes the generated part of `turnus-bindings` from NVIDIA's `cuda.h` and from what real drivers export.
//!
//! `cargo run -p turnus-bindings-generate` rewrites `bindings/src/{api,types,layout,error_codes}.rs`; with `--check`
//! it only compares and fails when they are stale. The header is read and never copied: no comment of
//! it reaches the output. Needs libclang (Debian: `libclang-dev`).
//! Read next: `header.rs` (what is parsed), `render.rs` (what is written).

#![forbid(unsafe_code)]

mod header;
mod render;
mod symbols;
#[cfg(test)]
mod typedefs;
mod wheel;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;

/// Writes or checks the generated files of `turnus-bindings`.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder that holds `cuda.h`. Without it the pinned wheel is downloaded into `target/`.
    #[arg(long)]
    header: Option<PathBuf>,
    /// Compare only; fail if a committed file differs from what would be written.
    #[arg(long)]
    check: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let generate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bindings_folder = generate_folder.parent().context("bindings/generate has no parent folder")?;
    let repository = bindings_folder.parent().context("bindings has no parent folder")?;

    let include = match arguments.header {
        Some(folder) => folder,
        None => wheel::include_folder(&repository.join("target/cuda-headers"))?,
    };
    let parsed = header::parse(&include, &generate_folder.join("include"))?;
    let exported = symbols::exported_by_drivers(&repository.join("tests/data/driver-symbols"))?;
    let api = symbols::unite(&parsed.functions, &exported);

    let files = [
        ("api.rs", render::api(&api)),
        ("types.rs", render::types(&parsed)),
        ("layout.rs", render::layout(&parsed)),
        ("error_codes.rs", render::error_codes(&parsed)),
    ];
    for (name, content) in &files {
        let path = bindings_folder.join("src").join(name);
        if arguments.check { compare(&path, content)? } else { write(&path, content)? }
    }
    println!("{} functions with a signature, {} names without", api.typed.len(), api.untyped.len());
    Ok(())
}

fn write(path: &Path, content: &str) -> Result<()> {
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn compare(path: &Path, content: &str) -> Result<()> {
    let committed =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    if committed == content {
        return Ok(());
    }
    let line = committed.lines().zip(content.lines()).position(|(old, new)| old != new);
    let line = line.unwrap_or_else(|| committed.lines().count().min(content.lines().count())) + 1;
    bail!(
        "{} is stale from line {line} on; run `cargo run -p turnus-bindings-generate` and review the change",
        path.display()
    )
}
