//! Whether the shim can be loaded into a program: finds it, and reads its first bytes.
//!
//! A preload works through the dynamic linker, so a static program, or one for another machine,
//! would run outside of Turnus without a word. `turnus run` says so instead.

use crate::cli::Failure;
use crate::exit_code;
use rustix::fs::Access;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Interpreters of interpreters: more is a loop.
const SCRIPTS_MAX: usize = 4;

/// The file that would be executed, as the shell finds it.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.to_string_lossy();
    let candidates: Vec<PathBuf> = if shown.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        std::env::split_paths(&path).map(|folder| folder.join(name)).collect()
    };
    let (mut not_executable, mut is_folder) = (None, false);
    for candidate in candidates.iter().filter(|candidate| candidate.exists()) {
        if candidate.is_dir() {
            is_folder = true;
            continue;
        }
        if candidate.is_file() && rustix::fs::access(candidate, Access::EXEC_OK).is_ok() {
            return Ok(candidate.clone());
        }
        not_executable.get_or_insert(candidate);
    }
    Err(match not_executable {
        Some(path) => Failure::new(
            exit_code::NOT_EXECUTABLE,
            format!(
                "{} cannot be executed; make it executable (chmod +x) or name its interpreter",
                path.display()
            ),
        ),
        None if is_folder && shown.contains('/') => {
            Failure::new(exit_code::NOT_EXECUTABLE, format!("{shown} is a folder and cannot be executed"))
        }
        None => Failure::new(exit_code::NOT_FOUND, format!("there is no program {shown}")),
    })
}

/// The interpreter that a script names and that is not there; the kernel would blame the script.
pub fn missing_interpreter(program: &Path) -> Option<PathBuf> {
    match read_kind(program)? {
        Kind::Script(interpreter) => (!interpreter.exists()).then_some(interpreter),
        Kind::Elf(_) => None,
    }
}

/// Whether the dynamic linker can load this file into programs: a shared object for this processor.
pub fn is_shared_object(path: &Path) -> bool {
    let mut head = [0u8; 20];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok()
        && head.starts_with(b"\x7fELF\x02")
        && head[16..18] == [SHARED_OBJECT, 0]
        && u16::from_le_bytes([head[18], head[19]]) == MACHINE
}

/// `ET_DYN`.
const SHARED_OBJECT: u8 = 3;
/// `e_machine` of this processor.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// Why the shim cannot be loaded into this program; `None` if it can, as far as the file tells.
pub fn obstacle(program: &Path) -> Option<String> {
    let mut path = program.to_owned();
    for _ in 0..SCRIPTS_MAX {
        match read_kind(&path)? {
            Kind::Script(interpreter) => path = interpreter,
            Kind::Elf(obstacle) => {
                let obstacle = obstacle.or_else(|| raises_rights(&path).then_some(RAISES_RIGHTS));
                return obstacle.map(|text| format!("{} is {text}", path.display()));
            }
        }
    }
    None
}

const RAISES_RIGHTS: &str =
    "set-user-id or set-group-id, so the dynamic linker loads no library into it that it is told to";

/// Whether the kernel starts it with other rights than ours.
fn raises_rights(path: &Path) -> bool {
    let (own_uid, own_gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    std::fs::metadata(path).is_ok_and(|file| {
        file.mode() & 0o4000 != 0 && file.uid() != own_uid
            || file.mode() & 0o2010 == 0o2010 && file.gid() != own_gid
    })
}

enum Kind {
    Script(PathBuf),
    Elf(Option<&'static str>),
}

/// `None` for a file that cannot be read or is neither: the kernel will say what is wrong.
fn read_kind(path: &Path) -> Option<Kind> {
    let mut file = File::open(path).ok()?;
    let mut head = Vec::new();
    file.by_ref().take(4096).read_to_end(&mut head).ok()?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next()?;
        let text = String::from_utf8_lossy(line);
        let mut words = text.split_whitespace();
        let interpreter = words.next()?;
        if interpreter.ends_with("/env") {
            let program = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
            return find(OsStr::new(program)).ok().map(Kind::Script);
        }
        return Some(Kind::Script(PathBuf::from(interpreter)));
    }
    if !head.starts_with(b"\x7fELF") || head.len() < 64 {
        return None;
    }
    Some(Kind::Elf(elf_obstacle(&file, &head)))
}

/// ELF header and program headers (System V ABI, "Object Files"): class, machine, PT_INTERP.
fn elf_obstacle(file: &File, head: &[u8]) -> Option<&'static str> {
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if head[4] != 2 {
        return Some("a 32-bit program, and the shim is a 64-bit library");
    }
    if half(18) != MACHINE {
        return Some("a program for another kind of processor");
    }
    let mut offset = [0u8; 8];
    offset.copy_from_slice(&head[32..40]);
    let (offset, size, count) = (u64::from_le_bytes(offset), half(54), half(56));
    if size < 56 {
        return None;
    }
    for index in 0..u64::from(count.min(512)) {
        let mut kind = [0u8; 4];
        file.read_exact_at(&mut kind, offset.checked_add(index * u64::from(size))?).ok()?;
        const PT_INTERP: u32 = 3;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return None;
        }
    }
    Some("statically linked, so no library can be loaded into it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A file in a folder that goes with it.
    struct Written(PathBuf);

    impl std::ops::Deref for Written {
        type Target = Path;

        fn deref(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(self.0.parent().expect("a folder"));
        }
    }

    fn write(name: &str, bytes: &[u8], mode: u32) -> Written {
        let folder = std::env::temp_dir().join(format!("turnus-program-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        let path = folder.join(name);
        std::fs::write(&path, bytes).expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("mode");
        Written(path)
    }

    #[test]
    fn programs_are_found_as_the_shell_finds_them() {
        assert!(find(OsStr::new("sh")).is_ok_and(|path| path.is_absolute()));
        let missing = find(OsStr::new("no-such-program-at-all")).expect_err("missing");
        assert_eq!(missing.code, exit_code::NOT_FOUND);
        let plain = write("plain", b"text", 0o644);
        assert_eq!(find(plain.as_os_str()).expect_err("plain").code, exit_code::NOT_EXECUTABLE);
    }

    #[test]
    fn a_dynamic_program_and_a_script_of_one_have_no_obstacle() {
        let shell = find(OsStr::new("sh")).expect("sh");
        assert_eq!(obstacle(&shell), None);
        assert_eq!(obstacle(&write("script", b"#!/usr/bin/env -S sh -e\n", 0o755)), None);
    }

    #[test]
    fn static_32_bit_and_foreign_programs_are_named() {
        let mut elf = vec![0u8; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18] = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        elf[54] = 56;
        assert!(obstacle(&write("static", &elf, 0o755)).is_some_and(|text| text.contains("static")));
        // A program of somebody else's that runs with that user's rights.
        let shell = std::fs::read(find(OsStr::new("sh")).expect("sh")).expect("read");
        let raising = write("raising", &shell, 0o755);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&*raising, Some(4242), None).expect("owner");
            std::fs::set_permissions(&*raising, std::fs::Permissions::from_mode(0o4755)).expect("mode");
            assert!(obstacle(&raising).is_some_and(|text| text.contains("set-user-id")));
        }
        elf[18] = 8;
        assert!(obstacle(&write("mips", &elf, 0o755)).is_some_and(|text| text.contains("processor")));
        elf[4] = 1;
        assert!(obstacle(&write("small", &elf, 0o755)).is_some_and(|text| text.contains("32-bit")));
    }

    #[test]
    fn a_script_that_names_itself_ends() {
        let path = write("loop", b"", 0o755);
        std::fs::write(&*path, format!("#!{}\n", path.display())).expect("write");
        assert_eq!(obstacle(&path), None);
    }

    #[test]
    fn a_folder_a_script_without_interpreter_and_a_shim_that_is_none_are_named() {
        let folder = find(OsStr::new("/tmp")).expect_err("a folder");
        assert!(folder.text.contains("folder") && folder.code == exit_code::NOT_EXECUTABLE);
        let script = write("lost", b"#!/no/such/interpreter -x\n", 0o755);
        assert_eq!(missing_interpreter(&script), Some(PathBuf::from("/no/such/interpreter")));
        assert_eq!(missing_interpreter(&write("found", b"#!/bin/sh\n", 0o755)), None);
        assert!(!is_shared_object(&script) && !is_shared_object(Path::new("/etc/passwd")));
        // Position-independent programs are shared objects to the linker, as is every library.
        assert!(is_shared_object(&std::env::current_exe().expect("own path")));
    }
}
