// SPDX-License-Identifier: Apache-2.0
//! Datapath actions for the pipeline's changes since the last output.
//!
//! OpenFlow actions change only `Context::key`. Before a packet leaves (or is copied, or
//! recirculated), `Context::commit` compares this key with `Context::base`, the packet as the
//! datapath has it, and emits the actions that turn the base into the key. Sets name only fields
//! that differ, with the mask bits that are exact anyway: those are constant over the megaflow.
//! `Changes::set` is the table of the headers and their fields. It names each field once; a field
//! that a variant of [`Set`] has and the table has not does not compile.
//!
//! Order: the outermost header (`encap.rs`); Ethernet addresses; MPLS when the stack goes away, so that
//! L3 is there; NSH; L3; L4; MPLS; VLAN; metadata. After a stack that was popped, or below one that is there, L3 and L4 are unknown
//! and not compared.

use super::context::Context;
use super::finish::is_mpls;
use super::mpls::{MPLS_BOS, mpls_complete, mpls_entries, pop_mpls, push_mpls};
use super::tunnel::ECN;
use datapath::{Action as DpAction, Masked, Set};
use flow::field::Prerequisite;
use flow::{Key, VLAN_CFI, Vlan};
use packet::{NshHeader, ethertype, ip_proto};
use zerocopy::network_endian::{U16, U32};
use zerocopy::transmute_mut;

/// A header, or metadata of the packet, that one set action writes. Label stacks and VLAN headers
/// are not among them: their entries come and go.
#[derive(Clone, Copy, Debug)]
enum Header {
    Ethernet,
    Ipv4,
    Ipv6,
    Arp,
    Tcp,
    Udp,
    Sctp,
    Icmpv4,
    Icmpv6,
    NdExtensions,
    Nd,
    Nsh,
    Priority,
    Mark,
}

/// The place of a field in a key, a base or a mask.
type Place<T> = fn(&mut Key) -> &mut T;

/// Collects the fields of a header that changed since the last commit.
///
/// Each method handles one field. If key and base differ there, the method makes the differing bits
/// exact, copies the field to the base, and returns its exact bits. Otherwise it returns an empty
/// mask.
struct Changes<'a> {
    /// Stays as it is; it is `&mut` because a [`Place`] takes that.
    key: &'a mut Key,
    base: &'a mut Key,
    mask: &'a mut Key,
    /// A field differed.
    any: bool,
}

impl Changes<'_> {
    /// The table of headers: the place in the key of each field that a set action has.
    fn set(&mut self, header: Header) -> Set {
        match header {
            Header::Ethernet => Set::Ethernet {
                src: self.bytes(|k| &mut k.dl_src),
                dst: self.bytes(|k| &mut k.dl_dst),
            },
            Header::Ipv4 => Set::Ipv4 {
                src: self.address(|k| &mut k.nw_src),
                dst: self.address(|k| &mut k.nw_dst),
                tos: self.byte(|k| &mut k.nw_tos),
                ttl: self.byte(|k| &mut k.nw_ttl),
            },
            Header::Ipv6 => Set::Ipv6 {
                src: self.bytes(|k| &mut k.ipv6_src),
                dst: self.bytes(|k| &mut k.ipv6_dst),
                label: self.word(|k| &mut k.ipv6_label),
                tclass: self.byte(|k| &mut k.nw_tos),
                hlimit: self.byte(|k| &mut k.nw_ttl),
            },
            Header::Arp => Set::Arp {
                op: self.opcode(|k| &mut k.nw_proto),
                spa: self.address(|k| &mut k.nw_src),
                tpa: self.address(|k| &mut k.nw_dst),
                sha: self.bytes(|k| &mut k.arp_sha),
                tha: self.bytes(|k| &mut k.arp_tha),
            },
            Header::Tcp => {
                Set::Tcp { src: self.half(|k| &mut k.tp_src), dst: self.half(|k| &mut k.tp_dst) }
            }
            Header::Udp => {
                Set::Udp { src: self.half(|k| &mut k.tp_src), dst: self.half(|k| &mut k.tp_dst) }
            }
            Header::Sctp => {
                Set::Sctp { src: self.half(|k| &mut k.tp_src), dst: self.half(|k| &mut k.tp_dst) }
            }
            Header::Icmpv4 | Header::Icmpv6 => {
                let [kind, code] = self.low_bytes([|k| &mut k.tp_src, |k| &mut k.tp_dst]);
                Set::Icmp { kind, code, v6: matches!(header, Header::Icmpv6) }
            }
            Header::NdExtensions => Set::NdExtensions {
                reserved: self.word(|k| &mut k.nd_reserved),
                options_type: self.byte(|k| &mut k.nd_options_type),
            },
            Header::Nd => Set::Nd {
                target: self.bytes(|k| &mut k.nd_target),
                sll: self.bytes(|k| &mut k.arp_sha),
                tll: self.bytes(|k| &mut k.arp_tha),
            },
            Header::Nsh => self.nsh(),
            Header::Priority => Set::Priority(self.whole_word(|k| &mut k.skb_priority)),
            Header::Mark => Set::Mark(self.word(|k| &mut k.pkt_mark)),
        }
    }

    /// As in OVS, a set of one field sets all of the header's fields that are exact.
    fn nsh(&mut self) -> Set {
        self.byte(|k| &mut k.nsh.flags);
        self.byte(|k| &mut k.nsh.ttl);
        self.word(|k| &mut k.nsh.path);
        let has_contexts = self.key.nsh.mdtype == NshHeader::MD_TYPE_1;
        if has_contexts {
            self.word(|k| &mut k.nsh.context[0]);
            self.word(|k| &mut k.nsh.context[1]);
            self.word(|k| &mut k.nsh.context[2]);
            self.word(|k| &mut k.nsh.context[3]);
        }
        let (key, mask) = (&self.key.nsh, &self.mask.nsh);
        let byte = |key: u8, mask: u8| Masked { value: key & mask, mask };
        let word = |key: U32, mask: U32| Masked { value: (key & mask).get(), mask: mask.get() };
        let mut context = [Masked::default(); 4];
        if has_contexts {
            let words = key.context.iter().zip(mask.context);
            context.iter_mut().zip(words).for_each(|(to, (key, mask))| *to = word(*key, mask));
        }
        Set::Nsh {
            flags: byte(key.flags, mask.flags),
            ttl: byte(key.ttl, mask.ttl),
            path: word(key.path, mask.path),
            context,
        }
    }

    fn bytes<const N: usize>(
        &mut self,
        place: impl Fn(&mut Key) -> &mut [u8; N],
    ) -> Masked<[u8; N]> {
        let mut value = *place(self.key);
        let (base, mask) = (place(self.base), place(self.mask));
        if value == *base {
            return Masked { value: [0; N], mask: [0; N] };
        }
        self.any = true;
        for ((v, b), m) in value.iter_mut().zip(base).zip(mask.iter_mut()) {
            *m |= *v ^ *b;
            *b = *v;
            *v &= *m;
        }
        Masked { value, mask: *mask }
    }

    fn byte(&mut self, place: Place<u8>) -> Masked<u8> {
        let changed = self.bytes::<1>(|key| std::array::from_mut(place(key)));
        let ([value], [mask]) = (changed.value, changed.mask);
        Masked { value, mask }
    }

    fn half(&mut self, place: Place<U16>) -> Masked<u16> {
        let Masked { value, mask } = self.bytes::<2>(|key| transmute_mut!(place(key)));
        Masked { value: u16::from_be_bytes(value), mask: u16::from_be_bytes(mask) }
    }

    fn word(&mut self, place: Place<U32>) -> Masked<u32> {
        let Masked { value, mask } = self.address(place);
        Masked { value: u32::from_be_bytes(value), mask: u32::from_be_bytes(mask) }
    }

    fn address(&mut self, place: Place<U32>) -> Masked<[u8; 4]> {
        self.bytes::<4>(|key| transmute_mut!(place(key)))
    }

    /// A field that is set as a whole: every bit becomes exact.
    fn whole_word(&mut self, place: Place<U32>) -> u32 {
        if self.word(place).mask != 0 {
            place(self.mask).set(u32::MAX);
        }
        place(self.key).get()
    }

    /// The opcode of ARP, set as a whole: a key has its low 8 bits, and the upper ones are zero.
    fn opcode(&mut self, place: Place<u8>) -> Masked<u16> {
        match self.byte(place).mask {
            0 => Masked::default(),
            _ => Masked { value: u16::from(*place(self.key)), mask: u16::MAX },
        }
    }

    /// The low bytes of two fields of 16 bits, where type and code of ICMP are. As in OVS, both are
    /// set as a whole when one of them differs.
    fn low_bytes(&mut self, places: [Place<U16>; 2]) -> [Masked<u8>; 2] {
        if places.map(|place| self.half(place)) == [Masked::default(); 2] {
            return [Masked::default(); 2];
        }
        places.map(|place| {
            let mask = place(self.mask);
            mask.set(mask.get() | u16::from(u8::MAX));
            let [_, value] = place(self.key).get().to_be_bytes();
            Masked { value, mask: u8::MAX }
        })
    }
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
        if self.key == self.base && self.pending.is_none() {
            return;
        }
        self.commit_packet_type();
        if self.key.packet_type.get() == 0 {
            self.commit_header(Header::Ethernet);
        }
        let early = is_mpls(&self.base) && !is_mpls(&self.key);
        if early {
            self.commit_mpls();
        }
        if self.key.dl_type == self.base.dl_type && self.key.dl_type.get() == ethertype::NSH {
            self.commit_header(Header::Nsh);
        }
        if !is_mpls(&self.key) && !self.was_mpls && self.key.dl_type == self.base.dl_type {
            self.commit_network();
            self.commit_transport();
        }
        if !early {
            self.commit_mpls();
        }
        self.commit_vlans();
        self.commit_header(Header::Priority);
        self.commit_header(Header::Mark);
    }

    /// Emits a set of those fields of `header` that changed. Returns false when none did.
    fn commit_header(&mut self, header: Header) -> bool {
        let (key, base, mask) = (&mut self.key, &mut self.base, &mut self.mask.0);
        let mut changes = Changes { key, base, mask, any: false };
        let set = changes.set(header);
        let any = changes.any;
        if any {
            self.emit(DpAction::Set(set));
        }
        any
    }

    /// Like [`Context::commit_header`], for a header that depends on the IP protocol: the protocol
    /// becomes exact.
    fn commit_of_protocol(&mut self, header: Header) {
        if self.commit_header(header) {
            self.mask.0.nw_proto = u8::MAX;
        }
    }

    fn commit_network(&mut self) {
        let header = match self.key.dl_type.get() {
            ethertype::IPV4 => Header::Ipv4,
            ethertype::IPV6 => Header::Ipv6,
            ethertype::ARP | ethertype::RARP => Header::Arp,
            _ => return,
        };
        if self.has_only_congestion_mark() {
            self.commit_header(header);
            return;
        }
        if self.key.nw_proto != 0 {
            return self.commit_of_protocol(header);
        }
        // IP and ARP headers that are cut off or impossible have no protocol (no operation) in the
        // key. As in OVS, such a header leaves as it came, and only this decision is recorded.
        let (key, mut base, mut mask) = (&mut self.key, self.base, self.mask.0);
        let mut changes = Changes { key, base: &mut base, mask: &mut mask, any: false };
        changes.set(header);
        if changes.any {
            self.mask.0.nw_proto = u8::MAX;
        }
    }

    /// Returns true when the mark of an outer header is all that the packet's IP header gets. The mark
    /// is set whatever the IP protocol is, so that the protocol stays a wildcard, as in Open
    /// vSwitch. Of a header that is cut off, the datapath drops the packet.
    fn has_only_congestion_mark(&self) -> bool {
        let (key, base) = (&self.key, &self.base);
        self.is_congestion_marked
            && (key.nw_tos ^ base.nw_tos) & !ECN == 0
            && (key.nw_src, key.nw_dst, key.nw_ttl) == (base.nw_src, base.nw_dst, base.nw_ttl)
            && (key.ipv6_src, key.ipv6_dst) == (base.ipv6_src, base.ipv6_dst)
            && key.ipv6_label == base.ipv6_label
    }

    fn commit_transport(&mut self) {
        let v6 = self.key.dl_type.get() == ethertype::IPV6;
        if !v6 && self.key.dl_type.get() != ethertype::IPV4 {
            return;
        }
        // The fields of a neighbour message are set while the packet still is one. A packet that
        // becomes a neighbour message does so first.
        let was_neighbour = v6 && Prerequisite::Nd.holds(&self.base);
        if was_neighbour {
            self.commit_neighbour();
        }
        match self.key.nw_proto {
            ip_proto::TCP => self.commit_of_protocol(Header::Tcp),
            ip_proto::UDP => self.commit_of_protocol(Header::Udp),
            ip_proto::SCTP => self.commit_of_protocol(Header::Sctp),
            ip_proto::ICMP if !v6 => self.commit_of_protocol(Header::Icmpv4),
            ip_proto::ICMPV6 if v6 => self.commit_of_protocol(Header::Icmpv6),
            // No action writes ports of other protocols.
            _ => {}
        }
        if v6 && !was_neighbour {
            self.commit_neighbour();
        }
    }

    /// The fields of neighbour messages; the type of an option before its address.
    fn commit_neighbour(&mut self) {
        if self.key.nw_proto == ip_proto::ICMPV6 {
            self.commit_of_protocol(Header::NdExtensions);
            self.commit_of_protocol(Header::Nd);
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

    pub(super) fn commit_vlans(&mut self) {
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
}
