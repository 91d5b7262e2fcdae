/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The memory of the table of connections, which programs and all threads of the daemon share.
 *
 * The crate `conntrack` owns this layout (crates/conntrack/src/layout.rs), and a test compares the
 * numbers. The layout has a version of its own: a new layout of flows does not end connections.
 *
 * All cells are words of 64 bits in host byte order. No cell is accessed by parts. In each array an
 * element is an array of words; the names below are numbers of words and positions of bits.
 *
 * Index entries are hints. The head of a connection decides: it changes by compare-and-swap alone,
 * and it is judged and changed with one value.
 */
#ifndef SLIPSWITCH_CT_LAYOUT_H
#define SLIPSWITCH_CT_LAYOUT_H

#include <linux/types.h>

#define CT_VERSION 3
#define CT_MAGIC 0x536c697063740000ull /* plus CT_VERSION */

/* Words of a key: the canonical form of a tuple, equal for both directions.
 *
 * Word 0: port of the low endpoint (16 bits), port of the high one, zone, protocol (8 bits), kind.
 * ICMP has its identifier and code in place of the ports. IPv4: word 1 is the low endpoint's
 * address and the high one's; the others are zero. IPv6: words 1 and 2 are the low endpoint's
 * address, 3 and 4 the high one's. */
#define CT_KEY_WORDS 5

/* Bits of the kind. */
#define CT_KIND_V6 1
#define CT_KIND_CLASS_SHIFT 1 /* ICMP: class of the message */
#define CT_KIND_CLASS_MASK 3
#define CT_KIND_HIGH_ASKS 8   /* ICMP: the high endpoint sends the requests */

/* Classes of ICMP messages. */
#define CT_CLASS_ECHO 1
#define CT_CLASS_TIMESTAMP 2
#define CT_CLASS_INFORMATION 3

/* Words of the configuration. */
#define CT_CONFIG_WORDS 216
#define CT_CONFIG_MAGIC 0
#define CT_CONFIG_FLAGS 1
#define CT_CONFIG_INDEX 2  /* generation that takes entries (8 bits), other that is searched (8) */
#define CT_CONFIG_NO_INDEX 0xff
#define CT_CONFIG_SEED 3
#define CT_CONFIG_FACTORS 4 /* of the hash: for each word of a key one of it, one of its high half */
#define CT_CONFIG_MAX_CONNS 14
#define CT_CONFIG_HALF_OPEN_PERCENT 15
#define CT_CONFIG_DEFAULT_LIMIT 16
#define CT_CONFIG_TOTALS 24 /* lines: connections, half-open connections */
#define CT_CONFIG_SHARDS 8
#define CT_CONFIG_LINE 8
#define CT_CONFIG_EVENTS 88 /* for each shard a line of CT_EVENTS words: what programs counted */
#define CT_EVENTS 16
#define CT_NO_SEQUENCE_CHECK 1 /* a bit of CT_CONFIG_FLAGS */

/* Events, by the numbers of conntrack::Counter. */
#define CT_EVENT_FULL 0
#define CT_EVENT_ZONE_FULL 1
#define CT_EVENT_HALF_OPEN_FULL 2
#define CT_EVENT_BUCKET_FULL 3
#define CT_EVENT_OVERTAKEN 4
#define CT_EVENT_IP_CHECKSUM_WRONG 6
#define CT_EVENT_CHECKSUM_WRONG 7
#define CT_EVENT_IP_CHECKSUM 8
#define CT_EVENT_CHECKSUM 9
#define CT_EVENT_SEQUENCE_BYPASSED 11
#define CT_EVENT_SEQUENCE_FAILED 12
#define CT_EVENT_INVALID_FLAGS 13

/* An index place: 0, or hash << 32 | slot + 1. Generation g has four times the buckets of g - 1. */
#define CT_PLACES 8
#define CT_INDEX_GENERATIONS 16
#define CT_INDEX_MIN_SHIFT 15
#define CT_INDEX_MAX_SHIFT 20

/* A slot number: chunk << CT_CHUNK_SHIFT | place. */
#define CT_CHUNK_SHIFT 16
#define CT_CHUNKS 64

#define CT_RINGS 8
#define CT_RING_SLOTS 32768
#define CT_RING_HEAD 0   /* slots ever taken: moved by compare-and-swap */
#define CT_RING_TAIL 8   /* slots ever put in: moved by the daemon's sweeper */
#define CT_RING_CELLS 16 /* first of the cells, with two slot numbers each, the first low */

#define CT_ZONES 65536
#define CT_ZONE_WORDS 4
#define CT_ZONE_LIMIT 0 /* limit plus one; 0: the default limit */
#define CT_ZONE_COUNT 1
#define CT_ZONE_HALF_OPEN 2
#define CT_ZONE_EXPECTATIONS 3

#define CT_POLICIES 4096
#define CT_POLICY_WORDS 8 /* timeouts in ticks, two a word, the even number low; 0: policy 0's */

#define CT_EXTENSIONS 65536
#define CT_EXTENSION_WORDS 8
#define CT_EXTENSION_PARENT 1 /* CT_KEY_WORDS: original tuple of the connection that expected this one */
#define CT_EXTENSION_FLAGS 6  /* bit 0: the parent's source is the high endpoint */

/* Words of a connection: two lines. */
#define CT_CONN_WORDS 16
#define CT_CONN_HEAD 0
#define CT_CONN_KEY 1         /* CT_KEY_WORDS: of the original direction */
#define CT_CONN_WINDOW 6      /* two, by direction */
#define CT_CONN_CONTROL 8     /* TCP: states 2 * 4 bits, shifts 2 * 8, largest windows 2 * 16 */
#define CT_CONN_MARK 9        /* mark 32 bits, policy 12, timeout 4, shard 4, helper 2 */
#define CT_CONN_LABEL 10      /* two, low half first */
#define CT_CONN_NAT_ADDRESS 12 /* two, high half first: the reply tuple's address that NAT put in */
#define CT_CONN_NAT_PORTS 14  /* reply tuple: source port << 48 | destination port << 32; then the
				 extension's number plus one in 17 bits */
#define CT_CONN_MADE 15       /* tick of creation in the low half */

#define CT_MARK_POLICY_SHIFT 32
#define CT_MARK_TIMEOUT_SHIFT 44
#define CT_MARK_SHARD_SHIFT 48
#define CT_MARK_HELPER_SHIFT 52

/* A head: phase 2 bits, flags 14, generation 16, expiry in ticks 32. */
#define CT_PHASE_SHIFT 62
#define CT_FREE 0
#define CT_TENTATIVE 1
#define CT_LIVE 2
#define CT_DEAD 3
#define CT_FLAGS_SHIFT 48
#define CT_FLAGS_MASK 0x3fff
#define CT_GENERATION_SHIFT 32

/* Flags of a head. */
#define CT_ASSURED 1
#define CT_REPLIED 2
#define CT_MULTIPLE 4
#define CT_ORIGINAL_IS_HIGH 8
#define CT_NAT_SRC 16
#define CT_NAT_DST 32
#define CT_DAEMON 64    /* the daemon alone processes its packets */
#define CT_RELATED 128
#define CT_HALF_OPEN 256

/* A tick: 2^24 ns of CLOCK_MONOTONIC. */
#define CT_TICK_SHIFT 24

/* Zones' limits below this number may be used up by half-open connections. */
#define CT_SMALL_LIMIT 64
/* A connection's expiry moves only when it changes by this many ticks. */
#define CT_REFRESH_TICKS 4
/* Used places of the first bucket up to which it takes another entry before the second one is
 * considered. */
#define CT_FIRST_ENOUGH 5
/* Buckets after the first one of a connection that has no room, in whose first places a half-open
 * connection is searched that makes room. */
#define CT_EVICTION_BUCKETS 32

struct ct_config {
	__u64 words[CT_CONFIG_WORDS];
};

struct ct_bucket {
	__u64 places[CT_PLACES];
};

struct ct_conn {
	__u64 words[CT_CONN_WORDS];
};

struct ct_ring {
	__u64 words[CT_RING_CELLS + CT_RING_SLOTS / 2];
};

struct ct_zone {
	__u64 words[CT_ZONE_WORDS];
};

struct ct_extension {
	__u64 words[CT_EXTENSION_WORDS];
};

struct ct_policy {
	__u64 words[CT_POLICY_WORDS];
};

#endif
