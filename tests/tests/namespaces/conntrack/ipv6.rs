// SPDX-License-Identifier: Apache-2.0
//! A firewall and address translation over IPv6.

use super::{await_conn, conn, conns, firewall, is_ignored, is_refused, leads_to, pair_of, part};
use crate::tools::{SOON, Stream, tcp, udp};

const INSIDE: &str = "fc00::1/96";
const OUTSIDE: &str = "fc00::2/96";

#[test]
fn connections_go_out_and_none_come_in() {
    let Some((switch, a, b)) = pair_of(INSIDE, OUTSIDE) else { return };
    switch.flows("br0", &firewall("ipv6", "zone=1", "zone=1"));
    tcp(&a, &b, 1_000_000);
    let line = await_conn(&switch, &["tcp,", "TIME_WAIT"]);
    let (sport, dport) = (part(&line, "sport="), part(&line, "dport="));
    assert_eq!(
        line,
        format!(
            "tcp,orig=(src=fc00::1,dst=fc00::2,sport={sport},dport={dport}),\
             reply=(src=fc00::2,dst=fc00::1,sport={dport},dport={sport}),zone=1,\
             protoinfo=(state=TIME_WAIT)"
        )
    );
    assert_eq!(udp(&a, &b, &[1, 1000]), [true; 2]);
    assert!(a.reaches("fc00::2", SOON));
    let line = conn(&switch, &["icmpv6,"]);
    let id = part(&line, "id=");
    assert_eq!(
        line,
        format!(
            "icmpv6,orig=(src=fc00::1,dst=fc00::2,id={id},type=128,code=0),\
             reply=(src=fc00::2,dst=fc00::1,id={id},type=129,code=0),zone=1"
        )
    );
    assert!(is_refused(&a, "[fc00::2]:9"), "an error about a connection's packet passes");
    assert!(is_ignored(&b, "[fc00::1]:7"));
    assert_eq!(b.ping("fc00::1", 3), 0);
    assert_eq!(conns(&switch, &["orig=(src=fc00::2"]), Vec::<String>::new());
}

#[test]
fn source_addresses_are_translated() {
    let Some((switch, a, b)) = pair_of(INSIDE, OUTSIDE) else { return };
    switch.flows("br0", &firewall("ipv6", "zone=1,nat(src=fc00::240)", "zone=1,nat"));
    leads_to(&b, "fc00::240", &a);
    assert!(a.reaches("fc00::2", SOON));
    assert_eq!(a.ping("fc00::2", 5), 5);
    let mut stream = Stream::new(&a, &b, "[fc00::2]:7000", "[fc00::2]:7000");
    stream.write(300_000);
    let line = conn(&switch, &["tcp,"]);
    let sport = part(&line, "sport=");
    assert_eq!(
        line,
        format!(
            "tcp,orig=(src=fc00::1,dst=fc00::2,sport={sport},dport=7000),\
             reply=(src=fc00::2,dst=fc00::240,sport=7000,dport={sport}),zone=1,\
             protoinfo=(state=ESTABLISHED)"
        )
    );
    assert_eq!(stream.finish(), 300_000);
    assert!(is_refused(&a, "[fc00::2]:33434"), "the error quotes a translated packet");
}

#[test]
fn destination_addresses_and_ports_are_translated() {
    let Some((switch, a, b)) = pair_of(INSIDE, OUTSIDE) else { return };
    switch.flows("br0", &firewall("ipv6", "zone=1,nat(dst=[fc00::2]:8080)", "zone=1,nat"));
    leads_to(&a, "fc00::64", &b);
    let mut stream = Stream::new(&a, &b, "[fc00::2]:8080", "[fc00::64]:80");
    stream.write(300_000);
    let line = conn(&switch, &["tcp,", "dst=fc00::64,"]);
    assert!(line.contains("reply=(src=fc00::2,dst=fc00::1,sport=8080,"), "{line}");
    assert_eq!(stream.finish(), 300_000);
    assert!(is_refused(&a, "[fc00::64]:33434"), "the error quotes a translated packet");
}
