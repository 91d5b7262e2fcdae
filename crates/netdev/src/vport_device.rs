// SPDX-License-Identifier: Apache-2.0
//! Tunnel devices beneath ports of `openvswitch.ko`.
//!
//! The kernel's datapath sends packets to such a device with the fields of the tunnel, and receives them
//! with the fields. The device has the name of the port, as Open vSwitch gives it. So a device that an
//! earlier process has left is found by its name; one with the name and other properties is replaced.

use crate::link::{By, Change};
use crate::tunnel_device::{self, Found, Holder, MTU, TunnelDeviceError, TunnelDeviceSpec};

/// Makes the device, or finds it, in the calling thread's network namespace, and brings it up.
///
/// # Errors
///
/// See [`TunnelDeviceError`]. No new device remains.
pub fn open(name: &str, spec: TunnelDeviceSpec) -> Result<(), TunnelDeviceError> {
    let client = tunnel_device::client()?;
    let err = TunnelDeviceError::system;
    let (named, others): (Vec<Found>, Vec<Found>) =
        tunnel_device::list(&client)?.into_iter().partition(|found| found.link.name == name);
    let mut is_there = false;
    for found in named {
        is_there = found.spec() == Some(spec);
        if !is_there {
            tunnel_device::delete(&client, found.link.index)?;
        }
    }
    if let Some(other) = others.into_iter().find(|found| spec.collides(found)) {
        return Err(TunnelDeviceError::InUse(Holder::Device(other.link.name)));
    }
    if !is_there {
        tunnel_device::create(&client, name, spec)?;
    }
    let by = By::Name(name);
    let set = (|| {
        client.assign_no_ipv6(by).map_err(err("switching IPv6 addresses off"))?;
        let link = client.link(by).map_err(err("looking up the new device"))?;
        // As Open vSwitch sets it: the path's is found for each packet.
        let mtu = tunnel_device::longest(&link).min(MTU);
        if link.mtu != mtu {
            client.change(by, Change::Mtu(mtu)).map_err(err("setting the MTU"))?;
        }
        match client.change(by, Change::AdminUp(true)) {
            Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {
                Err(TunnelDeviceError::InUse(Holder::Socket))
            }
            other => other.map_err(err("bringing the device up")),
        }
    })();
    if set.is_err() && !is_there {
        let _ = client.delete(by); // the first error is reported
    }
    set
}

/// Deletes the device `name`, if it is a tunnel device in collect_md mode.
///
/// # Errors
///
/// [`TunnelDeviceError::System`]. A device that is gone is no error.
pub fn remove(name: &str) -> Result<(), TunnelDeviceError> {
    let client = tunnel_device::client()?;
    let all = tunnel_device::list(&client)?;
    let found = all.iter().find(|found| found.link.name == name && found.spec().is_some());
    found.map_or(Ok(()), |found| tunnel_device::delete(&client, found.link.index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use testing::{in_namespace, skip};

    const SPECS: [TunnelDeviceSpec; 5] = [
        TunnelDeviceSpec::Vxlan { port: 4789, gbp: false },
        TunnelDeviceSpec::Vxlan { port: 4790, gbp: true },
        TunnelDeviceSpec::Geneve { port: 6081 },
        TunnelDeviceSpec::Gre,
        TunnelDeviceSpec::Ip6Gre,
    ];

    #[test]
    fn a_device_is_made_found_replaced_and_removed() {
        in_namespace(|| {
            for spec in SPECS {
                match open("of_port", spec) {
                    Err(error @ TunnelDeviceError::NoModule(_)) => {
                        skip(&error.to_string());
                        continue;
                    }
                    other => other.expect("a device of this kind can be made"),
                }
                let made = link::find("of_port").expect("it was made");
                assert!(made.admin_up && made.mtu > 60_000, "{made:?}");
                assert_eq!(made.kind.as_deref(), Some(spec.kind()));
                open("of_port", spec).expect("it is there");
                assert_eq!(link::find("of_port").map(|link| link.index).ok(), Some(made.index));
                let other = open("second", spec);
                assert!(
                    matches!(&other, Err(TunnelDeviceError::InUse(Holder::Device(name))) if name == "of_port"),
                    "{other:?}"
                );
                let elsewhere = TunnelDeviceSpec::Vxlan { port: 9999, gbp: false };
                open("of_port", elsewhere).expect("the device is replaced");
                assert_eq!(link::find("of_port").expect("made").kind.as_deref(), Some("vxlan"));
                remove("of_port").expect("it is there");
                remove("of_port").expect("it is gone, which is no error");
                assert!(!link::exists("of_port"));
            }
        });
    }

    #[test]
    fn a_device_of_another_kind_is_not_removed() {
        in_namespace(|| {
            remove("lo").expect("it is left alone");
            assert!(link::exists("lo"));
        });
    }
}
