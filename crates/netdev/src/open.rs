// SPDX-License-Identifier: Apache-2.0
//! What to open, and opening it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use crate::device::Opened;
use crate::link::is_not_there;
use crate::stray::Owner;
use crate::{afpacket, dummy, tun, xdp};

/// Kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A Linux interface, reached by `AF_PACKET`.
    System,
    /// An interface that we create by `/dev/net/tun`; it vanishes with us, unless
    /// [`OpenSpec::persistent`].
    Internal,
    /// A tap interface; an existing persistent one is attached.
    Tap,
    /// A Linux interface, reached by `AF_XDP`.
    AfXdp,
    /// No kernel behind it; for tests.
    Dummy,
}

impl Kind {
    /// `Interface:type` in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::System => "system",
            Kind::Internal => "internal",
            Kind::Tap => "tap",
            Kind::AfXdp => "afxdp",
            Kind::Dummy => "dummy",
        }
    }

    /// The kind that `Interface:type` names (empty means "system"); `None` for types that are
    /// no network device of this crate (patch, tunnels, unknown names).
    pub fn from_type(name: &str) -> Option<Kind> {
        Some(match name {
            "" | "system" => Kind::System,
            "internal" => Kind::Internal,
            "tap" => Kind::Tap,
            "afxdp" | "afxdp-nonpmd" => Kind::AfXdp,
            "dummy" | "dummy-internal" | "dummy-pmd" => Kind::Dummy,
            _ => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What to open.
#[derive(Clone, Debug)]
pub struct OpenSpec {
    /// Interface name, at most 15 bytes (any length for a dummy).
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Receive queues wanted; 0 means 1. Devices that have one queue only (all but `AF_XDP` and
    /// dummy) open one.
    pub n_rxq: usize,
    /// `Interface:options`; unknown keys are ignored.
    ///
    /// * afxdp: `xdp-mode` = `best-effort` (default), `native-with-zerocopy`, `native`,
    ///   `generic`; `use-need-wakeup` = `true` (default) or `false`.
    /// * dummy: `pcap`, `rxq_pcap`, `tx_pcap` (files), `ifindex`, `stream`, `pstream`.
    pub options: BTreeMap<String, String>,
    /// Internal and tap: the interface outlives the switch, so that its addresses, routes and
    /// the BPF programs on it do too. The next open of that name, in the same network namespace,
    /// finds it again, also when it has been moved to another one since, which a process or a name
    /// leads to. It is marked with the owner given here, which tells this switch's from another's
    /// ([`crate::persistent_interfaces`]), and deleted for good by [`crate::Device::set_persistent`]. An interface that an earlier run left is opened
    /// whether or not this is set; not set, it vanishes with this device. An interface that
    /// somebody else created keeps what he chose. Other kinds ignore it.
    pub persistent: Option<Owner>,
    /// Receive nothing until [`crate::Device::set_receiving`] says so (`AF_PACKET`).
    pub muted: bool,
    /// MTU to set; `None` leaves it.
    pub mtu: Option<u32>,
    /// Ethernet address to set; `None` leaves it.
    pub mac: Option<[u8; 6]>,
    /// The address of an interface that does not exist yet, and so one that this open creates
    /// (internal, tap, dummy), where `mac` is `None`. One that is there already keeps its own.
    pub first_mac: Option<[u8; 6]>,
}

impl OpenSpec {
    /// A device with one queue and no options.
    pub fn new(name: impl Into<String>, kind: Kind) -> OpenSpec {
        OpenSpec {
            name: name.into(),
            kind,
            n_rxq: 1,
            options: BTreeMap::new(),
            persistent: None,
            muted: false,
            mtu: None,
            mac: None,
            first_mac: None,
        }
    }
}

/// Why a device could not be opened. The text fits the Interface's `error` column.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such interface in this network namespace.
    #[error("{name}: could not open network device {name} (No such device)")]
    NoDevice {
        /// The name asked for.
        name: String,
    },
    /// The name can be no interface's name.
    #[error("\"{name}\" is not a valid interface name: {reason}")]
    BadName {
        /// The name asked for.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An option's value makes no sense.
    #[error("{name}: options:{option}: {reason}")]
    BadOption {
        /// The device.
        name: String,
        /// The option's key.
        option: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is an interface of that name that cannot be used as this kind.
    #[error("{name}: {reason}")]
    Unsuitable {
        /// The name asked for.
        name: String,
        /// What it is instead, and what to do.
        reason: String,
    },
    /// A dummy of that name, or a tap that another process holds, is open already.
    #[error("{name}: device is already open")]
    Busy {
        /// The name asked for.
        name: String,
    },
    /// A system call failed.
    #[error("{name}: {step} failed: {source}")]
    System {
        /// The device.
        name: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// For `map_err`: wraps what the kernel said to `step`; `ENODEV` becomes
    /// [`OpenError::NoDevice`].
    pub(crate) fn system(name: &str, step: &'static str) -> impl FnOnce(io::Error) -> OpenError {
        let name = name.to_owned();
        move |source| {
            if is_not_there(&source) {
                OpenError::NoDevice { name }
            } else {
                OpenError::System { name, step, source }
            }
        }
    }

    /// The error number, where the kernel gave one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            OpenError::NoDevice { .. } => Some(libc::ENODEV),
            OpenError::BadName { .. }
            | OpenError::BadOption { .. }
            | OpenError::Unsuitable { .. } => Some(libc::EINVAL),
            OpenError::Busy { .. } => Some(libc::EBUSY),
            OpenError::System { source, .. } => source.raw_os_error(),
        }
    }
}

/// Opens a device in the network namespace of the calling thread. Does not bring it up.
///
/// # Errors
///
/// See [`OpenError`]; nothing is left behind.
pub fn open(spec: &OpenSpec) -> Result<Opened, OpenError> {
    if spec.kind != Kind::Dummy {
        check_name(&spec.name)?;
    }
    let opened = match spec.kind {
        Kind::System => afpacket::open(spec)?,
        Kind::Internal | Kind::Tap => tun::open(spec)?,
        Kind::AfXdp => xdp::open(spec)?,
        Kind::Dummy => dummy::open(spec)?,
    };
    // A dummy is new each time. Of the others `tun` knows whether it created one.
    if let Some(mac) = spec.mac.or(spec.first_mac.filter(|_| spec.kind == Kind::Dummy)) {
        let same = opened.device.status().is_ok_and(|s| s.mac == mac);
        if !same {
            opened
                .device
                .set_mac(mac)
                .map_err(OpenError::system(&spec.name, "setting the Ethernet address"))?;
        }
    }
    if let Some(mtu) = spec.mtu {
        opened.device.set_mtu(mtu).map_err(OpenError::system(&spec.name, "setting the MTU"))?;
    }
    // Last, so that a failure above leaves nothing behind.
    if matches!(spec.kind, Kind::Internal | Kind::Tap) {
        opened
            .device
            .set_persistent(spec.persistent.as_ref().map(Owner::name))
            .map_err(OpenError::system(&spec.name, "choosing how long the interface lives"))?;
    }
    Ok(opened)
}

/// Follows `dev_valid_name` (net/core/dev.c).
pub(crate) fn check_name(name: &str) -> Result<(), OpenError> {
    let bad = |reason| Err(OpenError::BadName { name: name.to_owned(), reason });
    if name.is_empty() {
        return bad("it is empty");
    }
    if name.len() >= libc::IFNAMSIZ {
        return bad("it is longer than 15 bytes");
    }
    if name == "." || name == ".." {
        return bad("it is reserved");
    }
    if name.bytes().any(|b| b == b'/' || b == b':' || b == 0 || b.is_ascii_whitespace()) {
        return bad("it contains a slash, colon, space or NUL");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_refused() {
        for name in ["", "sixteen-bytes-xx", ".", "..", "a/b", "a b", "a:b", "a\0b"] {
            let e = open(&OpenSpec::new(name, Kind::System)).err();
            assert!(matches!(e, Some(OpenError::BadName { .. })), "{name:?}: {e:?}");
        }
    }

    #[test]
    fn missing_devices_are_reported_as_such() {
        let e = open(&OpenSpec::new("no-such-dev", Kind::System)).err();
        let Some(e) = e else { panic!("opened") };
        // Without privileges the socket is refused first.
        assert!(matches!(e.raw_os_error(), Some(libc::ENODEV | libc::EPERM)), "{e}");
    }
}
