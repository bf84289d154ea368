//! Every environment variable that the shim reads, in one table, and what it makes of them.
//!
//! Read once, when the program initialises CUDA. A program that runs with more rights than who
//! started it (`AT_SECURE`) gets the defaults: its environment is not to be trusted. A value that
//! makes no sense falls back to the default with one line. Nothing else in the shim may read the
//! environment.

use std::ffi::OsString;
use std::path::PathBuf;
use turnus_protocol::Token;
use turnus_protocol::paths::{self, SOCKET_VARIABLE, TOKEN_VARIABLE};

/// What to do when no daemon answers at the start.
pub(crate) const WHEN_DAEMON_MISSING_VARIABLE: &str = "TURNUS_WHEN_DAEMON_MISSING";
/// How much the shim says about itself on standard error: `off`, `error` (default) or `debug`.
pub(crate) const LOG_VARIABLE: &str = "TURNUS_LOG";
/// Where the line about a long wait goes: `stderr` (default), `tty` or `off`.
pub(crate) const NOTICE_VARIABLE: &str = "TURNUS_NOTICE";
/// Where the user's own daemon has its directory (not ours, set by the login).
pub(crate) const RUNTIME_DIRECTORY_VARIABLE: &str = "XDG_RUNTIME_DIR";

/// All of them.
#[cfg(test)]
pub(crate) const VARIABLES: &[&str] = &[
    SOCKET_VARIABLE,
    TOKEN_VARIABLE,
    WHEN_DAEMON_MISSING_VARIABLE,
    LOG_VARIABLE,
    NOTICE_VARIABLE,
    RUNTIME_DIRECTORY_VARIABLE,
];

/// What happens at the start when no daemon answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenDaemonMissing {
    /// Everything goes straight to the driver, unscheduled.
    Run,
    /// Initialising CUDA waits for a daemon.
    Wait,
    /// Initialising CUDA fails with `CUDA_ERROR_SYSTEM_NOT_READY`.
    Refuse,
}

/// Where a line about a long wait goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Standard error.
    Stderr,
    /// The controlling terminal, if there is one.
    Tty,
    /// Nowhere.
    Off,
}

/// How much the shim says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Nothing.
    Off,
    /// One line when something is wrong.
    Error,
    /// Also what it does, for who looks for a fault.
    Debug,
}

/// The settings of this process.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Sockets to try, in order.
    pub(crate) sockets: Vec<PathBuf>,
    /// Whether somebody chose the socket, and with it whom to trust.
    pub(crate) is_socket_named: bool,
    /// The tenant's capability, if the program was started by `turnus run`.
    pub(crate) token: Option<Token>,
    /// What to do without a daemon.
    pub(crate) when_daemon_missing: WhenDaemonMissing,
    /// How much to say.
    pub(crate) verbosity: Verbosity,
    /// Where the line about a long wait goes.
    pub(crate) notice: Notice,
}

impl Config {
    /// The settings of this process, and what was wrong with them.
    pub(crate) fn of_this_process() -> (Config, Vec<String>) {
        // SAFETY: getauxval and geteuid read the kernel's answers and take no pointer.
        let (secure, uid) = unsafe { (libc::getauxval(libc::AT_SECURE) != 0, libc::geteuid()) };
        Config::from_environment(secure, uid, |name| std::env::var_os(name))
    }

    /// Pure: `get` is asked for the variables of [`VARIABLES`] only, and for none when `secure`.
    pub(crate) fn from_environment(
        secure: bool,
        uid: u32,
        get: impl Fn(&str) -> Option<OsString>,
    ) -> (Config, Vec<String>) {
        let mut complaints = Vec::new();
        let get = |name: &str| if secure { None } else { get(name).filter(|value| !value.is_empty()) };
        let word = |name: &str| get(name).map(|value| value.to_string_lossy().into_owned());
        let mut choose = |name: &'static str, words: &[&str]| {
            let value = word(name)?;
            let found = words.iter().position(|known| *known == value);
            if found.is_none() {
                complaints.push(format!("{name} is {value:?}, but may be {}", words.join(", ")));
            }
            found
        };
        use {Notice as N, Verbosity as V, WhenDaemonMissing as W};
        let when_daemon_missing = choose(WHEN_DAEMON_MISSING_VARIABLE, &["run", "wait", "refuse"])
            .map_or(W::Run, |index| [W::Run, W::Wait, W::Refuse][index]);
        let verbosity = choose(LOG_VARIABLE, &["off", "error", "debug"])
            .map_or(V::Error, |index| [V::Off, V::Error, V::Debug][index]);
        let notice = choose(NOTICE_VARIABLE, &["stderr", "tty", "off"])
            .map_or(N::Stderr, |index| [N::Stderr, N::Tty, N::Off][index]);
        let token = word(TOKEN_VARIABLE).and_then(|text| {
            let token = Token::from_hex(&text);
            if token.is_none() {
                complaints.push(format!("{TOKEN_VARIABLE} is not 32 hexadecimal digits"));
            }
            token
        });
        let named = get(SOCKET_VARIABLE).map(PathBuf::from);
        let is_socket_named = named.is_some();
        let sockets = match named {
            Some(socket) => vec![socket],
            None => {
                let runtime_directory = get(RUNTIME_DIRECTORY_VARIABLE).map(PathBuf::from);
                paths::daemon_directories(runtime_directory.as_deref(), uid)
                    .map(|directory| directory.join(paths::MEMBER_SOCKET))
                    .into()
            }
        };
        let sockets: Vec<PathBuf> = sockets.into_iter().filter(|socket| paths::fits_socket(socket)).collect();
        if sockets.is_empty() {
            complaints.push(format!("{SOCKET_VARIABLE} is longer than a socket's path may be"));
        }
        (Config { sockets, is_socket_named, token, when_daemon_missing, verbosity, notice }, complaints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(secure: bool, pairs: &[(&str, &str)]) -> (Config, Vec<String>) {
        Config::from_environment(secure, 1000, |name| {
            assert!(VARIABLES.contains(&name), "{name} is read but not listed");
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    const ALL: &[(&str, &str)] = &[
        ("TURNUS_SOCKET", "/tmp/x.sock"),
        ("TURNUS_TOKEN", "000102030405060708090a0b0c0d0e0f"),
        ("TURNUS_WHEN_DAEMON_MISSING", "refuse"),
        ("TURNUS_LOG", "debug"),
        ("TURNUS_NOTICE", "tty"),
    ];

    #[test]
    fn every_variable_is_honoured() {
        let (config, complaints) = parse(false, ALL);
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(config.sockets, [PathBuf::from("/tmp/x.sock")]);
        assert_eq!(config.token.map(|token| token.0[15]), Some(15));
        assert_eq!(config.when_daemon_missing, WhenDaemonMissing::Refuse);
        assert_eq!((config.verbosity, config.notice), (Verbosity::Debug, Notice::Tty));
    }

    #[test]
    fn a_program_with_raised_rights_does_not_listen_to_its_environment() {
        let (config, _) = parse(true, ALL);
        assert_eq!(config.sockets[0], PathBuf::from("/run/turnus/members/turnusd.sock"));
        assert_eq!(config.token, None);
        assert_eq!(config.when_daemon_missing, WhenDaemonMissing::Run);
        assert_eq!((config.verbosity, config.notice), (Verbosity::Error, Notice::Stderr));
    }

    #[test]
    fn the_system_daemon_is_tried_before_the_users_own() {
        let (config, _) = parse(false, &[("XDG_RUNTIME_DIR", "/run/user/1000")]);
        let expected = ["/run/turnus/members/turnusd.sock", "/run/user/1000/turnus/members/turnusd.sock"];
        assert_eq!(config.sockets, expected.map(PathBuf::from));
    }

    #[test]
    fn nonsense_is_named_and_replaced_by_the_default() {
        let (config, complaints) =
            parse(false, &[("TURNUS_WHEN_DAEMON_MISSING", "maybe"), ("TURNUS_TOKEN", "xyz")]);
        assert_eq!(config.when_daemon_missing, WhenDaemonMissing::Run);
        assert_eq!(config.token, None);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
    }
}
