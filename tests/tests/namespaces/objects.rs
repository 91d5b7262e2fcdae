// SPDX-License-Identifier: Apache-2.0
//! Programs of users' own in place of ours (`options:bpf-object`).

use crate::tools::{SOON, sees, tcp, warm};
use crate::xdp::prepared;
use slipswitch_tests::harness::{Switch, wait_until, without_tool};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says that it can do something, and reads beyond the packet.
const BROKEN: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "capabilities.h"
CAPABILITIES(1u << W_PORT | 1u << W_RECIRC, 1u << OP_OUTPUT);
SEC("xdp") int broken(struct xdp_md *ctx) { return *(volatile char *)(long)ctx->data; }
char _license[] SEC("license") = "GPL";
"#;

/// Compiles an object as `docs/user-programs.md` says.
fn compile(switch: &Switch, name: &str, source: &Path) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/datapath-bpf");
    let object = switch.sandbox().file(name);
    let headers = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let done = Command::new("clang")
        .args([
            "-O2",
            "-g",
            "-target",
            "bpf",
            "-mcpu=v3",
            "-I",
            "bpf",
            "-idirafter",
            &headers,
            "-c",
        ])
        .arg(source)
        .arg("-o")
        .arg(&object)
        .current_dir(directory)
        .output()
        .expect("clang runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    object
}

#[test]
fn a_broken_object_leaves_its_port_at_the_skb_hook_and_the_example_takes_it_to_xdp() {
    if without_tool(&["clang"]) {
        return;
    }
    let Some((switch, a, b, _processes)) = prepared() else { return };
    let source = switch.sandbox().write("broken.bpf.c", BROKEN);
    let broken = compile(&switch, "broken.bpf.o", &source);
    let tiers = || switch.appctl("slipswitch/tiers h1");
    let use_object = |object: &Path| {
        let object = object.display();
        switch.vsctl(&format!("set interface h1 options:bpf-object={object}"));
    };
    use_object(&broken);
    let refused = wait_until(SOON, || tiers().contains("xdp        no   user-object"));
    assert!(refused, "{}", tiers());
    assert!(tiers().contains("offset is outside of the packet"), "{}", tiers());
    assert!(tiers().contains("tcx        yes"), "{}", tiers());
    assert!(switch.log().contains("invalid access to packet"), "{}", switch.log());
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "dp:tcx", "reason:user-object"]);
    tcp(&a, &b, 2_000_000);
    // The example of the documentation, by the command that stands there.
    use_object(&compile(&switch, "example.bpf.o", Path::new("examples/l2-ipv4.bpf.c")));
    assert!(wait_until(SOON, || tiers().contains("xdp        yes")), "{}", tiers());
    warm(&a, "10.0.0.2");
    sees(&switch, &["in_port(h1)", "eth_type(0x0800)", "offloaded:yes, dp:xdp"]);
    tcp(&a, &b, 2_000_000);
    tcp(&b, &a, 2_000_000);
    switch.vsctl("remove interface h1 options bpf-object");
    let gone = wait_until(SOON, || tiers().contains("xdp        no   device-kind"));
    assert!(gone, "{}", tiers());
    assert_eq!(a.ping("10.0.0.2", 20), 20);
}
