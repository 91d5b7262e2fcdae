// SPDX-License-Identifier: Apache-2.0
//! Words of the languages that targets read.

use crate::{database, seeds};
use std::collections::BTreeSet;

/// For languages without words.
pub fn none() -> Vec<&'static str> {
    Vec::new()
}

/// The words in a text: letters, digits, and what joins them.
fn words_of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let joins = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let words: BTreeSet<&str> = texts.into_iter().flat_map(|t| t.split(|c| !joins(c))).collect();
    words.into_iter().filter(|w| w.len() > 2 && w.len() < 32).collect()
}

/// The syntax of ovs-ofctl: names of fields and actions.
pub fn openflow() -> Vec<&'static str> {
    let fields = flow::Field::ALL.iter().map(|f| f.name());
    let mut words = words_of(seeds::action_texts());
    words.extend(fields);
    words
}

/// The syntax of datapaths.
pub fn odp() -> Vec<&'static str> {
    words_of(seeds::odp_lines())
}

/// JSON-RPC.
pub fn json() -> Vec<&'static str> {
    vec![
        "{\"",
        "\":",
        "\",\"",
        "\"method\"",
        "\"params\"",
        "\"id\"",
        "\"result\"",
        "\"error\"",
        "null",
        "true",
        "[]",
        "{}",
        "1e999",
        "\\u0000",
        "\\ud800",
    ]
}

/// OVSDB: JSON-RPC, and the names of tables and columns.
pub fn ovsdb() -> Vec<&'static str> {
    let mut words = json();
    words.extend(database::names());
    words.extend(["\"update3\"", "\"initial\"", "\"insert\"", "\"modify\"", "\"delete\""]);
    words.extend(["[\"set\",[", "[\"map\",[[", "[\"uuid\",\"", "[\"named-uuid\",\""]);
    words
}

/// Small languages.
pub fn options() -> Vec<&'static str> {
    words_of(seeds::option_lines())
}

/// Messages of FTP that announce data connections.
pub fn helpers() -> Vec<&'static str> {
    vec![
        "PORT 10,0,0,1,4,1\r\n",
        "EPRT |1|10.0.0.1|1025|\r\n",
        "EPRT |2|fc00::1|1025|\r\n",
        "227 (10,0,0,2,4,1)\r\n",
        "229 (|||1025|)\r\n",
        "10,0,0,2",
        "192,168,100,100",
        "fd00:1:2:3:4:5:6:1",
        "\r\n",
    ]
}
