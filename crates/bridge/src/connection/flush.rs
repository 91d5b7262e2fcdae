// SPDX-License-Identifier: Apache-2.0
//! NXT_CT_FLUSH_ZONE and NXT_CT_FLUSH: removal of connections from the connection tracker.

use super::reply::{Job, Reply};
use crate::switch::Switch;
use conntrack::{Flush, NotFound, TupleFilter};
use openflow::OfError;
use openflow::message::{CtFlush, CtTuple};
use std::net::{IpAddr, Ipv6Addr};

/// Slices of the table in one step, of 1,024 slots each. Other peers are served between two steps.
/// To end a connection takes some 100 ns, so a step takes 2 ms or less.
const STEP_SLICES: usize = 16;

/// A removal of connections that is under way.
#[derive(Debug)]
pub(super) struct Flushing {
    wanted: Flush,
    /// The place in the table at which the next step begins.
    cursor: u32,
}

impl Flushing {
    /// Removes the connections of the next slices. Returns the rest.
    pub(super) fn step(mut self, switch: &Switch) -> Option<Flushing> {
        let connections = switch.datapath().connections()?;
        let mut worker = connections.tracker().table().worker();
        for _ in 0..STEP_SLICES {
            let (wanted, now) = (&self.wanted, connections.now());
            match connections.tracker().flush(&worker.pin(), wanted, self.cursor, now) {
                Ok(Some(next)) => self.cursor = next,
                Ok(None) => return None,
                // As in Open vSwitch, the controller gets no error.
                Err(NotFound) => {
                    tracing::warn!(target: "conntrack", "Tuple not found");
                    return None;
                }
            }
        }
        Some(self)
    }
}

/// Begins the removal of a zone's connections.
pub(super) fn of_zone(zone: u16, switch: &Switch) -> Result<Reply, OfError> {
    begin(Flush { zone: Some(zone), ..Flush::default() }, switch)
}

/// Begins the removal of the connections that NXT_CT_FLUSH describes.
pub(super) fn of_connections(message: &CtFlush, switch: &Switch) -> Result<Reply, OfError> {
    begin(filter(message), switch)
}

fn begin(wanted: Flush, switch: &Switch) -> Result<Reply, OfError> {
    if switch.datapath().connections().is_none() {
        return Err(OfError::OFPBRC_BAD_SUBTYPE);
    }
    switch.datapath().flush_kernel_connections(&wanted);
    Ok(Reply::Long(Job::Flush(Flushing { wanted, cursor: 0 })))
}

fn filter(message: &CtFlush) -> Flush {
    // The protocol stands once for both directions.
    let tuple = |tuple: &CtTuple| {
        // `ovs-ofctl` sends zeros of ICMP for a direction without a tuple.
        let has_ports = [tuple.src_port, tuple.dst_port].iter().any(|port| port.unwrap_or(0) != 0);
        let has_icmp =
            [tuple.icmp_id, tuple.icmp_type.map(u16::from), tuple.icmp_code.map(u16::from)]
                .iter()
                .any(|n| n.unwrap_or(0) != 0);
        if tuple.src.is_none() && tuple.dst.is_none() && !has_ports && !has_icmp {
            return TupleFilter::default();
        }
        let proto = message.ip_proto;
        TupleFilter {
            src: tuple.src.map(address),
            dst: tuple.dst.map(address),
            proto,
            sport: tuple.src_port.unwrap_or(0),
            dport: tuple.dst_port.unwrap_or(0),
            icmp_id: tuple.icmp_id,
            icmp_type: tuple.icmp_type,
            icmp_code: tuple.icmp_code,
        }
    };
    Flush {
        zone: message.zone,
        mark: message.mark,
        label: message.label,
        original: TupleFilter { proto: message.ip_proto, ..tuple(&message.original) },
        reply: tuple(&message.reply),
    }
}

/// Returns an address, which is in its mapped form if it is one of IPv4.
fn address(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_of_messages() {
        let mapped = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 1, last];
        let message = CtFlush {
            zone: Some(5),
            ip_proto: 6,
            mark: Some((1, 3)),
            label: None,
            original: CtTuple { src: Some(mapped(1)), ..CtTuple::default() },
            reply: CtTuple { dst_port: Some(80), ..CtTuple::default() },
        };
        let parsed = |text: &str| TupleFilter::parse(text).unwrap();
        assert_eq!(
            filter(&message),
            Flush {
                zone: Some(5),
                mark: Some((1, 3)),
                label: None,
                original: parsed("ct_nw_src=10.1.1.1,ct_nw_proto=6"),
                reply: parsed("ct_nw_proto=6,ct_tp_dst=80"),
            }
        );
        assert!(filter(&CtFlush::default()).is_all());
        // A whole tuple has no filter of the other direction.
        let original = CtTuple { src_port: Some(1), ..CtTuple::default() };
        let one = CtFlush { ip_proto: 17, original, ..CtFlush::default() };
        assert!(filter(&one).reply.is_empty());
        let zeros = CtTuple {
            icmp_id: Some(0),
            icmp_type: Some(0),
            icmp_code: Some(0),
            ..CtTuple::default()
        };
        let ping = CtFlush { ip_proto: 1, reply: zeros, ..CtFlush::default() };
        assert!(filter(&ping).reply.is_empty());
        let v6 = CtTuple { src: Some([0xfc; 16]), ..CtTuple::default() };
        let six = filter(&CtFlush { original: v6, ..CtFlush::default() });
        assert!(six.original.src.is_some_and(|address| address.is_ipv6()));
    }
}
