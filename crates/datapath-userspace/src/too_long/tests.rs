// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::{Config, UserspaceDatapath};
use clock::Clock;
use datapath::{
    Action, Counters, Datapath, Flows, Megaflow, Packets, PortKind, PortNo, PortSpec, Ports,
    TunnelKind, Ufid, text,
};
use flow::{Field, Match};
use packet::build::Frame;
use packet::{Gso, Ipv6Header};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use testing::TempDir;

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Bytes that VXLAN puts before a frame, from the outer IP header on.
const OVERHEAD: usize = 36;

/// A datapath with the ports 1 (the sender's), 2 (the underlay's) and 4789 (VXLAN).
struct Switch {
    datapath: Arc<UserspaceDatapath>,
    directory: TempDir,
    name: String,
}

impl Switch {
    /// Packets of port 1 get `edits`, and leave by a tunnel whose path has this MTU, with or without
    /// DF.
    fn new(name: &str, edits: &str, fragment: &str, path_mtu: u16) -> Switch {
        let datapath = UserspaceDatapath::new("netdev@long", Clock::new(), Config::default());
        let directory = testing::directory();
        for (number, kind) in [
            (1, PortKind::Dummy),
            (2, PortKind::Dummy),
            (4789, PortKind::Tunnel(TunnelKind::Vxlan)),
        ] {
            let file = directory.path().join(number.to_string());
            datapath
                .add_port(&PortSpec {
                    name: format!("{name}-{number}"),
                    kind,
                    mtu: Some(9000),
                    wanted: Some(PortNo(number)),
                    options: [("tx_pcap".to_owned(), file.to_string_lossy().into_owned())].into(),
                    ..PortSpec::default()
                })
                .expect("it needs nothing");
        }
        let list = format!(
            "{edits}tnl_push(tnl_port(4789),header(size=50,type=4,eth(dst=02:00:00:00:00:0b,\
             src=02:00:00:00:00:0a,dl_type=0x0800),ipv4(src=10.9.0.1,dst=10.9.0.2,proto=17,tos=0,\
             ttl=64,frag={fragment}),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x7b)),\
             out_port(2)),2"
        );
        let mut actions = text::parse(&list, &|_| None).expect("the text is right");
        for action in &mut actions {
            if let Action::TunnelPush { header, .. } = action {
                *header = Arc::new((**header).clone().with_path_mtu(Some(path_mtu)));
            }
        }
        let mut matching = Match::ANY;
        matching.set(Field::InPortOxm, 1);
        let flow = Megaflow { ufid: Ufid(1), matching, actions: actions.into() };
        datapath.install(&flow).expect("there is room");
        Switch { datapath, directory, name: name.to_owned() }
    }

    /// Returns the frames that ports 1 and 2 send because of a packet from port 1.
    fn receive(&self, packet: Packet) -> [Vec<Vec<u8>>; 2] {
        let before = [1, 2].map(|port| self.sent(port).len());
        let device = netdev::dummy::lookup(&format!("{}-1", self.name)).expect("it is there");
        device.receive(0, vec![packet]);
        let [one, two] = before;
        [self.sent(1).split_off(one), self.sent(2).split_off(two)]
    }

    fn sent(&self, port: u32) -> Vec<Vec<u8>> {
        let file: PathBuf = self.directory.path().join(port.to_string());
        let bytes = std::fs::read(file).expect("the capture file is there");
        let (mut frames, mut rest) = (Vec::new(), bytes.get(24..).unwrap_or_default());
        while let Some((header, after)) = rest.split_at_checked(16) {
            let length = u32::from_ne_bytes(header[8..12].try_into().expect("4 bytes")) as usize;
            frames.push(after[..length].to_vec());
            rest = &after[length..];
        }
        frames
    }

    fn dropped(&self) -> u64 {
        self.datapath.drops(DropReason::OutputTooLong)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.datapath.shutdown();
    }
}

/// A packet of IPv4 with this many bytes of IP.
fn ipv4(flags: u16, len: usize) -> Packet {
    let frame =
        Frame::ethernet(B, A).ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 9);
    let data: Vec<u8> = (0..len - 28).map(|i| i as u8).collect();
    let mut bytes = frame.udp(1000, 2000).payload(&data).finish();
    bytes[20..22].copy_from_slice(&flags.to_be_bytes());
    bytes[24..26].fill(0);
    let sum = packet::checksum::internet(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    Packet::from_slice(&bytes)
}

const DF: u16 = Ipv4Header::DONT_FRAGMENT;

#[test]
fn the_sender_of_a_packet_that_must_not_be_fragmented_gets_a_report() {
    let switch = Switch::new("report", "", "0x4000", 1500);
    let [to_sender, outer] = switch.receive(ipv4(DF, 1450));
    assert_eq!((to_sender.len(), outer.len(), switch.dropped()), (0, 1, 0), "it fits");
    assert_eq!(outer[0].len(), 14 + 1500);
    let long = ipv4(DF, 1451);
    let [to_sender, outer] = switch.receive(long.clone());
    assert_eq!((to_sender.len(), outer.len(), switch.dropped()), (1, 0, 1));
    assert_eq!(to_sender[0], tunnel::too_big(long.data(), 1450).expect("it has DF"));
    let v6 = Frame::ethernet(B, A).ipv6("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap(), 9);
    let long = v6.udp(1, 2).payload(&[7; 1403]).packet();
    assert_eq!(long.len() - 14, size_of::<Ipv6Header>() + 8 + 1403);
    let [to_sender, outer] = switch.receive(long.clone());
    assert_eq!((to_sender.len(), outer.len(), switch.dropped()), (1, 0, 2));
    assert_eq!(to_sender[0], tunnel::too_big(long.data(), 1450).expect("IPv6"));
}

#[test]
fn the_report_quotes_the_packet_as_its_sender_sent_it() {
    let edits = "set(eth(src=02:00:00:00:00:08,dst=02:00:00:00:00:07)),\
                 set(ipv4(src=10.7.0.1,dst=10.7.0.2,tos=0/0,ttl=8)),push_vlan(vid=5,pcp=0),";
    let switch = Switch::new("quoted", edits, "0x4000", 1500);
    let mut long = ipv4(DF, 1460);
    long.data_mut()[..6].copy_from_slice(&ROUTER);
    let [to_sender, outer] = switch.receive(long.clone());
    assert_eq!((to_sender.len(), outer.len()), (1, 0));
    // The tag takes 4 bytes more in the tunnel.
    assert_eq!(to_sender[0], tunnel::too_big(long.data(), 1446).expect("it has DF"));
}

#[test]
fn reports_are_limited_for_each_flow() {
    let switch = Switch::new("limited", "", "0x4000", 1500);
    let reports = (0..30).map(|_| switch.receive(ipv4(DF, 1500))[0].len()).sum::<usize>();
    // The second may end meanwhile.
    assert!((10..=20).contains(&reports), "{reports}");
    assert_eq!(switch.dropped(), 30);
    let mut other = ipv4(DF, 1500);
    other.data_mut()[34] ^= 0x55;
    assert_eq!(switch.receive(other)[0].len(), 1, "another flow");
}

#[test]
fn an_inner_packet_that_may_be_fragmented_is() {
    let switch = Switch::new("inner", "", "0x4000", 1500);
    let whole = ipv4(0, 3000);
    let [to_sender, outer] = switch.receive(whole.clone());
    assert_eq!((to_sender.len(), switch.dropped()), (0, 0));
    let expected = fragment::ipv4(whole.data(), 14, 1450).expect("it may be");
    assert_eq!(outer.len(), expected.len());
    for (outer, inner) in outer.iter().zip(&expected) {
        assert!(outer.len() <= 14 + 1500);
        assert_eq!(&outer[14 + OVERHEAD..], inner.data());
    }
    // Segments are longer than the path carries, and each is fragmented.
    let mut segmented = ipv4(0, 28 + 4000);
    segmented.offload.csum = Some((34, 6));
    segmented.offload.gso = Some((Gso::UdpL4, 2000, 42));
    let [_, outer] = switch.receive(segmented);
    let lengths: Vec<usize> = outer.iter().map(|outer| outer.len() - 14 - OVERHEAD - 14).collect();
    assert_eq!(lengths, [1444, 604, 1444, 604]);
}

#[test]
fn an_outer_packet_that_may_be_fragmented_is() {
    let switch = Switch::new("outer", "", "0x0000", 1500);
    for flags in [0, DF] {
        let whole = ipv4(flags, 1480);
        let [to_sender, outer] = switch.receive(whole.clone());
        assert_eq!((to_sender.len(), outer.len(), switch.dropped()), (0, 2, 0));
        let parts: Vec<&[u8]> = outer.iter().map(|outer| &outer[34..]).collect();
        assert_eq!(parts.concat()[16..], *whole.data());
        let ids: Vec<&[u8]> = outer.iter().map(|outer| &outer[18..20]).collect();
        assert_eq!(ids[0], ids[1]);
    }
}

#[test]
fn segments_that_fit_stay_together_and_others_are_reported() {
    let switch = Switch::new("segments", "", "0x4000", 1500);
    let segmented = |size| {
        let mut packet = ipv4(DF, 28 + 8000);
        packet.offload.csum = Some((34, 6));
        packet.offload.gso = Some((Gso::UdpL4, size, 42));
        packet
    };
    let [to_sender, outer] = switch.receive(segmented(1422));
    assert_eq!((to_sender.len(), outer.len()), (0, 8000_usize.div_ceil(1422)));
    let [to_sender, outer] = switch.receive(segmented(1423));
    assert_eq!((to_sender.len(), outer.len(), switch.dropped()), (1, 0, 1));
}

#[test]
fn what_is_neither_is_dropped() {
    let switch = Switch::new("neither", "", "0x4000", 1500);
    let frame = Frame::ethernet(B, A).ethertype(0x88b5).payload(&[1; 1451]).packet();
    assert_eq!(switch.receive(frame), [Vec::<Vec<u8>>::new(), Vec::new()]);
    assert_eq!(switch.dropped(), 1);
    // A fragment with DF is nobody's fault that a report could mend.
    let fragment = ipv4(DF | Ipv4Header::MORE_FRAGMENTS, 1500);
    assert_eq!(switch.receive(fragment), [Vec::<Vec<u8>>::new(), Vec::new()]);
    assert_eq!(switch.dropped(), 2);
}

#[test]
fn a_packet_of_no_port_has_no_sender() {
    let switch = Switch::new("nobody", "", "0x4000", 1500);
    let packet = ipv4(DF, 1500);
    let actions = switch.datapath.flow(Ufid(1)).expect("it is there").flow.actions;
    let (key, _) = flow::extract::extract(packet.data(), u32::MAX);
    switch.datapath.execute(packet, &key, &actions);
    assert_eq!((switch.sent(1).len(), switch.sent(2).len(), switch.dropped()), (0, 0, 1));
}
