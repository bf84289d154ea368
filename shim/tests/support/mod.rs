//! Building small C programs against a fake driver, running them under the shim, playing daemon.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod daemon;
pub mod puppet;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake");

/// A directory of one test, with its libraries and programs. Removed at the end.
pub struct Bench {
    directory: PathBuf,
}

impl Bench {
    /// A directory with a fake `libcuda.so.1`, compiled with these further flags.
    pub fn with_driver(flags: &[&str]) -> Bench {
        let bench = Bench::without_driver();
        let mut all = vec!["-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1"];
        all.extend(flags);
        bench.library("libcuda.so.1", Path::new(FAKE).join("libcuda.c"), &all);
        std::os::unix::fs::symlink("libcuda.so.1", bench.path("libcuda.so")).expect("link");
        bench
    }

    /// An empty directory.
    pub fn without_driver() -> Bench {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = PathBuf::from(format!("/tmp/turnus-shim-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("directory");
        Bench { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Compiles a shared library from a file.
    pub fn library(&self, name: &str, source: impl AsRef<OsStr>, flags: &[&str]) {
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-fPIC", "-O1", "-w", "-o"])
            .arg(self.path(name))
            .arg(source.as_ref())
            .args(flags);
        compile(gcc.arg("-ldl").arg("-lpthread"));
    }

    /// Compiles a shared library from a text.
    pub fn library_of(&self, name: &str, text: &str, flags: &[&str]) {
        let source = self.path(&format!("{name}.c"));
        std::fs::write(&source, text).expect("source");
        self.library(name, source, flags);
    }

    /// Compiles a program from the body of its `main`, and what stands before it.
    pub fn program(&self, before: &str, main: &str, flags: &[&str]) -> PathBuf {
        let (source, program) = (self.path("program.c"), self.path("program"));
        let text = format!("#include \"program.h\"\n{before}\nint main(void) {{\n{main}\nreturn 0;\n}}\n");
        std::fs::write(&source, text).expect("source");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-w", "-I", FAKE, "-o"]).arg(&program).arg(&source);
        compile(gcc.arg("-L").arg(&self.directory).args(flags).args(["-ldl", "-lpthread"]));
        program
    }

    /// Compiles a program of `tests/fake`.
    pub fn program_of(&self, source: &str) -> PathBuf {
        let program = self.path("program");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-w", "-I", FAKE, "-o"]).arg(&program).arg(Path::new(FAKE).join(source));
        compile(gcc.args(["-ldl", "-lpthread"]));
        program
    }

    /// The command that runs a program under the shim, where no daemon answers unless one is named.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("LD_LIBRARY_PATH", &self.directory)
            .env("LD_PRELOAD", shim())
            .env("TURNUS_SOCKET", self.path("no-such.sock"))
            .env("TURNUS_LOG", "error");
        command
    }

    /// Runs a program under the shim; it must succeed. What it wrote.
    pub fn run(&self, program: &Path) -> (String, String) {
        succeed(self.command(program))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs a command that must succeed; its standard output and error.
pub fn succeed(mut command: Command) -> (String, String) {
    let output = command.output().expect("start");
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{:?}\n{out}\n{err}", output.status);
    (out, err)
}

pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn compile(command: &mut Command) {
    let output = command.output().expect("gcc is needed for these tests");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The library under test. Cargo builds it beside the tests; the copy one directory up is that of
/// the last `cargo build` and may be older. `TURNUS_TEST_SHIM` names another build of it.
pub fn shim() -> PathBuf {
    if let Some(shim) = std::env::var_os("TURNUS_TEST_SHIM") {
        return PathBuf::from(shim);
    }
    let test = std::env::current_exe().expect("own path");
    let shim = test.with_file_name("libturnus.so");
    assert!(shim.exists(), "{} was not built", shim.display());
    shim
}
