// SPDX-License-Identifier: Apache-2.0
//! A host at the switch: a namespace at the other end of a plain veth pair.

use super::{Echoes, Kind, Netns, Process, Sandbox, patient, wait_until};
use std::time::Duration;

/// A namespace with `eth0`, whose other end is a device in the switch's namespace.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its namespace.
    pub netns: Netns,
    name: String,
    address: String,
}

impl Host {
    /// Ties a new host to `switch` by a veth pair whose end there is called `name`. `address`
    /// is given with its prefix length, IPv4 or IPv6. Nothing is switched on or off.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn new(switch: &Netns, name: &str, address: &str) -> Host {
        let netns = Netns::new();
        let host = Host { netns, name: name.to_owned(), address: address.to_owned() };
        host.tie(switch);
        host
    }

    /// Ties a new host to `switch` by two devices of the thread's namespace that are the ends of one
    /// cable: `name` becomes the switch's, and `eth0` of the host the other.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn wired(switch: &Netns, name: &str, other: &str, address: &str) -> Host {
        let netns = Netns::new();
        let host = Host { netns, name: name.to_owned(), address: address.to_owned() };
        for (device, target) in [(name, switch), (other, &host.netns)] {
            let target = target.path().display().to_string();
            let moved = std::process::Command::new("ip")
                .args(["link", "set", device, "netns", &target])
                .status();
            assert!(moved.is_ok_and(|status| status.success()), "{device} cannot be moved");
        }
        switch.sh(&format!("ip link set {name} up"));
        host.netns.sh(&format!("ip link set {other} name eth0"));
        host.configure("eth0");
        host.netns.carrier("eth0");
        host
    }

    /// Makes the veth pair (again, after the device at the switch was deleted).
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn tie(&self, switch: &Netns) {
        let name = &self.name;
        // The pair is made in the host and one end moved, through the thread's own namespace.
        let target = switch.path();
        let target = target.display();
        self.netns.sh(&format!("ip link add eth0 type veth peer name {name} netns {target}"));
        switch.sh(&format!("ip link set {name} up"));
        self.configure("eth0");
        self.netns.carrier("eth0");
    }

    /// Gives a device the host's address and sets it up.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn configure(&self, device: &str) {
        let address = &self.address;
        if address.contains(':') {
            self.netns.sh("echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6");
            self.netns.sh(&format!(
                "ip link set {device} up; ip -6 addr add {address} dev {device} nodad"
            ));
        } else {
            self.netns
                .sh(&format!("ip addr add {address} dev {device} && ip link set {device} up"));
        }
    }

    /// Has the host finish its checksums where the switch under test needs that: the userspace
    /// datapath of `ovs-vswitchd` takes one that is left to a device for a wrong one.
    ///
    /// # Panics
    /// When `ethtool` is not there.
    pub fn finish_checksums(&self) {
        if Kind::under_test() == Kind::RealOvs {
            self.netns.sh("ethtool -K eth0 tx off");
        }
    }

    /// The name of the device at the switch.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address without the prefix length.
    pub fn address(&self) -> &str {
        self.address.split('/').next().unwrap_or_default()
    }

    /// Sends `count` echo requests, 20 ms apart; the number of answers.
    pub fn ping(&self, to: &str, count: u32) -> u32 {
        Echoes::ask(&self.netns, to, count, None).answered
    }

    /// Likewise, with this many bytes of payload, unfragmented.
    pub fn ping_whole(&self, to: &str, count: u32, bytes: u32) -> u32 {
        Echoes::ask(&self.netns, to, count, Some(bytes)).answered
    }

    /// Sends 50 echo requests a second in the background, for `seconds` of [`patient`] time: the
    /// test in the foreground takes longer on a slow machine, too.
    pub fn pinging(&self, to: &str, seconds: u32) -> std::thread::JoinHandle<Echoes> {
        let seconds = patient(Duration::from_secs(seconds.into())).as_secs() as u32; // minutes
        let (netns, to) = (self.netns.clone(), to.to_owned());
        self.netns.spawn(move || Echoes::ask(&netns, &to, seconds * 50, None))
    }

    /// Pings until there is an answer; false when there is none within `timeout`.
    pub fn reaches(&self, to: &str, timeout: Duration) -> bool {
        let wait = patient(Duration::from_millis(200)).as_secs_f64();
        wait_until(timeout, || self.netns.run(&format!("ping -n -c 1 -W {wait} {to}")).ok())
    }

    /// Starts to record what arrives at and leaves a device of the host.
    ///
    /// # Panics
    /// When `tcpdump` does not start.
    pub fn capture(&self, sandbox: &Sandbox, device: &str, filter: &str) -> Capture {
        Capture::start(&self.netns, sandbox, &format!("{}-{device}", self.name), device, filter)
    }
}

/// A running `tcpdump`.
#[derive(Debug)]
pub struct Capture {
    process: Process,
    file: std::path::PathBuf,
}

impl Capture {
    /// Starts one; returns when it listens.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(
        netns: &Netns,
        sandbox: &Sandbox,
        name: &str,
        device: &str,
        filter: &str,
    ) -> Capture {
        let file = sandbox.file(&format!("{name}.pcap"));
        let path = file.to_str().expect("the directory's name is text").to_owned();
        let arguments = ["-i", device, "-n", "-U", "-s", "0", "-Z", "root", "-w", &path, filter];
        let name = format!("tcpdump-{name}");
        // An earlier one's frames, and its word that it listens, are not this one's.
        for old in [file.clone(), sandbox.file(&format!("{name}.err"))] {
            let _ = std::fs::remove_file(old); // there may be none
        }
        let process = Process::start(sandbox, Some(netns), &name, "tcpdump", &arguments);
        let listens = wait_until(Duration::from_secs(5), || {
            sandbox.read(&format!("{name}.err")).contains("listening on")
        });
        assert!(listens, "tcpdump does not start: {}", sandbox.read(&format!("{name}.err")));
        Capture { process, file }
    }

    /// The frames so far, as they were on the wire.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        pcap_frames(&std::fs::read(&self.file).unwrap_or_default())
    }

    /// The lines of `tcpdump -vv -e` for the packets so far. It verifies checksums.
    pub fn text(&self) -> String {
        let mut command = std::process::Command::new("tcpdump");
        command.args(["-n", "-e", "-vv", "-t", "-r"]).arg(&self.file);
        command
            .output()
            .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
            .unwrap_or_default()
    }

    /// Waits until `count` frames were recorded, then ends the capture.
    pub fn finish(mut self, count: usize, timeout: Duration) -> Vec<Vec<u8>> {
        wait_until(timeout, || self.frames().len() >= count);
        self.process.signal("TERM");
        self.process.wait(Duration::from_secs(2));
        self.frames()
    }
}

/// The packets of a pcap file in this machine's byte order.
pub(super) fn pcap_frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = bytes.get(24..).unwrap_or_default();
    while let Some((header, after)) = rest.split_at_checked(16) {
        let Some(length) =
            header.get(8..12).and_then(|l| l.try_into().ok()).map(u32::from_ne_bytes)
        else {
            break;
        };
        let Some((frame, after)) = after.split_at_checked(length as usize) else { break };
        frames.push(frame.to_vec());
        rest = after;
    }
    frames
}

/// Has two hosts that have just exchanged packets keep each other's addresses: see [`remember`].
///
/// # Panics
/// When they do not know each other.
#[track_caller]
pub fn acquainted(a: &Host, b: &Host) {
    remember(&a.netns, b.address(), "eth0");
    remember(&b.netns, a.address(), "eth0");
}

/// Makes a namespace keep the address of a neighbour. The kernel would otherwise resolve it again
/// after half a minute, and get no reply while the daemon is away.
///
/// # Panics
/// When nothing is known.
#[track_caller]
pub fn remember(netns: &Netns, address: &str, device: &str) {
    netns.sh(&format!("ip neigh change {address} dev {device} nud permanent"));
}
