// SPDX-License-Identifier: Apache-2.0
//! `encap`, `decap` and `dec_nsh_ttl`: headers in front of the whole packet.
//!
//! `encap` and `decap` change the key at once, and leave the header itself to the next commit
//! ([`Pending`]): sets of the new header's fields go into the action that pushes it. The header
//! below a Network Service Header is not in the key, so its packet is looked up again.

use super::TranslationError;
use super::context::{Context, Freeze};
use super::mpls::{MPLS_BOS, MPLS_NULL_V4, MPLS_NULL_V6, mpls_complete, pop_mpls, push_mpls};
use crate::trace::Kind;
use datapath::{Action as DpAction, PushedNsh, nsh::MOST_METADATA};
use flow::{Key, MPLS_LABELS, NAMESPACE_ETHERTYPE, Nsh, STAGE_STARTS, VLAN_CFI};
use openflow::action::{Encap, EncapHeader, EncapProperty};
use packet::{NshHeader, ethertype};
use tunnel::ETHERTYPE_TEB;
use zerocopy::network_endian::U32;

/// Packet type of an Ethernet frame.
const ETHERNET: u32 = 0;
/// Packet type of a packet that begins with a Network Service Header.
const NSH: u32 = bare(ethertype::NSH);
/// TTL of a new header (RFC 8300, 2.2).
const TTL: u8 = 63;
/// Service path 0, service index 255.
const PATH: u32 = 255;

/// Packet type of a packet that begins with a label.
const MPLS: u32 = bare(ethertype::MPLS);
/// The same with the Ethernet type of multicast.
const MPLS_MULTICAST: u32 = bare(ethertype::MPLS_MULTICAST);
/// TTL of a new label, as in OVS: the packet below may be of any type.
const MPLS_TTL_OF_NEW: u8 = 64;

/// Returns the packet type of a packet without an Ethernet header.
const fn bare(ethertype: u16) -> u32 {
    NAMESPACE_ETHERTYPE << 16 | ethertype as u32
}

/// Returns the packet type that a packet without an Ethernet header gets when its outermost label goes
/// and this type follows.
fn below_label(ethertype: u16) -> u32 {
    if ethertype == ETHERTYPE_TEB { ETHERNET } else { bare(ethertype) }
}

/// Returns true for a packet without an Ethernet header whose type is that of MPLS.
pub(super) fn is_bare_mpls(key: &Key) -> bool {
    matches!(key.packet_type.get(), MPLS | MPLS_MULTICAST)
}

/// The change of the outermost header that the next commit makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// The header that the key's packet type names is put on.
    Encap {
        /// Context headers of metadata type 2.
        metadata: Vec<u8>,
    },
    /// The outermost header of the datapath's packet is taken off.
    Decap,
}

impl Context<'_> {
    /// Runs `encap(...)`.
    pub(super) fn encap(&mut self, encap: &Encap) {
        self.commit(); // changes of the inner packet
        match encap.header {
            EncapHeader::Ethernet => self.encap_ethernet(),
            EncapHeader::Nsh => self.encap_nsh(&encap.properties),
            EncapHeader::Mpls => self.encap_mpls(ethertype::MPLS),
            EncapHeader::MplsMulticast => self.encap_mpls(ethertype::MPLS_MULTICAST),
        }
    }

    /// Puts a label in front of the packet: on its stack, if it begins with one.
    fn encap_mpls(&mut self, ethertype: u16) {
        self.needs_feature(self.snapshot.withheld.add_mpls);
        self.mask.0.packet_type.set(u32::MAX);
        self.mask.0.dl_type.set(u16::MAX);
        let on_stack = is_bare_mpls(&self.key);
        let mut stack = [U32::ZERO; MPLS_LABELS];
        if on_stack {
            self.expose_mpls_depth();
            if self.mpls_depth(&self.key) >= MPLS_LABELS {
                return self.too_many_labels("encap MPLS action", "would have");
            }
            self.expose_mpls();
            stack = self.key.mpls;
        }
        let [first, ..] = stack;
        let lse = match on_stack {
            true => first.get() & !MPLS_BOS,
            false => {
                let is_ipv6 = self.key.dl_type.get() == ethertype::IPV6;
                let label = if is_ipv6 { MPLS_NULL_V6 } else { MPLS_NULL_V4 };
                label << 12 | MPLS_BOS | u32::from(MPLS_TTL_OF_NEW)
            }
        };
        let [start, ..] = STAGE_STARTS;
        self.key.words_mut().iter_mut().skip(start).for_each(|word| *word = 0);
        self.key.packet_type.set(bare(ethertype));
        self.key.mpls = stack;
        push_mpls(&mut self.key, lse, ethertype);
        self.was_mpls = false;
        self.pending = Some(Pending::Encap { metadata: Vec::new() });
    }

    fn encap_ethernet(&mut self) {
        self.mask.0.packet_type.set(u32::MAX);
        let packet_type = self.key.packet_type.get();
        if packet_type >> 16 != NAMESPACE_ETHERTYPE {
            self.unsupported_packet(|| {
                "Dropping packet as encap(ethernet) is not supported for packet type ethernet."
                    .to_string()
            });
            return;
        }
        self.key.packet_type.set(ETHERNET);
        (self.key.dl_src, self.key.dl_dst) = ([0; 6], [0; 6]);
        self.key.dl_type.set(packet_type as u16); // the lower half
        self.pending = Some(Pending::Encap { metadata: Vec::new() });
    }

    fn encap_nsh(&mut self, properties: &[EncapProperty]) {
        let (mut mdtype, mut metadata) = (NshHeader::MD_TYPE_1, Vec::new());
        for property in properties {
            match property {
                EncapProperty::MetadataType(given) => mdtype = *given,
                EncapProperty::Tlv { class, kind, value } => {
                    metadata.extend(class.to_be_bytes());
                    metadata.extend([*kind, value.len() as u8]); // at most 255 in a message
                    metadata.extend(value);
                    metadata.resize(metadata.len().next_multiple_of(4), 0);
                }
            }
        }
        // As in OVS, a header of another type has none, and metadata that does not fit is left out.
        if mdtype != NshHeader::MD_TYPE_2 || metadata.len() > MOST_METADATA {
            metadata.clear();
        }
        self.mask.0.packet_type.set(u32::MAX);
        let packet_type = self.key.packet_type.get();
        let (namespace, kind) = (packet_type >> 16, packet_type as u16); // the lower half
        let payload = match namespace {
            NAMESPACE_ETHERTYPE => NshHeader::next_of(Some(kind)),
            _ if packet_type == ETHERNET => NshHeader::next_of(None),
            _ => None,
        };
        let Some(np) = payload else {
            self.unsupported_packet(|| {
                format!(
                    "Dropping packet as encap(nsh) is not supported for packet type \
                     ({namespace},{kind:#x})"
                )
            });
            return;
        };
        let [start, ..] = STAGE_STARTS;
        self.key.words_mut().iter_mut().skip(start).for_each(|word| *word = 0);
        self.key.packet_type.set(NSH);
        self.key.dl_type.set(ethertype::NSH);
        let mdtype = match mdtype {
            NshHeader::MD_TYPE_1 | NshHeader::MD_TYPE_2 => mdtype,
            _ => 0,
        };
        let (path, context) = (U32::new(PATH), Default::default());
        self.key.nsh = Nsh { flags: 0, ttl: TTL, mdtype, np, path, context };
        self.pending = Some(Pending::Encap { metadata });
    }

    /// Runs `decap(...)`. As in OVS, the action decides about the type of the packet only below a
    /// label, which does not name it.
    pub(super) fn decap(&mut self, packet_type: u32) {
        self.commit(); // changes of the outer header
        match self.key.packet_type.get() {
            ETHERNET => self.decap_ethernet(),
            NSH => self.decap_nsh(),
            MPLS | MPLS_MULTICAST => self.decap_mpls(packet_type as u16), // the lower half
            packet_type => self.unsupported_packet(|| {
                let (namespace, kind) = (packet_type >> 16, packet_type & 0xffff);
                format!(
                    "Dropping packet as the decap() does not support packet type \
                     ({namespace},{kind:#x})"
                )
            }),
        }
    }

    fn decap_ethernet(&mut self) {
        let [first, _] = self.key.vlans;
        let m = &mut self.mask.0;
        m.dl_type.set(u16::MAX);
        // A packet with a tag is dropped.
        let [first_mask, _] = &mut m.vlans;
        first_mask.tci.set(first_mask.tci.get() | VLAN_CFI);
        if first.tci.get() & VLAN_CFI != 0 {
            self.unsupported_packet(|| {
                "Dropping packet, cannot decap Ethernet if VLAN is present.".to_string()
            });
            return;
        }
        self.key.packet_type.set(bare(self.key.dl_type.get()));
        (self.key.dl_src, self.key.dl_dst) = ([0; 6], [0; 6]);
    }

    fn decap_nsh(&mut self) {
        let np = self.key.nsh.np;
        self.mask.0.nsh.np = u8::MAX;
        let Some(payload) = NshHeader::payload_ethertype(np) else {
            self.unsupported_packet(|| {
                format!("Dropping packet as NSH next protocol {np} is not supported")
            });
            return;
        };
        self.key.packet_type.set(payload.map_or(ETHERNET, bare));
        self.pending = Some(Pending::Decap);
        self.start_freezing(Freeze::default());
    }

    /// Runs `push_mpls` on a packet that begins with a label.
    pub(super) fn push_bare_mpls(&mut self, ethertype: u16) {
        self.commit();
        self.expose_mpls_depth();
        match self.mpls_depth(&self.key) {
            0 => return self.without_label(),
            MPLS_LABELS.. => return self.too_many_labels("MPLS push action", "would have"),
            _ => {}
        }
        self.expose_mpls();
        let lse = self.key.mpls.first().map_or(0, |lse| lse.get()) & !MPLS_BOS;
        self.emit(DpAction::PushMpls { lse, ethertype });
        push_mpls(&mut self.key, lse, ethertype);
        self.changed_labels();
    }

    /// Runs `pop_mpls` on a packet that begins with a label.
    pub(super) fn pop_bare_mpls(&mut self, ethertype: u16) {
        self.commit();
        self.decap_mpls(ethertype);
    }

    /// Makes the base, whose outermost labels were changed by an action, equal to the key.
    fn changed_labels(&mut self) {
        self.irreversible = true;
        self.key.packet_type.set(below_label(self.key.dl_type.get()));
        self.base.mpls = self.key.mpls;
        self.base.dl_type = self.key.dl_type;
        self.base.packet_type = self.key.packet_type;
    }

    fn without_label(&mut self) {
        self.unsupported_packet(|| "Dropping packet, as it has no label.".to_string());
    }

    fn too_many_labels(&mut self, action: &str, has: &str) {
        self.fail(TranslationError::TooManyMplsLabels, || {
            format!(
                "dropping packet on which an {action} can't be performed as it {has} more MPLS \
                 LSEs than the {MPLS_LABELS} supported."
            )
        });
    }

    /// Takes off the outermost label. The packet below it has the type `ethertype`, or is an Ethernet
    /// frame if that is 0.
    fn decap_mpls(&mut self, ethertype: u16) {
        self.expose_mpls_depth();
        if self.mpls_depth(&self.key) == 0 {
            return self.without_label();
        }
        if !mpls_complete(&self.key) {
            return self.too_many_labels("MPLS decap", "has");
        }
        self.needs_feature(self.snapshot.withheld.add_mpls);
        let below = if ethertype == 0 { ETHERTYPE_TEB } else { ethertype };
        let is_last = self.mpls_depth(&self.key) == 1;
        if !is_last {
            self.expose_mpls();
        }
        self.emit(DpAction::PopMpls { ethertype: below });
        pop_mpls(&mut self.key, below);
        self.changed_labels();
        // As the packet does not begin with a label that is known, it is looked up again.
        if is_last || !is_bare_mpls(&self.key) {
            self.start_freezing(Freeze::default());
        }
    }

    fn unsupported_packet(&mut self, text: impl FnOnce() -> String) {
        self.report(Kind::Action, text);
        self.error = Some(TranslationError::UnsupportedPacketType);
    }

    /// Decrements the TTL of the Network Service Header. Returns true when it has expired, or there is
    /// no such header: the rest of the list must not run.
    pub(super) fn dec_nsh_ttl(&mut self) -> bool {
        if self.key.ethertype() == ethertype::NSH {
            self.mask.0.nsh.ttl = u8::MAX;
            if self.key.nsh.ttl > 1 {
                self.key.nsh.ttl -= 1;
                return false;
            }
            self.invalid_ttl(0);
        }
        self.report(Kind::Warning, || "NSH decrement TTL exception".to_string());
        true
    }

    /// Emits the action that a pending `encap` or `decap` needs, or the one that gives the datapath's
    /// packet the packet type of the key.
    pub(super) fn commit_packet_type(&mut self) {
        match self.pending.take() {
            Some(Pending::Encap { metadata }) if self.key.packet_type.get() == NSH => {
                let pushed = PushedNsh { fields: self.key.nsh, metadata };
                self.emit(DpAction::PushNsh(Box::new(pushed)));
                self.base_of_headers();
            }
            Some(Pending::Encap { .. }) if is_bare_mpls(&self.key) => {
                let [lse, ..] = self.key.mpls;
                let ethertype = self.key.dl_type.get();
                self.emit(DpAction::AddMpls { lse: lse.get(), ethertype });
                self.base_of_headers();
            }
            Some(Pending::Decap) => self.emit(DpAction::PopNsh),
            Some(Pending::Encap { .. }) => self.commit_ethernet(),
            None if self.key.packet_type == self.base.packet_type => {}
            None => {
                // The packet's own header came off for a tunnel, and goes on again.
                if self.key.packet_type.get() == ETHERNET && self.original_packet_type == ETHERNET {
                    (self.mask.0.dl_src, self.mask.0.dl_dst) = ([0xff; 6], [0xff; 6]);
                }
                self.commit_ethernet();
            }
        }
        self.base.packet_type = self.key.packet_type;
    }

    /// Makes the headers of the base those of the key.
    fn base_of_headers(&mut self) {
        let [start, ..] = STAGE_STARTS;
        let headers = self.base.words_mut().iter_mut().zip(self.key.words()).skip(start);
        headers.for_each(|(base, key)| *base = *key);
    }

    /// Emits the action that puts an Ethernet header on, or takes it off.
    fn commit_ethernet(&mut self) {
        if self.key.packet_type.get() == ETHERNET {
            let Key { dl_src: src, dl_dst: dst, .. } = self.key;
            self.emit(DpAction::PushEth { src, dst });
            (self.base.dl_src, self.base.dl_dst) = (src, dst);
        } else {
            self.commit_vlans(); // the header goes with its tags
            self.emit(DpAction::PopEth);
            (self.base.dl_src, self.base.dl_dst) = ([0; 6], [0; 6]);
        }
    }
}
