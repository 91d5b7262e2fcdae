//! Differences that are meant, each with its reason, and as narrow as can be.

use crate::player::Seen;
use slipswitch_tests::harness::split_actions;

/// A difference that is no error.
pub struct Known {
    /// Its name in the figures.
    pub name: &'static str,
    /// Why it is none.
    pub reason: &'static str,
    /// Makes two texts about the same thing equal as far as the difference goes: Open vSwitch's
    /// and Slipswitch's.
    pub even: fn(&str, String, String) -> (String, String),
}

/// All of them.
pub const KNOWN: &[Known] = &[
    Known {
        name: "megaflow masks",
        reason: "a mask may be narrower or wider; that what it means is right is for other tests",
        even: |_, real, ours| (without_megaflow(&real), without_megaflow(&ours)),
    },
    Known {
        name: "order of floods",
        reason: "the order of ports in a flood is that of a hash table",
        even: |_, real, ours| (sorted_floods(&real), sorted_floods(&ours)),
    },
    Known {
        name: "final flow",
        reason: "OVS repeats a flow of which nothing changed but the output of its action set",
        even: |_, real, ours| (unchanged(&real), ours),
    },
    Known {
        name: "misses in other bridges",
        reason: "OVS knows the rule of a miss in the traced bridge only, and shows it as a rule elsewhere",
        even: |_, real, ours| {
            let named = real
                .replace("reg0=0x1, priority 0", "No match, and a \"packet-in\" is called for.")
                .replace("reg0=0x2, priority 0", "No match.");
            (named, ours)
        },
    },
    Known {
        name: "DEI of headers in a flood",
        reason: "a header that is taken off for one port and put on for the next loses its DEI, \
                 and the order of ports is that of a hash table",
        even: |of, real, ours| match of.starts_with("step") {
            true => (without_dei(&real), without_dei(&ours)),
            false => (real, ours),
        },
    },
];

fn unchanged(text: &str) -> String {
    let first = text.lines().next().and_then(|l| l.strip_prefix("Flow: ")).unwrap_or_default();
    text.replace(&format!("\nFinal flow: {first}\n"), "\nFinal flow: unchanged\n")
}

/// Lines `PORT HEX`, with the DEI of the first two VLAN headers clear.
fn without_dei(text: &str) -> String {
    let line = |line: &str| {
        let mut line = line.to_owned();
        let mut at = line.find(' ').map_or(0, |blank| blank + 1) + 24;
        for _ in 0..2 {
            let is_tag = matches!(line.get(at..at + 4), Some("8100" | "88a8"));
            let Some(digit) = line.get(at + 4..at + 5).filter(|_| is_tag) else { break };
            let cleared = u8::from_str_radix(digit, 16).map_or(0, |d| d & !1);
            line.replace_range(at + 4..at + 5, &format!("{cleared:x}"));
            at += 8;
        }
        line
    };
    text.lines().map(|l| line(l) + "\n").collect()
}

/// Datapath actions with every run of outputs and VLAN headers as the sorted ports: how headers
/// change from one output to the next depends on their order. Frames are compared themselves.
fn sorted_floods(text: &str) -> String {
    let line = |line: &str| {
        let Some(actions) = line.strip_prefix("Datapath actions: ") else { return line.to_owned() };
        let mut out = Vec::new();
        let mut run: Vec<&str> = Vec::new();
        for action in split_actions(actions) {
            let port = action.rsplit(':').next().filter(|p| p.bytes().all(|b| b.is_ascii_digit()));
            match port {
                Some(port) => run.push(port),
                None if action == "pop_vlan" || action.starts_with("push_vlan(") => {}
                None => {
                    run.sort_unstable();
                    out.append(&mut run);
                    out.push(action);
                }
            }
        }
        run.sort_unstable();
        out.append(&mut run);
        format!("Datapath actions: {}", out.join(","))
    };
    text.lines().map(|l| line(l) + "\n").collect()
}

fn without_megaflow(text: &str) -> String {
    text.lines().filter(|l| !l.starts_with("Megaflow: ")).map(|l| format!("{l}\n")).collect()
}

/// The two as they are compared; counts which differences made them equal.
pub fn even(real: &Seen, ours: &Seen, counts: &mut [u64]) -> (String, String) {
    let (mut a, mut b) = (real.text.clone(), ours.text.clone());
    for (known, count) in KNOWN.iter().zip(counts) {
        if a == b {
            break;
        }
        let was = (a.clone(), b.clone());
        (a, b) = (known.even)(&real.of, a, b);
        if (&a, &b) != (&was.0, &was.1) {
            *count += 1;
        }
    }
    (a, b)
}
