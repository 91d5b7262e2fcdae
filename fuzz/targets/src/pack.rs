// SPDX-License-Identifier: Apache-2.0
//! Corpora and regressions as files of text: inputs in hexadecimal, one a line. Lines that begin
//! with `#` say something about them. One such file holds what would be thousands of files.

use std::fmt::Write as _;

/// The inputs in a file's text.
///
/// # Errors
/// The number of the line that is not hexadecimal.
pub fn read(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut inputs = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if !line.starts_with('#') {
            inputs.push(unhex(line).ok_or_else(|| format!("line {} is not hexadecimal", n + 1))?);
        }
    }
    Ok(inputs)
}

/// A file's text with these inputs, each once, short ones first.
pub fn write(mut inputs: Vec<Vec<u8>>) -> String {
    inputs.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    inputs.dedup();
    let mut text = String::new();
    for input in &inputs {
        for byte in input {
            let _ = write!(text, "{byte:02x}"); // a String takes all writes
        }
        text.push('\n');
    }
    text
}

/// The bytes of a line of hexadecimal digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8); // below 16
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let inputs = vec![vec![], vec![0x0a], vec![0xff, 0x00]];
        let shuffled = vec![vec![0xff, 0x00], vec![], vec![0x0a], vec![0x0a]];
        assert_eq!(read(&write(shuffled)), Ok(inputs));
        assert_eq!(read("# why\n0a\n"), Ok(vec![vec![0x0a]]));
        assert_eq!(read("0a\nxy\n"), Err("line 2 is not hexadecimal".into()));
        assert_eq!(read("0"), Err("line 1 is not hexadecimal".into()));
    }
}
