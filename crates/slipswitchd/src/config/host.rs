// SPDX-License-Identifier: Apache-2.0
//! Facts on the host for `Open_vSwitch:statistics` (`other_config:enable-statistics`).

use std::collections::BTreeMap;

/// Returns facts from `/proc`: `cpu`, `load_average` and `memory`, in the formats of
/// `ovs-vswitchd.conf.db(5)`. `memory` is in kilobytes: total, used, cached, swap total, swap used.
/// A fact that cannot be read is left out.
pub(super) fn statistics() -> BTreeMap<&'static str, String> {
    let mut out = BTreeMap::new();
    if let Ok(cores) = std::thread::available_parallelism() {
        out.insert("cpu", cores.to_string());
    }
    if let Some(load) =
        std::fs::read_to_string("/proc/loadavg").ok().and_then(|text| load_average(&text))
    {
        out.insert("load_average", load);
    }
    if let Some(memory) =
        std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory(&text))
    {
        out.insert("memory", memory);
    }
    out
}

fn load_average(text: &str) -> Option<String> {
    let loads: Vec<&str> = text.split_whitespace().take(3).collect();
    (loads.len() == 3).then(|| loads.join(","))
}

fn memory(text: &str) -> Option<String> {
    let value = |key: &str| -> Option<u64> {
        let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    };
    let total = value("MemTotal")?;
    let cached = value("Buffers").unwrap_or(0).saturating_add(value("Cached").unwrap_or(0));
    let used = total.saturating_sub(value("MemFree")?);
    let swap = value("SwapTotal").unwrap_or(0);
    let swap_used = swap.saturating_sub(value("SwapFree").unwrap_or(0));
    Some(format!("{total},{used},{cached},{swap},{swap_used}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_texts() {
        assert_eq!(load_average("0.10 0.20 0.30 1/234 5678\n").as_deref(), Some("0.10,0.20,0.30"));
        assert_eq!(load_average("0.1"), None);
        let text = "MemTotal: 1000 kB\nMemFree: 400 kB\nBuffers: 10 kB\nCached: 90 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n";
        assert_eq!(memory(text).as_deref(), Some("1000,600,100,50,30"));
        assert_eq!(memory(""), None);
    }
}
