//! `turnus run`: makes a tenant, then becomes the program, under the same process id.
//!
//! Three variables are all that the program gets: the shim in front of `LD_PRELOAD`, the socket,
//! the token. Its children inherit them and so belong to the same tenant.

use crate::cli::{Failure, contact, find, program};
use crate::{exit_code, size};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use turnus_protocol::paths::{SOCKET_VARIABLE, TOKEN_VARIABLE};

/// Runs a program that shares the GPU with others.
#[derive(Debug, clap::Args)]
pub struct RunArguments {
    /// Name of the tenant in status and log [default: the program's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Most device memory that the program may allocate, such as 8G
    #[arg(long, value_name = "LIMIT", value_parser = size::parse)]
    pub memory: Option<u64>,
    /// Run the program also if the shim cannot be loaded into it: it then takes no turns
    #[arg(long)]
    pub allow_unmanaged: bool,
    /// The shim to load [default: the one installed with turnus]
    #[arg(long, value_name = "PATH")]
    pub shim: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Becomes the program; returns only if it cannot.
pub fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let program = program::find(&arguments.command[0])?;
    if let Some(obstacle) = program::obstacle(&program) {
        if !arguments.allow_unmanaged {
            return Err(Failure::new(
                exit_code::NOT_EXECUTABLE,
                format!(
                    "{obstacle}; it would use the GPU outside of its turns. To run it so all the same: --allow-unmanaged"
                ),
            ));
        }
        eprintln!("turnus: {obstacle}; it takes no turns");
    }
    if let Some(interpreter) = program::missing_interpreter(&program) {
        let text = format!("{} is for {}, which does not exist", program.display(), interpreter.display());
        return Err(Failure::new(exit_code::NOT_EXECUTABLE, text));
    }
    let shim = find_shim(arguments.shim.as_deref())?;
    let daemon = match contact::find_daemon()? {
        Some(daemon) => daemon,
        None => {
            let daemon = contact::start_private_daemon()?;
            eprintln!(
                "turnus: no turnusd was running; started a private one in {} (it ends 60 s after its last program)",
                find::default_directory().display()
            );
            daemon
        }
    };
    let name = arguments
        .name
        .clone()
        .unwrap_or_else(|| program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned());
    let token = contact::register_run(&daemon, &turnus_protocol::name::clean(&name), arguments.memory)?;
    let error = Command::new(&program)
        .arg0(&arguments.command[0])
        .args(&arguments.command[1..])
        .env("LD_PRELOAD", preload(&shim))
        .env(SOCKET_VARIABLE, &daemon.socket_path)
        .env(TOKEN_VARIABLE, token.to_hex())
        .exec();
    Err(Failure::new(exit_code::NOT_EXECUTABLE, format!("{} cannot be executed: {error}", program.display())))
}

fn find_shim(given: Option<&std::path::Path>) -> Result<PathBuf, Failure> {
    let failed = |text: String| Failure::new(exit_code::NOT_EXECUTABLE, text);
    let shim = match given {
        Some(path) => {
            std::path::absolute(path).map_err(|error| failed(format!("{}: {error}", path.display())))?
        }
        None => find::installed("lib", "libturnus.so").ok_or_else(|| {
            failed("libturnus.so is not installed with turnus; name it with --shim".to_owned())
        })?,
    };
    if !shim.is_file() {
        return Err(failed(format!("there is no shim at {}", shim.display())));
    }
    // The dynamic linker would only warn, and the program would take no turns.
    if let Err(error) = std::fs::File::open(&shim) {
        return Err(failed(format!("the shim {} cannot be read: {error}", shim.display())));
    }
    if !program::is_shared_object(&shim) {
        return Err(failed(format!("{} is no library that can be loaded into programs", shim.display())));
    }
    if shim.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(failed(format!(
            "the dynamic linker takes no preload whose path holds a space or colon: {}",
            shim.display()
        )));
    }
    Ok(shim)
}

/// The shim first, then what was preloaded already, each once.
fn preload(shim: &std::path::Path) -> OsString {
    let mut value = shim.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("LD_PRELOAD") {
        for word in before.as_bytes().split(|byte| matches!(byte, b' ' | b':')) {
            if !word.is_empty() && word != shim.as_os_str().as_bytes() {
                value.push(":");
                value.push(OsStr::from_bytes(word));
            }
        }
    }
    value
}
