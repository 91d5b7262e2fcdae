// SPDX-License-Identifier: Apache-2.0
//! Access of other users to the daemon's files and sockets, the daemon's own privileges, and the
//! secrets that it must not log.

use slipswitch_tests::harness::{
    Kind, Mode, Options, Sandbox, Switch, daemon_program, free_port, skip, wait_until,
    without_privilege,
};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
/// `nobody` and `nogroup` of Debian.
const NOBODY: u32 = 65_534;

fn mode(path: &Path) -> u32 {
    let meta = std::fs::symlink_metadata(path);
    meta.unwrap_or_else(|e| panic!("{}: {e}", path.display())).mode() & 0o7777
}

/// A database server in `sandbox`, run by the shell that `with` starts.
fn database(sandbox: &Sandbox, arguments: &str) {
    let made = sandbox.sh(&format!("ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema && chown --reference=. conf.db .conf.db.~lock~ && ovsdb-server conf.db {arguments} --remote=punix:db.sock --pidfile --no-chdir --detach --log-file -vconsole:off && ovs-vsctl --no-wait init"));
    assert!(made.ok(), "{}", made.text());
}

const DETACHED: &str = "--pidfile --detach --no-chdir --log-file -vconsole:emer -vsyslog:off";

#[test]
fn other_users_have_no_access_whatever_the_umask() {
    let sandbox = Sandbox::new();
    database(&sandbox, "");
    let daemon = daemon_program();
    for (umask, file, socket) in [("000", 0o660, 0o770), ("022", 0o640, 0o750)] {
        let _ = std::fs::remove_file(sandbox.file("ovs-vswitchd.log"));
        let line = format!(
            "umask {umask}; exec {} --enable-dummy --disable-system {DETACHED}",
            daemon.display()
        );
        assert!(sandbox.sh(&line).ok());
        let pid = sandbox.read("ovs-vswitchd.pid").trim().to_owned();
        let made = sandbox.sh("ovs-vsctl --may-exist add-br br0 -- set bridge br0 datapath_type=dummy -- --may-exist add-port br0 p1 -- set interface p1 type=dummy options:tx_pcap=p1.pcap -- set-controller br0 punix:br0.passive");
        assert!(made.ok(), "{}", made.text());
        let passive = sandbox.file("br0.passive");
        assert!(wait_until(SOON, || passive.exists()), "{}", sandbox.read("ovs-vswitchd.log"));
        assert_eq!(mode(&sandbox.file("ovs-vswitchd.log")), file, "umask {umask}");
        assert_eq!(mode(&sandbox.file("p1.pcap")), file, "umask {umask}");
        assert_eq!(mode(&sandbox.file("ovs-vswitchd.pid")), 0o640, "umask {umask}");
        for name in [&format!("ovs-vswitchd.{pid}.ctl"), "br0.mgmt", "br0.snoop", "br0.passive"] {
            assert_eq!(mode(&sandbox.file(name)), socket, "{name}, umask {umask}");
        }
        if !without_privilege() {
            let stranger = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
            for tool in [
                &format!(
                    "ovs-appctl -t {}/ovs-vswitchd.{pid}.ctl version",
                    sandbox.dir().display()
                ),
                "ovs-ofctl show br0",
                "ovs-ofctl snoop br0",
            ] {
                let answer = sandbox.sh(&format!("{stranger} {tool}"));
                assert!(!answer.ok(), "{tool}");
                assert!(answer.text().contains("Permission denied"), "{}", answer.text());
            }
        }
        let _ = std::fs::remove_file(sandbox.file("p1.pcap"));
        assert!(sandbox.sh("ovs-appctl exit").ok());
        assert!(wait_until(SOON, || !sandbox.file("ovs-vswitchd.pid").exists()));
    }
}

#[test]
fn pins_are_roots_alone() {
    if without_privilege() {
        return;
    }
    let switch = Switch::start(Kind::Slipswitch, Mode::Real);
    switch.vsctl("add-br br0");
    let pins = switch.sandbox().pins();
    if !wait_until(Duration::from_secs(5), || pins.join("slots").exists()) {
        skip("BPF does not work here");
        return;
    }
    assert_eq!(mode(&pins) & 0o027, 0, "{:o}", mode(&pins));
    let mut count = 0;
    for entry in std::fs::read_dir(&pins).expect("it is there").flatten() {
        assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
        count += 1;
    }
    assert!(count > 3);
}

/// A line of `/proc/PID/status`.
fn status(pid: &str, name: &str) -> String {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = text.lines().find_map(|l| l.strip_prefix(name)).expect("a line of proc(5)");
    line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn another_user_can_run_a_switch_with_few_capabilities() {
    if without_privilege() {
        return;
    }
    let sandbox = Sandbox::new();
    chown(sandbox.dir(), Some(NOBODY), Some(NOBODY)).expect("we are root");
    database(&sandbox, "--user=nobody:nogroup");
    let daemon = daemon_program();
    let started = sandbox.sh(&format!(
        "exec unshare --net sh -c 'ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up; exec {} --user=nobody:nogroup --disable-system {DETACHED}'",
        daemon.display()
    ));
    assert!(started.ok(), "{}", started.text());
    let made = sandbox.sh("ovs-vsctl add-br br0 -- add-port br0 v0 && ovs-vsctl get interface v0 ofport error && ovs-vsctl get interface br0 error");
    assert!(made.ok(), "{}", made.text());
    let story = sandbox.read("ovs-vswitchd.log");
    let (port, internal) = made.stdout.split_at(made.stdout.len().min("1\n[]\n".len()));
    assert_eq!(port, "1\n[]\n", "{story}");
    // Where udev has not opened it to all, as it does, internal ports are root's.
    match mode(Path::new("/dev/net/tun")) & 0o006 {
        0o006 => assert_eq!(internal, "[]\n", "{story}"),
        _ => assert!(internal.contains("/dev/net/tun: Permission denied"), "{internal}"),
    }
    let pid = sandbox.read("ovs-vswitchd.pid").trim().to_owned();
    assert_eq!(status(&pid, "Uid"), "65534 65534 65534 65534");
    assert_eq!(status(&pid, "Gid"), "65534 65534 65534 65534");
    // NET_BIND_SERVICE, NET_ADMIN, NET_RAW, IPC_LOCK; PERFMON, BPF.
    let kept = format!("{:016x}", 0x7400u64 | 3 << 38);
    assert_eq!(status(&pid, "CapPrm"), kept);
    assert_eq!(status(&pid, "CapEff"), kept);
    assert_eq!(status(&pid, "CapInh"), format!("{:016x}", 0));
    assert_eq!(status(&pid, "CapAmb"), format!("{:016x}", 0));
    assert_eq!(status(&pid, "NoNewPrivs"), "1");
    for name in ["ovs-vswitchd.log", "ovs-vswitchd.pid", "br0.mgmt"] {
        let meta = std::fs::symlink_metadata(sandbox.file(name)).expect("it is there");
        assert_eq!((meta.uid(), meta.gid()), (NOBODY, NOBODY), "{name}");
    }
    assert!(sandbox.sh("ovs-appctl exit --cleanup").ok());
}

#[test]
fn a_log_file_that_its_directorys_owner_pointed_elsewhere_is_left_alone() {
    if without_privilege() {
        return;
    }
    let sandbox = Sandbox::new();
    let victim = sandbox.write("victim", "precious\n");
    let link = sandbox.file("ovs-vswitchd.log");
    std::os::unix::fs::symlink(&victim, &link).expect("it is not there yet");
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).expect("we are root");
    chown(sandbox.dir(), Some(NOBODY), Some(NOBODY)).expect("we are root");
    let line =
        format!("{} --user=nobody:nogroup --enable-dummy {DETACHED}", daemon_program().display());
    assert!(!sandbox.sh(&line).ok(), "it cannot open the log");
    assert_eq!(sandbox.read("victim"), "precious\n");
    assert_eq!(std::fs::metadata(&victim).expect("it is there").uid(), 0);
}

#[test]
fn the_database_cannot_put_a_socket_in_the_place_of_a_file() {
    for arguments in [vec![], vec!["--no-self-confinement".to_owned()]] {
        let confined = arguments.is_empty();
        let switch =
            Switch::with(Options { arguments, ..Options::new(Kind::Slipswitch, Mode::Dummy) });
        switch.dummy_bridge(1);
        let precious = switch.sandbox().write("br0.precious", "precious");
        let socket = switch.sandbox().file("elsewhere.sock");
        switch.vsctl(
            "set-controller br0 punix:br0.precious punix:$OVS_RUNDIR/elsewhere.sock unix:../nobody",
        );
        let says = |text: &str| wait_until(SOON, || switch.log().contains(text));
        assert!(says("punix:"), "{}", switch.log());
        assert_eq!(std::fs::read(&precious).unwrap_or_default(), b"precious");
        // Everything that a change of the database asks for is done when ovs-vsctl returns.
        assert_eq!(socket.exists(), !confined, "{}", switch.log());
        let refused = switch.log().contains("not connecting to \"unix:../nobody\"");
        assert_eq!(refused, confined, "{}", switch.log());
    }
}

/// Makes a CA, and a certificate that it signed for `key.pem`.
fn certificates(switch: &Switch) {
    switch.run("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem 2>&1 && openssl req -newkey rsa:2048 -nodes -subj /CN=switch -keyout key.pem -out cert.csr 2>&1 && echo basicConstraints=CA:FALSE > v3.ext && openssl x509 -req -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out cert.pem -extfile v3.ext 2>&1");
}

#[test]
fn tls_uses_what_the_options_allow() {
    let options = "--private-key=key.pem --certificate=cert.pem --ca-cert=ca.pem --peer-ca-cert=ca.pem --ssl-protocols=TLSv1.1,TLSv1.2 --ssl-ciphers=AES128+aRSA:!aNULL";
    let switch = Switch::with(Options {
        arguments: options.split(' ').map(str::to_owned).collect(),
        ..Options::new(Kind::Slipswitch, Mode::Dummy)
    });
    switch.dummy_bridge(1);
    certificates(&switch);
    let told: Vec<String> = switch.warnings();
    assert!(told.iter().any(|l| l.contains("TLSv1.1 will not be spoken")), "{told:?}");
    let port = free_port();
    let client = |more: &str| {
        switch.sh(&format!("openssl s_client -connect 127.0.0.1:{port} -cert cert.pem -key key.pem -CAfile ca.pem -verify_return_error -showcerts {more}"))
    };
    // The files of the command line, then those of the database: the rules hold for both.
    for files in ["", "set-ssl $PWD/key.pem $PWD/cert.pem $PWD/ca.pem --"] {
        switch.vsctl(&format!("{files} set-controller br0 pssl:{port}:127.0.0.1"));
        let mut answer = client("");
        assert!(
            wait_until(SOON, || {
                answer = client("");
                answer.ok()
            }),
            "{}\n{}",
            answer.text(),
            switch.story()
        );
        let text = answer.stdout;
        assert!(text.contains("Cipher is ECDHE-RSA-AES128-GCM-SHA256"), "{text}");
        assert!(text.contains("New, TLSv1.2"), "{text}");
        assert_eq!(text.matches("BEGIN CERTIFICATE").count(), 2, "with its CA's: {text}");
        for refused in ["-tls1_3", "-cipher ECDHE-RSA-AES256-GCM-SHA384", "-tls1_1"] {
            assert!(!client(refused).ok(), "{refused}");
        }
        switch.vsctl("del-controller br0");
    }
}

#[test]
fn secrets_are_not_logged() {
    const SECRET: &str = "xyzzy-plugh";
    let switch = Switch::dummy(1);
    switch.appctl("vlog/set ANY:file:dbg");
    switch.appctl("vlog/disable-rate-limit");
    certificates(&switch);
    switch.vsctl(&format!(
        "set interface p1 options:psk={SECRET} external_ids:secret={SECRET} other_config:secret={SECRET} \
         -- add-port br0 t1 -- set interface t1 type=ipsec_gre options:psk={SECRET} options:remote_ip=10.0.0.1 \
         -- add-port br0 t2 -- set interface t2 type=gre options:psk={SECRET} options:remote_ip={SECRET} \
         -- set bridge br0 external_ids:secret={SECRET} other_config:secret={SECRET} \
         -- set open_vswitch . external_ids:secret={SECRET} other_config:secret={SECRET}"
    ));
    // A key that is damaged, with the secret in it, then one that is whole.
    let key = switch.sandbox().write("damaged.pem", format!("-----BEGIN {SECRET}"));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("ours");
    switch.vsctl(
        "set-ssl $PWD/damaged.pem $PWD/cert.pem $PWD/ca.pem -- set-controller br0 ssl:127.0.0.1:1",
    );
    let says = |text: &str| wait_until(SOON, || switch.log().contains(text));
    assert!(says("damaged.pem: holds a private key that is damaged"), "{}", switch.log());
    switch.vsctl("set-ssl $PWD/key.pem $PWD/cert.pem $PWD/ca.pem");
    assert!(says("ssl:127.0.0.1:1: connecting"), "{}", switch.log());
    let log = switch.log();
    assert!(log.contains("|DBG|"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
    let key = switch.sandbox().read("key.pem");
    let body = key.lines().nth(1).expect("the key's first line");
    assert!(!log.contains(body));
    // The log names each key that others can read, once.
    let open = |l: &&str| l.contains("all users of this host have access to the private key");
    let told: Vec<&str> = log.lines().filter(open).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("damaged.pem"), "{told:?}");
}

#[test]
fn peers_beyond_the_limit_wait_and_hold_up_no_other_socket() {
    const MAX_PEERS: usize = 256; // of crates/slipswitchd/src/openflow/listen.rs
    let switch = Switch::dummy(1);
    switch.vsctl("set-controller br0 punix:br0.passive");
    let socket = switch.sandbox().file("br0.passive");
    assert!(wait_until(SOON, || socket.exists()), "{}", switch.story());
    let connect = || {
        let peer = UnixStream::connect(&socket).expect("the bridge listens");
        peer.set_read_timeout(Some(Duration::from_millis(500))).expect("not zero");
        peer
    };
    // Each peer that is served gets the switch's hello.
    let greeted = |mut peer: &UnixStream| peer.read_exact(&mut [0; 8]).is_ok();
    let mut peers: Vec<UnixStream> = (0..MAX_PEERS).map(|_| connect()).collect();
    assert!(peers.iter().all(greeted));
    let late = connect();
    assert!(!greeted(&late), "a peer too many was served");
    switch.ofctl("show br0");
    peers.pop();
    assert!(wait_until(SOON, || greeted(&late)), "{}", switch.story());
}
