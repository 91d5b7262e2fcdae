// SPDX-License-Identifier: Apache-2.0
//! The devices around a switch: two ports, and the remote end of each.
//!
//! ```text
//!  sender's namespace      switch's namespace      receiver's namespace
//!      eth0 ───────────── p1 [ switch ] p2 ───────────── eth0
//! ```

use crate::attempt::attempt;
use crate::netns::{ifindex, run};
use anyhow::{Context, Result};
use slipswitch_tests::harness::{Host, Netns, Resident};

/// The kind of a port's remote end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A container: both devices are as the kernel makes them.
    Container,
    /// The wire of a network card. The port receives by NAPI (GRO is on); so does the remote end,
    /// so that XDP may redirect to the port. The remote end sends whole frames with finished
    /// checksums.
    Card,
}

impl Remote {
    /// Name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Remote::Container => "veth",
            Remote::Card => "NIC",
        }
    }
}

/// How hosts control congestion of TCP: Linux's default. Machines with another default mostly have
/// BBR, which paces: on a virtual CPU BBR spends most of its time on setting timers, and the cost
/// of a switch is lost in that.
pub const CONGESTION_CONTROL: &str = "cubic";

/// A device of the switch's namespace that becomes a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    /// Its interface index in the switch's namespace.
    pub ifindex: u32,
}

/// A port and its remote end.
#[derive(Debug)]
pub struct Wire {
    /// The remote end: a namespace with `eth0`, which has an address.
    pub host: Host,
    /// Interface index of `eth0`.
    pub ifindex: u32,
    pub port: Port,
    _resident: Resident,
}

/// Two ports and their remote ends; the devices go with the namespaces.
#[derive(Debug)]
pub struct Topology {
    /// Where traffic begins, 10.0.0.1/24.
    pub sender: Wire,
    /// Where it ends, 10.0.0.2/24.
    pub receiver: Wire,
}

impl Topology {
    /// Makes devices `p1` and `p2` in the switch's namespace, and their remote ends. The calling
    /// thread has to live as long as this value.
    pub fn around(switch: &Netns, sender: Remote, receiver: Remote) -> Result<Topology> {
        Ok(Topology {
            sender: Wire::new(switch, "p1", "10.0.0.1/24", sender)?,
            receiver: Wire::new(switch, "p2", "10.0.0.2/24", receiver)?,
        })
    }

    /// The switch's ports, the sender's first.
    pub fn ports(&self) -> [Port; 2] {
        [self.sender.port.clone(), self.receiver.port.clone()]
    }
}

impl Wire {
    /// Makes a device in the switch's namespace, and its remote end with an address. The calling
    /// thread has to live as long as this value.
    pub fn new(switch: &Netns, name: &str, address: &str, remote: Remote) -> Result<Wire> {
        let host = attempt(|| Ok(Host::new(switch, name, address)))?;
        control_congestion(&host.netns)?;
        if remote == Remote::Card {
            run(switch, &format!("ethtool -K {name} gro on"))?;
            run(
                &host.netns,
                "ethtool -K eth0 gro on tx off tso off txvlan off tx-vlan-stag-hw-insert off",
            )?;
        }
        let resident = Resident::of(&host.netns).context("starting a process in a namespace")?;
        let port = Port { name: name.to_owned(), ifindex: ifindex(switch, name)? };
        Ok(Wire { ifindex: ifindex(&host.netns, "eth0")?, host, port, _resident: resident })
    }
}

/// Sets [`CONGESTION_CONTROL`] for a host's route: a namespace accepts no other algorithm than
/// those that the machine allows to everybody.
fn control_congestion(host: &Netns) -> Result<()> {
    let route = "$(ip -4 route show dev eth0 scope link) dev eth0";
    run(host, &format!("ip route change {route} congctl {CONGESTION_CONTROL}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::tcp_congestion;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
    use std::net::SocketAddr;

    #[test]
    fn hosts_control_congestion_alike_on_every_machine() {
        let switch = Netns::new();
        let topology = Topology::around(&switch, Remote::Container, Remote::Card).unwrap();
        for (wire, other) in
            [(&topology.sender, [10, 0, 0, 2]), (&topology.receiver, [10, 0, 0, 1])]
        {
            let used = wire.host.netns.with(move || {
                let flags = SocketFlags::NONBLOCK;
                let socket =
                    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
                // Nobody answers; the algorithm is chosen before.
                connect(&socket, &SocketAddr::from((other, 9))).unwrap_err();
                tcp_congestion(&socket).unwrap()
            });
            assert_eq!(used, CONGESTION_CONTROL);
        }
    }
}
