//! What a machine could not run, with the reason: collected from the tests, shown at the end.
//!
//! A test that cannot run appends `class<TAB>what<TAB>reason and how to get it` to the file named
//! by `TURNUS_SKIPPED_FILE`. Silence is impossible: without that variable the test fails instead.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The class that `--all` forgives: nobody can install a card.
const FORGIVEN: &str = "needs-gpu";

/// The list of one run.
#[derive(Debug)]
pub struct Skipped {
    file: PathBuf,
}

impl Skipped {
    /// Starts an empty list in this folder.
    pub fn start(directory: &Path) -> Result<Skipped> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let file = directory.join("skipped.tsv");
        fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Skipped { file })
    }

    /// For the environment of the tests.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Adds one line from xtask itself.
    pub fn add(&self, class: &str, what: &str, reason: &str) -> Result<()> {
        let mut text = fs::read_to_string(&self.file)?;
        text.push_str(&format!("{class}\t{what}\t{reason}\n"));
        fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// Prints the list; true if `--all` can be satisfied.
    pub fn report(&self) -> Result<bool> {
        let text =
            fs::read_to_string(&self.file).with_context(|| format!("cannot read {}", self.file.display()))?;
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        if lines.is_empty() {
            println!("\nEverything was run.");
            return Ok(true);
        }
        println!("\nNot run on this machine:");
        for line in &lines {
            let mut fields = line.splitn(3, '\t');
            let (class, what, reason) =
                (fields.next().unwrap_or(""), fields.next().unwrap_or(""), fields.next().unwrap_or(""));
            println!("  {class:14} {what}: {reason}");
        }
        Ok(lines.iter().all(|line| line.split('\t').next() == Some(FORGIVEN)))
    }
}
