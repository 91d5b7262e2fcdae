// SPDX-License-Identifier: Apache-2.0
//! The BPF programs in this kernel: test runs over packets, and the guard at real changes.
//! Test runs have the loopback device, whose number is 1, as their device.

use datapath_bpf::sys;
use datapath_tc::act::{Act, Direction, Edit, Layer, checksum};
use datapath_tc::keys::{Key, Keys};
use libbpf_rs::{MapCore as _, MapFlags, ObjectBuilder};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;
use xdp_flow::effect::Targets;
use xdp_flow::plan::Plan;
use xdp_flow::program::{Error, Guard, Program};
use xdp_flow::reader::{Body, Place, TcFilter};

#[path = "support/object.rs"]
mod object;
use object::compile;

const PASS: u32 = 2;
const DROP: u32 = 1;
const REDIRECT: u32 = 4;

struct Long;

impl Targets for Long {
    fn longest(&self, _: u32) -> Result<u32, String> {
        Ok(1518)
    }
}

fn send(ifindex: u32) -> Act {
    Act::Send { ifindex, direction: Direction::Egress, last: true }
}

fn filter(protocol: u16, priority: u16, keys: Keys, acts: Vec<Act>) -> TcFilter {
    TcFilter {
        place: Place { chain: 0, priority, handle: 1 },
        protocol,
        kind: "flower".into(),
        body: Body::Flower { keys, unknown: None, acts: Some(acts), in_hw: false },
        packets: 0,
        bytes: 0,
    }
}

/// Keys of IPv4 to an address.
fn to(address: u8) -> Keys {
    let mut keys = Keys::default();
    keys.exact(Key::EthType, [0x08, 0x00]);
    keys.exact(Key::Ipv4Dst, [10, 0, 0, address]);
    keys
}

/// Ones' complement sum of big-endian words.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A UDP packet with right checksums, after these tags.
fn udp(tags: &[[u8; 4]], address: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(tags.iter().flatten());
    frame.extend([0x08, 0x00]);
    let mut ip = vec![0x45, 0, 0, 36, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, address];
    let check = !sum(&ip);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    let mut udp = vec![0, 7, 0, 9, 0, 16, 0, 0];
    udp.extend(b"payload!");
    let check = !sum(&[&ip[12..20], &[0, 17, 0, 16], &udp].concat());
    udp[6..8].copy_from_slice(&check.to_be_bytes());
    frame.extend(ip);
    frame.extend(udp);
    frame
}

fn loaded(filters: &[TcFilter]) -> Option<Program> {
    if testing::without_root() {
        return None;
    }
    let mut program = Program::load(Guard::StaleOk).expect("the programs load");
    let plan = Plan::new(filters, &Long, Program::ROOM);
    program.suspend().unwrap();
    program.install(&[(1, &plan)]).unwrap();
    program.acknowledge(program.changes());
    program.set_deadline(u64::MAX);
    Some(program)
}

/// Verdict, and the frame afterwards.
fn run(program: &Program, frame: &[u8]) -> (u32, Vec<u8>) {
    let fd = program.fd().unwrap();
    let out = sys::run(fd.as_fd(), frame, &[], 1).expect("a test run");
    (out.verdict, out.data)
}

#[test]
fn the_first_filter_decides() {
    let mut ip = Keys::default();
    ip.exact(Key::EthType, [0x08, 0x00]);
    let filters = [
        filter(0x0800, 1, to(2), vec![Act::Drop]),
        filter(0x0800, 2, to(3), vec![Act::ToHost]),
        filter(0x0800, 3, to(4), vec![send(7)]),
        filter(3, 4, ip, vec![send(8)]),
    ];
    let Some(program) = loaded(&filters) else { return };
    assert_eq!(run(&program, &udp(&[], 2)).0, DROP);
    assert_eq!(run(&program, &udp(&[], 3)).0, PASS);
    assert_eq!(run(&program, &udp(&[], 4)), (REDIRECT, udp(&[], 4)));
    assert_eq!(run(&program, &udp(&[], 5)).0, REDIRECT);
    let counts: Vec<u64> = (0..4).map(|n| program.counts(n).unwrap().packets).collect();
    assert_eq!(counts, [1, 0, 1, 1]);
    assert_eq!(program.counts(2).unwrap().bytes, 36);
    // Fragments, options, other IP protocols, and frames that are cut short or too long.
    for (at, byte) in [(20, 0x20), (14, 0x46), (23, 47)] {
        let mut frame = udp(&[], 4);
        frame[at] = byte;
        assert_eq!(run(&program, &frame).0, PASS, "byte {at}");
    }
    for length in 14..42 {
        assert_eq!(run(&program, &udp(&[], 4)[..length]).0, PASS, "{length}");
    }
    let mut long = udp(&[], 4);
    long.resize(1519, 0);
    assert_eq!(run(&program, &long).0, PASS);
    long.pop();
    assert_eq!(run(&program, &long).0, REDIRECT);
}

#[test]
fn without_acknowledgement_or_heartbeat_all_packets_pass() {
    let Some(program) = loaded(&[filter(0x0800, 1, to(2), vec![Act::Drop])]) else { return };
    let verdict = || run(&program, &udp(&[], 2)).0;
    assert_eq!(verdict(), DROP);
    program.suspend().unwrap();
    assert_eq!(verdict(), PASS);
    program.acknowledge(program.changes());
    assert_eq!(verdict(), DROP);
    program.set_deadline(1);
    assert_eq!(verdict(), PASS);
    program.set_deadline(u64::MAX);
    program.set_refresh(5_000_000_000);
    let outcomes = program.outcomes(0).unwrap();
    // The first packet in five seconds is left to traffic control, and the next is not.
    assert_eq!(run(&program, &udp(&[], 2)).0, PASS);
    assert_eq!(run(&program, &udp(&[], 2)).0, DROP);
    assert_eq!(outcomes[..4], [2, 1, 1, 0]);
    assert_eq!(program.outcomes(0).unwrap()[6], 1);
}

#[test]
fn tags_are_compared_taken_off_and_put_on() {
    let five = [0x81, 0, 0x60, 5];
    let mut tagged = Keys::default();
    tagged.exact(Key::VlanId, 5u16.to_ne_bytes());
    tagged.exact(Key::VlanPrio, [3]);
    tagged.exact(Key::VlanEthType, [0x08, 0x00]);
    tagged.exact(Key::EthType, [0x08, 0x00]);
    let push = Act::PushVlan { tpid: 0x88a8, vid: 9, priority: 1 };
    let filters = [
        filter(0x8100, 1, tagged, vec![Act::PopVlan, send(7)]),
        filter(0x0800, 2, to(2), vec![push.clone(), send(7)]),
        filter(0x0800, 3, to(3), vec![Act::PopVlan, push.clone(), push, send(7)]),
    ];
    let Some(program) = loaded(&filters) else { return };
    assert_eq!(run(&program, &udp(&[five], 2)), (REDIRECT, udp(&[], 2)));
    for other in [[0x81, 0, 0x60, 6], [0x81, 0, 0x40, 5], [0x88, 0xa8, 0x60, 5]] {
        assert_eq!(run(&program, &udp(&[other], 2)), (PASS, udp(&[other], 2)));
    }
    let nine = [0x88, 0xa8, 0x20, 9];
    assert_eq!(run(&program, &udp(&[], 2)), (REDIRECT, udp(&[nine], 2)));
    assert_eq!(run(&program, &udp(&[], 3)), (REDIRECT, udp(&[nine, nine], 3)));
}

#[test]
fn edits_keep_checksums_right() {
    let edits = vec![
        Edit { layer: Layer::Ethernet, offset: 0, value: [6, 6, 6, 6], mask: [0xff; 4] },
        Edit { layer: Layer::Ipv4, offset: 16, value: [10, 0, 0, 77], mask: [0xff; 4] },
        Edit { layer: Layer::Ipv4, offset: 8, value: [9, 0, 0, 0], mask: [0xff, 0, 0, 0] },
        Edit { layer: Layer::Udp, offset: 0, value: [0, 0, 1, 2], mask: [0, 0, 0xff, 0xff] },
    ];
    let mut keys = to(2);
    keys.exact(Key::IpProto, [17]);
    let sums = Act::Checksum(checksum::IPV4 | checksum::UDP);
    let acts = vec![Act::Edit(edits), sums, send(7)];
    let Some(program) = loaded(&[filter(0x0800, 1, keys, acts)]) else { return };
    let (verdict, frame) = run(&program, &udp(&[], 2));
    assert_eq!(verdict, REDIRECT);
    assert_eq!(frame[..6], [6, 6, 6, 6, 0, 1]);
    let (ip, udp) = (&frame[14..34], &frame[34..50]);
    assert_eq!((ip[8], ip[19], &udp[2..4]), (9, 77, &[1, 2][..]));
    assert_eq!(sum(ip), 0xffff, "of IPv4");
    assert_eq!(sum(&[&ip[12..20], &[0, 17, 0, 16], udp].concat()), 0xffff, "of UDP");
    assert_eq!(program.counts(0).unwrap().packets, 1);
    // The kernel drops such packets or takes their checksums away, and counts them.
    let wrong: [(&[(usize, u8)], &str); 4] = [
        (&[(17, 37)], "IP is longer than the frame"),
        (&[(17, 27)], "IP ends within UDP"),
        (&[(39, 15)], "UDP is shorter than IP"),
        (&[(39, 17)], "UDP is longer than IP"),
    ];
    for (changes, words) in wrong {
        let mut frame = self::udp(&[], 2);
        changes.iter().for_each(|(at, byte)| frame[*at] = *byte);
        assert_eq!(run(&program, &frame), (PASS, frame), "{words}");
    }
    assert_eq!(program.counts(0).unwrap().packets, 1, "none is counted here as well");
    assert_eq!(program.outcomes(0).unwrap()[8], 4);
    // Bytes after the packet do not matter.
    let mut padded = self::udp(&[], 2);
    padded.resize(60, 0xff);
    assert_eq!(run(&program, &padded).0, REDIRECT);
}

/// Runs the program in a frame without room in front.
const NARROW: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tails SEC(".maps");
SEC("xdp") int narrow(struct xdp_md *ctx)
{
	__u32 moved = 0;
	for (int i = 0; i < 128; i++) {
		if (bpf_xdp_adjust_head(ctx, -4))
			break;
		moved += 4;
	}
	unsigned char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (moved > 512 || data + moved + 50 > end)
		return XDP_ABORTED;
	unsigned char *from = data + moved;
	for (int i = 0; i < 50; i++)
		data[i] = from[i];
	if (bpf_xdp_adjust_tail(ctx, -(int)moved))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &tails, 0);
	return XDP_ABORTED;
}
char _license[] SEC("license") = "GPL";
"#;

#[test]
fn without_room_for_a_tag_a_packet_is_left_to_traffic_control() {
    let push = Act::PushVlan { tpid: 0x8100, vid: 9, priority: 1 };
    let edit = Edit { layer: Layer::Ethernet, offset: 0, value: [6; 4], mask: [0xff; 4] };
    let acts = vec![Act::Edit(vec![edit]), push, send(7)];
    let Some(program) = loaded(&[filter(0x0800, 1, to(2), acts)]) else { return };
    assert_eq!(run(&program, &udp(&[], 2)).0, REDIRECT);
    let object = compile(NARROW);
    let object = ObjectBuilder::default().open_memory(&object).expect("an object");
    let object = object.load().expect("the kernel takes the program");
    let tails = object.maps().next().expect("a map");
    let inner = program.fd().unwrap();
    tails.update(&[0; 4], &inner.as_raw_fd().to_ne_bytes(), MapFlags::ANY).expect("a tail call");
    let narrow = object.progs().next().expect("a program");
    let out = sys::run(narrow.as_fd(), &udp(&[], 2), &[], 1).expect("a test run");
    assert_eq!((out.verdict, out.data), (PASS, udp(&[], 2)));
    assert_eq!(program.outcomes(0).unwrap()[9], 1);
}

#[test]
fn the_guard_counts_changes_when_they_begin_and_when_they_end() {
    if testing::without_privilege() {
        return;
    }
    let program = match Program::load(Guard::Needed) {
        Ok(program) => program,
        // Also root may be forbidden to trace the kernel.
        Err(error @ Error::Guard(_)) if error.to_string().contains("not permitted") => {
            return testing::skip(&error.to_string());
        }
        Err(error) => panic!("{error}"),
    };
    let netns = testing::Netns::new();
    // Other programs change filters, too.
    let changes = || {
        let mut found = program.changes();
        let is_at_rest = testing::wait_until(Duration::from_secs(10), || {
            found = program.changes();
            found.begun == found.done
        });
        assert!(is_at_rest, "changes end: {found:?}");
        found
    };
    let changes_by = |line: &str| {
        let before = changes();
        program.acknowledge(before);
        netns.run(line);
        assert!(!program.is_current(), "{line}");
        changes().done - before.done
    };
    assert!(changes_by("tc qdisc add dev lo clsact") >= 1);
    // The kernel counts the attempt where it has no such classifier.
    assert!(
        changes_by("tc filter add dev lo ingress pref 1 protocol all matchall action drop") >= 1
    );
    assert!(changes_by("tc filter del dev lo ingress pref 1") >= 1);
    assert!(changes_by("tc qdisc del dev lo clsact") >= 1);
}
