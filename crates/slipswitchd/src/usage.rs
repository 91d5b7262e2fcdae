// SPDX-License-Identifier: Apache-2.0
//! CPU time and memory of this process (proc(5), `/proc/self/stat`).

/// Milliseconds of a clock tick: the kernel reports 100 of them a second to programs.
const TICK_MS: u64 = 10;
/// Bytes of a page of x86-64.
const PAGE_BYTES: u64 = 4096;

/// Resources that the process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time in userspace, in milliseconds.
    pub user_ms: u64,
    /// CPU time in the kernel, in milliseconds.
    pub system_ms: u64,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
}

impl Usage {
    /// Returns the usage so far; `None` without `/proc`.
    pub(crate) fn now() -> Option<Usage> {
        Usage::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Usage> {
        // The second field is a name in parentheses, which may have spaces.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Usage {
            user_ms: field(14)?.saturating_mul(TICK_MS),
            system_ms: field(15)?.saturating_mul(TICK_MS),
            memory_bytes: field(24)?.saturating_mul(PAGE_BYTES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_a_name_of_any_characters() {
        let text = "7 (a ) b) S 1 7 7 0 -1 4194560 99 0 0 0 12 34 0 0 20 0 1 0 88 1000 50 18446744";
        let usage = Usage { user_ms: 120, system_ms: 340, memory_bytes: 50 * 4096 };
        assert_eq!(Usage::parse(text), Some(usage));
        assert_eq!(Usage::parse("7 (a) S 1"), None);
        assert!(Usage::now().is_some_and(|usage| usage.memory_bytes > 0));
    }
}
