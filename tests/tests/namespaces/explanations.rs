// SPDX-License-Identifier: Apache-2.0
//! `slipswitch doctor` and `slipswitch explain`.

use crate::tools::{SOON, pair, warm};
use packet::build::Frame;
use slipswitch_tests::harness::{Switch, skip, tool_program, wait_until};
use std::time::Duration;

/// Runs the tool in the switch's namespace.
#[track_caller]
fn slipswitch(switch: &Switch, arguments: &str) -> String {
    let tool = tool_program();
    let line = format!("{} {arguments}", tool.display());
    let output = switch.sh_limited(&line, Duration::from_secs(20));
    assert!(output.ok(), "{line}: {}", output.text());
    output.stdout
}

#[test]
fn the_doctor_says_which_tiers_there_are_and_why_not_others() {
    let Some((switch, _a, _b)) = pair() else { return };
    switch.netns().sh("ip link add spare type veth peer name other");
    let table = slipswitch(&switch, "doctor");
    let line = |name: &str| table.lines().find(|l| l.starts_with(name)).unwrap_or_default();
    assert!(line("h1 ").contains("tcx      tcx, userspace  xdp: device-kind"), "{table}");
    assert!(line("spare ").contains("no port  tcx, userspace  xdp: device-kind"), "{table}");
    assert!(!table.contains("compiler"), "{table}");
    let json = slipswitch(&switch, "doctor --json h1");
    assert!(json.contains(r#""tier": "tcx""#) && json.contains(r#""bpf_compiler": ""#), "{json}");
    // Where /proc/sys is hidden, the doctor reports only that, and only with -v.
    let hidden = |options: &str| {
        let line = format!(
            "unshare --mount sh -c 'mount -t tmpfs none /proc/sys && {} doctor {options} h1'",
            tool_program().display()
        );
        let output = switch.sh_limited(&line, Duration::from_secs(20));
        assert!(output.ok(), "{}", output.text());
        output.stdout
    };
    assert!(!hidden("").contains("cannot be read"));
    let all = hidden("-v");
    let why =
        "BPF compiler      unknown (/proc/sys/net/core/bpf_jit_enable cannot be read: No such file";
    assert!(all.contains(why) && !all.contains("kernel            \n"), "{all}");
    let text = slipswitch(&switch, "doctor -v");
    for part in ["kernel ", "BPF compiler", "objects are pinned", "daemon            runs"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    // A device that the switch made for itself cannot become a port.
    assert!(switch.netns().sh("ip -brief link").contains("slipmiss") && !text.contains("slipmiss"));
    let of = |name: &str| -> String {
        let block = text.split("\n\n").find(|b| b.starts_with(name));
        block.unwrap_or_else(|| panic!("no {name} in\n{text}")).to_owned()
    };
    let h1 = of("h1 ");
    assert!(h1.contains("a port of the running switch"), "{h1}");
    assert!(h1.contains("tcx        yes"), "{h1}");
    assert!(h1.contains("xdp        no   device-kind"), "{h1}");
    let spare = of("spare");
    assert!(spare.contains("tcx        yes"), "{spare}");
    assert!(spare.contains("xdp        no   device-kind"), "{spare}");
    let asked = slipswitch(&switch, "doctor -v --tier xdp spare");
    assert!(asked.contains("ethtool -K") || asked.contains("xdp        yes"), "{asked}");
    // A program of one's own: of a port, of a row that waits for its device, and of none.
    let refused = slipswitch(&switch, "doctor -v --object /no/such.o spare");
    for part in ["options:bpf-object is /no/such.o", "cannot be used", "No such file"] {
        assert!(refused.contains(part), "no {part:?} in\n{refused}");
    }
    switch.vsctl("set interface h1 options:bpf-object=/no/such.o");
    let of_port = slipswitch(&switch, "doctor -v h1");
    assert!(of_port.contains("options:bpf-object is /no/such.o"), "{of_port}");
    switch.appctl("exit");
    let of_row = slipswitch(&switch, "doctor -v h1");
    assert!(!of_row.contains("a port of the running switch"), "{of_row}");
    assert!(of_row.contains("options:bpf-object is /no/such.o"), "{of_row}");
    switch.vsctl("--no-wait set open_vswitch . other_config:bpf-offload=false");
    let off = slipswitch(&switch, "doctor -v spare");
    for tier in ["xdp        no   tier-disabled", "tcx        no   tier-disabled"] {
        assert!(off.contains(tier), "no {tier:?} in\n{off}");
    }
    let missing = switch.sh_limited(
        &format!("{} doctor nosuch", tool_program().display()),
        Duration::from_secs(20),
    );
    assert!(!missing.ok() && missing.text().contains("nosuch"), "{}", missing.text());
}

#[test]
fn ports_of_the_switch_have_no_agent_for_filters() {
    let Some((switch, _a, _b)) = pair() else { return };
    // Also one with a directory of its own asks the switch, as systemd's agents do.
    let own = switch.sandbox().dir().join("agent");
    for directory in [String::new(), format!("--dir {} ", own.display())] {
        let line = format!("{} {directory}xdp-flow h1", tool_program().display());
        let refused = switch.sh_limited(&line, Duration::from_secs(20));
        let text = refused.text();
        assert!(!refused.ok() && text.contains("h1 is a port of the switch"), "{text}");
    }
}

#[test]
fn the_doctor_has_a_reason_for_each_kind_of_device() {
    let Some((switch, _a, _b)) = pair() else { return };
    switch.vsctl(
        "add-port br0 in0 -- set interface in0 type=internal \
         -- add-port br0 tap0 -- set interface tap0 type=tap",
    );
    // None whose module makes devices in the host's namespace when it is loaded.
    let kinds = [
        ("bridge", "ip link add new type bridge"),
        ("vlan", "ip link add link h1 name new type vlan id 7"),
        ("macvlan", "ip link add link h1 name new type macvlan"),
        ("tun", "ip tuntap add new mode tap"),
    ];
    let mut seen = 0;
    for (kind, made) in kinds {
        if !switch.netns().run(made).ok() {
            skip(&format!("this kernel has no {kind} devices"));
            continue;
        }
        seen += 1;
        let text = slipswitch(&switch, "doctor -v new");
        assert!(text.contains("tcx        yes"), "{kind}: {text}");
        let why = format!(
            "xdp        no   device-kind (XDP is for network cards; this is a {kind} device)"
        );
        assert!(text.contains(&why), "{kind}: {text}");
        switch.netns().sh("ip link del new");
    }
    assert!(seen >= 2, "{seen} kinds");
    // Ports that are the host's.
    for port in ["br0", "in0", "tap0"] {
        let text = slipswitch(&switch, &format!("doctor -v {port}"));
        assert!(text.contains("tcx        yes"), "{port}: {text}");
        assert!(text.contains("xdp        no   device-kind"), "{port}: {text}");
        assert!(text.contains("userspace  yes"), "{port}: {text}");
    }
}

#[test]
fn explain_goes_from_the_rule_to_the_tier() {
    let Some((switch, a, _b)) = pair() else { return };
    // On a slow machine some time passes between a packet and the last explanation.
    switch.vsctl("set open_vswitch . other_config:max-idle=300000");
    switch.flows(
        "br0",
        "priority=20,ip,nw_dst=10.0.0.2,actions=h2
         priority=10,icmp,in_port=h2,actions=controller,h1
         priority=1,actions=NORMAL",
    );
    warm(&a, "10.0.0.2");
    let explain = |flow: &str| slipswitch(&switch, &format!("explain --bridge br0 {flow}"));
    let mut text = String::new();
    let runs = wait_until(SOON, || {
        text = explain("in_port=h1,icmp,nw_src=10.0.0.1,nw_dst=10.0.0.2");
        text.contains("offloaded:yes, dp:tcx")
    });
    assert!(runs, "{text}");
    assert!(text.contains("Datapath actions: h2"), "{text}");
    let account = text.split("the reason for each:").nth(1).expect("a chapter on the mask");
    let fields = account.split("0. ip,nw_dst=10.0.0.2, priority 20").next().expect("the rule");
    assert!(fields.contains("nw_dst=10.0.0.2"), "{text}");
    assert!(text.contains("tcx        yes"), "{text}");
    // Of a packet, too.
    let frame = Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 64)
        .icmp(8, 0, 1)
        .finish();
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let of_packet = explain(&format!("in_port=h1 {hex}"));
    assert!(of_packet.contains("0. ip,nw_dst=10.0.0.2, priority 20"), "{of_packet}");
    assert!(of_packet.contains("offloaded:yes, dp:tcx"), "{of_packet}");
    // A flow that needs the daemon says so, also before there is such a megaflow.
    let up = explain("in_port=h2,icmp,nw_src=10.0.0.2,nw_dst=10.0.0.77");
    assert!(up.contains("needs-userspace"), "{up}");
}
