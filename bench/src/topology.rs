// SPDX-License-Identifier: Apache-2.0
//! What a switch is put between: two ports, and what is at their other ends.
//!
//! ```text
//!  sender's namespace      switch's namespace      receiver's namespace
//!      eth0 ───────────── p1 [ switch ] p2 ───────────── eth0
//! ```

use crate::netns::{ifindex, run};
use anyhow::{Context, Result};
use slipswitch_tests::harness::{Host, Netns, Resident};

/// What stands at the other end of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far {
    /// A container: both devices are as the kernel makes them.
    Container,
    /// The wire behind a network card: the port receives by NAPI (its GRO is on), the far end
    /// does likewise, so that XDP may redirect to the port, and what it sends are whole frames
    /// with finished checksums.
    Card,
}

impl Far {
    /// Name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Far::Container => "veth",
            Far::Card => "NIC",
        }
    }
}

/// How hosts control congestion of TCP: as Linux does where nobody says otherwise. Machines that say
/// otherwise mostly have BBR, which paces: on a virtual CPU it spends most of its time on setting
/// timers, and what a switch adds is lost in that.
pub const CONGESTION_CONTROL: &str = "cubic";

/// A device of the switch's namespace that becomes a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its interface index in the switch's namespace.
    pub ifindex: u32,
}

/// A port and its other end.
#[derive(Debug)]
pub struct End {
    /// The other end: a namespace with `eth0`, which has an address.
    pub host: Host,
    /// Interface index of `eth0`.
    pub ifindex: u32,
    /// The port.
    pub port: Port,
    _resident: Resident,
}

/// Two ports and their other ends; devices go with the namespaces.
#[derive(Debug)]
pub struct Topology {
    /// Where traffic begins, 10.0.0.1/24.
    pub sender: End,
    /// Where it ends, 10.0.0.2/24.
    pub receiver: End,
}

impl Topology {
    /// Makes devices `p1` and `p2` in the switch's namespace, and their other ends. To be called
    /// on a thread that lives as long as this value.
    ///
    /// # Errors
    /// When a device cannot be made or set up.
    pub fn around(switch: &Netns, sender: Far, receiver: Far) -> Result<Topology> {
        Ok(Topology {
            sender: End::make(switch, "p1", "10.0.0.1/24", sender)?,
            receiver: End::make(switch, "p2", "10.0.0.2/24", receiver)?,
        })
    }

    /// The switch's ports, the sender's first.
    pub fn ports(&self) -> [Port; 2] {
        [self.sender.port.clone(), self.receiver.port.clone()]
    }
}

impl End {
    /// Makes a device in the switch's namespace, and its other end with an address. To be called
    /// on a thread that lives as long as this value.
    ///
    /// # Errors
    /// When a device cannot be made or set up.
    pub fn make(switch: &Netns, name: &str, address: &str, far: Far) -> Result<End> {
        let host = crate::attempt(|| Ok(Host::new(switch, name, address)))?;
        control_congestion(&host.netns)?;
        if far == Far::Card {
            run(switch, &format!("ethtool -K {name} gro on"))?;
            run(
                &host.netns,
                "ethtool -K eth0 gro on tx off tso off txvlan off tx-vlan-stag-hw-insert off",
            )?;
        }
        let resident = Resident::of(&host.netns).context("starting a process in a namespace")?;
        let port = Port { name: name.to_owned(), ifindex: ifindex(switch, name)? };
        Ok(End { ifindex: ifindex(&host.netns, "eth0")?, host, port, _resident: resident })
    }
}

/// Has TCP of a host use [`CONGESTION_CONTROL`]. By its route: a namespace may be set to no other
/// than what the machine allows to everybody, which is what it was built or told to use itself.
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
    fn hosts_control_congestion_alike_whatever_the_machine_does() {
        let switch = Netns::new();
        let topology = Topology::around(&switch, Far::Container, Far::Card).unwrap();
        for (end, other) in [(&topology.sender, [10, 0, 0, 2]), (&topology.receiver, [10, 0, 0, 1])]
        {
            let used = end.host.netns.with(move || {
                let flags = SocketFlags::NONBLOCK;
                let socket =
                    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
                // Nobody answers; how to begin is decided before.
                connect(&socket, &SocketAddr::from((other, 9))).unwrap_err();
                tcp_congestion(&socket).unwrap()
            });
            assert_eq!(used, CONGESTION_CONTROL);
        }
    }
}
