// SPDX-License-Identifier: Apache-2.0
//! FTP, whose data connections the helper announces: `vsftpd` and `lftp` of Debian.

use super::{Stopped, conns, equal, file, leads_to, pair, pair_of, server, succeeds};
use crate::tools::{SOON, Stream};
use crate::xdp;
use slipswitch_tests::harness::{Host, Kind, Process, Switch, patient, wait_until, without_tool};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The end that opens data connections.
#[derive(Clone, Copy, PartialEq)]
enum Data {
    /// The server to the client (PORT, EPRT).
    Active,
    /// The client to the server (PASV, EPSV).
    Passive,
}

/// Flows that let control connections of `family` out, and what a control connection announced. Both are
/// translated as `control` and `data` say.
fn flows(family: &str, control: &str, data: &str) -> String {
    let text = format!(
        "table=0,priority=10,arp,actions=NORMAL
         table=0,priority=10,icmp6,icmp_type=135,actions=NORMAL
         table=0,priority=10,icmp6,icmp_type=136,actions=NORMAL
         table=0,priority=5,tcp,actions=ct(zone=1,nat,table=1)
         table=1,priority=30,in_port=h1,tcp,tp_dst=21,ct_state=+trk+new-rel,actions=ct(commit,zone=1,alg=ftp{control}),h2
         table=1,priority=30,in_port=h1,tcp,ct_state=+trk+new+rel,actions=ct(commit,zone=1{data}),h2
         table=1,priority=30,in_port=h2,tcp,ct_state=+trk+new+rel,actions=ct(commit,zone=1{data}),h1
         table=1,priority=20,in_port=h1,tcp,ct_state=+trk+est-inv,actions=h2
         table=1,priority=20,in_port=h2,tcp,ct_state=+trk+est-inv,actions=h1"
    );
    text.replace(",tcp,", &format!(",{family},"))
}

/// Starts the server at a host. Its files are those of the switch's directory.
fn vsftpd(switch: &Switch, host: &Host) -> Process {
    let dir = switch.sandbox().dir().display().to_string();
    std::fs::create_dir_all(switch.sandbox().file("empty")).expect("the directory is ours");
    std::fs::create_dir_all(switch.sandbox().file("ftp")).expect("the directory is ours");
    file(switch, "ftp/page", 300_000);
    let family = if host.address().contains(':') { "listen_ipv6" } else { "listen" };
    let settings = format!(
        "{family}=YES\nbackground=NO\nanonymous_enable=YES\nlocal_enable=NO\nanon_root={dir}/ftp\n\
         no_anon_password=YES\nsecure_chroot_dir={dir}/empty\nconnect_from_port_20=YES\n\
         seccomp_sandbox=NO\nxferlog_enable=NO\nlisten_address{}={}\n",
        if family == "listen" { "" } else { "6" },
        host.address(),
    );
    let path = switch.sandbox().write("vsftpd.conf", settings);
    server(switch, host, "tcp", 21, &["vsftpd", path.to_str().expect("text")])
}

/// Gets a file from `server` and lists the directory, over data connections of that kind.
fn transfer(switch: &Switch, from: &Host, server: &str, data: Data) {
    let passive = match data {
        Data::Active => "off",
        Data::Passive => "on",
    };
    let _ = std::fs::remove_file(switch.sandbox().file("got"));
    let line = format!(
        "env HOME=. lftp -c 'set ftp:passive-mode {passive}; set ftp:ssl-allow no; \
         set ftp:prefer-epsv {{prefer}}; set net:timeout 10; set net:max-retries 1; \
         set ftp:use-feat no; open ftp://{server}/; ls; get page -o got'"
    );
    for prefer in ["no", "yes"] {
        let listing = succeeds(switch, from, &line.replace("{prefer}", prefer));
        assert!(listing.contains("page"), "{listing}");
        equal(switch, "ftp/page", "got");
        std::fs::remove_file(switch.sandbox().file("got")).expect("it was got");
    }
}

fn is_impossible() -> bool {
    without_tool(&["vsftpd", "lftp"])
}

/// Checks the connections after [`transfer`]: control connections with their helper, and data
/// connections in the direction of `data`.
#[track_caller]
fn check(switch: &Switch, data: Data) {
    let control = || conns(switch, &["tcp,orig=(src=10.1.1.1,", "dport=21)", "helper=ftp"]).len();
    assert!(wait_until(SOON, || control() == 2), "{:#?}", conns(switch, &[]));
    let to_server = conns(switch, &["tcp,orig=(src=10.1.1.1,"]).len() - control();
    let to_client = conns(switch, &["tcp,orig=(src=10.1.1.2,"]).len();
    let expected = if data == Data::Active { (0, 4) } else { (4, 0) };
    assert_eq!((to_server, to_client), expected, "{:#?}", conns(switch, &[]));
}

#[test]
fn active_ftp_passes() {
    let Some((switch, a, b)) = pair().filter(|_| !is_impossible()) else { return };
    switch.flows("br0", &flows("tcp", "", ""));
    let _server = vsftpd(&switch, &b);
    transfer(&switch, &a, "10.1.1.2", Data::Active);
    check(&switch, Data::Active);
}

#[test]
fn passive_ftp_passes() {
    let Some((switch, a, b)) = pair().filter(|_| !is_impossible()) else { return };
    switch.flows("br0", &flows("tcp", "", ""));
    let _server = vsftpd(&switch, &b);
    transfer(&switch, &a, "10.1.1.2", Data::Passive);
    check(&switch, Data::Passive);
}

/// Without the helper no data connection is related, so none passes.
#[test]
fn without_a_helper_no_data_passes() {
    let Some((switch, a, b)) = pair().filter(|_| !is_impossible()) else { return };
    switch.flows("br0", &flows("tcp", "", "").replace(",alg=ftp", ""));
    let _server = vsftpd(&switch, &b);
    for mode in ["on", "off"] {
        let line = format!(
            "lftp -c 'set ftp:passive-mode {mode}; set ftp:ssl-allow no; set net:timeout 1; \
             set net:max-retries 1; open ftp://10.1.1.2/; get page -o got'"
        );
        let output = super::client(&switch, &a, &format!("timeout 4 env HOME=. {line}"));
        assert!(!output.ok(), "{}", output.text());
        assert_eq!(std::fs::read(switch.sandbox().file("got")).unwrap_or_default(), b"");
    }
    assert!(!conns(&switch, &["dport=21)"]).is_empty());
    assert_eq!(conns(&switch, &["helper="]), Vec::<String>::new());
}

/// The address in PORT is translated, so the command's length changes, and with it all later
/// sequence numbers.
#[test]
fn active_ftp_passes_a_translated_source() {
    for address in ["10.1.1.9", "10.1.1.240"] {
        let Some((switch, a, b)) = pair().filter(|_| !is_impossible()) else { return };
        switch.flows("br0", &flows("tcp", &format!(",nat(src={address})"), ",nat"));
        leads_to(&b, address, &a);
        let _server = vsftpd(&switch, &b);
        transfer(&switch, &a, "10.1.1.2", Data::Active);
        let data = format!("tcp,orig=(src=10.1.1.2,dst={address},");
        assert_eq!(
            conns(&switch, &[&data, "reply=(src=10.1.1.1,dst=10.1.1.2,"]).len(),
            4,
            "{:#?}",
            conns(&switch, &[])
        );
        assert_eq!(
            conns(&switch, &["dport=21)", &format!(",dst={address},"), "helper=ftp"]).len(),
            2
        );
    }
}

#[test]
fn passive_ftp_passes_a_translated_source() {
    let Some((switch, a, b)) = pair().filter(|_| !is_impossible()) else { return };
    let nat = ",nat(src=10.1.1.240)";
    switch.flows("br0", &flows("tcp", nat, nat));
    leads_to(&b, "10.1.1.240", &a);
    let _server = vsftpd(&switch, &b);
    transfer(&switch, &a, "10.1.1.2", Data::Passive);
    let data = conns(
        &switch,
        &["tcp,orig=(src=10.1.1.1,dst=10.1.1.2,", "reply=(src=10.1.1.2,dst=10.1.1.240,"],
    );
    assert_eq!(data.len(), 6, "{:#?}", conns(&switch, &[]));
}

/// The address in the server's reply to PASV is translated.
#[test]
fn passive_ftp_passes_a_translated_destination() {
    let Some((switch, a, b)) = pair().filter(|_| !is_impossible()) else { return };
    if Kind::under_test() == Kind::RealOvs {
        return slipswitch_tests::harness::skip(
            "Open vSwitch's userspace tracker does not translate it",
        );
    }
    switch.flows("br0", &flows("tcp", ",nat(dst=10.1.1.2)", ",nat"));
    leads_to(&a, "10.1.1.64", &b);
    let _server = vsftpd(&switch, &b);
    transfer(&switch, &a, "10.1.1.64", Data::Passive);
    let data = conns(
        &switch,
        &["tcp,orig=(src=10.1.1.1,dst=10.1.1.64,", "reply=(src=10.1.1.2,dst=10.1.1.1,"],
    );
    assert_eq!(data.len(), 6, "{:#?}", conns(&switch, &[]));
}

#[test]
fn ftp_passes_over_ipv6() {
    if is_impossible() {
        return;
    }
    for data in [Data::Active, Data::Passive] {
        let Some((switch, a, b)) = pair_of("fc00::1/96", "fc00::2/96") else { return };
        switch.flows("br0", &flows("tcp6", "", ""));
        let _server = vsftpd(&switch, &b);
        transfer(&switch, &a, "[fc00::2]", data);
        assert_eq!(conns(&switch, &["tcp,orig=(src=fc00::1,", "dport=21)", "helper=ftp"]).len(), 2);
        let from_server = conns(&switch, &["tcp,orig=(src=fc00::2,"]).len();
        assert_eq!(
            from_server,
            if data == Data::Active { 4 } else { 0 },
            "{:#?}",
            conns(&switch, &[])
        );
    }
}

/// Both hosts at XDP, which leaves control connections and new ones to tcx and the daemon.
#[test]
fn ftp_passes_a_translated_source_at_xdp() {
    if is_impossible() || Kind::under_test() == Kind::RealOvs {
        return;
    }
    for data in [Data::Active, Data::Passive] {
        let Some((switch, a, b)) = pair() else { return };
        let _held = xdp::prepare(&switch, &[&a, &b], &["h1", "h2"]);
        let nat = ",nat(src=10.1.1.240)";
        let of_data = if data == Data::Active { ",nat" } else { nat };
        switch.flows("br0", &flows("tcp", nat, of_data));
        leads_to(&b, "10.1.1.240", &a);
        let _server = vsftpd(&switch, &b);
        transfer(&switch, &a, "10.1.1.2", data);
        let there = crate::tools::packets(&switch, &["ct_state(", "eth_type(0x0800)", "dp:xdp"]);
        assert!(there > 0, "{}", crate::tools::megaflows(&switch, &[]).join("\n"));
        let translated = ["reply=(src=10.1.1.2,dst=10.1.1.240,", "reply=(src=10.1.1.1,"];
        let lines: usize = translated.iter().map(|part| conns(&switch, &[part]).len()).sum();
        assert_eq!(lines, 6, "{:#?}", conns(&switch, &[]));
    }
}

/// A control connection, whose ends this test is.
struct Control {
    client: TcpStream,
    server: TcpStream,
}

impl Control {
    fn new(a: &Host, b: &Host) -> Control {
        let listener = b.netns.with(|| TcpListener::bind("10.1.1.2:21").expect("its address"));
        let client = a.netns.with(|| TcpStream::connect("10.1.1.2:21").expect("it connects"));
        let (server, _) = listener.accept().expect("someone connects");
        Control { client, server }
    }

    /// Sends a line from the server, and returns whether it arrives within `wait`.
    fn says(&mut self, line: &str, wait: Duration) -> bool {
        self.server.write_all(line.as_bytes()).expect("the connection lives");
        self.arrives(line, wait)
    }

    fn arrives(&mut self, line: &str, wait: Duration) -> bool {
        self.client.set_read_timeout(Some(wait)).expect("not zero");
        let mut got = vec![0; line.len()];
        self.client.read_exact(&mut got).is_ok_and(|()| got == line.as_bytes())
    }
}

/// Only the control connection needs the daemon. An expected connection is listed until it begins.
#[test]
fn data_connections_need_no_daemon() {
    let Some((switch, a, b)) = pair() else { return };
    if Kind::under_test() == Kind::RealOvs {
        return;
    }
    switch.flows("br0", &flows("tcp", "", ""));
    let mut control = Control::new(&a, &b);
    let expected = || switch.appctl("dpctl/dump-conntrack-exp");
    assert_eq!(expected(), "");
    let reply = "227 Entering Passive Mode (10,1,1,2,27,88).\r\n";
    assert!(control.says(reply, patient(SOON)), "{}", switch.story());
    let line = "tcp,orig=(src=10.1.1.1,dst=10.1.1.2,sport=0,dport=7000),zone=1,";
    assert!(expected().starts_with(line), "{}", expected());
    assert_eq!(switch.appctl("dpctl/dump-conntrack-exp zone=2"), "");
    let mut data = Stream::new(&a, &b, "10.1.1.2:7000", "10.1.1.2:7000");
    data.write(200_000);
    let stopped = Stopped::new(&switch);
    data.write(5_000_000);
    let goodbye = "226 Transfer complete.\r\n";
    assert!(!control.says(goodbye, Duration::from_millis(300)), "a helper reads all of control");
    assert_eq!(data.finish(), 5_200_000);
    drop(stopped);
    assert!(control.arrives(goodbye, patient(SOON)), "{}", switch.story());
    assert_eq!(conns(&switch, &["tcp,orig=(src=10.1.1.1,", "dport=7000)"]).len(), 1);
}
