// SPDX-License-Identifier: Apache-2.0
//! OVN drives the switch: logical switches and a router, filters with connection tracking, a load
//! balancer, NAT and DHCP, between containers on plain veth pairs.
//!
//! `SLIPSWITCH_TEST_ORACLE=1` runs the same on `ovs-vswitchd`.

mod cloud;

use crate::tools::SOON;
use cloud::{Chassis, Cloud};
use slipswitch_tests::harness::{Host, Kind, Process, Switch, patient, wait_until};
use std::time::Duration;

/// Two logical switches, blue (10.0.1.0/24) and green (10.0.2.0/24), and a router that leads to
/// 172.16.0.0/24 outside. `web1` is blue, `web2` is green, and so are the clients; the address of
/// `client1` is given by DHCP. The web servers answer to HTTP and to pings alone. 10.0.9.9 is
/// balanced between them. 172.16.0.50 is web1 from outside, and everybody else appears there as
/// 172.16.0.2.
const CLOUD: &str = "\
    ls-add blue -- set logical_switch blue other_config:subnet=10.0.1.0/24 \
    -- ls-add green -- ls-add public -- lr-add router \
    -- lrp-add router router-blue 02:00:00:00:01:01 10.0.1.1/24 \
    -- lrp-add router router-green 02:00:00:00:02:01 10.0.2.1/24 \
    -- lrp-add router router-public 02:00:00:00:03:01 172.16.0.2/24 \
    -- lrp-set-gateway-chassis router-public hv1 10 \
    -- lsp-add public localnet -- lsp-set-type localnet localnet \
    -- lsp-set-addresses localnet unknown -- lsp-set-options localnet network_name=physnet \
    -- lsp-add blue web1 -- lsp-set-addresses web1 '02:00:00:00:01:11 10.0.1.11' \
    -- lsp-add blue client1 -- lsp-set-addresses client1 '02:00:00:00:01:13 10.0.1.13' \
    -- lsp-add blue client2 -- lsp-set-addresses client2 '02:00:00:00:01:12 10.0.1.12' \
    -- lsp-add green web2 -- lsp-set-addresses web2 '02:00:00:00:02:11 10.0.2.11' \
    -- pg-add servers web1 web2 \
    -- acl-add servers from-lport 1000 'inport==@servers && ip4' allow-related \
    -- acl-add servers to-lport 1000 'outport==@servers && icmp4' allow-related \
    -- acl-add servers to-lport 1000 'outport==@servers && tcp.dst==80' allow-related \
    -- acl-add servers to-lport 900 'outport==@servers && ip' drop \
    -- lb-add web 10.0.9.9:80 10.0.1.11:80,10.0.2.11:80 tcp \
    -- ls-lb-add blue web -- ls-lb-add green web -- lr-lb-add router web \
    -- lr-nat-add router snat 172.16.0.2 10.0.0.0/16 \
    -- lr-nat-add router dnat_and_snat 172.16.0.50 10.0.1.11";

/// The DHCP options of blue.
const DHCP: &str = "create dhcp_options cidr=10.0.1.0/24 \
    'options=\"lease_time\"=\"3600\" \"router\"=\"10.0.1.1\" \"server_id\"=\"10.0.1.1\" \"server_mac\"=\"02:00:00:00:01:fe\"'";

/// The containers of [`CLOUD`], with the host outside and the web servers.
struct Containers {
    web2: Host,
    client1: Host,
    client2: Host,
    outside: Host,
    _servers: Vec<Process>,
}

/// Makes what [`CLOUD`] says; `places` has the chassis of web1, web2, client1 and client2.
fn populate(cloud: &Cloud, places: [usize; 4]) -> Containers {
    cloud.nbctl(CLOUD);
    for side in ["blue", "green", "public"] {
        cloud.nbctl(&format!(
            "lsp-add {side} {side}-router -- lsp-set-type {side}-router router \
             -- lsp-set-addresses {side}-router router \
             -- lsp-set-options {side}-router router-port=router-{side}"
        ));
    }
    let options = cloud.nbctl(DHCP);
    cloud.nbctl(&format!("lsp-set-dhcpv4-options client1 {}", options.trim()));
    let container = |at: usize, port, mac, address: &str, router| {
        let host = cloud.container(places[at], port, mac, address);
        if !address.is_empty() {
            host.netns.sh(&format!("ip route add default via {router}"));
        }
        host
    };
    let web1 = container(0, "web1", "02:00:00:00:01:11", "10.0.1.11/24", "10.0.1.1");
    let web2 = container(1, "web2", "02:00:00:00:02:11", "10.0.2.11/24", "10.0.2.1");
    let client1 = container(2, "client1", "02:00:00:00:01:13", "", "");
    let client2 = container(3, "client2", "02:00:00:00:01:12", "10.0.1.12/24", "10.0.1.1");
    let gateway = &cloud.chassis[0];
    let outside = gateway.host_on("br-ex", "outside", "172.16.0.1/24");
    outside.finish_checksums();
    cloud.sync();
    let servers = [(&web1, places[0]), (&web2, places[1])].map(|(host, at)| {
        let sandbox = cloud.chassis[at].sandbox();
        let dir = sandbox.file(&format!("{}-pages", host.name()));
        std::fs::create_dir(&dir).expect("the sandbox is writable");
        std::fs::write(dir.join("name"), format!("{}\n", host.name())).expect("likewise");
        std::fs::write(dir.join("large"), vec![b'x'; 20 << 20]).expect("likewise");
        let dir = dir.to_str().expect("text");
        let arguments = ["httpd", "-f", "-p", "80", "-h", dir];
        let name = format!("httpd-{}", host.name());
        Process::start(sandbox, Some(&host.netns), &name, "busybox", &arguments)
    });
    Containers { web2, client1, client2, outside, _servers: servers.into() }
}

/// Runs a line of shell in the namespace of a host, killed if it takes very long; what it wrote.
fn said(host: &Host, line: &str) -> String {
    let limit = patient(Duration::from_secs(20)).as_secs();
    host.netns.run(&format!("timeout {limit} {line}")).text()
}

/// Has `client1` ask for its address, and gives it what comes.
#[track_caller]
fn lease(cloud: &Cloud, client: &Host, at: usize) {
    let script = cloud.chassis[at].sandbox().write(
        "leased",
        "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\nip addr add $ip/24 dev $interface\n\
         ip route add default via $router\necho leased $ip from $serverid by $router\n",
    );
    let script = script.display();
    let line =
        format!("sh -c 'chmod +x {script}; busybox udhcpc -i eth0 -n -q -t 10 -T 1 -s {script}'");
    let text = said(client, &line);
    assert!(
        text.contains("leased 10.0.1.13 from 10.0.1.1 by 10.0.1.1"),
        "{text}\n{}",
        cloud.story()
    );
}

/// All that [`CLOUD`] promises.
fn works(cloud: &Cloud, containers: &Containers, at_client1: usize) {
    let Containers { web2, client1, client2, outside, .. } = containers;
    lease(cloud, client1, at_client1);
    for (from, to) in [
        (client1, "10.0.1.11"),
        (client1, "10.0.1.12"),
        (client1, "10.0.2.11"),
        (client2, "10.0.2.11"),
        (client1, "172.16.0.1"),
        (web2, "172.16.0.1"),
        (outside, "172.16.0.50"),
    ] {
        // Until the flow for a learned address is there, ovn-controller holds packets back, and loses
        // some: the first answer does not show that all packets pass.
        let passes = wait_until(SOON, || from.ping(to, 5) == 5);
        assert!(passes, "{} to {to}: {}", from.name(), cloud.story());
    }
    let fetched =
        |host: &Host, address: &str| said(host, &format!("curl -sS http://{address}/name"));
    let ready = wait_until(SOON, || {
        fetched(client1, "10.0.2.11") == "web2\n" && fetched(client1, "10.0.1.11") == "web1\n"
    });
    assert!(ready, "{}\n{}", fetched(client1, "10.0.2.11"), cloud.story());
    assert_eq!(fetched(outside, "172.16.0.50"), "web1\n");
    let ignored = said(client1, "curl -sS -m 1 http://10.0.2.11:8080/name");
    assert!(ignored.contains("timed out"), "{ignored}");
    let mut balanced: Vec<String> = (0..24).map(|_| fetched(client1, "10.0.9.9")).collect();
    balanced.sort();
    balanced.dedup();
    assert_eq!(balanced, ["web1\n", "web2\n"]);
    let length = said(client1, "curl -sS http://10.0.2.11/large | wc -c");
    assert_eq!(length.trim(), (20 << 20).to_string());
}

/// Ties two chassis by a cable between their NICs, which have the addresses of the tunnels. Open
/// vSwitch's userspace datapath needs the addresses at a bridge.
fn cable(chassis: &[Switch]) {
    let [a, b] = chassis else { panic!("two are needed") };
    let target = b.netns().path();
    a.netns().sh(&format!("ip link add eth0 type veth peer name eth0 netns {}", target.display()));
    for (switch, address) in [(a, "192.168.77.2/24"), (b, "192.168.77.3/24")] {
        let mut device = "eth0";
        if Kind::under_test() == Kind::RealOvs {
            device = "br-phy";
            switch.vsctl(
                "add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy eth0",
            );
        }
        switch.netns().sh(&format!(
            "ip addr add {address} dev {device}; ip link set {device} up; ip link set eth0 up"
        ));
    }
}

#[test]
fn two_chassis_share_a_cloud_over_geneve() {
    let commands = "external_ids:ovn-bridge-mappings=physnet:br-ex \
                    -- add-br br-ex -- set bridge br-ex datapath_type=netdev";
    let chassis = ["192.168.77.2", "192.168.77.3"].map(|address| Chassis { address, commands });
    let Some(cloud) = Cloud::new(&chassis) else { return };
    cable(&cloud.chassis);
    let containers = populate(&cloud, [0, 1, 0, 1]);
    works(&cloud, &containers, 0);
    for switch in &cloud.chassis {
        let ports = switch.appctl("tnl/ports/show");
        assert!(ports.contains("genev_sys_6081"), "{ports}");
        if Kind::under_test() == Kind::RealOvs {
            continue;
        }
        // Pipelines stay in BPF out of tunnels and into them. Packets are large on their way in.
        let flows = switch.appctl("dpctl/dump-flows -m");
        for (part, least) in [("tunnel(", 1000), ("tnl_push(", 200)] {
            let (userspace, bpf) = packets_of_tcp(&flows, part);
            assert!(bpf > least && bpf > 50 * userspace, "{part}: {flows}");
        }
    }
}

/// The packets of TCP of all lines of a dump with this text: of flows in userspace, and in BPF.
fn packets_of_tcp(flows: &str, text: &str) -> (u64, u64) {
    let packets = |line: &str| -> u64 {
        let digits = line.split("packets:").nth(1).and_then(|rest| rest.split(',').next());
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    let (userspace, bpf): (Vec<&str>, Vec<&str>) = flows
        .lines()
        .filter(|line| line.contains("proto=6") && line.contains(text))
        .partition(|line| line.contains("dp:userspace"));
    let sum = |lines: &[&str]| lines.iter().map(|line| packets(line)).sum::<u64>();
    (sum(&userspace), sum(&bpf))
}

#[test]
fn one_chassis_has_a_cloud() {
    let bridges = Chassis {
        address: "127.0.0.1",
        commands: "external_ids:ovn-bridge-mappings=physnet:br-ex \
                   -- add-br br-ex -- set bridge br-ex datapath_type=netdev",
    };
    let Some(cloud) = Cloud::new(&[bridges]) else { return };
    let containers = populate(&cloud, [0; 4]);
    works(&cloud, &containers, 0);
    if Kind::under_test() == Kind::RealOvs {
        return;
    }
    // The pipelines of OVN stay in BPF.
    let flows = cloud.chassis[0].appctl("dpctl/dump-flows -m");
    let (userspace, bpf) = packets_of_tcp(&flows, "");
    assert!(bpf > 50 * userspace, "{flows}");
}
