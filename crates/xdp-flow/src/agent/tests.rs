// SPDX-License-Identifier: Apache-2.0
use super::*;
use libbpf_rs::ObjectBuilder;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use testing::wait_until;

fn link(name: &str) -> Link {
    Link { name: name.into(), hardware: ARPHRD_ETHER, mtu: 1500, ..Link::default() }
}

fn nic() -> XdpFacts {
    XdpFacts {
        driver: "i40e".into(),
        has_egress_filter: Some(false),
        qdisc: Some("mq".into()),
        ..XdpFacts::default()
    }
}

#[test]
fn a_network_card_is_a_target_of_redirects() {
    assert_eq!(longest(&link("eth0"), &nic(), XdpMode::Driver, true), Ok(1518));
    let fails = |link: Link, facts: XdpFacts, mode: XdpMode, words: &str| {
        let error = longest(&link, &facts, mode, true).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    for mode in [XdpMode::Driver, XdpMode::Generic] {
        let filtered = XdpFacts { has_egress_filter: Some(true), ..nic() };
        fails(link("eth0"), filtered, mode, "has filters");
        let hidden = XdpFacts { has_egress_filter: None, ..nic() };
        fails(link("eth0"), hidden, mode, "cannot be read");
        let shaped = XdpFacts { qdisc: Some("tbf".into()), ..nic() };
        fails(link("eth0"), shaped, mode, "tbf");
        // ARPHRD_NONE, as of a tun device.
        fails(Link { hardware: 0xfffe, ..link("tun0") }, nic(), mode, "no Ethernet device");
    }
    let other = XdpFacts { driver: "e100".into(), ..nic() };
    fails(link("eth0"), other.clone(), XdpMode::Driver, "e100");
    assert_eq!(longest(&link("eth0"), &other, XdpMode::Generic, false), Ok(1518));
}

/// Starts an agent on one end of a pair.
fn agent() -> Agent {
    let status = Command::new("ip").args(["link", "add", "v0", "type", "veth"]).status();
    assert!(status.expect("iproute2 is installed").success());
    let settings = Settings {
        devices: vec!["v0".into()],
        mode: XdpMode::Driver,
        guard: Guard::StaleOk,
        refresh: Duration::ZERO,
    };
    Agent::start(settings).unwrap_or_else(|error| panic!("{error}"))
}

/// Lets the agent run until it has read the filters.
fn read(agent: &mut Agent) {
    let is_read =
        wait_until(Duration::from_secs(10), || agent.step().expect("a step") == HEARTBEAT);
    assert!(is_read);
}

#[test]
fn the_deadline_is_renewed_after_the_filters_were_read() {
    testing::in_namespace_as_root(|| {
        let mut agent = agent();
        // Changes that began before the agent may be under way: nothing is read yet.
        assert_eq!(agent.step().expect("a step"), SETTLE);
        assert_eq!(agent.program.deadline(), 0);
        assert!(!agent.is_current());
        read(&mut agent);
        assert!(agent.is_current());
        assert!(agent.program.deadline() > now().as_nanos() as u64);
    });
}

#[test]
fn a_port_of_the_switch_is_left_alone() {
    testing::in_namespace_as_root(|| {
        let mut agent = agent();
        let problem = |agent: &mut Agent| {
            read(agent);
            agent.served[0].problem.clone().unwrap_or_default()
        };
        assert!(!problem(&mut agent).contains("port of the switch"));
        agent.set_switch_ports(["v0".to_owned()].into());
        assert!(problem(&mut agent).contains("port of the switch"));
        agent.set_switch_ports(BTreeSet::new());
        assert!(!problem(&mut agent).contains("port of the switch"));
    });
}

/// The kernel's classifier then sees the fields as the program sets them.
#[test]
fn with_a_program_that_dissects_flows_no_rule_runs() {
    const SOURCE: &str = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
        char _license[] SEC(\"license\") = \"GPL\";\n\
        SEC(\"flow_dissector\") int dissect(struct __sk_buff *skb) { return BPF_OK; }\n";
    testing::in_namespace_as_root(|| {
        let object = crate::tests::object::compile(SOURCE);
        let object = ObjectBuilder::default().open_memory(&object).expect("an object");
        let object = object.load().expect("the kernel takes the program");
        let mut agent = agent();
        read(&mut agent);
        let problem = |agent: &Agent| agent.served[0].problem.clone().unwrap_or_default();
        assert!(!problem(&agent).contains("dissects"));
        let netns = File::open("/proc/thread-self/ns/net").expect("a namespace");
        let program = object.progs_mut().next().expect("a program");
        let link = program.attach_netns(netns.as_raw_fd()).expect("it is attached");
        agent.last_survey = None;
        read(&mut agent);
        assert!(problem(&agent).contains("dissects flows"), "{}", problem(&agent));
        drop(link);
    });
}
