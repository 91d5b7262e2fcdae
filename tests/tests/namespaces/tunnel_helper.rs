// SPDX-License-Identifier: Apache-2.0
//! Tunnel devices of the kernel that the switch makes for its tunnels.

use crate::overlay::{Site, has_device, inner, outer};
use crate::tools::{SOON, is_possible, sees, switch, tcp_to};
use slipswitch_tests::harness::{
    Kind, Netns, Switch, patient, skip, tool_program, wait_until, without_tool,
};
use std::net::UdpSocket;
use std::thread::JoinHandle;
use std::time::Duration;

const DEVICE: &str = "slipvxlan4789";

fn add(switch: &Switch, port: &str, remote: &str) {
    switch.vsctl(&format!(
        "add-port br0 {port} -- set interface {port} type=vxlan options:key=1 options:remote_ip={remote}"
    ));
}

/// Returns the index of the device; `None`: it is not there. It is up whenever it is there.
fn index(switch: &Switch) -> Option<String> {
    let shown = switch.netns().run(&format!("ip -o link show {DEVICE}"));
    let line = shown.stdout.trim();
    assert!(line.is_empty() || line.contains("UP"), "{line}");
    line.split(':').next().filter(|index| !index.is_empty()).map(str::to_owned)
}

fn helpers(switch: &Switch) -> String {
    switch.appctl("slipswitch/tunnel-helpers")
}

/// Returns false, after saying so, when the switch makes no such devices on this kernel.
fn has_vxlan(switch: &Switch) -> bool {
    add(switch, "probe", "192.0.2.99");
    let text = helpers(switch);
    switch.vsctl("del-port probe");
    let lacks = text.contains("no module") || text.contains("kernel too old");
    if lacks {
        skip(&text);
    }
    !lacks
}

#[test]
fn a_device_lives_with_its_tunnels() {
    let Some(mut switch) = switch().filter(has_vxlan) else { return };
    assert_eq!(helpers(&switch), "");
    add(&switch, "t1", "192.0.2.1");
    let first = index(&switch).expect("a tunnel is there");
    assert_eq!(
        helpers(&switch),
        format!("vxlan port 4789: {DEVICE}, 0 packets given, 0 came back\n")
    );
    let doctor = switch.run(&format!("{} doctor", tool_program().display()));
    let line = format!("tunnel device for vxlan port 4789: {DEVICE}");
    assert!(doctor.contains(&line) && !doctor.contains(&format!("\n{DEVICE}")), "{doctor}");
    add(&switch, "t2", "192.0.2.2");
    switch.vsctl("del-port t1");
    assert_eq!(index(&switch).as_ref(), Some(&first), "it serves the other tunnel");

    switch.kill_daemon();
    switch.start_daemon();
    assert_eq!(index(&switch).as_ref(), Some(&first), "the next daemon goes on with it");
    switch.vsctl("set Open_vSwitch . other_config:tunnel-helper=false");
    assert_eq!((index(&switch), helpers(&switch)), (None, String::new()));
    switch.vsctl("remove Open_vSwitch . other_config tunnel-helper");
    assert!(index(&switch).is_some());
    switch.netns().sh(&format!("ip link del {DEVICE}"));
    assert!(wait_until(SOON, || index(&switch).is_some()), "somebody has deleted it");
    switch.vsctl("del-port t2");
    assert_eq!(index(&switch), None);

    add(&switch, "t1", "192.0.2.1");
    assert!(index(&switch).is_some());
    switch.appctl("exit --cleanup");
    assert_eq!(switch.wait_for_end(), Some(0));
    assert_eq!(index(&switch), None);
    assert_eq!(switch.warnings(), [""; 0]);
}

#[test]
fn a_device_that_no_tunnel_needs_goes_with_the_next_daemon() {
    let Some(mut switch) = switch().filter(has_vxlan) else { return };
    add(&switch, "t1", "192.0.2.1");
    assert!(index(&switch).is_some());
    switch.kill_daemon();
    switch.vsctl("--no-wait del-port t1");
    switch.start_daemon();
    assert!(wait_until(SOON, || index(&switch).is_none()), "{}", helpers(&switch));
}

#[test]
fn a_device_of_another_program_keeps_the_port() {
    let Some(switch) = switch().filter(has_vxlan) else { return };
    switch.netns().sh("ip link add theirs type vxlan id 7 remote 192.0.2.9 dstport 4789");
    add(&switch, "t1", "192.0.2.1");
    add(&switch, "t2", "192.0.2.2");
    assert_eq!(helpers(&switch), "vxlan port 4789: none: port in use by theirs\n");
    assert_eq!(index(&switch), None);
    let told = switch.warnings();
    let told: Vec<&String> =
        told.iter().filter(|line| line.contains("port in use by theirs")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    switch.netns().sh("ip link del theirs");
    assert!(wait_until(SOON, || index(&switch).is_some()), "the port is free");
}

#[test]
fn a_socket_of_another_program_keeps_the_port() {
    let Some(switch) = switch().filter(has_vxlan) else { return };
    let socket = switch.netns().with(|| UdpSocket::bind("0.0.0.0:4789").expect("it is free"));
    add(&switch, "t1", "192.0.2.1");
    let text = "vxlan port 4789: none: port in use by a socket of another program\n";
    assert_eq!(helpers(&switch), text);
    assert_eq!(index(&switch), None);
    drop(socket);
}

#[test]
fn without_bpf_there_is_no_device() {
    let Some(switch) = switch().filter(has_vxlan) else { return };
    switch.vsctl("set Open_vSwitch . other_config:bpf-offload=false");
    add(&switch, "t1", "192.0.2.1");
    assert_eq!((index(&switch), helpers(&switch)), (None, String::new()));
    switch.vsctl("set Open_vSwitch . other_config:bpf-offload=true");
    assert!(index(&switch).is_some());
}

/// A site, and a namespace with the kernel's device at the other end of its tunnel.
struct Peers {
    site: Site,
    kernel: Netns,
}

/// Makes the peers; `None`, after saying so, where there can be none. `device` is the kernel's kind of
/// device with its options.
fn peers(tunnel: &str, device: &str) -> Option<Peers> {
    if !is_possible() {
        return None;
    }
    let kernel = Netns::new();
    if !has_device(&kernel, "t0", device, 1400) {
        return None;
    }
    let site = Site::new(Kind::under_test(), 1, &format!("{tunnel} options:key=100"));
    site.connect(&kernel);
    kernel.sh(&format!("ip addr add {}/24 dev u0; ip link set u0 up", outer(2)));
    let Site { switch, host } = &site;
    assert!(host.reaches(&inner(2), SOON), "the tunnel carries nothing: {}", switch.story());
    host.ping(&inner(2), 15);
    sees(switch, &["tnl_pop", "dp:tcx"]);
    Some(Peers { site, kernel })
}

/// Returns the packets that the only device was given, and those that came back.
fn counts(switch: &Switch) -> (u64, u64) {
    let text = helpers(switch);
    let numbers: Vec<u64> = text.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    let [.., given, returned] = numbers.as_slice() else { panic!("{text}") };
    (*given, *returned)
}

impl Peers {
    /// Sends `count` packets of 16 datagrams each to the host, as one to be segmented each.
    fn send_datagrams(&self, count: u32) {
        self.kernel.sh(&format!(
            "python3 -c 'import socket,time\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.setsockopt(17, 103, 1300)\n\
             for i in range({count}): s.sendto(bytes(20000), (\"10.1.0.1\", 7)); time.sleep(0.002)\n'"
        ));
    }

    /// Receives datagrams on the host, until this many have come or none comes. Returns their number.
    fn receive_datagrams(&self, most: usize) -> JoinHandle<usize> {
        let socket =
            self.site.host.netns.with(|| UdpSocket::bind("10.1.0.1:7").expect("it is free"));
        socket.set_read_timeout(Some(patient(Duration::from_secs(3)))).expect("not zero");
        std::thread::spawn(move || {
            let mut data = [0; 2000];
            (0..most).take_while(|_| socket.recv(&mut data).is_ok()).count()
        })
    }
}

const KINDS: [(&str, &str); 4] = [
    ("type=vxlan", "vxlan id 100 remote 10.9.0.1 local 10.9.0.2 dstport 4789"),
    (
        "type=vxlan options:csum=true",
        "vxlan id 100 remote 10.9.0.1 local 10.9.0.2 dstport 4789 udpcsum",
    ),
    ("type=geneve", "geneve id 100 remote 10.9.0.1 dstport 6081"),
    ("type=gre", "gretap key 100 remote 10.9.0.1 local 10.9.0.2"),
];

#[test]
fn packets_to_be_segmented_come_out_of_the_device() {
    if without_tool(&["python3"]) {
        return;
    }
    for (tunnel, device) in KINDS {
        let Some(peers) = peers(tunnel, device) else { continue };
        tcp_to(&peers.kernel, &peers.site.host.netns, "10.1.0.1", 4 << 20);
        tcp_to(&peers.site.host.netns, &peers.kernel, "10.1.0.2", 4 << 20);
        let (given, returned) = counts(&peers.site.switch);
        assert!(given > 20 && returned > 20, "{tunnel}: {given} given, {returned} returned");
        let receiver = peers.receive_datagrams(50 * 16);
        peers.send_datagrams(50);
        assert_eq!(receiver.join().expect("it does not fail"), 50 * 16, "{tunnel}");
        let (_, after) = counts(&peers.site.switch);
        assert!(after >= returned + 45, "{tunnel}: the first may go up: {after} after {returned}");
        let coverage = peers.site.switch.appctl("coverage/show");
        assert!(!coverage.contains("datapath_drop_tunnel"), "{tunnel}: {coverage}");
    }
}

#[test]
fn a_device_that_loses_packets_is_closed() {
    if without_tool(&["python3"]) {
        return;
    }
    let Some(peers) = peers(KINDS[0].0, KINDS[0].1) else { return };
    let Site { switch, .. } = &peers.site;
    peers.send_datagrams(10);
    assert!(index(switch).is_some(), "{}", helpers(switch));
    // As a firewall would, between the ingress of the bridge's device and the socket.
    switch.netns().sh("sysctl -qw net.ipv4.conf.phy.rp_filter=1; ip route add 10.9.0.2 dev lo");
    let lost = wait_until(SOON * 3, || {
        peers.send_datagrams(40);
        index(switch).is_none()
    });
    assert!(lost, "{}", helpers(switch));
    let reason = "vxlan port 4789: none: 64 packets in a row did not come back";
    assert!(helpers(switch).starts_with(reason), "{}", helpers(switch));
    assert!(switch.appctl("dpctl/show").contains(reason));
    let told = switch.warnings();
    let told = told.iter().filter(|line| line.contains("64 packets in a row")).count();
    assert_eq!(told, 1);
}
