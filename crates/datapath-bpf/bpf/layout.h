/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The memory that the daemon and the programs share.
 *
 * Every array here is a BPF_MAP_TYPE_ARRAY with BPF_F_MMAPABLE (those of maps.h's TABLE with all
 * entries in one element): the daemon reads and writes it through a mapping. src/layout.rs is the same in Rust, with assertions on every offset; a
 * change here is a change there and a new LAYOUT_VERSION.
 *
 * Who writes: the daemon writes everything but the caches, statistics, and the counters of packets
 * sent up. One daemon at a time.
 *
 * Publication. A slot is filled while nothing refers to it, then its number is stored (release)
 * into the index. A program loads a number from the index or from the cache, and reads the slot
 * at an address that depends on it, so it sees the slot filled. A published slot never changes,
 * but for `dead`. A slot is used anew only after: its number was taken from the index; a grace
 * period (programs that hold the number end; they may have put it into the cache); the cache
 * was searched for the number; another grace period (programs that had it from the cache end); no
 * batch names it any more.
 * The exact-match cache need not be searched: its entries end with the epoch.
 */
#ifndef SLIPSWITCH_LAYOUT_H
#define SLIPSWITCH_LAYOUT_H

#include <linux/types.h>

#define LAYOUT_MAGIC 0x736c697073776368ull /* "slipswch" */
#define LAYOUT_VERSION 8

/* Words of a key: the fields of `flow::Key` from `recirc_id` on (its registers are no datapath's
 * business), put together so that what tells most packets apart is the first five. Bytes are in
 * network order, as there. */
enum word {
	W_PORT, /* in_port (16 bits), dl_type, first VLAN's tpid and tci */
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
	W_ND0, /* nd_target */
	W_ND1,
	W_HW0, /* arp_sha, first two bytes of arp_tha */
	W_HW1, /* rest of arp_tha, tcp_flags, zero */
	W_ND2, /* nd_reserved, nd_options_type, zero */
	WORDS,
};

#define COLD_WORDS (WORDS - HOT_WORDS)

/* Factors of the hash: of each word, of the mask's number, of the high half of each word. Then
 * those of the exact-match cache: of its words, of their high halves, of the tag. */
#define FACTOR_OF_MASK WORDS
#define FACTORS_OF_HALVES (WORDS + 1)
#define FACTORS_OF_CHECK (2 * WORDS + 1)
#define FACTOR_OF_TAG (FACTORS_OF_CHECK + 2 * EMC_WORDS)
#define FACTORS (FACTOR_OF_TAG + 1)

/* Beside the bits of words, where there are such: the flow looks behind the Ethernet header and
 * VLANs. (Some words have fields of both.) */
#define NEEDS_L3 (1u << 30)
#define ALL_NEEDS (((1u << WORDS) - 1) | NEEDS_L3)

/* `flow::extract`: bits of nw_frag. */
#define FRAG_ANY 1
#define FRAG_LATER 2
#define VLAN_CFI 0x1000

/* Hooks, as bits of slot.hooks. */
#define HOOK_XDP 1
#define HOOK_TC 2

/* slot.flags */
#define FLOW_NO_GSO 1 /* actions that a packet still to be segmented cannot go through */
#define FLOW_PRECHECK 2   /* XDP: the program has copies, looks packets up again, or cuts: see undo.h */
#define FLOW_PACKET_TYPE 0x80 /* the daemon's own: the match names packet_type 0, which is always so */

/* mask.needs of a mask in the midst that no flow uses and that may be written: walks go on past it. */
#define MASK_VACANT 0x80000000u

#define NO_PORT 0xffffffffu
#define NO_PROGRAM 0xffffffffu

/* One flow: what the lookup of most packets touches. */
struct slot {
	__u64 hot[HOT_WORDS];
	__u32 dead;    /* not 0: removed; a program that meets it treats it as not there */
	__u32 output;  /* the actions are one output to this port; NO_PORT: see program */
	__u32 program; /* index into actions; NO_PROGRAM with NO_PORT: drop, counted as `reason` */
	__u16 mask;    /* index into masks */
	__u8 hooks;    /* where the actions can run */
	__u8 flags;
};

/* The rest of the flow, under the same number. */
struct slot_detail {
	__u64 cold[COLD_WORDS];
	__u32 needs;   /* bit W_x: the mask looks at word W_x */
	__u32 reason;
	__u64 ufid[2]; /* high half first */
	__u64 hash;    /* see lookup.h */
	__u64 installed; /* milliseconds, CLOCK_MONOTONIC */
	__u64 instructions; /* of the program: tail calls that it takes at most */
	__u64 pad[5];
};

/* One mask (one tuple of the tuple space search), walked in order up to the first unused one. */
struct mask {
	__u64 words[WORDS];
	__u32 needs; /* bit W_x: words[x] is not zero. 0: end of the masks. in_port is always in */
	__u32 flows; /* for people */
};

/* Index: two-choice buckets. A program looks in bucket h and in its partner.
 * entry = hash << 32 | slot number + 1; 0 is free. */
#define BUCKET 8
struct bucket {
	__u64 entries[BUCKET];
};

/* Exact-match cache: the first words of a key under the union of all masks -> what to do with the
 * packet. Each CPU has lines of its own, which only programs on it read and write (they do not
 * interrupt each other); [cpu * lines of a CPU + line]. An entry that has the epoch of its slot
 * is as good as the slot: see emc.h. */
#define EMC_WAYS 4
#define EMC_SLOTS (1u << 24) /* most flows that there may be */
#define EMC_OUTPUT_SHIFT 24
#define EMC_NO_OUTPUT 0x1fff /* beyond all ports */
#define EMC_HOOKS_SHIFT 37
#define EMC_FLAGS_SHIFT 39
#define EMC_CHECK_SHIFT 41
struct emc_entry {
	__u64 sign; /* a sum of the key, to which the tag is added */
	__u64 what; /* slot, output, hooks, flags, another sum of the key; 0: free */
};
struct emc_line {
	struct emc_entry ways[EMC_WAYS];
};

/* Packets that follow each other: their key under the union of all masks, and what the exact-match
 * cache had for it. Each CPU has its own, as above: see last_flow.h. */
struct last_flow {
	__u64 key[EMC_WORDS];
	__u64 tag;   /* that the entry was found under */
	__u64 what;  /* of the entry; 0: there is no train */
	__u32 last;  /* slot of the packet before */
	__u32 again; /* no train, but two packets of one flow: the next one may make one */
};

/* Epochs of slots, by number % EPOCHS; never 0. The daemon raises one after it marks a slot
 * dead. One element. */
#define EPOCHS 1024
struct epochs {
	__u32 of[EPOCHS];
};

/* Signature cache: hash of the key under the union of all masks -> slot. Written by programs.
 * An entry is a hint: the slot is compared each time. Same form as in the index. */
#define WAYS 4
struct cache_line {
	__u64 entries[WAYS];
};

/* Statistics of a slot: what it counted of late on each shard of CPUs, one word that is all that
 * most packets touch, recent[shard * max_flows + slot], and what was taken out of these words
 * before, totals[slot]. Written by programs only, each shard's words by its own CPUs; zeroed by the
 * daemon before publication. From the lowest bit on a word has
 *
 *   34 bits  bytes
 *   17 bits  packets
 *    1 bit   RECENT_SPILLED: the totals are not zero; stays
 *   12 bits  TCP flags, ORed; stay
 *
 * A packet is one addition to both counts. Whoever then finds the top bit of one of them set spills:
 * moves both to the totals. No count overflows into what is above it. Where a shard has one CPU a
 * count is below its top bit before a packet is added, and no packet has 2^33 bytes. Where CPUs
 * share a shard each of them may add a packet more before the first has spilled, and spills itself
 * before it adds another. A packet has at most 512 KiB then: GSO_MAX_SIZE, the limit of BIG TCP.
 *
 * Spilling: `begun` is raised, the word is taken, its counts are added to the totals, `ended` is
 * raised, each seen by other CPUs in this order. A reader loads `ended`, the totals, the words,
 * `begun`. When both numbers are equal nobody spilled meanwhile: those who had begun had ended
 * before. Else what it has is too little, never too much, since no word has what it found in the
 * totals. */
#define RECENT_PACKETS_SHIFT 34
#define RECENT_SPILLED_SHIFT 51
#define TCP_FLAGS_SHIFT 52
#define RECENT_PACKET (1ull << RECENT_PACKETS_SHIFT)
#define RECENT_BYTES (RECENT_PACKET - 1)
#define RECENT_SPILLED (1ull << RECENT_SPILLED_SHIFT)
#define RECENT_FLAGS (~0ull << TCP_FLAGS_SHIFT)
/* The top bits of packets and of bytes. */
#define RECENT_TOP_PACKETS (1ull << (RECENT_SPILLED_SHIFT - 1))
#define RECENT_TOP_BYTES (1ull << (RECENT_PACKETS_SHIFT - 1))
#define RECENT_FULL (RECENT_TOP_PACKETS | RECENT_TOP_BYTES)
#define LONGEST_PACKET (1ull << 19)
#define MOST_CPUS (1ull << 13) /* NR_CPUS of every architecture is at most this */
_Static_assert(MOST_CPUS * RECENT_PACKET < RECENT_TOP_PACKETS, "packets of a word overflow");
_Static_assert(MOST_CPUS * LONGEST_PACKET < RECENT_TOP_BYTES, "bytes of a word overflow");
_Static_assert(1ull << 32 <= RECENT_TOP_BYTES, "a number of bytes overflows");
struct recent {
	__u64 word;
};
struct totals {
	__u64 packets;
	__u64 bytes;
	__u64 begun;
	__u64 ended;
};

/* Packets of one CPU that are not in `recent` yet, each with its flow's slot, where settings.batched.
 * When a batch is full all of them are added, one behind the other: with many flows each word is a
 * line of memory that no cache has, and the CPU then reads them side by side, where it would wait
 * for each one if each packet were added by itself. From the lowest bit on an entry has
 *
 *   24 bits  slot
 *   27 bits  bytes
 *    1 bit   the second bit of `turn` when it was noted
 *   12 bits  TCP flags
 *
 * Zero is no packet: each has bytes. `turn` is twice how many batches were added, and odd while one
 * is: raised, words, raised, each seen by other CPUs in this order. A reader loads `turn`, then the
 * entries: those that have its second bit wait. Before and behind a flow's words and totals it
 * loads `turn` again. While that is the same and even they do not have what waits; when it is more
 * by two or more before, they have it. Else it is not known, and the words alone are too little,
 * never too much. */
#define BATCH 16
#define BATCH_BYTES_SHIFT 24
#define BATCH_TURN_SHIFT 51
#define BATCH_BYTES ((1ull << (BATCH_TURN_SHIFT - BATCH_BYTES_SHIFT)) - 1)
_Static_assert(EMC_SLOTS <= 1ull << BATCH_BYTES_SHIFT, "a slot does not fit into an entry");
_Static_assert(LONGEST_PACKET <= BATCH_BYTES, "a packet's bytes do not fit into an entry");
struct batch {
	__u64 cursor; /* packets so far; 0: none ever */
	__u64 turn;
	__u64 pad[6];
	__u64 entries[BATCH];
};

/* Actions that are more than one output: cells of 64 bits, see program.h. */
#define CELLS 32       /* where a list may begin an instruction */
#define CELLS_TOTAL 47 /* operands of the last one reach so far */
struct program {
	__u64 cells[CELLS_TOTAL];
	__u16 set;     /* OP_COPIES: number of the set of ports, plus one; 0: there is none */
	__u8 exclude;  /* not to the ingress port, which is in the set as well */
	__u8 growth;   /* bytes that the instructions add to a frame at most */
	__u8 again;    /* has OP_RECIRC */
	__u8 cuts;     /* has OP_TRUNC */
	__u8 pad[2];
};

/* Sets of ports that copies go to at XDP. Each has a devmap of its own, `set0` and so on, because
 * the kernel sends to everything that is in a map. A set whose flows are all gone is used again;
 * as long as programs name it, its ports stay. */
#define PORT_SETS 32
#define SET_PORTS 32
struct port_set {
	__u32 mtu;          /* the least of its ports' */
	__u32 blocked;      /* how many of them XDP cannot send to now */
	__u32 blocked_port; /* one of these */
	__u32 count;
	__u16 ports[SET_PORTS];
};

/* Ports, by datapath port number. */
#define MAX_PORTS 4096
#define PORT_UP 1     /* may be sent to */
#define PORT_STACK 2  /* sending means: to the host's stack (internal and tap devices) */
#define PORT_DEVMAP 4 /* XDP may redirect to it: it is in the devmap */
#define PORT_SPLIT 8  /* XDP may redirect frames in several buffers to it, too */
struct port {
	__u32 ifindex; /* 0: no such port */
	__u32 flags;
	__u32 mtu; /* bytes behind the Ethernet header; one VLAN tag is free */
	__u32 upcall_limit; /* packets that may be on their way up */
	__u64 sent_up;  /* by programs, atomically */
	__u64 taken_up; /* by the daemon */
	__u64 closed_until; /* nothing goes up before this time, nanoseconds, CLOCK_MONOTONIC */
	__u64 pad[3];
};

/* Port counters where the device does not count (PORT_STACK): [shard * MAX_PORTS + port]. */
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
	__u32 port;    /* and IFACE_* */
};

/* What arrives is the daemon's, which has a socket there. */
#define IFACE_DAEMONS (1u << 31)
/* At the tc hook, only what the socket's filter has noted is ours. */
#define IFACE_NOTED (1u << 30)
/* Generic XDP is attached. */
#define IFACE_GENERIC (1u << 29)
#define IFACE_FLAGS (IFACE_DAEMONS | IFACE_NOTED | IFACE_GENERIC)

/* datapath::DropReason, in its numeric order. */
#define DROPS 16
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
};

/* Counters of one shard. */
struct counters {
	__u64 drops[DROPS];
	__u64 walked;  /* lookups that the cache did not answer */
	__u64 masks;   /* masks looked at in them */
	__u64 found;   /* walks that found a flow */
	__u64 up;      /* packets sent to the daemon */
	__u64 passed;  /* XDP: packets left to the next hook */
	__u64 evicted; /* keys that left the exact-match cache for others */
	__u64 pad[2];
};

/* Meters: GCRA, one "theoretical arrival time" a band. */
#define MAX_METERS 1024
#define METER_BANDS 8
struct meter_band {
	__u64 cost;  /* picoseconds a bit, or a packet */
	__u64 depth; /* burst, nanoseconds */
	__u64 tat;   /* nanoseconds, CLOCK_MONOTONIC; programs, by compare and swap */
	__u64 packets; /* dropped by this band */
	__u64 bytes;
};
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
	__u32 miss_ifindex; /* where packets go up; 0: nobody is there */
	__u32 vlan_limit;
	__u32 emc_lines; /* of one CPU; a power of two */
	__u32 cpus;
	__u32 generations; /* of variants so far */
	__u32 cache_mask;  /* lines of the signature cache that are used, less one; may change */
	__u32 whole_only;  /* some port is PORT_DEVMAP and not PORT_SPLIT; may change */
	__u64 factors[FACTORS]; /* odd, random, secret; see settings.h */
};

/* What goes before a packet that is sent up by the tap device: looks like an Ethernet header, so
 * that the kernel may put a VLAN tag at byte 12. All in network order. */
#define MISS_ETHERTYPE 0x88b5 /* IEEE 802 local experimental 1 */
struct miss_header {
	__be32 in_port;
	__be32 recirc_id;
	__be32 dp_hash;
	__be16 ethertype;
	__be16 version;
	__be32 priority;
	__be32 mark;
	__be32 depth; /* recirculations so far */
	__be32 pad;
} __attribute__((packed));

/* Instructions of struct program: the first cell is
 *   op | cells << 8 | a << 16 | b << 32     (cells: length with operands)
 * operands follow. Header fields in operands are in network order, as in a key. A masked set
 * carries value then mask, the value already under the mask. */
enum op {
	OP_END,           /* nothing is left; drops nothing more */
	OP_OUTPUT,        /* b: port. Last one: the packet itself, else a copy. a: 1 when last */
	OP_DROP,          /* b: reason */
	OP_PUSH_VLAN,     /* a: tpid, b: tci without CFI; host integers */
	OP_POP_VLAN,
	OP_SET_ETH,       /* dst+src[0..2], src[2..6]+0: value 2 cells, mask 2 cells */
	OP_SET_IPV4,      /* src+dst value, mask; cell: tos value, tos mask, ttl value, ttl mask as bytes in memory order, zero */
	OP_SET_IPV6,      /* src 2+2 cells, dst 2+2 cells, cell: label value, label mask (be32 each), cell: tclass value, mask, hlimit value, mask, zero */
	OP_SET_TCP,       /* cell: src value, src mask, dst value, dst mask (be16 each) */
	OP_SET_UDP,
	OP_SET_SCTP,
	OP_SET_ICMP,      /* b: type value, type mask, code value, code mask as bytes in memory order; a: 1 for ICMPv6 */
	OP_SET_ARP,       /* cell spa+tpa value, mask; sha+tha[0..2], tha[2..6]+0 value 2 cells, mask 2 cells; a: op value, b: op mask (host integers) */
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
	/* a: cells to skip when not chosen; b: probability. The packet itself goes on into what follows,
	 * so only where nothing follows the sample, or it undos nothing but copies. */
	OP_SAMPLE,
	OP_METER,         /* b: id */
	OP_CHECK_LEN,     /* a: cells to skip when longer; b: length */
	/* XDP: to all ports of the program's set, which ends it. tc: nothing; outputs to the same ports
	 * follow. */
	OP_COPIES,
	OP_COUNT,
};

/* Slots of the tail-call table, one table a hook. */
enum tail {
	TAIL_LOOKUP, /* a packet from a port: the present variant */
	TAIL_RECIRC, /* a packet that is looked up again: metadata is in `state` */
	TAIL_MASK_SCAN,
	TAIL_EXEC,
	TAIL_PULL, /* tc: makes headers linear, then looks up */
	TAIL_MISS,
	TAIL_PRECHECK, /* XDP: before a program with FLOW_PRECHECK */
	TAILS,
};

#endif
