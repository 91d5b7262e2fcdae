/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The creation of a connection, as crates/conntrack/src/creation.rs does it.
 *
 * A creator writes a slot that it alone has, marks it tentative, enters it into the index, and only
 * then searches for other owners of its tuples. Of two creators with a common tuple at least one
 * meets the other's entry. It ends the other's connection while that is tentative, and gives up
 * when that is live. One compare-and-swap from tentative to live makes all tuples known at once. No
 * creator waits for another.
 *
 * The compare-and-swaps in between are full barriers: the entries are in the index before the first
 * of the others' entries is read.
 *
 * The functions are global ones, which the verifier reads once each.
 */
#ifndef SLIPSWITCH_CT_CREATION_H
#define SLIPSWITCH_CT_CREATION_H

#include "ct_table.h"

/* Slots of one ring that other creators take first before the next ring is tried. */
#define CT_TAKE_TRIES 4
/* Times that a creation begins again after another thread ended it. */
#define CT_CREATE_TRIES 3
/* No slot has this number. */
#define CT_NO_SLOT_NUMBER 0xffffffffu

/* Results of ct_create(). */
enum ct_made {
	CT_MADE,
	CT_CLASH,          /* another live connection has one of the tuples */
	CT_FULL,           /* the table has as many connections as it may */
	CT_FULL_ZONE,      /* the zone has as many as it may */
	CT_FULL_HALF_OPEN, /* the table has as many half-open ones as it may */
	CT_NO_SLOT,        /* no slot is free */
	CT_FULL_BUCKET,    /* the buckets of a tuple are full */
	CT_OVERTAKEN,      /* other creators ended this one each time */
	CT_FULL_ZONE_HALF_OPEN, /* the zone has as many half-open ones as it may */
};

/* A connection to make. All members must have values. */
struct ct_new {
	struct ct_tuple original;
	struct ct_tuple reply; /* without NAT from ct_reverse() */
	__u64 label[2];
	__u64 window[2];       /* TCP, as CT_CONN_WINDOW and CT_CONN_CONTROL; else zeros */
	__u64 control;
	__u32 mark;
	__u32 class;           /* the high half of CT_CONN_MARK, except for the shard */
	__u32 flags;           /* CT_NAT_SRC or CT_NAT_DST with NAT; no CT_HALF_OPEN */
	__u32 timeout;         /* in ticks */
	__u32 now;
	__u32 pad;
	struct ct_found made;  /* becomes the connection */
};

/**
 * ct_take - Takes a free slot out of a ring, of this CPU's first.
 *
 * Return: the slot's number; CT_NO_SLOT_NUMBER: none is free, or other takers were faster each time.
 */
__noinline __u32 ct_take(void)
{
	__u32 number = bpf_get_smp_processor_id();

#pragma clang loop unroll(disable)
	for (int i = 0; i < CT_RINGS; i++, number++) {
		__u32 at = number % CT_RINGS;
		struct ct_ring *ring = bpf_map_lookup_elem(&ct_free, &at);

		if (!ring)
			continue;
#pragma clang loop unroll(disable)
		for (int j = 0; j < CT_TAKE_TRIES; j++) {
			__u64 head = ct_load(ring->words[CT_RING_HEAD]), cell;

			if (head == ct_load(ring->words[CT_RING_TAIL]))
				break;
			cell = ct_load(ring->words[CT_RING_CELLS + head % CT_RING_SLOTS / 2]);
			if (ct_exchange(&ring->words[CT_RING_HEAD], head, head + 1))
				return head & 1 ? cell >> 32 : cell;
		}
	}
	return CT_NO_SLOT_NUMBER;
}

/**
 * ct_reserve - Counts a connection that is about to be made, half-open.
 * @zone: of the connection
 * @shard: line of the totals
 *
 * Return: enum ct_made; nothing is counted when it is not CT_MADE.
 */
__noinline int ct_reserve(__u32 zone, __u32 shard)
{
	struct ct_config *config = ct_config_here();
	struct ct_zone *z = ct_zone_of(zone);
	__u64 conns = 0, halves = 0, max, percent, limit;

	if (!config || !z)
		return CT_FULL;
#pragma unroll
	for (int i = 0; i < CT_CONFIG_SHARDS; i++) {
		conns += ct_load(config->words[CT_CONFIG_TOTALS + i * CT_CONFIG_LINE]);
		halves += ct_load(config->words[CT_CONFIG_TOTALS + i * CT_CONFIG_LINE + 1]);
	}
	max = ct_load(config->words[CT_CONFIG_MAX_CONNS]);
	percent = ct_load(config->words[CT_CONFIG_HALF_OPEN_PERCENT]);
	/* The sum of the shards may be below zero for a moment. */
	if ((__s64)conns >= 0 && conns >= max)
		return CT_FULL;
	if ((__s64)halves >= 0 && halves >= max * percent / 100)
		return CT_FULL_HALF_OPEN;
	limit = ct_load(z->words[CT_ZONE_LIMIT]);
	if (!limit) {
		limit = (__u32)ct_load(config->words[CT_CONFIG_DEFAULT_LIMIT]);
		limit = limit ? limit + 1 : 0;
	}
	conns = __sync_fetch_and_add(&z->words[CT_ZONE_COUNT], 1);
	/* So may the count of a zone. */
	if (limit && (__s64)conns >= (__s64)(limit - 1)) {
		ct_add(&z->words[CT_ZONE_COUNT], -1);
		return CT_FULL_ZONE;
	}
	halves = __sync_fetch_and_add(&z->words[CT_ZONE_HALF_OPEN], 1);
	if (limit > CT_SMALL_LIMIT && (__s64)halves >= (__s64)((limit - 1) * percent / 100)) {
		ct_add(&z->words[CT_ZONE_HALF_OPEN], -1);
		ct_add(&z->words[CT_ZONE_COUNT], -1);
		return CT_FULL_ZONE_HALF_OPEN;
	}
	shard = CT_CONFIG_TOTALS + shard % CT_CONFIG_SHARDS * CT_CONFIG_LINE;
	ct_add(&config->words[shard + 1], 1);
	ct_add(&config->words[shard], 1);
	return CT_MADE;
}

/* Returns the number of places in use. */
static __always_inline __u32 ct_used(struct ct_bucket *b)
{
	__u32 used = 0;

#pragma unroll
	for (int i = 0; i < CT_PLACES; i++)
		used += ct_load(b->places[i]) != 0;
	return used;
}

/* Returns true when the connection of an entry has ended. */
static __always_inline bool ct_is_dead(__u64 entry)
{
	struct ct_conn *c = entry ? ct_conn_at((__u32)entry - 1) : 0;

	return c && ct_phase(ct_load(c->words[CT_CONN_HEAD])) == CT_DEAD;
}

/* Puts an entry into a free place of a bucket, or into that of an ended connection. */
static __always_inline bool ct_put(struct ct_bucket *b, __u64 entry, bool dead)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < CT_PLACES; i++) {
		__u64 old = ct_load(b->places[i]);

		if (dead ? !ct_is_dead(old) : old != 0)
			continue;
		if (ct_exchange(&b->places[i], old, entry))
			return true;
	}
	return false;
}

/**
 * ct_enter - Puts an entry into the index that takes entries.
 * @entry: hash << 32 | slot + 1
 *
 * Return: 0 when its buckets are full, else 1.
 */
__noinline int ct_enter(__u64 entry)
{
	struct ct_config *config = ct_config_here();
	struct ct_bucket *first, *second;
	__u32 hash = entry >> 32, used;
	__u64 indexes;
	bool swap;

	if (!config)
		return 0;
	indexes = ct_load(config->words[CT_CONFIG_INDEX]);
	first = ct_bucket_of(indexes, hash, 0);
	if (!first)
		return 0;
	second = ct_bucket_of(indexes, hash, 1);
	if (!second)
		return ct_put(first, entry, false) || ct_put(first, entry, true);
	used = ct_used(first);
	swap = used >= CT_FIRST_ENOUGH && ct_used(second) < used;
#pragma clang loop unroll(disable)
	for (int i = 0; i < 4; i++) {
		struct ct_bucket *b = first;

		if (swap ^ (i & 1))
			b = second;
		if (ct_put(b, entry, i >= 2))
			return 1;
	}
	return 0;
}

/**
 * ct_withdraw - Takes an entry out of the index, wherever it is.
 * @entry: hash << 32 | slot + 1
 *
 * Return: 0, because such a function must return a number.
 */
__noinline int ct_withdraw(__u64 entry)
{
	struct ct_config *config = ct_config_here();
	__u64 indexes;

	if (!config)
		return 0;
	indexes = ct_load(config->words[CT_CONFIG_INDEX]);
#pragma clang loop unroll(disable)
	for (__u32 turn = 0; turn < 4; turn++) {
		struct ct_bucket *b = ct_bucket_of(indexes, entry >> 32, turn);

		if (!b)
			continue;
#pragma clang loop unroll(disable)
		for (int i = 0; i < CT_PLACES; i++)
			if (ct_load(b->places[i]) == entry)
				ct_exchange(&b->places[i], entry, 0);
	}
	return 0;
}

/* Makes way for a tentative connection with a tuple of the connection `c`. Returns true when `c` is
 * live and keeps the tuple. */
static __always_inline bool ct_keeps(struct ct_conn *c, __u64 head, __u32 now)
{
	if (ct_is_live(head, now))
		return true;
	/* Expired; when that fails it was refreshed or ended. */
	if (ct_phase(head) == CT_LIVE)
		return !ct_kill(c, head) && ct_phase(ct_load(c->words[CT_CONN_HEAD])) == CT_LIVE;
	/* Tentative; its maker finds it dead, and takes it off the counts. */
	return !ct_exchange(&c->words[CT_CONN_HEAD], head, ct_with_phase(head, CT_DEAD)) &&
	       ct_phase(ct_load(c->words[CT_CONN_HEAD])) == CT_LIVE;
}

/**
 * ct_clashes - Searches for other owners of a tuple, and ends those that are not live.
 * @t: the tuple
 * @me: slot of the connection that wants it
 * @now: ct_now()
 *
 * Return: 1 when a live connection has the tuple, else 0.
 */
__noinline int ct_clashes(const struct ct_tuple *t, __u32 me, __u32 now)
{
	struct ct_config *config = ct_config_here();
	struct ct_key key;
	__u64 indexes;

	if (!t || !config)
		return 1;
	ct_key_of(&key, t, config);
	indexes = ct_load(config->words[CT_CONFIG_INDEX]);
#pragma clang loop unroll(disable)
	for (__u32 turn = 0; turn < 4; turn++) {
		struct ct_bucket *b = ct_bucket_of(indexes, key.hash, turn);

		if (!b)
			continue;
#pragma clang loop unroll(disable)
		for (int i = 0; i < CT_PLACES; i++) {
			__u32 slot;
			struct ct_conn *c = ct_candidate(b, i, key.hash, &slot);
			__u64 head, phase;

			if (!c || slot == me)
				continue;
			head = ct_load(c->words[CT_CONN_HEAD]);
			phase = ct_phase(head);
			if (phase != CT_TENTATIVE && phase != CT_LIVE)
				continue;
			if (ct_direction(c, slot, head, t, &key) < 2 && ct_keeps(c, head, now))
				return 1;
		}
	}
	return 0;
}

/**
 * ct_entry - Returns the index entry of a tuple.
 * @t: the tuple
 * @slot: of the connection that has it
 */
__noinline __u64 ct_entry(const struct ct_tuple *t, __u32 slot)
{
	struct ct_config *config = ct_config_here();
	struct ct_key key;

	if (!t || !config)
		return 0;
	ct_key_of(&key, t, config);
	return (__u64)key.hash << 32 | (slot + 1);
}

/**
 * ct_write - Writes a connection into a slot that is free, and marks it tentative.
 * @n: the connection
 * @slot: the slot
 * @shard: line of the totals
 *
 * Return: its head; 0 when the slot is not free.
 */
__noinline __u64 ct_write(const struct ct_new *n, __u32 slot, __u32 shard)
{
	struct ct_config *config = ct_config_here();
	struct ct_conn *c = ct_conn_at(slot);
	__u64 free, head, flags;
	struct ct_key key;

	if (!n || !config || !c)
		return 0;
	free = ct_load(c->words[CT_CONN_HEAD]);
	if (ct_phase(free) != CT_FREE)
		return 0; /* damaged memory: the rings have a number twice */
	ct_key_of(&key, &n->original, config);
#pragma unroll
	for (int i = 0; i < CT_KEY_WORDS; i++)
		ct_store(c->words[CT_CONN_KEY + i], key.words[i]);
	ct_store(c->words[CT_CONN_WINDOW], n->window[0]);
	ct_store(c->words[CT_CONN_WINDOW + 1], n->window[1]);
	ct_store(c->words[CT_CONN_CONTROL], n->control);
	ct_store(c->words[CT_CONN_MARK],
		 (__u64)n->class << 32 | (__u64)shard << CT_MARK_SHARD_SHIFT | n->mark);
	ct_store(c->words[CT_CONN_LABEL], n->label[0]);
	ct_store(c->words[CT_CONN_LABEL + 1], n->label[1]);
#pragma unroll
	for (int half = 0; half < 2; half++)
		ct_store(c->words[CT_CONN_NAT_ADDRESS + half],
			 n->flags & CT_NAT_SRC ? n->reply.dst[half] : n->reply.src[half]);
	ct_store(c->words[CT_CONN_NAT_PORTS],
		 (__u64)n->reply.sport << 48 | (__u64)n->reply.dport << 32);
	ct_store(c->words[CT_CONN_MADE], n->now);
	flags = (n->flags | CT_HALF_OPEN | (key.high ? CT_ORIGINAL_IS_HIGH : 0)) & CT_FLAGS_MASK;
	head = (__u64)CT_TENTATIVE << CT_PHASE_SHIFT | flags << CT_FLAGS_SHIFT |
	       (__u64)(__u16)((free >> CT_GENERATION_SHIFT) + 1) << CT_GENERATION_SHIFT |
	       (__u32)(n->now + n->timeout);
	return ct_exchange(&c->words[CT_CONN_HEAD], free, head) ? head : 0;
}

/* Makes a connection in a slot that is free. Its counts are reserved. */
static __always_inline int ct_make(struct ct_new *n, __u32 slot, __u32 shard)
{
	__u64 head = ct_write(n, slot, shard), entry, other;
	struct ct_conn *c;
	int made;

	if (!head)
		return CT_NO_SLOT;
	entry = ct_entry(&n->original, slot);
	other = ct_entry(&n->reply, slot);
	made = CT_FULL_BUCKET;
	if (ct_enter(entry) && (entry == other || ct_enter(other)))
		made = ct_clashes(&n->original, slot, n->now) ||
		       ct_clashes(&n->reply, slot, n->now) ? CT_CLASH : CT_MADE;
	c = ct_conn_at(slot);
	if (!c)
		return CT_NO_SLOT;
	if (made == CT_MADE) {
		n->made.slot = slot;
		n->made.reply = 0;
		n->made.head = ct_with_phase(head, CT_LIVE);
		if (ct_exchange(&c->words[CT_CONN_HEAD], head, n->made.head))
			return CT_MADE;
		made = CT_OVERTAKEN;
	}
	/* The sweeper frees the slot. */
	ct_exchange(&c->words[CT_CONN_HEAD], head, ct_with_phase(head, CT_DEAD));
	ct_withdraw(entry);
	ct_withdraw(other);
	return made;
}

/**
 * ct_try_create - Makes a connection, unless other threads end it while it is tentative.
 * @n: the connection
 *
 * Return: enum ct_made.
 */
__noinline int ct_try_create(struct ct_new *n)
{
	__u32 shard = bpf_get_smp_processor_id() % CT_CONFIG_SHARDS, slot;
	int made;

	if (!n)
		return CT_FULL;
	made = ct_reserve(n->original.zone, shard);
	if (made != CT_MADE)
		return made;
	slot = ct_take();
	made = slot == CT_NO_SLOT_NUMBER ? CT_NO_SLOT : ct_make(n, slot, shard);
	if (made != CT_MADE)
		ct_count(n->original.zone, shard, -1, -1);
	return made;
}

/* A half-open connection that may end for another one. */
struct ct_oldest {
	struct ct_conn *conn; /* NULL: there is none */
	__u64 head;
	__s32 age;            /* in ticks */
};

/* Takes the connection of an index entry for the oldest one, if it is half-open and older. */
static __always_inline void ct_consider(struct ct_oldest *oldest, __u64 entry, __u32 now,
					bool of_zone, __u32 zone)
{
	struct ct_conn *c = ct_conn_at((__u32)entry - 1);
	__u64 head;
	__s32 age;

	if (!c)
		return;
	head = ct_load(c->words[CT_CONN_HEAD]);
	if (ct_phase(head) != CT_LIVE || !(ct_flags(head) & CT_HALF_OPEN) ||
	    (of_zone && ct_zone(c) != zone))
		return;
	age = now - (__u32)ct_load(c->words[CT_CONN_MADE]);
	if (oldest->conn && age <= oldest->age)
		return;
	oldest->conn = c;
	oldest->head = head;
	oldest->age = age;
}

/**
 * ct_evict - Ends a half-open connection for one that found no room: the oldest in its buckets, else
 * the oldest that is first in one of the following buckets.
 * @t: a tuple of the connection that found no room
 * @now: ct_now()
 * @of_zone: 1: one of the tuple's zone alone, in its buckets alone; 0: one of any zone
 *
 * Return: 1 when one was ended, else 0.
 */
__noinline int ct_evict(const struct ct_tuple *t, __u32 now, __u32 of_zone)
{
	struct ct_config *config = ct_config_here();
	struct ct_oldest oldest = {};
	struct ct_bucket *b;
	struct ct_key key;
	__u64 indexes;

	if (!t || !config)
		return 0;
	ct_key_of(&key, t, config);
	indexes = ct_load(config->words[CT_CONFIG_INDEX]);
#pragma clang loop unroll(disable)
	for (__u32 turn = 0; turn < 4; turn++) {
		b = ct_bucket_of(indexes, key.hash, turn);
		if (!b)
			continue;
#pragma clang loop unroll(disable)
		for (int i = 0; i < CT_PLACES; i++)
			ct_consider(&oldest, ct_load(b->places[i]), now, of_zone, t->zone);
	}
	if (!oldest.conn && !of_zone) {
#pragma clang loop unroll(disable)
		for (__u32 step = 1; step <= CT_EVICTION_BUCKETS; step++) {
			b = ct_bucket_of(indexes, key.hash + step, 0);
			if (b)
				ct_consider(&oldest, ct_load(b->places[0]), now, false, 0);
		}
	}
	return oldest.conn && ct_kill(oldest.conn, oldest.head);
}

/**
 * ct_create - Makes a connection.
 * @n: the connection; the member `made` becomes what a lookup would find
 *
 * Makes room by ending a half-open connection where there is none: one of the same zone when the
 * zone has too many of them. Without a free slot none is ended: its slot would not be free before the
 * daemon's next sweep, and the daemon has more of them.
 *
 * Return: enum ct_made.
 */
__noinline int ct_create(struct ct_new *n)
{
	bool evicted = false;
	int made = CT_OVERTAKEN;

	if (!n)
		return CT_FULL;
#pragma clang loop unroll(disable)
	for (int i = 0; i < CT_CREATE_TRIES; i++) {
		made = ct_try_create(n);
		if ((made == CT_FULL || made == CT_FULL_HALF_OPEN ||
		     made == CT_FULL_ZONE_HALF_OPEN) && !evicted) {
			evicted = true;
			if (ct_evict(&n->original, n->now, made == CT_FULL_ZONE_HALF_OPEN))
				continue;
		}
		if (made != CT_OVERTAKEN)
			break;
	}
	return made;
}

#endif
