/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is constant for one variant of the programs. The loader fills `settings` in before the
 * verifier reads it, so a branch on it costs nothing: the side not taken is deleted. */
#ifndef SLIPSWITCH_SETTINGS_H
#define SLIPSWITCH_SETTINGS_H

#include "layout.h"

/* settings.features */
#define FEATURE_MPLS 1   /* some flow looks at MPLS labels or changes them */
#define FEATURE_LAYERS 2 /* some flow has a program: where layers start is found */
#define FEATURE_STACK 4  /* some port is PORT_STACK: what it sends is counted */

struct settings {
	__u32 needs;         /* bit W_x: some flow looks at word W_x; NEEDS_L3 */
	__u32 features;
	__u32 bucket_mask;   /* buckets - 1 */
	__u32 shard_mask;    /* shards - 1 */
	__u32 max_flows;
	__u32 max_programs;
	__u32 shards_atomic; /* CPUs share shards: counting needs atomic adds */
	__u32 vlan_limit;    /* 1 or 2 */
	__u32 have_frags;    /* XDP: the kernel has frames in several buffers and can redirect them (6.3) */
	__u32 emc_lines;     /* of one CPU */
	__u32 emc_used;      /* of them; 0: the cache is not asked */
	__u32 generation;    /* of this variant; never 0 */
	__u32 emc_total;     /* lines of all CPUs */
	__u32 cpus;          /* that have lines and batches */
	__u32 batched;       /* packets are counted batch by batch */
	__u32 pad;
	__u64 factors[FACTORS];
	__u64 union_mask[WORDS]; /* all masks ORed */
};

const volatile struct settings settings = {
	.needs = ~0u,
	.features = ~0u,
	.vlan_limit = 2,
	.max_flows = 1,
	.max_programs = 1,
};

/* What a word of a key adds to a sum, by the factors with these numbers; zero adds nothing. Its high
 * half has a factor of its own, as else the highest bits of a word would reach the highest bits of
 * the sum only: keys that differ in such bits of two words could have one sum whatever the factors
 * are. So the sums of two keys that anybody chose without knowing the factors are equal for one
 * choice of factors in 2^32. */
static __always_inline __u64 weigh(__u64 word, __u32 whole, __u32 half)
{
	return word * settings.factors[whole] + (word >> 32) * settings.factors[half];
}

/* What word `x` adds to the hash. */
static __always_inline __u64 hash_word(__u32 x, __u64 word)
{
	return weigh(word, x, FACTORS_OF_HALVES + x);
}

/* The hash of a key, of the sum of its words. */
static __always_inline __u32 finish_hash(__u64 sum)
{
	sum ^= sum >> 32;
	sum *= 0x9e3779b97f4a7c15ull;
	return sum >> 32;
}

#endif
