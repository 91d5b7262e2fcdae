// SPDX-License-Identifier: Apache-2.0
//! Matches and keys in OpenFlow syntax, out.

use crate::extract::FRAG_LATER;
use crate::field::Prerequisite;
use crate::field::flags::Flags;
use crate::field::value::{
    CHex, ethernet_text, frag_text, ipv4_text, ipv6_text, packet_type_text, port_text,
};
use crate::tun_metadata::{FIELDS, Wide};
use crate::{Field, Key, Mask, Match, Nsh, Tunnel, VLAN_CFI};
use packet::{NshHeader, ethertype, ip_proto};
use std::fmt::{Display, Write};

/// Fields joined by commas.
struct List(String);

impl List {
    fn word(&mut self, word: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(word);
    }

    fn field(&mut self, name: &str, value: impl Display) {
        self.word(name);
        let _ = write!(self.0, "={value}"); // a String takes all writes
    }

    /// `name=VALUE[/MASK]` in hexadecimal, when anything of it counts.
    fn hex(&mut self, name: &str, value: u128, mask: u128, all: u128) {
        if mask == all {
            self.field(name, CHex(value));
        } else if mask != 0 {
            self.field(name, format_args!("{}/{}", CHex(value), CHex(mask)));
        }
    }

    /// `name=VALUE` in decimal, or `name=0xVALUE/0xMASK`; exact when the bits of `all` are. OVS
    /// keeps ICMP types and the like in 16 bits and calls them exact in rules, but not in a
    /// megaflow, which has the 8 bits alone: `all` says which.
    fn port(&mut self, name: &str, value: u16, mask: u16, all: u16) {
        if mask & all == all {
            self.field(name, value);
        } else if mask != 0 {
            self.field(name, format_args!("{value:#x}/{mask:#x}"));
        }
    }

    /// A byte of NSH.
    fn nsh_byte(&mut self, name: &str, value: u8, mask: u8) {
        match mask {
            0 => {}
            u8::MAX => self.field(name, value),
            _ => self.field(name, format_args!("{value:#04x}/{mask:#04x}")),
        }
    }

    /// A number of 32 bits of NSH.
    fn nsh_word(&mut self, name: &str, value: u32, mask: u32) {
        match mask {
            0 => {}
            u32::MAX => self.field(name, format_args!("{value:#x}")),
            _ => self.field(name, format_args!("{value:#x}/{mask:#x}")),
        }
    }

    fn ethernet(&mut self, name: &str, value: &[u8; 6], mask: &[u8; 6]) {
        if *mask == [0xff; 6] {
            self.field(name, ethernet_text(value));
        } else if *mask != [0; 6] {
            self.field(name, format_args!("{}/{}", ethernet_text(value), ethernet_text(mask)));
        }
    }

    fn ipv4(&mut self, name: &str, value: u32, mask: u32) {
        if mask != 0 {
            self.field(name, ipv4_text(value, mask));
        }
    }

    fn ipv6(&mut self, name: &str, value: [u8; 16], mask: [u8; 16]) {
        if mask != [0; 16] {
            self.field(name, ipv6_text(u128::from_be_bytes(value), u128::from_be_bytes(mask)));
        }
    }
}

/// The word for a packet's type and protocol, and whether it names the protocol.
fn protocol_word(key: &Key, mask: &Mask) -> Option<(&'static str, bool)> {
    if mask.0.dl_type.get() != u16::MAX {
        return None;
    }
    let proto = (mask.0.nw_proto == u8::MAX).then_some(key.nw_proto);
    Some(match (key.dl_type.get(), proto) {
        (ethertype::IPV4, Some(ip_proto::ICMP)) => ("icmp", true),
        (ethertype::IPV4, Some(ip_proto::TCP)) => ("tcp", true),
        (ethertype::IPV4, Some(ip_proto::UDP)) => ("udp", true),
        (ethertype::IPV4, Some(ip_proto::SCTP)) => ("sctp", true),
        (ethertype::IPV4, _) => ("ip", false),
        (ethertype::IPV6, Some(ip_proto::ICMPV6)) => ("icmp6", true),
        (ethertype::IPV6, Some(ip_proto::TCP)) => ("tcp6", true),
        (ethertype::IPV6, Some(ip_proto::UDP)) => ("udp6", true),
        (ethertype::IPV6, Some(ip_proto::SCTP)) => ("sctp6", true),
        (ethertype::IPV6, _) => ("ipv6", false),
        (ethertype::ARP, _) => ("arp", false),
        (ethertype::RARP, _) => ("rarp", false),
        (ethertype::MPLS, _) => ("mpls", false),
        (ethertype::MPLS_MULTICAST, _) => ("mplsm", false),
        _ => return None,
    })
}

fn format(key: &Key, mask: &Mask, megaflow: bool, ports: &dyn Fn(u32) -> Option<String>) -> String {
    format_as(key, mask, megaflow, megaflow, ports)
}

/// `eth`: say so of Ethernet packets whose type is in the mask; `megaflow`: masks of ICMP types and
/// codes are those of a megaflow.
fn format_as(
    key: &Key,
    mask: &Mask,
    eth: bool,
    megaflow: bool,
    ports: &dyn Fn(u32) -> Option<String>,
) -> String {
    let (k, m) = (key, &mask.0);
    let mut out = List(String::new());
    let hex32 = |out: &mut List, name: &str, k: u32, m: u32| {
        out.hex(name, k.into(), m.into(), u32::MAX.into());
    };

    hex32(&mut out, "pkt_mark", k.pkt_mark.get(), m.pkt_mark.get());
    hex32(&mut out, "recirc_id", k.recirc_id.get(), m.recirc_id.get());
    hex32(&mut out, "dp_hash", k.dp_hash.get(), m.dp_hash.get());
    if m.conj_id.get() != 0 {
        out.field("conj_id", k.conj_id);
    }
    hex32(&mut out, "skb_priority", k.skb_priority.get(), m.skb_priority.get());
    if m.actset_output.get() != 0 {
        out.field("actset_output", port_text(k.actset_output.get(), ports));
    }
    connection(&mut out, k, m);
    if m.packet_type.get() != 0 {
        let t = k.packet_type.get();
        if t != 0 {
            out.field("packet_type", format_args!("{}", packet_type_text(t)));
        } else if eth {
            out.word("eth");
        }
    }
    let protocol = protocol_word(key, mask);
    if let Some((word, _)) = protocol {
        out.word(word);
    }
    for (n, (k, m)) in k.regs.iter().zip(&m.regs).enumerate() {
        hex32(&mut out, &format!("reg{n}"), k.get(), m.get());
    }
    tunnel(&mut out, &k.tunnel, &m.tunnel);
    out.hex("metadata", k.metadata.get().into(), m.metadata.get().into(), u64::MAX.into());
    if m.in_port.get() != 0 {
        out.field("in_port", port_text(k.in_port.get(), ports));
    }
    for (i, (k, m)) in k.vlans.iter().zip(&m.vlans).enumerate() {
        vlan(&mut out, i, k.tci.get(), m.tci.get());
    }
    out.ethernet("dl_src", &k.dl_src, &m.dl_src);
    out.ethernet("dl_dst", &k.dl_dst, &m.dl_dst);
    if protocol.is_none() && m.dl_type.get() != 0 {
        out.field("dl_type", format_args!("{:#06x}", k.ethertype()));
    }
    l3(&mut out, k, m, protocol.is_some_and(|p| p.1));
    l4(&mut out, k, m, if megaflow { u16::MAX } else { 0xff });
    out.0
}

/// Writes the fields of tunnels.
fn tunnel(out: &mut List, k: &Tunnel, m: &Tunnel) {
    if *m == Tunnel::NONE {
        return;
    }
    out.hex("tun_id", k.id.get().into(), m.id.get().into(), u64::MAX.into());
    out.ipv4("tun_src", k.src.get(), m.src.get());
    out.ipv4("tun_dst", k.dst.get(), m.dst.get());
    out.ipv6("tun_ipv6_src", k.ipv6_src, m.ipv6_src);
    out.ipv6("tun_ipv6_dst", k.ipv6_dst, m.ipv6_dst);
    out.port("tun_gbp_id", k.gbp_id.get(), m.gbp_id.get(), u16::MAX);
    // As in OVS, the rest is written without a mask.
    if m.gbp_flags != 0 {
        out.field("tun_gbp_flags", CHex(k.gbp_flags));
    }
    if m.tos != 0 {
        out.field("tun_tos", format_args!("{:x}", k.tos));
    }
    if m.ttl != 0 {
        out.field("tun_ttl", k.ttl);
    }
    if m.erspan_ver != 0 {
        out.field("tun_erspan_ver", k.erspan_ver);
    }
    if m.erspan_idx.get() != 0 && k.erspan_ver == 1 {
        out.field("tun_erspan_idx", CHex(k.erspan_idx.get()));
    }
    if m.erspan_dir != 0 && k.erspan_ver == 2 {
        out.field("tun_erspan_dir", k.erspan_dir);
    }
    if m.erspan_hwid != 0 && k.erspan_ver == 2 {
        out.field("tun_erspan_hwid", CHex(k.erspan_hwid));
    }
    if m.gtpu_flags != 0 {
        out.field("gtpu_flags", CHex(k.gtpu_flags));
    }
    if m.gtpu_msgtype != 0 {
        out.field("gtpu_msgtype", k.gtpu_msgtype);
    }
    if m.flags.get() != 0 {
        out.field("tun_flags", Flags::TUNNEL.text(k.flags.get(), m.flags.get()));
    }
    for n in (0..FIELDS).filter(|n| m.has_option(*n)) {
        let name = format!("tun_metadata{n}");
        let mask = m.option(n);
        if !k.has_option(n) {
            out.field(&name, "NP");
        } else if mask.is_empty() {
            out.word(&name);
        } else if let Some(field) = Field::of_option(n) {
            out.field(&name, field.format_wide(&k.option(n), &mask));
        }
    }
}

/// Writes the fields of connections.
fn connection(out: &mut List, k: &Key, m: &Key) {
    if m.ct_state != 0 {
        out.field("ct_state", Flags::CT_STATE.text(k.ct_state.into(), m.ct_state.into()));
    }
    out.port("ct_zone", k.ct_zone.get(), m.ct_zone.get(), u16::MAX);
    out.hex("ct_mark", k.ct_mark.get().into(), m.ct_mark.get().into(), u32::MAX.into());
    out.hex(
        "ct_label",
        u128::from_be_bytes(k.ct_label),
        u128::from_be_bytes(m.ct_label),
        u128::MAX,
    );
    out.ipv4("ct_nw_src", k.ct_nw_src.get(), m.ct_nw_src.get());
    out.ipv6("ct_ipv6_src", k.ct_ipv6_src, m.ct_ipv6_src);
    out.ipv4("ct_nw_dst", k.ct_nw_dst.get(), m.ct_nw_dst.get());
    out.ipv6("ct_ipv6_dst", k.ct_ipv6_dst, m.ct_ipv6_dst);
    if m.ct_nw_proto != 0 {
        out.field("ct_nw_proto", k.ct_nw_proto);
    }
    out.port("ct_tp_src", k.ct_tp_src.get(), m.ct_tp_src.get(), u16::MAX);
    out.port("ct_tp_dst", k.ct_tp_dst.get(), m.ct_tp_dst.get(), u16::MAX);
}

fn vlan(out: &mut List, i: usize, tci: u16, mask: u16) {
    if mask == 0 {
        return;
    }
    let suffix = if i == 0 { String::new() } else { i.to_string() };
    let (vid, pcp) = (mask & 0x0fff, mask & 0xe000);
    let whole_parts = matches!(vid, 0 | 0x0fff) && matches!(pcp, 0 | 0xe000) && (vid | pcp) != 0;
    if mask & VLAN_CFI != 0 && tci & VLAN_CFI != 0 && whole_parts {
        if vid != 0 {
            out.field(&format!("dl_vlan{suffix}"), tci & 0x0fff);
        }
        if pcp != 0 {
            out.field(&format!("dl_vlan_pcp{suffix}"), tci >> 13);
        }
    } else if mask == u16::MAX {
        out.field(&format!("vlan_tci{suffix}"), format_args!("{tci:#06x}"));
    } else {
        out.field(&format!("vlan_tci{suffix}"), format_args!("{tci:#06x}/{mask:#06x}"));
    }
}

/// Returns the Ethernet type that decides about the names of fields; 0 where it is a wildcard. The
/// packet type of a packet without an Ethernet header names it, too.
fn known_type(k: &Key, m: &Key) -> u16 {
    let is_known = m.dl_type.get() != 0 || m.packet_type.get() != 0 && k.packet_type.get() != 0;
    if is_known { k.ethertype() } else { 0 }
}

/// Writes the fields of NSH. As in OVS, contexts are shown only with metadata type 1.
fn nsh(out: &mut List, k: &Nsh, m: &Nsh) {
    out.nsh_byte("nsh_flags", k.flags, m.flags);
    out.nsh_byte("nsh_ttl", k.ttl, m.ttl);
    out.nsh_byte("nsh_mdtype", k.mdtype, m.mdtype);
    out.nsh_byte("nsh_np", k.np, m.np);
    let (path, mask) = (k.path.get(), m.path.get());
    let all_of_path = if mask >> 8 == 0xff_ffff { u32::MAX } else { mask >> 8 };
    out.nsh_word("nsh_spi", path >> 8, all_of_path);
    out.nsh_byte("nsh_si", path as u8, mask as u8); // the low byte
    if m.mdtype == u8::MAX && k.mdtype == NshHeader::MD_TYPE_1 {
        let names = ["nsh_c1", "nsh_c2", "nsh_c3", "nsh_c4"];
        for (name, (k, m)) in names.iter().zip(k.context.iter().zip(&m.context)) {
            out.nsh_word(name, k.get(), m.get());
        }
    }
}

fn l3(out: &mut List, k: &Key, m: &Key, proto_named: bool) {
    let dl_type = known_type(k, m);
    let arp = matches!(dl_type, ethertype::ARP | ethertype::RARP);
    if dl_type == ethertype::IPV6 {
        out.ipv6("ipv6_src", k.ipv6_src, m.ipv6_src);
        out.ipv6("ipv6_dst", k.ipv6_dst, m.ipv6_dst);
        let (label, mask) = (k.ipv6_label.get(), m.ipv6_label.get());
        if mask & 0xf_ffff == 0xf_ffff {
            out.field("ipv6_label", format_args!("{label:#07x}"));
        } else if mask != 0 {
            out.field("ipv6_label", format_args!("{label:#07x}/{mask:#07x}"));
        }
    } else if dl_type == ethertype::NSH {
        nsh(out, &k.nsh, &m.nsh);
    } else {
        let names = if arp { ("arp_spa", "arp_tpa") } else { ("nw_src", "nw_dst") };
        out.ipv4(names.0, k.nw_src.get(), m.nw_src.get());
        out.ipv4(names.1, k.nw_dst.get(), m.nw_dst.get());
    }
    if !proto_named && m.nw_proto != 0 {
        out.field(if arp { "arp_op" } else { "nw_proto" }, k.nw_proto);
    }
    if arp {
        out.ethernet("arp_sha", &k.arp_sha, &m.arp_sha);
        out.ethernet("arp_tha", &k.arp_tha, &m.arp_tha);
    }
    if m.nw_tos & 0xfc != 0 {
        out.field("nw_tos", k.nw_tos & 0xfc);
    }
    if m.nw_tos & 3 != 0 {
        out.field("nw_ecn", k.nw_tos & 3);
    }
    if m.nw_ttl != 0 {
        out.field("nw_ttl", k.nw_ttl);
    }
    let (lse, mask) = (packet::MplsEntry(k.mpls[0]), m.mpls[0].get());
    for (bits, name, value) in [
        (0xffff_f000, "mpls_label", lse.label()),
        (0x0e00, "mpls_tc", lse.tc().into()),
        (0x00ff, "mpls_ttl", lse.ttl().into()),
        (0x0100, "mpls_bos", lse.is_bottom().into()),
    ] {
        if mask & bits != 0 {
            out.field(name, value);
        }
    }
    for (i, (k, m)) in k.mpls.iter().zip(&m.mpls).enumerate().skip(1) {
        if m.get() != 0 {
            out.field(&format!("mpls_lse{i}"), k);
        }
    }
    if m.nw_frag & 3 != 0 {
        out.field("nw_frag", frag_text(k.nw_frag, m.nw_frag));
    }
}

/// `all`: the mask with which an 8-bit value in a place of 16 bits is exact.
fn l4(out: &mut List, k: &Key, m: &Key, all: u16) {
    let dl_type = known_type(k, m);
    let proto = if m.nw_proto == 0 { None } else { Some(k.nw_proto) };
    let (src, dst) = ((k.tp_src.get(), m.tp_src.get()), (k.tp_dst.get(), m.tp_dst.get()));
    match (dl_type, proto) {
        (ethertype::IPV4, Some(ip_proto::ICMP)) => {
            out.port("icmp_type", src.0, src.1, all);
            out.port("icmp_code", dst.0, dst.1, all);
        }
        (ethertype::IPV6, Some(ip_proto::ICMPV6)) => {
            out.port("icmp_type", src.0, src.1, all);
            out.port("icmp_code", dst.0, dst.1, all);
            out.ipv6("nd_target", k.nd_target, m.nd_target);
            out.ethernet("nd_sll", &k.arp_sha, &m.arp_sha);
            out.ethernet("nd_tll", &k.arp_tha, &m.arp_tha);
            if m.nd_reserved.get() != 0 {
                out.field("nd_reserved", k.nd_reserved);
            }
            out.port("nd_options_type", k.nd_options_type.into(), m.nd_options_type.into(), all);
        }
        _ => {
            out.port("tp_src", src.0, src.1, u16::MAX);
            out.port("tp_dst", dst.0, dst.1, u16::MAX);
        }
    }
    let ip = matches!(dl_type, ethertype::IPV4 | ethertype::IPV6);
    let flags = m.tcp_flags.get();
    if ip && proto == Some(ip_proto::TCP) && flags != 0 {
        out.field("tcp_flags", Flags::TCP.text(k.tcp_flags.get(), flags));
    }
}

/// A rule's match as `ovs-ofctl dump-flows` prints it, without the priority; empty for a match
/// of everything. A match of Ethernet packets only (`packet_type` 0) is not mentioned.
pub fn format_match(m: &Match, ports: &dyn Fn(u32) -> Option<String>) -> String {
    format(m.key(), m.mask(), false, ports)
}

/// A megaflow as `ofproto/trace` prints it after `Megaflow: `:
/// `recirc_id=0,eth,ip,in_port=1,nw_frag=no`.
pub fn format_megaflow(m: &Match, ports: &dyn Fn(u32) -> Option<String>) -> String {
    format(m.key(), m.mask(), true, ports)
}

/// A packet's key as `ofproto/trace` prints it after `Flow: `: all fields that a packet of its
/// protocols has, and metadata where it is not zero.
pub fn format_key(key: &Key, ports: &dyn Fn(u32) -> Option<String>) -> String {
    let mut mask = packet_mask(key);
    let m = &mut mask.0;
    // Contents of packets are shown whole, context only where there is some.
    for (m, k) in m.regs.iter_mut().zip(&key.regs) {
        if k.get() == 0 {
            m.set(0);
        }
    }
    for (m, k) in [
        (&mut m.recirc_id, key.recirc_id),
        (&mut m.dp_hash, key.dp_hash),
        (&mut m.in_port, key.in_port),
        (&mut m.actset_output, key.actset_output),
        (&mut m.skb_priority, key.skb_priority),
        (&mut m.pkt_mark, key.pkt_mark),
        (&mut m.conj_id, key.conj_id),
    ] {
        if k.get() == 0 {
            m.set(0);
        }
    }
    // Of a recirculated packet, as of a megaflow, OVS says that it has an Ethernet header.
    let recirculated = key.recirc_id.get() != 0;
    if key.packet_type.get() == 0 && !recirculated {
        m.packet_type.set(0);
    }
    if key.metadata.get() == 0 {
        m.metadata.set(0);
    }
    if key.tunnel == Tunnel::NONE {
        m.tunnel = Tunnel::NONE;
    }
    for field in [Field::CtState, Field::CtZone, Field::CtMark, Field::CtLabel] {
        if field.load(key) == 0 {
            field.clear(m);
        }
    }
    // OVS has these in the key, too, but does not show them.
    m.nd_reserved.set(0);
    m.nd_options_type = 0;
    format_as(key, &mask, recirculated, false, ports)
}

/// Makes the tunnel fields exact that a packet with these tunnel fields has.
fn tunnel_mask(key: &Tunnel, mask: &mut Tunnel) {
    let all = Mask::EXACT.0.tunnel;
    if !key.is_some() {
        // Without a tunnel there may be a key for one that the packet will go to.
        if key.id.get() != 0 {
            mask.id = all.id;
        }
        return;
    }
    *mask = all;
    mask.pad = [0; 3];
    mask.flags.set(Tunnel::ALL_FLAGS);
    if key.flags.get() & Tunnel::KEY == 0 {
        mask.id.set(0);
    }
    mask.present = key.present;
    mask.options = Tunnel::NONE.options;
    for n in (0..FIELDS).filter(|n| key.has_option(*n)) {
        mask.set_option(n, &Wide::ones(crate::tun_metadata::bytes(n)));
    }
    let raw = usize::from(key.options_len);
    mask.options.iter_mut().take(raw).for_each(|byte| *byte = u8::MAX);
}

/// Exact in every field that a packet with `key`'s types and protocols has, wildcarded in the
/// others: the least mask under which no packet of other contents looks like `key`.
pub fn packet_mask(key: &Key) -> Mask {
    let mut mask = Mask::WILDCARD;
    let all = Mask::EXACT.0;
    let m = &mut mask.0;
    m.regs = all.regs;
    m.metadata = all.metadata;
    m.recirc_id = all.recirc_id;
    m.dp_hash = all.dp_hash;
    m.in_port = all.in_port;
    m.actset_output = all.actset_output;
    m.skb_priority = all.skb_priority;
    m.pkt_mark = all.pkt_mark;
    m.conj_id = all.conj_id;
    m.ct_state = all.ct_state;
    m.ct_zone = all.ct_zone;
    m.ct_mark = all.ct_mark;
    m.ct_label = all.ct_label;
    tunnel_mask(&key.tunnel, &mut m.tunnel);
    if Prerequisite::Ct.holds(key) && key.ct_nw_proto != 0 {
        match key.dl_type.get() {
            ethertype::IPV4 => (m.ct_nw_src, m.ct_nw_dst) = (all.ct_nw_src, all.ct_nw_dst),
            ethertype::IPV6 => (m.ct_ipv6_src, m.ct_ipv6_dst) = (all.ct_ipv6_src, all.ct_ipv6_dst),
            _ => {}
        }
        if matches!(key.dl_type.get(), ethertype::IPV4 | ethertype::IPV6) {
            m.ct_nw_proto = all.ct_nw_proto;
            (m.ct_tp_src, m.ct_tp_dst) = (all.ct_tp_src, all.ct_tp_dst);
        }
    }
    m.packet_type = all.packet_type;
    // Without an Ethernet header, the packet type says what follows.
    if key.packet_type.get() == 0 {
        m.dl_dst = all.dl_dst;
        m.dl_src = all.dl_src;
        m.dl_type = all.dl_type;
        for (m, k) in m.vlans.iter_mut().zip(&key.vlans) {
            // Without a first tag there is no second; the lack of one counts too.
            m.tpid = all.vlans[0].tpid;
            m.tci = all.vlans[0].tci;
            if k.tci.get() == 0 {
                break;
            }
        }
    }
    match key.dl_type.get() {
        ethertype::IPV4 => {
            m.nw_src = all.nw_src;
            m.nw_dst = all.nw_dst;
        }
        ethertype::IPV6 => {
            m.ipv6_src = all.ipv6_src;
            m.ipv6_dst = all.ipv6_dst;
            m.ipv6_label.set(0xf_ffff);
        }
        ethertype::ARP | ethertype::RARP => {
            m.nw_src = all.nw_src;
            m.nw_dst = all.nw_dst;
            m.nw_proto = all.nw_proto;
            m.arp_sha = all.arp_sha;
            m.arp_tha = all.arp_tha;
            return mask;
        }
        // As in OVS, the fields of IP are set in the mask, too; they are zero.
        ethertype::NSH => m.nsh = all.nsh,
        t if ethertype::is_mpls(t) => {
            for (m, k) in m.mpls.iter_mut().zip(key.mpls) {
                m.set(u32::MAX);
                if packet::MplsEntry(k).is_bottom() {
                    break;
                }
            }
            return mask;
        }
        _ => return mask,
    }
    m.nw_frag = 3;
    m.nw_tos = all.nw_tos;
    m.nw_ttl = all.nw_ttl;
    m.nw_proto = all.nw_proto;
    if key.nw_frag & FRAG_LATER != 0 {
        return mask;
    }
    match key.nw_proto {
        ip_proto::TCP => m.tcp_flags.set(0x0fff),
        ip_proto::UDP | ip_proto::SCTP | ip_proto::ICMP => {}
        ip_proto::IGMP => m.igmp_group = all.igmp_group,
        ip_proto::ICMPV6 => {
            if matches!(key.tp_src.get(), 135 | 136) && key.tp_dst.get() == 0 {
                m.nd_target = all.nd_target;
                m.arp_sha = all.arp_sha;
                m.arp_tha = all.arp_tha;
                m.nd_reserved = all.nd_reserved;
                m.nd_options_type = all.nd_options_type;
            }
        }
        _ => return mask,
    }
    m.tp_src = all.tp_src;
    m.tp_dst = all.tp_dst;
    mask
}
