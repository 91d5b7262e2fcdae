// SPDX-License-Identifier: Apache-2.0
//! Tunnels: packets that came out of one, output to one, and packets that go into one of the host's.
//!
//! # Output
//! The outer headers are part of the actions (`tnl_push`), so translation finds the route and the
//! next hop's address itself, and then goes on with the outer frame through the bridge of the device
//! that the route names. A change of a route or a neighbour is a change of the snapshot: megaflows
//! follow it. A packet whose next hop has no known address is dropped, and its effect asks for the
//! address.
//!
//! A device of the host that is a port of no bridge has a hidden port in the datapath. The outer frame
//! leaves by it as it is, and the kernel asks for the next hop's address. A packet that comes in by
//! the hidden port comes out of a tunnel, or is dropped.
//!
//! # Soundness
//! The outer frame's fields come from options, from fields that are exact by then, and from tables.
//! So the bits that the next bridge reads of it need no mask, except for those that are still the
//! packet's own: mark and priority.

use super::context::Context;
use super::finish::{initial_mask, is_ip};
use super::output::pipeline_fields;
use crate::effect::{Direction, Effect};
use crate::snapshot::{BridgeIndex, BridgeView, PortView, Snapshot};
use crate::trace::Kind;
use crate::translation::Translation;
use crate::tunnel::{Config, HostDevice, OrFlow, Outer, Output, PacketTypeMode, Tos, Ttl};
use ::tunnel::{Header, HeaderParts, Metadata, OuterIp, Payload, Request, flags};
use clock::OncePer;
use datapath::{Action as DpAction, DropReason, PortNo as DpPort, TunnelKind};
use flow::tun_metadata::Wide;
use flow::{Key, Mask, Tunnel, Vlan};
use packet::{Mac, ethertype, ip_proto};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use underlay::{Found, Query, Underlay, address_text};

/// Bits of the octet of DSCP and ECN (RFC 3168, 5).
pub(super) const ECN: u8 = 0x03;
const ECN_CE: u8 = 0x03;
const ECN_ECT_0: u8 = 0x02;
const DSCP: u8 = 0xfc;
/// ICMPv6 type of a neighbour advertisement (RFC 4861, 4.4).
const NEIGHBOUR_ADVERTISEMENT: u16 = 136;
/// Packet type of Ethernet frames, and the namespace of Ethernet types (OpenFlow 1.5.1, 7.2.3.11).
const ETHERNET: u32 = 0;
const ETHERTYPES: u32 = 1 << 16;

/// Limits the rate of the warning about congestion marks on packets that may have none.
static ECN_WARNING: OncePer = OncePer::new(Duration::from_secs(5));

/// The outer header of the packet as received.
#[derive(Clone, Copy)]
pub(super) struct ReceivedOuter {
    destination: IpAddr,
    tos: u8,
}

impl ReceivedOuter {
    /// Returns that of `key`; `None` for a packet that came out of no tunnel.
    pub(super) fn of(key: &Key) -> Option<ReceivedOuter> {
        let tunnel = &key.tunnel;
        tunnel
            .is_some()
            .then(|| ReceivedOuter { destination: tunnel.destination(), tos: tunnel.tos })
    }
}

/// Returns the parts of a datapath's key that decide which vport the packet belongs to; `None` for a
/// packet that came out of no tunnel.
pub(super) fn outer_of(key: &Key) -> Option<Outer> {
    let tunnel = &key.tunnel;
    let destination = tunnel.is_some().then(|| tunnel.destination())?;
    let unspecified = match destination {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    Some(Outer {
        backing: DpPort(key.in_port.get()),
        key: tunnel.id.get(),
        source: tunnel.source().unwrap_or(unspecified),
        destination,
        is_ethernet: key.packet_type.get() == ETHERNET,
    })
}

/// Makes the bits exact on which the vport of a received packet, and its ECN, depend. Its TTL and
/// its source port do not count: they would make a megaflow each.
pub(super) fn mask_received(key: &Key, mask: &mut Mask) {
    let (tunnel, m) = (&key.tunnel, &mut mask.0);
    if !tunnel.is_some() {
        return;
    }
    m.tunnel.id.set(u64::MAX);
    if tunnel.dst.get() != 0 {
        m.tunnel.src.set(u32::MAX);
        m.tunnel.dst.set(u32::MAX);
    } else {
        m.tunnel.ipv6_src = [0xff; 16];
        m.tunnel.ipv6_dst = [0xff; 16];
    }
    m.tunnel.flags.set(Tunnel::DONT_FRAGMENT | Tunnel::CSUM | Tunnel::KEY);
    m.tunnel.tos = u8::MAX;
    if is_ip(key) && tunnel.tos & ECN == ECN_CE {
        m.nw_tos |= ECN;
    }
}

/// Returns `tunnel` without the fields that no table matches: their values differ between the packets
/// of a megaflow.
fn openflow_fields(tunnel: &Tunnel) -> Tunnel {
    let mut fields = *tunnel;
    (fields.ttl, fields.tos) = (0, 0);
    (fields.tp_src, fields.tp_dst) = (0.into(), 0.into());
    fields
}

/// Returns the translation of a packet that came out of a tunnel and is no vport's. One megaflow drops
/// all packets with its key, unless a vport has the key and another remote address.
pub(crate) fn without_vport(snapshot: &Snapshot, key: &Key) -> Translation {
    let mut mask = initial_mask(key);
    let received = std::mem::replace(&mut mask.0.tunnel, Tunnel::NONE);
    let m = &mut mask.0.tunnel;
    m.id = received.id;
    // A destination distinguishes packets of tunnels from others.
    (m.dst, m.ipv6_dst) = (received.dst, received.ipv6_dst);
    let backing = DpPort(key.in_port.get());
    if snapshot.tunnels.vports.has_key(backing, key.tunnel.id.get()) {
        (m.src, m.ipv6_src) = (received.src, received.ipv6_src);
    }
    let actions = vec![DpAction::Drop(DropReason::InvalidTunnelPort)];
    Translation { actions, mask, ..Translation::default() }
}

/// The device, the next hop and the addresses of an outer frame.
struct Path<'a> {
    exit: Exit<'a>,
    source: IpAddr,
    next_hop: Mac,
    /// Bytes of the longest IP packet that it carries.
    mtu: Option<u16>,
}

/// The device by which outer frames leave.
#[derive(Clone, Copy)]
enum Exit<'a> {
    /// A port of a bridge: the frame goes through the tables of that bridge.
    Bridge(BridgeIndex, &'a BridgeView, &'a PortView),
    /// A device of the host.
    Host(&'a HostDevice),
    /// The destination is an address of the host itself, at this device.
    Own(&'a HostDevice),
}

impl<'a> Exit<'a> {
    /// Returns the exit by which a route leads; `None` when no port has the route's device.
    fn of(snapshot: &'a Snapshot, route: &Found) -> Option<Exit<'a>> {
        if let Some((index, bridge, port)) = port_of_device(snapshot, &route.device) {
            return Some(Exit::Bridge(index, bridge, port));
        }
        let host = snapshot.tunnels.hosts.named(&route.device)?;
        Some(if route.is_local { Exit::Own(host) } else { Exit::Host(host) })
    }

    fn device(&self) -> &'a str {
        match *self {
            Exit::Bridge(_, _, port) => &port.name,
            Exit::Host(host) | Exit::Own(host) => &host.name,
        }
    }

    /// Returns the name under which the device's neighbours are known.
    fn neighbours(&self) -> &'a str {
        match *self {
            Exit::Bridge(_, bridge, _) => &bridge.name,
            Exit::Host(host) | Exit::Own(host) => &host.name,
        }
    }

    fn mac(&self) -> [u8; 6] {
        match *self {
            Exit::Bridge(_, _, port) => port.mac,
            Exit::Host(host) | Exit::Own(host) => host.mac,
        }
    }

    fn out_port(&self) -> Option<DpPort> {
        match *self {
            Exit::Bridge(_, _, port) => port.dp_port,
            Exit::Host(host) | Exit::Own(host) => Some(host.number),
        }
    }
}

/// Returns the translation of a packet that came in by a device of the host: it comes out of a
/// tunnel, or is dropped. `None`: it came in by another port.
pub(crate) fn from_host(snapshot: &Snapshot, key: &Key) -> Option<Translation> {
    let is_first_lookup = key.recirc_id.get() == 0 && !key.tunnel.is_some();
    let host = snapshot.tunnels.hosts.at(DpPort(key.in_port.get())).filter(|_| is_first_lookup)?;
    let mut mask = Mask::WILDCARD;
    mask.0.dl_dst = [0xff; 6];
    mask.0.dl_type.set(u16::MAX);
    let listening = &snapshot.tunnels.listening;
    let backing = match key.dl_dst == host.mac {
        true => listening.lookup_at_host(key, &mut mask),
        false => None,
    };
    let action = backing.map_or(DpAction::Drop(DropReason::NoTunnel), DpAction::TunnelPop);
    Some(Translation { actions: vec![action], mask, ..Translation::default() })
}

/// Takes the next hops' addresses in the headers that `actions` push for those of neighbours that are
/// not known, where the path is still the one that the headers are for. An earlier daemon knew them.
pub(crate) fn suppose_neighbours(snapshot: &Snapshot, actions: &[DpAction]) {
    let Some(underlay) = &snapshot.tunnels.underlay else { return };
    for action in actions {
        if let DpAction::TunnelPush { header, .. } = action {
            suppose_neighbour(snapshot, underlay, header.parts());
        } else if let DpAction::Clone(nested) = action {
            suppose_neighbours(snapshot, nested);
        }
    }
}

fn suppose_neighbour(snapshot: &Snapshot, underlay: &Underlay, header: &HeaderParts) {
    let (source, destination) = match header.ip {
        OuterIp::V4 { src, dst, .. } => (IpAddr::V4(src), IpAddr::V4(dst)),
        OuterIp::V6 { src, dst, .. } => (IpAddr::V6(src), IpAddr::V6(dst)),
    };
    let query = Query { destination, source: Some(source), mark: 0 };
    let Some(found) = underlay.lookup(&query) else { return };
    let Some(exit) = Exit::of(snapshot, &found) else { return };
    if exit.mac() == header.eth_src {
        let hop = found.neighbour(destination);
        underlay.suppose(exit.neighbours(), hop, Mac(header.eth_dst));
    }
}

impl<'a> Context<'a> {
    /// Gives the packet the congestion mark of its outer header (RFC 6040, 4.2). Returns false for a
    /// packet that has the mark and may not: it is dropped.
    pub(super) fn decapsulate_ecn(&mut self) -> bool {
        let marked = self.received.is_some_and(|outer| outer.tos & ECN == ECN_CE);
        if !marked || !is_ip(&self.key) {
            return true;
        }
        if self.key.nw_tos & ECN == 0 {
            if ECN_WARNING.is_due(self.now) {
                tracing::warn!(
                    target: "tunnel",
                    "dropping tunnel packet marked ECN CE but is not ECN capable"
                );
            }
            self.emit(DpAction::Drop(DropReason::Congestion));
            return false;
        }
        self.is_congestion_marked = true;
        self.key.nw_tos |= ECN_CE;
        true
    }

    /// Counts a packet from a vport.
    pub(super) fn credit_vport(&mut self) {
        if let Some(port) = self.port(self.in_port()).filter(|p| p.tunnel.is_some()) {
            self.effect(|| Effect::VirtualPort(Arc::clone(&port.virtual_stats), Direction::Rx));
        }
    }

    /// Returns the fields that a frozen pipeline restores, and whether the tunnel fields are among
    /// them. They are when they are no longer those with which the packet came: then all packets of
    /// the megaflow must have come with the same ones.
    pub(super) fn frozen_fields(&mut self) -> (Key, bool) {
        let mut fields = pipeline_fields(&self.key);
        let is_received = self.received.is_some() && !self.is_tunnel_replaced;
        let tunnel = openflow_fields(&self.key.tunnel);
        let is_changed = tunnel != openflow_fields(&self.original_tunnel);
        let is_tunnel_set = is_changed || self.is_tunnel_replaced;
        if is_tunnel_set {
            fields.tunnel = tunnel;
            if is_received {
                self.mask_openflow_fields();
            }
        }
        (fields, is_tunnel_set)
    }

    /// Makes all received fields exact that OpenFlow has.
    fn mask_openflow_fields(&mut self) {
        let m = &mut self.mask.0.tunnel;
        let exact = Mask::EXACT.0.tunnel;
        let (options, present) = (m.options, m.present.get());
        let kept = (m.ttl, m.tos, m.tp_src, m.tp_dst);
        *m = exact;
        (m.ttl, m.tos, m.tp_src, m.tp_dst) = kept;
        (m.options, m.options_len) = (options, 0);
        m.present.set(present);
        self.expose_options();
    }

    /// Makes all options of Geneve exact that the bridge knows.
    fn expose_options(&mut self) {
        let table = &self.bridge.tlv_table;
        let m = &mut self.mask.0.tunnel;
        m.present.set(m.present.get() | table.fields());
        for (n, mapping) in table.iter() {
            m.set_option(n, &Wide::ones(mapping.bytes.into()));
        }
    }

    /// Gives a packet from a layer-3 vport the Ethernet header with which the bridge sees it.
    pub(super) fn enter_layer3(&mut self) {
        let mode = self.port(self.in_port()).and_then(|p| p.tunnel.as_ref()).map(|c| c.mode);
        if mode == Some(PacketTypeMode::LegacyL3) && self.key.packet_type.get() != ETHERNET {
            self.add_empty_ethernet();
        }
    }

    /// Gives a packet without an Ethernet header one whose addresses are zero.
    fn add_empty_ethernet(&mut self) {
        self.key.packet_type.set(ETHERNET);
        (self.key.dl_src, self.key.dl_dst) = ([0; 6], [0; 6]);
    }

    /// Outputs to a vport.
    pub(super) fn output_tunnel(
        &mut self,
        port: &'a PortView,
        config: &Config,
        truncate: Option<u32>,
    ) {
        let Some(backing) = port.dp_port else { return };
        let saved = (self.key.tunnel, self.key.nw_tos, self.key.packet_type);
        let saved_ethernet = (self.key.dl_src, self.key.dl_dst, self.key.dl_type, self.key.vlans);
        self.leave_layer2(config);
        self.outer_fields(config);
        // A packet that came out of no tunnel has no destination, as one whose flow sets none.
        let none = Tunnel::NONE.destination();
        let received = self.received.map_or(none, |outer| outer.destination);
        let is_own = received == self.key.tunnel.destination();
        if is_own {
            self.report(Kind::Warning, || "Not tunneling to our own address".to_string());
        } else {
            self.effect(|| Effect::VirtualPort(Arc::clone(&port.virtual_stats), Direction::Tx));
            match self.snapshot.tunnels.output {
                Output::Push => {
                    self.report(Kind::Detail, || "output to native tunnel".to_string());
                    self.commit();
                    self.push_headers(config, backing, truncate);
                }
                Output::Set => {
                    self.report(Kind::Detail, || "output to kernel tunnel".to_string());
                    if self.commit_tunnel(config) {
                        self.commit();
                        self.sample_output(backing);
                        if let Some(max_len) = truncate {
                            self.emit(DpAction::Trunc(max_len));
                        }
                        self.emit(DpAction::Output(backing));
                    }
                }
            }
        }
        let refused = self.key.tunnel;
        (self.key.tunnel, self.key.nw_tos, self.key.packet_type) = saved;
        (self.key.dl_src, self.key.dl_dst, self.key.dl_type, self.key.vlans) = saved_ethernet;
        if is_own {
            self.key.tunnel = refused; // the packet keeps the fields, as in Open vSwitch
        }
    }

    /// Takes the Ethernet header off for a layer-3 vport. [`Context::output_port`] keeps packets without
    /// one from layer-2 vports.
    fn leave_layer2(&mut self, config: &Config) {
        let is_ethernet = self.key.packet_type.get() == ETHERNET;
        match config.mode {
            PacketTypeMode::LegacyL3 if is_ethernet => {
                self.pending = None; // a header that is not there yet
                self.expose_vlans(); // each tag is taken off
                self.key.packet_type.set(ETHERTYPES | u32::from(self.key.dl_type.get()));
                self.key.vlans = [Vlan::default(); flow::VLANS];
            }
            PacketTypeMode::LegacyL2 | PacketTypeMode::LegacyL3 | PacketTypeMode::Aware => {}
        }
    }

    /// Sets the tunnel fields with which the packet leaves by a vport.
    fn outer_fields(&mut self, config: &Config) {
        self.mask_forwarded(config);
        let is_ip = is_ip(&self.key);
        let inner_tos = self.key.nw_tos;
        if is_ip {
            let m = &mut self.mask.0;
            m.nw_tos |= ECN;
            if config.tos == Tos::Inherit {
                m.nw_tos |= DSCP;
            }
            if config.ttl == Ttl::Inherit {
                m.nw_ttl = u8::MAX;
            }
        }
        let inner_ttl = self.key.nw_ttl;
        let t = &mut self.key.tunnel;
        if let Some(OrFlow::Fixed(address)) = config.local {
            t.set_source(Some(address));
        } else if config.local.is_none() {
            t.set_source(None);
        }
        if let OrFlow::Fixed(address) = config.remote {
            t.set_destination(address);
        }
        t.tp_dst.set(config.port);
        match config.out_key {
            None => t.id.set(0),
            Some(OrFlow::Fixed(key)) => t.id.set(key),
            Some(OrFlow::Flow) => {}
        }
        t.ttl = match config.ttl {
            Ttl::Inherit if is_ip => inner_ttl,
            Ttl::Inherit => crate::tunnel::DEFAULT_TTL,
            Ttl::Fixed(ttl) => ttl,
        };
        t.tos = match config.tos {
            Tos::Inherit if is_ip => inner_tos & DSCP,
            Tos::Inherit => 0,
            Tos::Fixed(tos) => tos,
        };
        if is_ip {
            t.tos |= if inner_tos & ECN == ECN_CE { ECN_ECT_0 } else { inner_tos & ECN };
        }
        let mut flags = t.flags.get() & Tunnel::OPENFLOW_FLAGS;
        flags |= if config.dont_fragment { Tunnel::DONT_FRAGMENT } else { 0 };
        flags |= if config.checksum { Tunnel::CSUM } else { 0 };
        flags |= if config.out_key.is_some() { Tunnel::KEY } else { 0 };
        t.flags.set(flags);
        let erspan = &config.erspan;
        t.erspan_ver = erspan.version.fixed().unwrap_or(t.erspan_ver);
        t.erspan_idx.set(erspan.index.fixed().unwrap_or(t.erspan_idx.get()));
        t.erspan_dir = erspan.direction.fixed().unwrap_or(t.erspan_dir);
        t.erspan_hwid = erspan.hardware_id.fixed().unwrap_or(t.erspan_hwid);
        if let Some(mark) = config.egress_mark {
            self.key.pkt_mark.set(mark);
            self.mask.0.pkt_mark.set(u32::MAX);
        }
    }

    /// Makes the received fields exact that leave again by a vport of this kind, unless the options
    /// replace them.
    fn mask_forwarded(&mut self, config: &Config) {
        if self.received.is_none() {
            return; // the fields are zero, or set by actions
        }
        let m = &mut self.mask.0.tunnel;
        match config.kind {
            TunnelKind::Geneve => {
                m.flags.set(m.flags.get() | Tunnel::OAM);
                self.expose_options();
            }
            TunnelKind::Vxlan if config.extensions.gbp => {
                m.gbp_id.set(u16::MAX);
                m.gbp_flags = u8::MAX;
            }
            TunnelKind::Erspan | TunnelKind::Ip6Erspan => {
                let all = Mask::EXACT.0.tunnel;
                let erspan = &config.erspan;
                if erspan.version.is_flow() {
                    m.erspan_ver = all.erspan_ver;
                }
                if erspan.index.is_flow() {
                    m.erspan_idx = all.erspan_idx;
                }
                if erspan.direction.is_flow() {
                    m.erspan_dir = all.erspan_dir;
                }
                if erspan.hardware_id.is_flow() {
                    m.erspan_hwid = all.erspan_hwid;
                }
            }
            TunnelKind::Gtpu => (m.gtpu_flags, m.gtpu_msgtype) = (u8::MAX, u8::MAX),
            TunnelKind::Vxlan
            | TunnelKind::Gre
            | TunnelKind::Ip6Gre
            | TunnelKind::Bareudp
            | TunnelKind::Lisp
            | TunnelKind::Srv6
            | TunnelKind::Stt => {}
        }
    }
}

impl<'a> Context<'a> {
    /// Emits `set(tunnel(...))` when the datapath's packet has other tunnel fields. Returns false
    /// when no header can carry them.
    fn commit_tunnel(&mut self, config: &Config) -> bool {
        let Some(tunnel) = self.sent_fields(config) else { return false };
        if tunnel != self.base.tunnel {
            self.base.tunnel = tunnel;
            self.emit(DpAction::SetTunnel(Box::new(tunnel)));
        }
        true
    }

    /// Returns the tunnel fields in a datapath's form, without those that the headers of a vport
    /// with these options do not have; `None` when there are more options of Geneve than a header
    /// can carry.
    fn sent_fields(&mut self, config: &Config) -> Option<Tunnel> {
        let kind = config.kind;
        let mut t = self.key.tunnel;
        if kind != TunnelKind::Vxlan || !config.extensions.gbp {
            (t.gbp_id, t.gbp_flags) = (0.into(), 0);
        }
        if !matches!(kind, TunnelKind::Erspan | TunnelKind::Ip6Erspan) {
            (t.erspan_ver, t.erspan_idx, t.erspan_dir, t.erspan_hwid) = (0, 0.into(), 0, 0);
        }
        if kind != TunnelKind::Gtpu {
            (t.gtpu_flags, t.gtpu_msgtype) = (0, 0);
        }
        let options = match kind == TunnelKind::Geneve {
            true => self.bridge.tlv_table.encode(&t).0,
            false => Vec::new(),
        };
        t.present.set(0);
        t.options = Tunnel::NONE.options;
        t.options_len = 0;
        if !t.set_raw_options(&options) {
            self.report(Kind::Warning, || "tunnel options do not fit the header".to_string());
            return None;
        }
        Some(t)
    }

    /// Emits `tnl_push`, and what the bridge underneath does with the outer frame.
    fn push_headers(&mut self, config: &Config, backing: DpPort, truncate: Option<u32>) {
        let Some(tunnel) = self.sent_fields(config) else { return };
        let Some(path) = self.path(&tunnel) else { return };
        let Some(header) = self.header(config, &tunnel, &path) else { return };
        let Some(out_port) = path.exit.out_port() else { return };
        let frame = self.outer_frame(&header, &tunnel, &path);
        let added = header.bytes().len() as u64;
        let push =
            DpAction::TunnelPush { header: Arc::new(header), tunnel_port: backing, out_port };

        let saved = (self.key, self.base, self.mask, self.was_mpls, self.is_mpls_endless);
        let saved_state = (self.hashed, self.irreversible);
        let effects = std::mem::take(&mut self.effects);
        (self.key, self.base, self.mask) = (frame, frame, Mask::WILDCARD);
        (self.was_mpls, self.is_mpls_endless, self.hashed) = (false, false, false);
        let inner = self.nested(|ctx| {
            if let Some(max_len) = truncate {
                ctx.emit(DpAction::Trunc(max_len));
            }
            ctx.emit(push);
            match path.exit {
                Exit::Bridge(index, bridge, port) => ctx.in_bridge(index, bridge, port.number),
                Exit::Host(host) => ctx.emit(DpAction::Output(host.number)),
                Exit::Own(_) => {
                    let listening = &ctx.snapshot.tunnels.listening;
                    let backing = listening.lookup_at_host(&frame, &mut Mask::WILDCARD.clone());
                    let none = DpAction::Drop(DropReason::NoTunnel);
                    ctx.emit(backing.map_or(none, DpAction::TunnelPop));
                }
            }
        });
        let after = std::mem::replace(&mut self.effects, effects);
        let outer_mask = self.mask;
        (self.key, self.base, self.mask, self.was_mpls, self.is_mpls_endless) = saved;
        (self.hashed, self.irreversible) = saved_state;
        // These fields of the outer frame are the packet's own.
        let m = &mut self.mask.0;
        m.pkt_mark.set(m.pkt_mark.get() | outer_mask.0.pkt_mark.get());
        m.skb_priority.set(m.skb_priority.get() | outer_mask.0.skb_priority.get());
        if !after.is_empty() {
            self.effect(|| Effect::Encapsulated { added, effects: after });
        }
        let own = 1 + usize::from(truncate.is_some());
        if inner.len() > own {
            self.sample_pushed(backing);
            self.emit(DpAction::Clone(inner));
        }
    }

    /// Finds the way of a packet with these tunnel fields; `None` when there is none yet.
    fn path(&mut self, tunnel: &Tunnel) -> Option<Path<'a>> {
        let snapshot = self.snapshot;
        let destination = tunnel.destination();
        let underlay = snapshot.tunnels.underlay.as_ref();
        // A mark decides only where a route or a rule names one.
        let mut mark = 0;
        if snapshot.tunnels.routes_by_mark {
            self.mask.0.pkt_mark.set(u32::MAX);
            mark = self.key.pkt_mark.get();
        }
        let query = Query { destination, source: tunnel.source(), mark };
        let found = underlay.and_then(|underlay| Some((underlay, underlay.lookup(&query)?)));
        let place = found.and_then(|(underlay, found)| {
            let exit = Exit::of(snapshot, &found)?;
            Some((underlay, found, exit))
        });
        let Some((underlay, found, exit)) = place else {
            self.report(Kind::Warning, || "native tunnel routing failed".to_string());
            return None;
        };
        let hop = found.neighbour(destination);
        let shown = address_text(hop);
        self.report(Kind::Detail, || format!("tunneling to {shown} via {}", exit.device()));
        let mac = exit.mac();
        if mac == [0; 6] {
            self.report(Kind::Warning, || {
                "tunnel output device lacks Ethernet address".to_string()
            });
            return None;
        }
        let source = found.source;
        if let Exit::Own(_) = exit {
            self.report(Kind::Detail, || "tunneling to this host".to_string());
            return Some(Path { exit, source, next_hop: Mac(mac), mtu: None });
        }
        let Some(next_hop) = underlay.neighbour(exit.neighbours(), hop) else {
            self.solicit(underlay, &found, hop, exit);
            return None;
        };
        if underlay.is_supposed(exit.neighbours(), hop) {
            self.solicit(underlay, &found, hop, exit);
        }
        let device: Arc<str> = Arc::from(exit.neighbours());
        self.effect(|| Effect::UseNeighbour {
            underlay: Arc::clone(underlay),
            device,
            address: hop,
        });
        self.report(Kind::Detail, || {
            format!("tunneling from {} {} to {next_hop} {shown}", Mac(mac), address_text(source))
        });
        let reported = underlay.path_mtu(destination);
        let mtu = found.mtu.into_iter().chain(reported).min();
        let mtu = mtu.map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX));
        Some(Path { exit, source, next_hop, mtu })
    }

    /// Asks for the Ethernet address of the next hop. The kernel asks as well for a supposed one where
    /// the bridge has the host's address: the flow that takes answers to the host may have been adopted
    /// and run in the kernel, so that no packet thread sees them.
    fn solicit(&mut self, underlay: &Arc<Underlay>, found: &Found, hop: IpAddr, exit: Exit<'_>) {
        let shown = address_text(hop);
        let (bridge_index, bridge, port) = match exit {
            Exit::Bridge(index, bridge, port) => (index, bridge, port),
            Exit::Host(host) | Exit::Own(host) => {
                self.report(Kind::Detail, || {
                    format!("neighbor cache miss for {shown} on {}, asking the kernel", host.name)
                });
                let device = Arc::clone(&host.name);
                return self.effect(|| Effect::ResolveNeighbour { device, address: hop });
            }
        };
        self.report(Kind::Detail, || {
            let what = if hop.is_ipv4() { "ARP" } else { "ND" };
            format!(
                "neighbor cache miss for {shown} on bridge {}, sending {what} request",
                bridge.name
            )
        });
        let source = underlay.routes().source_at(&bridge.name, hop).unwrap_or(found.source);
        if let Some(packet) = underlay::solicitation(Mac(port.mac), source, hop) {
            let port = port.number;
            self.effect(|| Effect::Solicit {
                bridge: bridge_index,
                port,
                packet: Arc::new(packet),
                underlay: Arc::clone(underlay),
                device: Arc::from(exit.neighbours()),
                address: hop,
            });
        }
        if underlay.is_supposed(exit.neighbours(), hop) {
            let device: Arc<str> = Arc::from(exit.device());
            self.effect(|| Effect::ResolveNeighbour { device, address: hop });
        }
    }

    /// Returns the header to push.
    fn header(&mut self, config: &Config, tunnel: &Tunnel, path: &Path<'_>) -> Option<Header> {
        let mut metadata = Metadata {
            src: path.source,
            dst: tunnel.destination(),
            tp_src: 0,
            ..Metadata::of_fields(tunnel)
        };
        // UDP over IPv6 has a checksum (RFC 8200, 8.1).
        if metadata.dst.is_ipv6() && is_udp(config.kind) {
            metadata.flags |= flags::CHECKSUM;
        }
        let payload = Payload::from_packet_type(self.key.packet_type.get());
        // A route begins with the other end.
        let starts = match (config.segments.first(), metadata.dst) {
            (Some(first), IpAddr::V6(dst)) => *first == dst,
            (first, _) => first.is_none(),
        };
        let built = payload.filter(|_| starts).map(|payload| {
            Header::build(&Request {
                kind: config.kind,
                eth_dst: path.next_hop.0,
                eth_src: path.exit.mac(),
                metadata: &metadata,
                payload,
                is_generic_protocol: config.extensions.gpe,
                has_sequence: config.sequence,
                segments: &config.segments,
                flow_label: config.flow_label,
                sources: self.snapshot.tunnels.source_ports,
            })
        });
        match built {
            Some(Ok(header)) => Some(header.with_path_mtu(path.mtu)),
            Some(Err(_)) | None => {
                self.report(Kind::Warning, || "native tunnel header build failed".to_string());
                None
            }
        }
    }

    /// Returns the key of the outer frame. Its UDP source port differs between packets and is zero.
    fn outer_frame(&self, header: &Header, tunnel: &Tunnel, path: &Path<'_>) -> Key {
        let mut key = Key::ZERO;
        key.pkt_mark = self.key.pkt_mark;
        key.skb_priority = self.key.skb_priority;
        (key.dl_src, key.dl_dst) = (path.exit.mac(), path.next_hop.0);
        match (path.source, tunnel.destination()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                key.dl_type.set(ethertype::IPV4);
                key.nw_src.set(from.to_bits());
                key.nw_dst.set(to.to_bits());
            }
            (from, to) => {
                key.dl_type.set(ethertype::IPV6);
                (key.ipv6_src, key.ipv6_dst) = (octets(from), octets(to));
            }
        }
        (key.nw_tos, key.nw_ttl) = (tunnel.tos, tunnel.ttl);
        key.nw_proto = match header.kind() {
            TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gtpu | TunnelKind::Bareudp => {
                ip_proto::UDP
            }
            TunnelKind::Gre | TunnelKind::Ip6Gre | TunnelKind::Erspan | TunnelKind::Ip6Erspan => {
                ip_proto::GRE
            }
            TunnelKind::Stt => ip_proto::TCP,
            TunnelKind::Lisp => ip_proto::UDP,
            // The protocol of the packet inside.
            TunnelKind::Srv6 if self.key.dl_type.get() == ethertype::IPV6 => 41,
            TunnelKind::Srv6 => 4,
        };
        key.tp_dst = tunnel.tp_dst;
        key
    }

    /// Returns the datapath port whose tunnel takes a packet that would leave by the device of
    /// `port`. Learns neighbours from the packet.
    pub(super) fn terminate(&mut self, port: &PortView) -> Option<DpPort> {
        let tunnels = &self.snapshot.tunnels;
        // The mask stays as wide as it is where no tunnel receives.
        if tunnels.output != Output::Push || !tunnels.listening.terminates(&port.name) {
            return None;
        }
        let underlay = tunnels.underlay.as_ref()?;
        let backing = tunnels.listening.lookup(&self.key, &mut self.mask);
        let neighbour = match backing {
            Some(_) => self.sender(),
            None => self.announced(underlay),
        };
        if let Some((address, mac)) = neighbour {
            let device: Arc<str> = Arc::from(self.bridge.name.as_str());
            let underlay = Arc::clone(underlay);
            let is_lasting = backing.is_none(); // the fields of an announcement are exact
            self.effect(|| Effect::LearnNeighbour { underlay, device, address, mac, is_lasting });
        }
        backing
    }

    /// Returns the sender of the packet as a neighbour. The effect is for this packet alone, so no
    /// bit of it becomes exact.
    fn sender(&self) -> Option<(IpAddr, Mac)> {
        let address = match self.key.dl_type.get() {
            ethertype::IPV4 => IpAddr::from(Ipv4Addr::from_bits(self.key.nw_src.get())),
            ethertype::IPV6 => IpAddr::from(Ipv6Addr::from(self.key.ipv6_src)),
            _ => return None,
        };
        Some((address, Mac(self.key.dl_src)))
    }

    /// Returns the neighbour that the packet announces to the present bridge.
    fn announced(&mut self, underlay: &Underlay) -> Option<(IpAddr, Mac)> {
        let m = &mut self.mask.0;
        match self.key.dl_type.get() {
            ethertype::ARP => {
                m.nw_proto = u8::MAX;
                m.nw_src.set(u32::MAX);
                m.nw_dst.set(u32::MAX);
                m.arp_sha = [0xff; 6];
            }
            ethertype::IPV6 => {
                m.nw_proto = u8::MAX;
                if self.key.nw_proto != ip_proto::ICMPV6 {
                    return None;
                }
                m.tp_src.set(u16::MAX);
                if self.key.tp_src.get() != NEIGHBOUR_ADVERTISEMENT {
                    return None;
                }
                m.tp_dst.set(u16::MAX);
                m.ipv6_dst = [0xff; 16];
                m.nd_target = [0xff; 16];
                m.arp_tha = [0xff; 6];
            }
            _ => return None,
        }
        let routes = underlay.routes();
        let devices =
            self.bridge.ports.values().filter_map(|p| routes.devices().get(p.name.as_str()));
        let own = devices.flat_map(|device| device.addresses.iter().map(|a| a.address()));
        underlay::snoop::announced(&self.key, own)
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Returns the bridge and the port of a device that a route names.
fn port_of_device<'a>(
    snapshot: &'a Snapshot,
    device: &str,
) -> Option<(BridgeIndex, &'a BridgeView, &'a PortView)> {
    let (index, number) = *snapshot.tunnels.devices.get(device)?;
    let bridge = snapshot.bridge(index)?;
    Some((index, bridge, bridge.ports.get(&number)?))
}

const fn is_udp(kind: TunnelKind) -> bool {
    matches!(kind, TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gtpu | TunnelKind::Bareudp)
}
