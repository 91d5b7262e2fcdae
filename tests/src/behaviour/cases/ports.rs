// SPDX-License-Identifier: Apache-2.0
//! Ports that come and go, and frames that do not fit.

use crate::behaviour::frames::udp;
use crate::behaviour::{MTU, PORTS, World, on};
use datapath::{DropReason, PortError, PortNo, PortSpec};
use netdev::Policing;

pub fn ports_are_listed_added_and_removed(w: &World) {
    let ports = w.dp().ports();
    assert_eq!(
        ports.iter().map(|p| p.number.0).collect::<Vec<_>>(),
        (1..=PORTS as u32).collect::<Vec<_>>()
    );
    let first = &ports[0];
    let again = PortSpec { name: first.name.clone(), kind: first.kind, ..PortSpec::default() };
    assert!(matches!(w.dp().add_port(&again), Err(PortError::Exists(name)) if name == first.name));
    assert!(matches!(w.dp().remove_port(PortNo(99)), Err(PortError::NotFound(_))));
    assert_eq!(w.dp().ports(), ports, "errors change nothing");
    w.dp().remove_port(PortNo(3)).expect("it is there");
    assert_eq!(w.dp().ports().len(), PORTS - 1);
    assert!(matches!(w.dp().remove_port(PortNo(3)), Err(PortError::NotFound(_))));
    let off = Policing::default();
    assert!(matches!(w.dp().set_policing(PortNo(3), off), Err(PortError::NotFound(_))));
    assert!(w.dp().set_policing(PortNo(2), off).is_ok());
}

pub fn output_to_a_removed_port_is_counted(w: &World) {
    w.install(1, on(1), "3,2");
    w.dp().remove_port(PortNo(3)).expect("it is there");
    w.inject(1, &udp(1));
    assert_eq!(w.out(2).len(), 1, "the other outputs still happen");
    assert_eq!(w.drops(DropReason::OutputPortGone), 1);
    assert_eq!(w.stats(1).packets, 1);
    w.install(2, on(2), "77");
    w.inject(2, &udp(1));
    assert_eq!(w.drops(DropReason::OutputPortGone), 2);
}

pub fn too_long_frames_are_counted(w: &World) {
    w.install(1, on(1), "2");
    let headers = 20 + 8;
    let fits = udp(MTU as usize - headers);
    w.inject(1, &fits);
    assert_eq!(w.out(2), [fits]);
    w.inject(1, &udp(MTU as usize - headers + 100));
    assert!(w.out(2).is_empty());
    assert_eq!(w.drops(DropReason::OutputTooLong), 1);
    w.dp().flush();
    w.install(2, on(1), "trunc(200),2");
    w.inject(1, &udp(w.fixture().large_mtu() as usize / 2));
    assert_eq!(w.out(2).iter().map(Vec::len).collect::<Vec<_>>(), [200]);
}

pub fn a_removed_port_can_come_back(w: &World) {
    let port = w.dp().ports().into_iter().find(|p| p.number == PortNo(4)).expect("port 4 is there");
    w.install(1, on(1), "4");
    w.dp().remove_port(PortNo(4)).expect("it is there");
    w.inject(1, &udp(1));
    assert_eq!(w.drops(DropReason::OutputPortGone), 1);
    let spec = PortSpec {
        name: port.name.clone(),
        kind: port.kind,
        wanted: Some(PortNo(4)),
        ..PortSpec::default()
    };
    assert_eq!(w.dp().add_port(&spec).expect("the device was closed"), PortNo(4));
    assert!(w.dp().ports().contains(&port));
    w.inject(1, &udp(1));
    assert_eq!(w.drops(DropReason::OutputPortGone), 1);
    w.install(2, on(4), "2");
    w.inject(4, &udp(2));
    assert_eq!(w.out(2), [udp(2)]);
    // A wanted number that is taken gives a free one.
    w.dp().remove_port(PortNo(4)).expect("it is there");
    let others = w.dp().ports();
    let spec = PortSpec { wanted: Some(PortNo(1)), ..spec };
    let number = w.dp().add_port(&spec).expect("the device was closed");
    assert!(number.0 > 0 && others.iter().all(|port| port.number != number), "{number}");
}
