// SPDX-License-Identifier: Apache-2.0
//! The program at a device that the host's stack shares: which packets are the switch's.

use std::net::IpAddr;

use clock::Clock;
use datapath::{PortNo, Side, TunnelEndpoint};
use datapath_bpf::{Attachment, BpfDatapath, Config, Hooks, sys};
use netdev::Service;
use packet::build::Frame;
use testing::in_namespace_as_root;

/// The packet goes on to the stack.
const TC_ACT_UNSPEC: u32 = u32::MAX;
/// The loopback device, which test runs come from. Its Ethernet address is zero.
const LOOPBACK: u32 = 1;
const OWN: [u8; 6] = [0; 6];
const VXLAN: u16 = 4789;
const HERE: [u8; 4] = [10, 0, 0, 1];
const UDP: u8 = 17;
const GRE: u8 = 47;

fn endpoint(address: IpAddr, protocol: u8, port: u16) -> TunnelEndpoint {
    TunnelEndpoint { address, service: Service { protocol, port } }
}

fn v4(mac: [u8; 6], to: [u8; 4]) -> Frame {
    Frame::ethernet(mac, [2; 6]).ipv4([10, 0, 0, 2].into(), to.into(), 64)
}

fn six(last: u16) -> std::net::Ipv6Addr {
    [0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into()
}

fn v6(to: u16) -> Frame {
    Frame::ethernet(OWN, [2; 6]).ipv6(six(2), six(to), 64)
}

fn vxlan(frame: Frame) -> Vec<u8> {
    frame.udp(1234, VXLAN).payload(&[0; 60]).finish()
}

/// Sets the byte at an offset, with the IPv4 checksum left wrong: the program does not look at it.
fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    frame
}

fn opened() -> BpfDatapath {
    let config = Config { max_flows: 1024, max_masks: 64, max_programs: 2048, ..Config::default() };
    let bpf = BpfDatapath::open(config, Clock::new()).unwrap_or_else(|e| panic!("{e}"));
    let attachment = Attachment {
        ifindex: LOOPBACK,
        side: Side::Underlay,
        hooks: Hooks { tc: true, ..Hooks::default() },
        mtu: 1500,
        up: true,
    };
    bpf.attach(PortNo(1), &attachment).expect("it is attached");
    bpf
}

fn takes(bpf: &BpfDatapath, frame: &[u8]) -> bool {
    let program = bpf.program("entry_tc_underlay").expect("it is loaded");
    let output = sys::run(program, frame, &[], 1).expect("it runs");
    if output.verdict == TC_ACT_UNSPEC {
        assert_eq!(output.data, frame, "the stack gets it as it came");
    }
    output.verdict != TC_ACT_UNSPEC
}

#[test]
fn packets_of_tunnels_are_taken_and_no_others() {
    in_namespace_as_root(|| {
        let bpf = opened();
        assert!(!takes(&bpf, &vxlan(v4(OWN, HERE))), "there is no tunnel");
        let endpoints = [
            endpoint(HERE.into(), UDP, VXLAN),
            endpoint(HERE.into(), GRE, 0),
            endpoint(six(1).into(), UDP, VXLAN),
            endpoint(six(1).into(), 41, 0),
        ];
        bpf.set_tunnel_endpoints(&endpoints).expect("there is room");
        let plain = |frame: Frame| frame.udp(1, 1).payload(&[0; 60]).finish();
        let routed = |next| v6(1).ipv6_extension(43, &[0; 22]).udp(1, 1).payload(&[next; 60]);
        let taken = [
            vxlan(v4(OWN, HERE)),
            vxlan(v6(1)),
            with(plain(v4(OWN, HERE)), 23, GRE),
            with(routed(0).finish(), 54, 41),
        ];
        for (n, frame) in taken.iter().enumerate() {
            assert!(takes(&bpf, frame), "{n}");
        }
        let others = [
            vxlan(v4([2, 0, 0, 0, 0, 9], HERE)),
            vxlan(v4([0xff; 6], HERE)),
            vxlan(v4(OWN, [10, 0, 0, 3])),
            vxlan(v6(3)),
            plain(v4(OWN, HERE)),
            plain(v6(1)),
            with(plain(v6(1)), 20, GRE),          // not at this address
            with(vxlan(v4(OWN, HERE)), 20, 0x20), // more fragments
            with(vxlan(v4(OWN, HERE)), 21, 1),    // a later fragment
            with(vxlan(v4(OWN, HERE)), 14, 0x46), // options
            v4(OWN, HERE).tcp(1, VXLAN, 2).finish(),
            Frame::ethernet(OWN, [2; 6])
                .vlan(0x8100, 7)
                .ipv4([10, 0, 0, 2].into(), HERE.into(), 64)
                .udp(1, VXLAN)
                .payload(&[0; 60])
                .finish(),
            Frame::ethernet(OWN, [2; 6])
                .arp(0x0806, 1, ([2; 6], [10, 0, 0, 2].into()), (OWN, HERE.into()))
                .finish(),
            v4(OWN, HERE).finish(),
        ];
        for (n, frame) in others.iter().enumerate() {
            assert!(!takes(&bpf, frame), "{n}");
        }
        bpf.set_tunnel_endpoints(&endpoints[1..]).expect("there is room");
        assert!(!takes(&bpf, &taken[0]), "the address is gone");
        assert!(takes(&bpf, &taken[2]));
        bpf.detach(PortNo(1));
        assert!(!takes(&bpf, &taken[2]), "the device is no port");
    });
}
