//! Hugepages of 2 MiB, reserved for a while.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::{Child, Command, Stdio};

const FILE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Waits for the end of its standard input, whose other end only this program holds, and then
/// writes what there was before. So it does however this program ends.
const GUARD: &str = r#"trap '' INT TERM HUP; read -r _; echo "$1" >"$2""#;

/// A reservation; given back when dropped, also when this program is killed.
#[derive(Debug)]
pub struct Hugepages {
    guard: Child,
}

impl Hugepages {
    /// Reserves so many pages beside those that are reserved already.
    ///
    /// # Errors
    /// When the kernel has no such pages, or not so much memory in one piece.
    pub fn reserve(pages: u64) -> Result<Hugepages> {
        let before = reserved()?;
        let guard = Command::new("setsid")
            .args(["sh", "-c", GUARD, "guard", &before.to_string(), FILE])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting what gives hugepages back")?;
        // From here on the guard gives back what there is.
        let held = Hugepages { guard };
        fs::write(FILE, (before + pages).to_string())
            .with_context(|| format!("reserving {pages} hugepages"))?;
        let now = reserved()?;
        ensure!(now >= before + pages, "the kernel gives {} of {pages} hugepages", now - before);
        Ok(held)
    }
}

impl Drop for Hugepages {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn reserved() -> Result<u64> {
    let text = fs::read_to_string(FILE).with_context(|| format!("reading {FILE}"))?;
    text.trim().parse().with_context(|| format!("{FILE} says {text:?}"))
}
