// SPDX-License-Identifier: Apache-2.0
//! Tunnel devices of the kernel in collect_md mode.
//!
//! # Overview
//!
//! Such a device takes the outer headers off packets of every tunnel of its kind and UDP port, and
//! keeps the headers' fields with each packet, where BPF programs read them. Packets that are sent
//! to it get the outer headers that a program has chosen. Its UDP socket makes the receiving
//! interface's GRO join packets of such tunnels.
//!
//! [`TunnelDevice::open`] creates the device, or finds the one that an earlier process of the same
//! owner has left; its alias says so. The device is down, because all packets of its kind that reach
//! the host come out of it: the caller attaches its program, and then calls [`TunnelDevice::up`].
//! The device has no IPv6 address and no ARP. It outlives the process, until [`TunnelDevice::remove`].
//!
//! # Which side it errs on
//!
//! A UDP port has one user. A tunnel device of another program with the same port, up or down, is
//! left alone, and no device is made: otherwise the other device could not be brought up later.

use crate::btf::Btf;
use crate::link::{self, By, Change, Link, LinkClient};
use crate::netlink::attribute;
use crate::tap_interface::{mark, marked_port};
use std::fmt;
use std::io;
use std::sync::OnceLock;

// include/uapi/linux/if_link.h
const IFLA_VXLAN_LEARNING: u16 = 7;
const IFLA_VXLAN_PORT: u16 = 15;
const IFLA_VXLAN_UDP_ZERO_CSUM6_RX: u16 = 20;
const IFLA_VXLAN_GBP: u16 = 23;
const IFLA_VXLAN_COLLECT_METADATA: u16 = 25;
const IFLA_GENEVE_PORT: u16 = 5;
const IFLA_GENEVE_COLLECT_METADATA: u16 = 6;
const IFLA_GENEVE_UDP_ZERO_CSUM6_RX: u16 = 10;
// include/uapi/linux/if_tunnel.h
const IFLA_GRE_COLLECT_METADATA: u16 = 18;

/// MTU of tunnel devices for which the kernel names no longest one, and of those of `openvswitch.ko`,
/// in bytes.
pub(crate) const MTU: u32 = 65_000;
/// Start of the names of these devices.
const STEM: &str = "slip";

/// The packets that a device takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TunnelDeviceSpec {
    /// VXLAN, with group based policy or without: the kernel refuses packets of the other form.
    Vxlan {
        /// UDP destination port.
        port: u16,
        /// Packets have the fields of group based policy.
        gbp: bool,
    },
    /// Geneve (RFC 8926), whose packets may have options.
    Geneve {
        /// UDP destination port.
        port: u16,
    },
    /// GRE over IPv4 with Ethernet frames. The kernel has one such device in a network namespace.
    Gre,
    /// The same over IPv6.
    Ip6Gre,
}

impl TunnelDeviceSpec {
    /// Returns the name of the device.
    pub fn name(self) -> String {
        match self {
            TunnelDeviceSpec::Vxlan { port, .. } => format!("{STEM}vxlan{port}"),
            TunnelDeviceSpec::Geneve { port } => format!("{STEM}genev{port}"),
            TunnelDeviceSpec::Gre => format!("{STEM}gre"),
            TunnelDeviceSpec::Ip6Gre => format!("{STEM}ip6gre"),
        }
    }

    /// Returns the kernel's name of the kind of device (`IFLA_INFO_KIND`).
    pub fn kind(self) -> &'static str {
        match self {
            TunnelDeviceSpec::Vxlan { .. } => "vxlan",
            TunnelDeviceSpec::Geneve { .. } => "geneve",
            TunnelDeviceSpec::Gre => "gretap",
            TunnelDeviceSpec::Ip6Gre => "ip6gretap",
        }
    }

    /// Returns the attributes of `IFLA_INFO_DATA`.
    fn data(self) -> Vec<u8> {
        // The kernel reads some attributes as an octet, and others, which are flags, by their presence.
        match self {
            TunnelDeviceSpec::Vxlan { port, gbp } => [
                attribute(IFLA_VXLAN_COLLECT_METADATA, &[1]),
                attribute(IFLA_VXLAN_LEARNING, &[0]),
                attribute(IFLA_VXLAN_UDP_ZERO_CSUM6_RX, &[1]),
                attribute(IFLA_VXLAN_PORT, &port.to_be_bytes()),
                if gbp { attribute(IFLA_VXLAN_GBP, &[]) } else { Vec::new() },
            ]
            .concat(),
            TunnelDeviceSpec::Geneve { port } => [
                attribute(IFLA_GENEVE_COLLECT_METADATA, &[]),
                attribute(IFLA_GENEVE_UDP_ZERO_CSUM6_RX, &[1]),
                attribute(IFLA_GENEVE_PORT, &port.to_be_bytes()),
            ]
            .concat(),
            TunnelDeviceSpec::Gre | TunnelDeviceSpec::Ip6Gre => {
                attribute(IFLA_GRE_COLLECT_METADATA, &[])
            }
        }
    }

    /// Returns true when `found` stands in the way of a device of this kind and port.
    pub(crate) fn collides(self, found: &Found) -> bool {
        found.link.kind.as_deref() == Some(self.kind())
            && match self {
                TunnelDeviceSpec::Vxlan { port, .. } | TunnelDeviceSpec::Geneve { port } => {
                    found.port == Some(port)
                }
                TunnelDeviceSpec::Gre | TunnelDeviceSpec::Ip6Gre => found.collects,
            }
    }
}

/// The reason why a device could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TunnelDeviceError {
    /// The kernel has no such devices.
    #[error("no module: the kernel has no {0} devices")]
    NoModule(&'static str),
    /// BPF programs of this kernel cannot read the local address of a tunnel.
    #[error("kernel too old: programs cannot read the local address of a tunnel (Linux 6.0)")]
    KernelTooOld,
    /// Another program uses the UDP port, the name, or (GRE) the only place.
    #[error("port in use by {0}")]
    InUse(Holder),
    /// A system call failed.
    #[error("{step} failed: {source}")]
    System {
        /// The operation that failed.
        step: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl TunnelDeviceError {
    pub(crate) fn system(step: &'static str) -> impl Fn(io::Error) -> TunnelDeviceError {
        move |source| TunnelDeviceError::System { step, source }
    }

    /// Returns the error for the refusal of a new device of this kind.
    pub(crate) fn of_creation(kind: &'static str) -> impl Fn(io::Error) -> TunnelDeviceError {
        move |source| match source.raw_os_error() {
            // The kernel has tried to load the module (`rtnl-link-KIND`).
            Some(libc::EOPNOTSUPP) => TunnelDeviceError::NoModule(kind),
            _ => TunnelDeviceError::System { step: "creating the device", source },
        }
    }
}

/// The user of a UDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The tunnel device of this name.
    Device(String),
    /// A socket that is no tunnel device's.
    Socket,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Device(name) => f.write_str(name),
            Holder::Socket => f.write_str("a socket of another program"),
        }
    }
}

/// An interface with the properties of tunnel devices.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) link: Link,
    /// UDP port; `None` for kinds without one.
    port: Option<u16>,
    /// It is in collect_md mode.
    collects: bool,
    gbp: bool,
}

impl Found {
    /// Parses an `RTM_NEWLINK` payload. Total.
    fn parse(payload: &[u8]) -> Option<Found> {
        let link = link::parse(payload)?;
        let mut found = Found { link, ..Found::default() };
        let data = link::details(payload)?;
        let be16 = |value: &[u8]| value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
        for (attribute, value) in data {
            match (found.link.kind.as_deref()?, attribute) {
                ("vxlan", IFLA_VXLAN_PORT) | ("geneve", IFLA_GENEVE_PORT) => {
                    found.port = be16(value);
                }
                // Kernels report it as an octet or as a flag.
                ("vxlan", IFLA_VXLAN_COLLECT_METADATA)
                | ("geneve", IFLA_GENEVE_COLLECT_METADATA)
                | ("gretap" | "ip6gretap", IFLA_GRE_COLLECT_METADATA) => {
                    found.collects = value.first().is_none_or(|octet| *octet != 0);
                }
                ("vxlan", IFLA_VXLAN_GBP) => found.gbp = true,
                _ => {}
            }
        }
        Some(found)
    }

    /// Returns the packets that the device takes; `None` when it is not in collect_md mode.
    pub(crate) fn spec(&self) -> Option<TunnelDeviceSpec> {
        let port = self.port.unwrap_or_default();
        match self.link.kind.as_deref().filter(|_| self.collects)? {
            "vxlan" => Some(TunnelDeviceSpec::Vxlan { port, gbp: self.gbp }),
            "geneve" => Some(TunnelDeviceSpec::Geneve { port }),
            "gretap" => Some(TunnelDeviceSpec::Gre),
            "ip6gretap" => Some(TunnelDeviceSpec::Ip6Gre),
            _ => None,
        }
    }

    /// Returns true when a process of `owner` has made the device. Its user may have renamed it.
    fn is_of(&self, owner: &str) -> bool {
        let port = self.link.alias.as_deref().and_then(|alias| marked_port(alias, owner));
        port.zip(self.spec()).is_some_and(|(port, spec)| port == spec.name())
    }

    /// Returns true for a device whose maker ended before it had set the alias.
    fn is_half_made(&self, spec: TunnelDeviceSpec) -> bool {
        let Link { name, alias, admin_up, .. } = &self.link;
        *name == spec.name() && alias.is_none() && !admin_up && self.spec() == Some(spec)
    }
}

/// Returns all interfaces with the properties of tunnel devices.
pub(crate) fn list(client: &LinkClient) -> Result<Vec<Found>, TunnelDeviceError> {
    client.list_by(Found::parse).map_err(TunnelDeviceError::system("listing interfaces"))
}

pub(crate) fn client() -> Result<LinkClient, TunnelDeviceError> {
    LinkClient::new().map_err(TunnelDeviceError::system("opening a netlink socket"))
}

/// A tunnel device that exists. Any thread may use it. It stays when this is dropped.
#[derive(Debug)]
pub struct TunnelDevice {
    client: LinkClient,
    spec: TunnelDeviceSpec,
    index: u32,
}

impl TunnelDevice {
    /// Returns the devices of `owner` in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`TunnelDeviceError::System`].
    pub fn of_owner(owner: &str) -> Result<Vec<TunnelDevice>, TunnelDeviceError> {
        let all = list(&client()?)?;
        let ours = all.iter().filter(|found| found.is_of(owner));
        ours.filter_map(|found| {
            let spec = found.spec()?;
            Some(client().map(|client| TunnelDevice { client, spec, index: found.link.index }))
        })
        .collect()
    }

    /// Finds the device of `owner`, or makes it, in the calling thread's network namespace. A new
    /// device is down.
    ///
    /// # Errors
    ///
    /// See [`TunnelDeviceError`]. No new device remains.
    pub fn open(spec: TunnelDeviceSpec, owner: &str) -> Result<TunnelDevice, TunnelDeviceError> {
        let client = client()?;
        let err = TunnelDeviceError::system;
        for found in list(&client)? {
            let index = found.link.index;
            if found.is_of(owner) && found.spec() == Some(spec) {
                return Ok(TunnelDevice { client, spec, index });
            }
            let is_left = found.is_of(owner) && spec.collides(&found) || found.is_half_made(spec);
            if is_left {
                client.delete(By::Index(index)).map_err(err("deleting an earlier device"))?;
            } else if spec.collides(&found) || found.link.name == spec.name() {
                return Err(TunnelDeviceError::InUse(Holder::Device(found.link.name)));
            }
        }
        if !programs_read_local_address() {
            return Err(TunnelDeviceError::KernelTooOld);
        }
        let name = spec.name();
        create(&client, &name, spec)?;
        let made = (|| {
            let link = client.link(By::Name(&name)).map_err(err("looking up the new device"))?;
            let by = By::Index(link.index);
            client
                .change(by, Change::Alias(&mark(&name, owner)))
                .map_err(err("setting the alias"))?;
            client.assign_no_ipv6(by).map_err(err("switching IPv6 addresses off"))?;
            client.change(by, Change::Mtu(longest(&link))).map_err(err("setting the MTU"))?;
            Ok(link.index)
        })();
        match made {
            Ok(index) => Ok(TunnelDevice { client, spec, index }),
            Err(error) => {
                let _ = client.delete(By::Name(&name)); // the first error is reported
                Err(error)
            }
        }
    }

    /// Returns the packets that the device takes.
    pub fn spec(&self) -> TunnelDeviceSpec {
        self.spec
    }

    /// Returns the kernel's index of the device.
    pub fn ifindex(&self) -> u32 {
        self.index
    }

    /// Returns true while the device exists and is up.
    pub fn is_up(&self) -> bool {
        self.client.link(By::Index(self.index)).is_ok_and(|link| link.admin_up)
    }

    /// Opens the device's socket. From now on packets come out of the device.
    ///
    /// # Errors
    ///
    /// See [`TunnelDeviceError`]. [`TunnelDeviceError::InUse`] when a socket of another program has the
    /// UDP port.
    pub fn up(&self) -> Result<(), TunnelDeviceError> {
        self.client.change(By::Index(self.index), Change::UpSilent).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::EADDRINUSE) => TunnelDeviceError::InUse(Holder::Socket),
                _ => TunnelDeviceError::System { step: "bringing the device up", source },
            }
        })
    }

    /// Deletes the device.
    ///
    /// # Errors
    ///
    /// [`TunnelDeviceError::System`]. A device that is gone is no error.
    pub fn remove(self) -> Result<(), TunnelDeviceError> {
        delete(&self.client, self.index)
    }
}

/// Returns false when `struct bpf_tunnel_key` has no local address. A kernel that does not describe its
/// types is taken for a new one. They are read once.
fn programs_read_local_address() -> bool {
    static READ: OnceLock<bool> = OnceLock::new();
    if let Some(is_read) = READ.get() {
        return *is_read;
    }
    let Ok(types) = Btf::of_kernel() else { return true };
    *READ.get_or_init(|| types.has_union_member("local_ipv4"))
}

/// Returns the longest MTU of a tunnel device, in bytes.
pub(crate) fn longest(link: &Link) -> u32 {
    match link.mtu_range {
        Some((_, longest)) if longest != 0 => longest,
        // GRE devices have none; the headers of any tunnel fit with this.
        _ => MTU,
    }
}

/// Creates the device, without an alias.
pub(crate) fn create(
    client: &LinkClient,
    name: &str,
    spec: TunnelDeviceSpec,
) -> Result<(), TunnelDeviceError> {
    let request = link::creation(name, spec.kind(), &spec.data());
    client.request(request, |_, _| {}).map_err(TunnelDeviceError::of_creation(spec.kind()))
}

/// Deletes a device. One that is gone is no error.
pub(crate) fn delete(client: &LinkClient, index: u32) -> Result<(), TunnelDeviceError> {
    match client.delete(By::Index(index)) {
        Err(error) if link::is_not_there(&error) => Ok(()),
        other => other.map_err(TunnelDeviceError::system("deleting the device")),
    }
}

/// Returns true for the name of a tunnel device that a switch made.
pub fn is_tunnel_device(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(STEM) else { return false };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = rest.strip_prefix("vxlan").or_else(|| rest.strip_prefix("genev"));
    matches!(rest, "gre" | "ip6gre") || port.is_some_and(is_port)
}

#[cfg(test)]
mod tests;
