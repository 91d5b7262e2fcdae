// SPDX-License-Identifier: Apache-2.0
//! Datapath syntax, out.

use crate::extract::{DL_TYPE_NONE, FRAG_LATER};
use crate::field::flags::Flags;
use crate::field::value::{CHex, ethernet_text, frag_text, ipv6_address_text};
use crate::{Key, Mask, VLAN_CFI};
use packet::{MplsEntry, ethertype, ip_proto};
use std::fmt::{Display, Write};
use std::net::Ipv4Addr;

/// How much is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Also fields that are wildcarded, with their values and zero masks (`-m`).
    pub verbose: bool,
}

/// The fields inside the parentheses of one attribute, and whether any of them counts.
pub(super) struct Attribute {
    pub(super) text: String,
    verbose: bool,
    pub(super) counts: bool,
}

impl Attribute {
    pub(super) fn new(verbose: bool) -> Attribute {
        Attribute { text: String::new(), verbose, counts: false }
    }

    pub(super) fn put(&mut self, name: &str, value: impl Display, mask: Option<&dyn Display>) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        let _ = write!(self.text, "{name}={value}"); // a String takes all writes
        if let Some(m) = mask {
            let _ = write!(self.text, "/{m}");
        }
    }

    /// A word, or an attribute inside this one.
    pub(super) fn word(&mut self, word: &str) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(word);
    }

    /// One field: `value` as it is shown, the mask's bits and all bits, the mask as shown.
    pub(super) fn field(
        &mut self,
        name: &str,
        value: impl Display,
        mask: u128,
        all: u128,
        shown: &dyn Display,
    ) {
        let mask = mask & all;
        self.counts |= mask != 0;
        if mask == all {
            self.put(name, value, None);
        } else if mask != 0 || self.verbose {
            self.put(name, value, Some(shown));
        }
    }

    pub(super) fn dec(&mut self, name: &str, value: u32, mask: u32, all: u32) {
        self.field(name, value, mask.into(), all.into(), &CHex(mask & all));
    }

    pub(super) fn hex(&mut self, name: &str, value: u32, mask: u32, all: u32) {
        self.field(name, CHex(value), mask.into(), all.into(), &CHex(mask & all));
    }

    /// A byte of NSH.
    fn nsh_byte(&mut self, name: &str, value: u8, mask: u8) {
        self.counts |= mask != 0;
        match mask {
            0 => {}
            u8::MAX => self.put(name, value, None),
            _ => self.put(name, format_args!("{value:#04x}"), Some(&format_args!("{mask:#04x}"))),
        }
    }

    /// A number of 32 bits of NSH.
    fn nsh_word(&mut self, name: &str, value: u32, mask: u32) {
        self.counts |= mask != 0;
        match mask {
            0 => {}
            u32::MAX => self.put(name, format_args!("{value:#x}"), None),
            _ => self.put(name, format_args!("{value:#x}"), Some(&format_args!("{mask:#010x}"))),
        }
    }

    pub(super) fn ipv4(&mut self, name: &str, value: u32, mask: u32) {
        let shown = Ipv4Addr::from_bits(mask);
        self.field(name, Ipv4Addr::from_bits(value), mask.into(), u32::MAX.into(), &shown);
    }

    pub(super) fn ipv6(&mut self, name: &str, value: [u8; 16], mask: [u8; 16]) {
        let bits = u128::from_be_bytes(mask);
        let value = ipv6_address_text(u128::from_be_bytes(value));
        self.field(name, value, bits, u128::MAX, &ipv6_address_text(bits));
    }

    pub(super) fn ethernet(&mut self, name: &str, value: &[u8; 6], mask: &[u8; 6]) {
        let bits = crate::field::value::ethernet_value(*mask);
        self.field(name, ethernet_text(value), bits, (1 << 48) - 1, &ethernet_text(mask));
    }
}

/// Attributes joined by commas.
struct List {
    text: String,
    verbose: bool,
}

impl List {
    fn word(&mut self, word: &str) {
        if !self.text.is_empty() && !self.text.ends_with('(') {
            self.text.push(',');
        }
        self.text.push_str(word);
    }

    fn attribute(&mut self, name: &str, fill: impl FnOnce(&mut Attribute)) -> bool {
        let mut a = Attribute::new(self.verbose);
        fill(&mut a);
        let shown = a.counts || self.verbose;
        if shown {
            self.word(&format!("{name}({})", a.text));
        }
        shown
    }

    /// An attribute of a single number of 32 bits.
    fn number(&mut self, name: &str, value: u32, mask: u32) {
        self.wide(name, value.into(), mask.into(), u32::MAX.into());
    }

    /// An attribute of a single number that is exact under the mask `all`.
    fn wide(&mut self, name: &str, value: u128, mask: u128, all: u128) {
        if mask == all {
            self.word(&format!("{name}({})", CHex(value)));
        } else if mask != 0 || self.verbose {
            self.word(&format!("{name}({}/{})", CHex(value), CHex(mask)));
        }
    }
}

/// The flow `key` under `mask`. `key` may have bits outside `mask`: with [`Style::verbose`]
/// they are shown, as OVS shows the packet that made a megaflow. `ports` gives names to
/// datapath ports; without names, numbers are shown.
pub fn format(
    key: &Key,
    mask: &Mask,
    style: Style,
    ports: &dyn Fn(u32) -> Option<String>,
) -> String {
    let (k, m) = (key, &mask.0);
    let mut out = List { text: String::new(), verbose: style.verbose };
    out.number("skb_priority", k.skb_priority.get(), m.skb_priority.get());
    let body = match k.tunnel.is_some() {
        true => super::format_tunnel(&k.tunnel, Some(&m.tunnel), style.verbose),
        false => String::new(),
    };
    if !body.is_empty() {
        out.word(&format!("tunnel({body})"));
    }
    out.number("skb_mark", k.pkt_mark.get(), m.pkt_mark.get());
    connection(&mut out, k, m);
    out.number("recirc_id", k.recirc_id.get(), m.recirc_id.get());
    out.number("dp_hash", k.dp_hash.get(), m.dp_hash.get());
    let port = ports(k.in_port.get()).unwrap_or_else(|| k.in_port.to_string());
    if m.in_port.get() == u32::MAX {
        out.word(&format!("in_port({port})"));
    } else if m.in_port.get() != 0 || style.verbose {
        out.word(&format!("in_port({port}/{})", CHex(m.in_port.get())));
    }
    let typed = m.packet_type.get() != 0;
    out.attribute("packet_type", |a| {
        let (t, mask) = (k.packet_type.get(), m.packet_type.get());
        a.dec("ns", t >> 16, mask >> 16, 0xffff);
        a.hex("id", t & 0xffff, mask & 0xffff, 0xffff);
    });
    if k.packet_type.get() == 0 {
        let shown = out.attribute("eth", |a| {
            a.ethernet("src", &k.dl_src, &m.dl_src);
            a.ethernet("dst", &k.dl_dst, &m.dl_dst);
        });
        if !shown && !typed {
            out.word("eth()");
        }
    }
    let mut depth = 0;
    for (k, m) in k.vlans.iter().zip(&m.vlans) {
        let (tci, mask) = (k.tci.get(), m.tci.get());
        if tci == 0 {
            break;
        }
        let tpid = match k.tpid.get() {
            0 => ethertype::VLAN,
            t => t,
        };
        out.word(&format!("eth_type({tpid:#06x})"));
        vlan(&mut out, tci, mask);
        out.word("encap(");
        depth += 1;
    }
    let (dl_type, dl_type_mask) = (k.dl_type.get(), m.dl_type.get());
    if dl_type == DL_TYPE_NONE {
        if depth == 0 && (dl_type_mask != 0 || style.verbose) {
            out.word("eth_type(0/0xffff)");
        }
    } else if dl_type_mask == u16::MAX {
        out.word(&format!("eth_type({dl_type:#06x})"));
    } else if dl_type_mask != 0 || style.verbose {
        out.word(&format!("eth_type({dl_type:#06x}/{dl_type_mask:#06x})"));
    }
    payload(&mut out, k, m);
    for _ in 0..depth {
        out.text.push(')');
    }
    out.text
}

/// Writes the attributes of connections.
fn connection(out: &mut List, k: &Key, m: &Key) {
    // For OVS, the mask of ct_state has 32 bits, and is never exact.
    if out.verbose {
        out.wide("ct_state", k.ct_state.into(), m.ct_state.into(), u32::MAX.into());
    } else if m.ct_state != 0 {
        let flags = Flags::CT_STATE.signed(k.ct_state.into(), m.ct_state.into());
        out.word(&format!("ct_state({flags})"));
    }
    out.wide("ct_zone", k.ct_zone.get().into(), m.ct_zone.get().into(), u16::MAX.into());
    out.number("ct_mark", k.ct_mark.get(), m.ct_mark.get());
    let (label, mask) = (u128::from_be_bytes(k.ct_label), u128::from_be_bytes(m.ct_label));
    out.wide("ct_label", label, mask, u128::MAX);
    let is_v4 = m.ct_nw_src.get() != 0 || m.ct_nw_dst.get() != 0;
    let is_v6 = m.ct_ipv6_src != [0; 16] || m.ct_ipv6_dst != [0; 16];
    let has_rest = m.ct_nw_proto != 0 || m.ct_tp_src.get() != 0 || m.ct_tp_dst.get() != 0;
    let rest = |out: &mut Attribute, ports: [&str; 2]| {
        out.dec("proto", k.ct_nw_proto.into(), m.ct_nw_proto.into(), 0xff);
        let [src, dst] = ports;
        out.dec(src, k.ct_tp_src.get().into(), m.ct_tp_src.get().into(), 0xffff);
        out.dec(dst, k.ct_tp_dst.get().into(), m.ct_tp_dst.get().into(), 0xffff);
    };
    if is_v6 || !is_v4 && has_rest && k.dl_type.get() == ethertype::IPV6 {
        out.attribute("ct_tuple6", |a| {
            a.ipv6("src", k.ct_ipv6_src, m.ct_ipv6_src);
            a.ipv6("dst", k.ct_ipv6_dst, m.ct_ipv6_dst);
            rest(a, ["src_port", "dst_port"]);
        });
    } else if is_v4 || has_rest {
        out.attribute("ct_tuple4", |a| {
            a.ipv4("src", k.ct_nw_src.get(), m.ct_nw_src.get());
            a.ipv4("dst", k.ct_nw_dst.get(), m.ct_nw_dst.get());
            rest(a, ["tp_src", "tp_dst"]);
        });
    }
}

fn vlan(out: &mut List, tci: u16, mask: u16) {
    if mask == 0 && !out.verbose {
        return;
    }
    let verbose = out.verbose;
    out.attribute("vlan", |a| {
        a.counts = true;
        for (name, shift, all) in [("vid", 0, 0x0fff), ("pcp", 13, 7)] {
            let (value, mask) = (tci >> shift & all, mask >> shift & all);
            if mask == all {
                a.put(name, value, None);
            } else if verbose || value != 0 || mask != 0 {
                a.put(name, value, Some(&format_args!("{mask:#x}")));
            }
        }
        if tci & VLAN_CFI == 0 {
            a.put("cfi", 0, None);
        }
    });
}

/// Writes the attributes of the headers after the Ethernet type.
fn payload(out: &mut List, k: &Key, m: &Key) {
    match k.dl_type.get() {
        ethertype::IPV4 => {
            out.attribute("ipv4", |a| {
                a.ipv4("src", k.nw_src.get(), m.nw_src.get());
                a.ipv4("dst", k.nw_dst.get(), m.nw_dst.get());
                a.dec("proto", k.nw_proto.into(), m.nw_proto.into(), 0xff);
                a.hex("tos", k.nw_tos.into(), m.nw_tos.into(), 0xff);
                a.dec("ttl", k.nw_ttl.into(), m.nw_ttl.into(), 0xff);
                frag(a, k, m);
            });
            transport(out, k, m);
        }
        ethertype::IPV6 => {
            out.attribute("ipv6", |a| {
                a.ipv6("src", k.ipv6_src, m.ipv6_src);
                a.ipv6("dst", k.ipv6_dst, m.ipv6_dst);
                a.hex("label", k.ipv6_label.get(), m.ipv6_label.get(), 0xf_ffff);
                a.dec("proto", k.nw_proto.into(), m.nw_proto.into(), 0xff);
                a.hex("tclass", k.nw_tos.into(), m.nw_tos.into(), 0xff);
                a.dec("hlimit", k.nw_ttl.into(), m.nw_ttl.into(), 0xff);
                frag(a, k, m);
            });
            transport(out, k, m);
        }
        ethertype::ARP | ethertype::RARP => {
            out.attribute("arp", |a| {
                a.ipv4("sip", k.nw_src.get(), m.nw_src.get());
                a.ipv4("tip", k.nw_dst.get(), m.nw_dst.get());
                a.dec("op", k.nw_proto.into(), m.nw_proto.into(), 0xff);
                a.ethernet("sha", &k.arp_sha, &m.arp_sha);
                a.ethernet("tha", &k.arp_tha, &m.arp_tha);
            });
        }
        ethertype::NSH => nsh(out, k, m),
        t if ethertype::is_mpls(t) => mpls(out, k, m),
        _ => {}
    }
}

/// As in OVS, fields of wildcards are left out also where others are shown with their masks.
fn nsh(out: &mut List, k: &Key, m: &Key) {
    let (k, m) = (&k.nsh, &m.nsh);
    out.attribute("nsh", |a| {
        a.nsh_byte("flags", k.flags, m.flags);
        a.nsh_byte("ttl", k.ttl, m.ttl);
        a.nsh_byte("mdtype", k.mdtype, m.mdtype);
        a.nsh_byte("np", k.np, m.np);
        let (path, mask) = (k.path.get(), m.path.get());
        let all_of_path = if mask >> 8 == 0xff_ffff { u32::MAX } else { mask >> 8 };
        a.nsh_word("spi", path >> 8, all_of_path);
        a.nsh_byte("si", path as u8, mask as u8); // the low byte
        for (name, (k, m)) in ["c1", "c2", "c3", "c4"].iter().zip(k.context.iter().zip(&m.context))
        {
            a.nsh_word(name, k.get(), m.get());
        }
    });
}

fn frag(a: &mut Attribute, k: &Key, m: &Key) {
    if m.nw_frag & 3 != 0 {
        a.counts = true;
        a.put("frag", frag_text(k.nw_frag, 3), None);
    }
}

fn mpls(out: &mut List, k: &Key, m: &Key) {
    let mut n = k
        .mpls
        .iter()
        .position(|e| MplsEntry(*e).is_bottom())
        .map_or(k.mpls.len(), |bottom| bottom + 1);
    // In a key without the bits outside its mask, the bottom may not show.
    while n > 1
        && k.mpls
            .get(n - 1)
            .zip(m.mpls.get(n - 1))
            .is_some_and(|(k, m)| k.get() == 0 && m.get() == 0)
    {
        n -= 1;
    }
    out.attribute("mpls", |a| {
        for (k, m) in k.mpls.iter().zip(&m.mpls).take(n) {
            let (e, mask) = (MplsEntry(*k), MplsEntry(*m));
            a.counts |= m.get() != 0;
            if m.get() == u32::MAX {
                a.put("label", e.label(), None);
                a.put("tc", e.tc(), None);
                a.put("ttl", e.ttl(), None);
                a.put("bos", u8::from(e.is_bottom()), None);
            } else {
                a.put("label", e.label(), Some(&format_args!("{:#x}", mask.label())));
                a.put("tc", e.tc(), Some(&format_args!("{:x}", mask.tc())));
                a.put("ttl", e.ttl(), Some(&format_args!("{:#x}", mask.ttl())));
                a.put("bos", u8::from(e.is_bottom()), Some(&u8::from(mask.is_bottom())));
            }
        }
    });
}

fn transport(out: &mut List, k: &Key, m: &Key) {
    if k.nw_frag & FRAG_LATER != 0 {
        return;
    }
    let (src, dst) = ((k.tp_src.get(), m.tp_src.get()), (k.tp_dst.get(), m.tp_dst.get()));
    let ports = |out: &mut List, name: &str| {
        out.attribute(name, |a| {
            a.dec("src", src.0.into(), src.1.into(), 0xffff);
            a.dec("dst", dst.0.into(), dst.1.into(), 0xffff);
        });
    };
    let icmp = |out: &mut List, name: &str| {
        out.attribute(name, |a| {
            a.dec("type", src.0.into(), src.1.into(), 0xff);
            a.dec("code", dst.0.into(), dst.1.into(), 0xff);
        });
    };
    match (k.nw_proto, k.dl_type.get()) {
        (ip_proto::TCP, _) => {
            ports(out, "tcp");
            if m.tcp_flags.get() != 0 {
                let flags = Flags::TCP.text(k.tcp_flags.get(), m.tcp_flags.get());
                out.word(&format!("tcp_flags({flags})"));
            }
        }
        (ip_proto::UDP, _) => ports(out, "udp"),
        (ip_proto::SCTP, _) => ports(out, "sctp"),
        (ip_proto::ICMP, ethertype::IPV4) => icmp(out, "icmp"),
        (ip_proto::ICMPV6, ethertype::IPV6) => {
            icmp(out, "icmpv6");
            let exact = src.1 & 0xff == 0xff && dst.1 & 0xff == 0xff;
            if exact && matches!(src.0, 135 | 136) && dst.0 == 0 {
                out.attribute("nd", |a| {
                    a.ipv6("target", k.nd_target, m.nd_target);
                    a.ethernet("sll", &k.arp_sha, &m.arp_sha);
                    a.ethernet("tll", &k.arp_tha, &m.arp_tha);
                });
                if m.nd_reserved.get() != 0 || m.nd_options_type != 0 {
                    out.attribute("nd_ext", |a| {
                        a.hex("nd_reserved", k.nd_reserved.get(), m.nd_reserved.get(), u32::MAX);
                        let kind = (k.nd_options_type.into(), m.nd_options_type.into());
                        a.dec("nd_options_type", kind.0, kind.1, 0xff);
                    });
                }
            }
        }
        _ => {}
    }
}
