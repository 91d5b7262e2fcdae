// SPDX-License-Identifier: Apache-2.0
//! NORMAL: forwarding as a VLAN-aware learning switch.

use super::context::Context;
use super::hash::hash_fields;
use super::vlan::Vlans;
use crate::bond::{Choice, Verdict, source_hash};
use crate::effect::Effect;
use crate::snapshot::{BundleView, PortView, PriorityTags};
use crate::trace::Kind;
use crate::tunnel::PacketTypeMode;
use ::export::netflow::Output;
use datapath::Action as DpAction;
use flow::{Field, VLAN_CFI, VLANS, Vlan};
use openflow::PortNo;
use openflow::action::HashFields;
use packet::{Mac, ethertype};
use std::sync::Arc;

/// ARP opcodes (RFC 826).
const ARP_REQUEST: u8 = 1;
const ARP_REPLY: u8 = 2;

/// Returns true for destinations that switches must not forward (ovs-vswitchd.conf.db(5),
/// `forward-bpdu`).
pub(super) fn is_reserved(mac: &[u8; 6]) -> bool {
    match *mac {
        [0x01, 0x80, 0xc2, 0, 0, last] => last & 0xf0 == 0,
        [0x00, 0xe0, 0x2b, 0, 0, last] => matches!(last, 0 | 4 | 6),
        [0x01, 0x00, 0x0c, 0, 0, 0] => true,
        [0x01, 0x00, 0x0c, 0xcc, 0xcc, last] => last & 0xf0 == 0xc0,
        [0x01, 0x00, 0x0c, 0xcd, 0xcd, 0xcd] => true,
        _ => false,
    }
}

/// Input of a packet.
pub(super) enum Input<'a> {
    /// A bundle of the bridge, and its index.
    Bundle(usize, &'a BundleView),
    /// No port: a controller made the packet. Every VLAN is allowed, and nothing is learned.
    None,
}

impl Context<'_> {
    pub(super) fn normal(&mut self) {
        let bridge = self.bridge;
        let m = &mut self.mask.0;
        m.dl_src = [0xff; 6];
        m.dl_dst = [0xff; 6];
        for v in m.vlans.iter_mut().take(VLANS) {
            v.tci.set(v.tci.get() | VLAN_CFI | 0x0fff);
        }

        let in_port = self.in_port();
        let port = bridge.ports.get(&in_port);
        let bundle = |p: &PortView| p.bundle.and_then(|i| bridge.bundles.get(i).map(|b| (i, b)));
        let input = match port.and_then(bundle) {
            Some((i, b)) => Input::Bundle(i, b),
            None if in_port == PortNo::NONE || in_port == PortNo::CONTROLLER => Input::None,
            None => {
                self.report(Kind::Warning, || "no input bundle, dropping".to_string());
                return;
            }
        };
        let is_tagged = self.key.vlans[0].tci.get() & VLAN_CFI != 0;
        if ethertype::is_vlan(self.key.dl_type.get()) && !is_tagged {
            if let (Input::Bundle(_, b), true) = (&input, self.collect) {
                let name = &b.name;
                self.report(Kind::Error, || {
                    format!("dropping packet with partial VLAN tag received on port {name}")
                });
            }
            self.report(Kind::Warning, || "partial VLAN tag, dropping".to_string());
            return;
        }

        let wire = Vlans::of(&self.key);
        let vlans = match &input {
            Input::Bundle(_, b) => {
                if let Some(reason) = wire.refuse_input(b) {
                    self.report(Kind::Error, || reason);
                    self.report(Kind::Warning, || {
                        "disallowed VLAN VID for this input port, dropping".to_string()
                    });
                    return;
                }
                wire.input(b)
            }
            Input::None => wire,
        };
        let vid = vlans.vid();

        if port.is_some() && !bridge.config.forward_bpdu && is_reserved(&self.key.dl_dst) {
            self.report(Kind::Detail, || {
                "packet has reserved destination MAC, dropping".to_string()
            });
            return;
        }

        if let Input::Bundle(i, _) = &input
            && bridge.mirrors.reserves(*i)
        {
            self.report(Kind::Warning, || "input port is mirror output port, dropping".to_string());
            return;
        }

        let verdict = match &input {
            Input::Bundle(_, BundleView { bond: Some(bond), .. }) => {
                bond.verdict(in_port, Mac(self.key.dl_dst))
            }
            Input::Bundle(..) | Input::None => Verdict::Accept,
        };
        if verdict == Verdict::Drop {
            self.report(Kind::Detail, || "bonding refused admissibility, dropping".to_string());
            return;
        }
        let gratuitous = self.is_gratuitous_arp();
        if let (Verdict::DropIfMoved, Input::Bundle(i, _)) = (verdict, &input)
            && self.is_sent_back(*i, vid, gratuitous)
        {
            self.report(Kind::Detail, || {
                "SLB bond thinks this packet looped back, dropping".to_string()
            });
            return;
        }
        // Packets of a layer-3 port have addresses of zeros; others without an Ethernet header, none.
        let is_layer3 = port.and_then(|p| p.tunnel.as_ref()).map(|config| config.mode)
            == Some(PacketTypeMode::LegacyL3);
        if let Input::Bundle(_, b) = &input
            && self.key.packet_type.get() == 0
            && !is_layer3
        {
            self.learn_source(b, vid, in_port, gratuitous);
        }

        if self.is_snooped() {
            self.snoop(&input, &vlans);
            return;
        }
        match self.place_of(vid, self.key.dl_dst) {
            Some(known) => match bridge.ports.get(&known).and_then(bundle) {
                None => {
                    self.report(Kind::Warning, || "learned port is unknown, dropping".to_string())
                }
                Some((i, _)) if matches!(input, Input::Bundle(own, _) if own == i) => {
                    self.report(Kind::Detail, || {
                        "learned port is input port, dropping".to_string()
                    });
                }
                Some((i, _)) if bridge.mirrors.reserves(i) => {
                    self.report(Kind::Warning, || {
                        "learned port is a mirror port, dropping".to_string()
                    });
                }
                Some((_, b)) => {
                    self.report(Kind::Detail, || "forwarding to learned port".to_string());
                    self.output_bundle(b, &vlans);
                }
            },
            None => {
                self.report(Kind::Detail, || {
                    "no learned MAC for destination, flooding".to_string()
                });
                self.flood_bundles(&input, &vlans);
            }
        }
    }

    /// Outputs to all bundles of the packet's VLAN that floods include, except the input.
    pub(super) fn flood_bundles(&mut self, input: &Input<'_>, vlans: &Vlans) {
        let bridge = self.bridge;
        let own = match input {
            Input::Bundle(i, _) => Some(*i),
            Input::None => None,
        };
        let wanted = |(i, b): &(usize, &BundleView)| {
            let is_free = b.floodable && !bridge.mirrors.reserves(*i);
            Some(*i) != own && is_free && vlans.included_in(b)
        };
        let [outer, inner] = self.key.vlans;
        let (now, pcp) = ([outer, inner, Vlan::default()], outer.tci.get());
        let mut targets: Vec<&BundleView> =
            bridge.bundles.iter().enumerate().filter(wanted).map(|(_, b)| b).collect();
        // Ports that take the packet's headers as they are come first: then the headers are changed
        // once, and not back.
        targets.sort_by_key(|b| vlans.output(b, pcp) != now);
        for b in targets {
            self.output_bundle(b, vlans);
        }
        self.netflow_output = Output::Flood;
    }

    /// Returns the port where `mac` is: the port that the packet itself showed last, else the port
    /// in the MAC table. (Learned addresses enter the table only after translation.)
    fn place_of(&self, vlan: u16, mac: [u8; 6]) -> Option<PortNo> {
        let table = &self.bridge.macs;
        let shown = self.effects.iter().rev().find_map(|effect| {
            let Effect::Learn { macs, vlan: v, mac: m, port, .. } = effect else { return None };
            let is_same = (*v, *m) == (vlan, mac) && Arc::ptr_eq(macs, table);
            (is_same && table.accepts(vlan, mac, *port)).then_some(*port)
        });
        shown.or_else(|| table.lookup(vlan, mac))
    }

    /// Learns the port of the packet's source address.
    fn learn_source(&mut self, bundle: &BundleView, vlan: u16, port: PortNo, gratuitous: bool) {
        let bond = bundle.bond.is_some();
        let mac = self.key.dl_src;
        let macs = &self.bridge.macs;
        // The other end of a bond reflects a gratuitous ARP that was received on a single port. So
        // for a while the bond must not learn the address from one.
        if !self.collect || bond && gratuitous && macs.is_locked(vlan, mac, self.now) {
            return;
        }
        // All members of a bond count as its first member.
        let port = if bond { bundle.members.first().copied().unwrap_or(port) } else { port };
        let moves = || macs.accepts(vlan, mac, port) && self.place_of(vlan, mac) != Some(port);
        if self.tracer.is_some() && moves() {
            let [a, b, c, d, e, f] = mac;
            let name = &bundle.name;
            self.report(Kind::Detail, || {
                format!(
                    "learned that {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} is on port {name} in VLAN {vlan}"
                )
            });
        }
        let macs = Arc::clone(&self.bridge.macs);
        self.effect(|| Effect::Learn {
            macs,
            vlan,
            mac,
            port,
            gratuitous_arp: gratuitous && !bond,
        });
    }

    /// Returns true for a broadcast ARP reply, and for a broadcast ARP request for the sender's own
    /// address.
    fn is_gratuitous_arp(&mut self) -> bool {
        if self.key.dl_type.get() != ethertype::ARP || self.key.dl_dst != [0xff; 6] {
            return false;
        }
        let m = &mut self.mask.0;
        m.nw_proto = u8::MAX;
        match self.key.nw_proto {
            ARP_REPLY => true,
            ARP_REQUEST => {
                m.nw_src.set(u32::MAX);
                m.nw_dst.set(u32::MAX);
                self.key.nw_src == self.key.nw_dst
            }
            _ => false,
        }
    }

    /// Returns true when a packet that came in by bundle `own` is one that this end has sent: its
    /// source address is learned elsewhere, and no gratuitous ARP shows that the host has moved.
    fn is_sent_back(&self, own: usize, vlan: u16, gratuitous: bool) -> bool {
        let mac = self.key.dl_src;
        let is_elsewhere = self
            .place_of(vlan, mac)
            .is_some_and(|known| self.port(known).is_none_or(|port| port.bundle != Some(own)));
        is_elsewhere && (!gratuitous || self.bridge.macs.is_locked(vlan, mac, self.now))
    }

    /// Returns the member by which a packet in VLAN `vlan` leaves a bundle; `None` when no member is
    /// enabled. The next output to the member goes to the whole bond where the datapath chooses.
    fn member(&mut self, bundle: &BundleView, vlan: u16) -> Option<PortNo> {
        let Some(bond) = &bundle.bond else { return bundle.members.first().copied() };
        let hash = match bond.choice() {
            Choice::Fixed(member) => return member,
            // All members are alike. The datapath has the one for the packet.
            Choice::Datapath(id) => {
                let member = bond.enabled.first().copied()?;
                self.bond_output = Some(id);
                return Some(member);
            }
            Choice::SourceHash => {
                self.mask.set_exact(Field::EthSrc);
                for v in &mut self.mask.0.vlans {
                    v.tci.set(v.tci.get() | VLAN_CFI | 0x0fff);
                }
                source_hash(Mac(self.key.dl_src), vlan, bond.basis)
            }
            Choice::TupleHash => {
                let fields = HashFields::SymmetricL3L4Udp;
                hash_fields(fields, bond.basis, &self.key, &mut self.mask)
            }
        };
        let bucket = hash as u8; // one of 256
        let member = bond.member(bucket)?;
        self.effect(|| Effect::Bond(Arc::clone(&bond.buckets), bucket));
        Some(member)
    }

    /// Outputs to a bundle, with the VLAN headers that its mode requires.
    pub(super) fn output_bundle(&mut self, bundle: &BundleView, vlans: &Vlans) {
        let Some(member) = self.member(bundle, vlans.vid()) else {
            self.report(Kind::Detail, || "no member of the bond is enabled".to_string());
            return;
        };
        let old = self.key.vlans;
        let pcp = old[0].tci.get();
        if bundle.priority_tags != PriorityTags::Never || vlans.has_priority_tag() {
            for m in &mut self.mask.0.vlans {
                m.tpid.set(u16::MAX);
                m.tci.set(u16::MAX);
            }
        }
        let [outer, inner, innermost] = vlans.output(bundle, pcp);
        let new = [outer, inner];
        let is_third = innermost != Vlan::default();
        let has_two = |v: &[Vlan; VLANS]| v.iter().all(|v| v.tci.get() & VLAN_CFI != 0);
        if (is_third || has_two(&old) != has_two(&new))
            && self.port(member).is_some_and(|p| p.is_patch)
        {
            self.expose_vlans(); // a header changes its position for the other bridge
        }
        if is_third {
            self.output_wrapped(member, new);
        } else {
            self.key.vlans = new;
            self.output_port(member, None);
        }
        self.bond_output = None;
        self.key.vlans = old;
    }

    /// Outputs to a port with one more VLAN header before the two that the packet has. The key has
    /// no room for three headers and could not undo the push, so the push is done to a copy.
    fn output_wrapped(&mut self, port: PortNo, vlans: [Vlan; VLANS]) {
        let [new, _] = vlans;
        self.copied(|ctx| {
            ctx.key.vlans = vlans;
            ctx.base.vlans = vlans;
            let sent = ctx.nested(|ctx| ctx.output_port(port, None));
            if !sent.is_empty() {
                ctx.emit(DpAction::PushVlan { tpid: new.tpid.get(), tci: new.tci.get() });
                ctx.out.extend(sent);
            }
        });
    }
}
