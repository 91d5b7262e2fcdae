// SPDX-License-Identifier: Apache-2.0
//! The datapath with the kernel: loading, forwarding, adoption, and flows that come and go while
//! packets run.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clock::Clock;
use cpus::pin_to_one_cpu;
use datapath::{Action, Actions, BondTable, Masked, Megaflow, PortNo, Refusal, Set, Side, Ufid};
use datapath_bpf::layout::{TAILS, Tail, WORDS};
use datapath_bpf::load::Hook;
use datapath_bpf::{
    Attachment, BpfDatapath, Config, HookSet, Hooks, Unavailable, XdpMode, grace, sys,
};
use devices::{ifindex, tool};
use flow::{Field, Match};
use packet::build::Frame;
use testing::{BpfFs, in_namespace_as_root};

#[path = "support/cpus.rs"]
mod cpus;
#[path = "support/devices.rs"]
mod devices;

const TC_ACT_SHOT: u32 = 2;
const TC_ACT_REDIRECT: u32 = 7;
/// The loopback device, which test runs of skb programs come from.
const LOOPBACK: u32 = 1;

fn veth() -> u32 {
    tool("ip", "link add va type veth peer name vb");
    tool("ip", "link set va up");
    tool("ip", "link set vb up");
    ifindex("va")
}

fn small() -> Config {
    Config { max_flows: 1024, max_masks: 64, max_programs: 2048, ..Config::default() }
}

/// Returns a configuration whose pins in `bpffs` go from one datapath to the next.
fn pinned(bpffs: &BpfFs) -> Config {
    Config { pins: Some(bpffs.path().join("of/one")), ..small() }
}

fn open(config: Config) -> BpfDatapath {
    BpfDatapath::open(config, Clock::new()).unwrap_or_else(|e| panic!("{e}"))
}

/// Opens it; packets come from port 1, the loopback device, and go to port 2.
fn open_with_ports(config: Config) -> BpfDatapath {
    let to = veth();
    let bpf = open(config);
    bpf.attach(PortNo(1), &attachment(LOOPBACK)).unwrap();
    bpf.attach(PortNo(2), &attachment(to)).unwrap();
    bpf
}

fn attachment(ifindex: u32) -> Attachment {
    Attachment {
        ifindex,
        side: Side::Device,
        hooks: Hooks { tc: true, ..Hooks::default() },
        mtu: 1500,
        up: true,
    }
}

fn frame(id: u32) -> Vec<u8> {
    Frame::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1].into(), id.into(), 64)
        .udp(1000, 2000)
        .payload(&[0; 40])
        .finish()
}

fn megaflow(id: u32, actions: &[Action]) -> Megaflow {
    let mut matching = Match::ANY;
    matching.set(Field::InPort, 1);
    matching.set(Field::RecircId, 0);
    matching.set(Field::EthType, 0x800);
    matching.set(Field::Ipv4Dst, u128::from(id));
    Megaflow { ufid: Ufid(u128::from(id) + 1), matching, actions: Actions::from(actions) }
}

fn out() -> Action {
    Action::Output(PortNo(2))
}

/// Returns an address that identifies the flow that edited the packet.
fn stamp(id: u32, version: u8) -> [u8; 6] {
    let [_, _, high, low] = id.to_be_bytes();
    [2, version, high, low, !high, !low]
}

fn stamping(id: u32, version: u8) -> Megaflow {
    let dst = Masked { value: stamp(id, version), mask: [0xff; 6] };
    megaflow(id, &[Action::Set(Set::Ethernet { src: Masked::default(), dst }), out()])
}

fn run(program: BorrowedFd<'_>, frame: &[u8]) -> sys::RunOutput {
    sys::run(program, frame, &[], 1).unwrap()
}

/// Runs a frame with each of these numbers.
fn assert_redirects_all(program: BorrowedFd<'_>, ids: Range<u32>) {
    for id in ids {
        assert_eq!(run(program, &frame(id)).verdict, TC_ACT_REDIRECT, "frame {id}");
    }
}

#[test]
fn flows_are_run_counted_and_removed() {
    in_namespace_as_root(|| {
        let to = veth();
        let bpf = open(small());
        assert!(!bpf.was_adopted());
        let flow = megaflow(7, &[out()]);
        assert_eq!(bpf.install(&flow, HookSet::all()), Err(Refusal::PortNotHere));
        bpf.attach(PortNo(1), &attachment(LOOPBACK)).unwrap();
        bpf.attach(PortNo(2), &attachment(to)).unwrap();
        assert_eq!(bpf.install(&flow, HookSet::all()), Ok(HookSet::all()));
        let entry = bpf.program("entry_tc_ingress").unwrap();
        assert_eq!(run(entry, &frame(7)).verdict, TC_ACT_REDIRECT);
        assert_ne!(run(entry, &frame(8)).verdict, TC_ACT_REDIRECT);
        assert_eq!(bpf.flow(flow.ufid).unwrap().stats.packets, 1);
        // With the lookup that fits these flows, and after it had to be given up.
        for _ in 0..4 {
            bpf.maintain();
        }
        let narrow = bpf.variant();
        assert!(narrow.words.count_ones() < 6, "{narrow:?}");
        assert_eq!(run(entry, &frame(7)).verdict, TC_ACT_REDIRECT);
        assert_ne!(run(entry, &frame(8)).verdict, TC_ACT_REDIRECT);
        let mut tos = megaflow(9, &[out()]);
        tos.matching.set(Field::TcpDst, 2000);
        bpf.install(&tos, HookSet::all()).unwrap();
        assert!(bpf.variant().words.count_ones() > 6);
        assert_eq!(run(entry, &frame(9)).verdict, TC_ACT_REDIRECT);
        let mut stats = None;
        bpf.remove_many(&[flow.ufid], &mut |_, s| stats = Some(s));
        let stats = stats.unwrap();
        assert_eq!((stats.packets, stats.bytes), (2, 2 * frame(7).len() as u64));
        assert_ne!(run(entry, &frame(7)).verdict, TC_ACT_REDIRECT);
        bpf.set_port(PortNo(2), 1500, false);
        assert_eq!(run(entry, &frame(9)).verdict, TC_ACT_SHOT);
        bpf.detach(PortNo(2));
        bpf.detach(PortNo(1));
        bpf.close(true);
    });
}

/// Frames that a device of this namespace has sent.
fn sent_by(device: &str) -> u64 {
    let text = tool("ip", &format!("-s link show {device}"));
    let numbers = text.lines().skip_while(|line| !line.contains("TX:")).nth(1).unwrap();
    numbers.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn some_packets_are_copied_amid_a_list() {
    in_namespace_as_root(|| {
        let bpf = open_with_ports(small());
        let quarter = Action::Sample { probability: 1 << 30, actions: vec![out()] };
        let mut actions = stamping(7, 0).actions.to_vec();
        actions.insert(0, quarter);
        assert_eq!(bpf.install(&megaflow(7, &actions), HookSet::all()), Ok(HookSet::TC));
        assert_eq!(bpf.actions(Ufid(8)), Some(actions));
        let entry = bpf.program("entry_tc_ingress").unwrap();
        let before = sent_by("va");
        // A run does not send what it redirects; copies are sent at once.
        for _ in 0..400 {
            let got = run(entry, &frame(7));
            assert_eq!((got.verdict, &got.data[..6]), (TC_ACT_REDIRECT, &stamp(7, 0)[..]));
        }
        let copies = sent_by("va") - before;
        assert!((50..170).contains(&copies), "{copies} of 400");
        assert_eq!(bpf.flow(Ufid(8)).unwrap().stats.packets, 400);
        bpf.close(true);
    });
}

/// A checksum of the card (CHECKSUM_COMPLETE) covers the bytes after that header, and
/// bpf_redirect_peer() has the frame taken up there.
#[test]
fn the_place_of_the_kernels_network_header_is_known() {
    in_namespace_as_root(|| {
        pin_to_one_cpu(); // the state is of a CPU
        let bpf = open_with_ports(small());
        let entry = bpf.program("entry_tc_ingress").unwrap();
        let tag = Action::PushVlan { tpid: 0x8100, tci: 0x1005 };
        let label = Action::PushMpls { lse: 0x1140, ethertype: 0x8847 };
        let moved = if netdev::kernel_version().ok() < Some((6, 12)) { 18 } else { 14 };
        for (id, pushes, expected) in [
            (1, vec![tag.clone()], 14), // kept outside of the frame
            (2, vec![tag.clone(), tag.clone()], moved),
            (3, vec![tag.clone(), tag, Action::PopVlan], 14),
            (4, vec![label], moved),
        ] {
            let actions: Vec<Action> = pushes.into_iter().chain([out()]).collect();
            bpf.install(&megaflow(id, &actions), HookSet::TC).unwrap();
            assert_eq!(run(entry, &frame(id)).verdict, TC_ACT_REDIRECT);
            // struct state: the key, then 10 words of 4 bytes, 3 of 2, and 2 bytes.
            let at = WORDS * 8 + 48;
            let covered: Vec<u16> = bpf
                .states(Hook::Tc)
                .unwrap()
                .iter()
                .map(|state| u16::from_ne_bytes([state[at], state[at + 1]]))
                .filter(|covered| *covered != 0)
                .collect();
            assert_eq!(covered, [expected], "{actions:?}");
        }
        bpf.close(true);
    });
}

#[test]
fn every_way_to_attach() {
    in_namespace_as_root(|| {
        let a = veth();
        let bpf = open(small());
        let stack = Attachment { side: Side::Stack, ..attachment(a) };
        bpf.attach(PortNo(3), &stack).unwrap();
        let hooks = |mode| Hooks { tc: true, xdp: Some(mode), after_filters: false };
        let xdp = |mode| Attachment { hooks: hooks(mode), ..attachment(a) };
        assert!(
            bpf.attach(PortNo(3), &Attachment { side: Side::Stack, ..xdp(XdpMode::Driver) })
                .is_err()
        );
        bpf.attach(PortNo(3), &xdp(XdpMode::Generic)).unwrap();
        bpf.attach(PortNo(3), &xdp(XdpMode::Driver)).unwrap();
        bpf.set_devmap(PortNo(3), true).unwrap();
        bpf.attach(PortNo(3), &attachment(a)).unwrap();
        bpf.attach(PortNo(3), &attachment(ifindex("vb"))).unwrap();
        assert!(bpf.attach(PortNo(4), &attachment(12345)).is_err());
        assert!(bpf.set_devmap(PortNo(4), true).is_err());
        assert_eq!(bpf.states(Hook::Tc).unwrap().len(), sys::possible_cpus().unwrap());
        tool("ip", "link del va");
        bpf.detach(PortNo(3));
    });
}

#[test]
fn a_program_comes_after_the_filters_of_others_and_goes_before_them() {
    in_namespace_as_root(|| {
        let a = veth();
        let bpffs = BpfFs::new().expect("root may mount");
        let config = pinned(&bpffs);
        let link = config.pins.clone().unwrap().join("link_1_tc");
        // Whether there is a filter, and a tcx link.
        let places = || {
            let filters = tool("tc", "filter show dev va ingress");
            (filters.contains("0x736c"), link.exists())
        };
        let bpf = open(config.clone());
        let before = attachment(a);
        let hooks = Hooks { tc: true, xdp: None, after_filters: true };
        let after = Attachment { hooks, ..before };
        bpf.attach(PortNo(1), &before).unwrap();
        let first = places();
        assert_ne!(first.0, first.1, "a link where the kernel has them");
        for _ in 0..2 {
            bpf.attach(PortNo(1), &after).unwrap();
            bpf.attach(PortNo(1), &after).unwrap();
            assert_eq!(places(), (true, false));
            bpf.attach(PortNo(1), &before).unwrap();
            assert_eq!(places(), first);
        }
        bpf.close(false);
        drop(bpf);
        // The next daemon finds one of the two, and wants the other one.
        for (left, wanted, there) in [(&before, &after, (true, false)), (&after, &before, first)] {
            let earlier = open(config.clone());
            earlier.attach(PortNo(1), left).unwrap();
            earlier.close(false);
            drop(earlier);
            let bpf = open(config.clone());
            bpf.attach(PortNo(1), wanted).unwrap();
            assert_eq!(places(), there);
            bpf.close(false);
        }
    });
}

#[test]
fn a_new_daemon_takes_over() {
    in_namespace_as_root(|| {
        let bpffs = BpfFs::new().expect("root may mount");
        let config = pinned(&bpffs);
        let bpf = open_with_ports(config.clone());
        for id in 0..100 {
            bpf.install(&stamping(id, 0), HookSet::all()).unwrap();
        }
        let stack = Attachment { side: Side::Stack, ..attachment(ifindex("vb")) };
        bpf.attach(PortNo(3), &stack).unwrap();
        run(bpf.program("entry_tc_ingress").unwrap(), &frame(7));
        let second = BpfDatapath::open(config.clone(), Clock::new());
        assert!(matches!(second.err(), Some(Unavailable::InUse(_))));
        bpf.close(false);
        drop(bpf);

        let bpf = open(config.clone());
        assert!(bpf.was_adopted());
        assert_eq!(bpf.adopted_ports().len(), 3);
        assert_eq!(bpf.len(), 100);
        // Adopted ports are in use before they are attached again.
        for _ in 0..4 {
            bpf.maintain();
        }
        let narrow = bpf.variant();
        assert!(narrow.words.count_ones() < 6 && narrow.features & 4 != 0, "{narrow:?}");
        let held = bpf.flow(Ufid(8)).unwrap();
        assert_eq!((held.matching, held.stats.packets), (stamping(7, 0).matching, 1));
        assert!(bpf.encodes_alike(Ufid(8), &stamping(7, 0).actions));
        let entry = bpf.program("entry_tc_ingress").unwrap();
        let got = run(entry, &frame(7));
        assert_eq!((got.verdict, &got.data[..6]), (TC_ACT_REDIRECT, &stamp(7, 0)[..]));
        assert_eq!(bpf.flow(Ufid(8)).unwrap().stats.packets, 2);
        bpf.attach(PortNo(1), &attachment(LOOPBACK)).unwrap();
        bpf.detach(PortNo(2));
        bpf.detach(PortNo(3));
        drop(bpf);

        // Other sizes: new tables.
        let other = Config { max_flows: 2048, ..config.clone() };
        let bpf = open(other);
        assert!(!bpf.was_adopted());
        assert!(bpf.is_empty());
        bpf.close(true);
        drop(bpf);
        assert!(!config.pins.unwrap().exists());
    });
}

/// To detach a program takes milliseconds, and many ports may be gone.
#[test]
fn programs_of_an_earlier_daemons_ports_are_detached_one_by_one() {
    in_namespace_as_root(|| {
        let bpffs = BpfFs::new().expect("root may mount");
        let config = pinned(&bpffs);
        let pin = |port| bpffs.path().join(format!("of/one/link_{port}_tc"));
        let bpf = open_with_ports(config.clone());
        bpf.attach(PortNo(3), &attachment(ifindex("vb"))).unwrap();
        bpf.close(false);
        drop(bpf);

        let bpf = open(config);
        if !pin(1).exists() {
            // Before Linux 6.6 there are filters, which go at once.
            assert_eq!(bpf.adopted_ports().len(), 3);
            bpf.detach_later(PortNo(1));
            assert!(!bpf.finish_detaching());
            return bpf.close(true);
        }
        for port in [1, 3, 3] {
            bpf.detach_later(PortNo(port));
        }
        assert!(pin(1).exists() && pin(3).exists(), "the kernel is not waited for");
        let left = || [1, 2, 3].iter().filter(|port| pin(**port).exists()).count();
        assert!(bpf.finish_detaching());
        assert_eq!(left(), 2);
        // The port that comes back meanwhile has a program of its own.
        bpf.attach(PortNo(1), &attachment(LOOPBACK)).unwrap();
        bpf.attach(PortNo(3), &attachment(ifindex("vb"))).unwrap();
        assert!(!bpf.finish_detaching());
        assert_eq!(left(), 3);
        let entry = program_id(bpf.program("entry_tc_ingress").unwrap());
        for port in [1, 3] {
            assert_eq!(program_of(sys::open_pin(&pin(port)).unwrap().as_fd()), entry);
        }
        bpf.close(true);
        assert_eq!(left(), 0);
    });
}

#[test]
fn new_programs_end_packets_that_old_ones_have_begun() {
    in_namespace_as_root(|| {
        let bpffs = BpfFs::new().expect("root may mount");
        let config = pinned(&bpffs);
        let bpf = open_with_ports(config.clone());
        for id in 0..10 {
            bpf.install(&stamping(id, 0), HookSet::all()).unwrap();
        }
        let old = bpf.program("lookup_tc").unwrap().try_clone_to_owned().unwrap();
        bpf.close(false);
        drop(bpf);

        let bpf = open(config);
        assert!(bpf.was_adopted());
        // As between the last of them that is put in its place, and a packet that came before.
        let tails = bpf.map(Hook::Tc, "tails").unwrap();
        sys::set_program(tails, Tail::Lookup as u32, old.as_fd()).unwrap();
        for id in [7, 3] {
            let got = run(bpf.program("entry_tc_ingress").unwrap(), &frame(id));
            assert_eq!((got.verdict, &got.data[..6]), (TC_ACT_REDIRECT, &stamp(id, 0)[..]));
        }
        bpf.close(true);
    });
}

/// A program for the skb hook that drops everything.
fn drops_everything() -> OwnedFd {
    let instruction = |code, imm| libbpf_sys::bpf_insn { code, imm, ..Default::default() };
    // BPF_ALU64 | BPF_MOV | BPF_K: r0 is the verdict. BPF_JMP | BPF_EXIT.
    let code = [instruction(0xb7, TC_ACT_SHOT as i32), instruction(0x95, 0)];
    // SAFETY: two whole instructions, strings that end with NUL, no options.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"drops".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr(),
            code.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new, and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The kernel's number of a program.
fn program_id(program: BorrowedFd<'_>) -> u32 {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is `len` bytes that the kernel may fill.
    let err = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len)
    };
    assert_eq!(err, 0);
    info.id
}

/// That of the program that a link attaches.
fn program_of(link: BorrowedFd<'_>) -> u32 {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is `len` bytes that the kernel may fill.
    let err = unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len)
    };
    assert_eq!(err, 0);
    info.prog_id
}

/// An earlier build whose programs are others, over the same tables.
#[test]
fn a_newer_build_puts_its_programs_in_the_place_of_all_that_it_finds() {
    in_namespace_as_root(|| {
        let to = veth();
        let bpffs = BpfFs::new().expect("root may mount");
        let config = pinned(&bpffs);
        let directory = config.pins.clone().unwrap();
        let bpf = open(config.clone());
        bpf.attach(PortNo(2), &attachment(to)).unwrap();
        bpf.attach(PortNo(1), &attachment(LOOPBACK)).unwrap();
        bpf.install(&stamping(7, 0), HookSet::all()).unwrap();
        let entry = bpf.program("entry_tc_ingress").unwrap();
        assert_eq!(run(entry, &frame(7)).verdict, TC_ACT_REDIRECT);
        let old = drops_everything();
        let tails = sys::open_pin(&directory.join("tails_tc")).unwrap();
        for tail in 0..TAILS {
            sys::set_program(tails.as_fd(), tail, old.as_fd()).unwrap();
        }
        assert_eq!(run(entry, &frame(7)).verdict, TC_ACT_SHOT);
        // Where there are no tcx links the program is part of a filter, which is replaced as well.
        let links = ["link_1_tc", "link_2_tc"].map(|name| sys::open_pin(&directory.join(name)));
        let links: Vec<OwnedFd> = links.into_iter().flatten().collect();
        for link in &links {
            sys::update_link(link.as_fd(), old.as_fd()).unwrap();
        }
        bpf.close(false);
        drop(bpf);

        let bpf = open(config);
        assert!(bpf.was_adopted());
        assert_eq!(bpf.len(), 1);
        bpf.attach(PortNo(1), &attachment(LOOPBACK)).unwrap();
        bpf.attach(PortNo(2), &attachment(to)).unwrap();
        let entry = bpf.program("entry_tc_ingress").unwrap();
        let got = run(entry, &frame(7));
        assert_eq!((got.verdict, &got.data[..6]), (TC_ACT_REDIRECT, &stamp(7, 0)[..]));
        assert_eq!(bpf.flow(Ufid(8)).unwrap().stats.packets, 2, "what it counted before, too");
        let new = program_id(entry);
        assert_ne!(new, program_id(old.as_fd()));
        for link in &links {
            assert_eq!(program_of(link.as_fd()), new);
        }
        bpf.close(true);
    });
}

#[test]
fn under_each_of_256_masks_flows_are_found() {
    const MASKS: u32 = 256;
    // From port 1000; each flow matches other bits of the port.
    let flow = |id: u32| {
        let mut flow = megaflow(id, &[out()]);
        let mask = u128::from(id | MASKS);
        flow.matching.set_masked(Field::UdpSrc, 1000 & mask, mask);
        flow
    };
    in_namespace_as_root(|| {
        let bpf = open_with_ports(Config { max_masks: MASKS, ..small() });
        for id in 0..MASKS {
            assert_eq!(bpf.install(&flow(id), HookSet::all()), Ok(HookSet::all()), "{id}");
        }
        let beyond = megaflow(MASKS, &[out()]);
        assert_eq!(bpf.install(&beyond, HookSet::all()), Err(Refusal::MasksFull));
        let entry = bpf.program("entry_tc_ingress").unwrap();
        // The second packet of each finds it in a cache.
        for (id, count) in (1..=2).flat_map(|count| (0..MASKS).map(move |id| (id, count))) {
            assert_eq!(run(entry, &frame(id)).verdict, TC_ACT_REDIRECT, "flow {id}");
            assert_eq!(bpf.flow(flow(id).ufid).unwrap().stats.packets, count, "flow {id}");
        }
        assert_ne!(run(entry, &frame(MASKS)).verdict, TC_ACT_REDIRECT);
        bpf.close(true);
    });
}

#[test]
fn connections_of_few_flows_find_room_in_the_cache() {
    // More than the cache holds at first. A flow distinguishes them, and most have another flow.
    const CONNECTIONS: u32 = 12_000;
    in_namespace_as_root(|| {
        pin_to_one_cpu(); // each CPU has a cache of its own, which fills and grows by itself
        let bpf = open_with_ports(Config { max_flows: CONNECTIONS, ..small() });
        let mut all = megaflow(CONNECTIONS, &[out()]);
        all.matching.set_masked(Field::Ipv4Dst, 0, 0);
        for flow in [megaflow(0, &[out()]), all] {
            assert_eq!(bpf.install(&flow, HookSet::all()), Ok(HookSet::all()));
        }
        let entry = bpf.program("entry_tc_ingress").unwrap();
        let missed = || bpf.counters().found + bpf.counters().evicted;
        let missed_by_all = || {
            let before = missed();
            assert_redirects_all(entry, 0..CONNECTIONS);
            bpf.maintain();
            (missed() - before) as u32
        };
        (0..3).for_each(|_| bpf.maintain());
        let missed: Vec<u32> = (0..24).map(|_| missed_by_all()).collect();
        assert!(missed[1] > CONNECTIONS / 4, "{missed:?}");
        assert!(missed[23] < CONNECTIONS / 50, "{missed:?}");
        bpf.close(true);
    });
}

#[test]
fn more_flows_of_the_same_kind_load_no_program() {
    const FLOWS: u32 = 20_000;
    in_namespace_as_root(|| {
        let bpf = open_with_ports(Config { max_flows: FLOWS, ..small() });
        let grow = |ids: Range<u32>| {
            for id in ids {
                assert_eq!(
                    bpf.install(&megaflow(id, &[out()]), HookSet::all()),
                    Ok(HookSet::all())
                );
            }
            (0..4).for_each(|_| bpf.maintain());
            (bpf.variants_loaded(), bpf.emc_lines())
        };
        let few = grow(0..10);
        let many = grow(10..FLOWS);
        assert_eq!(many.0, few.0, "a variant was loaded");
        assert!(many.1 > 4 * few.1, "{many:?} and {few:?}");
        bpf.close(true);
    });
}

#[test]
fn flows_whose_packets_begin_all_at_once_ask_for_no_more_room_than_they_have() {
    const FLOWS: u32 = 6_000;
    in_namespace_as_root(|| {
        let bpf = open_with_ports(Config { max_flows: FLOWS, ..small() });
        for id in 0..FLOWS {
            assert_eq!(bpf.install(&megaflow(id, &[out()]), HookSet::all()), Ok(HookSet::all()));
        }
        let entry = bpf.program("entry_tc_ingress").unwrap();
        (0..4).for_each(|_| bpf.maintain());
        let lines = bpf.emc_lines();
        for _ in 0..8 {
            assert_redirects_all(entry, 0..FLOWS);
            bpf.maintain();
            assert_eq!(bpf.emc_lines(), lines);
        }
        bpf.close(true);
    });
}

#[test]
fn a_packet_is_taken_for_the_one_before_only_when_it_is_of_its_flow_and_that_lives() {
    const FLOWS: Range<u32> = 0..4;
    in_namespace_as_root(|| {
        pin_to_one_cpu(); // each keeps a last flow of its own
        let bpf = open_with_ports(small());
        for id in FLOWS {
            assert_eq!(bpf.install(&megaflow(id, &[out()]), HookSet::all()), Ok(HookSet::all()));
        }
        (0..4).for_each(|_| bpf.maintain());
        let entry = bpf.program("entry_tc_ingress").unwrap();
        let is_sent = |id| run(entry, &frame(id)).verdict == TC_ACT_REDIRECT;
        let count = |id| bpf.flow(megaflow(id, &[]).ufid).unwrap().stats.packets;
        let turns = [0, 0, 0, 1, 1, 0, 2, 3, 3, 2, 0, 0];
        for id in turns {
            assert!(is_sent(id), "{id}");
        }
        for id in FLOWS {
            let expected = turns.iter().filter(|turn| **turn == id).count() as u64;
            assert_eq!(count(id), expected, "{id}");
            // Another packet without a flow, right after.
            assert!(is_sent(id) && !is_sent(id + 100), "{id}");
        }
        // The flow changes, and goes, right after its packet. (A last flow takes four packets, and
        // two more where the cache does not have the flow yet.)
        assert!((0..8).all(|_| is_sent(1)));
        bpf.replace(&megaflow(1, &[]), HookSet::all()).unwrap();
        assert!(!is_sent(1));
        bpf.replace(&megaflow(1, &[out()]), HookSet::all()).unwrap();
        assert!((0..8).all(|_| is_sent(1)));
        bpf.remove_many(&[megaflow(1, &[]).ufid], &mut |_, _| {});
        assert!(!is_sent(1));
        assert!((0..8).all(|_| is_sent(0)));
        bpf.set_port(PortNo(2), 1500, false);
        assert!(!is_sent(0));
        bpf.close(true);
    });
}

/// Has bpf(2) fail for this thread from now on.
fn without_bpf_calls() {
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let nr = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut code = [
        statement((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, nr),
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: libc::SYS_bpf as u32,
        },
        statement((libc::BPF_RET | libc::BPF_K) as u16, refuse),
        statement((libc::BPF_RET | libc::BPF_K) as u16, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: integers; it concerns this thread alone.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: a whole program, which the kernel copies; it concerns this thread alone.
    let done =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn flows_come_go_and_are_counted_without_bpf_calls() {
    const FLOWS: u32 = 400;
    in_namespace_as_root(|| {
        let bpf = open_with_ports(small());
        // A thread of its own: runs of programs are such calls, too.
        let changes = |change: &(dyn Fn() + Sync)| {
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    without_bpf_calls();
                    assert!(sys::value_map(64).is_err(), "they fail");
                    change();
                });
                thread.join().unwrap();
            });
        };
        changes(&|| {
            for id in 0..FLOWS {
                assert_eq!(bpf.install(&stamping(id, 0), HookSet::TC), Ok(HookSet::TC));
                assert_eq!(bpf.replace(&stamping(id, 1), HookSet::TC), Ok(HookSet::TC));
            }
        });
        let entry = bpf.program("entry_tc_ingress").unwrap();
        for id in 0..FLOWS {
            assert_eq!(run(entry, &frame(id)).data[..6], stamp(id, 1));
        }
        changes(&|| {
            let mut swept = 0;
            bpf.sweep(&mut |_, stats| swept += stats.packets);
            assert_eq!(swept, FLOWS.into());
            let ufids: Vec<Ufid> = (1..=FLOWS.into()).map(Ufid).collect();
            let mut last = 0;
            bpf.remove_many(&ufids, &mut |_, stats| last += stats.packets);
            assert_eq!(last, FLOWS.into());
        });
        assert_ne!(run(entry, &frame(7)).verdict, TC_ACT_REDIRECT);
        assert!(bpf.is_empty());
    });
}

#[test]
fn half_a_million_flows_are_held_and_run() {
    in_namespace_as_root(|| {
        const FLOWS: u32 = 512 << 10;
        let bpf = open_with_ports(Config { max_flows: FLOWS, max_masks: 256, ..Config::default() });
        let refused = |id: &u32| bpf.install(&megaflow(*id, &[out()]), HookSet::all()).is_err();
        let refused: Vec<u32> = (0..FLOWS).filter(refused).collect();
        // Three flows of one hash are one too many; there are 2^32 hashes.
        assert!(refused.len() <= 2, "{} are refused", refused.len());
        assert!(bpf.len() >= (FLOWS - 2) as usize);
        bpf.maintain();
        let entry = bpf.program("entry_tc_ingress").unwrap();
        for id in (0..FLOWS).step_by(997).filter(|id| !refused.contains(id)) {
            assert_eq!(run(entry, &frame(id)).verdict, TC_ACT_REDIRECT, "flow {id}");
        }
        // The second packet of a flow counts in the exact-match cache.
        (0..4).for_each(|_| bpf.maintain());
        let some: Vec<u32> = (0..FLOWS).step_by(997).filter(|id| !refused.contains(id)).collect();
        let counts = |packets: u64| {
            let mut sum = 0;
            bpf.sweep(&mut |_, stats| sum += stats.packets);
            assert_eq!(sum, packets * some.len() as u64);
        };
        counts(1);
        for times in 2..=4 {
            for id in &some {
                assert_eq!(run(entry, &frame(*id)).verdict, TC_ACT_REDIRECT, "flow {id}");
            }
            counts(times);
        }
        let mut last = Vec::new();
        let ufids: Vec<Ufid> = some.iter().map(|id| megaflow(*id, &[]).ufid).collect();
        bpf.remove_many(&ufids, &mut |_, stats| last.push(stats.packets));
        assert_eq!(last, vec![4; some.len()]);
        bpf.maintain();
        // The next users of the slots get none of these counts.
        for id in some.iter().skip(some.len() / 2) {
            bpf.install(&megaflow(FLOWS + id, &[out()]), HookSet::all()).unwrap();
        }
        run(entry, &frame(1));
        let mut sum = 0;
        bpf.sweep(&mut |_, stats| sum += stats.packets);
        assert_eq!(sum, 1);
        bpf.close(true);
    });
}

#[test]
fn what_nobody_goes_on_with_is_taken_away() {
    in_namespace_as_root(|| {
        let to = veth();
        let bpffs = BpfFs::new().expect("root may mount");
        let pins = bpffs.path().join("of/one");
        assert!(!datapath_bpf::discard(&pins).unwrap(), "there is nothing");
        let bpf = open(Config { pins: Some(pins.clone()), ..small() });
        bpf.attach(PortNo(2), &attachment(to)).unwrap();
        assert!(matches!(datapath_bpf::discard(&pins), Err(Unavailable::InUse(_))));
        bpf.close(false);
        drop(bpf);
        assert!(pins.exists());
        assert!(datapath_bpf::discard(&pins).unwrap());
        assert!(!pins.exists());
        // The hook is free, whatever kind it is.
        let qdiscs = tool("tc", "qdisc show dev va");
        assert!(!qdiscs.contains("clsact"), "{qdiscs}");
    });
}

/// Flows come, change and go while packets run; a packet is edited by the flow that it matches,
/// or by none.
#[test]
fn no_packet_meets_a_recycled_flow() {
    in_namespace_as_root(|| {
        let bpf = open_with_ports(small());
        const IDS: u32 = 1500;
        let (stop, ran, hit) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
        let end = Instant::now() + Duration::from_secs(8);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (bpf, stop) = (&bpf, &stop);
                scope.spawn(move || churn(bpf, thread * (IDS / 2), IDS / 2, stop));
            }
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    bpf.maintain();
                    bpf.sweep(&mut |_, _| {});
                }
            });
            let entry = bpf.program("entry_tc_ingress").unwrap();
            let mut rng = fastrand::Rng::with_seed(3);
            while Instant::now() < end {
                let id = rng.u32(..IDS);
                let sent = frame(id);
                let got = run(entry, &sent);
                ran.fetch_add(1, Ordering::Relaxed);
                if got.verdict != TC_ACT_REDIRECT {
                    assert_eq!(got.data[..], sent[..], "a packet that no flow took was changed");
                    continue;
                }
                hit.fetch_add(1, Ordering::Relaxed);
                let mark: [u8; 6] = got.data[..6].try_into().unwrap();
                assert!(
                    mark == stamp(id, 0) || mark == stamp(id, 1),
                    "a packet for flow {id} met another one: {mark:x?}"
                );
            }
            stop.store(true, Ordering::Relaxed);
        });
        let (ran, hit) = (ran.into_inner(), hit.into_inner());
        eprintln!("{ran} packets, {hit} met a flow");
        assert!(hit > ran / 10, "{hit} of {ran}");
    });
}

/// Installs, replaces and removes flows `from..from + count` until `stop` is set. Adds up the
/// counts of each flow; a slot that was freed too early would count for another flow.
fn churn(bpf: &BpfDatapath, from: u32, count: u32, stop: &AtomicBool) {
    let mut rng = fastrand::Rng::with_seed(from.into());
    while !stop.load(Ordering::Relaxed) {
        let some: Vec<u32> = (0..64).map(|_| from + rng.u32(..count)).collect();
        for id in &some {
            match bpf.install(&stamping(*id, 0), HookSet::TC) {
                Ok(_) | Err(Refusal::Exists | Refusal::TableFull) => {}
                Err(e) => panic!("{e}"),
            }
            if rng.bool() {
                let _ = bpf.replace(&stamping(*id, rng.u8(..2)), HookSet::TC);
            }
        }
        let ufids: Vec<Ufid> =
            (0..32).map(|_| Ufid(u128::from(from + rng.u32(..count)) + 1)).collect();
        bpf.remove_many(&ufids, &mut |_, _| {});
    }
}

/// Processor time of this thread: others may use the processor, too.
fn spent() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that the kernel may fill.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Figures: installs a second, a sweep, a grace period.
#[test]
#[ignore = "figures; run alone and optimised"]
fn figures() {
    in_namespace_as_root(|| {
        let bpf = open_with_ports(Config::default());
        let flows: Vec<Megaflow> = (0..262_144).map(|id| megaflow(id, &[out()])).collect();
        let start = Instant::now();
        let before = spent();
        let full = flows.iter().filter(|f| bpf.install(f, HookSet::all()).is_err()).count();
        let (took, busy) = (start.elapsed(), spent() - before);
        let rate = flows.len() as f64 / busy.as_secs_f64();
        eprintln!(
            "{} installs in {took:?}, {busy:?} of processor time: {rate:.0} a second; \
             {full} refused",
            flows.len()
        );
        for _ in 0..3 {
            let start = Instant::now();
            let mut seen = 0;
            bpf.sweep(&mut |_, _| seen += 1);
            eprintln!("sweep of {seen} flows: {:?}", start.elapsed());
        }
        let grace = grace::Grace::new().unwrap();
        let start = Instant::now();
        (0..20).for_each(|_| grace.wait().unwrap());
        eprintln!("grace period: {:?}", start.elapsed() / 20);
        let start = Instant::now();
        bpf.maintain();
        bpf.maintain();
        eprintln!("choosing a variant: {:?}", start.elapsed());
        let entry = bpf.program("entry_tc_ingress").unwrap();
        let one = sys::run(entry, &frame(7), &[], 1_000_000).unwrap();
        eprintln!("a packet of one flow: {} ns", one.nanoseconds);
        let start = Instant::now();
        let ufids: Vec<Ufid> = flows.iter().map(|f| f.ufid).collect();
        bpf.remove_many(&ufids, &mut |_, _| {});
        eprintln!("removal of all: {:?}", start.elapsed());
        let start = Instant::now();
        bpf.maintain();
        eprintln!("reclamation of all: {:?}", start.elapsed());
    });
}

/// Figures: a packet to a bond against one to a port, and many connections by one megaflow against a
/// megaflow for each.
#[test]
#[ignore = "figures; run alone and optimised"]
fn figures_of_a_bond() {
    const CONNECTIONS: u32 = 65_536;
    in_namespace_as_root(|| {
        let bpf = open_with_ports(Config::default());
        let table = BondTable::new(7, [PortNo(2)], |_| Some(PortNo(2)));
        bpf.set_bond(2, &table).unwrap();
        let frames: Vec<Vec<u8>> = (0..CONNECTIONS).map(frame).collect();
        let figures = |name: &str, flows: &[Megaflow]| {
            for flow in flows {
                bpf.install(flow, HookSet::all()).unwrap();
            }
            (0..2).for_each(|_| bpf.maintain());
            let entry = bpf.program("entry_tc_ingress").unwrap();
            let one = || sys::run(entry, &frames[7], &[], 1_000_000).unwrap().nanoseconds;
            let one = (0..5).map(|_| one()).min().unwrap();
            let all = || -> u64 {
                frames.iter().map(|f| u64::from(run(entry, f).nanoseconds)).sum::<u64>()
            };
            let all = (0..5).map(|_| all()).min().unwrap() / u64::from(CONNECTIONS);
            eprintln!("{name}: the same packet {one} ns, one of each connection {all} ns");
            let ufids: Vec<Ufid> = flows.iter().map(|f| f.ufid).collect();
            bpf.remove_many(&ufids, &mut |_, _| {});
            (0..2).for_each(|_| bpf.maintain());
        };
        let wide = |actions: &[Action]| {
            let mut matching = Match::ANY;
            matching.set(Field::InPort, 1);
            matching.set(Field::RecircId, 0);
            matching.set(Field::EthType, 0x800);
            Megaflow { ufid: Ufid(1), matching, actions: Actions::from(actions) }
        };
        let each: Vec<Megaflow> = (0..CONNECTIONS).map(|id| megaflow(id, &[out()])).collect();
        for _ in 0..2 {
            figures("one megaflow, to a port", &[wide(&[out()])]);
            figures("one megaflow, to a bond", &[wide(&[Action::LbOutput(2)])]);
            figures("a megaflow for each connection, to a port", &each);
        }
    });
}
