/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The search that the caches save: mask after mask, in the index. Everything is parsed here, so a
 * variant of the lookup may handle fewer fields than the present flows match on. */
#ifndef SLIPSWITCH_MASK_SCAN_H
#define SLIPSWITCH_MASK_SCAN_H

#include "flow_index.h"
#include "lookup.h"

/* State of one search. */
struct mask_scan {
	struct state *st;
	__u32 found; /* number of the slot, or NO_SLOT */
	__u32 masks; /* how many were searched */
};

#define MASK_WORD(x) sum += hash_word(x, key[x] & mask->words[x]);

/**
 * mask_hash - Returns the hash of a key under a mask.
 * @key: the packet's key
 * @mask: the mask
 * @number: its number, which is part of the hash
 */
static __always_inline __u32 mask_hash(const __u64 *key, const struct mask *mask, __u32 number)
{
	__u64 sum = number * settings.factors[FACTOR_OF_MASK];

	HOT_EACH(MASK_WORD)
	if (mask->needs & COLD_BITS) {
		COLD_EACH(MASK_WORD)
	}
	if (mask->needs & TUNNEL_BITS) {
		TUNNEL_EACH(MASK_WORD)
	}
	if (mask->needs & CT_BITS) {
		CT_EACH(MASK_WORD)
	}
	return finish_hash(sum);
}

/**
 * mask_scan_bucket - Searches one bucket of the index.
 * @key: the packet's key
 * @mask: the mask
 * @mask_number: its number
 * @bucket: number of the bucket
 * @hash: of the key under the mask
 * @number: becomes the number of the slot
 *
 * Return: true when the bucket has a flow of the key.
 */
static __always_inline bool mask_scan_bucket(const __u64 *key, const struct mask *mask,
					     __u32 mask_number, __u32 bucket, __u32 hash,
					     __u32 *number)
{
	struct slot *slot = index_find(bucket, hash, mask_number, number);

	return slot && lookup_matches_all(key, slot, *number, mask);
}

/**
 * mask_scan_look - Searches under one mask; a callback of bpf_for_each_map_elem().
 * @map: masks
 * @number: number of the mask
 * @mask: the mask
 * @scan: the search, whose counts and result are set
 *
 * Return: 1 to end the search, 0 to go on.
 */
static long mask_scan_look(void *map, const __u32 *number, struct mask *mask,
			   struct mask_scan *scan)
{
	const __u64 *key = scan->st->key;
	__u32 n = *number, hash, slot;

	if (!mask->needs)
		return 1;
	if (mask->needs & MASK_VACANT)
		return 0;
	scan->masks++;
	hash = mask_hash(key, mask, n);
	if (!mask_scan_bucket(key, mask, n, index_first(hash), hash, &slot) &&
	    !mask_scan_bucket(key, mask, n, index_second(hash), hash, &slot))
		return 0;
	scan->found = slot;
	return 1;
}

/**
 * sigcache_store - Puts a flow into the signature cache.
 * @hash: hash of the packet's key under the union of all masks
 * @number: slot of the flow
 *
 * It replaces an entry of the same hash, else takes a free one, else replaces any.
 */
static __always_inline void sigcache_store(__u32 hash, __u32 number)
{
	struct cache_line *l = sigcache_line(hash);
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

/**
 * mask_scan_not_found - Ends a search that found no flow.
 * @ctx: the packet
 * @st: its state
 *
 * XDP drops a packet that would not go up at the next hook either: a flood then costs no socket
 * buffers.
 *
 * Return: the verdict.
 */
static __always_inline int mask_scan_not_found(hook_ctx *ctx, struct state *st)
{
#if AT_XDP
	struct port *port;

	tunnel_forget(st);
	port = port_of(st->in_port);
	if (!st->depth && port && port_is_closed(port)) {
		count_ingress(st->in_port, frame_length(ctx));
		return drop(DROP_UPCALL_LIMIT);
	}
#endif
	return lookup_leave_state(ctx, st);
}

/**
 * mask_scan - The program in TAIL_MASK_SCAN: searches under all masks, and runs the flow.
 * @ctx: the packet, whose metadata is in the state
 *
 * Return: the verdict.
 */
static __always_inline int mask_scan(hook_ctx *ctx)
{
	struct mask_scan w;
	struct state *st;
	struct counters *counters;
	struct slot *slot;
	__u32 number;
	int verdict;

	st = lookup_resume(ctx, &verdict);
	if (!st)
		return verdict;
	w = (struct mask_scan){ .st = st, .found = NO_SLOT };
	bpf_for_each_map_elem(&masks, mask_scan_look, &w, 0);
	number = w.found;
	slot = bpf_map_lookup_elem(&slots, &number);
	counters = counters_here();
	if (counters) {
		count_add(&counters->walked, 1);
		count_add(&counters->masks, w.masks);
		count_add(&counters->found, slot ? 1 : 0);
	}
	if (!slot)
		return mask_scan_not_found(ctx, st);
	sigcache_store(st->cache_hash, number);
	return lookup_run(ctx, st, slot, number);
}

#endif
