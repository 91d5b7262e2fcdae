// SPDX-License-Identifier: Apache-2.0
//! Common functions of tests on real interfaces: namespaces, interfaces, reception.
#![allow(dead_code, reason = "no test file uses all of it")]

use netdev::{Kind, OpenSpec, Opened, PacketPool, Queue, open};
use packet::Packet;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
pub use testing::in_namespace;
use testing::{patient, wait_for};

/// Runs iproute2 in the thread's namespace.
pub fn ip(arguments: &str) {
    let out =
        Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
    assert!(out.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A child process that is being started may hold a copy of a descriptor for a moment.
pub const COPIES: Duration = Duration::from_secs(2);

pub fn spec(name: &str, kind: Kind) -> OpenSpec {
    OpenSpec::new(name, kind)
}

pub fn opened(spec: &OpenSpec) -> Opened {
    open(spec).unwrap_or_else(|e| panic!("{e}"))
}

pub fn queue(o: &mut Opened) -> &mut dyn Queue {
    o.queues.first_mut().expect("at least one").as_mut()
}

/// Calls `send` repeatedly until a packet arrives that contains `text`, within 3 seconds.
pub fn receive(o: &mut Opened, text: &[u8], send: impl Fn()) -> Packet {
    let mut pool = PacketPool::default();
    let end = Instant::now() + patient(Duration::from_secs(3));
    while Instant::now() < end {
        let mut got = Vec::new();
        send();
        poll(&[queue(o).poll_fd().expect("a kernel device").as_raw_fd()], 100);
        queue(o).recv(&mut got, &mut pool, 64).expect("the device is there");
        if let Some(p) = got.into_iter().find(|p| contains(p, text)) {
            return p;
        }
    }
    panic!("the packet did not arrive");
}

pub fn poll(fds: &[i32], ms: i32) -> bool {
    let mut list: Vec<_> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the list lives through the call and its length is given.
    unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, ms) > 0 }
}

pub fn contains(p: &Packet, text: &[u8]) -> bool {
    p.data().windows(text.len()).any(|w| w == text)
}

/// Creates the veth pair HOST-PORT. HOST has 10.0.0.1/24 and a neighbour entry for 10.0.0.2.
pub fn veth(host: &str, port: &str) {
    ip(&format!("link add {host} type veth peer name {port}"));
    ip(&format!("link set {host} address 02:00:00:00:00:01"));
    ip(&format!("addr add 10.0.0.1/24 dev {host}"));
    ip(&format!("link set {host} up"));
    ip(&format!("link set {port} up"));
    ip(&format!("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev {host}"));
    // The queue takes packets once the carrier is noticed.
    let end = Instant::now() + patient(Duration::from_secs(3));
    loop {
        let out = Command::new("ip").args(["link", "show", "dev", host]).output();
        let text = String::from_utf8(out.expect("iproute2 is installed").stdout).expect("text");
        if text.contains("state UP") {
            return;
        }
        assert!(Instant::now() < end, "{text}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn udp_socket() -> UdpSocket {
    let bound = wait_for(COPIES, || match UdpSocket::bind("10.0.0.1:4000") {
        Err(e) if e.kind() == ErrorKind::AddrInUse => None,
        bound => Some(bound),
    });
    let s = bound.expect("nobody has the address for long").expect("the address is set");
    s.set_read_timeout(Some(patient(Duration::from_secs(3)))).expect("not zero");
    s
}

/// A TCP packet of `length` bytes in segments of 1,400 bytes, with addresses of `byte`.
pub fn in_segments(byte: u8, length: usize) -> Packet {
    let mut bytes = vec![byte; 12];
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend((length as u16 - 14).to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 8]);
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.extend((bytes.len()..length).map(|i| (i / 10) as u8));
    let mut p = Packet::from_slice(&bytes);
    p.offload.gso = Some((packet::Gso::TcpV4, 1400, 54));
    p.offload.csum = Some((34, 16));
    p
}
