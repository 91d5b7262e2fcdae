// SPDX-License-Identifier: Apache-2.0
//! Outer headers of packets in tunnels, as far as they can be compared, and the packets inside.
//!
//! The UDP source port comes from a hash of the inner packet, and hash functions are each switch's own.
//! So it is left out, and so is the checksum, which depends on it; whether that is right is kept. The
//! same goes for GRE's sequence numbers, which OVS takes on from one configuration to the next and
//! also for a trace, and for the identification of a packet that may be cut into fragments: Slipswitch counts
//! them, OVS gives all of them 0.

use crate::case::hex;
use crate::generate::tunnels::UDP_PORTS;
use packet::checksum::{self, Sum};
use std::ops::Range;

const ETHERNET: usize = 14;
const UDP: u8 = 17;
const GRE: u8 = 47;
/// Source ports of tunnels are in this range, as with OVS.
const SOURCES: Range<u16> = 32_768..61_000;

/// The outer headers of a packet in a tunnel.
struct Outer {
    /// The protocol after IP.
    protocol: u8,
    /// The offset of that protocol's header.
    at: usize,
    /// The sum of IP's part of a UDP checksum, but for the length.
    sum: Sum,
}

/// Reads the headers of IP without a VLAN header or fragments before it.
fn outer(frame: &[u8]) -> Option<Outer> {
    let ip = frame.get(ETHERNET..)?;
    let mut sum = Sum::default();
    let (protocol, length) = match frame.get(12..ETHERNET)? {
        [8, 0] => {
            let length = usize::from(ip.first()? & 0x0f) * 4;
            if u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x3fff != 0 {
                return None;
            }
            sum.add(ip.get(12..20)?);
            (*ip.get(9)?, length)
        }
        [0x86, 0xdd] => {
            sum.add(ip.get(8..40)?);
            (*ip.get(6)?, 40)
        }
        _ => return None,
    };
    sum.add_u16(protocol.into());
    Some(Outer { protocol, at: ETHERNET + length, sum })
}

/// A frame as text, without what differs between packets in tunnels.
pub fn compared(frame: &[u8]) -> String {
    masked(frame).unwrap_or_else(|| hex(frame))
}

fn masked(frame: &[u8]) -> Option<String> {
    let Outer { protocol, at, mut sum } = outer(frame)?;
    let mut masked = frame.to_vec();
    let mut checksums = Vec::new();
    match protocol {
        UDP => {
            let &[s0, s1, d0, d1, l0, l1, c0, c1] = frame.get(at..)?.first_chunk()?;
            let is_tunnel = UDP_PORTS.contains(&u16::from_be_bytes([d0, d1]));
            if !is_tunnel || !SOURCES.contains(&u16::from_be_bytes([s0, s1])) {
                return None;
            }
            let length = u16::from_be_bytes([l0, l1]);
            sum.add_u16(length);
            checksums.push(match (c0, c1) {
                (0, 0) => "none",
                _ => {
                    sum.add(frame.get(at..at + usize::from(length))?);
                    right(sum.finish())
                }
            });
            masked.get_mut(at..at + 2)?.fill(0);
            masked.get_mut(at + 6..at + 8)?.fill(0);
        }
        GRE => {
            let flags = *frame.get(at)?;
            if flags & 0x10 != 0 {
                let before = [0x80, 0x20].into_iter().filter(|f| flags & f != 0).count();
                let sequence = at + 4 + 4 * before;
                masked.get_mut(sequence..sequence + 4)?.fill(0);
            }
        }
        _ => return None,
    }
    let is_ipv4 = frame.get(12..ETHERNET) == Some(&[8, 0]);
    let may_be_cut = frame.get(ETHERNET + 6)? & 0x40 == 0;
    if is_ipv4 && may_be_cut {
        checksums.push(right(checksum::internet(frame.get(ETHERNET..at)?)));
        masked.get_mut(ETHERNET + 4..ETHERNET + 6)?.fill(0);
        masked.get_mut(ETHERNET + 10..ETHERNET + 12)?.fill(0);
    }
    Some(format!("{} {}", hex(&masked), checksums.join(" ")))
}

fn right(sum: u16) -> &'static str {
    if sum == 0 { "right" } else { "wrong" }
}

/// True when the length in the UDP header of a tunnel's packet is not that of the rest of the frame.
pub fn has_wrong_length(frame: &[u8]) -> bool {
    let length = |at: usize| Some([*frame.get(at + 4)?, *frame.get(at + 5)?]);
    outer(frame).filter(|outer| outer.protocol == UDP && inner(frame).is_some()).is_some_and(
        |outer| {
            let length = length(outer.at).map_or(0, u16::from_be_bytes);
            frame.len() != outer.at + usize::from(length)
        },
    )
}

/// True when there are bytes after the packet in a frame of a tunnel.
pub fn has_trailer(frame: &[u8]) -> bool {
    // IPv6 does not count its own header.
    let (length, rest) = match frame.get(12..ETHERNET) {
        Some([8, 0]) => (frame.get(16..18), 0),
        _ => (frame.get(18..20), 40),
    };
    let [high, low] = length.and_then(|l| l.try_into().ok()).unwrap_or([0, 0]);
    inner(frame).is_some()
        && frame.len() > ETHERNET + rest + usize::from(u16::from_be_bytes([high, low]))
}

/// The packet in a tunnel's packet, whatever it is; `None` if it cannot be one.
pub fn inner(frame: &[u8]) -> Option<&[u8]> {
    let Outer { protocol, at, .. } = outer(frame)?;
    let length = match protocol {
        UDP => {
            let to = u16::from_be_bytes([*frame.get(at + 2)?, *frame.get(at + 3)?]);
            let options = match UDP_PORTS.iter().position(|port| *port == to)? {
                2 => usize::from(frame.get(at + 8)? & 0x3f) * 4,
                _ => 0,
            };
            16 + options
        }
        GRE => {
            let fields = [0x80, 0x20, 0x10]
                .into_iter()
                .filter(|f| frame.get(at).is_some_and(|b| b & f != 0));
            4 + 4 * fields.count()
        }
        _ => return None,
    };
    frame.get(at + length..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::build::Frame;
    use std::net::Ipv4Addr;

    fn tunnelled(source: u16, inner: &[u8]) -> Vec<u8> {
        let body = [&[8, 0, 0, 0, 0, 0, 5, 0], inner].concat();
        Frame::ethernet([2; 6], [4; 6])
            .ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 64)
            .udp(source, 4789)
            .payload(&body)
            .finish()
    }

    #[test]
    fn packets_differ_in_all_but_the_source_port() {
        let (a, b) = (tunnelled(40_000, &[7; 40]), tunnelled(40_001, &[7; 40]));
        assert_ne!(a, b);
        assert_eq!(compared(&a), compared(&b));
        assert!(compared(&a).ends_with(" right right"));
        assert_ne!(compared(&a), compared(&tunnelled(40_000, &[8; 40])));
        let mut wrong = a.clone();
        wrong[40] ^= 1;
        assert!(compared(&wrong).ends_with(" wrong right"));
        wrong[40..42].fill(0);
        assert!(compared(&wrong).ends_with(" none right"));
        assert_eq!(compared(&tunnelled(7, &[7; 40])), hex(&tunnelled(7, &[7; 40])));
        assert_eq!(inner(&a), Some(&[7; 40][..]));
        let mut long = a.clone();
        long[38] ^= 1;
        assert!(!has_wrong_length(&a) && has_wrong_length(&long));
        assert!(!has_trailer(&a) && has_trailer(&[&a[..], &[0]].concat()));
        for len in 0..a.len() {
            let _ = (compared(&a[..len]), inner(&a[..len]));
        }
    }
}
