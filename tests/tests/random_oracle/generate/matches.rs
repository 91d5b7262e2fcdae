// SPDX-License-Identifier: Apache-2.0
//! Random matches: on fields of a frame, mostly with what they need.

use super::Gen;
use flow::field::Prerequisite;
use flow::{Field, FieldValue, Match};

/// A match that frames of the case may meet. `any`: needs may be left out and values be odd.
pub fn matching(g: &mut Gen, any: bool) -> Match {
    let mut m = Match::ANY;
    let (port, frame) = g.known_frame();
    let key = flow::extract::key_of(&frame, port);
    for _ in 0..g.below(5) {
        let field = g.pick(&Field::ALL);
        if is_left_out(field) {
            continue;
        }
        let is_of_datapath = matches!(
            field,
            Field::RecircId | Field::DpHash | Field::SkbPriority | Field::TunTtl | Field::TunTos
        );
        if is_of_datapath && !any {
            continue;
        }
        // OVS takes ports of connections without a protocol, and shows them nowhere.
        if matches!(field, Field::CtTpSrc | Field::CtTpDst) {
            continue;
        }
        let is_there = field.prerequisite().holds(&key);
        if !is_there && !any {
            continue;
        }
        if !any {
            require(&mut m, field.prerequisite(), &key);
        }
        let mut value = field.load(&key);
        if field.is_register() || field == Field::Metadata {
            value = g.pick(&[0u128, 1, 2, 0x1234]);
        }
        if any && g.one_in(3) || g.one_in(12) {
            value = g.value(field);
        }
        let mut mask =
            if field.maskable() && g.one_in(3) { g.mask(field) } else { field.all_ones() };
        if field == Field::VlanVid && mask == field.all_ones() && value == 0 && g.bool() {
            continue;
        }
        // Without a header there is no VLAN; OVS reports a match that says otherwise in a way that
        // no controller can read.
        if field == Field::VlanTci && mask & 0x1000 != 0 && value & 0x1000 == 0 {
            (value, mask) = (0, 0x1000);
        }
        m.set_masked(field, value, mask);
    }
    // Of one of parts of the number and of the priority alone it does so, too.
    let (tci, mask) = (m.value(Field::VlanTci), m.mask_of(Field::VlanTci));
    if tci & 0x1000 == 0 && tci & 0xfff != 0 {
        m.set_masked(Field::VlanTci, tci & 0x1fff, mask & 0x1fff);
    }
    m
}

/// Adds the prerequisite `p` to `m`, with the values of `key`.
fn require(m: &mut Match, p: Prerequisite, key: &flow::Key) {
    use Prerequisite::*;
    let mut exact = |field: Field| m.set(field, field.load(key));
    match p {
        None | Ethernet => {}
        Ct => m.set_masked(Field::CtState, 1, 1),
        Vlan => m.set_masked(Field::VlanTci, 0x1000, 0x1000),
        Arp | Ipv4 | Ipv6 | IpAny | Mpls | Nsh => exact(Field::EthType),
        Tcp | Udp | Sctp | Icmpv4 | Icmpv6 => {
            exact(Field::EthType);
            exact(Field::IpProto);
        }
        Nd | NdSolicit | NdAdvert => {
            exact(Field::EthType);
            exact(Field::IpProto);
            exact(Field::Icmpv6Type);
            exact(Field::Icmpv6Code);
        }
    }
}

/// `value` as far as it fits.
pub fn fitted(field: Field, value: FieldValue) -> FieldValue {
    value & field.all_ones()
}

/// True for the registers from `reg16` on, which Open vSwitch has from 3.7 on.
pub fn is_of_later_versions(field: Field) -> bool {
    field.is_register() && field.def().position.offset >= Field::Reg16.def().position.offset
}

/// True for fields that are in no match: a bridge has no mappings of options, to OVS a field of
/// ERSPAN or GTP-U that is 0 is no match, and Debian's version lacks some.
pub fn is_left_out(field: Field) -> bool {
    field.option().is_some()
        || is_of_later_versions(field)
        || matches!(
            field,
            Field::TunErspanIdx
                | Field::TunErspanVer
                | Field::TunErspanDir
                | Field::TunErspanHwid
                | Field::TunGtpuFlags
                | Field::TunGtpuMsgtype
        )
}
