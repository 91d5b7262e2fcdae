// SPDX-License-Identifier: Apache-2.0
//! `bpf/layout.h` in Rust: the data that the daemon and the programs share. The C header documents
//! the meaning and the writer of each field. `tests/layout.rs` compares both by the object's BTF.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Value of `config.magic`: "slipswch".
pub const MAGIC: u64 = 0x736c_6970_7377_6368;
/// Value of `config.version`; each change of the layout raises it.
pub const VERSION: u32 = 19;

/// Size in bytes of `struct state`, which one program leaves to the next. The daemon does not read
/// it.
pub const STATE_BYTES: u32 = 400;
/// Size in bytes of `struct undo`, which one program leaves to the next. The daemon does not read
/// it.
pub const UNDO_BYTES: u32 = 296;
/// Size in bytes of `struct chain`, which programs keep for later packets. The daemon does not read
/// it.
pub const CHAIN_BYTES: u32 = 192;

/// Numbers of the words of a key: `enum word`.
pub mod word {
    /// `in_port`, `dl_type`, the first VLAN header or [`super::TPID_BARE`].
    pub const PORT: usize = 0;
    /// `dl_dst` and the start of `dl_src`.
    pub const ETH0: usize = 1;
    /// The rest of `dl_src`; fragment bits, ToS, TTL, protocol.
    pub const ETH1: usize = 2;
    /// IPv4 addresses.
    pub const IP4: usize = 3;
    /// Transport ports, the second VLAN header.
    pub const TP: usize = 4;
    /// `recirc_id`, `dp_hash`.
    pub const RECIRC: usize = 5;
    /// `skb_priority`, `pkt_mark`.
    pub const META: usize = 6;
    /// IGMP group, flow label.
    pub const REST: usize = 7;
    /// The first two MPLS label stack entries.
    pub const MPLS0: usize = 8;
    /// The third MPLS label stack entry.
    pub const MPLS1: usize = 9;
    /// IPv6 source, first half.
    pub const SRC0: usize = 10;
    /// IPv6 source, second half.
    pub const SRC1: usize = 11;
    /// IPv6 destination, first half.
    pub const DST0: usize = 12;
    /// IPv6 destination, second half.
    pub const DST1: usize = 13;
    /// ND target, first half. Of packets with NSH: the fields before the contexts.
    pub const ND0: usize = 14;
    /// ND target, second half. Of packets with NSH: the first two contexts.
    pub const ND1: usize = 15;
    /// ARP and ND hardware addresses.
    pub const HW0: usize = 16;
    /// Hardware addresses, TCP flags.
    pub const HW1: usize = 17;
    /// ND reserved word and option type. Of packets with NSH: the last two contexts.
    pub const ND2: usize = 18;
    /// Low half of `tun_id`; `tun_flags`, `tun_tos`, `tun_ttl`.
    pub const TUN0: usize = 19;
    /// Outer UDP ports, `tun_gbp_id`, `tun_gbp_flags`.
    pub const TUN1: usize = 20;
    /// `tun_src`, `tun_dst`.
    pub const TIP4: usize = 21;
    /// `tun_ipv6_src`, first half.
    pub const TSRC0: usize = 22;
    /// `tun_ipv6_src`, second half.
    pub const TSRC1: usize = 23;
    /// `tun_ipv6_dst`, first half.
    pub const TDST0: usize = 24;
    /// `tun_ipv6_dst`, second half.
    pub const TDST1: usize = 25;
    /// Presence of Geneve options, and the first of their data.
    pub const OPT0: usize = 26;
    /// Data of Geneve options.
    pub const OPT1: usize = 27;
    /// Data of Geneve options.
    pub const OPT2: usize = 28;
    /// Data of Geneve options.
    pub const OPT3: usize = 29;
    /// `ct_state`, `ct_nw_proto`, `ct_zone`, `ct_mark`.
    pub const CT: usize = 30;
    /// `ct_label`, first half.
    pub const CT_LABEL0: usize = 31;
    /// `ct_label`, second half.
    pub const CT_LABEL1: usize = 32;
    /// `ct_nw_src`, `ct_nw_dst`.
    pub const CT_IP4: usize = 33;
    /// `ct_tp_src`, `ct_tp_dst`.
    pub const CT_TP: usize = 34;
    /// `ct_ipv6_src`, first half.
    pub const CT_SRC0: usize = 35;
    /// `ct_ipv6_src`, second half.
    pub const CT_SRC1: usize = 36;
    /// `ct_ipv6_dst`, first half.
    pub const CT_DST0: usize = 37;
    /// `ct_ipv6_dst`, second half.
    pub const CT_DST1: usize = 38;
}

/// Number of words of a key.
pub const WORDS: usize = 39;
/// Number of words that a packet from a port has; the others are zero in it.
pub const PORT_WORDS: usize = word::TUN0;
/// Number of words that only a packet from a tunnel has.
pub const TUNNEL_WORDS: usize = word::CT - word::TUN0;
/// Number of words that identify a key in the exact-match cache.
pub const EMC_WORDS: usize = 5;
/// Number of words in the first cache line of a slot.
pub const HOT_WORDS: usize = 6;
/// Number of words outside the first cache line of a slot.
pub const COLD_WORDS: usize = WORDS - HOT_WORDS;
/// Number of factors of the hash: one for each word, one for the number of a mask, one for the high
/// half of each word; of the exact-match cache: two for each of its words, and of those of tunnels.
pub const FACTORS: usize = 2 * WORDS + 1 + 2 * (EMC_WORDS + TUNNEL_WORDS);
/// Number of entries in a line of the exact-match cache.
pub const EMC_WAYS: usize = 4;
/// Largest number of flows: an entry of the exact-match cache has 24 bits for the slot.
pub const EMC_SLOTS: u32 = 1 << 24;

/// Bit next to the bits of words: the flow matches fields after the Ethernet header and VLANs.
pub const NEEDS_L3: u64 = 1 << 62;
/// Bit of `slot.hooks`: the actions can run at XDP.
pub const HOOK_XDP: u8 = 1;
/// Bit of `slot.hooks`: the actions can run at the skb hook.
pub const HOOK_TC: u8 = 2;
/// Bit of `slot.flags`: a packet that is still to be segmented cannot run the actions.
pub const FLOW_NO_GSO: u8 = 1;
/// Bit of `slot.flags`: XDP checks the frame before the program ([`Tail::Precheck`]).
pub const FLOW_PRECHECK: u8 = 2;
/// Bit of `slot.flags`: the match has words from [`PORT_WORDS`] on that are not zero.
pub const FLOW_METADATA: u8 = 4;
/// Bit of `slot.flags`: the actions are a `ct` that changes no connection, edits, and a new lookup.
pub const FLOW_CHAIN: u8 = 8;
/// Bit of `slot.flags`: the actions are edits and one output, or edits and [`Op::TunPush`].
pub const FLOW_CHAIN_END: u8 = 16;
/// Bit of `slot.flags`: the action is `tnl_pop` to the port in `slot_detail.tunnel`.
pub const FLOW_POP: u8 = 32;
/// Bit of `slot.flags`: the action is one output to a bond.
pub const FLOW_BOND: u8 = 64;
/// Bit of `slot.flags` that only the daemon reads: the match names the packet type.
pub const FLOW_PACKET_TYPE: u8 = 0x80;
/// In place of the TPID of the first VLAN header: the packet has no Ethernet header.
pub const TPID_BARE: u16 = 1;
/// Value of `mask.needs` for a vacant mask, which searches skip.
pub const MASK_VACANT: u64 = 1 << 63;

/// Value of `slot.output` for actions that are not one output: see `slot.program`.
pub const NO_PORT: u32 = u32::MAX;
/// Value of `slot.program` for a flow without program; with [`NO_PORT`] the flow drops.
pub const NO_PROGRAM: u32 = u32::MAX;

/// Number of entries of an index bucket.
pub const BUCKET: usize = 8;
/// Number of entries in a line of the signature cache.
pub const WAYS: usize = 4;
/// Number of epochs, which slots share by their number modulo this.
pub const EPOCHS: usize = 1024;
/// Position of the first bit of the packets in `recent.word`; bytes are below.
pub const RECENT_PACKETS_SHIFT: u32 = 34;
/// Position of the bit of `recent.word` that is set when the totals are not zero.
pub const RECENT_SPILLED_SHIFT: u32 = 51;
/// Position of the first bit of the TCP flags in `recent.word`.
pub const TCP_FLAGS_SHIFT: u32 = 52;
/// Position of the first bit of the packets in `emc_entry.count`; bytes are below.
pub const EMC_PACKETS_SHIFT: u32 = 25;
/// Position of the first bit of the slot in `emc_entry.count`.
pub const EMC_SLOT_SHIFT: u32 = 38;
/// Number of cells where an instruction may begin.
pub const CELLS: usize = 32;
/// Number of cells of a program, with the operands of its last instruction.
pub const CELLS_TOTAL: usize = 47;
/// Number of port numbers, from 0.
pub const MAX_PORTS: u32 = 4096;
/// Bit of `port.flags`: packets may be sent to the port.
pub const PORT_UP: u32 = 1;
/// Bit of `port.flags`: packets go to the host's stack (internal and tap devices).
pub const PORT_STACK: u32 = 2;
/// Bit of `port.flags`: XDP may redirect to the port.
pub const PORT_DEVMAP: u32 = 4;
/// Bit of `port.flags`: XDP may redirect frames in several buffers to the port as well.
pub const PORT_SPLIT: u32 = 8;
/// Bit of `port.flags`: frames for `peer_mac` enter the other end of the veth pair at once.
pub const PORT_PEER: u32 = 16;
/// Bit of `port.flags`: the host's stack shares the device, and only packets of tunnels come in.
pub const PORT_UNDERLAY: u32 = 32;
/// Value of `port.tunnel_helper`: packets enter the host's stack where they have arrived.
pub const HELPER_PASS: u32 = u32::MAX;
/// Number of sets of ports; each has a devmap in the objects.
pub const PORT_SETS: u32 = 32;
/// Largest number of ports of a set.
pub const SET_PORTS: usize = 32;
/// Number of Geneve options whose data words have.
pub const TUNNEL_OPTIONS: usize = 8;
/// Bytes of data that the words have room for.
pub const OPTION_BYTES: usize = 28;
/// Number of entries of the table of interfaces.
pub const IFACES: u32 = 8192;
/// Largest number of steps of a search in the table of interfaces.
pub const IFACE_PROBES: u32 = 4;
/// Bit of `iface.port`: the daemon owns the packets that arrive.
pub const IFACE_DAEMONS: u32 = 1 << 31;
/// Bit of `iface.port`: at the skb hook, the mark of the daemon's socket filter decides for each
/// packet.
pub const IFACE_NOTED: u32 = 1 << 30;
/// Bit of `iface.port`: generic XDP is attached.
pub const IFACE_GENERIC: u32 = 1 << 29;
/// Bit of `iface.port`: the skb hook limits the rate of the packets that arrive.
pub const IFACE_POLICED: u32 = 1 << 28;
/// The flag bits of `iface.port`; the other bits are the port number.
pub const IFACE_FLAGS: u32 = IFACE_DAEMONS | IFACE_NOTED | IFACE_GENERIC | IFACE_POLICED;
/// Number of drop reasons that the counters have room for, from 0.
pub const DROPS: usize = 24;
/// Number of outer headers that there is room for.
pub const TUNNEL_HEADERS: u32 = 4096;
/// Size in bytes of the longest outer header.
pub const TUNNEL_BYTES: usize = 192;
/// Bit of `tunnel_header.flags`: the header is UDP, else GRE.
pub const TUNNEL_UDP: u16 = 1;
/// Bit of `tunnel_header.flags`: each packet has a checksum of UDP or GRE.
pub const TUNNEL_CHECKSUM: u16 = 2;
/// Bit of `tunnel_header.flags`: the outer packet is IPv6.
pub const TUNNEL_IPV6: u16 = 4;
/// Bit of `tunnel_header.flags`: IPv4 with DF, and without an identification.
pub const TUNNEL_WHOLE: u16 = 8;
/// Flag of a header: the packet loses its Ethernet header before.
pub const TUNNEL_BARE: u16 = 16;
/// Flag of a header: GTP-U, which has a length of its own.
pub const TUNNEL_GTPU: u16 = 32;
/// Bit of `tunnel_header.flags`: each packet has a sequence number.
pub const TUNNEL_NUMBERED: u16 = 64;
/// Bit of `tunnel_header.flags`: ERSPAN of version 2, each of whose packets has the time.
pub const TUNNEL_STAMPED: u16 = 128;
/// Bit of `tunnel_header.flags`: a segment routing header, which has the packet's protocol.
pub const TUNNEL_ROUTE: u16 = 256;
/// Bit of `tunnel_header.flags`: the flow label is that of an inner IPv6 header.
pub const TUNNEL_LABEL_COPY: u16 = 512;
/// Bit of `tunnel_header.flags`: the flow label is 0.
pub const TUNNEL_LABEL_ZERO: u16 = 1024;
/// Bit of `tunnel_header.flags`: the flow label is the packet's hash.
pub const TUNNEL_LABEL_HASH: u16 = 2048;
/// Flag of a tunnel port in an [`Op::TunPush`]: the packet has no Ethernet header before.
pub const PUSH_OF_BARE: u32 = 1 << 31;
/// Flag of [`Op::Output`]: the output goes to a bond.
pub const OUTPUT_BOND: u32 = 1 << 31;
/// Bit of the operand of [`Op::Output`]: the rest is the number of a sample of the flow.
pub const OUTPUT_UP: u32 = 1 << 30;
/// Number of bonds that there is room for.
pub const MAX_BONDS: u32 = 64;
/// Value of `bond.members` for no member.
pub const NO_MEMBER: u16 = u16::MAX;
/// Number of meter numbers, from 0.
pub const MAX_METERS: u32 = 1024;
/// Largest number of bands of a meter.
pub const METER_BANDS: usize = 8;
/// Ethernet type of the miss header.
pub const MISS_ETHERTYPE: u16 = 0x88b5;
/// Size of `struct miss_header` in bytes.
pub const MISS_HEADER: usize = 32;
/// Size of `struct miss_tracked` in bytes.
pub const MISS_TRACKED: usize = 176;
/// Flag of `miss_header.more`: the packet begins after the room of an Ethernet header.
pub const MISS_BARE: u32 = 0x1_0000;
/// Value of `miss_tracked.cell` for a packet without a flow.
pub const NO_CELL: u32 = u32::MAX;
/// Bit of [`Op::Ct`]: a connection is made.
pub const CT_OP_COMMIT: u16 = 1;
/// Bit of [`Op::Ct`]: a connection whose opposite direction began it is ended.
pub const CT_OP_FORCE: u16 = 2;
/// Bit of [`Op::Ct`]: the mark is set.
pub const CT_OP_MARK: u16 = 4;
/// Bit of [`Op::Ct`]: the label is set.
pub const CT_OP_LABEL: u16 = 8;
/// Bit of [`Op::Ct`]: the packet is translated.
pub const CT_OP_NAT: u16 = 16;
/// Bit of [`Op::Ct`]: a new connection gets a translation of its source.
pub const CT_OP_SRC: u16 = 32;
/// Bit of [`Op::Ct`]: a new connection gets a translation of its destination.
pub const CT_OP_DST: u16 = 64;
/// Bit of [`Op::Ct`]: the translation is chosen at random.
pub const CT_OP_RANDOM: u16 = 128;
/// Bit of [`Op::Ct`]: the translation is by the source address alone.
pub const CT_OP_PERSISTENT: u16 = 256;
/// Bit of [`Op::Ct`]: the translation has a range of addresses.
pub const CT_OP_ADDRESSES: u16 = 512;
/// Bit of [`Op::Ct`]: these are of IPv6.
pub const CT_OP_IPV6: u16 = 1024;
/// Bit of [`Op::Ct`]: the translation has a range of ports.
pub const CT_OP_PORTS: u16 = 2048;
/// Bit of [`Op::Ct`]: the translation is chosen by a hash, as without [`CT_OP_RANDOM`]. For dumps.
pub const CT_OP_HASH: u16 = 4096;
/// Number of slots of a table of programs.
pub const TAILS: u32 = 14;

/// A slot of the table of programs: `enum tail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Tail {
    /// Lookup of a packet from a port, by the present variant.
    Lookup,
    /// Lookup of a packet with metadata, by the full variant.
    Recirc,
    /// Scan of the masks.
    MaskScan,
    /// Action interpreter.
    Exec,
    /// tc: makes the headers linear, then looks up again.
    Pull,
    /// tc: sends the packet to the daemon.
    Miss,
    /// XDP: before a program with [`FLOW_PRECHECK`].
    Precheck,
    /// Tracks a packet's connection.
    Ct,
    /// tc: moves the states of connections, and makes them. Empty when the kernel refused it.
    CtMove,
    /// Lookup of a packet from a port whose flow has [`FLOW_CHAIN`].
    Chain,
    /// Lookup of the packet in a packet from a port whose flow has [`FLOW_POP`].
    Tunnel,
    /// Pushes the outer headers of a tunnel ([`Op::TunPush`]).
    TunPush,
    /// Sends packets out of tunnels and into them by results of chains. Empty when the kernel refused it.
    TunChain,
    /// tc: limits the rate of the packets of a port.
    Police,
}

/// Declares [`Op`] and lists its variants.
macro_rules! ops {
    ($($name:ident),* $(,)?) => {
        /// An instruction of a program: `enum op`, which documents the operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)] // the header documents each
        pub enum Op {
            $($name),*
        }

        impl Op {
            /// Every instruction, by its number.
            pub const ALL: &'static [Op] = &[$(Op::$name),*];
        }
    };
}

#[rustfmt::skip]
ops! {
    End, Output, Drop, PushVlan, PopVlan, SetEth, SetIpv4, SetIpv6, SetTcp, SetUdp, SetSctp,
    SetIcmp, SetArp, SetNd, SetNdExt, SetMpls, PushMpls, PopMpls, SetPriority, SetMark, Recirc,
    Hash, Trunc, Sample, Meter, CheckLen, Copies, Ct, CtClear, Header, TunPush, TunRoom,
}

/// An instruction of [`Op::Header`]: `enum header_op`, which documents the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // the header documents each
pub enum HeaderOp {
    SetNsh,
    PushNsh,
    PopNsh,
    PushEth,
    PopEth,
    AddMpls,
}

impl HeaderOp {
    /// Returns true when a packet may leave the programs at the instruction.
    pub(crate) fn may_leave(self) -> bool {
        matches!(self, HeaderOp::PushNsh | HeaderOp::PopNsh | HeaderOp::AddMpls)
    }

    /// Every instruction, by its number.
    pub const ALL: &'static [HeaderOp] = &[
        HeaderOp::SetNsh,
        HeaderOp::PushNsh,
        HeaderOp::PopNsh,
        HeaderOp::PushEth,
        HeaderOp::PopEth,
        HeaderOp::AddMpls,
    ];
}

/// Places of bonds by their ids, plus one: `struct bond_places`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
#[allow(missing_docs)]
pub struct BondPlaces {
    pub of: [u8; MAX_PORTS as usize],
}

/// A bond: `struct bond`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct BondEntry {
    pub basis: u64,
    pub members: [u16; datapath::BOND_BUCKETS],
}

/// Bytes of a bond's buckets: `struct bond_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct BondBytes {
    pub of: [u64; datapath::BOND_BUCKETS],
}

/// One flow, the part that the lookup of most packets reads: `struct slot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct SlotEntry {
    pub hot: [u64; HOT_WORDS],
    pub dead: u32,
    pub output: u32,
    pub program: u32,
    pub mask: u16,
    pub hooks: u8,
    pub flags: u8,
}

/// One flow, the part that fewer lookups read: `struct slot_detail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct SlotDetail {
    pub cold: [u64; COLD_WORDS],
    pub needs: u64,
    pub reason: u32,
    pub tunnel: u32,
    pub ufid: [u64; 2],
    pub hash: u64,
    pub installed: u64,
    pub instructions: u64,
}

/// The mask of some flows: `struct mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct MaskEntry {
    pub words: [u64; WORDS],
    pub needs: u64,
    pub flows: u32,
    pub pad: u32,
}

/// A bucket of the index: `struct bucket`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Bucket {
    pub entries: [u64; BUCKET],
}

/// An entry of the exact-match cache: `struct emc_entry`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct EmcEntry {
    pub sign: u64,
    pub count: u64,
}

/// A line of the exact-match cache: `struct emc_line`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct EmcLine {
    pub ways: [EmcEntry; EMC_WAYS],
}

/// The last flow of a CPU: `struct last_flow`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct LastFlow {
    pub key: [u64; EMC_WORDS],
    pub sum: u32,
    pub check: u32,
    pub at: u32,
    pub last: u32,
    pub stage: u32,
    pub pad: u32,
}

/// The epochs of all slots: `struct epochs`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Epochs {
    pub of: [u32; EPOCHS],
}

/// A line of the signature cache: `struct cache_line`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct CacheLine {
    pub entries: [u64; WAYS],
}

/// The recent counts of a slot on one shard of CPUs: `struct recent`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Recent {
    pub word: u64,
}

/// How often a CPU moved counts out of entries of its exact-match cache: `struct moves`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Moves {
    pub turn: u64,
    pub pad: [u64; 7],
}

/// The counts of a slot that were moved out of `recent`: `struct totals`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Totals {
    pub packets: u64,
    pub bytes: u64,
    pub begun: u64,
    pub ended: u64,
}

/// An action list of some flows: `struct program`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Program {
    pub cells: [u64; CELLS_TOTAL],
    pub set: u16,
    pub exclude: u8,
    pub growth: u8,
    pub again: u8,
    pub cuts: u8,
    pub pad: [u8; 2],
}

/// Outer headers of a tunnel: `struct tunnel_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct TunnelHeader {
    pub bytes: [u8; TUNNEL_BYTES],
    pub ip_sum: u32,
    pub l4_sum: u32,
    pub length: u16,
    pub l4: u16,
    pub flags: u16,
    pub kind: u16,
    pub first_port: u16,
    pub last_port: u16,
    pub path_mtu: u16,
    pub number_at: u16,
    pub more_pad: [u32; 10],
}

/// A set of ports that XDP sends copies to: `struct port_set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct PortSet {
    pub mtu: u32,
    pub blocked: u32,
    pub blocked_port: u32,
    pub count: u32,
    pub ports: [u16; SET_PORTS],
}

/// A port of the datapath: `struct port`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Port {
    pub ifindex: u32,
    pub flags: u32,
    pub mtu: u32,
    pub upcall_limit: u32,
    pub sent_up: u64,
    pub taken_up: u64,
    pub closed_until: u64,
    pub peer_mac: u64,
    pub ct_closed_until: u64,
    pub tunnel: u32,
    pub tunnel_helper: u32,
}

/// A tunnel that programs pop: `enum tunnel_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum TunnelKind {
    None,
    Vxlan,
    VxlanGbp,
    Geneve,
    Gre,
    Erspan,
    Pushed,
}

/// A Geneve option whose data is in words: `struct tunnel_option`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct TunnelOption {
    /// In network order.
    pub header: u32,
    pub at: u8,
    pub bytes: u8,
    pub in_use: u8,
    pub pad: u8,
}

/// The counters of a port on one shard of CPUs: `struct port_stats`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct PortCount {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
}

/// The port of an interface: `struct iface`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Iface {
    pub ifindex: u32,
    pub port: u32,
}

/// An address to which packets of tunnels come: `struct tunnel_endpoint`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct TunnelEndpoint {
    pub address: [u8; 16],
    pub port: [u8; 2],
    pub protocol: u8,
    pub pad: u8,
}

/// The counters of one shard of CPUs: `struct counters`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Counters {
    pub drops: [u64; DROPS],
    pub walked: u64,
    pub masks: u64,
    pub found: u64,
    pub up: u64,
    pub passed: u64,
    pub evicted: u64,
    pub pad: [u64; 2],
}

/// A band of a meter: `struct meter_band`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct MeterBand {
    pub cost: u64,
    pub depth: u64,
    pub tat: u64,
    pub packets: u64,
    pub bytes: u64,
}

/// The limits of a port's packets: `struct policer`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Policer {
    pub bits: MeterBand,
    pub packets: MeterBand,
    pub dropped: u64,
}

/// A meter: `struct meter`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Meter {
    pub in_use: u32,
    pub per_packet: u32,
    pub packets: u64,
    pub bytes: u64,
    pub bands: [MeterBand; METER_BANDS],
    pub pad: [u64; 5],
}

/// The configuration that programs and daemon share: `struct config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct ConfigEntry {
    pub magic: u64,
    pub version: u32,
    pub max_flows: u32,
    pub max_masks: u32,
    pub buckets: u32,
    pub cache_lines: u32,
    pub shards: u32,
    pub max_programs: u32,
    pub miss_ifindex: u32,
    pub vlan_limit: u32,
    pub emc_lines: u32,
    pub cpus: u32,
    pub generations: u32,
    pub cache_mask: u32,
    pub whole_only: u32,
    pub emc_used: u32,
    pub emc_reach: u32,
    pub segmenter: u32,
    pub pad: u32,
    pub factors: [u64; FACTORS],
    pub options: [TunnelOption; TUNNEL_OPTIONS],
}

const _: () = {
    use std::mem::{align_of, offset_of, size_of};
    assert!(size_of::<SlotEntry>() == 64 && align_of::<SlotEntry>() == 8);
    assert!(offset_of!(SlotEntry, dead) == 48);
    assert!(size_of::<SlotDetail>() == 320);
    assert!(offset_of!(SlotDetail, needs) == 264);
    assert!(size_of::<MaskEntry>() == 328);
    assert!(offset_of!(MaskEntry, needs) == 312);
    assert!(size_of::<Bucket>() == 64);
    assert!(size_of::<EmcLine>() == 64);
    assert!(offset_of!(EmcEntry, count) == 8);
    assert!(size_of::<LastFlow>() == 64);
    assert!(size_of::<CacheLine>() == 32);
    assert!(size_of::<Recent>() == 8);
    assert!(RECENT_PACKETS_SHIFT < RECENT_SPILLED_SHIFT);
    assert!(RECENT_SPILLED_SHIFT + 1 == TCP_FLAGS_SHIFT);
    assert!(size_of::<Moves>() == 64);
    assert!(size_of::<Totals>() == 32);
    assert!(offset_of!(Totals, bytes) == 8);
    assert!(offset_of!(Totals, begun) == 16);
    assert!(offset_of!(Totals, ended) == 24);
    assert!(size_of::<Program>() == 384);
    assert!(size_of::<PortSet>() == 80);
    assert!(size_of::<Port>() == 64);
    assert!(offset_of!(Port, sent_up) == 16);
    assert!(offset_of!(Port, taken_up) == 24);
    assert!(size_of::<PortCount>() == 32);
    assert!(size_of::<Iface>() == 8);
    assert!(size_of::<Counters>() == 256);
    assert!(size_of::<TunnelHeader>() == 256 && TUNNEL_BYTES.is_multiple_of(8));
    assert!(offset_of!(TunnelHeader, ip_sum) == TUNNEL_BYTES);
    assert!(size_of::<MeterBand>() == 40);
    assert!(size_of::<Meter>() == 384);
    assert!(offset_of!(Meter, bands) == 24);
    assert!(size_of::<ConfigEntry>() == 80 + 8 * (FACTORS + TUNNEL_OPTIONS));
    assert!(offset_of!(ConfigEntry, miss_ifindex) == 36);
    assert!(offset_of!(ConfigEntry, factors) == 80);
    assert!(datapath::DropReason::ALL.len() <= DROPS);
    assert!(Op::ALL.len() <= 32); // sets of instructions are bits of 32
    assert!(Tail::Police as u32 == TAILS - 1);
};
