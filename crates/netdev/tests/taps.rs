// SPDX-License-Identifier: Apache-2.0
//! The functions that a faster tier needs of devices: ports that do not receive, internal ports
//! that outlive the switch, and the tap that passes misses to the switch.

mod support;

use netdev::tap::{Raw, Tap, decode_offload};
use netdev::{
    Kind, OpenError, PacketPool, Reception, open, persistent_interfaces, remove_persistent,
};
use packet::Gso;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use support::*;
use testing::{patient, wait_until};

/// The switch that created an interface, and another switch.
const OWNER: &str = "/run/one";
const OTHER: &str = "/run/one/more";

/// Returns the number of handlers for which the kernel copies each frame of `device`.
fn hooks(device: &str) -> usize {
    let text = std::fs::read_to_string("/proc/thread-self/net/ptype").expect("proc is mounted");
    text.lines().filter(|l| l.starts_with("ALL") && l.contains(device)).count()
}

fn vanishes(name: &str) -> bool {
    wait_until(COPIES, || !netdev::link::exists(name))
}

fn shown(arguments: &str) -> String {
    let out =
        Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn a_system_port_that_does_not_receive_delivers_the_rest_and_sends_on() {
    in_namespace(|| {
        veth("v0", "port");
        let mut port = opened(&spec("port", Kind::System));
        let socket = udp_socket();
        let send = |text: &[u8]| {
            socket.send_to(text, "10.0.0.2:5000").expect("routed");
        };
        let frame = receive(&mut port, b"first", || send(b"first"));
        assert_eq!(hooks("port"), 1);
        send(b"waits in the socket");
        port.device.set_receiving(Reception::Off).expect("system can");
        assert_eq!(hooks("port"), 0);
        let (mut out, mut pool) = (Vec::new(), PacketPool::default());
        queue(&mut port).recv(&mut out, &mut pool, 64).expect("present");
        assert!(out.iter().any(|p| contains(p, b"waits in the socket")), "it came before");
        out.clear();
        // Also after the interface went down and up, when the kernel restores its hooks.
        for _ in 0..2 {
            send(b"not for us");
            thread::sleep(Duration::from_millis(50));
            queue(&mut port).recv(&mut out, &mut pool, 64).expect("present");
            assert_eq!(out.len(), 0);
            assert_eq!(hooks("port"), 0);
            port.device.set_admin_up(false).expect("allowed");
            port.device.set_admin_up(true).expect("allowed");
        }
        let mut watcher = opened(&spec("v0", Kind::System));
        let mut sent = frame.clone();
        sent.data_mut()[..6].fill(0xff);
        receive(&mut watcher, b"first", || {
            assert_eq!(port.sender.send(std::slice::from_ref(&sent)).sent, 1);
        });
        port.device.set_receiving(Reception::On).expect("system can");
        assert_eq!(hooks("port"), 1);
        receive(&mut port, b"again", || send(b"again"));
        let tap = opened(&spec("t0", Kind::Internal));
        tap.device.set_receiving(Reception::Off).expect("nothing to do");
        ip("link del port");
        let e = port.device.set_receiving(Reception::Off).err();
        assert_eq!(e.and_then(|e| e.raw_os_error()), Some(libc::ENODEV));
    });
}

#[test]
fn a_persistent_internal_port_is_found_again_with_its_addresses() {
    in_namespace(|| {
        let mut s = spec("keep0", Kind::Internal);
        s.persistent = Some(OWNER.into());
        s.mac = Some([2, 0, 0, 0, 0, 1]);
        let port = opened(&s);
        port.device.set_admin_up(true).expect("allowed");
        ip("addr add 10.0.0.1/24 dev keep0");
        let index = port.device.ifindex();
        assert!(matches!(remove_persistent("keep0", OWNER), Err(OpenError::Busy { .. })));
        let busy = open(&s).err().expect("we hold it");
        assert_eq!(busy.to_string(), "keep0: device is already open");
        drop(port);
        thread::sleep(Duration::from_millis(50));
        assert!(shown("addr show dev keep0").contains("10.0.0.1/24"));
        assert_eq!(persistent_interfaces(OWNER).expect("netlink"), ["keep0"]);
        assert_eq!(persistent_interfaces(OTHER).expect("netlink"), [""; 0]);
        let others = remove_persistent("keep0", OTHER).expect_err("another switch made it");
        assert!(matches!(others, OpenError::Unsuitable { .. }), "{others}");

        let mut port = opened(&s);
        assert_eq!(port.device.ifindex(), index);
        ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev keep0");
        let socket = udp_socket();
        let p = receive(&mut port, b"found again", || {
            // The carrier may need a moment.
            let _ = socket.send_to(b"found again", "10.0.0.2:5000");
        });
        assert_eq!(p.offload.csum, Some((34, 6)), "with its offloads");
        port.device.set_persistent(None).expect("ours");
        assert!(netdev::link::exists("keep0"), "while the device lives");
        drop((port, socket));
        assert!(vanishes("keep0"));

        // An interface of an earlier run is deleted without an open as a port.
        drop(opened(&s));
        assert!(wait_until(COPIES, || match remove_persistent("keep0", OWNER) {
            Err(OpenError::Busy { .. }) => false,
            removed => removed.map(|()| true).expect("nobody holds it"),
        }));
        assert!(vanishes("keep0"));
        let gone = remove_persistent("keep0", OWNER).expect_err("it is gone");
        assert!(matches!(gone, OpenError::NoDevice { .. }), "{gone}");
    });
}

#[test]
fn an_address_of_its_first_time_does_not_replace_one_that_it_was_given() {
    in_namespace(|| {
        let mac = |port: &netdev::Opened| port.device.status().expect("it is there").mac;
        let mut s = spec("keep0", Kind::Internal);
        s.persistent = Some(OWNER.into());
        s.first_mac = Some([2, 0, 0, 0, 0, 1]);
        let port = opened(&s);
        assert_eq!(mac(&port), [2, 0, 0, 0, 0, 1]);
        ip("link set keep0 address 02:00:00:00:00:02");
        drop(port);
        thread::sleep(Duration::from_millis(50));
        let port = opened(&s);
        assert_eq!(mac(&port), [2, 0, 0, 0, 0, 2]);
        port.device.set_persistent(None).expect("ours");
        drop(port);
        assert!(vanishes("keep0"));
        // `mac` takes precedence.
        s.mac = Some([2, 0, 0, 0, 0, 3]);
        let port = opened(&s);
        assert_eq!(mac(&port), [2, 0, 0, 0, 0, 3]);
        port.device.set_persistent(None).expect("ours");
    });
}

#[test]
fn taps_of_others_are_not_deleted_and_misfits_say_why() {
    in_namespace(|| {
        ip("tuntap add name his mode tap");
        for persistent in [true, false] {
            let mut s = spec("his", Kind::Internal);
            s.persistent = persistent.then(|| OWNER.into());
            let port = opened(&s);
            port.device.set_persistent(None).expect("no error");
            drop(port);
            thread::sleep(Duration::from_millis(20));
            assert!(netdev::link::exists("his"));
        }
        assert!(persistent_interfaces(OWNER).expect("netlink").is_empty());
        assert!(matches!(remove_persistent("his", OWNER), Err(OpenError::Unsuitable { .. })));
        // A tap created without IFF_VNET_HDR (as above) works; these do not.
        ip("tuntap add name many mode tap multi_queue");
        ip("tuntap add name layer3 mode tun");
        ip("link add br0 type bridge");
        for (name, word) in [("many", "multi_queue"), ("layer3", "tun"), ("br0", "bridge")] {
            let e = open(&spec(name, Kind::Internal)).err().expect("it does not fit");
            assert!(matches!(e, OpenError::Unsuitable { .. }), "{e}");
            assert!(e.to_string().contains(word) && e.raw_os_error() == Some(libc::EINVAL), "{e}");
        }
        let failed = open(&{
            let mut s = spec("fails", Kind::Internal);
            s.persistent = Some(OWNER.into());
            s.mtu = Some(9_999_999);
            s
        });
        assert!(failed.is_err());
        assert!(vanishes("fails"), "nothing is left behind");
        let system = spec("br0", Kind::System);
        let e = opened(&system).device.set_persistent(Some(OWNER)).err().map(|e| e.kind());
        assert_eq!(e, Some(std::io::ErrorKind::Unsupported));
    });
}

/// Receives one packet that contains `text` from the tap, within 3 seconds.
fn take(tap: &mut Tap, text: &[u8]) -> Raw {
    let mut pool = PacketPool::default();
    let end = Instant::now() + patient(Duration::from_secs(3));
    let mut got = Vec::new();
    while Instant::now() < end {
        poll(&[tap.poll_fd().as_raw_fd()], 100);
        tap.recv(&mut got, &mut pool, 8).expect("it is there");
        if let Some(i) = got.iter().position(|raw| contains(&raw.packet, text)) {
            return got.swap_remove(i);
        }
        got.clear();
    }
    panic!("the packet did not arrive");
}

#[test]
fn the_tap_gives_packets_as_they_were_sent() {
    in_namespace(|| {
        let mut tap = Tap::open("up%d", 2048).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(tap.name(), "up0");
        let link = netdev::link::find("up0").expect("just made");
        assert_eq!(link.index, tap.ifindex());
        assert!(link.admin_up && link.mtu >= 65_521, "{link:?}");
        assert!(shown("link show up0").contains("NOARP"));
        // Metadata outside the packet arrives: a checksum, segmentation.
        ip("addr add 10.0.0.1/24 dev up0");
        let socket = UdpSocket::bind("10.0.0.1:4000").expect("the address is set");
        let segment: libc::c_int = 1000;
        // SAFETY: the kernel reads one int.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_UDP,
                103, // UDP_SEGMENT
                (&raw const segment).cast(),
                size_of_val(&segment) as libc::socklen_t,
            )
        };
        assert_eq!(set, 0, "UDP segmentation is there");
        let payload = [b"segmented", vec![7; 4500].as_slice()].concat();
        socket.send_to(&payload, "10.0.0.2:5000").expect("routed");
        let Raw { packet, header } = take(&mut tap, b"segmented");
        assert!(packet.offload.csum.is_none() && packet.offload.gso.is_none());
        let whole = decode_offload(&header, packet.data(), 0).expect("the kernel's own");
        assert_eq!(whole.csum, Some((34, 6)));
        // Before Linux 6.2 a tap has no UDP segmentation; the kernel segments.
        if packet.len() > 2000 {
            assert_eq!(whole.gso, Some((Gso::UdpL4, 1000, 42)));
        }
        // The kernel's header for a frame after 32 other bytes.
        let mut behind = header;
        behind[6..8].copy_from_slice(&(34u16 + 32).to_ne_bytes());
        assert_eq!(decode_offload(&behind, packet.data(), 32), Some(whole));
        assert_eq!(decode_offload(&header, packet.data(), 35), None);
    });
}

/// Short and long packets come by different ways, and so does the tag that the kernel keeps apart.
#[test]
fn the_tap_gives_packets_of_all_lengths_whole_and_in_order() {
    in_namespace(|| {
        let mut tap = Tap::open("up%d", 256).unwrap_or_else(|e| panic!("{e}"));
        let port = opened(&spec("up0", Kind::System));
        let mut sent = Vec::new();
        for (i, length) in (60..9000).step_by(470).chain(390..480).enumerate() {
            let mut p = in_segments(2, if i.is_multiple_of(5) { 2000 + i * 400 } else { 60 });
            if !i.is_multiple_of(5) {
                p = packet::Packet::from_slice(&vec![i as u8; length]);
                p.data_mut()[12..14].copy_from_slice(&[0x88, 0xb5]);
            }
            assert_eq!(port.sender.send(std::slice::from_ref(&p)).sent, 1);
            sent.push(p);
        }
        let (mut got, mut pool) = (Vec::new(), PacketPool::default());
        while tap.recv(&mut got, &mut pool, 32).expect("up") == 32 {}
        assert_eq!(got.len(), sent.len());
        for (Raw { packet, header }, sent) in got.iter().zip(&sent) {
            assert_eq!(packet.data(), sent.data());
            let offload = decode_offload(header, packet.data(), 0).expect("the kernel's own");
            assert_eq!((offload.gso, offload.csum), (sent.offload.gso, sent.offload.csum));
        }
        // A bridge receives a tagged packet and forwards it with the tag outside of the bytes.
        veth("v0", "p");
        let port = opened(&spec("v0", Kind::System));
        let plain = receive(&mut opened(&spec("p", Kind::System)), b"payload", || {
            udp_socket().send_to(b"payload", "10.0.0.2:5000").expect("routed");
        });
        ip("link add b0 type bridge");
        ip("link set p master b0");
        ip("link set up0 master b0");
        ip("link set b0 up");
        for (tag, more) in [([0x81, 0, 0, 7], 0), ([0x88, 0xa8, 0x20, 9], 1000)] {
            let mut p = plain.clone();
            p.extend(&vec![7; more]);
            p.insert_at(12, 4);
            p.data_mut()[12..16].copy_from_slice(&tag);
            p.data_mut()[..6].fill(0xff);
            assert_eq!(port.sender.send(std::slice::from_ref(&p)).sent, 1);
            let Raw { packet, header } = take(&mut tap, b"payload");
            assert_eq!(packet.data(), p.data());
            let offload = decode_offload(&header, packet.data(), 0).expect("the kernel's own");
            assert_eq!(offload.csum, Some((38, 6)), "its offset includes the tag");
        }
        assert_eq!((tap.lost(), tap.malformed()), (0, 0));
    });
}

/// The header of packet sockets cannot describe UDP that is to be fragmented. A ring would not
/// return the frame of such a packet.
#[test]
fn a_packet_that_the_kernel_cannot_describe_takes_no_place_in_the_tap() {
    in_namespace(|| {
        let mut tap = Tap::open("up%d", 128).unwrap_or_else(|e| panic!("{e}"));
        let port = opened(&spec("up0", Kind::System));
        let mut large = in_segments(2, 2542);
        large.data_mut()[23] = 17;
        large.offload.gso = Some((Gso::UdpFragment, 1000, 42));
        large.offload.csum = Some((34, 6));
        for _ in 0..200 {
            port.sender.send(std::slice::from_ref(&large));
        }
        let (mut got, mut pool) = (Vec::new(), PacketPool::default());
        while tap.recv(&mut got, &mut pool, 32).expect("up") == 32 {}
        got.clear();
        let plain = vec![packet::Packet::from_slice(&[3; 60]); 128];
        assert_eq!(port.sender.send(&plain).sent, 128);
        while tap.recv(&mut got, &mut pool, 32).expect("up") == 32 {}
        assert_eq!(got.len(), 128, "the whole ring is free");
    });
}

#[test]
fn the_tap_is_silent_counts_what_it_lost_and_vanishes() {
    in_namespace(|| {
        // The namespaces of these tests have IPv6 off; here it is on.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "0").expect("root may");
        let mut tap = Tap::open("up%d", 128).unwrap_or_else(|e| panic!("{e}"));
        let again = Tap::open("up0", 128).err().expect("it is there");
        assert!(matches!(again, OpenError::Busy { .. }), "{again}");
        thread::sleep(Duration::from_millis(1500));
        assert!(!shown("addr show up0").contains("inet"), "no address");
        let (mut got, mut pool) = (Vec::new(), PacketPool::default());
        assert_eq!(tap.recv(&mut got, &mut pool, 8).expect("up"), 0, "nobody speaks");
        let port = opened(&spec("up0", Kind::System));
        let frame = packet::Packet::from_slice(&[0xff; 60]);
        for _ in 0..10 {
            port.sender.send(&vec![frame.clone(); 32]);
        }
        let end = Instant::now() + patient(Duration::from_secs(3));
        while tap.recv(&mut got, &mut pool, 32).expect("up") == 32 {
            assert!(Instant::now() < end);
        }
        assert_eq!(got.len(), 128, "the ring's length");
        assert_eq!(tap.lost(), 320 - 128);
        assert_eq!(tap.malformed(), 0);
        drop(tap);
        assert!(vanishes("up0"));
        for end in ["link set up0 down", "link del up0"] {
            let mut tap = Tap::open("up%d", 128).unwrap_or_else(|e| panic!("{e}"));
            ip(end);
            assert!(poll(&[tap.poll_fd().as_raw_fd()], 1000), "{end}");
            for _ in 0..2 {
                let e = tap.recv(&mut got, &mut pool, 8).err().and_then(|e| e.raw_os_error());
                assert_eq!(e, Some(libc::ENODEV), "{end}");
            }
            drop(tap);
            assert!(vanishes("up0"));
        }
        let tap = Tap::open("up%d", 128).unwrap_or_else(|e| panic!("{e}"));
        drop(tap);
        assert!(vanishes("up0"));
    });
}
