// SPDX-License-Identifier: Apache-2.0
//! The objects that come and go in a round.

use slipswitch_tests::harness::{Flood, Host, Switch, stranger};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Rules that come and go at a time.
const RULES: u32 = 500;
/// Peers that connect at a time.
const PEERS: usize = 12;

/// Changes of a switch during which traffic goes on.
pub struct Churn<'a> {
    switch: &'a Switch,
    /// A host whose links go, and that floods.
    guest: Host,
    rounds: u32,
}

impl<'a> Churn<'a> {
    /// Adds the port `h9` to `br0`.
    pub fn new(switch: &'a Switch) -> Churn<'a> {
        Churn { switch, guest: switch.host_on("br0", "h9", "10.0.0.9/24"), rounds: 0 }
    }

    /// Rounds so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Everything once.
    pub fn round(&mut self) {
        self.ports();
        self.flows();
        self.groups_and_meters();
        self.links();
        self.controllers();
        self.bridges();
        self.misses();
        self.rounds += 1;
    }

    /// A new host, which talks and goes; an internal port; a device that is not there.
    fn ports(&self) {
        let host = self.switch.host_on("br0", "h8", "10.0.0.8/24");
        host.ping("10.0.0.1", 2);
        self.switch.vsctl(
            "add-port br0 in1 -- set interface in1 type=internal -- add-port br0 absent -- \
             set interface h8 ingress_policing_rate=1000",
        );
        self.switch.vsctl("del-port in1 -- del-port absent -- del-port h8");
        self.switch.netns().sh("ip link del h8");
    }

    fn flows(&self) {
        let mut text = String::new();
        for number in 0..RULES {
            let port = 1000 + number;
            // A String takes all writes.
            let _ = writeln!(text, "table=7,priority={port},udp,tp_dst={port},actions=drop");
        }
        self.switch.sandbox().write("churn.txt", text);
        self.switch.ofctl("add-flows br0 churn.txt");
        self.switch.ofctl("mod-flows br0 table=7,actions=NORMAL");
        self.switch.ofctl("--bundle add-flows br0 churn.txt");
        self.switch.ofctl("del-flows br0 table=7");
    }

    fn groups_and_meters(&self) {
        let ofctl = |line: &str| self.switch.ofctl(&format!("-O OpenFlow13 {line}"));
        ofctl("add-group br0 group_id=5,type=select,bucket=output:1,bucket=output:2");
        ofctl("add-meter br0 meter=5,kbps,band=type=drop,rate=1000");
        ofctl("add-flow br0 table=7,udp,tp_dst=1,actions=meter:5,group:5");
        ofctl("del-flows br0 table=7");
        ofctl("del-meters br0");
        ofctl("del-groups br0");
    }

    /// The guest's link goes down, and away, and comes back.
    fn links(&self) {
        let netns = self.switch.netns();
        netns.sh("ip link set h9 down");
        netns.sh("ip link set h9 mtu 1400; ip link set h9 up");
        netns.sh("ip link del h9");
        self.guest.tie(netns);
        self.guest.ping("10.0.0.1", 2);
    }

    /// Peers that say hello, half a message, or nothing.
    fn controllers(&self) {
        let socket = self.switch.sandbox().file("br0.mgmt");
        let peers: Vec<UnixStream> =
            (0..PEERS).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
        for (number, mut peer) in peers.iter().enumerate() {
            let hello = [4, 0, 0, 8, 0, 0, 0, 1];
            // The switch may have ended it; that is its right.
            let _ = peer.write_all(hello.get(..number % 9).unwrap_or_default());
            let _ = peer.set_read_timeout(Some(Duration::from_millis(1)));
            let _ = peer.read(&mut [0; 64]);
        }
    }

    /// A bridge, a patch to it, and its controllers, one of which is not there. (The first
    /// controller of a bridge, and the going of the last, end its rules; so not at `br0`.)
    fn bridges(&self) {
        self.switch.vsctl(
            "add-br br1 -- add-port br1 pa -- set interface pa type=patch options:peer=pb -- \
             add-port br0 pb -- set interface pb type=patch options:peer=pa",
        );
        self.switch.vsctl("set-controller br1 tcp:127.0.0.1:1 punix:br1.churn");
        self.switch.vsctl("del-controller br1");
        self.switch.vsctl("del-port pb -- del-br br1");
    }

    /// New flows from the guest, all to be set up or dropped.
    fn misses(&self) {
        let flood = Flood::start(&self.guest, self.rounds.into(), stranger);
        std::thread::sleep(Duration::from_millis(100));
        drop(flood);
        self.switch.appctl("revalidator/purge");
    }
}
