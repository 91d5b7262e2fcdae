// SPDX-License-Identifier: Apache-2.0
//! The headers with which a sampled packet leaves, as far as sFlow and IPFIX have records of them.

use ::export::sflow::{OUTPUT_MULTIPLE, Tunnel};
use ::tunnel::{Encapsulation, Header, OuterIp};
use datapath::{Action, PortNo, Set, TunnelKind, Userdata};
use flow::Key;
use packet::{ethertype, ip_proto};

/// Outputs from here on are no indices of interfaces (sFlow version 5, "Input/output port information").
const FORMATS: u32 = 1 << 30;
/// Bit of the last entry of a stack of MPLS labels (RFC 3032, 2.1).
const BOTTOM_OF_STACK: u32 = 1 << 8;

/// The outer headers of a packet that leaves by one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Egress {
    /// The tunnel that the packet goes into. `None` also where there is no record of it: for several, and
    /// for one over IPv6.
    pub tunnel: Option<Tunnel>,
    /// Entries of the MPLS stack, outermost first; host integers.
    pub labels: Vec<u32>,
}

/// Returns true for the output of a packet that leaves by one port.
pub(crate) fn is_single_output(output: u32) -> bool {
    let is_index = output != 0 && output < FORMATS;
    is_index || output == OUTPUT_MULTIPLE | 1 // one without an index
}

impl Egress {
    /// Reads the actions of a packet with this key. `kind_of` returns the kind of a tunnel port.
    pub(crate) fn of(
        actions: &[Action],
        key: &Key,
        kind_of: impl Fn(PortNo) -> Option<TunnelKind>,
    ) -> Egress {
        let mut reader = Reader { labels: labels_of(key), ..Reader::default() };
        reader.read(actions);
        let kind = reader.output.and_then(kind_of);
        let tunnel = reader.tunnel.filter(|_| reader.tunnels == 1).and_then(|(fields, proto)| {
            let proto = proto.unwrap_or_else(|| kind.map_or(0, protocol));
            sflow_tunnel(&fields, proto, fields.id.get() != 0)
        });
        let mut labels = reader.labels;
        for label in &mut labels {
            *label &= !BOTTOM_OF_STACK;
        }
        if let Some(last) = labels.last_mut() {
            *last |= BOTTOM_OF_STACK;
        }
        Egress { tunnel, labels }
    }
}

#[derive(Default)]
struct Reader {
    /// Number of tunnels that the actions name.
    tunnels: u32,
    /// The last of them, with the protocol of its headers; `None` where the output decides about it.
    tunnel: Option<(flow::Tunnel, Option<u8>)>,
    /// The last output.
    output: Option<PortNo>,
    labels: Vec<u32>,
}

impl Reader {
    fn read(&mut self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Output(port) => self.output = Some(*port),
                Action::SetTunnel(fields) => {
                    self.tunnels += 1;
                    self.tunnel = Some((**fields, None));
                }
                Action::TunnelPush { header, .. } => {
                    self.tunnels += 1;
                    self.tunnel = of_header(header);
                }
                Action::PushMpls { lse, .. } | Action::AddMpls { lse, .. } => {
                    self.labels.insert(0, *lse)
                }
                Action::PopMpls { .. } => drop(self.labels.drain(..1.min(self.labels.len()))),
                Action::Set(Set::Mpls(set)) => {
                    if let Some(outermost) = self.labels.first_mut() {
                        *outermost = *outermost & !set.mask | set.value;
                    }
                }
                Action::Clone(nested) => self.read(nested),
                _ => {}
            }
        }
    }
}

/// Returns the entries of a packet's stack, as far as the key has them.
fn labels_of(key: &Key) -> Vec<u32> {
    if !matches!(key.dl_type.get(), ethertype::MPLS | ethertype::MPLS_MULTICAST) {
        return Vec::new();
    }
    let entries = key.mpls.iter().map(|lse| lse.get());
    let last = entries.clone().position(|lse| lse & BOTTOM_OF_STACK != 0);
    entries.take(last.map_or(key.mpls.len(), |last| last + 1)).collect()
}

/// Returns the IP protocol of a kind of tunnel, as Open vSwitch reports it.
fn protocol(kind: TunnelKind) -> u8 {
    match kind {
        TunnelKind::Gre | TunnelKind::Ip6Gre | TunnelKind::Erspan | TunnelKind::Ip6Erspan => {
            ip_proto::GRE
        }
        TunnelKind::Srv6 | TunnelKind::Stt => 0,
        _ => ip_proto::UDP,
    }
}

/// Returns sFlow's record of a tunnel with these fields and this IP protocol; `None` for one that is not
/// over IPv4. sFlow has 32 bits of the key.
pub(super) fn sflow_tunnel(fields: &flow::Tunnel, proto: u8, has_key: bool) -> Option<Tunnel> {
    (fields.dst.get() != 0).then(|| Tunnel {
        src: fields.src.get().to_be_bytes(),
        dst: fields.dst.get().to_be_bytes(),
        proto,
        tp_src: fields.tp_src.get(),
        tp_dst: fields.tp_dst.get(),
        tos: fields.tos,
        vni: has_key.then(|| fields.id.get() as u32),
    })
}

/// Returns the fields of headers over IPv4, and their IP protocol. The source port is 0, because each
/// packet has its own. As in Open vSwitch, ports and keys of tunnels other than VXLAN, Geneve and GRE are
/// not reported.
fn of_header(header: &Header) -> Option<(flow::Tunnel, Option<u8>)> {
    let parts = header.parts();
    let OuterIp::V4 { src, dst, tos, .. } = parts.ip else { return None };
    let (udp, key) = match &parts.encapsulation {
        Encapsulation::Vxlan { udp, vni, .. } | Encapsulation::Geneve { udp, vni, .. } => {
            (Some(*udp), *vni)
        }
        Encapsulation::Gre { key, .. } => (None, key.unwrap_or(0)),
        _ => (None, 0),
    };
    let mut fields = flow::Tunnel::NONE;
    fields.src.set(src.to_bits());
    fields.dst.set(dst.to_bits());
    fields.tos = tos;
    fields.tp_dst.set(udp.map_or(0, |udp| udp.dst));
    fields.id.set(key.into());
    Some((fields, Some(parts.encapsulation.protocol())))
}

/// Returns the fields of the tunnel that a packet goes into where `actions` sample it for IPFIX as
/// `sample` does. `None` also where there is no record of it: over IPv6, and for several tunnels whose
/// samples are the same.
pub(crate) fn tunnel_after(actions: &[Action], sample: &Userdata) -> Option<flow::Tunnel> {
    let mut search = Search { sample, is_awaited: false, set: None, found: Vec::new() };
    search.read(actions);
    let [first, others @ ..] = search.found.as_slice() else { return None };
    (*first).filter(|_| others.iter().all(|other| other == first))
}

/// The search for the tunnels of a sample.
struct Search<'a> {
    sample: &'a Userdata,
    /// A sample has passed, and the output that it belongs to has not.
    is_awaited: bool,
    /// Fields that are set so far.
    set: Option<flow::Tunnel>,
    /// The tunnel of each sample.
    found: Vec<Option<flow::Tunnel>>,
}

impl Search<'_> {
    fn read(&mut self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Userspace(userdata) if userdata == self.sample => self.is_awaited = true,
                Action::Sample { actions, .. } => self.read(actions),
                Action::Clone(nested) => {
                    let set = self.set;
                    self.read(nested);
                    self.set = set;
                }
                Action::SetTunnel(fields) => self.set = Some(**fields),
                Action::TunnelPush { header, .. } => {
                    self.find(of_header(header).map(|(fields, _)| fields));
                }
                Action::Output(_) => self.find(self.set.filter(|set| set.dst.get() != 0)),
                _ => {}
            }
        }
    }

    fn find(&mut self, tunnel: Option<flow::Tunnel>) {
        if std::mem::take(&mut self.is_awaited) {
            self.found.push(tunnel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datapath::Masked;
    use std::slice;

    const GRE: PortNo = PortNo(9);

    fn of(actions: &[Action], key: &Key) -> Egress {
        Egress::of(actions, key, |port| (port == GRE).then_some(TunnelKind::Gre))
    }

    fn set_tunnel() -> Action {
        let mut fields = flow::Tunnel::NONE;
        fields.dst.set(0x0101_0102);
        fields.id.set(456);
        Action::SetTunnel(Box::new(fields))
    }

    fn labelled(labels: [u32; 3]) -> Key {
        let mut key = Key::ZERO;
        key.dl_type.set(ethertype::MPLS);
        key.mpls = labels.map(Into::into);
        key
    }

    #[test]
    fn the_output_decides_about_the_protocol_of_set_fields() {
        let tunnel = of(&[set_tunnel(), Action::Output(GRE)], &Key::ZERO).tunnel.expect("one");
        assert_eq!(
            (tunnel.dst, tunnel.proto, tunnel.vni),
            ([1, 1, 1, 2], ip_proto::GRE, Some(456))
        );
        let nested = Action::Clone(vec![set_tunnel(), Action::Output(GRE)]);
        assert_eq!(of(&[nested], &Key::ZERO).tunnel, Some(tunnel));
        let twice = [set_tunnel(), Action::Output(GRE), set_tunnel(), Action::Output(GRE)];
        assert_eq!(of(&twice, &Key::ZERO).tunnel, None);
    }

    #[test]
    fn a_sample_belongs_to_the_next_output() {
        let sample =
            |port| Userdata::Ipfix { output_port: PortNo(port), origin: Default::default() };
        let taken = |port| Action::Sample {
            probability: 7,
            actions: vec![Action::Userspace(sample(port))],
        };
        let into = |dst: u32| {
            let mut fields = flow::Tunnel::NONE;
            fields.dst.set(dst);
            Action::SetTunnel(Box::new(fields))
        };
        let find = |actions: &[Action], port| {
            tunnel_after(actions, &sample(port)).map(|fields| fields.dst.get())
        };
        let one = [taken(2), Action::Output(PortNo(2)), into(1), taken(9), Action::Output(GRE)];
        assert_eq!((find(&one, 2), find(&one, 9), find(&one, 3)), (None, Some(1), None));
        let same = [into(1), taken(9), Action::Output(GRE), taken(9), Action::Output(GRE)];
        assert_eq!(find(&same, 9), Some(1));
        let two = [into(1), taken(9), Action::Output(GRE), into(2), taken(9), Action::Output(GRE)];
        assert_eq!(find(&two, 9), None, "either of two tunnels");
    }

    #[test]
    fn labels_are_those_with_which_the_packet_leaves() {
        let (outer, inner) = (11 << 12 | 64, 12 << 12 | BOTTOM_OF_STACK | 63);
        assert_eq!(of(&[], &labelled([outer, inner, 7])).labels, [outer, inner]);
        let push = Action::PushMpls { lse: 5 << 12, ethertype: ethertype::MPLS };
        let pop = Action::PopMpls { ethertype: 0x800 };
        assert_eq!(of(slice::from_ref(&push), &labelled([inner, 0, 0])).labels, [5 << 12, inner]);
        assert_eq!(of(slice::from_ref(&push), &Key::ZERO).labels, [5 << 12 | BOTTOM_OF_STACK]);
        assert_eq!(of(slice::from_ref(&pop), &labelled([outer, inner, 0])).labels, [inner]);
        assert!(of(&[pop.clone(), pop], &labelled([inner, 0, 0])).labels.is_empty());
        let set = Action::Set(Set::Mpls(Masked { value: 9 << 12, mask: 0xfffff << 12 }));
        assert_eq!(of(&[set], &labelled([outer, inner, 0])).labels, [9 << 12 | 64, inner]);
    }

    #[test]
    fn only_one_output_is_single() {
        assert!(is_single_output(7) && is_single_output(OUTPUT_MULTIPLE | 1));
        assert!(!is_single_output(0) && !is_single_output(OUTPUT_MULTIPLE | 2));
        assert!(!is_single_output(::export::sflow::OUTPUT_DROPPED));
    }
}
