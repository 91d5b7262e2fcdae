// SPDX-License-Identifier: Apache-2.0
//! The console output of the guest's kernel.

/// Last lines of the console that are shown when a guest dies.
const LAST: usize = 60;

/// Starts of the lines that report a fault of the kernel.
const COMPLAINTS: [&str; 8] = [
    "WARNING: ",
    "BUG: ",
    "kernel BUG at",
    "Oops",
    "general protection fault",
    "Kernel panic",
    "unregister_netdevice: waiting",
    "INFO: task ",
];

/// Returns the lines that report a fault of the kernel. A stall is no fault: the processors of an
/// emulated machine do stand still at times.
pub fn complaints(console: &str) -> Vec<&str> {
    console.lines().filter(|line| COMPLAINTS.iter().any(|c| said(line).starts_with(c))).collect()
}

/// Returns the line without the time in brackets.
fn said(line: &str) -> &str {
    match line.strip_prefix('[').and_then(|l| l.split_once("] ")) {
        Some((_, text)) => text,
        None => line,
    }
}

/// Returns the last lines.
pub fn last(console: &str) -> Vec<&str> {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(LAST)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_found_with_and_without_a_time() {
        let console = "[    1.5] WARNING: CPU: 0 PID: 1 at net/core/dev.c:5\n\
                       Kernel panic - not syncing\n\
                       [    2.0] rcu: INFO: rcu_preempt self-detected stall\n\
                       [    2.1] x: a WARNING: in the middle\n";
        assert_eq!(complaints(console).len(), 2);
    }

    #[test]
    fn only_the_end_is_shown() {
        let console: String = (0..100).map(|n| format!("{n}\n")).collect();
        let lines = last(&console);
        assert_eq!((lines.len(), lines[0], lines[LAST - 1]), (LAST, "40", "99"));
        assert_eq!(last("").len(), 0);
    }
}
