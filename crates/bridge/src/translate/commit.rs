// SPDX-License-Identifier: Apache-2.0
//! Datapath actions for the pipeline's changes since the last output.
//!
//! OpenFlow actions change only `Context::key`. Before a packet leaves (or is copied, or
//! recirculated), `Context::commit` compares this key with `Context::base`, the packet as the
//! datapath has it, and emits the actions that turn the base into the key. Sets name only fields
//! that differ, with the mask bits that are exact anyway: those are constant over the megaflow.
//!
//! Order: Ethernet addresses; MPLS when the stack goes away, so that L3 is there; L3; L4; MPLS;
//! VLAN; metadata. After a stack that was popped, or below one that is there, L3 and L4 are unknown
//! and not compared.

use super::context::Context;
use super::finish::is_mpls;
use super::mpls::{MPLS_BOS, mpls_complete, mpls_entries, pop_mpls, push_mpls};
use datapath::{Action as DpAction, Masked, Set};
use flow::field::Prerequisite;
use flow::{Key, VLAN_CFI, Vlan};
use packet::{ethertype, ip_proto};
use zerocopy::network_endian::{U16, U32};

fn bytes<const N: usize>(key: &[u8; N], base: &[u8; N], mask: &mut [u8; N]) -> Masked<[u8; N]> {
    let mut out = Masked { value: [0; N], mask: [0; N] };
    if key != base {
        for ((o, m), ((k, b), w)) in
            out.value.iter_mut().zip(&mut out.mask).zip(key.iter().zip(base).zip(mask.iter_mut()))
        {
            *w |= k ^ b;
            *m = *w;
            *o = k & *w;
        }
    }
    out
}

fn byte(key: u8, base: u8, mask: &mut u8) -> Masked<u8> {
    let mut m = [*mask];
    let out = bytes(&[key], &[base], &mut m);
    [*mask] = m;
    let ([value], [mask]) = (out.value, out.mask);
    Masked { value, mask }
}

fn half(key: U16, base: U16, mask: &mut U16) -> Masked<u16> {
    if key == base {
        return Masked::default();
    }
    mask.set(mask.get() | key.get() ^ base.get());
    Masked { value: key.get() & mask.get(), mask: mask.get() }
}

fn word(key: U32, base: U32, mask: &mut U32) -> Masked<u32> {
    if key == base {
        return Masked::default();
    }
    mask.set(mask.get() | key.get() ^ base.get());
    Masked { value: key.get() & mask.get(), mask: mask.get() }
}

fn address(key: U32, base: U32, mask: &mut U32) -> Masked<[u8; 4]> {
    let m = word(key, base, mask);
    Masked { value: m.value.to_be_bytes(), mask: m.mask.to_be_bytes() }
}

/// VLAN headers in the key.
pub(super) fn vlan_count(key: &Key) -> usize {
    key.vlans.iter().take_while(|v| v.tci.get() & VLAN_CFI != 0).count()
}

impl Context<'_> {
    /// Number of MPLS entries that `key` (of the packet as it is, or as the datapath has it) says
    /// there are. The last may have been taken off and the type still be MPLS: then there is none,
    /// or what fields were set of since, as in OVS.
    pub(super) fn mpls_depth(&self, key: &Key) -> usize {
        if !is_mpls(key) || mpls_complete(key) || self.is_mpls_endless {
            return mpls_entries(key);
        }
        key.mpls.iter().filter(|lse| lse.get() != 0).count()
    }

    /// Emits the actions that make the datapath's packet equal to the key.
    pub(super) fn commit(&mut self) {
        if self.key == self.base {
            return;
        }
        self.commit_ethernet();
        let early = is_mpls(&self.base) && !is_mpls(&self.key);
        if early {
            self.commit_mpls();
        }
        if !is_mpls(&self.key) && !self.was_mpls && self.key.dl_type == self.base.dl_type {
            self.commit_network();
            self.commit_transport();
        }
        if !early {
            self.commit_mpls();
        }
        self.commit_vlans();
        self.commit_metadata();
    }

    fn commit_ethernet(&mut self) {
        let (k, b, m) = (&self.key, &mut self.base, &mut self.mask.0);
        if (k.dl_src, k.dl_dst) == (b.dl_src, b.dl_dst) {
            return;
        }
        let set = Set::Ethernet {
            src: bytes(&k.dl_src, &b.dl_src, &mut m.dl_src),
            dst: bytes(&k.dl_dst, &b.dl_dst, &mut m.dl_dst),
        };
        (b.dl_src, b.dl_dst) = (k.dl_src, k.dl_dst);
        self.emit(DpAction::Set(set));
    }

    fn commit_network(&mut self) {
        let (k, b, m) = (&self.key, &mut self.base, &mut self.mask.0);
        // IP and ARP headers that are cut off or impossible have no protocol (no operation) in the
        // key. As in OVS, what has none goes on as it came.
        let is_whole = |m: &mut Key| {
            m.nw_proto = u8::MAX;
            k.nw_proto != 0
        };
        let set = match k.dl_type.get() {
            ethertype::IPV4 => {
                if (k.nw_src, k.nw_dst, k.nw_tos, k.nw_ttl)
                    == (b.nw_src, b.nw_dst, b.nw_tos, b.nw_ttl)
                    || !is_whole(m)
                {
                    return;
                }
                Set::Ipv4 {
                    src: address(k.nw_src, b.nw_src, &mut m.nw_src),
                    dst: address(k.nw_dst, b.nw_dst, &mut m.nw_dst),
                    tos: byte(k.nw_tos, b.nw_tos, &mut m.nw_tos),
                    ttl: byte(k.nw_ttl, b.nw_ttl, &mut m.nw_ttl),
                }
            }
            ethertype::IPV6 => {
                if (k.ipv6_src, k.ipv6_dst, k.ipv6_label, k.nw_tos, k.nw_ttl)
                    == (b.ipv6_src, b.ipv6_dst, b.ipv6_label, b.nw_tos, b.nw_ttl)
                    || !is_whole(m)
                {
                    return;
                }
                Set::Ipv6 {
                    src: bytes(&k.ipv6_src, &b.ipv6_src, &mut m.ipv6_src),
                    dst: bytes(&k.ipv6_dst, &b.ipv6_dst, &mut m.ipv6_dst),
                    label: word(k.ipv6_label, b.ipv6_label, &mut m.ipv6_label),
                    tclass: byte(k.nw_tos, b.nw_tos, &mut m.nw_tos),
                    hlimit: byte(k.nw_ttl, b.nw_ttl, &mut m.nw_ttl),
                }
            }
            ethertype::ARP | ethertype::RARP => {
                if (k.nw_proto, k.nw_src, k.nw_dst, k.arp_sha, k.arp_tha)
                    == (b.nw_proto, b.nw_src, b.nw_dst, b.arp_sha, b.arp_tha)
                    || !is_whole(m)
                {
                    return;
                }
                // The key has the low 8 bits of the opcode; the upper ones are zero.
                let op = byte(k.nw_proto, b.nw_proto, &mut m.nw_proto);
                let op = match op.mask {
                    0 => Masked::default(),
                    _ => Masked { value: u16::from(k.nw_proto), mask: u16::MAX },
                };
                Set::Arp {
                    op,
                    spa: address(k.nw_src, b.nw_src, &mut m.nw_src),
                    tpa: address(k.nw_dst, b.nw_dst, &mut m.nw_dst),
                    sha: bytes(&k.arp_sha, &b.arp_sha, &mut m.arp_sha),
                    tha: bytes(&k.arp_tha, &b.arp_tha, &mut m.arp_tha),
                }
            }
            _ => return,
        };
        b.nw_src = k.nw_src;
        b.nw_dst = k.nw_dst;
        b.nw_tos = k.nw_tos;
        b.nw_ttl = k.nw_ttl;
        b.ipv6_src = k.ipv6_src;
        b.ipv6_dst = k.ipv6_dst;
        b.ipv6_label = k.ipv6_label;
        if !matches!(k.dl_type.get(), ethertype::IPV4 | ethertype::IPV6) {
            b.nw_proto = k.nw_proto;
            b.arp_sha = k.arp_sha;
            b.arp_tha = k.arp_tha;
        }
        self.emit(DpAction::Set(set));
    }

    fn commit_transport(&mut self) {
        let (k, b) = (&self.key, &self.base);
        let v6 = k.dl_type.get() == ethertype::IPV6;
        if !v6 && k.dl_type.get() != ethertype::IPV4 {
            return;
        }
        // A message that is a neighbour's gets those fields while it still is one; another
        // becomes one first.
        let was_neighbour = v6 && Prerequisite::Nd.holds(b);
        if was_neighbour {
            self.commit_neighbour();
        }
        let (k, b, m) = (&self.key, &mut self.base, &mut self.mask.0);
        if (k.tp_src, k.tp_dst) != (b.tp_src, b.tp_dst) {
            let proto = k.nw_proto;
            m.nw_proto = u8::MAX;
            let src = half(k.tp_src, b.tp_src, &mut m.tp_src);
            let dst = half(k.tp_dst, b.tp_dst, &mut m.tp_dst);
            // Type and code are set together, as by OVS.
            let whole = |k: U16, m: &mut U16| {
                m.set(m.get() | 0xff);
                let [_, value] = k.get().to_be_bytes();
                Masked { value, mask: u8::MAX }
            };
            let mut icmp = |v6| Set::Icmp {
                kind: whole(k.tp_src, &mut m.tp_src),
                code: whole(k.tp_dst, &mut m.tp_dst),
                v6,
            };
            let set = match proto {
                ip_proto::TCP => Set::Tcp { src, dst },
                ip_proto::UDP => Set::Udp { src, dst },
                ip_proto::SCTP => Set::Sctp { src, dst },
                ip_proto::ICMP if !v6 => icmp(false),
                ip_proto::ICMPV6 if v6 => icmp(true),
                // No action writes ports of other protocols.
                _ => return,
            };
            (b.tp_src, b.tp_dst) = (k.tp_src, k.tp_dst);
            self.emit(DpAction::Set(set));
        }
        if v6 && !was_neighbour {
            self.commit_neighbour();
        }
    }

    /// The fields of neighbour messages; the type of an option before its address.
    fn commit_neighbour(&mut self) {
        let (k, b, m) = (&self.key, &mut self.base, &mut self.mask.0);
        if k.nw_proto != ip_proto::ICMPV6 {
            return;
        }
        let mut sets = [None, None];
        let [extensions, addresses] = &mut sets;
        if (k.nd_reserved, k.nd_options_type) != (b.nd_reserved, b.nd_options_type) {
            m.nw_proto = u8::MAX;
            *extensions = Some(Set::NdExtensions {
                reserved: word(k.nd_reserved, b.nd_reserved, &mut m.nd_reserved),
                options_type: byte(k.nd_options_type, b.nd_options_type, &mut m.nd_options_type),
            });
            (b.nd_reserved, b.nd_options_type) = (k.nd_reserved, k.nd_options_type);
        }
        if (k.nd_target, k.arp_sha, k.arp_tha) != (b.nd_target, b.arp_sha, b.arp_tha) {
            m.nw_proto = u8::MAX;
            *addresses = Some(Set::Nd {
                target: bytes(&k.nd_target, &b.nd_target, &mut m.nd_target),
                sll: bytes(&k.arp_sha, &b.arp_sha, &mut m.arp_sha),
                tll: bytes(&k.arp_tha, &b.arp_tha, &mut m.arp_tha),
            });
            (b.nd_target, b.arp_sha, b.arp_tha) = (k.nd_target, k.arp_sha, k.arp_tha);
        }
        for set in sets.into_iter().flatten() {
            self.emit(DpAction::Set(set));
        }
    }

    fn commit_mpls(&mut self) {
        let wanted = self.mpls_depth(&self.key);
        let mut have = self.mpls_depth(&self.base);
        if wanted == 0 && have == 0 {
            if is_mpls(&self.base) && !is_mpls(&self.key) {
                self.commit_type();
            }
            return;
        }
        let entry = |key: &Key, i: usize| key.mpls.get(i).map_or(0, |lse| lse.get());
        // Equal entries at the bottom of both stacks stay.
        let mut common = (0..wanted.min(have))
            .take_while(|i| entry(&self.key, wanted - 1 - i) == entry(&self.base, have - 1 - i))
            .count();
        if have == common && wanted == common {
            return;
        }
        // Entries that were compared, or that come back, may be the packet's own.
        if wanted > 0 {
            for m in self.mask.0.mpls.iter_mut().take(self.original_mpls) {
                m.set(u32::MAX);
            }
        }
        while have > common {
            if have - 1 == common && wanted > common {
                let lse = entry(&self.key, wanted - have); // wanted > common == have - 1
                if let Some(top) = self.base.mpls.first_mut() {
                    top.set(lse);
                }
                self.emit(DpAction::Set(Set::Mpls(Masked { value: lse, mask: u32::MAX })));
                common += 1;
            } else {
                // Below the last entry is the key's type, below the others is MPLS.
                let below = match have > 1 && !is_mpls(&self.key) {
                    true => ethertype::MPLS,
                    false => self.key.dl_type.get(),
                };
                self.emit(DpAction::PopMpls { ethertype: below });
                pop_mpls(&mut self.base, below);
                have -= 1;
            }
        }
        while have < wanted {
            let lse = entry(&self.key, wanted - have - 1);
            let ethertype = self.key.dl_type.get();
            self.emit(DpAction::PushMpls { lse, ethertype });
            push_mpls(&mut self.base, lse, ethertype);
            have += 1;
        }
        self.base.dl_type = self.key.dl_type;
        self.base.mpls = self.key.mpls;
    }

    /// Gives a packet its own type again from which the last MPLS entry was taken off as if there
    /// was another below: only an entry that goes again changes a type.
    fn commit_type(&mut self) {
        let ethertype = self.key.dl_type.get();
        self.emit(DpAction::PushMpls { lse: MPLS_BOS, ethertype: self.base.dl_type.get() });
        self.emit(DpAction::PopMpls { ethertype });
        self.base.dl_type = self.key.dl_type;
    }

    fn commit_vlans(&mut self) {
        if self.key.vlans == self.base.vlans {
            return;
        }
        let wanted = vlan_count(&self.key);
        let have = vlan_count(&self.base);
        let header = |key: &Key, i: usize| key.vlans.get(i).copied().unwrap_or_default();
        let common = (0..wanted.min(have))
            .take_while(|i| header(&self.key, wanted - 1 - i) == header(&self.base, have - 1 - i))
            .count();
        // Headers that come back may be the packet's own, from any place; with all of its own
        // still in place, those before them are not.
        let untouched = self.base.vlans == self.original_vlans && have == common;
        let exact = match wanted > common {
            true if untouched => 0,
            true => self.key.vlans.len(),
            false => have - common,
        };
        for m in self.mask.0.vlans.iter_mut().take(exact) {
            *m = Vlan { tpid: U16::new(u16::MAX), tci: U16::new(u16::MAX) };
        }
        for _ in common..have {
            self.emit(DpAction::PopVlan);
        }
        for i in (0..wanted - common).rev() {
            let v = header(&self.key, i);
            self.emit(DpAction::PushVlan { tpid: v.tpid.get(), tci: v.tci.get() });
        }
        self.base.vlans = self.key.vlans;
    }

    fn commit_metadata(&mut self) {
        if self.key.skb_priority != self.base.skb_priority {
            self.mask.0.skb_priority.set(u32::MAX);
            self.base.skb_priority = self.key.skb_priority;
            self.emit(DpAction::Set(Set::Priority(self.key.skb_priority.get())));
        }
        if self.key.pkt_mark != self.base.pkt_mark {
            let mark = word(self.key.pkt_mark, self.base.pkt_mark, &mut self.mask.0.pkt_mark);
            self.base.pkt_mark = self.key.pkt_mark;
            self.emit(DpAction::Set(Set::Mark(mark)));
        }
    }
}
