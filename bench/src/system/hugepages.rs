// SPDX-License-Identifier: Apache-2.0
//! Hugepages of 2 MiB, reserved for a while.

use anyhow::{Context, Result, ensure};
use slipswitch_tests::harness::Guard;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const FILE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Reserves pages and prints how many it got; then waits for the end of its standard input, whose
/// other end only this program holds, and gives that many back. So pages are given back however
/// this program ends. A lock orders the reservations of several scripts.
const GUARD: &str = r#"
trap '' INT TERM HUP
exec 9<"$2" && flock 9 || exit
before=$(cat "$2") && echo $((before + $1)) >"$2"
got=$(($(cat "$2") - before))
flock -u 9
echo $got
read -r _
flock 9
echo $(($(cat "$2") - got)) >"$2"
"#;

/// A reservation; given back when dropped, also when this program is killed.
#[derive(Debug)]
pub struct Hugepages {
    _guard: Guard,
}

impl Hugepages {
    /// Reserves `pages` pages in addition to those that are reserved already.
    ///
    /// # Errors
    /// When the kernel has no such pages, or too little memory in pieces of that size.
    pub fn reserve(pages: u64) -> Result<Hugepages> {
        let pages_text = pages.to_string();
        let arguments = [OsStr::new(&pages_text), OsStr::new(FILE)];
        let mut guard = Guard::start(GUARD, &arguments, Stdio::piped())
            .context("starting the script that reserves hugepages")?;
        let mut said = String::new();
        let out = guard.output().context("its output was asked for")?;
        BufReader::new(out).read_line(&mut said).context("reading how many hugepages there are")?;
        let got: u64 = said.trim().parse().with_context(|| format!("{FILE} cannot be used"))?;
        ensure!(got >= pages, "the kernel gives {got} of {pages} hugepages of 2 MiB");
        Ok(Hugepages { _guard: guard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipswitch_tests::harness::{skip, without_privilege};
    use std::fs;

    #[test]
    fn pages_are_given_back() {
        if without_privilege() {
            return;
        }
        let reserved = || fs::read_to_string(FILE).ok()?.trim().parse::<u64>().ok();
        let Some(before) = reserved() else {
            return skip("the kernel has no hugepages of 2 MiB");
        };
        // Several at once, as when several benchmarks run.
        let turns: Vec<_> = (0..4).map(|_| std::thread::spawn(|| Hugepages::reserve(2))).collect();
        let held: Result<Vec<_>> = turns.into_iter().map(|t| t.join().unwrap()).collect();
        match &held {
            Ok(_) => assert_eq!(reserved(), Some(before + 8)),
            Err(e) => skip(&format!("{e:#}")),
        }
        drop(held);
        assert_eq!(reserved(), Some(before));
    }
}
