// SPDX-License-Identifier: Apache-2.0
//! From the actions of a megaflow to those of a filter.

use super::{Refused, Switch, Target, no_action};
use crate::act::{Act, Ct, Direction, Edit, LAST_CHAIN, Layer, Nat, checksum};
use conntrack::{Commit, Manip, NatRange, Request};
use datapath::{Action, Masked, PortNo, Refusal, Set};
use flow::Match;
use flow::extract::FRAG_ANY;
use std::net::IpAddr;

/// IP protocols.
const ICMP: u8 = 1;
const IGMP: u8 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Edits of one filter, at most: four bytes each.
const MOST_EDITS: usize = 32;
const IPV4: u16 = 0x0800;

struct Encoder<'e> {
    switch: &'e dyn Switch,
    matching: &'e Match,
    acts: Vec<Act>,
    /// Edits that no action has so far.
    edits: Vec<Edit>,
    /// How many edits actions have.
    edited: usize,
}

pub fn encode(
    actions: &[Action],
    matching: &Match,
    switch: &dyn Switch,
) -> Result<Vec<Act>, Refused> {
    let mut encoder = Encoder { switch, matching, acts: Vec::new(), edits: Vec::new(), edited: 0 };
    let in_port = PortNo(matching.key().in_port.get());
    if switch.tunnel(in_port).is_some() {
        encoder.acts.push(Act::ReleaseTunnel);
    }
    let mut rest = actions;
    loop {
        rest = match rest {
            [] => break,
            [Action::TunnelPush { header, tunnel_port, .. }, Action::Output(port)] => {
                encoder.send_by_tunnel(header, *tunnel_port, *port, true)?;
                break;
            }
            [action, rest @ ..] => {
                encoder.action(action, rest.is_empty())?;
                rest
            }
        };
    }
    encoder.finish_edits()?;
    match encoder.acts.last() {
        Some(Act::Drop | Act::Goto(_) | Act::Send { last: true, .. }) => {}
        // Nothing more happens to the packet.
        _ => encoder.acts.push(Act::Drop),
    }
    Ok(encoder.acts)
}

impl Encoder<'_> {
    fn action(&mut self, action: &Action, last: bool) -> Result<(), Refused> {
        if let Action::Set(set) = action {
            return self.set(set);
        }
        self.finish_edits()?;
        match action {
            Action::Output(port) => self.output(*port, last),
            Action::LbOutput(_) => Err(Refused {
                refusal: Refusal::Bond,
                words: "TC does not choose the member of a bond",
            }),
            Action::Drop(_) => {
                self.acts.push(Act::Drop);
                Ok(())
            }
            Action::Recirc(id) if last => {
                let chain = self.switch.chain(*id).filter(|chain| *chain <= LAST_CHAIN);
                let chain =
                    chain.ok_or_else(|| no_action("there is no chain for this recirculation"))?;
                self.acts.push(Act::Goto(chain));
                Ok(())
            }
            Action::Recirc(_) => Err(no_action("TC looks a packet up again at the end only")),
            Action::PushVlan { tpid, tci } => {
                let (vid, priority) = (tci & 0xfff, (tci >> 13) as u8);
                self.acts.push(Act::PushVlan { tpid: *tpid, vid, priority });
                Ok(())
            }
            Action::PopVlan => {
                self.acts.push(Act::PopVlan);
                Ok(())
            }
            Action::PushMpls { lse, ethertype } => {
                self.acts.push(Act::PushMpls { ethertype: *ethertype, entry: *lse });
                Ok(())
            }
            Action::PopMpls { ethertype } => {
                self.acts.push(Act::PopMpls { ethertype: *ethertype });
                Ok(())
            }
            Action::Meter(id) => {
                let policer = self.switch.policer(*id);
                let policer = policer.ok_or_else(|| no_action("the meter has no policer in TC"))?;
                self.acts.push(Act::Police(policer));
                Ok(())
            }
            Action::Ct(request) => self.ct(request),
            Action::CtClear => {
                self.needs_kernel_tracking()?;
                self.acts.push(Act::ClearCt);
                Ok(())
            }
            Action::Userspace(_) => Err(Refused {
                refusal: Refusal::NeedsUserspace,
                words: "the packets go to the daemon",
            }),
            Action::Trunc(_) => Err(no_action("TC does not cut packets")),
            Action::Hash { .. } => Err(no_action("TC computes no dp_hash")),
            Action::Sample { .. } => Err(no_action("TC runs no actions on samples")),
            // As translation sends by a tunnel when more follows.
            Action::Clone(actions) => match &actions[..] {
                [Action::TunnelPush { header, tunnel_port, .. }, Action::Output(port)] => {
                    self.send_by_tunnel(header, *tunnel_port, *port, last)
                }
                _ => Err(no_action("TC runs no actions on copies")),
            },
            Action::CheckPktLen { .. } => Err(no_action("check_pkt_len is not encoded for TC")),
            Action::TunnelPush { .. } => {
                Err(no_action("TC sends by a tunnel at once, past all further actions"))
            }
            Action::TunnelPop(_) => {
                Err(no_action("a card pops by the filters of the flows in the tunnel"))
            }
            Action::SetTunnel(_) => {
                Err(no_action("TC sets the fields of a tunnel with its headers"))
            }
            Action::PushEth { .. }
            | Action::PopEth
            | Action::AddMpls { .. }
            | Action::PushNsh(_)
            | Action::PopNsh => Err(no_action("TC's packets have an Ethernet header")),
            Action::Set(_) => Ok(()),
        }
    }

    fn output(&mut self, port: PortNo, last: bool) -> Result<(), Refused> {
        let target = self.switch.target(port).ok_or(Refused {
            refusal: Refusal::PortNotHere,
            words: "a port has no device that TC can send to",
        })?;
        let (ifindex, direction) = match target {
            Target::Device(ifindex) => (ifindex, Direction::Egress),
            Target::Host(ifindex) => {
                // Packets that came for another machine's address would be discarded.
                self.acts.push(Act::ToHost);
                (ifindex, Direction::Ingress)
            }
        };
        self.acts.push(Act::Send { ifindex, direction, last });
        Ok(())
    }

    /// Sends a packet, or a copy, by a tunnel whose outer packets leave by `underlay`.
    fn send_by_tunnel(
        &mut self,
        header: &tunnel::Header,
        port: PortNo,
        underlay: PortNo,
        last: bool,
    ) -> Result<(), Refused> {
        self.finish_edits()?;
        let device = self.switch.tunnel(port).ok_or(Refused {
            refusal: Refusal::PortNotHere,
            words: "the kernel has no device for this tunnel",
        })?;
        if !self.switch.is_underlay(underlay) {
            return Err(no_action("a card sends outer packets by a device of the host"));
        }
        let key = super::tunnel::encode(header)?;
        self.acts.push(Act::SetTunnel(Box::new(key)));
        let (ifindex, direction) = (device.ifindex, Direction::Egress);
        self.acts.push(Act::Send { ifindex, direction, last });
        Ok(())
    }

    fn needs_kernel_tracking(&self) -> Result<(), Refused> {
        if self.switch.tracks_by_kernel() {
            return Ok(());
        }
        let words = "act_ct has the kernel's table of connections";
        Err(Refused { refusal: Refusal::CtTable, words })
    }

    fn ct(&mut self, request: &Request) -> Result<(), Refused> {
        self.needs_kernel_tracking()?;
        if request.helper.is_some() {
            let words = "act_ct has no helpers before Linux 6.3";
            return Err(Refused { refusal: Refusal::CtHelper, words });
        }
        if request.policy != 0 {
            return Err(no_action("act_ct has no timeout policies"));
        }
        let nat = match request.nat {
            None => None,
            Some(conntrack::Nat::Existing) => Some(Nat::default()),
            Some(conntrack::Nat::Range(range)) => Some(translation(&range)?),
        };
        let label = |label: u128| label.to_le_bytes();
        let (value, mask) = request.label.unwrap_or_default();
        self.acts.push(Act::Ct(Box::new(Ct {
            commit: request.commit != Commit::No,
            force: request.commit == Commit::Force,
            zone: request.zone,
            mark: request.mark.unwrap_or_default(),
            label: (label(value), label(mask)),
            nat,
        })));
        Ok(())
    }

    fn set(&mut self, set: &Set) -> Result<(), Refused> {
        match set {
            Set::Ethernet { src, dst } => {
                self.edit(Layer::Ethernet, 0, &dst.value, &dst.mask);
                self.edit(Layer::Ethernet, 6, &src.value, &src.mask);
            }
            Set::Ipv4 { src, dst, tos, ttl } => {
                self.edit(Layer::Ipv4, 1, &[tos.value], &[tos.mask]);
                self.edit(Layer::Ipv4, 8, &[ttl.value], &[ttl.mask]);
                self.edit(Layer::Ipv4, 12, &src.value, &src.mask);
                self.edit(Layer::Ipv4, 16, &dst.value, &dst.mask);
            }
            Set::Ipv6 { src, dst, label, tclass, hlimit } => {
                if label.mask != 0 {
                    return Err(no_action("TC does not set flow labels"));
                }
                // Four bits of version, eight of the class, 20 of the label.
                let word = |class: u8| (u32::from(class) << 20).to_be_bytes();
                self.edit(Layer::Ipv6, 0, &word(tclass.value), &word(tclass.mask));
                self.edit(Layer::Ipv6, 7, &[hlimit.value], &[hlimit.mask]);
                self.edit(Layer::Ipv6, 8, &src.value, &src.mask);
                self.edit(Layer::Ipv6, 24, &dst.value, &dst.mask);
            }
            Set::Tcp { src, dst } => self.ports(Layer::Tcp, src, dst),
            Set::Udp { src, dst } => self.ports(Layer::Udp, src, dst),
            Set::Sctp { .. } => return Err(no_action("TC does not compute the checksum of SCTP")),
            Set::Icmp { .. } => return Err(no_action("TC does not set type and code of ICMP")),
            Set::Arp { .. } => return Err(no_action("TC does not set fields of ARP")),
            Set::Nsh { .. } => return Err(no_action("TC does not set fields of NSH")),
            Set::Nd { .. } | Set::NdExtensions { .. } => {
                return Err(no_action("TC does not set fields of neighbour messages"));
            }
            Set::Mpls(entry) => {
                if entry.mask != u32::MAX {
                    return Err(no_action("TC sets MPLS entries whole"));
                }
                self.finish_edits()?;
                self.acts.push(Act::SetMpls(entry.value));
            }
            Set::Priority(_) => return Err(no_action("a card's packets have no priority")),
            Set::Mark(_) => return Err(no_action("a card's packets have no mark")),
        }
        Ok(())
    }

    fn ports(&mut self, layer: Layer, src: &Masked<u16>, dst: &Masked<u16>) {
        self.edit(layer, 0, &src.value.to_be_bytes(), &src.mask.to_be_bytes());
        self.edit(layer, 2, &dst.value.to_be_bytes(), &dst.mask.to_be_bytes());
    }

    /// Adds edits for bytes of a header. Those of the same four bytes become one.
    fn edit(&mut self, layer: Layer, offset: u32, value: &[u8], mask: &[u8]) {
        for (at, (value, mask)) in (offset..).zip(value.iter().zip(mask)) {
            if *mask == 0 {
                continue;
            }
            let word = at & !3;
            let is_there = |edit: &Edit| (edit.layer, edit.offset) == (layer, word);
            let place = self.edits.iter().position(is_there).unwrap_or_else(|| {
                let none = [0; 4];
                self.edits.push(Edit { layer, offset: word, value: none, mask: none });
                self.edits.len() - 1
            });
            let Some(edit) = self.edits.get_mut(place) else { continue };
            let byte = (at - word) as usize;
            if let (Some(v), Some(m)) = (edit.value.get_mut(byte), edit.mask.get_mut(byte)) {
                *v = *v & !mask | value & mask;
                *m |= mask;
            }
        }
    }

    /// Ends a run of edits with an action for them, and one for the checksums that they change.
    fn finish_edits(&mut self) -> Result<(), Refused> {
        let edits = std::mem::take(&mut self.edits);
        if edits.is_empty() {
            return Ok(());
        }
        self.edited += edits.len();
        if self.edited > MOST_EDITS {
            return Err(no_action("TC edits 128 bytes at most"));
        }
        let flags = self.checksums(&edits)?;
        self.acts.push(Act::Edit(edits));
        if flags != 0 {
            self.acts.push(Act::Checksum(flags));
        }
        Ok(())
    }

    /// The checksums that edits make wrong. `act_csum` computes that of a whole packet, by its
    /// protocol, so the flow must match that.
    fn checksums(&self, edits: &[Edit]) -> Result<u32, Refused> {
        let (key, mask) = (self.matching.key(), self.matching.mask());
        let of_ip = edits.iter().any(|edit| edit.layer != Layer::Ethernet);
        if !of_ip {
            return Ok(0);
        }
        if mask.0.dl_type.get() != 0xffff {
            return Err(no_action("the flow does not say which header is edited"));
        }
        let is_v4 = key.dl_type.get() == IPV4;
        let mut flags = 0;
        if is_v4 && edits.iter().any(|edit| edit.layer == Layer::Ipv4) {
            flags |= checksum::IPV4;
        }
        // The pseudo header has the addresses and no other field.
        let of_addresses = |edit: &Edit| match edit.layer {
            Layer::Ipv4 => edit.offset >= 12,
            Layer::Ipv6 => edit.offset >= 8,
            Layer::Tcp | Layer::Udp => true,
            Layer::Ethernet => false,
        };
        if !edits.iter().any(of_addresses) {
            return Ok(flags);
        }
        if mask.0.nw_proto != 0xff {
            return Err(no_action(
                "a checksum depends on the protocol, which the flow does not match",
            ));
        }
        let is_pseudo = |edit: &Edit| !matches!(edit.layer, Layer::Tcp | Layer::Udp);
        let is_addressed = edits.iter().any(|edit| of_addresses(edit) && is_pseudo(edit));
        if is_addressed && self.switch.runs_in_kernel() && matches!(key.nw_proto, TCP | UDP) {
            return Err(no_action(
                "act_csum leaves the checksums of packets that are yet to be segmented",
            ));
        }
        if mask.0.nw_frag & FRAG_ANY == 0 || key.nw_frag & FRAG_ANY != 0 {
            return Err(no_action("TC cannot compute the checksum of a fragment"));
        }
        flags |= match key.nw_proto {
            TCP => checksum::TCP,
            UDP => checksum::UDP,
            // Its checksum covers no addresses in IPv4.
            ICMP | IGMP if is_v4 => 0,
            ICMPV6 if !is_v4 => checksum::ICMP,
            _ => return Err(no_action("TC does not know the protocol's checksum")),
        };
        Ok(flags)
    }
}

/// The translation of a range.
fn translation(range: &NatRange) -> Result<Nat, Refused> {
    let mut nat = Nat { source: Some(range.manip == Manip::Src), ..Nat::default() };
    if range.persistent {
        return Err(no_action("act_ct has no persistent translation"));
    }
    match range.addresses {
        None => {}
        Some((IpAddr::V4(first), IpAddr::V4(last))) => {
            nat.ipv4 = Some((first.octets(), last.octets()));
        }
        Some((IpAddr::V6(first), IpAddr::V6(last))) => {
            nat.ipv6 = Some((first.octets(), last.octets()));
        }
        Some(_) => return Err(no_action("a range of two address families")),
    }
    nat.ports = range.ports;
    Ok(nat)
}
