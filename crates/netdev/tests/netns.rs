// SPDX-License-Identifier: Apache-2.0
//! Devices on real interfaces. Each test runs in the network namespace of its own thread, which
//! ends with it. Without root the tests print SKIPPED and pass.

mod support;

use netdev::{
    Kind, LinkEvent, LinkMonitor, Opened, PacketPool, Policing, QosOptions, QosRequest, Reception,
    open, queue_priority,
};
use packet::{Offload, Packet};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use support::*;
use testing::{Netns, patient};

/// Swaps the directions of a UDP packet from 10.0.0.1 to 10.0.0.2. The checksum stays valid.
fn turn_around(p: &mut Packet) {
    let d = p.data_mut();
    let at = if d[12..14] == [0x81, 0] { 4 } else { 0 };
    for (a, b, n) in [(0, 6, 6), (at + 26, at + 30, 4), (at + 34, at + 36, 2)] {
        for i in 0..n {
            d.swap(a + i, b + i);
        }
    }
}

#[test]
fn system_keeps_unfinished_checksums_both_ways() {
    in_namespace(|| {
        veth("v0", "p");
        let mut port = opened(&spec("p", Kind::System));
        let socket = udp_socket();
        let send = || {
            socket.send_to(b"through the port", "10.0.0.2:5000").expect("routed");
        };
        let mut p = receive(&mut port, b"through the port", send);
        assert_eq!(p.offload.csum, Some((34, 6)), "left unfinished by the stack");
        turn_around(&mut p);
        assert_eq!(port.sender.send(std::slice::from_ref(&p)).sent, 1);
        let mut buffer = [0; 100];
        let (n, from) = socket.recv_from(&mut buffer).expect("the stack took the packet");
        assert_eq!((&buffer[..n], from.port()), (b"through the port".as_slice(), 5000));
        let status = port.device.status().expect("present");
        assert!(status.admin_up && status.link_up && status.promiscuous);
        assert_eq!(status.driver.name, "veth");
        assert_eq!(status.speed_bps, Some(10_000_000_000));
        assert_eq!(status.duplex, Some(netdev::Duplex::Full));
        assert_eq!(status.features.current, 1 << 6 | 1 << 11, "10GB-FD COPPER");
        assert_eq!(status.link_kind.as_deref(), Some("veth"));
        let stats = port.device.stats().expect("present");
        assert!(stats.rx_packets >= Some(1) && stats.tx_packets >= Some(1), "{stats:?}");
    });
}

/// Opens a system port as one that a BPF tier gives back: muted first, and with a filter of the
/// tier that accepts each packet.
fn given_back(name: &str) -> Opened {
    let mut s = spec(name, Kind::System);
    s.muted = true;
    let port = opened(&s);
    port.device.set_filter(accept_all().as_fd()).expect("a system port");
    port.device.set_receiving(Reception::On).expect("present");
    port
}

/// Loads a socket filter that returns -1.
fn accept_all() -> OwnedFd {
    let code: [u64; 2] = [0xffff_ffff_0000_00b4, 0x95];
    let mut load = [0u64; 16];
    let address = |p: *const u64| p.expose_provenance() as u64;
    load[0] = 1 | 2 << 32; // BPF_PROG_TYPE_SOCKET_FILTER, two instructions
    load[1] = address(code.as_ptr());
    load[2] = c"GPL".as_ptr().expose_provenance() as u64;
    // SAFETY: the structure and what it points to live through the call (BPF_PROG_LOAD). A
    // non-negative result is a new descriptor.
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, 5, load.as_ptr(), 128);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd as i32)
    }
}

#[test]
fn system_restores_vlan_tags_and_sends_them() {
    in_namespace(|| {
        veth("v0", "p");
        // The kernel removes the tags on reception, from any sender.
        let (mut a, mut b) = (opened(&spec("v0", Kind::System)), given_back("p"));
        let send = || {
            udp_socket().send_to(b"to be tagged", "10.0.0.2:5000").expect("routed");
        };
        let plain = receive(&mut b, b"to be tagged", send);
        assert_eq!(plain.offload.csum, Some((34, 6)));
        for (tag, length) in [([0x81, 0, 0xa0, 7], 4), ([0x88, 0xa8, 0, 9], 4)] {
            let mut p = plain.clone();
            p.insert_at(12, length);
            p.data_mut()[12..16].copy_from_slice(&tag);
            p.data_mut()[..6].fill(0xff);
            for turn in 0..2 {
                let (from, to) = if turn == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
                let send = || assert_eq!(from.sender.send(std::slice::from_ref(&p)).sent, 1);
                let got = receive(to, b"to be tagged", send);
                assert_eq!(got.data(), p.data());
                assert_eq!(got.offload.csum, Some((38, 6)), "its offset includes the tag");
            }
        }
        // Two tags.
        let mut p = plain.clone();
        p.insert_at(12, 8);
        p.data_mut()[12..20].copy_from_slice(&[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7]);
        let send = || assert_eq!(a.sender.send(std::slice::from_ref(&p)).sent, 1);
        assert_eq!(receive(&mut b, b"to be tagged", send), p);
    });
}

#[test]
fn tap_and_internal_ports_meet_the_hosts_stack() {
    in_namespace(|| {
        for kind in [Kind::Internal, Kind::Tap] {
            let mut s = spec("t0", kind);
            s.mac = Some([2, 0, 0, 0, 0, 1]);
            s.mtu = Some(1400);
            let mut port = opened(&s);
            ip("addr add 10.0.0.1/24 dev t0");
            port.device.set_admin_up(true).expect("allowed");
            ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev t0");
            let status = port.device.status().expect("present");
            assert_eq!((status.mtu, status.mac), (1400, [2, 0, 0, 0, 0, 1]));
            assert_eq!((status.driver.name.as_str(), status.admin_up), ("tun", true));
            assert_eq!(port.device.kind(), kind);
            let socket = udp_socket();
            let send = || {
                socket.send_to(b"hello switch", "10.0.0.2:5000").expect("routed");
            };
            let mut p = receive(&mut port, b"hello switch", send);
            assert_eq!(p.offload.csum, Some((34, 6)));
            turn_around(&mut p);
            assert_eq!(port.sender.send(&[p]).sent, 1);
            let mut buffer = [0; 100];
            assert_eq!(socket.recv(&mut buffer).expect("delivered"), 12);
            let stats = port.device.stats().expect("present");
            assert_eq!(stats.tx_packets, Some(1), "what we sent, not what the host sent");
            assert!(stats.rx_packets >= Some(1));
            drop(socket);
            drop(port);
            // A child process that is being started may hold a copy for a moment.
            let end = Instant::now() + patient(Duration::from_secs(2));
            while netdev::link::exists("t0") {
                assert!(Instant::now() < end, "it must vanish with us");
                thread::sleep(Duration::from_millis(2));
            }
        }
        // A persistent tap is attached, and remains.
        ip("tuntap add name t1 mode tap");
        drop(opened(&spec("t1", Kind::Tap)));
        assert!(netdev::link::exists("t1"));
        ip("link add d0 type bridge");
        let e = open(&spec("d0", Kind::Internal)).err().expect("no tap");
        assert_eq!(e.raw_os_error(), Some(libc::EINVAL), "{e}");
    });
}

/// Forwards between two devices until `stop` is set. Returns the number of segmentation packets.
fn forward(mut a: Opened, mut b: Opened, stop: &AtomicBool) -> u64 {
    let mut pool = PacketPool::default();
    let mut large = 0;
    while !stop.load(Ordering::Relaxed) {
        let fds = [&mut a, &mut b].map(|o| queue(o).poll_fd().expect("kernel device").as_raw_fd());
        poll(&fds, 20);
        let mut packets = Vec::new();
        for _ in 0..2 {
            queue(&mut a).recv(&mut packets, &mut pool, 64).expect("present");
            large += packets.iter().filter(|p| p.offload.gso.is_some()).count() as u64;
            let report = b.sender.send(&packets);
            assert_eq!(report.dropped_malformed + report.dropped_too_long, 0, "{report:?}");
            pool.give_all(&mut packets);
            std::mem::swap(&mut a, &mut b);
        }
    }
    large
}

/// Sends TCP between two namespaces through ports of the two kinds. Returns the number of
/// segmentation packets forwarded.
fn tcp_between(kind_a: Kind, kind_b: Kind, bytes: usize) -> u64 {
    let stop = Arc::new(AtomicBool::new(false));
    let large = Arc::new(AtomicU64::new(0));
    let (ready_tx, ready_rx) = mpsc::channel::<()>();
    let mut hosts = Vec::new();
    for side in 0..2 {
        let (ready_tx, (go_tx, go_rx)) = (ready_tx.clone(), mpsc::channel::<()>());
        let (sum_tx, sum_rx) = mpsc::channel::<u64>();
        let netns = Netns::new();
        netns.spawn(move || {
            if go_rx.recv().is_err() {
                return; // the main thread has failed
            }
            ip(&format!("addr add 10.0.0.{}/24 dev e{side}", side + 1));
            ip(&format!("link set e{side} up"));
            let sum = if side == 0 {
                let listener = TcpListener::bind("10.0.0.1:7000").expect("address is set");
                ready_tx.send(()).expect("main waits");
                let (mut stream, _) = listener.accept().expect("connects");
                stream.set_read_timeout(Some(patient(Duration::from_secs(5)))).expect("not 0");
                let mut sum = 0u64;
                let mut buffer = vec![0; 65536];
                loop {
                    let n = stream.read(&mut buffer).expect("data goes on");
                    if n == 0 {
                        break;
                    }
                    sum += buffer[..n].iter().map(|b| u64::from(*b)).sum::<u64>();
                }
                stream.write_all(&sum.to_be_bytes()).expect("connected");
                sum
            } else {
                ready_tx.send(()).expect("main waits");
                let address = "10.0.0.1:7000".parse().expect("an address");
                let mut stream =
                    TcpStream::connect_timeout(&address, patient(Duration::from_secs(5)))
                        .expect("TCP connects through the ports");
                stream.set_read_timeout(Some(patient(Duration::from_secs(5)))).expect("not 0");
                stream.set_write_timeout(Some(patient(Duration::from_secs(5)))).expect("not 0");
                let data: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect();
                stream.write_all(&data).expect("sent");
                stream.shutdown(std::net::Shutdown::Write).expect("connected");
                let mut answer = [0; 8];
                stream.read_exact(&mut answer).expect("answered");
                let sum = data.iter().map(|b| u64::from(*b)).sum::<u64>();
                assert_eq!(u64::from_be_bytes(answer), sum);
                sum
            };
            sum_tx.send(sum).expect("main waits");
        });
        hosts.push((sum_rx, go_tx, netns));
    }
    let mut ports = Vec::new();
    for (side, kind) in [kind_a, kind_b].into_iter().enumerate() {
        let netns = hosts[side].2.path();
        let netns = netns.display();
        match kind {
            Kind::Internal => {
                let port = opened(&spec(&format!("e{side}"), kind));
                ip(&format!("link set e{side} netns {netns}"));
                assert!(port.device.status().is_ok(), "found in its new namespace");
                ports.push(port);
            }
            _ => {
                ip(&format!("link add p{side} type veth peer name e{side}"));
                ip(&format!("link set p{side} up"));
                ip(&format!("link set e{side} netns {netns}"));
                ports.push(opened(&spec(&format!("p{side}"), kind)));
            }
        }
    }
    let (b, a) = (ports.pop().expect("two"), ports.pop().expect("two"));
    let forwarder = {
        let (stop, large) = (stop.clone(), large.clone());
        thread::spawn(move || large.store(forward(a, b, &stop), Ordering::Relaxed))
    };
    for (_, go, _) in &hosts {
        go.send(()).expect("the host thread waits");
        ready_rx.recv_timeout(patient(Duration::from_secs(5))).expect("the host is ready");
    }
    let sums: Vec<_> =
        hosts.iter().map(|(sum, ..)| sum.recv_timeout(patient(Duration::from_secs(20)))).collect();
    stop.store(true, Ordering::Relaxed);
    forwarder.join().expect("forwarding did not fail");
    drop(hosts);
    for side in 0..2 {
        // It vanishes with its peer's namespace, now or soon.
        let _ = Command::new("ip").args(["link", "del", &format!("p{side}")]).output();
    }
    let sums: Vec<u64> = sums.into_iter().map(|s| s.expect("the host did its part")).collect();
    assert_eq!(sums[0], sums[1]);
    large.load(Ordering::Relaxed)
}

/// While the kernel moves an interface, it is in no network namespace.
#[test]
fn an_internal_port_that_is_on_its_way_is_not_gone() {
    in_namespace(|| {
        let port = opened(&spec("e0", Kind::Internal));
        let (here, there) = (Netns::of_this_thread(), Netns::new());
        let (home, away) = (here.path().display().to_string(), there.path().display().to_string());
        let mover = thread::spawn(move || {
            for _ in 0..20 {
                here.sh(&format!("ip link set e0 netns {away}"));
                there.sh("ip link set e0 name eth0 && ip link set eth0 name e0");
                there.sh(&format!("ip link set e0 netns {home}"));
            }
        });
        while !mover.is_finished() {
            let status = port.device.status();
            assert!(status.is_ok(), "{:?}", status.err());
        }
        mover.join().expect("all commands succeed");
    });
}

#[test]
fn tcp_between_system_ports_stays_in_large_packets() {
    in_namespace(|| {
        let large = tcp_between(Kind::System, Kind::System, 8 << 20);
        assert!(large > 20, "only {large} segmentation packets");
    });
}

#[test]
fn tcp_between_an_internal_port_in_a_container_and_a_system_port() {
    in_namespace(|| {
        let large = tcp_between(Kind::System, Kind::Internal, 4 << 20);
        assert!(large > 10, "only {large} segmentation packets");
        let large = tcp_between(Kind::Internal, Kind::System, 4 << 20);
        assert!(large > 10, "only {large} segmentation packets");
    });
}

/// Returns true when this kernel has AF_XDP.
fn has_af_xdp() -> bool {
    // SAFETY: no memory is passed; the descriptor is closed at once.
    let has = unsafe {
        let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0);
        fd >= 0 && libc::close(fd) == 0
    };
    if !has {
        testing::skip("no AF_XDP here");
    }
    has
}

/// Returns those of the kinds that this kernel has.
fn present<const N: usize>(kinds: [Kind; N]) -> impl Iterator<Item = Kind> {
    kinds.into_iter().filter(|kind| *kind != Kind::AfXdp || has_af_xdp())
}

#[test]
fn tcp_between_afxdp_and_other_ports() {
    in_namespace(|| {
        if has_af_xdp() {
            tcp_between(Kind::AfXdp, Kind::AfXdp, 1 << 20);
            tcp_between(Kind::AfXdp, Kind::System, 1 << 20);
            tcp_between(Kind::Internal, Kind::AfXdp, 1 << 20);
        }
    });
}

#[test]
fn afxdp_modes() {
    in_namespace(|| {
        if !has_af_xdp() {
            return;
        }
        veth("v0", "p");
        let with = |mode: &str| {
            let mut s = spec("p", Kind::AfXdp);
            s.options = BTreeMap::from([("xdp-mode".to_owned(), mode.to_owned())]);
            s
        };
        let e = open(&with("native-with-zerocopy")).err().expect("veth has no zero copy");
        assert!(e.to_string().contains("AF_XDP"), "{e}");
        let e = open(&with("fast")).err().expect("no such mode");
        assert!(e.to_string().contains("xdp-mode"), "{e}");
        let mut many = with("native");
        many.n_rxq = 1000;
        assert!(open(&many).is_err());
        for mode in ["native", "generic", "best-effort"] {
            let mut port = opened(&with(mode));
            let e = open(&with(mode)).err().expect("attached already");
            let busy = matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
            assert!(busy, "{e}");
            let socket = udp_socket();
            let send = || {
                socket.send_to(b"through xdp", "10.0.0.2:5000").expect("routed");
            };
            let mut p = receive(&mut port, b"through xdp", send);
            assert_eq!(p.offload.csum, Some((34, 6)), "recognised");
            turn_around(&mut p);
            // More than one system call sends, and more than there are frames for transmission.
            let mut sent = 0;
            for _ in 0..20 {
                let report = port.sender.send(&vec![p.clone(); 100]);
                assert_eq!(report.sent, 100, "{report:?}");
                sent += report.sent;
            }
            let mut buffer = [0; 100];
            assert_eq!(socket.recv(&mut buffer).expect("delivered"), 11);
            let tx = port.device.stats().expect("present").tx_packets;
            assert!(tx >= Some(sent), "{tx:?}");
            let status = port.device.status().expect("present");
            let shown = status.extra.iter().find(|(k, _)| k == "xdp-mode").map(|(_, v)| v.as_str());
            assert_eq!(shown, Some(if mode == "best-effort" { "native" } else { mode }));
            drop(port);
        }
        // Detached: a system port sees the packets again.
        let mut port = opened(&spec("p", Kind::System));
        let send = || {
            udp_socket().send_to(b"without xdp", "10.0.0.2:5000").expect("routed");
        };
        receive(&mut port, b"without xdp", send);
    });
}

/// The kernel signals every freed packet to the wait queue of the socket that sent it.
#[test]
fn packet_threads_wait_for_afxdp_sockets_that_send_nothing() {
    in_namespace(|| {
        if !has_af_xdp() {
            return;
        }
        veth("v0", "p");
        let mut port = opened(&spec("p", Kind::AfXdp));
        let fd = queue(&mut port).poll_fd().expect("polled").as_raw_fd();
        let mut asked = libc::pollfd { fd, events: libc::POLLIN | libc::POLLOUT, revents: 0 };
        // SAFETY: one entry, which lives through the call.
        let ready = unsafe { libc::poll(&raw mut asked, 1, 0) };
        assert!(ready >= 0, "{}", std::io::Error::last_os_error());
        assert_eq!(asked.revents & !libc::POLLIN, 0, "it has no ring for transmission");
        assert_eq!(port.sender.send(&[Packet::from_slice(&[0xff; 60])]).sent, 1);
    });
}

#[test]
fn a_device_that_goes_down_comes_back_and_one_that_vanishes_is_an_error() {
    in_namespace(|| {
        for kind in present([Kind::System, Kind::AfXdp, Kind::Internal]) {
            let (mut port, doomed) = if kind == Kind::Internal {
                let port = opened(&spec("t0", kind));
                port.device.set_admin_up(true).expect("allowed");
                ip("addr add 10.0.0.1/24 dev t0");
                ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev t0");
                (port, "t0")
            } else {
                veth("v0", "p");
                (opened(&spec("p", kind)), "v0")
            };
            let mut pool = PacketPool::default();
            let mut out = Vec::new();
            let frame = Packet::from_slice(&[0xff; 60]);
            assert_eq!(port.sender.send(std::slice::from_ref(&frame)).sent, 1, "{kind}");
            port.device.set_admin_up(false).expect("allowed");
            for _ in 0..3 {
                queue(&mut port).recv(&mut out, &mut pool, 8).expect("down is no error");
            }
            let report = port.sender.send(&[frame.clone(), frame.clone()]);
            assert_eq!((report.dropped_down, report.sent), (2, 0), "{kind}: {report:?}");
            port.device.set_admin_up(true).expect("allowed");
            if kind != Kind::Internal {
                ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:02 dev v0");
            } else {
                ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:02 dev t0");
            }
            let end = Instant::now() + patient(Duration::from_secs(2));
            let socket = udp_socket();
            loop {
                // The carrier may need a moment.
                let _ = socket.send_to(b"up again", "10.0.0.2:5000");
                queue(&mut port).recv(&mut out, &mut pool, 8).expect("up");
                if out.drain(..).any(|p| contains(&p, b"up again")) {
                    break;
                }
                assert!(Instant::now() < end, "{kind}: nothing received after coming up");
                thread::sleep(Duration::from_millis(5));
            }
            drop(socket);
            ip(&format!("link del {doomed}"));
            let error = (0..100).find_map(|_| queue(&mut port).recv(&mut out, &mut pool, 8).err());
            assert_eq!(
                error.and_then(|e| e.raw_os_error()),
                Some(libc::ENODEV),
                "{kind}: a vanished device must be an error"
            );
            let report = port.sender.send(&[frame]);
            assert_eq!(report.dropped_down, 1, "{kind}: {report:?}");
            let status = port.device.status().err().and_then(|e| e.raw_os_error());
            assert_eq!(status, Some(libc::ENODEV), "{kind}");
            assert!(port.device.stats().is_err());
            assert_eq!(port.device.ifindex(), None);
        }
    });
}

/// An interface keeps its index in another namespace and on its way back, if the index is free
/// there.
#[test]
fn a_device_that_was_away_is_gone_though_it_is_back_with_its_index() {
    in_namespace(|| {
        let (here, there) = (Netns::of_this_thread(), Netns::new());
        for kind in present([Kind::System, Kind::AfXdp]) {
            veth("v0", "p");
            let mut port = opened(&spec("p", kind));
            let index = port.device.ifindex();
            ip(&format!("link set p netns {}", there.path().display()));
            there.sh(&format!("ip link set p netns {}", here.path().display()));
            ip("link set p up");
            assert_eq!(netdev::link::find("p").ok().map(|link| link.index), index);
            let number = |e: Option<std::io::Error>| e.and_then(|e| e.raw_os_error());
            for _ in 0..2 {
                assert_eq!(number(port.device.status().err()), Some(libc::ENODEV), "{kind}");
                assert_eq!(port.device.ifindex(), None, "{kind}");
                // This must not affect the present interface.
                assert!(port.device.set_receiving(Reception::On).is_err(), "{kind}");
            }
            let (mut out, mut pool) = (Vec::new(), PacketPool::default());
            let error = (0..100).find_map(|_| queue(&mut port).recv(&mut out, &mut pool, 8).err());
            assert_eq!(number(error), Some(libc::ENODEV), "{kind}");
            let report = port.sender.send(&[Packet::from_slice(&[0xff; 60])]);
            assert_eq!(report.dropped_down, 1, "{kind}: {report:?}");
            drop(port);
            receives_from_peer(opened(&spec("p", kind)), b"here again");
            ip("link del v0");
        }
    });
}

/// The port receives a packet that the host sends from the other endpoint. Then the port is closed.
fn receives_from_peer(mut port: Opened, text: &[u8]) {
    let socket = udp_socket();
    receive(&mut port, text, || {
        // The carrier may need a moment.
        let _ = socket.send_to(text, "10.0.0.2:5000");
    });
}

/// The interface may be set down for that, which unbinds sockets for a while.
#[test]
fn a_device_that_gets_another_name_is_the_same_one() {
    in_namespace(|| {
        for kind in present([Kind::System, Kind::AfXdp]) {
            veth("v0", "p");
            let mut port = opened(&spec("p", kind));
            let index = port.device.ifindex();
            let (mut out, mut pool) = (Vec::new(), PacketPool::default());
            for change in ["link set p down", "link set p name q", "link set q up"] {
                ip(change);
                for _ in 0..3 {
                    queue(&mut port).recv(&mut out, &mut pool, 8).expect("present");
                    let status = port.device.status().expect("present");
                    assert_eq!(status.ifindex, index, "{kind}: {change}");
                }
            }
            receives_from_peer(port, b"by another name");
            ip("link del v0");
        }
    });
}

#[test]
fn drops_are_counted_by_reason() {
    in_namespace(|| {
        veth("v0", "p");
        let port = opened(&spec("p", Kind::System));
        let frame = |n: usize| Packet::from_slice(&vec![0xff; n]);
        let mut broken = frame(100);
        broken.offload = Offload { csum: Some((98, 16)), ..Offload::default() };
        let batch = [frame(60), frame(13), frame(3000), broken, frame(0), frame(1514)];
        let report = port.sender.send(&batch);
        assert_eq!(report.sent, 2, "{report:?}");
        assert_eq!(report.dropped_malformed, 3, "{report:?}");
        assert_eq!(report.dropped_too_long, 1, "{report:?}");
        assert_eq!(report.dropped() + report.sent, batch.len() as u64);
    });
}

/// Receives until the number of packets of each kind reaches `wanted`, and returns them. The
/// packets of a kind have MAC addresses of one repeated byte.
fn received<const N: usize>(port: &mut Opened, wanted: [(u8, usize); N]) -> [Vec<Packet>; N] {
    let (mut out, mut pool) = (Vec::new(), PacketPool::default());
    let of = |out: &[Packet], byte: u8| -> Vec<Packet> {
        out.iter().filter(|p| p.data()[..12] == [byte; 12]).cloned().collect()
    };
    let end = Instant::now() + patient(Duration::from_secs(3));
    while wanted.iter().any(|(byte, count)| of(&out, *byte).len() < *count) {
        assert!(Instant::now() < end, "{out:?}");
        queue(port).recv(&mut out, &mut pool, 8).expect("present");
    }
    wanted.map(|(byte, _)| of(&out, byte))
}

/// The interface underneath a macvlan delays frames here, and the kernel limits the frames in
/// flight per socket.
#[test]
fn what_a_busy_device_had_no_room_for_leaves_though_nothing_more_is_sent() {
    in_namespace(|| {
        if !has_af_xdp() {
            return;
        }
        let here = Netns::of_this_thread();
        veth("low", "far");
        let made = here.run(
            "ip link add link low name mv type macvlan && ip link set mv up \
             && tc qdisc add dev low root tbf rate 1mbit burst 3000 limit 1000000",
        );
        if !made.ok() {
            testing::skip("no macvlan, or no tbf here");
            return;
        }
        here.carrier("mv");
        let mut far = opened(&spec("far", Kind::System));
        let mut s = spec("mv", Kind::AfXdp);
        s.options = BTreeMap::from([("xdp-mode".to_owned(), "generic".to_owned())]);
        let port = opened(&s);
        let report = port.sender.send(&vec![Packet::from_slice(&[2; 60]); 800]);
        assert_eq!(report.sent, 800, "{report:?}");
        let [all] = received(&mut far, [(2, 800)]);
        assert_eq!(all.len(), 800);
    });
}

/// TCP after an MPLS label, unsegmented. The kernel accepts such a packet and drops it.
#[test]
fn packets_with_labels_are_segmented_in_userspace() {
    in_namespace(|| {
        veth("v0", "p");
        let (from, mut to) = (opened(&spec("v0", Kind::System)), opened(&spec("p", Kind::System)));
        let payload: Vec<u8> = (0..2500u32).map(|i| (i / 10) as u8).collect();
        let mut bytes = vec![2; 12];
        bytes.extend([0x88, 0x47]);
        bytes.extend((77u32 << 12 | 0x140).to_be_bytes());
        bytes.extend([0x45, 0]);
        bytes.extend(2540u16.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 8]);
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        bytes.extend(&payload);
        let mut p = Packet::from_slice(&bytes);
        p.offload.gso = Some((packet::Gso::TcpV4, 1000, 58));
        p.offload.csum = Some((38, 16));
        // Together with ordinary packets.
        let plain = Packet::from_slice(&[3; 60]);
        assert_eq!(from.sender.send(&[plain.clone(), p, plain]).sent, 3);
        let [out, _plain] = received(&mut to, [(2, 3), (3, 2)]);
        let joined: Vec<u8> = out.iter().flat_map(|p| p.data()[58..].to_vec()).collect();
        assert_eq!(joined, payload);
        assert!(out.iter().all(|p| p.offload.gso.is_none() && p.len() <= 1058));
    });
}

#[test]
fn what_the_kernel_refuses_to_segment_is_segmented_here() {
    in_namespace(|| {
        veth("v0", "p");
        let (from, mut to) = (opened(&spec("v0", Kind::System)), opened(&spec("p", Kind::System)));
        let payload: Vec<u8> = (0..2500u32).map(|i| (i / 10) as u8).collect();
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend(2528u16.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 8]);
        bytes.extend(2508u16.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(&payload);
        let mut p = Packet::from_slice(&bytes);
        // The kernel requires an unfinished checksum with UDP segmentation.
        p.offload.gso = Some((packet::Gso::UdpL4, 1000, 42));
        assert_eq!(from.sender.send(&[p]).sent, 1);
        let [out] = received(&mut to, [(2, 3)]);
        let joined: Vec<u8> = out.iter().flat_map(|p| p.data()[42..].to_vec()).collect();
        assert_eq!(joined, payload);
        assert!(out.iter().all(|p| p.offload.gso.is_none() && p.len() <= 1042));
    });
}

/// A guest's tap that is a port may deliver packets that the next device has to fragment. The
/// header of packet sockets cannot describe that.
#[test]
fn a_packet_that_the_kernel_cannot_describe_is_lost_alone() {
    in_namespace(|| {
        let guest = opened(&spec("t0", Kind::Tap));
        guest.device.set_admin_up(true).expect("allowed");
        undescribable(&guest, opened(&spec("t0", Kind::System)));
        undescribable(&guest, given_back("t0"));
    });
}

fn undescribable(guest: &Opened, mut port: Opened) {
    let mut bytes = vec![2; 12];
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend(2528u16.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 8]);
    bytes.extend(2508u16.to_be_bytes());
    bytes.extend([0; 2502]);
    let mut large = Packet::from_slice(&bytes);
    large.offload.gso = Some((packet::Gso::UdpFragment, 1000, 42));
    large.offload.csum = Some((34, 6));
    let plain = Packet::from_slice(&[3; 60]);
    let batch = [plain.clone(), large.clone(), large, plain];
    assert_eq!(guest.sender.send(&batch).sent, 4);
    let [got] = received(&mut port, [(3, 2)]);
    assert_eq!(got.len(), 2);
    let stats = port.device.stats().expect("present");
    assert_eq!(stats.rx_malformed, Some(2));
}

/// Packets that fit a frame of the receive ring and longer ones come by different ways.
#[test]
fn packets_of_all_lengths_arrive_whole_and_in_order() {
    in_namespace(|| {
        veth("v0", "p");
        ip("link set v0 mtu 9000");
        ip("link set p mtu 9000");
        let from = opened(&spec("v0", Kind::System));
        for mut to in [opened(&spec("p", Kind::System)), given_back("p")] {
            let mut sent = Vec::new();
            // The frame has some room for headers before the packet.
            let lengths = (60..9000).step_by(470).chain(1940..2060).chain([9014, 61]);
            for (i, length) in lengths.enumerate() {
                let mut bytes = vec![2; length];
                bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
                bytes[14..16].copy_from_slice(&(i as u16).to_be_bytes());
                bytes[length - 1] = i as u8;
                sent.push(Packet::from_slice(&bytes));
                if i.is_multiple_of(7) {
                    let mut tagged = sent[i].clone();
                    tagged.insert_at(12, 4);
                    tagged.data_mut()[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
                    sent[i] = tagged;
                }
                if i.is_multiple_of(5) {
                    sent[i] = in_segments(2, 2000 + i * 400);
                }
            }
            sent.iter().for_each(|p| assert_eq!(from.sender.send(std::slice::from_ref(p)).sent, 1));
            let [got] = received(&mut to, [(2, sent.len())]);
            for (got, sent) in got.iter().zip(&sent) {
                assert_eq!(got.data(), sent.data());
                assert_eq!(got.offload.gso, sent.offload.gso);
                assert_eq!(got.offload.csum, sent.offload.csum);
            }
            let stats = to.device.stats().expect("present");
            assert_eq!((stats.rx_malformed, stats.rx_overrun), (Some(0), Some(0)));
        }
    });
}

#[test]
fn packets_without_room_are_counted_and_reception_goes_on() {
    in_namespace(|| {
        veth("v0", "p");
        let from = opened(&spec("v0", Kind::System));
        let mut to = opened(&spec("p", Kind::System));
        let frames = |byte: u8, count: usize| vec![Packet::from_slice(&[byte; 60]); count];
        let arrived = |to: &mut Opened| {
            let (mut out, mut pool) = (Vec::new(), PacketPool::default());
            // A call that meets lost packets alone returns none.
            for _ in 0..200 {
                queue(to).recv(&mut out, &mut pool, 32).expect("present");
            }
            out.len() as u64
        };
        // More frames than the ring has.
        from.sender.send(&frames(2, 3000));
        let whole = arrived(&mut to);
        let lost = to.device.stats().expect("present").rx_overrun.expect("counted");
        assert!(whole >= 100 && lost > 0, "{whole} arrived, {lost} lost");
        assert_eq!(whole + lost, 3000);
        // More bytes than the queue of long packets has: the ring's frames are too short for them.
        let mut long = 0;
        for _ in 0..500 {
            long += from.sender.send(&[in_segments(2, 60_000)]).sent;
        }
        let whole = arrived(&mut to);
        let cut = to.device.stats().expect("present").rx_overrun.expect("counted") - lost;
        assert!(whole > 0 && cut > 0, "{whole} arrived, {cut} lost");
        assert_eq!(whole + cut, long);
        from.sender.send(&frames(3, 2000));
        let [_] = received(&mut to, [(3, 100)]);
    });
}

#[test]
fn policing_drops_what_exceeds_the_rate() {
    in_namespace(|| {
        veth("v0", "p");
        let mut port = opened(&spec("p", Kind::System));
        let policing = Policing { rate_kbps: 1, burst_kb: 1, ..Policing::default() };
        port.device.set_policing(policing).expect("system can");
        let socket = udp_socket();
        for _ in 0..200 {
            socket.send_to(&[7; 1000], "10.0.0.2:5000").expect("routed");
        }
        let (mut out, mut pool) = (Vec::new(), PacketPool::default());
        for _ in 0..10 {
            queue(&mut port).recv(&mut out, &mut pool, 64).expect("present");
        }
        // The smallest bucket holds 66,000 bytes; ARP and the like may come between.
        assert!((55..=65).contains(&out.len()), "{}", out.len());
        assert!(port.device.stats().expect("present").rx_policed >= Some(135));
    });
}

fn tc(line: &str) -> String {
    let output = Command::new("tc").args(line.split(' ')).output().expect("iproute2 is there");
    assert!(output.status.success(), "tc {line}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn qos_options(pairs: &[(&str, &str)]) -> QosOptions {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn htb(max: &str, queues: &[(u32, &[(&str, &str)])]) -> QosRequest {
    QosRequest {
        kind: "linux-htb".to_owned(),
        options: qos_options(&[("max-rate", max)]),
        queues: queues.iter().map(|(number, pairs)| (*number, qos_options(pairs))).collect(),
    }
}

#[test]
fn htb_is_made_changed_adopted_and_removed() {
    in_namespace(|| {
        veth("v0", "p");
        let port = opened(&spec("p", Kind::System));
        let limits = [("min-rate", "1000000"), ("max-rate", "5000000"), ("priority", "3")];
        let wanted = htb("10000000", &[(1, &limits), (5, &[("burst", "100000")])]);
        if let Err(error) = port.device.set_qos(Some(&wanted)) {
            assert!(error.to_string().contains("module sch_htb"), "{error}");
            eprintln!("SKIPPED: {error}");
            return;
        }
        assert!(tc("qdisc show dev p").starts_with("qdisc htb 1: root"));
        let classes = tc("class show dev p");
        // The lines of Open vSwitch 3.1 for these rows.
        for line in [
            "class htb 1:fffe root rate 10Mbit ceil 10Mbit burst 1500b cburst 1500b",
            "class htb 1:1 parent 1:fffe prio 0 rate 12Kbit ceil 10Mbit burst 1563b cburst 1563b",
            "class htb 1:2 parent 1:fffe prio 3 rate 1Mbit ceil 5Mbit burst 1564b cburst 1563b",
            "class htb 1:6 parent 1:fffe prio 0 rate 12Kbit ceil 10Mbit burst 12499b cburst 12500b",
        ] {
            assert!(classes.contains(line), "{line} is not in {classes}");
        }
        assert_eq!(port.device.transmit_queues(), [0, 1, 5]);

        // Each packet goes to the class of its priority; others to queue 0.
        let frame = |priority| {
            let mut p = Packet::from_slice(&[0x50; 100]);
            p.priority = priority;
            p
        };
        let of = |queue| queue_priority(queue).expect("a queue");
        let packets = [of(5), of(1), of(1), 0, of(9)].map(frame);
        assert_eq!(port.sender.send(&packets).sent, 5);
        let sent = |queue| {
            let stats = port.device.queue_stats(queue).expect("a queue");
            assert_eq!(stats.tx_bytes, stats.tx_packets * 100);
            stats.tx_packets
        };
        let deadline = Instant::now() + patient(Duration::from_secs(5));
        while sent(0) < 2 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!([0, 1, 5].map(sent), [2, 2, 1]);
        assert_eq!(port.device.queue_stats(9), None);

        // A change keeps the discipline and the counters of classes that stay.
        port.device.set_qos(Some(&htb("20000000", &[(1, &[])]))).expect("a change");
        assert_eq!((port.device.transmit_queues(), sent(1)), (vec![0, 1], 2));
        assert!(!tc("class show dev p").contains("1:6 "));

        // The next daemon takes the discipline over.
        drop(port);
        let port = opened(&spec("p", Kind::System));
        port.device.set_qos(Some(&htb("20000000", &[(7, &[])]))).expect("a change");
        let classes = tc("class show dev p");
        assert!(classes.contains("1:8 ") && !classes.contains("1:2 "), "{classes}");
        port.device.set_qos(None).expect("removed");
        assert!(!tc("qdisc show dev p").contains("htb"));

        // Without a row, a root of another program stays, but not one that a daemon left.
        tc("qdisc add dev p root handle 5: tbf rate 1mbit burst 10k latency 5ms");
        drop(port);
        let port = opened(&spec("p", Kind::System));
        port.device.set_qos(None).expect("nothing to do");
        assert!(tc("qdisc show dev p").contains("tbf 5:"));
        port.device.set_qos(Some(&htb("20000000", &[]))).expect("replaced");
        let noop = QosRequest { kind: "linux-noop".to_owned(), ..QosRequest::default() };
        drop(port);
        let port = opened(&spec("p", Kind::System));
        port.device.set_qos(Some(&noop)).expect("nothing to do");
        assert!(tc("qdisc show dev p").contains("htb 1:"));
        drop(port);
        let port = opened(&spec("p", Kind::System));
        port.device.set_qos(None).expect("removed");
        assert!(!tc("qdisc show dev p").contains("htb"));

        // Neither does a root of another program go that has replaced the daemon's, or whose child
        // has the daemon's handle.
        port.device.set_qos(Some(&htb("20000000", &[]))).expect("set");
        tc("qdisc replace dev p root handle 6: htb");
        tc("class add dev p parent 6: classid 6:1 htb rate 1mbit");
        tc("qdisc add dev p parent 6:1 handle 1: tbf rate 1mbit burst 10k latency 5ms");
        port.device.set_qos(None).expect("nothing to do");
        assert!(tc("qdisc show dev p").contains("htb 6: root"));
        drop(port);
        let port = opened(&spec("p", Kind::System));
        port.device.set_qos(None).expect("nothing to do");
        assert!(tc("qdisc show dev p").contains("htb 6: root"));
    });
}

type Pairs<'a> = &'a [(&'a str, &'a str)];

/// Guests have the modules that many kernels lack.
#[test]
fn each_discipline_is_made_or_named_as_missing() {
    in_namespace(|| {
        veth("v0", "p");
        let port = opened(&spec("p", Kind::System));
        let types: [(&str, Pairs<'_>, &str); 6] = [
            ("linux-htb", &[], "qdisc htb 1: root"),
            ("linux-hfsc", &[], "qdisc hfsc 1: root"),
            ("linux-sfq", &[("perturb", "7")], "perturb 7sec"),
            ("linux-codel", &[("limit", "99"), ("target", "7000")], "limit 99p target 7ms"),
            ("linux-fq_codel", &[("flows", "64")], "flows 64"),
            ("linux-netem", &[("latency", "20000"), ("limit", "77")], "limit 77 delay 20ms"),
        ];
        for (kind, pairs, text) in types {
            let options = qos_options(pairs);
            let wanted = QosRequest { kind: kind.to_owned(), options, ..QosRequest::default() };
            match port.device.set_qos(Some(&wanted)) {
                Ok(complaints) => {
                    assert_eq!(complaints, Vec::<String>::new());
                    let made = tc("qdisc show dev p");
                    assert!(made.contains(text), "{text} is not in {made}");
                    assert_eq!(port.device.qos().map(|qos| qos.kind), Some(kind));
                    let has_queues = matches!(kind, "linux-htb" | "linux-hfsc");
                    assert_eq!(port.device.transmit_queues().len(), usize::from(has_queues));
                }
                Err(error) => {
                    let name = kind.trim_start_matches("linux-");
                    let reason = format!("the kernel has no discipline {name} (module sch_{name})");
                    assert_eq!(error.to_string(), reason);
                    assert_eq!(port.device.qos(), None);
                    eprintln!("SKIPPED: {reason}");
                }
            }
        }
        port.device.set_qos(None).expect("removed");
        assert!(tc("qdisc show dev p").starts_with("qdisc noqueue 0:"));
    });
}

#[test]
fn an_unknown_type_of_qos_is_an_error() {
    in_namespace(|| {
        veth("v0", "p");
        let port = opened(&spec("p", Kind::System));
        let wanted = QosRequest { kind: "nonsense".to_owned(), ..QosRequest::default() };
        let error = port.device.set_qos(Some(&wanted)).unwrap_err();
        assert_eq!(error.to_string(), "there is no type \"nonsense\"");
        let mut wanted = QosRequest { kind: "egress-policer".to_owned(), ..QosRequest::default() };
        wanted.options = qos_options(&[("cir", "1"), ("cbs", "350")]);
        assert_eq!(port.device.set_qos(Some(&wanted)).unwrap(), Vec::<String>::new());
        let report = port.sender.send(&vec![Packet::from_slice(&[0x50; 114]); 5]);
        assert_eq!((report.sent, report.dropped_policed), (3, 2));
        assert_eq!(port.device.qos().map(|qos| qos.kind), Some("egress-policer"));
    });
}

#[test]
fn links_are_watched() {
    in_namespace(|| {
        let mut monitor = LinkMonitor::new().expect("netlink is there");
        assert!(monitor.links().any(|l| l.name == "lo"));
        ip("link add a0 type bridge");
        ip("link set a0 mtu 1234");
        ip("link set a0 name b0");
        ip("link set b0 up");
        ip("link del b0");
        let events = monitor.events().expect("the socket is good");
        let changed = |f: &dyn Fn(&netdev::link::Link, Option<&netdev::link::Link>) -> bool| {
            events.iter().any(|e| match e {
                LinkEvent::Changed { link, before } => f(link, before.as_deref()),
                _ => false,
            })
        };
        assert!(changed(&|l, b| l.name == "a0" && b.is_none()), "{events:?}");
        assert!(changed(&|l, _| l.mtu == 1234));
        assert!(changed(&|l, b| l.name == "b0" && b.is_some_and(|b| b.name == "a0")));
        assert!(changed(&|l, b| l.admin_up && b.is_some_and(|b| !b.admin_up)));
        assert!(
            matches!(events.last(), Some(LinkEvent::Deleted { link }) if link.name == "b0"),
            "{events:?}"
        );
        assert_eq!(monitor.events().expect("good").len(), 0);
        // More than the socket holds. The last losses must be counted too.
        ip("link add a0 type bridge");
        let lines: Vec<String> =
            (0..6000).map(|i| format!("link set a0 mtu {}", 1000 + i % 2)).collect();
        batch(&lines);
        ip("link del a0");
        ip("link add a1 type bridge");
        let before = netdev::netlink_counters();
        let events = monitor.events().expect("overflow is no error");
        assert!(events.contains(&LinkEvent::Resync), "{} events", events.len());
        let after = netdev::netlink_counters();
        assert!(after.overflows > before.overflows, "{before:?} {after:?}");
        assert!(after.sent > before.sent && after.received > before.received, "it reads all again");
        let names: Vec<_> = monitor.links().map(|l| l.name.as_str()).collect();
        assert!(names.contains(&"a1") && !names.contains(&"a0"), "{names:?}");
    });
}

fn batch(lines: &[String]) {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("iproute2 is installed");
    let text = lines.join("\n") + "\n";
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    assert!(child.wait().expect("ours").success());
}
