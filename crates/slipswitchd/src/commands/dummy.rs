// SPDX-License-Identifier: Apache-2.0
//! Dummy mode: `netdev-dummy/`, `time/` and `dpif-dummy/`.

use super::{ANY, Commands, compose, parse_frame};
use flow::text::{no_numbers, odp};
use netdev::Device as _;
use netdev::dummy::{self, Dummy};
use packet::Packet;
use std::net::IpAddr;
use std::sync::Arc;
use underlay::Cidr;

const UNKNOWN: &str = "Unknown Dummy Interface";
const TOO_SMALL: &str = "too small packet len";
/// Frames that `--len` may ask for.
const MAX_FRAME: usize = 65_535;

pub(super) fn register(commands: &Commands<'_>) {
    commands.change(
        "netdev-dummy/receive",
        "name [--qid queue_id] packet|flow [--len packet_len]",
        2,
        ANY,
        |_, call| {
            let device = call.arg(0).and_then(dummy::lookup).ok_or("no such dummy netdev")?;
            let words: Vec<&str> = call.args.iter().skip(1).map(String::as_str).collect();
            let (queue, frames) = parse_receive(&words, device.n_queues())?;
            for frame in frames {
                device.receive(queue, vec![frame]);
            }
            Ok(String::new())
        },
    );
    commands.change("netdev-dummy/set-admin-state", "[netdev] up|down", 1, 2, |daemon, call| {
        let up = match call.args.last().map(String::as_str) {
            Some("up") => true,
            Some("down") => false,
            _ => return Err("Invalid Admin State".to_owned()),
        };
        let devices = if call.args.len() > 1 { vec![named(call.arg(0))?] } else { dummy::all() };
        for device in devices {
            device
                .set_admin_up(up)
                .map_err(|e| format!("{}: its state cannot be changed ({e})", device.name()))?;
        }
        daemon.refresh_ports();
        daemon.write_states();
        Ok("OK".to_owned())
    });
    commands.show("netdev-dummy/conn-state", "[netdev]", 0, 1, |_, call| {
        if let Some(name) = call.arg(0) {
            let state = dummy::lookup(name).map_or("unknown", |d| d.connection_state());
            return Ok(format!("{name}: {state}\n"));
        }
        let connected = |d: &Arc<Dummy>| d.connection_state() != "unknown";
        Ok(dummy::all()
            .into_iter()
            .filter(connected)
            .map(|d| format!("{}: {}\n", d.name(), d.connection_state()))
            .collect())
    });
    commands.change(
        "netdev-dummy/ip4addr",
        "[netdev] ipaddr/mask-prefix-len",
        2,
        2,
        |daemon, call| {
            let device = named(call.arg(0))?;
            let address = Cidr::parse_ipv4(call.arg(1).unwrap_or_default());
            let address = address.map_err(|e| e.to_string())?;
            if let IpAddr::V4(address) = address.address() {
                device.add_ip4(address);
            }
            daemon.underlay.add_address(device.name(), address);
            Ok("OK".to_owned())
        },
    );
    commands.change("netdev-dummy/ip6addr", "[netdev] ip6addr", 2, 2, |daemon, call| {
        let device = named(call.arg(0))?;
        let address = Cidr::parse_ipv6(call.arg(1).unwrap_or_default());
        daemon.underlay.add_address(device.name(), address.map_err(|e| e.to_string())?);
        Ok("OK".to_owned())
    });
    commands.unsupported(
        "dpif-dummy/change-port-number",
        "dp port new-number",
        3,
        3,
        "datapath ports keep their numbers",
    );
    commands.change("time/stop", "", 0, 0, |daemon, _| {
        daemon.clock.stop();
        Ok(String::new())
    });
    commands.change("time/warp", "[large_msecs] msecs", 1, 2, |daemon, call| {
        let (total, step) = parse_warp(call.args)?;
        daemon.warp(total, step);
        Ok("warped".to_owned())
    });
}

fn named(name: Option<&str>) -> Result<Arc<Dummy>, String> {
    name.and_then(dummy::lookup).ok_or_else(|| UNKNOWN.to_owned())
}

/// How far, and in which steps; both in milliseconds.
fn parse_warp(args: &[String]) -> Result<(u64, u64), String> {
    let number = |text: &String| {
        text.parse::<u64>()
            .ok()
            .filter(|n| (1..=u64::from(u32::MAX)).contains(n))
            .ok_or("invalid MSECS")
    };
    let total = args.first().map(number).transpose()?.ok_or("invalid MSECS")?;
    let step = args.get(1).map(number).transpose()?.unwrap_or(total);
    Ok((total, step))
}

/// `[--qid N] {PACKET | FLOW [--len N]}...`: the receive queue, below `queues`, and the frames.
fn parse_receive(words: &[&str], queues: usize) -> Result<(usize, Vec<Packet>), String> {
    let mut queue = 0;
    let mut rest = words;
    if let [option, number, tail @ ..] = rest
        && *option == "--qid"
    {
        queue = number.parse().ok().filter(|q| *q < queues.max(1)).ok_or("bad rx queue id.")?;
        rest = tail;
    }
    let mut frames = Vec::new();
    while let [text, tail @ ..] = rest {
        rest = tail;
        if let Ok(frame) = parse_frame(text) {
            frames.push(frame);
            continue;
        }
        let mut len = None;
        if let ["--len", tail @ ..] = rest {
            let [number, tail @ ..] = tail else {
                return Err("--len: a number of bytes is expected".to_owned());
            };
            len = Some(number.parse::<usize>().ok().filter(|n| *n <= MAX_FRAME).ok_or(TOO_SMALL)?);
            rest = tail;
        }
        frames.push(frame_of_flow(text, len)?);
    }
    if frames.is_empty() {
        return Err("no packet given: hexadecimal bytes or a flow are expected".to_owned());
    }
    Ok((queue, frames))
}

/// A frame that looks like `flow` (datapath syntax), `len` bytes long if given: longer than its
/// headers, its payload fills the rest.
fn frame_of_flow(flow: &str, len: Option<usize>) -> Result<Packet, String> {
    let key = odp::parse_frame(flow, &no_numbers).map_err(|e| e.to_string())?;
    let Some(len) = len else { return Ok(compose(&key, &flow::PAYLOAD)) };
    let headers = flow::compose(&key, &[]).len();
    let payload = len.checked_sub(headers).ok_or(TOO_SMALL)?;
    let mut frame = flow::compose(&key, &vec![0; payload]);
    // Frames without a layer that carries a payload are padded.
    frame.resize(len);
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TCP: &str = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
        ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=9),tcp_flags(0x10)";

    fn lens(words: &[&str]) -> Result<(usize, Vec<usize>), String> {
        parse_receive(words, 2).map(|(q, frames)| (q, frames.iter().map(Packet::len).collect()))
    }

    #[test]
    fn packets_and_flows() {
        let hex = "505400000007505400000005080045000014000000004006f97ac0a80001c0a80002";
        assert_eq!(lens(&[hex]), Ok((0, vec![34])));
        assert_eq!(lens(&[TCP]), Ok((0, vec![118])));
        assert_eq!(lens(&[&TCP.replace("0x10", "0x12")]), Ok((0, vec![54])));
        assert_eq!(lens(&["--qid", "1", TCP, "--len", "60", hex]), Ok((1, vec![60, 34])));
        for (words, error) in [
            (&["zz"][..], "syntax error at zz"),
            (&["aabb"], "syntax error at aabb"),
            (&["--qid", "2", hex], "bad rx queue id."),
            (&["--qid", "x", hex], "bad rx queue id."),
            (&[TCP, "--len", "30"], "too small packet len"),
            (&[TCP, "--len", "abc"], "too small packet len"),
        ] {
            assert_eq!(lens(words), Err(error.to_owned()), "{words:?}");
        }
        assert!(lens(&[TCP, "--len"]).is_err(), "OVS dies here");
        assert!(lens(&[]).is_err());
    }

    #[test]
    fn lengths_of_packets_are_in_their_headers() {
        let (_, frames) = parse_receive(&[TCP, "--len", "500"], 1).unwrap();
        let frame = frames.first().unwrap();
        assert_eq!(frame.len(), 500);
        assert_eq!(frame.data().get(16..18), Some(&486u16.to_be_bytes()[..]));
    }

    #[test]
    fn warps() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse_warp(&words("1000 100")), Ok((1000, 100)));
        assert_eq!(parse_warp(&words("500")), Ok((500, 500)));
        for bad in ["x", "0", "-1", "5 x", "99999999999"] {
            assert_eq!(parse_warp(&words(bad)), Err("invalid MSECS".to_owned()));
        }
    }

    proptest! {
        #[test]
        fn any_words_are_packets_or_not(words in proptest::collection::vec("\\PC{0,40}", 0..5)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let _ = parse_receive(&words, 1);
        }
    }
}
