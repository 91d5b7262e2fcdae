// SPDX-License-Identifier: Apache-2.0
//! Actions that change the packet's fields and headers, and the stack.

use super::commit::vlan_count;
use super::context::{Context, Freeze};
use super::encap::is_bare_mpls;
use super::finish::{is_ip, is_mpls};
use super::mpls::{MPLS_BOS, MPLS_NULL_V4, MPLS_NULL_V6, mpls_complete, pop_mpls, push_mpls};
use super::{MAX_STACK_BYTES, TranslationError};
use crate::recirc::StackEntry;
use crate::trace::{Kind, subfield_text};
use datapath::Action as DpAction;
use flow::extract::FRAG_LATER;
use flow::field::Prerequisite;
use flow::tun_metadata::Wide;
use flow::{Field, FieldValue, Key, MPLS_LABELS, Subfield, VLAN_CFI, Vlan};
use packet::ethertype;
use zerocopy::network_endian::U16;

/// TTL of a label stack entry.
const MPLS_TTL: u32 = 0xff;

impl Context<'_> {
    /// Returns true when the packet has `field`; the bits that decide this are made exact.
    pub(super) fn has(&mut self, field: Field) -> bool {
        use Prerequisite::{IpAny, Ipv4, Ipv6};
        let need = field.prerequisite();
        if matches!(need, Ipv4 | Ipv6 | IpAny) && !ruled_out(need, &self.key) {
            // As OVS does, so that a set of an IP field never spans protocols: packets whose
            // IP header is cut off have protocol 0.
            self.mask.0.nw_proto = u8::MAX;
        }
        self.meets(need)
    }

    /// Returns true when the packet has what `field` requires, without the exception of
    /// [`Context::has`].
    pub(super) fn has_all(&mut self, field: Field) -> bool {
        self.meets(field.prerequisite())
    }

    /// Returns true when the packet meets `need`; the bits that decide this are made exact.
    fn meets(&mut self, need: Prerequisite) -> bool {
        // The Ethernet type and, for IP, the fragmentation are exact in every megaflow, and actions
        // change them alike for all packets of a megaflow. So where they rule the field out, no
        // other bit matters.
        if ruled_out(need, &self.key) {
            return false;
        }
        need.unwildcard(&mut self.mask);
        need.holds(&self.key)
    }

    pub(super) fn set_whole(&mut self, field: Field, value: FieldValue) {
        if self.has(field) {
            self.mask.set_exact(field);
            field.store(&mut self.key, value);
        }
    }

    pub(super) fn set_field(&mut self, field: Field, value: FieldValue, mask: FieldValue) {
        if !self.has(field) {
            self.report(Kind::Warning, || {
                format!("unmet prerequisites for {}, set_field ignored", field.name())
            });
            return;
        }
        self.expose_vlan(field);
        field.unwildcard_masked(&mut self.mask, mask);
        field.store_masked(&mut self.key, value, mask);
        self.normalize_vlan();
    }

    /// Sets the bits of `mask` in a field `tun_metadataN`.
    pub(super) fn set_option(&mut self, field: Field, value: &Wide, mask: &Wide) {
        field.unwildcard_wide(&mut self.mask, mask);
        field.store_wide_masked(&mut self.key, value, mask);
    }

    /// Takes the option of a field `tun_metadataN` off. Its value does not matter then. Its presence
    /// does: only a packet that had it has been changed, which decides about frozen fields.
    pub(super) fn delete_option(&mut self, field: Field) {
        let Some(n) = field.option() else { return };
        self.mask.0.tunnel.set_present(n, true);
        self.key.tunnel.set_option(n, &Wide::ZERO);
        self.key.tunnel.set_present(n, false);
        self.report(Kind::Detail, || format!("delete {}", field.name()));
    }

    /// Makes "there is a VLAN header" exact before a VLAN field is read or written.
    fn expose_vlan(&mut self, field: Field) {
        if field.is_vlan()
            && let Some(v) = self.mask.0.vlans.first_mut()
        {
            v.tci.set(v.tci.get() | VLAN_CFI);
        }
    }

    /// Completes the VLAN headers after a set: a header that it made present gets a TPID, and one
    /// that it made absent is removed.
    pub(super) fn normalize_vlan(&mut self) {
        let [first, second] = &mut self.key.vlans;
        if first.tci.get() & VLAN_CFI == 0 {
            if *first != Vlan::default() {
                *first = std::mem::take(second);
                // The second header came from inside the payload: exact in all bits.
                for v in &mut self.mask.0.vlans {
                    *v = Vlan { tpid: U16::new(u16::MAX), tci: U16::new(u16::MAX) };
                }
            }
        } else if first.tpid.get() == 0 {
            first.tpid.set(ethertype::VLAN);
        }
    }

    /// Stores `value` in a subfield (a result of an action) and reports it.
    pub(super) fn write_subfield(&mut self, dst: &Subfield, value: FieldValue) {
        self.write_wide(dst, &Wide::from_u128(value));
    }

    /// Does the same as [`Context::write_subfield`] for a value of any width.
    fn write_wide(&mut self, dst: &Subfield, value: &Wide) {
        if !self.has(dst.field) {
            return;
        }
        self.expose_vlan(dst.field);
        dst.set_exact(&mut self.mask);
        for part in dst.parts() {
            part.store(
                &mut self.key,
                value.load((part.start - dst.start).into(), part.bits.into()),
            );
        }
        self.normalize_vlan();
        let key = &self.key;
        if let Some(t) = self.tracer.as_deref_mut() {
            t.add(Kind::Detail, subfield_text(dst, key));
        }
    }

    /// Returns the value of a subfield, 0 when the packet does not have it. The subfield and its
    /// prerequisites become exact.
    pub(super) fn read_subfield(&mut self, src: &Subfield) -> FieldValue {
        src.field.prerequisite().unwildcard(&mut self.mask);
        self.expose_vlan(src.field);
        src.set_exact(&mut self.mask);
        src.load(&self.key)
    }

    /// Moves bits from `src` to `dst`. Where the packet lacks one of the fields nothing moves; the
    /// trace reports the value of `dst` all the same, as in OVS.
    pub(super) fn move_field(&mut self, src: &Subfield, dst: &Subfield) {
        if self.meets(dst.field.prerequisite()) && self.meets(src.field.prerequisite()) {
            // Both have the same number of bits.
            for (src, dst) in src.parts().zip(dst.parts()) {
                let value = self.read_subfield(&src);
                self.expose_vlan(dst.field);
                dst.set_exact(&mut self.mask);
                dst.store(&mut self.key, value);
                self.normalize_vlan();
            }
        }
        let key = &self.key;
        if let Some(t) = self.tracer.as_deref_mut() {
            t.add(Kind::Detail, subfield_text(dst, key));
        }
    }

    pub(super) fn push(&mut self, src: &Subfield) {
        if self.stack.len() >= MAX_STACK_BYTES {
            self.fail(TranslationError::StackTooDeep, || {
                "resubmits yielded over 64 kB of stack".to_string()
            });
            return;
        }
        let mut value = Wide::ZERO;
        for part in src.parts() {
            value.store(
                (part.start - src.start).into(),
                part.bits.into(),
                self.read_subfield(&part),
            );
        }
        self.stack.push(StackEntry { value, bits: src.bits });
    }

    pub(super) fn pop(&mut self, dst: &Subfield) {
        match self.stack.pop() {
            Some(entry) => self.write_wide(dst, &entry.value),
            None => self.report(Kind::Error, || "stack underflow".to_string()),
        }
    }

    pub(super) fn set_vlan(&mut self, mask: u16, value: u16, push_if_missing: bool) {
        let (Some(m), Some(v)) = (self.mask.0.vlans.first_mut(), self.key.vlans.first_mut()) else {
            return;
        };
        m.tci.set(m.tci.get() | mask | VLAN_CFI);
        if v.tci.get() & VLAN_CFI != 0 || push_if_missing {
            if v.tpid.get() == 0 {
                v.tpid.set(ethertype::VLAN);
            }
            v.tci.set(v.tci.get() & !mask | value | VLAN_CFI);
        }
    }

    /// Makes both VLAN headers exact before they move, also when they are absent.
    pub(super) fn expose_vlans(&mut self) {
        let first = self.key.vlans.first().is_some_and(|v| v.tci.get() & VLAN_CFI != 0);
        for m in &mut self.mask.0.vlans {
            if first {
                *m = Vlan { tpid: U16::new(u16::MAX), tci: U16::new(u16::MAX) };
            } else {
                m.tci.set(m.tci.get() | VLAN_CFI);
            }
        }
    }

    pub(super) fn pop_vlan(&mut self) {
        self.expose_vlans();
        let [first, second] = self.key.vlans;
        if first.tci.get() & VLAN_CFI != 0 {
            self.key.vlans = [second, Vlan::default()];
        }
    }

    pub(super) fn push_vlan(&mut self, tpid: u16) {
        self.expose_vlans();
        let full = vlan_count(&self.key) == self.key.vlans.len();
        let new = Vlan { tpid: U16::new(tpid), tci: U16::new(VLAN_CFI) };
        if full {
            // The innermost header becomes payload, which the key does not describe. So the push is
            // emitted at once, and the key of another bridge or bucket does not suffice to undo it.
            self.commit();
            self.emit(DpAction::PushVlan { tpid, tci: VLAN_CFI });
            self.irreversible = true;
        }
        let [first, _] = self.key.vlans;
        self.key.vlans = [new, first];
        if full {
            self.base.vlans = self.key.vlans;
        }
    }

    /// Sets the first or second half of the transport header's first word, for any protocol: a
    /// port, or ICMP's type or code. For other protocols no datapath action follows from it.
    pub(super) fn set_port(&mut self, source: bool, port: u16) {
        if !is_ip(&self.key) || self.key.nw_frag & FRAG_LATER != 0 {
            return;
        }
        let (k, m) = (&mut self.key, &mut self.mask.0);
        m.nw_proto = u8::MAX;
        let (value, mask) =
            if source { (&mut k.tp_src, &mut m.tp_src) } else { (&mut k.tp_dst, &mut m.tp_dst) };
        mask.set(u16::MAX);
        value.set(port);
    }

    /// Decrements the TTL. Returns true when it has expired: the rest of the list must not run.
    pub(super) fn dec_ttl(&mut self, controllers: &[u16]) -> bool {
        if !is_ip(&self.key) {
            return false;
        }
        Field::IpTtl.unwildcard(&mut self.mask);
        self.mask.0.nw_proto = u8::MAX;
        if self.key.nw_ttl > 1 {
            self.key.nw_ttl -= 1;
            return false;
        }
        let all = if controllers.is_empty() { &[0] } else { controllers };
        for id in all {
            self.invalid_ttl(*id);
        }
        let version = if self.key.dl_type.get() == ethertype::IPV4 { 4 } else { 6 };
        self.report(Kind::Warning, || format!("IPv{version} decrement TTL exception"));
        true
    }

    /// Does the same as [`Context::dec_ttl`] for the TTL of the outermost label.
    pub(super) fn dec_mpls_ttl(&mut self) -> bool {
        if !is_mpls(&self.key) {
            // As in OVS a missing TTL counts as expired. Only OpenFlow 1.0 lets that happen.
            self.report(Kind::Warning, || "MPLS decrement TTL exception".to_string());
            return true;
        }
        Field::MplsTtl.unwildcard(&mut self.mask);
        let Some(top) = self.key.mpls.first_mut() else { return false };
        if top.get() & MPLS_TTL > 1 {
            top.set(top.get() - 1);
            return false;
        }
        self.invalid_ttl(0);
        self.report(Kind::Warning, || "MPLS decrement TTL exception".to_string());
        true
    }

    /// Makes the depth of the stack exact: the bottom-of-stack bits of its entries.
    pub(super) fn expose_mpls_depth(&mut self) {
        for m in self.mask.0.mpls.iter_mut().take(self.original_mpls) {
            m.set(m.get() | MPLS_BOS);
        }
    }

    /// Makes the whole stack exact before it moves.
    pub(super) fn expose_mpls(&mut self) {
        for m in self.mask.0.mpls.iter_mut().take(self.original_mpls) {
            m.set(u32::MAX);
        }
    }

    pub(super) fn push_mpls(&mut self, ethertype: u16) {
        if is_bare_mpls(&self.key) {
            return self.push_bare_mpls(ethertype);
        }
        if self.mpls_depth(&self.key) == 0 {
            // The label hides the headers of L3 and L4: their changes are emitted before it.
            self.commit();
            let mut lse = MPLS_NULL_V4 << 12 | MPLS_BOS | 64;
            if is_ip(&self.key) {
                Field::IpTtl.unwildcard(&mut self.mask);
                Field::IpDscp.unwildcard(&mut self.mask);
                let null = if self.key.dl_type.get() == ethertype::IPV6 {
                    MPLS_NULL_V6
                } else {
                    MPLS_NULL_V4
                };
                let tc = u32::from(self.key.nw_tos >> 2) & 7;
                let ttl = if self.key.nw_ttl == 0 { 64 } else { u32::from(self.key.nw_ttl) };
                lse = null << 12 | tc << 9 | MPLS_BOS | ttl;
            }
            push_mpls(&mut self.key, lse, ethertype);
            // L3 and L4 are payload now.
            let first = std::mem::offset_of!(Key, nw_src) / 8;
            for w in self.key.words_mut().iter_mut().skip(first) {
                *w = 0;
            }
            return;
        }
        self.expose_mpls_depth();
        if self.mpls_depth(&self.key) >= MPLS_LABELS {
            self.fail(TranslationError::TooManyMplsLabels, || {
                format!(
                    "dropping packet on which an MPLS push action can't be performed as it would \
                     have more MPLS LSEs than the {MPLS_LABELS} supported."
                )
            });
            return;
        }
        self.expose_mpls();
        let top = self.key.mpls.first().map_or(0, |l| l.get()) & !MPLS_BOS;
        push_mpls(&mut self.key, top, ethertype);
    }

    pub(super) fn pop_mpls(&mut self, ethertype: u16) {
        if is_bare_mpls(&self.key) {
            return self.pop_bare_mpls(ethertype);
        }
        if self.mpls_depth(&self.key) == 0 {
            return;
        }
        self.expose_mpls_depth();
        if !mpls_complete(&self.key) {
            // The packet has more labels than the key holds: the entry that comes up from below is
            // unknown here.
            self.commit();
            self.emit(DpAction::PopMpls { ethertype });
            self.irreversible = true;
            pop_mpls(&mut self.base, ethertype);
            self.key.dl_type = self.base.dl_type;
            self.key.mpls = self.base.mpls;
            self.was_mpls = !ethertype::is_mpls(ethertype);
            self.start_freezing(Freeze::default());
            return;
        }
        if self.mpls_depth(&self.key) > 1 {
            self.expose_mpls();
        }
        pop_mpls(&mut self.key, ethertype);
        if !ethertype::is_mpls(ethertype) {
            self.was_mpls = true;
        }
    }
}

pub(super) fn mac_value(mac: &[u8; 6]) -> FieldValue {
    mac.iter().fold(0, |v, b| v << 8 | u128::from(*b))
}

/// Returns true when Ethernet type and fragmentation alone rule a prerequisite out.
fn ruled_out(need: Prerequisite, key: &Key) -> bool {
    use Prerequisite::*;
    let dl_type = key.dl_type.get();
    let later = is_ip(key) && key.nw_frag & FRAG_LATER != 0;
    match need {
        None | Ethernet | Vlan | Ct => false,
        Arp | Mpls | Nsh | Ipv4 | Ipv6 | IpAny => !need.holds(key),
        Tcp | Udp | Sctp => !is_ip(key) || later,
        Icmpv4 => dl_type != ethertype::IPV4 || later,
        Icmpv6 | Nd | NdSolicit | NdAdvert => dl_type != ethertype::IPV6 || later,
    }
}
