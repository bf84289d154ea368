//! The CUDA runtime of several toolkits, fetched into `target/cuda-runtimes`, a folder for each.
//!
//! NVIDIA's licence lets `libcudart.so` be passed on with programs, and packages of the Python registry do so. The
//! oldest here comes out of torchvision, the only small package that has one from before 11.2. Only the library is
//! kept. A machine without the registry is no error here; the caller says what it leaves out.

use crate::command::{run, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Toolkit, package, name of the library.
const RUNTIMES: &[(&str, &str, &str)] = &[
    ("10.2", "torchvision==0.12.0", "libcudart.so.10.2"),
    ("11.8", "nvidia-cuda-runtime-cu11==11.8.89", "libcudart.so.11.0"),
    ("12.9", "nvidia-cuda-runtime-cu12==12.9.79", "libcudart.so.12"),
    ("13.5", "nvidia-cuda-runtime==13.5.37", "libcudart.so.13"),
];

/// The folder with `<toolkit>/libcudart.so.<version>`; `python` has pip. `Ok(Err)`: with a reason.
pub fn libraries(python: &Path) -> Result<std::result::Result<PathBuf, String>> {
    let root = target().join("cuda-runtimes");
    let stamp = root.join("packages.txt");
    let wanted = format!("{RUNTIMES:?}");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(Ok(root));
    }
    for (toolkit, package, library) in RUNTIMES {
        if let Err(error) = fetch(python, &root.join(toolkit), package, library) {
            return Ok(Err(format!("{library} of {package} could not be fetched ({error:#})")));
        }
    }
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(Ok(root))
}

/// Downloads the package, whatever Python it is for, and takes the library out.
fn fetch(python: &Path, folder: &Path, package: &str, library: &str) -> Result<()> {
    let work = folder.join("package");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    }
    let mut download = Command::new(python);
    download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    run(download.args(["--python-version", "3.10", package, "--dest"]).arg(&work))?;
    let Some(wheel) = fs::read_dir(&work)?.next() else { bail!("pip downloaded nothing") };
    let unpacked = work.join("unpacked");
    run(Command::new(python).args(["-m", "zipfile", "-e"]).arg(wheel?.path()).arg(&unpacked))?;
    let mut found = Vec::new();
    find(&unpacked, &mut found)?;
    let [found] = found.as_slice() else { bail!("{} files in it are called libcudart", found.len()) };
    fs::copy(found, folder.join(library)).with_context(|| format!("cannot copy {}", found.display()))?;
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))
}

/// All shared libraries of the runtime below a folder.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            find(&path, found)?;
        } else if name.starts_with("libcudart.") && name.contains(".so.") {
            found.push(path);
        }
    }
    Ok(())
}
