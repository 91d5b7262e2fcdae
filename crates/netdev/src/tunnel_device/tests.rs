// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;
use std::net::UdpSocket;
use std::process::Command;
use testing::{in_namespace, skip};

const VXLAN: TunnelDeviceSpec = TunnelDeviceSpec::Vxlan { port: 4789, gbp: false };
const ALL: [TunnelDeviceSpec; 4] = [
    VXLAN,
    TunnelDeviceSpec::Vxlan { port: 4790, gbp: true },
    TunnelDeviceSpec::Geneve { port: 6081 },
    TunnelDeviceSpec::Gre,
];

#[track_caller]
fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("iproute2 is installed").success(), "ip {arguments}");
}

fn names_of(owner: &str) -> Vec<String> {
    let all = TunnelDevice::of_owner(owner).expect("interfaces can be listed");
    all.iter().map(|device| device.spec().name()).collect()
}

/// Opens a device; `None`, with a message, where the kernel has no such kind.
fn open(spec: TunnelDeviceSpec, owner: &str) -> Option<TunnelDevice> {
    match TunnelDevice::open(spec, owner) {
        Err(error @ (TunnelDeviceError::NoModule(_) | TunnelDeviceError::KernelTooOld)) => {
            skip(&error.to_string());
            None
        }
        other => Some(other.expect("a device of this kind can be made")),
    }
}

fn holder(result: Result<impl Sized, TunnelDeviceError>) -> Holder {
    match result {
        Err(TunnelDeviceError::InUse(holder)) => holder,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the port was free"),
    }
}

fn device_lives_as_its_owner_says(spec: TunnelDeviceSpec) {
    let Some(made) = open(spec, "/run/a") else { return };
    let index = made.ifindex();
    assert!(!made.is_up(), "no packet comes before its program is there");
    made.up().expect("the port is free");
    assert!(made.is_up());
    let link = link::find(&spec.name()).expect("it was made");
    assert_eq!(link.kind.as_deref(), Some(spec.kind()));
    assert!(link.mtu >= 60_000, "aggregates pass: {}", link.mtu);
    drop(made);

    let found = open(spec, "/run/a").expect("it was there");
    assert_eq!((found.ifindex(), found.is_up()), (index, true), "the next process goes on with it");
    assert_eq!(names_of("/run/a"), [spec.name()]);
    assert_eq!(names_of("/run/b"), [""; 0]);
    let other = TunnelDevice::open(spec, "/run/b");
    assert_eq!(holder(other), Holder::Device(spec.name()), "it is another switch's");
    found.remove().expect("it can be deleted");
    assert!(!link::exists(&spec.name()));

    let again = open(spec, "/run/b").expect("the place is free");
    ip(&format!("link del {}", spec.name()));
    assert!(!again.is_up());
    again.remove().expect("it is gone already");
}

#[test]
fn devices_live_as_their_owner_says() {
    in_namespace(|| ALL.into_iter().for_each(device_lives_as_its_owner_says));
}

#[test]
fn a_renamed_device_is_found() {
    in_namespace(|| {
        let Some(made) = open(VXLAN, "/run/a") else { return };
        ip("link set slipvxlan4789 name renamed");
        let found = open(VXLAN, "/run/a").expect("it is there");
        assert_eq!(found.ifindex(), made.ifindex());
    });
}

#[test]
fn a_device_with_other_options_makes_room() {
    in_namespace(|| {
        let Some(plain) = open(VXLAN, "/run/a") else { return };
        let spec = TunnelDeviceSpec::Vxlan { port: 4789, gbp: true };
        let other = open(spec, "/run/a").expect("both are ours");
        assert_ne!(plain.ifindex(), other.ifindex());
        let all = TunnelDevice::of_owner("/run/a").expect("interfaces can be listed");
        assert_eq!(all.iter().map(TunnelDevice::spec).collect::<Vec<_>>(), [spec]);
    });
}

#[test]
fn a_device_without_its_alias_is_made_again() {
    in_namespace(|| {
        let client = LinkClient::new().expect("a socket");
        match create(&client, &VXLAN.name(), VXLAN) {
            Err(TunnelDeviceError::NoModule(kind)) => {
                return skip(&format!("the kernel has no {kind} devices"));
            }
            other => other.expect("a device of this kind can be made"),
        }
        if open(VXLAN, "/run/a").is_none() {
            return;
        }
        assert_eq!(names_of("/run/a"), ["slipvxlan4789"]);
    });
}

#[test]
fn devices_of_others_are_left_alone() {
    in_namespace(|| {
        if open(VXLAN, "/run/a").is_none() {
            return;
        }
        ip("link del slipvxlan4789");
        ip("link add theirs type vxlan id 7 remote 192.0.2.1 dstport 4789");
        assert_eq!(holder(TunnelDevice::open(VXLAN, "/run/a")), Holder::Device("theirs".into()));
        assert!(link::exists("theirs"), "it is down, and may come up");
        let other = TunnelDeviceSpec::Vxlan { port: 8472, gbp: false };
        open(other, "/run/a").expect("another port is free").up().expect("it is free");
        ip("link del theirs");
        ip("link add slipvxlan4789 type veth peer name end");
        let taken = TunnelDevice::open(VXLAN, "/run/a");
        assert_eq!(holder(taken), Holder::Device("slipvxlan4789".into()), "the name is theirs");
    });
}

#[test]
fn a_socket_of_another_program_keeps_its_port() {
    in_namespace(|| {
        let socket = UdpSocket::bind("0.0.0.0:4789").expect("the port is free");
        let Some(device) = open(VXLAN, "/run/a") else { return };
        assert_eq!(holder(device.up()), Holder::Socket);
        drop(socket);
        device.up().expect("the port is free");
    });
}

#[test]
fn an_unknown_kind_is_no_module() {
    in_namespace(|| {
        for spec in ALL {
            match TunnelDevice::open(spec, "/run/a") {
                Ok(device) => device.remove().expect("it can be deleted"),
                Err(TunnelDeviceError::KernelTooOld) => skip("the kernel is too old"),
                Err(error) => {
                    let text = format!("no module: the kernel has no {} devices", spec.kind());
                    assert_eq!(error.to_string(), text);
                }
            }
        }
    });
}

#[test]
fn names_fit_and_are_recognised() {
    for spec in [
        TunnelDeviceSpec::Vxlan { port: 65535, gbp: false },
        TunnelDeviceSpec::Geneve { port: 65535 },
        TunnelDeviceSpec::Gre,
    ] {
        assert!(spec.name().len() < libc::IFNAMSIZ && is_tunnel_device(&spec.name()));
    }
    assert!(
        ["slip", "slipvxlan", "slipmiss0", "slipvxlanx", "gre"]
            .iter()
            .all(|n| !is_tunnel_device(n))
    );
}

proptest! {
    #[test]
    fn any_payload_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Found::parse(&bytes);
    }
}
