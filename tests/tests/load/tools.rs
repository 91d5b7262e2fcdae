// SPDX-License-Identifier: Apache-2.0
//! A switch with two hosts that talk and one that attacks.

use slipswitch_tests::harness::{
    Host, Kind, Mode, Switch, wait_until, without_privilege, without_tool,
};
use std::net::UdpSocket;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long something may take that should be there at once.
pub const SOON: Duration = Duration::from_secs(10);
/// The time that a command may take during an attack.
const PROMPT: Duration = Duration::from_secs(1);

/// The three at a bridge `br0`: 10.0.0.1 on port h1, 10.0.0.2 on h2, the attacker on h3.
pub struct Scene {
    pub switch: Switch,
    pub a: Host,
    pub b: Host,
    pub attacker: Host,
    /// Until the rest is gone.
    _alone: MutexGuard<'static, ()>,
}

/// One switch is attacked at a time: others would lose packets because two attacks take all CPUs.
static ALONE: Mutex<()> = Mutex::new(());

impl Scene {
    /// `None`, after saying so, where tests cannot make one. The first two reach each other.
    pub fn new(flows: &str) -> Option<Scene> {
        if without_privilege() || without_tool(&["ip", "ping", "fping", "nsenter"]) {
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let switch = Switch::start(Kind::Slipswitch, Mode::Real);
        switch.vsctl("add-br br0");
        let a = switch.host_on("br0", "h1", "10.0.0.1/24");
        let b = switch.host_on("br0", "h2", "10.0.0.2/24");
        let attacker = switch.host_on("br0", "h3", "10.0.0.3/24");
        let scene = Scene { switch, a, b, attacker, _alone: alone };
        scene.switch.flows("br0", flows);
        scene.rest();
        Some(scene)
    }

    /// Waits until the two reach each other and their flows have come to rest.
    pub fn rest(&self) {
        assert!(self.a.reaches("10.0.0.2", SOON), "{}", self.switch.story());
        self.a.ping("10.0.0.2", 15);
    }

    /// Waits until a counter is above `bound`.
    #[track_caller]
    pub fn exceeds(&self, name: &str, bound: u64) {
        let text = || self.switch.appctl("coverage/show");
        assert!(wait_until(SOON, || self.switch.counter(name) > bound), "{name}:\n{}", text());
    }

    /// Commands of each kind are answered soon. One that had to wait for others on this machine has
    /// two more tries.
    #[track_caller]
    pub fn commands_are_prompt(&self) {
        for line in [
            "ovs-appctl upcall/show",
            "ovs-appctl dpctl/show",
            "ovs-ofctl dump-aggregate br0",
            "ovs-ofctl add-flow br0 table=9,actions=drop",
            "ovs-vsctl --timeout=10 set bridge br0 other-config:load=true",
        ] {
            let mut took = Duration::ZERO;
            let is_prompt = (0..3).any(|_| {
                let start = Instant::now();
                self.switch.run(line);
                took = start.elapsed();
                took < PROMPT
            });
            assert!(is_prompt, "{line} took {took:?}");
        }
    }

    /// Sends UDP datagrams from the first host to the second, each from another port of its own,
    /// with a pause after each; how many arrive.
    pub fn new_flows(&self, count: u16, pause: Duration) -> u16 {
        const FIRST: u16 = 20_000;
        let receiver = self.b.netns.with(|| UdpSocket::bind("10.0.0.2:4000").expect("its address"));
        receiver.set_read_timeout(Some(Duration::from_secs(1))).expect("not zero");
        let sender = self.a.netns.spawn(move || {
            for port in FIRST..FIRST + count {
                let socket = UdpSocket::bind(("10.0.0.1", port)).expect("a port is free");
                socket.send_to(&[0; 18], "10.0.0.2:4000").expect("it is sent");
                std::thread::sleep(pause);
            }
        });
        let mut arrived = 0;
        while arrived < count && receiver.recv(&mut [0; 32]).is_ok() {
            arrived += 1;
        }
        sender.join().expect("datagrams are sent");
        arrived
    }

    /// Masks of the megaflows.
    pub fn masks(&self) -> usize {
        let text = self.switch.appctl("dpif-netdev/subtable-lookup-info-get");
        let behind = text.split("Use count: ").nth(1).unwrap_or_else(|| panic!("{text}"));
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    /// Kilobytes of memory that the daemon has.
    pub fn memory(&self) -> u64 {
        let pid = self.switch.sandbox().read("ovs-vswitchd.pid");
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim()));
        let status = status.expect("the daemon runs");
        let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
        let number = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
        number.unwrap_or_else(|| panic!("{status}"))
    }
}

/// Rules under which each UDP packet from h1 and h3 is a flow of its own: its bucket hangs on all
/// five of the tuple. The attacker's end there.
pub const MICROFLOWS: &str =
    "priority=10,udp,in_port=h3,actions=multipath(symmetric_l4,1,hrw,16,0,NXM_NX_REG0[])
     priority=10,udp,in_port=h1,actions=multipath(symmetric_l4,1,hrw,16,0,NXM_NX_REG0[]),NORMAL
     priority=1,actions=NORMAL";

/// The address of a host's device.
pub fn mac_bytes(host: &Host) -> [u8; 6] {
    let mut bytes = [0; 6];
    for (byte, digits) in bytes.iter_mut().zip(host.netns.mac("eth0").split(':')) {
        *byte = u8::from_str_radix(digits, 16).expect("an address");
    }
    bytes
}
