// SPDX-License-Identifier: Apache-2.0
//! Roles of controllers.

use super::*;
use openflow::message::{Role, RoleRequest};

fn role(role: Role, generation_id: Option<u64>) -> Body {
    Body::RoleRequest(RoleRequest { role, generation_id, nicira: false })
}

#[test]
fn there_is_one_primary_and_the_old_one_is_told() {
    let mut b = Bench::new(1);
    let (p, q) = (b.connect(Kind::Primary, Version::V14), b.connect(Kind::Primary, Version::V14));
    let Body::RoleReply(r) = b.one(p, role(Role::Primary, Some(3))) else { panic!() };
    assert_eq!((r.role, r.generation_id), (Role::Primary, Some(3)));
    b.one(q, role(Role::Primary, Some(4)));
    let told = b.output(p);
    let [Message { xid: 0, body: Body::RoleStatus(s) }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((s.role, s.generation_id), (Role::Secondary, 4));
    assert_eq!(b.connections.status(p.id).unwrap().role, Role::Secondary);
    assert_eq!(b.error(p, role(Role::Primary, Some(3))), OfError::OFPRRFC_STALE);
    let Body::RoleReply(r) = b.one(p, role(Role::NoChange, None)) else { panic!() };
    assert_eq!(r.role, Role::Secondary);
    // Generation ids go round.
    b.one(p, role(Role::Secondary, Some(u64::MAX / 2)));
    b.one(p, role(Role::Secondary, Some(u64::MAX - 5)));
    b.one(p, role(Role::Primary, Some(2)));
    assert_eq!(b.connections.status(q.id).unwrap().role, Role::Secondary);
}

#[test]
fn a_secondary_reads_only() {
    let mut b = Bench::new(1);
    let p = b.connect(Kind::Primary, Version::V13);
    b.one(p, role(Role::Secondary, Some(1)));
    let fm = flow(5, ip(1), &[output(1)]);
    assert_eq!(b.error(p, Body::FlowMod(Box::new(fm.clone()))), OfError::OFPBRC_IS_SECONDARY);
    assert_eq!(b.rule_count(), 0);
    assert!(b.flows(p).is_empty());
    b.one(p, role(Role::Equal, None));
    b.add(p, fm);
    assert_eq!(b.rule_count(), 1);
}
