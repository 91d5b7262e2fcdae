// SPDX-License-Identifier: Apache-2.0
//! Datapath actions on packets, malformed ones included: the model and the userspace datapath do the
//! same, and sent packets have right checksums where received ones had them.
//!
//! The input is three lists of actions (for packets from a port, and for two recirculation ids)
//! and a packet.

use crate::input::Input;
use clock::Clock;
use datapath::{
    Action, Datapath, DropReason, Masked, Megaflow, PortKind, PortNo, PortSpec, Set, Ufid, Userdata,
};
use datapath_model::Model;
use datapath_userspace::{Config, UserspaceDatapath};
use flow::{Field, Match};
use netdev::dummy::Dummy;
use packet::{Gso, Packet};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports, numbered from 1; the first carries large packets.
const PORTS: u32 = 2;
const MTUS: [u32; PORTS as usize] = [9000, 1500];
/// Lists of actions: for packets from outside, and for recirculation ids 1 and 2.
const LISTS: u32 = 3;
/// Bytes of a capture file after which a new one is begun.
const CAPTURE_LIMIT: u64 = 16 << 20;

/// All that can be seen of one run.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    sent: Vec<Vec<Vec<u8>>>,
    flows: Vec<(Ufid, u64, u64, u16)>,
    drops: Vec<(DropReason, u64)>,
}

impl Outcome {
    /// Whether a frame was sent that only fits because a service tag has room in addition to the MTU.
    /// Dummies, as those of OVS, have room for a customer tag only.
    fn has_long_service_tag(&self) -> bool {
        self.sent.iter().zip(MTUS).any(|(frames, mtu)| {
            let is_long = |f: &Vec<u8>| f.len() > mtu as usize + 14;
            frames.iter().any(|f| is_long(f) && f.get(12..14) == Some(&[0x88, 0xa8]))
        })
    }
}

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let lists: Vec<Vec<Action>> = (0..LISTS).map(|id| list(&mut input, id, 0)).collect();
    let packet = packet(input);
    let flows: Vec<Megaflow> = lists.into_iter().zip(0..).map(|(l, id)| megaflow(l, id)).collect();
    let expected = model(&flows, &packet);
    let actual = USERSPACE.with_borrow_mut(|u| {
        let userspace = u.get_or_insert_with(Userspace::new);
        let outcome = userspace.play(&flows, &packet);
        if userspace.is_full() {
            *u = None;
        }
        outcome
    });
    if !expected.has_long_service_tag() {
        assert_eq!(actual, expected, "{}\n{packet:?}", shown(&flows));
    }
}

fn shown(flows: &[Megaflow]) -> String {
    let texts = flows.iter().map(|f| datapath::text::format_plain(&f.actions));
    texts.collect::<Vec<_>>().join("\n")
}

fn megaflow(actions: Vec<Action>, recirc_id: u32) -> Megaflow {
    let mut matching = Match::ANY;
    matching.set(Field::InPort, 1);
    matching.set(Field::RecircId, recirc_id.into());
    Megaflow { ufid: Ufid(recirc_id.into()), matching, actions: actions.into() }
}

fn packet(mut input: Input<'_>) -> Packet {
    let (offload, size) = (input.byte(), input.short());
    let mut packet = Packet::from_slice(input.rest());
    // No device takes less than a header.
    packet.resize(packet.len().max(14));
    // Metadata from a device is checked on arrival; here it is as after that check.
    if offload & 1 == 1 && netdev::finish::recognise_unfinished(&mut packet) && offload & 2 == 2 {
        let kind = if offload & 4 == 0 { Gso::TcpV4 } else { Gso::TcpV6 };
        let header = virtio_header(&packet, kind, size | 1);
        if let Some(found) = netdev::tap::decode_offload(&header, packet.data(), 0) {
            packet.offload = found;
        }
    }
    packet
}

/// `struct virtio_net_hdr`, by include/uapi/linux/virtio_net.h.
fn virtio_header(packet: &Packet, kind: Gso, size: u16) -> [u8; 10] {
    let mut header = [0; 10];
    let (start, offset) = packet.offload.csum.unwrap_or_default();
    header[0] = 1; // VIRTIO_NET_HDR_F_NEEDS_CSUM
    header[1] = if kind == Gso::TcpV4 { 1 } else { 4 };
    header[4..6].copy_from_slice(&size.to_ne_bytes());
    header[6..8].copy_from_slice(&start.to_ne_bytes());
    header[8..10].copy_from_slice(&offset.to_ne_bytes());
    header
}

fn model(flows: &[Megaflow], packet: &Packet) -> Outcome {
    let clock = Clock::new();
    clock.stop();
    let model = Model::new("model", clock, 16, 1);
    for (n, mtu) in (1..).zip(MTUS) {
        let spec = PortSpec { name: format!("m{n}"), mtu: Some(mtu), ..dummy() };
        datapath::Ports::add_port(&*model, &spec).expect("a port of the model");
    }
    let before = drops(&*model);
    flows.iter().for_each(|f| datapath::Flows::install(&*model, f).expect("room"));
    datapath::Packets::inject(&*model, packet.clone(), PortNo(1));
    let sent =
        (1..=PORTS).map(|p| model.take_sent(PortNo(p)).iter().map(|p| p.data().to_vec()).collect());
    let sent = sent.collect();
    outcome(&*model, sent, before)
}

fn dummy() -> PortSpec {
    PortSpec { kind: PortKind::Dummy, ..PortSpec::default() }
}

fn drops(dp: &dyn Datapath) -> Vec<u64> {
    DropReason::ALL.iter().map(|reason| dp.drops(*reason)).collect()
}

fn outcome(dp: &dyn Datapath, sent: Vec<Vec<Vec<u8>>>, before: Vec<u64>) -> Outcome {
    let mut flows = Vec::new();
    dp.sweep(&mut |ufid, s| flows.push((ufid, s.packets, s.bytes, s.tcp_flags)));
    flows.sort();
    let drops = drops(dp).into_iter().zip(before).map(|(now, then)| now - then);
    Outcome { sent, flows, drops: DropReason::ALL.into_iter().zip(drops).collect() }
}

thread_local! {
    static USERSPACE: RefCell<Option<Userspace>> = const { RefCell::new(None) };
}

/// The userspace datapath, whose ports write what they send into files. Its flows go after each
/// run.
struct Userspace {
    datapath: Arc<dyn Datapath>,
    port: Arc<Dummy>,
    captures: Vec<(File, u64)>,
}

impl Userspace {
    fn new() -> Userspace {
        // Dummies are found by name in the whole process.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let clock = Clock::new();
        clock.stop();
        let config = Config { max_flows: 16, cache_entries: 16, ..Config::default() };
        let datapath: Arc<dyn Datapath> = UserspaceDatapath::new("netdev@fuzz", clock, config);
        let prefix = format!("z{}p", NEXT.fetch_add(1, Ordering::Relaxed));
        // The files stay open; their names go at once.
        let directory = testing::directory();
        let captures = (1..).zip(MTUS).map(|(n, mtu)| {
            let name = format!("{prefix}{n}");
            let file = directory.path().join(&name);
            let options = [("tx_pcap".to_owned(), file.to_string_lossy().into_owned())].into();
            let spec = PortSpec { name, mtu: Some(mtu), options, ..dummy() };
            datapath.add_port(&spec).expect("a dummy port");
            // After the header of the file.
            (File::open(file).expect("the capture file is there"), 24)
        });
        let captures = captures.collect();
        let port = netdev::dummy::lookup(&format!("{prefix}1")).expect("it was just added");
        Userspace { datapath, port, captures }
    }

    fn play(&mut self, flows: &[Megaflow], packet: &Packet) -> Outcome {
        let before = drops(&*self.datapath);
        flows.iter().for_each(|f| self.datapath.install(f).expect("room"));
        self.port.receive(0, vec![packet.clone()]);
        let sent = self.captures.iter_mut().map(captured).collect();
        let outcome = outcome(&*self.datapath, sent, before);
        self.datapath.flush();
        outcome
    }

    fn is_full(&self) -> bool {
        self.captures.iter().any(|(_, read)| *read > CAPTURE_LIMIT)
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        self.datapath.shutdown();
    }
}

/// Returns the frames of a capture file after the part that was read.
fn captured((file, read): &mut (File, u64)) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut header = [0; 16];
    while file.read_exact_at(&mut header, *read).is_ok() {
        let [.., l0, l1, l2, l3, _, _, _, _] = header;
        let mut frame = vec![0; u32::from_ne_bytes([l0, l1, l2, l3]) as usize];
        file.read_exact_at(&mut frame, *read + 16).expect("frames are written whole");
        *read += 16 + frame.len() as u64;
        frames.push(frame);
    }
    frames
}

/// Actions for packets with recirculation id `id`. They recirculate only to higher ids.
pub fn list(input: &mut Input<'_>, id: u32, depth: usize) -> Vec<Action> {
    let n = input.below(if depth == 0 { 9 } else { 4 });
    (0..n).map(|_| action(input, id, depth)).collect()
}

fn action(input: &mut Input<'_>, id: u32, depth: usize) -> Action {
    let nested = |input: &mut Input<'_>| list(input, id, depth + 1);
    match input.below(32) {
        0 => Action::PushVlan { tpid: input.choose(&[0x8100, 0x88a8]), tci: input.short() },
        1 => Action::PopVlan,
        2 => Action::PushMpls { lse: input.word(), ethertype: input.choose(&[0x8847, 0x8848]) },
        3 => Action::PopMpls { ethertype: input.choose(&[0x0800, 0x86dd, 0x8847, 0x1234]) },
        4 => Action::Recirc((id + 1).max(u32::from(input.byte() & 3))),
        5 => Action::Hash { symmetric: input.flag(), basis: u32::from(input.byte()) },
        6 => Action::Trunc(14 + u32::from(input.byte())),
        7 => Action::Userspace(Userdata::SlowPath { reason: "action" }),
        8 if depth < 2 => Action::Clone(nested(input)),
        9 if depth < 2 => {
            let probability = if input.flag() { u32::MAX } else { 0 };
            Action::Sample { probability, actions: nested(input) }
        }
        10 if depth < 2 => Action::CheckPktLen {
            len: u16::from(input.byte()),
            greater: nested(input),
            not_greater: nested(input),
        },
        11..=14 => Action::Output(PortNo(1 + input.below(3) as u32)), // below 3; there are 2
        _ => Action::Set(set(input)),
    }
}

fn masked<const N: usize>(input: &mut Input<'_>) -> Masked<[u8; N]> {
    let mask: [u8; N] = match input.below(3) {
        0 => [0; N],
        1 => [0xff; N],
        _ => input.array(),
    };
    let mut value: [u8; N] = input.array();
    value.iter_mut().zip(mask).for_each(|(v, m)| *v &= m);
    Masked { value, mask }
}

fn byte(input: &mut Input<'_>) -> Masked<u8> {
    let Masked { value: [value], mask: [mask] } = masked(input);
    Masked { value, mask }
}

fn short(input: &mut Input<'_>) -> Masked<u16> {
    let Masked { value, mask } = masked(input);
    Masked { value: u16::from_be_bytes(value), mask: u16::from_be_bytes(mask) }
}

fn word(input: &mut Input<'_>, bits: u32) -> Masked<u32> {
    let Masked { value, mask } = masked(input);
    Masked { value: u32::from_be_bytes(value) & bits, mask: u32::from_be_bytes(mask) & bits }
}

fn set(input: &mut Input<'_>) -> Set {
    match input.below(13) {
        0 => Set::Ethernet { src: masked(input), dst: masked(input) },
        1 => {
            Set::Ipv4 { src: masked(input), dst: masked(input), tos: byte(input), ttl: byte(input) }
        }
        2 => Set::Ipv6 {
            src: masked(input),
            dst: masked(input),
            label: word(input, 0xf_ffff),
            tclass: byte(input),
            hlimit: byte(input),
        },
        3 => Set::Tcp { src: short(input), dst: short(input) },
        4 => Set::Udp { src: short(input), dst: short(input) },
        5 => Set::Sctp { src: short(input), dst: short(input) },
        6 => Set::Icmp { kind: byte(input), code: byte(input), v6: input.flag() },
        7 => Set::Arp {
            op: short(input),
            spa: masked(input),
            tpa: masked(input),
            sha: masked(input),
            tha: masked(input),
        },
        8 => Set::Nd { target: masked(input), sll: masked(input), tll: masked(input) },
        9 => Set::NdExtensions { reserved: word(input, u32::MAX), options_type: byte(input) },
        10 => Set::Mpls(word(input, u32::MAX)),
        11 => Set::Priority(input.word()),
        _ => Set::Mark(word(input, u32::MAX)),
    }
}
