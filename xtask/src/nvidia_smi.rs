//! NVIDIA's `nvidia-smi` from Debian's archive, fetched into `target/nvidia-smi`, one folder per release.
//!
//! Packages of the non-free component, fetched by apt with lists and a cache of its own and unpacked
//! beside them: nothing on the system changes, nothing is installed. A machine without apt or without
//! the archive is no error here; the caller says what it leaves out.

use crate::command::{is_there, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Suites of Debian, each with a release of its own.
const SUITES: &[&str] = &["bookworm", "trixie"];
/// What signs Debian's archive.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Where the program lies in the package.
const PROGRAM: &str = "usr/lib/nvidia/current/nvidia-smi";

/// The folder with `<release>/nvidia-smi`, fetched if needed. `Ok(Err(reason))`: it cannot be had here.
pub fn programs() -> Result<std::result::Result<PathBuf, String>> {
    let root = target().join("nvidia-smi");
    let stamp = root.join("suites.txt");
    let wanted = SUITES.join(" ");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(Ok(root));
    }
    if let Some(reason) = missing() {
        return Ok(Err(reason));
    }
    for suite in SUITES {
        let work = root.join("apt").join(suite);
        if work.exists() {
            fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
        }
        for folder in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(work.join(folder))
                .with_context(|| format!("cannot make {}", work.join(folder).display()))?;
        }
        if let Err(error) = fetch(&root, &work, suite) {
            return Ok(Err(format!("nvidia-smi of Debian {suite} could not be fetched ({error:#})")));
        }
    }
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(Ok(root))
}

fn missing() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some("the packages are for x86-64".to_owned());
    }
    if !is_there("apt-get") || !is_there("dpkg") {
        return Some("no apt-get and dpkg, which fetch and unpack Debian's packages".to_owned());
    }
    let has_keyring = Path::new(KEYRING).exists();
    (!has_keyring).then(|| format!("{KEYRING} is missing (apt-get install debian-archive-keyring)"))
}

/// Downloads the package of one suite and unpacks it; the program ends up below its release.
fn fetch(root: &Path, work: &Path, suite: &str) -> Result<()> {
    let sources = work.join("sources.list");
    let source =
        format!("deb [arch=amd64 signed-by={KEYRING}] http://deb.debian.org/debian {suite} non-free\n");
    fs::write(&sources, source)?;
    let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args([
            option("Dir::Etc::sourcelist", &sources),
            option("Dir::State::lists", &work.join("lists")),
            option("Dir::Cache", &work.join("cache")),
        ]);
        command.args(["-oDir::Etc::sourceparts=-", "-oAPT::Sandbox::User=root", "-oAcquire::Languages=none"]);
        // Without it apt takes an archive that cannot be reached for an old list and goes on.
        command.args(["-oAPT::Update::Error-Mode=any", "-qq"]);
        quietly(command.args(arguments).current_dir(work))
    };
    apt(&["update"])?;
    apt(&["download", "nvidia-smi:amd64"])?;
    let package = fs::read_dir(work)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|name| name.ends_with(".deb"))
        .context("apt downloaded no package")?;
    // nvidia-smi_550.163.01-2_amd64.deb
    let release = package.split(['_', '-']).nth(2).context("the package has no version")?.to_owned();
    quietly(Command::new("dpkg").arg("-x").arg(work.join(&package)).arg(work.join("unpacked")))?;
    let folder = root.join(release);
    fs::create_dir_all(&folder)?;
    fs::copy(work.join("unpacked").join(PROGRAM), folder.join("nvidia-smi"))
        .with_context(|| format!("{package} has no {PROGRAM}"))?;
    Ok(())
}

/// Runs to the end; what it said is in the error.
fn quietly(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.lines().last().unwrap_or("it said nothing"));
    }
    Ok(())
}
