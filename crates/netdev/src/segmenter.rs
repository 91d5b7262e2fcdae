// SPDX-License-Identifier: Apache-2.0
//! Devices that have the kernel segment packets.
//!
//! ```text
//! slipseg0m   macvlan, by which packets leave; its limits have the kernel segment each of them
//! slipseg0    veth, the device under it; a BPF program at its egress takes the segments
//! slipseg0p   the other end of the pair, which makes the others have a carrier
//! ```
//!
//! [`SegmenterDevices::open`] creates the devices, or finds those that an earlier process of the same owner has
//! left; the alias of the veth device says so. They have no addresses and no ARP. They outlive the process,
//! until [`SegmenterDevices::remove`].

use crate::link::{self, By, Change, Link, LinkClient};
use crate::netlink::attribute;
use crate::tap_interface::{mark, marked_port};
use crate::tunnel_device::{TunnelDeviceError, client, delete};
use std::io;

// include/uapi/linux/if_link.h
const IFLA_LINK: u16 = 5;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_MACVLAN_MODE: u16 = 1;
const MACVLAN_MODE_PRIVATE: u32 = 1;
// include/uapi/linux/veth.h
const VETH_INFO_PEER: u16 = 1;

/// Start of the names of these devices.
const STEM: &str = "slipseg";
/// The place of the devices in their alias.
const PLACE: &str = "segmenter";
/// Most switches of a network namespace.
const MOST: u32 = 1024;
/// The longest packet that the kernel does not segment when nothing states the number of its segments, in
/// bytes. Linux 6.7 takes no limit that is lower than the longest headers of TCP.
const MAX_SIZE: u32 = 512;

/// The devices of one switch. Any thread may use them. They stay when this is dropped.
#[derive(Debug)]
pub struct SegmenterDevices {
    client: LinkClient,
    name: String,
    entrance: u32,
    exit: u32,
}

fn entrance_name(name: &str) -> String {
    format!("{name}m")
}

fn other_end_name(name: &str) -> String {
    format!("{name}p")
}

fn is_of(link: &Link, owner: &str) -> bool {
    let alias = link.alias.as_deref().and_then(|alias| marked_port(alias, owner));
    alias == Some(PLACE) && link.kind.as_deref() == Some("veth")
}

/// Returns the entrance of the devices with this exit.
fn entrance_of<'a>(exit: &Link, all: &'a [Link]) -> Option<&'a Link> {
    let is_on = |link: &&Link| link.linked == Some(exit.index) && is_kind(link, "macvlan");
    all.iter().find(is_on)
}

fn is_kind(link: &Link, kind: &str) -> bool {
    link.kind.as_deref() == Some(kind)
}

impl SegmenterDevices {
    /// Finds the devices of `owner`, or makes them, in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`TunnelDeviceError::NoModule`] and [`TunnelDeviceError::System`]. No new device remains.
    pub fn open(owner: &str) -> Result<SegmenterDevices, TunnelDeviceError> {
        let err = TunnelDeviceError::system;
        let client = client()?;
        let all = client.list().map_err(err("listing interfaces"))?;
        for exit in all.iter().filter(|link| is_of(link, owner)) {
            if let Some(entrance) = entrance_of(exit, &all)
                && exit.link_up
                && entrance.admin_up
            {
                let (entrance, exit, name) = (entrance.index, exit.index, exit.name.clone());
                return Ok(SegmenterDevices { client, name, entrance, exit });
            }
            client.delete(By::Index(exit.index)).map_err(err("deleting earlier devices"))?;
        }
        let name = make_pair(&client, &all)?;
        match finish(&client, &name, owner) {
            Ok((entrance, exit)) => Ok(SegmenterDevices { client, name, entrance, exit }),
            Err(error) => {
                let _ = client.delete(By::Name(&name)); // the first error is reported
                Err(error)
            }
        }
    }

    /// Deletes the devices of `owner` in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`TunnelDeviceError::System`].
    pub fn discard(owner: &str) -> Result<(), TunnelDeviceError> {
        let err = TunnelDeviceError::system;
        let client = client()?;
        let all = client.list().map_err(err("listing interfaces"))?;
        for exit in all.iter().filter(|link| is_of(link, owner)) {
            delete(&client, exit.index)?;
        }
        Ok(())
    }

    /// Returns the name of the device that sends the segments.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the index of the device by which packets leave.
    pub fn entrance(&self) -> u32 {
        self.entrance
    }

    /// Returns the index of the device that sends the segments.
    pub fn exit(&self) -> u32 {
        self.exit
    }

    /// Returns true while the devices exist and are up.
    pub fn are_up(&self) -> bool {
        let has_carrier = |index| self.client.link(By::Index(index)).is_ok_and(|link| link.link_up);
        has_carrier(self.entrance) && has_carrier(self.exit)
    }

    /// Deletes the devices.
    ///
    /// # Errors
    ///
    /// [`TunnelDeviceError::System`]. Devices that are gone are no error.
    pub fn remove(self) -> Result<(), TunnelDeviceError> {
        delete(&self.client, self.exit)
    }
}

/// Makes a pair of the first free name. A pair without an alias that is down is one whose maker ended too
/// early.
fn make_pair(client: &LinkClient, all: &[Link]) -> Result<String, TunnelDeviceError> {
    for number in 0..MOST {
        let name = format!("{STEM}{number}");
        if let Some(there) = all.iter().find(|link| link.name == name) {
            if there.alias.is_some() || there.admin_up || !is_kind(there, "veth") {
                continue;
            }
            let gone = client.delete(By::Index(there.index));
            gone.map_err(TunnelDeviceError::system("deleting an earlier device"))?;
        }
        let peer = [vec![0; 16], link::named(&other_end_name(&name))].concat();
        let request = link::creation(&name, "veth", &attribute(VETH_INFO_PEER, &peer));
        match client.request(request, |_, _| {}) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            made => return made.map(|()| name).map_err(TunnelDeviceError::of_creation("veth")),
        }
    }
    Err(TunnelDeviceError::system("finding a name")(io::ErrorKind::AddrInUse.into()))
}

/// Makes the device on a new pair, and brings all of them up. Returns the indexes of entrance and exit.
fn finish(client: &LinkClient, name: &str, owner: &str) -> Result<(u32, u32), TunnelDeviceError> {
    let err = TunnelDeviceError::system;
    let find = |name: &str| client.link(By::Name(name)).map_err(err("looking up the new device"));
    let exit = find(name)?.index;
    let other = find(&other_end_name(name))?.index;
    client
        .change(By::Index(exit), Change::Alias(&mark(PLACE, owner)))
        .map_err(err("setting the alias"))?;
    // In this order each device has a carrier when it comes up, and none has to be waited for.
    let up = |index| {
        let by = By::Index(index);
        client.assign_no_ipv6(by).map_err(err("switching IPv6 addresses off"))?;
        client.change(by, Change::UpSilent).map_err(err("bringing the device up"))
    };
    up(other)?;
    up(exit)?;
    let mode = attribute(IFLA_MACVLAN_MODE, &MACVLAN_MODE_PRIVATE.to_ne_bytes());
    let request = link::creation(&entrance_name(name), "macvlan", &mode)
        .attribute(IFLA_LINK, &exit.to_ne_bytes())
        .attribute(IFLA_GSO_MAX_SEGS, &1u32.to_ne_bytes())
        .attribute(IFLA_GSO_MAX_SIZE, &MAX_SIZE.to_ne_bytes());
    client.request(request, |_, _| {}).map_err(TunnelDeviceError::of_creation("macvlan"))?;
    let entrance = find(&entrance_name(name))?.index;
    up(entrance)?;
    Ok((entrance, exit))
}

/// Returns true for the name of a device of [`SegmenterDevices`].
pub fn is_segmenter(name: &str) -> bool {
    let number = name.strip_prefix(STEM).map(|rest| rest.trim_end_matches(['m', 'p']));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
