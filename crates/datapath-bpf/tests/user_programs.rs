// SPDX-License-Identifier: Apache-2.0
//! Users' own programs at XDP: the example over tables that the datapath fills, at a veth, and
//! objects that are refused.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use clock::Clock;
use datapath::{Action, Actions, FlowStats, Megaflow, PortNo, Refusal, Side, Ufid};
use datapath_bpf::layout::Tail;
use datapath_bpf::load::{self, Hook};
use datapath_bpf::maps::Sizes;
use datapath_bpf::object::{ObjectError, UserObject, examine_file};
use datapath_bpf::settings::VariantSettings;
use datapath_bpf::{Attachment, BpfDatapath, Config, HookSet, Hooks, XdpMode, sys};
use devices::{ifindex, tool};
use flow::{Field, Mask, Match};
use packet::build::Frame;
use testing::in_namespace_as_root;

#[path = "support/devices.rs"]
mod devices;
#[path = "support/frames.rs"]
mod frames;

/// include/uapi/linux/bpf.h.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
/// The loopback device, which test runs come from.
const LOOPBACK: u32 = 1;
const ONE: PortNo = PortNo(1);
const TWO: PortNo = PortNo(2);

fn example() -> &'static Path {
    Path::new(concat!(env!("OUT_DIR"), "/l2-ipv4.bpf.o"))
}

#[test]
fn what_an_object_can_do_is_read_without_loading_it() {
    let about = examine_file(example()).unwrap_or_else(|e| panic!("{e}")).to_string();
    for part in ["layout version", "in_port", "nw_src, nw_dst", "runs output, drop"] {
        assert!(about.contains(part), "no {part:?} in {about}");
    }
    assert!(!about.contains("ipv6") && !about.contains("lists"), "{about}");
    let missing = examine_file(Path::new("/no/such.o"));
    assert!(matches!(missing, Err(ObjectError::File { .. })));
}

/// Makes a pair, both ends up; the index of the first.
fn veth(a: &str, b: &str) -> u32 {
    tool("ip", &format!("link add {a} type veth peer name {b}"));
    tool("ip", &format!("link set {a} up"));
    tool("ip", &format!("link set {b} up"));
    ifindex(a)
}

fn open() -> BpfDatapath {
    let config = Config { max_flows: 1024, max_masks: 64, max_programs: 64, ..Config::default() };
    BpfDatapath::open(config, Clock::new()).unwrap_or_else(|e| panic!("{e}"))
}

fn attachment(ifindex: u32, xdp: Option<XdpMode>) -> Attachment {
    Attachment {
        ifindex,
        side: Side::Device,
        hooks: Hooks { tc: true, xdp, after_filters: false },
        mtu: 1500,
        up: true,
    }
}

/// Ports 1, the loopback device with the example's program to be run, and 2, a veth.
fn bed() -> BpfDatapath {
    veth("va", "vb");
    let bpf = open();
    bpf.attach(ONE, &attachment(LOOPBACK, None)).unwrap();
    bpf.attach(TWO, &attachment(ifindex("va"), None)).unwrap();
    bpf.set_devmap(TWO, true).unwrap();
    bpf.use_object(ONE, Some(example())).unwrap_or_else(|e| panic!("{e}"));
    bpf
}

fn verdict(bpf: &BpfDatapath, frame: &[u8]) -> u32 {
    let program = bpf.user_program(ONE).unwrap();
    let ran = sys::run(program.as_fd(), frame, &[], 1).unwrap();
    assert_eq!(ran.data, frame, "it edits nothing");
    ran.verdict
}

fn ethernet() -> Frame {
    Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
}

fn ipv4(to: u32) -> Frame {
    ethernet().ipv4([10, 0, 0, 1].into(), to.into(), 64)
}

fn udp(to: u32) -> Vec<u8> {
    ipv4(to).udp(1000, 2000).payload(&[0; 40]).finish()
}

fn flow_to(ufid: u128, field: (Field, u128), actions: &[Action]) -> Megaflow {
    let mut matching = Match::ANY;
    matching.set(Field::InPort, 1);
    matching.set(Field::RecircId, 0);
    matching.set(Field::EthType, 0x800);
    matching.set(field.0, field.1);
    Megaflow { ufid: Ufid(ufid), matching, actions: Actions::from(actions) }
}

fn ip_flow(to: u32, actions: &[Action]) -> Megaflow {
    flow_to(to.into(), (Field::Ipv4Dst, to.into()), actions)
}

fn out() -> Action {
    Action::Output(TWO)
}

fn stats(bpf: &BpfDatapath, flow: &Megaflow) -> FlowStats {
    bpf.flow(flow.ufid).unwrap().stats
}

#[test]
fn the_example_runs_what_it_says_it_can() {
    in_namespace_as_root(|| {
        let bpf = bed();
        assert_eq!(verdict(&bpf, &udp(7)), XDP_PASS);
        let (to_two, dropped) = (ip_flow(7, &[out()]), ip_flow(8, &[]));
        assert_eq!(bpf.install(&to_two, HookSet::all()), Ok(HookSet::all()));
        assert_eq!(bpf.install(&dropped, HookSet::all()), Ok(HookSet::all()));
        assert_eq!(verdict(&bpf, &udp(7)), XDP_REDIRECT);
        assert_eq!(verdict(&bpf, &udp(8)), XDP_DROP);
        assert_eq!(verdict(&bpf, &udp(9)), XDP_PASS);
        let tcp = ipv4(7).tcp(1, 2, 0x012).finish();
        assert_eq!(verdict(&bpf, &tcp), XDP_REDIRECT);
        let counted = stats(&bpf, &to_two);
        assert_eq!(counted.packets, 2);
        assert_eq!(counted.bytes, (udp(7).len() + tcp.len()) as u64);
        assert_eq!(counted.tcp_flags, 0x012);
        assert_eq!(stats(&bpf, &dropped).packets, 1);
        assert_eq!((bpf.counters().drops[0], bpf.counters().passed), (1, 2));
        // A port that is gone, down, too small, or no target of redirects.
        bpf.set_port(TWO, 40, true);
        assert_eq!(verdict(&bpf, &udp(7)), XDP_DROP);
        bpf.set_port(TWO, 1500, false);
        assert_eq!(verdict(&bpf, &udp(7)), XDP_DROP);
        bpf.set_port(TWO, 1500, true);
        bpf.set_devmap(TWO, false).unwrap();
        assert_eq!(verdict(&bpf, &udp(7)), XDP_PASS);
        bpf.remove_many(&[to_two.ufid, dropped.ufid], &mut |_, _| {});
        assert_eq!(verdict(&bpf, &udp(8)), XDP_PASS);
    });
}

#[test]
fn what_the_example_does_not_parse_it_passes() {
    in_namespace_as_root(|| {
        let bpf = bed();
        let mut all = Match::ANY;
        all.set(Field::InPort, 1);
        all.set(Field::RecircId, 0);
        let flow = Megaflow { ufid: Ufid(1), matching: all, actions: Actions::from([out()]) };
        assert_eq!(bpf.install(&flow, HookSet::all()), Ok(HookSet::all()));
        let arp = ethernet().arp(0x806, 1, ([2; 6], [1; 4].into()), ([0; 6], [2; 4].into()));
        assert_eq!(verdict(&bpf, &arp.finish()), XDP_REDIRECT);
        let mut options = udp(7);
        options[14] = 0x46;
        let mut fragment = udp(7);
        fragment[20] = 0x20;
        let mut long = udp(7);
        long[16] = 0xff;
        let tagged = ethernet().vlan(0x8100, 5).ipv4([1; 4].into(), [2; 4].into(), 64).udp(1, 2);
        let llc = ethernet().ethertype(60).payload(&[0xaa; 60]).finish();
        for frame in [options, fragment, long, tagged.finish(), llc, udp(7)[..20].to_vec()] {
            assert_eq!(verdict(&bpf, &frame), XDP_PASS, "{frame:x?}");
        }
        assert_eq!(verdict(&bpf, &udp(7)), XDP_REDIRECT);
    });
}

#[test]
fn flows_beyond_the_example_stay_at_the_skb_hook() {
    in_namespace_as_root(|| {
        let bpf = bed();
        let mut transport = ip_flow(7, &[out()]);
        transport.matching.set(Field::IpProto, 17);
        transport.matching.set(Field::UdpDst, 2000);
        let copies = ip_flow(8, &[Action::PushVlan { tpid: 0x8100, tci: 5 }, out()]);
        for (flow, refusal) in
            [(&transport, Refusal::UnsupportedKey), (&copies, Refusal::UnsupportedAction)]
        {
            assert_eq!(bpf.suits_xdp(flow), Err(refusal));
            assert_eq!(bpf.install(flow, HookSet::all()), Ok(HookSet::TC));
        }
        assert_eq!(verdict(&bpf, &udp(7)), XDP_PASS);
        assert_eq!(verdict(&bpf, &udp(8)), XDP_PASS);
        // Ours again, it may have them all; and what is there then goes when it comes back.
        bpf.use_object(ONE, None).unwrap();
        assert_eq!(bpf.capabilities(ONE), None);
        assert_eq!(bpf.replace(&copies, HookSet::all()), Ok(HookSet::all()));
        bpf.use_object(ONE, Some(example())).unwrap();
        assert_eq!(bpf.flow(copies.ufid).unwrap().hooks, HookSet::TC);
        assert_eq!(verdict(&bpf, &udp(8)), XDP_PASS);
    });
}

#[test]
fn the_example_forwards_between_veths() {
    in_namespace_as_root(|| {
        let (from, to) = (veth("va", "vb"), veth("wa", "wb"));
        // A veth takes redirects when its other end polls, which GRO makes it do.
        tool("ethtool", "-K wb gro on");
        let bpf = open();
        bpf.use_object(ONE, Some(example())).unwrap();
        bpf.attach(ONE, &attachment(from, Some(XdpMode::Driver))).unwrap();
        bpf.attach(TWO, &attachment(to, None)).unwrap();
        bpf.set_devmap(TWO, true).unwrap();
        let flow = ip_flow(0x0a00_0002, &[out()]);
        bpf.install(&flow, HookSet::all()).unwrap();
        assert!(tool("ip", "-d link show va").contains("xdp"));
        tool("ip", "addr add 10.0.0.1/24 dev vb");
        tool("ip", "neigh add 10.0.0.2 lladdr 02:00:00:00:00:09 dev vb");
        let received = || {
            let text = tool("ip", "-s link show wb");
            let line = text.lines().skip_while(|l| !l.contains("RX:")).nth(1).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let before = received();
        let socket = std::net::UdpSocket::bind("10.0.0.1:0").unwrap();
        for _ in 0..10 {
            socket.send_to(&[7; 100], "10.0.0.2:9").unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(stats(&bpf, &flow).packets, 10);
        assert!(received() >= before + 10);
        // Another object in its place, while it is attached.
        bpf.use_object(ONE, None).unwrap();
        assert!(!tool("ip", "-d link show va").contains("prog/xdp"));
        bpf.attach(ONE, &attachment(from, Some(XdpMode::Driver))).unwrap();
        socket.send_to(&[7; 100], "10.0.0.2:9").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(stats(&bpf, &flow).packets, 11);
        bpf.detach(ONE);
        assert!(!tool("ip", "-d link show va").contains("prog/xdp"));
    });
}

/// The fields that the example supports.
const FIELDS: [Field; 10] = [
    Field::EthSrc,
    Field::EthDst,
    Field::EthType,
    Field::VlanTci,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::IpProto,
    Field::IpDscp,
    Field::IpTtl,
    Field::IpFrag,
];

#[test]
fn the_example_takes_no_packet_that_is_not_of_the_flow() {
    in_namespace_as_root(|| {
        let bpf = bed();
        let mut rng = fastrand::Rng::with_seed(11);
        let (mut taken, mut others) = (0, 0);
        for round in 0..300 {
            let frame = frames::sound(&mut rng);
            let mut mask = Mask::WILDCARD;
            let chosen = (0..rng.usize(..4)).map(|_| FIELDS[rng.usize(..FIELDS.len())]);
            [Field::InPort, Field::RecircId].into_iter().chain(chosen).for_each(|field| {
                mask.set_exact(field);
            });
            let matching = Match::new(&flow::extract::key_of(&frame, 1), &mask);
            let actions = Actions::from([out()]);
            let flow = Megaflow { ufid: Ufid(round), matching, actions };
            assert_eq!(bpf.install(&flow, HookSet::all()), Ok(HookSet::all()));
            let program = bpf.user_program(ONE).unwrap();
            for attempt in 0..8 {
                let mut frame = frame.clone();
                if attempt > 0 {
                    let at = rng.usize(..frame.len().min(60));
                    frame[at] ^= 1 << rng.u8(..8);
                }
                if attempt == 7 {
                    frame = frames::mangled(&mut rng);
                }
                // The kernel does not run frames without a whole header.
                let Ok(ran) = sys::run(program.as_fd(), &frame, &[], 1) else { continue };
                match (ran.verdict, matching.matches(&flow::extract::key_of(&frame, 1))) {
                    (XDP_REDIRECT, true) => taken += 1,
                    (XDP_PASS, _) => others += 1,
                    (verdict, is_its) => panic!("{verdict} {is_its} {frame:x?} {flow:?}"),
                }
            }
            bpf.remove_many(&[flow.ufid], &mut |_, _| {});
            if round % 20 == 0 {
                bpf.maintain(); // places of masks are free again
            }
        }
        println!("{taken} taken, {others} passed");
        assert!(taken > 300 && others > 300);
    });
}

#[test]
fn another_daemon_takes_over_with_another_program() {
    in_namespace_as_root(|| {
        let (from, to) = (veth("va", "vb"), veth("wa", "wb"));
        let bpffs = testing::BpfFs::new().expect("root may mount");
        let pins = bpffs.path().join("of/one");
        let open = || {
            let config = Config { pins: Some(pins.clone()), max_flows: 1024, ..Config::default() };
            BpfDatapath::open(config, Clock::new()).unwrap_or_else(|e| panic!("{e}"))
        };
        let at_xdp = || tool("ip", "-d link show va");
        let driver = Some(XdpMode::Driver);
        let ours = open();
        ours.attach(ONE, &attachment(from, driver)).unwrap();
        ours.attach(TWO, &attachment(to, None)).unwrap();
        let within = ip_flow(7, &[out()]);
        let beyond = ip_flow(8, &[Action::PushVlan { tpid: 0x8100, tci: 5 }, out()]);
        for flow in [&within, &beyond] {
            assert_eq!(ours.install(flow, HookSet::all()), Ok(HookSet::all()));
        }
        assert!(at_xdp().contains("entry_xdp"), "{}", at_xdp());
        drop(ours);
        let users = open();
        assert!(users.was_adopted() && at_xdp().contains("entry_xdp"));
        users.use_object(ONE, Some(example())).unwrap();
        assert!(!at_xdp().contains("prog/xdp"), "{}", at_xdp());
        assert_eq!(users.flow(within.ufid).unwrap().hooks, HookSet::all());
        assert_eq!(users.flow(beyond.ufid).unwrap().hooks, HookSet::TC);
        users.attach(ONE, &attachment(from, driver)).unwrap();
        assert!(at_xdp().contains("l2_ipv4"), "{}", at_xdp());
        drop(users);
        assert!(at_xdp().contains("l2_ipv4"), "{}", at_xdp());
        let again = open();
        again.attach(ONE, &attachment(from, driver)).unwrap();
        assert!(at_xdp().contains("entry_xdp"), "{}", at_xdp());
        assert_eq!(again.replace(&beyond, HookSet::all()), Ok(HookSet::all()));
        again.close(true);
        assert!(!at_xdp().contains("prog/xdp") && !pins.exists());
    });
}

/// A program without code of its own: it hands every packet to the built-in lookup.
const HANDS_ON: &str = "#include \"hook_xdp.h\"\n#include \"capabilities.h\"\n\
            CAPABILITIES(ALL_NEEDS, (1u << OP_COUNT) - 1);\n\
            SEC(\"xdp.frags\") int p(struct xdp_md *ctx) {\n\
            bpf_tail_call_static(ctx, &tails, TAIL_LOOKUP); return XDP_PASS; }\n\
            char _license[] SEC(\"license\") = \"GPL\";\n";

#[test]
fn a_program_may_hand_on_to_ours() {
    in_namespace_as_root(|| {
        let directory = testing::directory();
        let object = compile(directory.path(), "first", HANDS_ON);
        let bpf = bed();
        bpf.use_object(ONE, Some(&object)).unwrap_or_else(|e| panic!("{e}"));
        let mut deep = ip_flow(7, &[out()]);
        deep.matching.set(Field::IpProto, 17);
        deep.matching.set(Field::UdpDst, 2000);
        assert_eq!(bpf.install(&deep, HookSet::all()), Ok(HookSet::all()));
        assert_eq!(verdict(&bpf, &udp(7)), XDP_REDIRECT);
        let mut other = udp(7);
        other[37] ^= 1;
        assert_eq!(verdict(&bpf, &other), XDP_PASS);
    });
}

/// Where XDP does not redirect frames in several buffers no program takes them, whatever its
/// section declares. A kernel without support for such programs would refuse the program, others
/// would refuse its tail call, or lose the frames.
#[test]
fn a_programs_section_does_not_decide_whether_it_takes_frames_in_several_buffers() {
    in_namespace_as_root(|| {
        let directory = testing::directory();
        let object = compile(directory.path(), "first", HANDS_ON);
        let sizes = Sizes::new(&Config { max_flows: 1024, ..Config::default() }, 1);
        for frags in [false, true] {
            if frags && !load::have_frags() {
                continue;
            }
            let settings = VariantSettings::full(&sizes, &[1; _], 1, frags);
            let ours = load::load(Hook::Xdp, None, &settings, &sizes, &HashMap::new())
                .unwrap_or_else(|e| panic!("{e}"));
            let maps = ours.maps().into_iter().collect();
            // Its first program makes the table of programs one for its kind.
            let lookup = ours.program("lookup_xdp").unwrap();
            let tails: &OwnedFd = HashMap::get(&maps, "tails").unwrap();
            sys::set_program(tails.as_fd(), Tail::Lookup as u32, lookup.as_fd()).unwrap();
            UserObject::load(&object, &settings, &maps).unwrap_or_else(|e| panic!("{e}"));
        }
    });
}

/// Compiles `source` as users do.
fn compile(directory: &Path, name: &str, source: &str) -> PathBuf {
    let object = directory.join(format!("{name}.bpf.o"));
    testing::compile_bpf(env!("CLANG"), env!("CLANG_FLAGS"), source, &object);
    object
}

const HEAD: &str = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
    #include \"capabilities.h\"\nchar _license[] SEC(\"license\") = \"GPL\";\n";
const SAYS: &str = "CAPABILITIES(33, 2);\n";
const PASSES: &str = "SEC(\"xdp\") int p(struct xdp_md *ctx) { return XDP_PASS; }\n";

#[test]
fn broken_objects_are_refused_in_words() {
    in_namespace_as_root(|| {
        let directory = testing::directory();
        let map = |kind: &str, value: &str| {
            format!(
                "{HEAD}{SAYS}struct other {{ char c[64]; }};\nstruct {{ __uint(type, {kind}); \
                 __uint(max_entries, 1); __type(key, __u32); {value} }} slots SEC(\".maps\");\n\
                 SEC(\"xdp\") int p(struct xdp_md *ctx) {{ __u32 k = 0; \
                 return bpf_map_lookup_elem(&slots, &k) ? XDP_PASS : XDP_DROP; }}\n"
            )
        };
        let array = "BPF_MAP_TYPE_ARRAY";
        let cases = [
            ("no program", format!("{HEAD}{SAYS}"), "0 programs"),
            (
                "two programs",
                format!("{HEAD}{SAYS}{PASSES}{}", PASSES.replace("int p(", "int q(")),
                "2 programs",
            ),
            (
                "other hook",
                format!("{HEAD}{SAYS}{}", PASSES.replace("\"xdp\"", "\"xdp/devmap\"")),
                "xdp/devmap",
            ),
            ("silent", format!("{HEAD}{PASSES}"), "CAPABILITIES()"),
            (
                "other version",
                format!("{HEAD}{SAYS}{PASSES}").replace("LAYOUT_VERSION", "99").replace(
                    SAYS,
                    "const volatile struct capabilities capabilities \
                     SEC(\".rodata.slipswitch\") = { 99, 33, 2, 0 };\n",
                ),
                "layout version 99",
            ),
            (
                "hash",
                map("BPF_MAP_TYPE_HASH", "__type(value, struct slot);"),
                "map slots is of type 1",
            ),
            ("small", map(array, "__type(value, __u64);"), "values of 8 bytes"),
            ("other type", map(array, "__type(value, struct other);"), "of type other"),
            (
                "pinned",
                map(array, "__type(value, struct slot); __uint(pinning, LIBBPF_PIN_BY_NAME);"),
                "pinned",
            ),
            ("untyped", map(array, "__uint(value_size, 64);"), "without a type"),
            (
                "out of bounds",
                format!(
                    "{HEAD}{SAYS}SEC(\"xdp\") int p(struct xdp_md *ctx) {{ return *(volatile char \
                     *)(long)ctx->data; }}\n"
                ),
                "R1 offset is outside of the packet",
            ),
        ];
        let bpf = bed();
        for (name, source, words) in cases {
            let object = compile(directory.path(), &name.replace(' ', "-"), &source);
            let error = bpf.use_object(ONE, Some(&object)).unwrap_err();
            println!("{error}");
            assert!(error.to_string().contains(words), "{name}: {error}");
            assert!(!error.to_string().contains('\n'), "{name}: {error}");
            assert_eq!(matches!(error, ObjectError::Refused { .. }), name == "out of bounds");
            if let Some(log) = error.log() {
                assert!(log.lines().count() <= 16 && log.contains("invalid access to packet"));
            }
            assert!(bpf.user_program(ONE).is_none(), "{name}");
        }
        for (path, words) in [
            (PathBuf::from("/no/such/object"), "No such file"),
            ("relative.o".into(), "absolute"),
            ("/dev/zero".into(), "regular"),
            (Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"), "no ELF object"),
            (std::env::current_exe().unwrap(), "cannot"),
        ] {
            let error = bpf.use_object(ONE, Some(&path)).unwrap_err().to_string();
            println!("{error}");
            let too_big = error.contains("more than") && words == "cannot";
            assert!(error.contains(words) || too_big, "{error}");
        }
        // Cut anywhere, an object is an error or a program.
        let whole = std::fs::read(example()).unwrap();
        let cut = directory.path().join("cut.o");
        for length in (0..whole.len()).step_by(whole.len() / 97) {
            std::fs::write(&cut, &whole[..length]).unwrap();
            assert!(bpf.use_object(ONE, Some(&cut)).is_err());
        }
        bpf.use_object(ONE, Some(example())).unwrap();
        assert_eq!(verdict(&bpf, &udp(7)), XDP_PASS);
    });
}
