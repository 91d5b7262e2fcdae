// SPDX-License-Identifier: Apache-2.0
//! Headers of tunnels that flows share.

use super::tests::{install, megaflow, remove, table};
use super::*;
use crate::layout::TUNNEL_HEADERS;

/// Returns actions that push a header with this VNI.
fn push(vni: u32) -> Vec<Action> {
    let text = format!(
        "clone(tnl_push(tnl_port(8),header(size=50,type=4,eth(dst=aa:55:00:00:00:01,\
         src=aa:55:00:00:00:02,dl_type=0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0x0,\
         ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x{vni:x})),\
         out_port(9)),2)"
    );
    datapath::text::parse(&text, &|_| None).unwrap()
}

fn adopt(flows: Flows) -> (Flows, adopt::Adopted) {
    let Flows { maps, factors, .. } = flows;
    Flows::adopt(maps, Vec::new(), factors, Grace::Nobody, Clock::new()).unwrap()
}

#[test]
fn flows_share_headers_and_have_their_own_again() {
    let flows = table(1024);
    for (id, vni) in [(1, 7), (2, 8), (3, 7)] {
        install(&flows, &megaflow(id, &push(vni))).unwrap();
        assert_eq!(flows.actions(Ufid(u128::from(id) + 1)), Some(push(vni)));
    }
    assert_eq!(flows.lock().headers.len(), 2);
    assert!(flows.encodes_alike(Ufid(4), &push(7)));
    assert!(!flows.encodes_alike(Ufid(4), &push(8)) && !flows.encodes_alike(Ufid(4), &push(9)));
    flows.replace(&megaflow(1, &push(9)), HookSet::all(), |_| {}).unwrap();
    assert_eq!(flows.actions(Ufid(2)), Some(push(9)));
    // A header stays until no packet can run a flow that names it.
    remove(&flows, Ufid(3)).unwrap();
    assert_eq!(flows.lock().headers.len(), 3);
    flows.reclaim();
    assert_eq!(flows.lock().headers.len(), 2);
    assert_eq!(flows.actions(Ufid(4)), Some(push(7)));
}

#[test]
fn headers_are_adopted_with_their_flows() {
    let flows = table(1024);
    for (id, vni) in [(1, 7), (2, 8), (3, 7)] {
        install(&flows, &megaflow(id, &push(vni))).unwrap();
    }
    let (flows, found) = adopt(flows);
    assert_eq!((found.flows, found.refused), (3, 0));
    assert_eq!(flows.actions(Ufid(3)), Some(push(8)));
    assert!(flows.encodes_alike(Ufid(4), &push(7)));
    install(&flows, &megaflow(4, &push(8))).unwrap();
    assert_eq!(flows.lock().headers.len(), 2, "the adopted one serves the new flow");
    // Of a damaged header the flows are refused.
    let at = (0..TUNNEL_HEADERS as usize)
        .find(|at| flows.maps.tunnel_headers.read(*at).bytes[48] == 7)
        .unwrap();
    let mut header = flows.maps.tunnel_headers.read(at);
    header.ip_sum ^= 1;
    flows.maps.tunnel_headers.write(at, &header);
    let (flows, found) = adopt(flows);
    assert_eq!((found.flows, found.refused), (2, 2));
    assert_eq!(flows.lock().headers.len(), 1);
    install(&flows, &megaflow(1, &push(7))).unwrap();
    assert_eq!(flows.actions(Ufid(2)), Some(push(7)));
}

#[test]
fn a_header_without_room_is_refused() {
    let flows = table(1024);
    flows.lock().headers = {
        let mut full = TunnelHeaders::new();
        let actions = push(1);
        let Action::Clone(nested) = &actions[0] else { panic!() };
        let Action::TunnelPush { header, .. } = &nested[0] else { panic!() };
        let held = TunnelHeader::new(header).unwrap();
        full.adopt(&held, TUNNEL_HEADERS - 1);
        full
    };
    let refused = install(&flows, &megaflow(2, &push(2)));
    assert_eq!(refused, Err(Refusal::TunnelHeadersFull));
    install(&flows, &megaflow(1, &push(1))).unwrap();
    assert_eq!(flows.len(), 1);
}
