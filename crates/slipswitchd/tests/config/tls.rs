// SPDX-License-Identifier: Apache-2.0
//! OpenFlow over TLS, with certificates that openssl(1) makes.

use crate::rig::{Rig, until, words};
use std::net::TcpListener;
use std::process::Command;

/// Makes a CA and a certificate that it signed; their files are in the rig's directory.
fn certificates(rig: &Rig) {
    let openssl = |args: &str| {
        let out = Command::new("openssl").current_dir(rig.path("")).args(args.split(' ')).output();
        let out = out.expect("openssl (package openssl) runs");
        assert!(out.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let key = "-newkey rsa:2048 -nodes -days 2";
    openssl(&format!("req -x509 {key} -subj /CN=ca -keyout ca.key -out ca.pem"));
    openssl("req -newkey rsa:2048 -nodes -subj /CN=switch -keyout key.pem -out cert.csr");
    std::fs::write(rig.path("v3.ext"), "basicConstraints=CA:FALSE\n").expect("a file");
    openssl(
        "x509 -req -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out cert.pem -extfile v3.ext",
    );
    openssl(&format!("req -x509 {key} -subj /CN=other -keyout other.key -out other.pem"));
}

#[test]
fn peers_are_authenticated_both_ways() {
    let rig = Rig::ours();
    certificates(&rig);
    let free = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port()
    };
    let (passive, active) = (free(), free());
    let file = |name: &str| rig.path(name).display().to_string();
    rig.vsctl_ok(&words("add-br br0 -- set-fail-mode br0 secure"));
    // Without files there is no TLS listener. The log reports that, and the files repair it.
    let target = format!("pssl:{passive}:127.0.0.1");
    rig.vsctl_ok(&["set-controller", "br0", &target]);
    assert!(rig.log().contains("private key and certificate are not configured"), "{}", rig.log());
    rig.vsctl_ok(&["set-ssl", &file("key.pem"), &file("cert.pem"), &file("ca.pem")]);
    let ofctl = |key: &str, certificate: &str| {
        let files = [
            format!("--private-key={}", file(key)),
            format!("--certificate={}", file(certificate)),
            format!("--ca-cert={}", file("ca.pem")),
        ];
        rig.ofctl(&[
            &files[0],
            &files[1],
            &files[2],
            "dump-flows",
            &format!("ssl:127.0.0.1:{passive}"),
        ])
    };
    let good = ofctl("key.pem", "cert.pem");
    assert!(good.status.success(), "{}\n{}", String::from_utf8_lossy(&good.stderr), rig.log());
    assert!(!ofctl("other.key", "other.pem").status.success(), "a stranger was let in");

    // To a controller, whose CA is taken from the first connection.
    let adopted = file("adopted.pem");
    rig.vsctl_ok(&[
        "del-ssl",
        "--",
        "--bootstrap",
        "set-ssl",
        &file("key.pem"),
        &file("cert.pem"),
        &adopted,
    ]);
    std::fs::write(
        rig.path("chain.pem"),
        [std::fs::read(rig.path("cert.pem")), std::fs::read(rig.path("ca.pem"))]
            .map(|f| f.expect("a file"))
            .concat(),
    )
    .expect("a file");
    let controller = rig.spawn(
        "ovs-testcontroller",
        &[
            &format!("--private-key={}", file("key.pem")),
            &format!("--certificate={}", file("cert.pem")),
            &format!("--ca-cert={}", file("ca.pem")),
            &format!("--peer-ca-cert={}", file("ca.pem")),
            &format!("pssl:{active}:127.0.0.1"),
        ],
    );
    rig.vsctl_ok(&["set-controller", "br0", &format!("ssl:127.0.0.1:{active}")]);
    until("the CA was taken over and the controller is connected", || {
        rig.vsctl_ok(&["--bare", "--columns=is_connected", "list", "controller"]) == "true"
    });
    assert!(rig.path("adopted.pem").exists());
    drop(controller);
}
