// SPDX-License-Identifier: Apache-2.0
use super::*;
use std::process::Command;
use testing::{in_namespace, skip};

/// Opens the devices; `None`, with a message, where the kernel has no such kind.
fn open(owner: &str) -> Option<SegmenterDevices> {
    match SegmenterDevices::open(owner) {
        Err(error @ TunnelDeviceError::NoModule(_)) => {
            skip(&error.to_string());
            None
        }
        other => Some(other.expect("such devices can be made")),
    }
}

#[track_caller]
fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}");
    String::from_utf8(output.stdout).expect("text")
}

fn places(devices: &SegmenterDevices) -> (u32, u32) {
    (devices.entrance(), devices.exit())
}

#[test]
fn devices_live_as_their_owner_says() {
    in_namespace(|| {
        let Some(made) = open("/run/a") else { return };
        let first = places(&made);
        assert!(made.are_up());
        let shown = ip("-d link show slipseg0m");
        assert!(shown.contains("gso_max_size 512 gso_max_segs 1 "), "{shown}");
        for name in ["slipseg0", "slipseg0m", "slipseg0p"] {
            assert!(is_segmenter(name));
            assert!(!ip(&format!("addr show {name}")).contains("inet"), "{name} has no address");
        }
        drop(made);
        let Some(other) = open("/run/b") else { return };
        assert_eq!(other.name(), "slipseg1", "another switch has its own");
        let Some(found) = open("/run/a") else { return };
        assert_eq!(places(&found), first, "the next process goes on with them");

        ip("link del slipseg0m");
        assert!(!found.are_up());
        let Some(again) = open("/run/a") else { return };
        assert!(again.are_up() && places(&again) != first, "incomplete devices are made again");
        again.remove().expect("they can be deleted");
        found.remove().expect("they are gone already");
        assert!(!link::exists("slipseg0p"));

        SegmenterDevices::discard("/run/a").expect("there are none");
        assert!(other.are_up());
        SegmenterDevices::discard("/run/b").expect("they can be deleted");
        assert!(!link::exists("slipseg1m"));
    });
}

#[test]
fn a_pair_whose_maker_ended_too_early_is_made_again() {
    in_namespace(|| {
        ip("link add slipseg0 type veth peer name slipseg0p");
        ip("link add slipseg1 up type veth peer name slipseg1p");
        let Some(made) = open("/run/a") else { return };
        assert_eq!(made.name(), "slipseg0");
        let Some(next) = open("/run/b") else { return };
        assert_eq!(next.name(), "slipseg2", "a pair of another program stays");
    });
}

#[test]
fn names_of_other_devices() {
    for name in ["slipseg", "slipsegm", "slipmiss0", "eth0", "slipseg0x"] {
        assert!(!is_segmenter(name), "{name}");
    }
}
