// SPDX-License-Identifier: Apache-2.0
//! Numbers as text for readers.

/// A number with few digits, thousands separated.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    let digits = match value.abs() {
        0.0 => 0,
        v if v < 0.0995 => 3,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let mut text = format!("{value:.digits$}");
    let first = usize::from(value < 0.0);
    let mut at = text.find('.').unwrap_or(text.len());
    while at > first + 3 {
        at -= 3;
        text.insert(at, ',');
    }
    text
}

/// A count, with K, M or G where it is a round number of 1,024s: `64K`, `1M`, `1000`.
pub fn count(value: u64) -> String {
    for (bits, letter) in [(30, "G"), (20, "M"), (10, "K")] {
        if value != 0 && value.trailing_zeros() >= bits {
            return format!("{}{letter}", value >> bits);
        }
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits() {
        let cases = [(0.0, "0"), (0.034, "0.034"), (0.34, "0.34"), (9.31, "9.31"), (28.26, "28.3")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(-1_234_567.0), "-1,234,567");
        assert_eq!([123.0, 1234.0].map(number), ["123", "1,234"]);
        assert_eq!(number(f64::NAN), "?");
        assert_eq!([1000, 65_536, 1_048_576, 16].map(count), ["1000", "64K", "1M", "16"]);
    }
}
