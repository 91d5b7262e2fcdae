// SPDX-License-Identifier: Apache-2.0
//! The words of `ofproto/trace`.

use crate::commands::{HexError, parse_frame, parse_hex};
use flow::ct_state::{self, EST, INV, NEW, RPL, TRK};
use packet::Packet;

/// Bytes of payload that `--l7-len` may ask for.
const MAX_PAYLOAD: usize = 65_535;

/// A flow and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) struct Flow<'a> {
    /// A bridge, or the datapath.
    pub place: Option<&'a str>,
    /// The flow, in OpenFlow's or the datapath's syntax.
    pub text: &'a str,
}

/// The arguments of a trace.
#[derive(Debug)]
pub(in crate::commands) struct Arguments<'a> {
    /// Flow and bridge or datapath.
    pub flow: Flow<'a>,
    /// The packet that was given.
    pub packet: Option<Packet>,
    /// `-generate`: make a packet from the flow.
    pub generate: bool,
    /// `--l7`: its payload.
    pub payload: Option<Vec<u8>>,
    /// `--l7-len`: the length of its payload.
    pub payload_len: Option<usize>,
    /// `--names`: show ports by name.
    pub names: bool,
    /// `--ct-next`, given several times: the states in which tracked copies come back, in order.
    pub ct_next: Vec<u8>,
}

impl<'a> Arguments<'a> {
    /// Reads options and at most three words: `[PLACE] FLOW [PACKET]`. With two words the
    /// second is a packet when it can be one.
    pub fn parse(words: &[&'a str]) -> Result<Arguments<'a>, String> {
        let mut out = Arguments {
            flow: Flow { place: None, text: "" },
            packet: None,
            generate: false,
            payload: None,
            payload_len: None,
            names: false,
            ct_next: Vec::new(),
        };
        let mut rest: Vec<&'a str> = Vec::new();
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| format!("Missing argument for option {word}"));
            match word {
                "-generate" | "--generate" => out.generate = true,
                "--l7" => {
                    let bytes = parse_hex(value()?).map_err(|e| e.to_string())?;
                    if bytes.len() > MAX_PAYLOAD {
                        return Err(too_much(bytes.len()));
                    }
                    out.payload = Some(bytes);
                }
                "--l7-len" => {
                    let text = value()?;
                    let len: usize = text.parse().map_err(|_| {
                        format!("{text}: a number of bytes is expected behind --l7-len")
                    })?;
                    if len > MAX_PAYLOAD {
                        return Err(too_much(len));
                    }
                    out.payload_len = Some(len);
                }
                "--ct-next" => out.ct_next.push(parse_state(value()?)?),
                "--names" => out.names = true,
                option if option.starts_with('-') => {
                    return Err(format!("{option}: unknown option"));
                }
                _ if rest.len() == 3 => return Err("too many arguments".to_owned()),
                word => rest.push(word),
            }
        }
        if !out.generate && rest.len() > 1 {
            let last = rest.last().copied().unwrap_or_default();
            match parse_frame(last) {
                Ok(packet) => {
                    out.packet = Some(packet);
                    rest.pop();
                }
                Err(error) if rest.len() == 3 || error == HexError::Short && !last.is_empty() => {
                    return Err(error.to_string());
                }
                Err(_) => {}
            }
        }
        out.flow = match rest.as_slice() {
            [text] => Flow { place: None, text },
            [place, text] => Flow { place: Some(place), text },
            _ => return Err("Syntax error".to_owned()),
        };
        Ok(out)
    }
}

fn too_much(len: usize) -> String {
    format!("{len}: too much L7 data")
}

/// Reads a state as `trk,new`. The words of the errors are those of OVS, "rpy" included.
fn parse_state(text: &str) -> Result<u8, String> {
    let mut state = 0;
    for name in text.split([',', ' ']).filter(|name| !name.is_empty()) {
        state |= ct_state::from_name(name)
            .ok_or_else(|| format!("{name}: unknown connection tracking state flag"))?;
    }
    let has = |bit: u8| state & bit != 0;
    let problems = [
        (state != 0 && !has(TRK), "If \"trk\" is unset, no other flags are set"),
        (has(INV) && has(!(TRK | INV)), "when \"inv\" is set, only \"trk\" may also be set"),
        (has(NEW) && has(EST), "\"new\" and \"est\" are mutually exclusive"),
        (has(NEW) && has(RPL), "\"new\" and \"rpy\" are mutually exclusive"),
    ];
    let names: Vec<&str> = ct_state::names(state).collect();
    let text = |problem: &str| format!("{}: invalid connection state: {problem}", names.join("|"));
    let problems: Vec<String> =
        problems.into_iter().filter(|(is, _)| *is).map(|(_, problem)| text(problem)).collect();
    if problems.is_empty() { Ok(state) } else { Err(problems.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PACKET: &str = "505400000007505400000005080045000014000000004006f97ac0a80001c0a80002";

    fn error(words: &[&str]) -> String {
        Arguments::parse(words).map(|_| ()).unwrap_err()
    }

    #[test]
    fn forms() {
        let flow = |words: &[&'static str]| {
            Arguments::parse(words).map(|a| (a.flow.place, a.flow.text, a.packet.is_some()))
        };
        assert_eq!(flow(&["in_port(1)"]), Ok((None, "in_port(1)", false)));
        assert_eq!(flow(&["br0", "in_port=1"]), Ok((Some("br0"), "in_port=1", false)));
        assert_eq!(flow(&["in_port(1)", PACKET]), Ok((None, "in_port(1)", true)));
        assert_eq!(flow(&["br0", "in_port=1", PACKET]), Ok((Some("br0"), "in_port=1", true)));
        assert_eq!(flow(&["br0", "in_port=1", "-generate"]), Ok((Some("br0"), "in_port=1", false)));
        assert_eq!(flow(&["br0", ""]), Ok((Some("br0"), "", false)));
        assert_eq!(
            flow(&["br0", "in_port=1", "--ct-next", "trk,new"]),
            Ok((Some("br0"), "in_port=1", false))
        );
    }

    #[test]
    fn states_come_in_their_order() {
        let words = ["br0", "--ct-next", "trk, est,rpl", "in_port=1", "--ct-next", ","];
        assert_eq!(Arguments::parse(&words).map(|a| a.ct_next), Ok(vec![TRK | EST | RPL, 0]));
    }

    #[test]
    fn errors_are_those_of_ovs() {
        for (words, text) in [
            (
                &["br0", "in_port=1", "50540000000750540000000508"][..],
                "Packet data too short for Ethernet",
            ),
            (&["br0", "in_port=1", "zz"], "Trailing garbage in packet data"),
            (&["br0", "in_port=1", "aa", "--generate"], "Syntax error"),
            (
                &["br0", "in_port=1", "--ct-next", "foo"],
                "foo: unknown connection tracking state flag",
            ),
            (
                &["br0", "in_port=1", "--ct-next", "trk", "--ct-next", "trk|est"],
                "trk|est: unknown connection tracking state flag",
            ),
            (
                &["br0", "in_port=1", "--ct-next", "0x21"],
                "0x21: unknown connection tracking state flag",
            ),
            (
                &["br0", "in_port=1", "--ct-next", "trk,new,rpl"],
                "new|rpl|trk: invalid connection state: \"new\" and \"rpy\" are mutually exclusive",
            ),
            (
                &["br0", "in_port=1", "--ct-next", "inv,est"],
                "est|inv: invalid connection state: If \"trk\" is unset, no other flags are set\n\
                 est|inv: invalid connection state: when \"inv\" is set, only \"trk\" may also be set",
            ),
            (&["br0", "in_port=1", "--ct-next"], "Missing argument for option --ct-next"),
            (&["br0", "in_port=1", "--consistent"], "--consistent: unknown option"),
            (&["br0", "in_port=1", "-l", "100"], "-l: unknown option"),
            (&["br0", "in_port=1", "--l7-len", "99999"], "99999: too much L7 data"),
            (&["br0", "in_port=1", "--l7", "zz"], "Trailing garbage in packet data"),
            (&["br0", "in_port=1", "--l7"], "Missing argument for option --l7"),
            (&["a", "b", "c", "d"], "too many arguments"),
        ] {
            assert_eq!(error(words), text, "{words:?}");
        }
    }

    proptest! {
        #[test]
        fn any_words_are_arguments_or_not(words in proptest::collection::vec("\\PC{0,30}", 0..6)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let _ = Arguments::parse(&words);
        }
    }
}
