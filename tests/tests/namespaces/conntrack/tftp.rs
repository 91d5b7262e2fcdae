// SPDX-License-Identifier: Apache-2.0
//! TFTP, whose server answers from another port: `in.tftpd` and `tftp` of Debian.

use super::{conns, equal, file, leads_to, pair, server, succeeds};
use slipswitch_tests::harness::{Host, Process, Switch, without_tool};

fn flows(control: &str, data: &str) -> String {
    format!(
        "table=0,priority=10,arp,actions=NORMAL
         table=0,priority=5,ip,actions=ct(zone=1,nat,table=1)
         table=1,priority=30,in_port=h1,udp,tp_dst=69,ct_state=+trk+new-rel,actions=ct(commit,zone=1,alg=tftp{control}),h2
         table=1,priority=30,in_port=h2,udp,ct_state=+trk+new+rel,actions=ct(commit,zone=1{data}),h1
         table=1,priority=20,in_port=h1,ct_state=+trk+est-inv,actions=h2
         table=1,priority=20,in_port=h2,ct_state=+trk+est-inv,actions=h1"
    )
}

fn tftpd(switch: &Switch, host: &Host) -> Process {
    std::fs::create_dir_all(switch.sandbox().file("tftp")).expect("the directory is ours");
    file(switch, "tftp/page", 60_000);
    let dir = switch.sandbox().file("tftp");
    let arguments =
        ["-L", "-s", "-c", "-u", "root", "--address", "10.1.1.2:69", dir.to_str().expect("text")];
    server(switch, host, "udp", 69, &[&["in.tftpd"][..], &arguments].concat())
}

/// Reads a file and writes another.
fn transfer(switch: &Switch, from: &Host) {
    succeeds(switch, from, "tftp 10.1.1.2 -m binary -c get page got");
    equal(switch, "tftp/page", "got");
    file(switch, "put", 30_000);
    succeeds(switch, from, "tftp 10.1.1.2 -m binary -c put put");
    equal(switch, "tftp/put", "put");
}

#[test]
fn tftp_passes() {
    let Some((switch, a, b)) = pair() else { return };
    if without_tool(&["in.tftpd", "tftp"]) {
        return;
    }
    switch.flows("br0", &flows("", ""));
    let _server = tftpd(&switch, &b);
    transfer(&switch, &a);
    let requests = conns(&switch, &["udp,orig=(src=10.1.1.1,", "dport=69)", "helper=tftp"]);
    let data = conns(&switch, &["udp,orig=(src=10.1.1.2,dst=10.1.1.1,"]);
    assert_eq!((requests.len(), data.len()), (2, 2), "{:#?}", conns(&switch, &[]));
}

#[test]
fn tftp_passes_a_translated_source() {
    let Some((switch, a, b)) = pair() else { return };
    if without_tool(&["in.tftpd", "tftp"]) {
        return;
    }
    switch.flows("br0", &flows(",nat(src=10.1.1.240)", ",nat"));
    leads_to(&b, "10.1.1.240", &a);
    let _server = tftpd(&switch, &b);
    transfer(&switch, &a);
    let data = conns(&switch, &["udp,orig=(src=10.1.1.2,dst=10.1.1.240,", "reply=(src=10.1.1.1,"]);
    assert_eq!(data.len(), 2, "{:#?}", conns(&switch, &[]));
}

#[test]
fn without_a_helper_no_data_passes() {
    let Some((switch, a, b)) = pair() else { return };
    if without_tool(&["in.tftpd", "tftp"]) {
        return;
    }
    switch.flows("br0", &flows("", "").replace(",alg=tftp", ""));
    let _server = tftpd(&switch, &b);
    super::client(&switch, &a, "timeout 2 tftp 10.1.1.2 -m binary -c get page got");
    assert_eq!(std::fs::read(switch.sandbox().file("got")).unwrap_or_default(), b"");
    assert_eq!(conns(&switch, &["udp,orig=(src=10.1.1.2,"]), Vec::<String>::new());
}
