// SPDX-License-Identifier: Apache-2.0
//! The kernel's ports of a datapath.

use crate::family::{Body, Families, Family, text};
use netlink::message::text as text_of;
use netlink::{Error, Socket};

/// `OVS_VPORT_CMD_*`
mod command {
    pub const NEW: u8 = 1;
    pub const DEL: u8 = 2;
    pub const GET: u8 = 3;
}

/// `OVS_VPORT_ATTR_*`
mod attr {
    pub const PORT_NO: u16 = 1;
    pub const TYPE: u16 = 2;
    pub const NAME: u16 = 3;
    pub const UPCALL_PID: u16 = 5;
}

/// The kind of a port (`enum ovs_vport_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device of the host.
    Device,
    /// A device that the kernel makes with the port.
    Internal,
    /// A kind that this crate does not make.
    Other(u32),
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Kind::Device => 1,
            Kind::Internal => 2,
            Kind::Other(number) => number,
        }
    }

    fn from_number(number: u32) -> Kind {
        match number {
            1 => Kind::Device,
            2 => Kind::Internal,
            other => Kind::Other(other),
        }
    }
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vport {
    /// Its number in the kernel.
    pub number: u32,
    /// The name of its device.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

impl Vport {
    /// Decodes a message; `None` when it lacks a part.
    pub fn decode(body: &Body<'_>) -> Option<Vport> {
        Some(Vport {
            number: body.word(attr::PORT_NO)?,
            name: text_of(body.attribute(attr::NAME)?),
            kind: Kind::from_number(body.word(attr::TYPE)?),
        })
    }

    /// Makes this port.
    ///
    /// # Errors
    ///
    /// The kernel's error: `EBUSY` or `EEXIST` when the number is taken or the device is a port
    /// already.
    pub fn add(
        &self,
        socket: &mut Socket,
        families: &Families,
        datapath: i32,
    ) -> Result<(), Error> {
        let request = families
            .request(Family::Vport, command::NEW, 0, datapath)
            .attribute(attr::NAME, &text(&self.name))
            .attribute(attr::TYPE, &self.kind.number().to_ne_bytes())
            .attribute(attr::PORT_NO, &self.number.to_ne_bytes())
            .attribute(attr::UPCALL_PID, &0u32.to_ne_bytes());
        socket.transact(request, |_, _| {}).map(drop)
    }

    /// Removes the port with this number. The kernel removes an internal port's device, too.
    ///
    /// # Errors
    ///
    /// The kernel's error: `ENODEV` when the port is gone, as after its device.
    pub fn remove(
        socket: &mut Socket,
        families: &Families,
        datapath: i32,
        number: u32,
    ) -> Result<(), Error> {
        let request = families
            .request(Family::Vport, command::DEL, 0, datapath)
            .attribute(attr::PORT_NO, &number.to_ne_bytes());
        socket.transact(request, |_, _| {}).map(drop)
    }

    /// Returns all ports of a datapath.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn all(
        socket: &mut Socket,
        families: &Families,
        datapath: i32,
    ) -> Result<Vec<Vport>, Error> {
        let mut all = Vec::new();
        let request = families.request(Family::Vport, command::GET, 0, datapath);
        socket.dump(request, |_, payload| {
            all.extend(Body::decode(payload).and_then(|body| Vport::decode(&body)));
        })?;
        Ok(all)
    }
}
