// SPDX-License-Identifier: Apache-2.0
//! Opening a device of any kind.

use crate::device::Opened;
use crate::open_error::{OpenError, check_name};
use crate::orphan::Owner;
use crate::spec::{Kind, OpenSpec};
use crate::{afpacket, dummy, tun, xdp};

/// Opens a device in the network namespace of the calling thread. Does not bring it up.
///
/// # Errors
///
/// See [`OpenError`]. No kernel object remains.
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
    // A dummy is always new. For the other kinds, `tun` knows whether it created the interface.
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
    // Last, so that no interface remains after a failure above.
    if matches!(spec.kind, Kind::Internal | Kind::Tap) {
        opened
            .device
            .set_persistent(spec.persistent.as_ref().map(Owner::name))
            .map_err(OpenError::system(&spec.name, "choosing how long the interface lives"))?;
    }
    Ok(opened)
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
