// SPDX-License-Identifier: Apache-2.0
//! The `ct` action on conversations: helpers of FTP and TFTP, address translation, ICMP errors.
//!
//! The input is settings and then steps. A step is a request and a packet: a message of a control
//! connection, a reply to the packet before it, an error about it, any bytes, or time that passes.

use crate::input::Input;
use conntrack::{
    ChecksumState, Checksums, Commit, Family, Helper, IpPacket, Manip, Memory, Metadata, Nat,
    NatRange, NoBarrier, OutOfMemory, PlainMemory, Ports, Request, Selection, Sizes, Sweeper,
    Table, Ticks, Tracker, Tuple, ct_state, extract, layout,
};
use packet::TcpHeader;
use packet::build::Frame;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Most steps of an input.
const STEPS: usize = 24;
/// Bytes of the Ethernet header that frames begin with.
const ETHERNET: usize = 14;
const SIZES: Sizes =
    Sizes { buckets: 64, max_buckets: 64, chunk_conns: 64, chunks: 1, ring_slots: 16 };

/// Extensions that an input can use, and more.
const EXTENSIONS: usize = 64;

/// Plain memory with one zone and few extensions, because a table and its sweeper read all of them.
#[derive(Debug)]
struct Small(PlainMemory);

impl Memory for Small {
    fn config(&self) -> &[AtomicU64] {
        self.0.config()
    }
    fn zones(&self) -> &[AtomicU64] {
        &self.0.zones()[..layout::zone::WORDS]
    }
    fn policies(&self) -> &[AtomicU64] {
        self.0.policies()
    }
    fn extensions(&self) -> &[AtomicU64] {
        &self.0.extensions()[..EXTENSIONS * layout::extension::WORDS]
    }
    fn ring(&self, number: usize) -> &[AtomicU64] {
        self.0.ring(number)
    }
    fn index(&self, generation: u8) -> Option<&[AtomicU64]> {
        self.0.index(generation)
    }
    fn chunk(&self, number: usize) -> Option<&[AtomicU64]> {
        self.0.chunk(number)
    }
    fn add_chunk(&self, number: usize) -> Result<(), OutOfMemory> {
        self.0.add_chunk(number)
    }
    fn add_index(&self, generation: u8) -> Result<(), OutOfMemory> {
        self.0.add_index(generation)
    }
    fn retire_index(&self, generation: u8) {
        self.0.retire_index(generation);
    }
}

/// The peers of a conversation, by family.
fn peers(family: Family) -> [IpAddr; 2] {
    match family {
        Family::V4 => [Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into()],
        Family::V6 => ["fc00::1", "fc00::2"].map(|address| address.parse().expect("an address")),
    }
}

/// The packet of the last step, as it left.
struct Last {
    family: Family,
    bytes: Vec<u8>,
}

struct Conversation {
    family: Family,
    /// Next sequence numbers of client and server.
    seq: [u32; 2],
    last: Option<Last>,
}

/// Returns a frame with both addresses, which are of one family.
fn frame(src: IpAddr, dst: IpAddr) -> Frame {
    let ether = Frame::ethernet([2; 6], [4; 6]);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => ether.ipv4(src, dst, 64),
        (IpAddr::V6(src), IpAddr::V6(dst)) => ether.ipv6(src, dst, 64),
        _ => unreachable!("tuples are of one family"),
    }
}

fn ip(frame: Frame) -> Vec<u8> {
    frame.finish()[ETHERNET..].to_vec()
}

impl Conversation {
    /// Returns a TCP segment of the client (0) or the server (1).
    fn segment(&mut self, tuple: &Tuple, sender: usize, flags: u16, data: &[u8]) -> Vec<u8> {
        let Ports::Pair { src, dst } = tuple.ports else { return Vec::new() };
        let header = TcpHeader {
            src: src.into(),
            dst: dst.into(),
            seq: self.seq[sender].into(),
            ack: self.seq[1 - sender].into(),
            offset_flags: (5 << 12 | flags & 0xfff).into(),
            window: u16::MAX.into(),
            checksum: 0u16.into(),
            urgent: 0u16.into(),
        };
        let more = data.len() as u32 + u32::from(flags & 3 != 0); // SYN and FIN count
        self.seq[sender] = self.seq[sender].wrapping_add(more);
        ip(frame(tuple.src, tuple.dst).tcp_header(header).payload(data))
    }

    /// Returns the packet of a step. `None`: the step has none.
    fn packet(&mut self, input: &mut Input<'_>) -> Option<(Family, Vec<u8>)> {
        let [client, server] = peers(self.family);
        let tuple = |sport, dport| Tuple {
            src: client,
            dst: server,
            ports: Ports::Pair { src: sport, dst: dport },
            proto: packet::ip_proto::TCP,
            zone: 0,
        };
        let bytes = match input.below(8) {
            0 => return Some((Family::V4, input.counted().to_vec())),
            1 => return Some((Family::V6, input.counted().to_vec())),
            2 => {
                let flags = input.choose(&[0x02, 0x10, 0x18, 0x18, 0x11, 0x04]);
                self.segment(&tuple(40_000, 21), 0, flags, input.counted())
            }
            3 => {
                let flags = input.choose(&[0x12, 0x10, 0x18, 0x18, 0x11, 0x04]);
                let answered = self.answered()?;
                self.segment(&answered, 1, flags, input.counted())
            }
            4 => ip(frame(client, server).udp(40_001, 69).payload(input.counted())),
            5 => self.error()?,
            6 => {
                let Tuple { src, dst, ports, proto, .. } = self.answered()?;
                match ports {
                    Ports::Pair { src: sport, dst: dport } if proto == packet::ip_proto::UDP => {
                        let sport = if input.flag() { input.short() } else { sport };
                        ip(frame(src, dst).udp(sport, dport).payload(input.counted()))
                    }
                    Ports::Pair { .. } => {
                        // The data connection of FTP, to the port that was announced.
                        let ports = Ports::Pair { src: 20, dst: input.short() };
                        let data = Tuple { src, dst, ports, proto, zone: 0 };
                        self.segment(&data, 1, 0x02, &[])
                    }
                    Ports::Icmp(icmp) => match src {
                        IpAddr::V4(_) => ip(frame(src, dst).icmp(0, 0, u32::from(icmp.id) << 16)),
                        IpAddr::V6(_) => {
                            ip(frame(src, dst).icmpv6(129, 0, u32::from(icmp.id) << 16))
                        }
                    },
                }
            }
            _ => {
                let id = u32::from(input.short()) << 16;
                ip(match self.family {
                    Family::V4 => frame(client, server).icmp(8, 0, id),
                    Family::V6 => frame(client, server).icmpv6(128, 0, id),
                })
            }
        };
        Some((self.family, bytes))
    }

    /// Returns the tuple of replies to the last packet.
    fn answered(&self) -> Option<Tuple> {
        let last = self.last.as_ref().filter(|last| last.family == self.family)?;
        let found = extract(&last.bytes, last.family, 0, Checksums::NONE).ok()?;
        found.inner.is_none().then(|| found.tuple.reversed())
    }

    /// Returns an ICMP error of the receiver about the last packet.
    fn error(&self) -> Option<Vec<u8>> {
        let Tuple { src, dst, .. } = self.answered()?;
        let quoted = &self.last.as_ref()?.bytes;
        let quoted = &quoted[..quoted.len().min(200)];
        Some(ip(match src {
            IpAddr::V4(_) => frame(src, dst).icmp(3, 1, 0).payload(quoted),
            IpAddr::V6(_) => frame(src, dst).icmpv6(1, 0, 0).payload(quoted),
        }))
    }
}

fn request(input: &mut Input<'_>, family: Family) -> Request {
    let choices = input.byte();
    let addresses = match family {
        Family::V4 => {
            let address = |last| IpAddr::V4(Ipv4Addr::new(192, 168, 100, last));
            (address(100), address(100 + (choices >> 6)))
        }
        Family::V6 => {
            let address = |last| IpAddr::V6(Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, last));
            (address(1), address(1 + u16::from(choices >> 6)))
        }
    };
    let range = |manip| {
        Nat::Range(NatRange {
            manip,
            addresses: (choices & 0x20 != 0).then_some(addresses),
            ports: None,
            selection: Selection::Hash,
            persistent: false,
        })
    };
    Request {
        zone: 0,
        commit: [Commit::No, Commit::Yes, Commit::Yes, Commit::Force][usize::from(choices & 3)],
        mark: None,
        label: None,
        nat: match choices >> 2 & 3 {
            0 => None,
            1 => Some(Nat::Existing),
            2 => Some(range(Manip::Src)),
            _ => Some(range(Manip::Dst)),
        },
        helper: match (choices >> 4 & 1, input.flag()) {
            (0, _) => None,
            (_, false) => Some(Helper::Ftp),
            (_, true) => Some(Helper::Tftp),
        },
        policy: 0,
    }
}

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let memory = Arc::new(Small(PlainMemory::new(SIZES)));
    let table = Arc::new(Table::open(memory, [3, 5]).expect("it is fresh"));
    let mut sweeper = Sweeper::new(table.clone(), Box::new(NoBarrier));
    let tracker = Tracker::new(table.clone());
    let mut worker = table.worker();
    let settings = input.byte();
    table.set_sequence_check(settings & 2 == 0);
    let family = if settings & 1 == 0 { Family::V4 } else { Family::V6 };
    let mut talk = Conversation { family, seq: [1000, 5000], last: None };
    let mut now = Ticks(1000);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let request = request(&mut input, family);
        now = now.after(u32::from(input.byte()));
        let Some((family, bytes)) = talk.packet(&mut input) else { continue };
        let bytes = step(&tracker, &worker.pin(), family, bytes, &request, now);
        talk.last = Some(Last { family, bytes });
    }
    check_table(&table, now);
    // A sweep takes as long as a thousand packets.
    if settings & 0xfc == 0 {
        for _ in 0..3 {
            sweeper.pass(now.after(100_000_000));
        }
        assert_eq!((table.counts().conns(), table.counts().half_open()), (0, 0));
    }
}

/// Tracks a packet. Returns it as it leaves.
fn step(
    tracker: &Tracker,
    pinned: &conntrack::Pinned<'_>,
    family: Family,
    mut bytes: Vec<u8>,
    request: &Request,
    now: Ticks,
) -> Vec<u8> {
    let before = bytes.clone();
    let extracted = extract(&bytes, family, request.zone, Checksums::ALL);
    let mut packet = IpPacket {
        bytes: &mut bytes,
        family,
        verify: Checksums::ALL,
        checksum: ChecksumState::Finished,
    };
    let mut meta = Metadata::default();
    let done = tracker.process(pinned, &mut packet, &mut meta, request, now);
    let is_invalid = meta.state & ct_state::INV != 0;
    assert!(meta.state & ct_state::TRK != 0, "it was tracked: {meta:?}");
    assert!(!is_invalid || meta.state & (ct_state::NEW | ct_state::EST) == 0, "{meta:?}");
    assert!(done.changed || bytes == before, "a change is not reported");
    let Ok(extracted) = extracted else {
        assert!(is_invalid && bytes == before, "what has no tuple is left alone");
        return bytes;
    };
    if request.nat.is_none() {
        assert!(!done.changed && done.edit.is_none(), "it changes without nat: {done:?}");
    }
    let reads = |bytes: &[u8]| extract(bytes, family, request.zone, Checksums::ALL);
    let again = reads(&bytes).expect("checksums follow");
    assert_eq!((again.l4, again.end), (extracted.l4, extracted.end));
    let Some(edit) = done.edit else { return bytes };
    let whole = &bytes[..extracted.end];
    let new = edit.apply(whole, family, extracted.l4).expect("it is short");
    assert_eq!(new.len(), whole.len() - edit.at.len() + edit.with.len());
    assert_eq!(reads(&new).expect("checksums follow").tuple, again.tuple);
    new
}

/// Checks that no tuple has two owners.
fn check_table(table: &Table, now: Ticks) {
    let (mut seen, mut cursor) = (BTreeSet::new(), Some(0));
    while let Some(at) = cursor {
        cursor = table.dump(None, at, now, |entry| {
            for tuple in [entry.original, entry.reply] {
                assert!(seen.insert(tuple), "{tuple:?} has two owners");
            }
        });
    }
}
