// SPDX-License-Identifier: Apache-2.0
//! The text of a C header.

/// Returns the value of a macro: a number, or a number shifted left.
pub fn value(header: &str, name: &str) -> u64 {
    let start = format!("#define {name} ");
    let text = header.lines().find_map(|line| line.strip_prefix(&start));
    let text = text.unwrap_or_else(|| panic!("no {name}"));
    let text = text.split("/*").next().unwrap_or(text).trim().trim_matches(['(', ')']);
    let number = |text: &str| {
        let text = text.trim().trim_end_matches(['u', 'l']);
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => text.parse().unwrap(),
        }
    };
    match text.split_once("<<") {
        Some((factor, shift)) => number(factor) << number(shift),
        None => number(text),
    }
}
