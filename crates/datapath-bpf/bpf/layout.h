/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The memory that the daemon and the programs share.
 *
 * Every array here is a BPF_MAP_TYPE_ARRAY with BPF_F_MMAPABLE (those that maps.h declares by TABLE
 * have all entries in one element). The daemon reads and writes it through a mapping. src/layout.rs
 * repeats this file in Rust, with assertions on every offset. A change here requires a change there
 * and a new LAYOUT_VERSION.
 *
 * Writers. The daemon writes everything except the caches, the statistics, and the counters of
 * packets sent up, which programs write. There is one daemon at a time.
 *
 * Publication. The daemon fills a slot while nothing refers to it, then stores its number (release)
 * into the index. A program loads a number from the index or from the signature cache and reads the
 * slot at an address that depends on the number, so it sees the filled slot. A published slot never
 * changes, except for `dead`. Its number is reused only after these steps:
 *
 *   1. The number is taken out of the index.
 *   2. A grace period: programs that hold the number end. They may have put it into the caches.
 *   3. The signature cache is searched for the number, and the exact-match caches for counts of it.
 *   4. Another grace period: programs that read the number or the counts there end.
 *
 * An entry of the exact-match cache that names the number may stay, without counts: it is void by
 * the epoch.
 */
#ifndef SLIPSWITCH_LAYOUT_H
#define SLIPSWITCH_LAYOUT_H

#include <linux/types.h>

#define LAYOUT_MAGIC 0x736c697073776368ull /* "slipswch" */
#define LAYOUT_VERSION 19

/* Words of a key: the fields of `flow::Key` from `recirc_id` on. (The registers before it concern
 * no datapath.) The first five words hold the fields that distinguish most packets. Bytes are in
 * network order, as in flow::Key. */
enum word {
	W_PORT, /* in_port (16 bits), dl_type, first VLAN's tpid (or TPID_BARE) and tci */
	W_ETH0, /* dl_dst, first two bytes of dl_src */
	W_ETH1, /* rest of dl_src, nw_frag, nw_tos, nw_ttl, nw_proto */
	W_IP4,  /* nw_src, nw_dst */
	W_TP,   /* tp_src, tp_dst, second VLAN's tpid and tci */
	EMC_WORDS,
	W_RECIRC = EMC_WORDS, /* recirc_id, dp_hash */
	HOT_WORDS,
	W_META = HOT_WORDS, /* skb_priority, pkt_mark */
	W_REST,  /* igmp_group, ipv6_label */
	W_MPLS0, /* first two label stack entries */
	W_MPLS1, /* third entry, zero */
	W_SRC0,  /* ipv6_src */
	W_SRC1,
	W_DST0, /* ipv6_dst */
	W_DST1,
	/* Of packets with NSH, which their Ethernet type distinguishes from neighbour messages: nsh_flags, nsh_ttl,
	 * nsh_mdtype, nsh_np, path; the first two contexts. W_ND2: the other two. */
	W_ND0, /* nd_target */
	W_ND1,
	W_HW0, /* arp_sha, first two bytes of arp_tha */
	W_HW1, /* rest of arp_tha, tcp_flags, zero */
	W_ND2, /* nd_reserved, nd_options_type, zero */
	PORT_WORDS, /* the words from here on are zero in packets from ports */
	W_TUN0 = PORT_WORDS, /* low half of tun_id, tun_flags, tun_tos, tun_ttl */
	W_TUN1, /* outer tp_src and tp_dst, tun_gbp_id, tun_gbp_flags, zero */
	W_TIP4, /* tun_src, tun_dst */
	W_TSRC0, /* tun_ipv6_src */
	W_TSRC1,
	W_TDST0, /* tun_ipv6_dst */
	W_TDST1,
	W_OPT0, /* bit n of the first byte: there is the n-th option of config.options; a byte that no flow
		 * matches on, not 0 when there are fields of ERSPAN; two zeros; the data of options from
		 * here on */
	W_OPT1,
	W_OPT2,
	W_OPT3,
	W_CT, /* ct_state, ct_nw_proto, ct_zone, ct_mark */
	W_CT_LABEL0, /* ct_label */
	W_CT_LABEL1,
	W_CT_IP4, /* ct_nw_src, ct_nw_dst */
	W_CT_TP,  /* ct_tp_src, ct_tp_dst, zero */
	W_CT_SRC0, /* ct_ipv6_src */
	W_CT_SRC1,
	W_CT_DST0, /* ct_ipv6_dst */
	W_CT_DST1,
	WORDS,
};

#define COLD_WORDS (WORDS - HOT_WORDS)
#define TUNNEL_WORDS (W_CT - W_TUN0)
#define WORDS_OF_OPTIONS (W_CT - W_OPT0)
#define CT_WORDS (WORDS - W_CT)
#define METADATA_WORDS (WORDS - PORT_WORDS)

/* Factors of the hash: of each word, of the mask's number, of the high half of each word. Then
 * those of the exact-match cache: of its words, of their high halves, and the same of the words of
 * tunnels. */
#define FACTOR_OF_MASK WORDS
#define FACTORS_OF_HALVES (WORDS + 1)
#define FACTORS_OF_CHECK (2 * WORDS + 1)
#define FACTORS_OF_TUNNEL_CHECK (FACTORS_OF_CHECK + 2 * EMC_WORDS)
#define FACTORS (FACTORS_OF_TUNNEL_CHECK + 2 * TUNNEL_WORDS)

/* In addition to the bits of words, where words are given as bits: the flow matches on a field
 * after the Ethernet header and VLANs. (Some words have fields of both sides.) */
#define NEEDS_L3 (1ull << 62)
#define ALL_NEEDS (((1ull << WORDS) - 1) | NEEDS_L3)

/* Bits of nw_frag, as in `flow::extract`. */
#define FRAG_ANY 1
#define FRAG_LATER 2
#define VLAN_CFI 0x1000

/* Hooks, as bits of slot.hooks. */
#define HOOK_XDP 1
#define HOOK_TC 2

/* slot.flags */
#define FLOW_NO_GSO 1 /* a packet that is still to be segmented cannot run the actions */
#define FLOW_PRECHECK 2   /* XDP: the program copies, recirculates or cuts: see undo.h */
#define FLOW_METADATA 4 /* the match has words from PORT_WORDS on that are not zero: no packet from
			 * a port matches */
#define FLOW_CHAIN 8 /* the actions are a `ct` that changes no connection, edits, and a new lookup: see
		      * chain.h */
#define FLOW_CHAIN_END 16 /* the actions are edits and one output, or edits and OP_TUN_PUSH */
#define FLOW_POP 32 /* the action is tnl_pop to the port in slot_detail.tunnel: see tunnel.h */
#define FLOW_BOND 64 /* the action is one output to a bond: see bond.h */
#define FLOW_PACKET_TYPE 0x80 /* for the daemon only: the match names the packet type */

/* In place of the TPID of the first VLAN header, of packets without an Ethernet header, which have no VLAN
 * headers: their packet type is their Ethernet type. It is a bit that no TPID has. */
#define TPID_BARE 1

/* mask.needs of a mask that no flow uses, with other masks after it: searches skip it. The daemon
 * may write to it. */
#define MASK_VACANT (1ull << 63)

#define NO_PORT 0xffffffffu
#define NO_PROGRAM 0xffffffffu

/* One flow: the part that the lookup of most packets reads. */
struct slot {
	__u64 hot[HOT_WORDS];
	__u32 dead;    /* not 0: the flow is removed, and programs ignore it */
	__u32 output;  /* the actions are one output to this port; NO_PORT: see `program` */
	__u32 program; /* index into programs; NO_PROGRAM with NO_PORT: drop for `reason` */
	__u16 mask;    /* index into masks */
	__u8 hooks;    /* HOOK_*: where the actions can run */
	__u8 flags;
};

/* The other part of the flow, under the same number. */
struct slot_detail {
	__u64 cold[COLD_WORDS];
	__u64 needs;   /* bit W_x: the mask covers bits of word W_x */
	__u32 reason;  /* enum drop */
	__u32 tunnel;  /* FLOW_POP: number of the tunnel's port */
	__u64 ufid[2]; /* high half first */
	__u64 hash;    /* of the key under the mask, as in the index */
	__u64 installed; /* milliseconds, CLOCK_MONOTONIC */
	__u64 instructions; /* upper bound of the tail calls that the program takes */
};

/* One mask (one tuple of the tuple space search). Searches go through the masks in order, up to the
 * first unused one. */
struct mask {
	__u64 words[WORDS];
	__u64 needs; /* bit W_x: words[x] is not 0. 0: end of the masks. in_port is always set */
	__u32 flows; /* how many use it; programs ignore this */
	__u32 pad;
};

/* The index: two-choice buckets, see flow_index.h.
 * entry = hash << 32 | slot number + 1; 0 is free. */
#define BUCKET 8
struct bucket {
	__u64 entries[BUCKET];
};

/* Exact-match cache: the first words of a key under the union of all masks -> the action for the
 * packet, and the counts of such packets. Each CPU has lines of its own, [cpu * lines of a CPU +
 * line], which only programs on it use. (They do not interrupt each other.) An entry whose sign has
 * the epoch of its slot is as valid as the slot: see emc.h. `sign` has, from the lowest bit on,
 *
 *   12 bits  output; EMC_NO_OUTPUT: the slot has the action
 *    1 bit   EMC_XDP: the output may be used at XDP
 *   32 bits  a sum of the key, plus the tag
 *   19 bits  the check: part of another sum of the key
 *
 * and `count` has
 *
 *   25 bits  bytes
 *   13 bits  packets
 *   24 bits  slot
 *    2 bits  TCP flags PSH and ACK, when the word of the slot in `recent` has them
 *
 * Counts move to `recent` when the top bit of either is set, and when another flow gets the entry:
 * see below. The counts of an entry are those of its slot, whether the entry is valid or void. */
#define EMC_WAYS 4
#define EMC_SLOTS (1u << 24) /* upper bound of the number of flows */
#define EMC_NO_OUTPUT 0xfff
#define EMC_XDP (1ull << 12)
#define EMC_SIGN_SHIFT 13
#define EMC_CHECK_SHIFT 45
#define EMC_PACKETS_SHIFT 25
#define EMC_SLOT_SHIFT 38
#define EMC_PACKET (1ull << EMC_PACKETS_SHIFT)
#define EMC_BYTES (EMC_PACKET - 1)
#define EMC_COUNTS ((1ull << EMC_SLOT_SHIFT) - 1)
#define EMC_FULL (1ull << (EMC_SLOT_SHIFT - 1) | 1ull << (EMC_PACKETS_SHIFT - 1))
#define EMC_TCP_FLAGS 0x18   /* PSH and ACK, as in a TCP header */
#define EMC_TCP_FLAGS_SHIFT 59 /* from there to their place in `count` */
struct emc_entry {
	__u64 sign; /* 0: free */
	__u64 count;
};
struct emc_line {
	struct emc_entry ways[EMC_WAYS];
};

/* The last flow of a CPU: the key under the union of all masks, and the entry that the exact-match
 * cache had for it. Each CPU has its own, as above: see last_flow.h. */
struct last_flow {
	__u64 key[EMC_WORDS];
	__u32 sum;   /* as in struct emc_key */
	__u32 check; /* the same */
	__u32 at;    /* the cache's entry: line * EMC_WAYS + way */
	__u32 last;  /* slot of the previous packet */
	__u32 stage; /* enum last_flow_stage */
	__u32 pad;
};

/* Epochs of slots, by number % EPOCHS; never 0. The daemon raises one after it marks a slot dead.
 * One element. */
#define EPOCHS 1024
struct epochs {
	__u32 of[EPOCHS];
};

/* Signature cache: hash of the key under the union of all masks -> slot. Programs write it. An
 * entry is a hint: the slot is compared each time. Entries have the form of those in the index. */
#define WAYS 4
struct cache_line {
	__u64 entries[WAYS];
};

/* Statistics of a slot are in two places. Each shard of CPUs has a word for its recent packets,
 * recent[shard * max_flows + slot]; most packets touch nothing else. totals[slot] has the counts
 * that were moved out of these words. Only programs write both, each shard's words on its own CPUs;
 * the daemon zeroes them before publication. A word has, from the lowest bit on,
 *
 *   34 bits  bytes
 *   17 bits  packets
 *    1 bit   RECENT_SPILLED: the totals are not zero; stays set
 *   12 bits  TCP flags, ORed; stay set
 *
 * Overflow. A packet is one addition to both counts. A program that then finds the top bit of
 * either count set spills: it moves both counts to the totals. No count overflows into the bits
 * above it. If a shard has one CPU, a count is below its top bit before a packet is added, and no
 * packet has 2^33 bytes. If CPUs share a shard, each of them may add one more packet before the
 * first has spilled, and spills before it adds another. A packet has at most 512 KiB in that case:
 * GSO_MAX_SIZE, the limit of BIG TCP.
 *
 * Spilling. The program raises `begun`, takes the word, adds its counts to the totals, and raises
 * `ended`; other CPUs see these steps in this order. A reader loads `ended`, the totals, the words,
 * and `begun`. If both numbers are equal, no program spilled meanwhile: each that had begun had
 * ended before. Otherwise the result may be too small, never too large: no word contains counts
 * that the reader found in the totals.
 */
#define RECENT_PACKETS_SHIFT 34
#define RECENT_SPILLED_SHIFT 51
#define TCP_FLAGS_SHIFT 52
#define RECENT_PACKET (1ull << RECENT_PACKETS_SHIFT)
#define RECENT_BYTES (RECENT_PACKET - 1)
#define RECENT_SPILLED (1ull << RECENT_SPILLED_SHIFT)
#define RECENT_FLAGS (~0ull << TCP_FLAGS_SHIFT)
/* The top bits of both counts. */
#define RECENT_TOP_PACKETS (1ull << (RECENT_SPILLED_SHIFT - 1))
#define RECENT_TOP_BYTES (1ull << (RECENT_PACKETS_SHIFT - 1))
#define RECENT_FULL (RECENT_TOP_PACKETS | RECENT_TOP_BYTES)
#define LONGEST_PACKET (1ull << 19)
#define MOST_CPUS (1ull << 13) /* upper bound of NR_CPUS of every architecture */
_Static_assert(MOST_CPUS * RECENT_PACKET < RECENT_TOP_PACKETS, "packets of a word overflow");
_Static_assert(MOST_CPUS * LONGEST_PACKET < RECENT_TOP_BYTES, "bytes of a word overflow");
_Static_assert(1ull << 32 <= RECENT_TOP_BYTES, "a number of bytes overflows");
_Static_assert(LONGEST_PACKET <= 1ull << (EMC_PACKETS_SHIFT - 1), "bytes of an entry overflow");
struct recent {
	__u64 word;
};
struct totals {
	__u64 packets;
	__u64 bytes;
	__u64 begun;
	__u64 ended;
};

/* Packets that the exact-match cache has a flow for are counted in its entry, next to the action: one
 * line of memory for most packets. The counts of an entry are moved to `recent`, or to the totals
 * where CPUs share words. A program raises `turn` of its CPU, exchanges `count`, adds what was there
 * to the flow, and raises `turn` again; other CPUs see these steps in this order. So `turn` is odd
 * while counts are being moved, and 0 where the CPU never had an entry.
 *
 * A reader loads a flow's words and totals, then the entries. No entry contains counts that the
 * reader found in a word: the result may be too small, never too large. Counts that move meanwhile
 * are missing until the next read.
 *
 * Final counts. A grace period after a slot was marked dead, no program counts on it; but programs
 * may still move its counts. The daemon takes the counts out of each entry of the slot, by compare
 * and swap, waits until each CPU that moves counts has ended that, and then reads words and totals.
 * Each count is taken once, by the daemon or a program. A dead slot's entry never gets counts again.
 */
struct moves {
	__u64 turn;
	__u64 pad[7];
};

/* Actions that are more than one output: a list of instructions in cells of 64 bits (enum op). */
#define CELLS 32       /* an instruction may begin in one of these */
#define CELLS_TOTAL 47 /* with the operands of the last instruction */
struct program {
	__u64 cells[CELLS_TOTAL];
	__u16 set;     /* OP_COPIES: number of the set of ports, plus one; 0: no set */
	__u8 exclude;  /* the ingress port is in the set but gets no copy */
	__u8 growth;   /* upper bound of the bytes that the instructions add to a frame */
	__u8 again;    /* has OP_RECIRC, OP_CT or a header in front that comes or goes, or OP_TUN_PUSH after
			* others: the packet may leave after it was changed */
	__u8 cuts;     /* has OP_TRUNC */
	__u8 pad[2];
};

/* Sets of ports that XDP sends copies to. Each has a devmap of its own, `set0` and so on, because
 * the kernel sends to every entry of a map. A set without flows may be replaced; its ports stay as
 * long as a program names it. */
#define PORT_SETS 32
#define SET_PORTS 32
struct port_set {
	__u32 mtu;          /* the smallest of its ports */
	__u32 blocked;      /* how many of its ports XDP cannot send to now */
	__u32 blocked_port; /* one of these */
	__u32 count;
	__u16 ports[SET_PORTS];
};

/* A token bucket: GCRA with one "theoretical arrival time", see meter.h. */
struct meter_band {
	__u64 cost;  /* picoseconds a bit, or a packet */
	__u64 depth; /* burst, nanoseconds */
	__u64 tat;   /* nanoseconds, CLOCK_MONOTONIC; written by programs, by compare and swap */
	__u64 packets; /* dropped by this band */
	__u64 bytes;
};

/* Ports, by datapath port number. */
#define MAX_PORTS 4096
#define PORT_UP 1     /* may be sent to */
#define PORT_STACK 2  /* packets go to the host's stack (internal and tap devices) */
#define PORT_DEVMAP 4 /* XDP may redirect to it: it is in the devmap */
#define PORT_SPLIT 8  /* XDP may redirect frames in several buffers to it as well */
#define PORT_PEER 16  /* frames for peer_mac enter the other end of the veth pair at once */
#define PORT_UNDERLAY 32 /* the host's stack shares the device: see underlay.h */
struct port {
	__u32 ifindex; /* 0: no such port */
	__u32 flags;
	__u32 mtu; /* bytes after the Ethernet header; one VLAN tag does not count. For the daemon only, of a
		    * tunnel: UDP port | tunnel::Kind::number << 16 */
	__u32 upcall_limit; /* packets that may be on their way to the daemon */
	__u64 sent_up;  /* packets, counted by programs, atomically */
	__u64 taken_up; /* packets, counted by the daemon */
	__u64 closed_until; /* no miss goes up before this time, nanoseconds, CLOCK_MONOTONIC */
	__u64 peer_mac; /* PORT_PEER: address of the other end, in the first six bytes. Of a tunnel: the low
			 * half is the sequence number of the next packet; programs and the daemon add to
			 * it, atomically */
	__u64 ct_closed_until; /* no packet goes up at an OP_CT before this time */
	__u32 tunnel;        /* enum tunnel_kind: the port is of a tunnel, and has no device */
	__u32 tunnel_helper; /* tunnel: interface by which packets that cannot be popped here, because they
			      * are still to be segmented, enter the host's stack, where a tunnel
			      * device of the kernel pops them (tunnel_helper.h). 0: there is none */
};

/* The limits of the packets of a port, by datapath port number: see police.h. A `cost` of 0 is no
 * limit. */
struct policer {
	struct meter_band bits;
	struct meter_band packets;
	__u64 dropped; /* packets */
};

/* Bonds. The id of a bond is the number of a port. A bond has a place, which its id leads to. The daemon
 * moves a bucket to another member by one store. */
#define MAX_BONDS 64
#define BOND_BUCKETS 256
#define NO_MEMBER 0xffff
struct bond_places {
	__u8 of[MAX_PORTS]; /* by id: place of the bond, plus one; 0: no such bond */
};
struct bond {
	__u64 basis; /* number that is mixed into the hash, 32 bits */
	__u16 members[BOND_BUCKETS]; /* by bucket: number of the port; NO_MEMBER: none */
};
/* Bytes that each bucket has sent: [shard * MAX_BONDS + place]. */
struct bond_bytes {
	__u64 of[BOND_BUCKETS];
};

/* port.tunnel_helper: packets enter the host's stack where they have arrived. */
#define HELPER_PASS 0xffffffffu

/* Tunnels that programs pop, and others whose packets they number. */
enum tunnel_kind {
	TUNNEL_NONE,
	TUNNEL_VXLAN,
	TUNNEL_VXLAN_GBP, /* headers may have group policy */
	TUNNEL_GENEVE,
	TUNNEL_GRE,
	TUNNEL_ERSPAN, /* versions 1 and 2 */
	TUNNEL_PUSHED, /* programs push its headers, and do not pop them */
};

/* An inner frame begins below this offset; a power of two. */
#define TUNNEL_REACH 512

/* Geneve options, and fields of ERSPAN, whose data the words W_OPT0 to W_OPT3 have. An entry that is in use
 * stays as it is. The first one that is not in use ends the table. */
#define TUNNEL_OPTIONS 8
#define OPTION_BYTES 28 /* of data */
/* The entry of ERSPAN's fields: version, direction, hardware id, zero, index (be32). No option of Geneve has
 * this header, whose reserved bits are not zero. */
#define ERSPAN_FIELDS bpf_htonl(0x000000e2)
struct tunnel_option {
	__be32 header; /* class, type, length; the reserved bits are zero */
	__u8 at;       /* first byte of the data, counted from the start of W_OPT0 */
	__u8 bytes;    /* of the data; a multiple of 4 */
	__u8 in_use;
	__u8 pad;
};

/* Port counters where no device counts (PORT_STACK, PORT_PEER): [shard * MAX_PORTS + port]. */
struct port_stats {
	__u64 rx_packets;
	__u64 rx_bytes;
	__u64 tx_packets;
	__u64 tx_bytes;
};

/* Interfaces by ifindex: open addressing from ifindex % IFACES, at most IFACE_PROBES steps. */
#define IFACES 8192
#define IFACE_PROBES 4
struct iface {
	__u32 ifindex; /* 0: free */
	__u32 port;    /* with IFACE_* flags */
};

/* Packets belong to the daemon, which has a socket there. */
#define IFACE_DAEMONS (1u << 31)
/* At the tc hook, only packets that the socket's filter marked are for the programs. */
#define IFACE_NOTED (1u << 30)
/* Generic XDP is attached. */
#define IFACE_GENERIC (1u << 29)
/* tc limits the rate of the packets that arrive. XDP leaves them to tc. */
#define IFACE_POLICED (1u << 28)
#define IFACE_FLAGS (IFACE_DAEMONS | IFACE_NOTED | IFACE_GENERIC | IFACE_POLICED)

/* An address of the host to which packets of tunnels come. */
#define MAX_ENDPOINTS 65536
struct tunnel_endpoint {
	__be32 address[4]; /* IPv4 as IPv4-mapped IPv6 */
	__be16 port;       /* UDP; 0 for other protocols */
	__u8 protocol;
	__u8 pad;
};

/* datapath::DropReason, in its numeric order. */
#define DROPS 24 /* places for counters */
enum drop {
	DROP_FLOW,
	DROP_TRANSLATION,
	DROP_RECIRCULATION,
	DROP_UNKNOWN_PORT,
	DROP_PORT_GONE,
	DROP_QUEUE_FULL,
	DROP_TOO_LONG,
	DROP_OUTPUT,
	DROP_UPCALL_LIMIT,
	DROP_METER,
	DROP_MALFORMED,
	DROP_UNSUPPORTED,
	DROP_POLICING,
	DROP_FRAGMENTS_TOO_LONG,
	DROP_FRAGMENTS_PURGED,
	DROP_CT_STALE,
	DROP_TUNNEL_POP,
	DROP_TUNNEL_PUSH,
	DROP_INVALID_TUNNEL_PORT,
	DROP_CONGESTION,
	DROP_NO_TUNNEL,
	DROP_FORWARDING_DISABLED,
	DROP_INVALID_BOND,
};

/* Counters of one shard. */
struct counters {
	__u64 drops[DROPS];
	__u64 walked;  /* scans of the masks: lookups that the caches did not answer */
	__u64 masks;   /* masks searched in them */
	__u64 found;   /* scans that found a flow */
	__u64 up;      /* packets sent to the daemon */
	__u64 passed;  /* XDP: packets left to the next hook */
	__u64 evicted; /* keys that others replaced in the exact-match cache */
	__u64 pad[2];
};

/* Meters. */
#define MAX_METERS 1024
#define METER_BANDS 8
struct meter {
	__u32 in_use;
	__u32 per_packet;
	__u64 packets;
	__u64 bytes;
	struct meter_band bands[METER_BANDS];
	__u64 pad[5];
};

/* One element. */
struct config {
	__u64 magic;
	__u32 version;
	__u32 max_flows; /* a power of two */
	__u32 max_masks;
	__u32 buckets;     /* a power of two */
	__u32 cache_lines; /* a power of two */
	__u32 shards;      /* a power of two */
	__u32 max_programs;
	__u32 miss_ifindex; /* the device that packets go up through; 0: none */
	__u32 vlan_limit;
	__u32 emc_lines; /* of one CPU; a power of two */
	__u32 cpus;
	__u32 generations; /* of variants so far */
	__u32 cache_mask;  /* used lines of the signature cache, minus one; may change */
	__u32 whole_only;  /* some port is PORT_DEVMAP and not PORT_SPLIT; may change */
	__u32 emc_used;    /* lines of emc_lines; 0: the cache is off; may change */
	__u32 emc_reach;   /* the most lines that were in use so far; may grow */
	__u32 segmenter;   /* the device that segments packets, see segmenter.h; 0: none; may change */
	__u32 pad;
	__u64 factors[FACTORS]; /* odd, random, secret; see settings.h */
	struct tunnel_option options[TUNNEL_OPTIONS];
};

/* The header before a packet that goes up through the tap device. It resembles an Ethernet header,
 * so that the kernel can insert a VLAN tag at byte 12. All in network order. */
#define MISS_ETHERTYPE 0x88b5 /* IEEE 802 local experimental 1 */
#define MISS_HEADER 32 /* bytes */
#define MISS_TRACKED 176 /* bytes */
#define MISS_BARE 0x10000 /* flag of miss_header.more */
struct miss_header {
	__be32 in_port;
	__be32 recirc_id;
	__be32 dp_hash;
	__be16 ethertype;
	__be16 version;
	__be32 priority;
	__be32 mark;
	__be32 depth; /* recirculations so far */
	__be32 more;  /* MISS_TRACKED: struct miss_tracked follows, MISS_BARE: the packet begins after the
		       * room of an Ethernet header. 0: the packet */
} __attribute__((packed));
_Static_assert(sizeof(struct miss_header) == MISS_HEADER, "bytes of the miss header");

/* The rest of the header, of a packet that has metadata of a tunnel or of connection tracking, or whose
 * list of actions goes on in the daemon. In network order. */
struct miss_tracked {
	__u64 words[METADATA_WORDS]; /* of the key, from PORT_WORDS on */
	__be64 installed;      /* of the flow */
	__be32 flow;           /* number of the slot */
	__be32 cell;           /* of the flow's program, where the list goes on; NO_CELL: the packet
				* has no flow */
} __attribute__((packed));
#define NO_CELL 0xffffffffu
_Static_assert(sizeof(struct miss_tracked) == MISS_TRACKED, "bytes of the metadata");

/* Outer headers of a tunnel: the bytes that all packets of a flow share. Programs name them by number.
 * The daemon writes one while no program names it, and it does not change then. */
#define TUNNEL_HEADERS 4096
#define TUNNEL_BYTES 192 /* of the longest header; in units of 8 */
#define TUNNEL_UDP 1      /* UDP with a source port of its own for each packet; else GRE */
#define TUNNEL_CHECKSUM 2 /* each packet has a checksum of UDP or GRE */
#define TUNNEL_IPV6 4     /* the outer packet is IPv6 */
#define TUNNEL_WHOLE 8    /* IPv4: with DF, and without an identification */
#define TUNNEL_BARE 16    /* the packet loses its Ethernet header before */
#define TUNNEL_GTPU 32    /* GTP-U, which has a length of its own */
#define TUNNEL_NUMBERED 64 /* each packet has a sequence number */
#define TUNNEL_STAMPED 128 /* ERSPAN of version 2: each packet has the time, 12 bytes after `l4` */
#define TUNNEL_ROUTE 256   /* a segment routing header, whose first octet is the packet's protocol */
#define TUNNEL_LABEL_COPY 512   /* TUNNEL_ROUTE: the flow label is that of an inner IPv6 header */
#define TUNNEL_LABEL_ZERO 1024  /* it is 0 */
#define TUNNEL_LABEL_HASH 2048  /* it is the packet's hash */
struct tunnel_header {
	__u8 bytes[TUNNEL_BYTES]; /* from the Ethernet header on; zero where packets differ */
	__u32 ip_sum; /* IPv4: sum of the words of the IP header, in memory order; the checksum is 0 */
	__u32 l4_sum; /* the same of the bytes after the IP header; UDP: and of the pseudo header, which
		       * has no length */
	__u16 length; /* bytes */
	__u16 l4;     /* offset of the UDP or GRE header */
	__u16 flags;  /* TUNNEL_* */
	__u16 kind;   /* tunnel::Kind::number; programs ignore it */
	__u16 first_port; /* UDP: source ports; a packet's hash chooses one below `last_port` */
	__u16 last_port;
	__u16 path_mtu; /* bytes of the longest IP packet that the path carries; 0: any */
	__u16 number_at; /* TUNNEL_NUMBERED: offset of the number from `l4` on: 4, 8 or 12, or, of the 16
			  * bits of GTP-U, 16 */
	__u32 more_pad[10];
};

/* Instructions of struct program. The first cell is
 *
 *   op | cells << 8 | a << 16 | b << 32     (cells: length with operands)
 *
 * and operands follow. Header fields in operands are in network order, as in a key. A masked set
 * has the value, already under the mask, and then the mask. */
enum op {
	OP_END,           /* end of the list; the packet is discarded and no drop is counted */
	OP_OUTPUT,        /* b: port, or OUTPUT_BOND | id of a bond. a: 1: the packet itself, which ends
			   * the list; 0: a copy. tc, with a 0: OUTPUT_UP | number of a sample of the
			   * flow: a copy to the daemon */
	OP_DROP,          /* b: reason */
	OP_PUSH_VLAN,     /* a: tpid, b: tci without CFI; host integers */
	OP_POP_VLAN,
	OP_SET_ETH,       /* dst+src[0..2], src[2..6]+0: value 2 cells, mask 2 cells */
	OP_SET_IPV4,      /* src+dst value, mask; cell: tos value, tos mask, ttl value, ttl mask as
			   * bytes in memory order, zero */
	OP_SET_IPV6,      /* src 2+2 cells, dst 2+2 cells; cell: label value, label mask (be32 each);
			   * cell: tclass value, mask, hlimit value, mask, zero */
	OP_SET_TCP,       /* cell: src value, src mask, dst value, dst mask (be16 each) */
	OP_SET_UDP,
	OP_SET_SCTP,
	OP_SET_ICMP,      /* b: type value, type mask, code value, code mask as bytes in memory
			   * order; a: 1 for ICMPv6 */
	OP_SET_ARP,       /* cell spa+tpa value, mask; sha+tha[0..2], tha[2..6]+0 value 2 cells, mask
			   * 2 cells; a: op value, b: op mask (host integers) */
	OP_SET_ND,        /* target value 2, mask 2; sll+0 value, mask; tll+0 value, mask */
	OP_SET_ND_EXT,    /* cell: reserved value, mask (be32 each); a: type value | type mask << 8 */
	OP_SET_MPLS,      /* cell: value, mask (be32 each) */
	OP_PUSH_MPLS,     /* a: ethertype, b: the entry; host integers */
	OP_POP_MPLS,      /* a: ethertype, host integer */
	OP_SET_PRIORITY,  /* b */
	OP_SET_MARK,      /* cell: value, mask (host integers, value low half) */
	OP_RECIRC,        /* b: recirc_id, host integer */
	OP_HASH,          /* a: symmetric, b: basis */
	OP_TRUNC,         /* b: bytes, for the next output */
	/* a: cells to skip when not chosen; b: probability. The packet itself continues in the sample's
	 * actions. So a sample is last in its list, or contains nothing but copies. */
	OP_SAMPLE,
	OP_METER,         /* b: id */
	OP_CHECK_LEN,     /* a: cells to skip when longer; b: length */
	/* XDP: sends to all ports of the program's set and ends the list. tc: does nothing; outputs to
	 * the same ports follow. */
	OP_COPIES,
	/* a: CT_OP_*, b: zone | number of the timeout policy << 16. In this order, as far as `a` has
	 * them: CT_OP_MARK: cell: value, mask (host integers, value low half). CT_OP_LABEL: value low
	 * half, high half, mask low half, high half. CT_OP_ADDRESSES: first and last address, as two
	 * be32 in a cell, with CT_OP_IPV6 2 + 2 cells. CT_OP_PORTS: cell: first, last (host integers).
	 * Programs use zone, flags, mark and label; the rest is for the daemon. */
	OP_CT,
	OP_CT_CLEAR,
	OP_HEADER, /* a: enum header_op | cells of operands << 8 */
	/* a: bytes of the header, b: its number in tunnel_headers. Cell: number of the tunnel port, and
	 * of the port that the outer packet leaves by (host integers, tunnel port low half; with
	 * PUSH_OF_BARE). The instructions that follow are for the outer packet. */
	OP_TUN_PUSH,
	/* The first instruction of a list that changes the packet before an OP_TUN_PUSH. b: bytes of the
	 * longest frame that fits its path with outer headers; of a packet that is still to be segmented,
	 * of its longest segment. A longer one leaves unchanged: its sender gets a report about it. */
	OP_TUN_ROOM,
	OP_COUNT,
};

/* Flag of a tunnel port in an OP_TUN_PUSH: the packet has no Ethernet header before. Without it, one with
 * TUNNEL_BARE takes the Ethernet header off. */
#define PUSH_OF_BARE 0x80000000u

/* Instructions of OP_HEADER: headers in front of the packet. */
enum header_op {
	HEADER_SET_NSH, /* cell: flags value, mask, ttl value, mask as bytes in memory order, zero;
			 * cell: path value, mask (be32 each); if a context changes, four cells:
			 * value, mask (be32 each) */
	HEADER_PUSH_NSH, /* b: bytes of the header, which follows; its protocol is that of the packet */
	HEADER_POP_NSH,
	HEADER_PUSH_ETH, /* dst+src[0..2], src[2..6]+0 */
	HEADER_POP_ETH,
	HEADER_ADD_MPLS, /* b: the entry; cell: ethertype; host integers. In front of the whole packet */
	HEADER_OPS,
};

/* Flags of OP_OUTPUT. */
#define OUTPUT_BOND 0x80000000u
#define OUTPUT_UP 0x40000000u

/* Flags of OP_CT. */
#define CT_OP_COMMIT 1
#define CT_OP_FORCE 2
#define CT_OP_MARK 4
#define CT_OP_LABEL 8
#define CT_OP_NAT 16        /* translate; alone: as the connection has it */
#define CT_OP_SRC 32        /* give a new connection a translation of its source */
#define CT_OP_DST 64        /* the same of its destination */
#define CT_OP_RANDOM 128    /* choose at random */
#define CT_OP_PERSISTENT 256
#define CT_OP_ADDRESSES 512
#define CT_OP_IPV6 1024
#define CT_OP_PORTS 2048
#define CT_OP_HASH 4096 /* choose by a hash, as without CT_OP_RANDOM; for dumps */

/* Slots of the tail-call table. Each hook has one table. */
enum tail {
	TAIL_LOOKUP, /* a packet from a port: the present variant */
	TAIL_RECIRC, /* a packet that is looked up again: metadata is in struct state */
	TAIL_MASK_SCAN,
	TAIL_EXEC,
	TAIL_PULL, /* tc: makes headers linear, then looks up */
	TAIL_MISS,
	TAIL_PRECHECK, /* XDP: before a program with FLOW_PRECHECK */
	TAIL_CT,       /* OP_CT */
	TAIL_CT_MOVE,  /* tc: OP_CT of a packet that TAIL_CT leaves. Empty: it goes up */
	TAIL_CHAIN,    /* a packet from a port whose flow has FLOW_CHAIN. Empty: as any other flow */
	TAIL_TUNNEL,   /* a packet from a port whose flow has FLOW_POP */
	TAIL_TUN_PUSH, /* OP_TUN_PUSH and OP_TUN_ROOM */
	TAIL_TUN_CHAIN, /* a packet out of a tunnel whose flow has FLOW_CHAIN, or one that a result of a
			 * chain sends into a tunnel. Empty: as any other flow */
	TAIL_POLICE,   /* tc: a packet from an interface with IFACE_POLICED */
	TAILS,
};

#endif
