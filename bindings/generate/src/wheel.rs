//! Fetches the CUDA headers: one pinned wheel of the Python package index, unpacked under `target/`.
//!
//! Only `pip` and Python's `zipfile` are asked for, which every developer machine of this project has.
//! The headers stay in `target/` and are never committed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The wheel whose headers the committed files were made from. Raise it together with them.
const WHEEL: &str = "nvidia-cuda-runtime==13.5.37";
const INCLUDE: &str = "nvidia/cu13/include";

/// The folder with `cuda.h`, downloaded into `folder` if it is not there yet.
pub fn include_folder(folder: &Path) -> Result<PathBuf> {
    let home = folder.join(WHEEL.replace("==", "-"));
    let include = home.join(INCLUDE);
    if include.join("cuda.h").is_file() {
        return Ok(include);
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // Two runs at the same time each unpack into their own folder; the rename decides.
    let scratch = folder.join(format!("unpacking-{}", std::process::id()));
    run(Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"])
        .args(["--platform", "manylinux2014_x86_64", "--dest"])
        .arg(&scratch)
        .arg(WHEEL))?;
    let wheel = std::fs::read_dir(&scratch)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip downloaded no wheel")?;
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&scratch))?;
    std::fs::remove_file(&wheel)?;
    if std::fs::rename(&scratch, &home).is_err() {
        std::fs::remove_dir_all(&scratch)?;
    }
    if !include.join("cuda.h").is_file() {
        bail!("wheel {WHEEL} has no {INCLUDE}/cuda.h");
    }
    Ok(include)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed with {status}");
    }
    Ok(())
}
