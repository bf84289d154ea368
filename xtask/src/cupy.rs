//! CuPy for CUDA 10.2, the last release whose runtime works on the simulated driver, in an environment of its own.
//!
//! Its package needs NVIDIA's libraries of that toolkit, and of these only the runtime can be had. Stand-ins are
//! compiled for the others: NVRTC passes every call on to the NVRTC of the clients' environment, and the mathematical
//! libraries refuse every call. CuPy itself is as its registry has it. Prepares only; what is missing is no error.

use crate::command::{is_there, run, target};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// MIT and BSD licences. The newest numpy that this CuPy takes.
const PACKAGES: &[&str] = &["cupy-cuda102==12.3.0", "fastrlock==0.8.3", "numpy==1.26.4"];
const NVRTC: &str = "nvrtc";
/// Libraries that a stand-in replaces: prefix of their functions and version.
const STAND_INS: &[(&str, &str)] = &[
    ("cublas", "10"),
    ("curand", "10"),
    ("cusparse", "10"),
    ("cufft", "10"),
    ("cusolver", "10"),
    (NVRTC, "10.2"),
];
/// What every refused call returns: not initialised, for all five libraries.
const REFUSAL: u32 = 1;

/// The interpreter; the libraries lie beside it, in `cuda-10.2`. `Ok(Err)`: it cannot be had here, with a reason.
pub fn environment(clients: &Path, runtimes: &Path) -> Result<std::result::Result<PathBuf, String>> {
    let root = target().join("python-cupy");
    let (python, stamp) = (root.join("bin/python"), root.join("packages.txt"));
    let wanted = PACKAGES.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(Ok(python));
    }
    if !is_there("gcc") || !is_there("nm") {
        return Ok(Err(
            "no gcc and nm, which make stand-ins for libraries (apt-get install gcc binutils)".to_owned()
        ));
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&root))?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]).args(PACKAGES);
    if let Err(error) = run(&mut install) {
        return Ok(Err(format!("{} could not be fetched for this python3 ({error:#})", PACKAGES.join(", "))));
    }
    let libraries = root.join("bin/cuda-10.2");
    fs::create_dir_all(&libraries).with_context(|| format!("cannot make {}", libraries.display()))?;
    let runtime = "libcudart.so.10.2";
    fs::copy(runtimes.join("10.2").join(runtime), libraries.join(runtime))
        .context("cannot copy the runtime")?;
    let undefined = undefined(&packages_of(&python)?)?;
    let nvrtc = packages_of(clients)?.join("nvidia/cu13/lib/libnvrtc.so.13");
    for (prefix, version) in STAND_INS {
        stand_in(&libraries, prefix, version, &undefined, &nvrtc)?;
    }
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(Ok(python))
}

/// Where the packages of an environment lie.
pub fn packages_of(python: &Path) -> Result<PathBuf> {
    let code = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let output = Command::new(python).args(["-c", code]).output()?;
    Ok(PathBuf::from(String::from_utf8(output.stdout).context("the path of the packages")?.trim()))
}

/// The names that CuPy's modules want from elsewhere.
fn undefined(packages: &Path) -> Result<BTreeSet<String>> {
    let mut modules = Vec::new();
    for package in ["cupy", "cupy_backends", "cupyx"] {
        modules_below(&packages.join(package), &mut modules)?;
    }
    let output = Command::new("nm").args(["-D", "--undefined-only"]).args(&modules).output()?;
    if !output.status.success() {
        bail!("nm cannot read CuPy's modules: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.split_whitespace().last()?.split('@').next());
    Ok(names.map(str::to_owned).collect())
}

fn modules_below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            modules_below(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "so") {
            found.push(path);
        }
    }
    Ok(())
}

/// Compiles one library that has the names with this prefix.
fn stand_in(
    folder: &Path,
    prefix: &str,
    version: &str,
    undefined: &BTreeSet<String>,
    nvrtc: &Path,
) -> Result<()> {
    let library = format!("lib{prefix}.so.{version}");
    let mut source = String::from("#include <dlfcn.h>\n#include <stdlib.h>\n");
    writeln!(source, "#define WORDS long a, long b, long c, long d, long e, long f")?;
    for name in undefined.iter().filter(|name| name.starts_with(prefix)) {
        match name.as_str() {
            "nvrtcVersion" => {
                writeln!(source, "int {name}(int *a, int *b) {{ *a = 10; *b = 2; return 0; }}")?
            }
            _ if prefix == NVRTC => writeln!(
                source,
                "long {name}(WORDS) {{ void *other = dlopen({:?}, RTLD_NOW), *call = other ? dlsym(other, \"{name}\") : 0;\n\
                 if (!call) abort(); return ((long (*)(WORDS))call)(a, b, c, d, e, f); }}",
                nvrtc
            )?,
            _ => writeln!(source, "int {name}(void) {{ return {REFUSAL}; }}")?,
        }
    }
    let (code, names) = (folder.join(format!("{prefix}.c")), folder.join(format!("{prefix}.map")));
    fs::write(&code, source).with_context(|| format!("cannot write {}", code.display()))?;
    fs::write(&names, format!("{library} {{ *; }};\n"))?;
    let mut compile = Command::new("gcc");
    compile.args(["-shared", "-fPIC", "-w", "-o"]).arg(folder.join(&library)).arg(&code);
    compile.arg(format!("-Wl,-soname,{library},--version-script,{}", names.display()));
    run(compile.arg("-ldl"))
}
