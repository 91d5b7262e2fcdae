/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of connections: lookup, and changes of a connection that a lookup found. Creation is in
 * ct_creation.h. The crate `conntrack` does the same in Rust, on the same memory and at the same
 * time (src/table.rs, src/index.rs there).
 *
 *   ct_find        the connection of packets with a tuple
 *   ct_refresh     moves the expiry of a live connection and sets flags
 *   ct_kill        ends a live connection
 *   ct_change      changes bits of another word (mark, label)
 *   ct_exchange    replaces a word, for the words of TCP
 *
 * A program holds what it found until it ends: the daemon frees no slot meanwhile. A lookup that
 * hits reads one line of the index and one of the connection, two when it has NAT.
 */
#ifndef SLIPSWITCH_CT_TABLE_H
#define SLIPSWITCH_CT_TABLE_H

#include "ct_tuple.h"

/* Attempts of a compare-and-swap that other threads win, one after the other: of a refresh, and of
 * a change that must not be lost. */
#define CT_REFRESH_TRIES 3
#define CT_CHANGE_TRIES 8

/* A connection that a lookup found. */
struct ct_found {
	__u64 head;  /* the state word by which it was found */
	__u32 slot;
	__u32 reply; /* 1: packets with the tuple are of the reply direction */
};

/* Returns the phase of `head`. */
static __always_inline __u64 ct_phase(__u64 head)
{
	return head >> CT_PHASE_SHIFT;
}

/* Returns the flags of `head`. */
static __always_inline __u64 ct_flags(__u64 head)
{
	return head >> CT_FLAGS_SHIFT & CT_FLAGS_MASK;
}

/* Returns `head` in another phase. */
static __always_inline __u64 ct_with_phase(__u64 head, __u64 phase)
{
	return (head & ~((__u64)CT_DEAD << CT_PHASE_SHIFT)) | phase << CT_PHASE_SHIFT;
}

/* Returns true for a live connection that has not expired. */
static __always_inline bool ct_is_live(__u64 head, __u32 now)
{
	return ct_phase(head) == CT_LIVE && (__s32)(now - (__u32)head) < 0;
}

/**
 * ct_bucket_of - Finds one of the buckets that an entry of a hash may be in.
 * @indexes: word CT_CONFIG_INDEX of the configuration
 * @hash: hash of a key
 * @turn: 0 and 1: the two buckets in the index that takes entries; 2 and 3: in the other
 *
 * Return: NULL when there is no such bucket.
 */
static __always_inline struct ct_bucket *ct_bucket_of(__u64 indexes, __u32 hash, __u32 turn)
{
	__u32 generation = indexes >> (turn & 2 ? 8 : 0) & 0xff, shift, mask, number;
	__u32 second = hash * 0x9e3779b1u >> 13 ^ hash << 19;
	void *index;

	if (generation >= CT_INDEX_GENERATIONS)
		return 0;
	index = bpf_map_lookup_elem(&ct_index, &generation);
	if (!index)
		return 0;
	shift = CT_INDEX_MIN_SHIFT + 2 * generation;
	if (shift > CT_INDEX_MAX_SHIFT)
		shift = CT_INDEX_MAX_SHIFT;
	mask = (1u << shift) - 1;
	number = (turn & 1 ? second : hash) & mask;
	if (turn & 1 && number == (hash & mask))
		return 0;
	return bpf_map_lookup_elem(index, &number);
}

/**
 * ct_candidate - Finds the connection of a place in a bucket.
 * @b: the bucket
 * @place: number of the place
 * @hash: hash of the key that is looked for
 * @slot: becomes the connection's slot
 *
 * Return: NULL when the entry there has another hash, or none.
 */
static __always_inline struct ct_conn *ct_candidate(struct ct_bucket *b, int place, __u32 hash,
						    __u32 *slot)
{
	__u64 entry = ct_load(b->places[place]);

	*slot = (__u32)entry - 1;
	return entry >> 32 == hash ? ct_conn_at(*slot) : 0;
}

/* Returns half an address of an endpoint of a connection's key: the high half, or the low one. */
static __always_inline __u64 ct_endpoint(const struct ct_conn *c, bool top, int half)
{
	__u64 first = ct_load(c->words[CT_CONN_KEY + 1]);

	if (ct_load(c->words[CT_CONN_KEY]) & CT_KIND_V6)
		return ct_load(c->words[CT_CONN_KEY + 1 + half + (top ? 2 : 0)]);
	if (!half)
		return 0;
	return top ? (__u32)first : first >> 32;
}

/**
 * ct_is_reply - Compares a tuple with the reply tuple of a connection with NAT.
 * @slot: of the connection
 * @head: its head
 * @t: the tuple
 *
 * A function of its own, for the verifier: it has many branches.
 *
 * Return: 1 when they are equal, else 0.
 */
__noinline int ct_is_reply(__u32 slot, __u64 head, const struct ct_tuple *t)
{
	bool high = ct_flags(head) & CT_ORIGINAL_IS_HIGH, src_nat = ct_flags(head) & CT_NAT_SRC;
	struct ct_conn *c = ct_conn_at(slot);
	__u64 differs, meta, ports, kinds;

	if (!c || !t)
		return 0;
	meta = ct_load(c->words[CT_CONN_KEY]);
	ports = ct_load(c->words[CT_CONN_NAT_PORTS]);
	kinds = CT_KIND_V6 | CT_KIND_CLASS_MASK << CT_KIND_CLASS_SHIFT;
	differs = ((meta ^ t->kind) & kinds) | ((__u8)(meta >> 8) ^ t->proto) |
		  ((__u16)(meta >> 16) ^ t->zone) | (ports >> 48 ^ t->sport);
	if (ct_is_icmp(t))
		differs |= ((__u16)(meta >> 32) ^ t->dport) |
			   (high ^ !!(meta & CT_KIND_HIGH_ASKS) ^ (t->request & 1));
	else
		differs |= (__u16)(ports >> 32) ^ t->dport;
	if (differs)
		return 0;
	/* Replies come from the original's destination, which is the low endpoint when its source is
	 * the high one. */
#pragma unroll
	for (int half = 0; half < 2; half++) {
		__u64 nat = ct_load(c->words[CT_CONN_NAT_ADDRESS + half]);

		differs |= t->src[half] ^ (src_nat ? ct_endpoint(c, !high, half) : nat);
		differs |= t->dst[half] ^ (src_nat ? nat : ct_endpoint(c, high, half));
	}
	return !differs;
}

/* Returns 0 when packets with a tuple are of the connection's original direction, 1 when they are
 * of the reply direction, 2 when they are not of the connection. */
static __always_inline __u32 ct_direction(const struct ct_conn *c, __u32 slot, __u64 head,
					  const struct ct_tuple *t, const struct ct_key *k)
{
	__u64 differs = 0, is_high = !!(ct_flags(head) & CT_ORIGINAL_IS_HIGH);

#pragma unroll
	for (int i = 0; i < CT_KEY_WORDS; i++)
		differs |= ct_load(c->words[CT_CONN_KEY + i]) ^ k->words[i];
	if (!(ct_flags(head) & (CT_NAT_SRC | CT_NAT_DST)))
		return differs ? 2 : k->high ^ is_high;
	if (!differs && k->high == is_high)
		return 0;
	return ct_is_reply(slot, head, t) ? 1 : 2;
}

/**
 * ct_find - Looks up the connection of packets with a tuple.
 * @t: the tuple
 * @now: ct_now()
 * @found: becomes the connection; all its members must have values before
 *
 * A function of its own: the verifier reads the loops once.
 *
 * Return: 1 when there is a live connection, which ct_conn_at(found->slot) is, else 0.
 */
__noinline int ct_find(const struct ct_tuple *t, __u32 now, struct ct_found *found)
{
	struct ct_config *config = ct_config_here();
	struct ct_key key;
	__u64 indexes;

	if (!t || !found || !config)
		return 0;
	ct_key_of(&key, t, config);
	indexes = ct_load(config->words[CT_CONFIG_INDEX]);
#pragma clang loop unroll(disable)
	for (__u32 turn = 0; turn < 4; turn++) {
		struct ct_bucket *b = ct_bucket_of(indexes, key.hash, turn);

		if (!b)
			continue;
#pragma clang loop unroll(disable)
		for (int i = 0; i < CT_PLACES; i++) {
			__u32 slot, reply;
			struct ct_conn *c = ct_candidate(b, i, key.hash, &slot);
			__u64 head;

			if (!c)
				continue;
			head = ct_load(c->words[CT_CONN_HEAD]);
			if (!ct_is_live(head, now))
				continue;
			reply = ct_direction(c, slot, head, t, &key);
			if (reply > 1)
				continue;
			found->head = head;
			found->slot = slot;
			found->reply = reply;
			return 1;
		}
	}
	return 0;
}

/* Adds a number, which may be negative, to a count. */
static __always_inline void ct_add(__u64 *count, __s64 number)
{
	__sync_fetch_and_add(count, number);
}

/**
 * ct_count - Adds to the counts of connections.
 * @zone: of the connection
 * @shard: line of the totals
 * @conns: connections that are added, negative for those that end
 * @half_open: half-open ones among them
 */
static __always_inline void ct_count(__u16 zone, __u32 shard, __s64 conns, __s64 half_open)
{
	struct ct_config *config = ct_config_here();
	struct ct_zone *z = ct_zone_of(zone);
	__u32 line = CT_CONFIG_TOTALS + shard % CT_CONFIG_SHARDS * CT_CONFIG_LINE;

	if (!config || !z)
		return;
	if (conns) {
		ct_add(&z->words[CT_ZONE_COUNT], conns);
		ct_add(&config->words[line], conns);
	}
	if (half_open) {
		ct_add(&z->words[CT_ZONE_HALF_OPEN], half_open);
		ct_add(&config->words[line + 1], half_open);
	}
}

/* Returns the zone of a connection. */
static __always_inline __u16 ct_zone(const struct ct_conn *c)
{
	return ct_load(c->words[CT_CONN_KEY]) >> 16;
}

/* Returns the line of the totals that a connection counts on. */
static __always_inline __u32 ct_shard(const struct ct_conn *c)
{
	return ct_load(c->words[CT_CONN_MARK]) >> CT_MARK_SHARD_SHIFT & 0xf;
}

/**
 * ct_refresh - Sets flags of a live connection, and its expiry.
 * @slot: its slot
 * @head: the head by which it was found
 * @set: flags to set; CT_ASSURED ends half-openness
 * @expires: the tick at which it expires
 *
 * Gives up when other threads change the connection at the same time, or it has ended. A function
 * of its own, as most packets change nothing: see ct_touch().
 *
 * Return: 0, because such a function must return a number.
 */
__noinline int ct_refresh(__u32 slot, __u64 head, __u64 set, __u32 expires)
{
	__u16 generation = head >> CT_GENERATION_SHIFT;
	struct ct_conn *c = ct_conn_at(slot);

	if (!c)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < CT_REFRESH_TRIES; i++) {
		__u64 flags, new;
		__u32 until = expires;
		__s32 moves;

		head = ct_load(c->words[CT_CONN_HEAD]);
		if (ct_phase(head) != CT_LIVE || (__u16)(head >> CT_GENERATION_SHIFT) != generation)
			return 0;
		flags = ct_flags(head) | (set & CT_FLAGS_MASK);
		if (flags & CT_ASSURED)
			flags &= ~(__u64)CT_HALF_OPEN;
		moves = expires - (__u32)head;
		if (moves < CT_REFRESH_TICKS && moves > -CT_REFRESH_TICKS)
			until = head;
		new = (__u64)CT_LIVE << CT_PHASE_SHIFT | flags << CT_FLAGS_SHIFT |
		      (__u64)generation << CT_GENERATION_SHIFT | until;
		if (new == head)
			return 0;
		if (!ct_exchange(&c->words[CT_CONN_HEAD], head, new))
			continue;
		if (ct_flags(head) & ~flags & CT_HALF_OPEN)
			ct_count(ct_zone(c), ct_shard(c), 0, -1);
		return 0;
	}
	return 0;
}

/**
 * ct_touch - Does ct_refresh() when something changes.
 * @found: the connection
 * @set: flags to set
 * @timeout: in ticks
 * @now: ct_now()
 */
static __always_inline void ct_touch(const struct ct_found *found, __u64 set, __u32 timeout,
				     __u32 now)
{
	__u32 expires = now + timeout;
	__s32 moves = expires - (__u32)found->head;

	if (set & ~ct_flags(found->head) || moves >= CT_REFRESH_TICKS || moves <= -CT_REFRESH_TICKS)
		ct_refresh(found->slot, found->head, set, expires);
}

/**
 * ct_kill - Ends a live connection.
 * @c: the connection
 * @head: the head by which it was judged
 *
 * Return: false when another thread refreshed or ended it since.
 */
static __always_inline bool ct_kill(struct ct_conn *c, __u64 head)
{
	if (ct_phase(head) != CT_LIVE ||
	    !ct_exchange(&c->words[CT_CONN_HEAD], head, ct_with_phase(head, CT_DEAD)))
		return false;
	/* The winner alone takes the connection off the counts. */
	ct_count(ct_zone(c), ct_shard(c), -1, ct_flags(head) & CT_HALF_OPEN ? -1 : 0);
	return true;
}

/**
 * ct_change - Changes bits of a word, until no other thread interferes, at most a few times.
 * @word: CT_CONN_MARK or CT_CONN_LABEL of a connection
 * @value: the bits
 * @mask: which of them to change
 */
static __always_inline void ct_change(__u64 *word, __u64 value, __u64 mask)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < CT_CHANGE_TRIES; i++) {
		__u64 old = ct_load(*word), new = (old & ~mask) | (value & mask);

		if (old == new || ct_exchange(word, old, new))
			return;
	}
}

#endif
