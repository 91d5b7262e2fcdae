/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The index of flows: from the hash of a key under one mask to the slot of a flow.
 *
 * A hash has two buckets, and an entry of it is in one of them. The daemon puts no two entries of
 * one hash into one bucket (src/index.rs), so a search finds at most one candidate in each. A
 * candidate is a hint: the caller compares the whole key with the slot under the mask.
 *
 *   index_first, index_second   numbers of the two buckets of a hash
 *   index_find                  the candidate for a hash in one bucket
 *
 * src/hash.rs computes the same numbers.
 */
#ifndef SLIPSWITCH_FLOW_INDEX_H
#define SLIPSWITCH_FLOW_INDEX_H

#include "maps.h"

/* Returns the number of the first bucket of a hash. */
static __always_inline __u32 index_first(__u32 hash)
{
	return hash & settings.bucket_mask;
}

/* Returns the number of the second bucket. The low bits of the product depend only on the low bits
 * of the hash, which chose the first bucket, so they are left out. */
static __always_inline __u32 index_second(__u32 hash)
{
	return rehash(hash) >> 13 & settings.bucket_mask;
}

/**
 * index_find - Finds the candidate for a hash in one bucket.
 * @bucket: index_first() or index_second() of @hash
 * @hash: hash of a key under a mask
 * @mask: number of that mask
 * @number: becomes the number of the slot
 *
 * Return: the slot, which is alive and has this mask, or NULL.
 */
static __always_inline struct slot *index_find(__u32 bucket, __u32 hash, __u32 mask,
					       __u32 *number)
{
	struct bucket *b = bpf_map_lookup_elem(&flow_index, &bucket);
	struct slot *slot;
	__u64 found = 0;

	if (!b)
		return 0;
#pragma unroll
	for (int i = 0; i < BUCKET; i++) {
		__u64 entry = *(volatile __u64 *)&b->entries[i];

		if (entry >> 32 == hash)
			found = entry;
	}
	if (!found)
		return 0;
	*number = (__u32)found - 1;
	slot = bpf_map_lookup_elem(&slots, number);
	return slot && !slot->dead && slot->mask == mask ? slot : 0;
}

#endif
