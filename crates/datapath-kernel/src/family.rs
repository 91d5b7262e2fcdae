// SPDX-License-Identifier: Apache-2.0
//! The families of generic netlink that `openvswitch.ko` registers, and the form of their messages
//! (include/uapi/linux/genetlink.h and openvswitch.h).

use netlink::attribute::{array, find, put};
use netlink::{Error, Request, Socket};
use rustix::io::Errno;
use std::io;

/// The family that resolves the others: `GENL_ID_CTRL`.
const CONTROL: u16 = 0x10;
/// `CTRL_CMD_GETFAMILY`
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`
const FAMILY_NAME: u16 = 2;
/// Bytes of `struct genlmsghdr`, and of `struct ovs_header` after it.
const HEADERS: usize = 8;

/// A family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `ovs_datapath`: datapaths with their features and counters.
    Datapath,
    /// `ovs_vport`: ports of datapaths.
    Vport,
    /// `ovs_flow`: megaflows with their counters.
    Flow,
    /// `ovs_packet`: upcalls, and packets on which actions run.
    Packet,
    /// `ovs_meter`: meters with their counters.
    Meter,
    /// `ovs_ct_limit`: limits of connections in zones. A kernel may lack it.
    CtLimit,
}

impl Family {
    const ALL: [Family; 6] = [
        Family::Datapath,
        Family::Vport,
        Family::Flow,
        Family::Packet,
        Family::Meter,
        Family::CtLimit,
    ];

    fn name(self) -> &'static str {
        match self {
            Family::Datapath => "ovs_datapath",
            Family::Vport => "ovs_vport",
            Family::Flow => "ovs_flow",
            Family::Packet => "ovs_packet",
            Family::Meter => "ovs_meter",
            Family::CtLimit => "ovs_ct_limit",
        }
    }

    /// `OVS_*_VERSION`
    fn version(self) -> u8 {
        match self {
            Family::Datapath => 2,
            Family::Vport | Family::Flow | Family::Packet | Family::Meter | Family::CtLimit => 1,
        }
    }
}

/// Why `openvswitch.ko` cannot be used. The text names the cause and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel has no such family.
    #[error(
        "openvswitch.ko is not loaded: run \"modprobe openvswitch\", or remove other_config:system-datapath"
    )]
    NotLoaded,
    /// The kernel has the module, and lacks a feature.
    #[error("openvswitch.ko of this kernel lacks {0}: Linux 5.15 has it")]
    TooOld(&'static str),
    /// Another error of the kernel.
    #[error("{action}: {error}")]
    Kernel {
        /// The request.
        action: &'static str,
        /// The kernel's error with its explanation.
        error: Error,
    },
}

impl Unavailable {
    /// Returns a function that makes this error of the kernel's.
    pub(crate) fn at<E: Into<Error>>(action: &'static str) -> impl FnOnce(E) -> Unavailable {
        move |error| Unavailable::Kernel { action, error: error.into() }
    }
}

/// The numbers of the families, which the kernel gives when the module is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Families([u16; Family::ALL.len()]);

impl Families {
    /// Asks the kernel for the numbers.
    ///
    /// # Errors
    ///
    /// The module is not loaded, or the socket is broken.
    pub fn resolve(socket: &mut Socket) -> Result<Families, Unavailable> {
        let mut numbers = [0; Family::ALL.len()];
        for (number, family) in numbers.iter_mut().zip(Family::ALL) {
            let name = [family.name().as_bytes(), b"\0"].concat();
            let request =
                Request::new(CONTROL, 0, &[GET_FAMILY, 1, 0, 0]).attribute(FAMILY_NAME, &name);
            let answer = socket.transact(request, |_, payload| {
                let id = payload.get(4..).and_then(|attributes| find(attributes, FAMILY_ID));
                *number = id.and_then(array).map_or(0, u16::from_ne_bytes);
            });
            match answer {
                Ok(_) if *number != 0 => {}
                Err(error) if error.errno() != Some(Errno::NOENT.raw_os_error()) => {
                    return Err(Unavailable::at("the families of openvswitch.ko")(error));
                }
                Ok(_) | Err(_) if family == Family::CtLimit => {}
                Ok(_) | Err(_) => return Err(Unavailable::NotLoaded),
            }
        }
        Ok(Families(numbers))
    }

    /// Returns a request to a family about the datapath with this interface index; 0 where the
    /// attributes name it.
    pub fn request(&self, family: Family, command: u8, flags: u16, datapath: i32) -> Request {
        let mut fixed = vec![command, family.version(), 0, 0];
        fixed.extend(datapath.to_ne_bytes());
        Request::new(self.number(family), flags, &fixed)
    }

    /// Returns true when the kernel has the family. All have those but [`Family::CtLimit`].
    pub fn has(&self, family: Family) -> bool {
        self.number(family) != 0
    }

    /// Returns the number of a family, which is the kind of its messages.
    pub fn number(&self, family: Family) -> u16 {
        self.0.get(family as usize).copied().unwrap_or_default()
    }
}

/// The payload of a message of one of the families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body<'a> {
    /// The command.
    pub command: u8,
    /// The interface index of the datapath.
    pub datapath: i32,
    /// The attributes.
    pub attributes: &'a [u8],
}

impl<'a> Body<'a> {
    /// Decodes the payload; `None` when it is too short.
    pub fn decode(payload: &'a [u8]) -> Option<Body<'a>> {
        let [command, _, _, _, d0, d1, d2, d3] = *payload.first_chunk::<HEADERS>()?;
        Some(Body {
            command,
            datapath: i32::from_ne_bytes([d0, d1, d2, d3]),
            attributes: payload.get(HEADERS..)?,
        })
    }

    /// Returns the value of the first attribute of this kind.
    pub fn attribute(&self, kind: u16) -> Option<&'a [u8]> {
        find(self.attributes, kind)
    }

    /// Returns the value of an attribute that is a 32-bit integer.
    pub fn word(&self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(array(self.attribute(kind)?)?))
    }
}

/// Returns a text with the NUL that ends it in messages.
pub(crate) fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// Appends an attribute that is a 32-bit integer.
pub(crate) fn put_word(bytes: &mut Vec<u8>, kind: u16, word: u32) {
    put(bytes, kind, &word.to_ne_bytes());
}

/// Reads integers of 64 bits, which may be cut short; missing ones are 0.
pub(crate) fn counters<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut all = [0; N];
    let (words, _) = bytes.as_chunks::<8>();
    for (to, word) in all.iter_mut().zip(words) {
        *to = u64::from_ne_bytes(*word);
    }
    all
}

/// Opens a socket in the calling thread's network namespace.
///
/// # Errors
///
/// The system's error.
pub(crate) fn open_socket() -> io::Result<Socket> {
    netdev::open_netlink(netdev::NetlinkProtocol::Generic).map(Socket::new)
}
