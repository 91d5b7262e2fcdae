/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The search that the cache spares: mask after mask, in the index. Everything is parsed here, so
 * a variant of the lookup may know less than the present flows look at. */
#ifndef SLIPSWITCH_WALK_H
#define SLIPSWITCH_WALK_H

#include "lookup.h"

struct walk {
	struct state *st;
	__u32 found; /* slot, or NO_SLOT */
	__u32 masks; /* looked at */
};

#define MASK_WORD(x) sum += hash_word(x, key[x] & mask->words[x]);

static __always_inline __u32 mask_hash(const __u64 *key, const struct mask *mask, __u32 number)
{
	__u64 sum = number * settings.factors[FACTOR_OF_MASK];

	HOT_EACH(MASK_WORD)
	if (mask->needs & COLD_BITS) {
		COLD_EACH(MASK_WORD)
	}
	return finish_hash(sum);
}

/* The entry of `hash` in the bucket `at`, or 0. */
static __always_inline __u64 indexed(__u32 at, __u32 hash)
{
	struct bucket *b = bpf_map_lookup_elem(&flow_index, &at);
	__u64 found = 0;

	if (!b)
		return 0;
#pragma unroll
	for (int i = 0; i < BUCKET; i++) {
		__u64 e = *(volatile __u64 *)&b->entries[i];

		if (e >> 32 == hash)
			found = e;
	}
	return found;
}

static __always_inline bool is_flow(const __u64 *key, __u64 entry, const struct mask *mask,
				    __u32 mask_number)
{
	__u32 number = (__u32)entry - 1;
	struct slot *slot;

	if (!entry)
		return false;
	slot = bpf_map_lookup_elem(&slots, &number);
	return slot && !slot->dead && slot->mask == mask_number && matches(key, slot, number, mask);
}

static long look_under(void *map, const __u32 *number, struct mask *mask,
		       struct walk *walk)
{
	const __u64 *key = walk->st->key;
	__u32 n = *number;
	__u64 entry;
	__u32 hash;

	if (!mask->needs)
		return 1;
	if (mask->needs & MASK_VACANT)
		return 0;
	walk->masks++;
	hash = mask_hash(key, mask, n);
	entry = indexed(hash & settings.bucket_mask, hash);
	if (!is_flow(key, entry, mask, n)) {
		entry = indexed((hash * 0x9e3779b1u) >> 13 & settings.bucket_mask, hash);
		if (!is_flow(key, entry, mask, n))
			return 0;
	}
	walk->found = (__u32)entry - 1;
	return 1;
}

/* In the place of what has the same hash, else in a free one, else in any. */
static __always_inline void remember(__u32 hash, __u32 number)
{
	struct cache_line *l = line_of(hash);
	__u32 way = bpf_get_prandom_u32();

	if (!l)
		return;
#pragma unroll
	for (int i = WAYS - 1; i >= 0; i--)
		if (!l->entries[i])
			way = i;
#pragma unroll
	for (int i = 0; i < WAYS; i++)
		if (l->entries[i] >> 32 == hash && l->entries[i])
			way = i;
	*(volatile __u64 *)&l->entries[way % WAYS] = (__u64)hash << 32 | (number + 1);
}

/* No flow at any hook is for the packet. XDP drops what would not go up behind the next hook: a
 * flood costs no socket buffers. */
static __always_inline int not_found(hook_ctx *ctx, const struct state *st)
{
#if AT_XDP
	struct port *port = port_of(st->in_port);

	if (!st->depth && port && is_closed(port)) {
		count_arrival(st->in_port, frame_length(ctx));
		return drop(DROP_UPCALL_LIMIT);
	}
#endif
	return leave(ctx, st->depth);
}

static __always_inline int walk(hook_ctx *ctx)
{
	struct walk w = { .st = state_here(), .found = NO_SLOT };
	struct state *st = w.st;
	struct counters *counters;
	struct slot *slot;
	__u32 number;
	int err;

	if (!st)
		return drop(DROP_UNSUPPORTED);
	st->calls++;
	err = parse_all(ctx);
	if (err)
		return unparsed(ctx, err, st->depth);
	bpf_for_each_map_elem(&masks, look_under, &w, 0);
	number = w.found;
	slot = bpf_map_lookup_elem(&slots, &number);
	counters = counters_here();
	if (counters) {
		add(&counters->walked, 1);
		add(&counters->masks, w.masks);
		add(&counters->found, slot ? 1 : 0);
	}
	if (!slot)
		return not_found(ctx, st);
	remember(st->cache_hash, number);
	return run(ctx, st, slot, number);
}

#endif
