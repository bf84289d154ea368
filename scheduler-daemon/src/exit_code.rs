//! The exit codes of `turnusd` and `turnus`, in one place; `docs/operating.md` shows the same table.
//!
//! `turnus run` becomes the program, so after a good start the code is the program's own. The
//! codes for a program that cannot be started are those of the shell.

/// All well.
pub const SUCCESS: u8 = 0;
/// Something failed while running; one line on standard error says what.
pub const FAILURE: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// Another daemon already serves this directory.
pub const ALREADY_RUNNING: u8 = 3;
/// No daemon could be reached, or it refused.
pub const NO_DAEMON: u8 = 4;
/// The device is in use by other programs and `--yes` was not given.
pub const DEVICE_BUSY: u8 = 5;
/// `turnus run`: the program is there but cannot be executed, or the shim cannot be loaded into it.
pub const NOT_EXECUTABLE: u8 = 126;
/// `turnus run`: there is no such program.
pub const NOT_FOUND: u8 = 127;
