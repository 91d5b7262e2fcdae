// SPDX-License-Identifier: Apache-2.0
//! Veths whose other ends frames may enter at once.

use super::fakes::*;
use datapath::{PortNo, Ports};
use netdev::Endpoint;
use std::sync::atomic::Ordering;

/// The other end of every veth.
const END: Endpoint = Endpoint { namespace: Some(3), index: 2 };

/// Adds port 1, a veth.
fn add_veth(b: &Bench) {
    let mut spec = spec("veth1", "system", None);
    spec.other_config.insert("tcx-peer".into(), "true".into());
    assert_eq!(b.placed.add_port(&spec).unwrap(), PortNo(1));
}

/// A thread hears of the device itself later, and finds the port as it is.
#[test]
fn a_device_that_an_event_of_its_other_end_shows_up_is_up() {
    let b = Bench::new();
    b.base.is_down.store(true, Ordering::Relaxed);
    b.prober.veth.lock().unwrap().end = Some(END);
    add_veth(&b);
    b.base.is_down.store(false, Ordering::Relaxed);
    b.fast.take_log();
    b.placed.ends_changed(&[END]);
    assert_eq!(b.fast.take_log(), ["set_port 1 1500 true"]);
    b.placed.refresh(PortNo(1));
    assert_eq!(b.fast.take_log(), [""; 0]);
}
