/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Constants of one variant of the programs. The loader writes `settings` before the verifier reads
 * it, so a branch on a setting costs nothing: the verifier removes the side that is not taken.
 *
 * Below them are the hash functions, which use the factors in the settings. */
#ifndef SLIPSWITCH_SETTINGS_H
#define SLIPSWITCH_SETTINGS_H

#include "layout.h"

/* settings.features */
#define FEATURE_MPLS 1   /* some flow matches on MPLS labels or changes them */
#define FEATURE_LAYERS 2 /* some flow has a program: offsets of layers are needed */
#define FEATURE_STACK 4  /* some port is PORT_STACK: its packets are counted */
#define FEATURE_TUNNEL 8 /* some flow has FLOW_POP */
#define FEATURE_BOND 16  /* some flow has FLOW_BOND */
#define FEATURE_PUSH 32  /* some flow pushes the headers of a tunnel before anything else */

struct settings {
	__u64 needs;         /* bit W_x: some flow matches on word W_x; NEEDS_L3 */
	__u32 features;
	__u32 bucket_mask;   /* buckets - 1 */
	__u32 shard_mask;    /* shards - 1 */
	__u32 max_flows;
	__u32 max_programs;
	__u32 shards_atomic; /* CPUs share shards: counting needs atomic adds */
	__u32 vlan_limit;    /* 1 or 2 */
	__u32 have_frags;    /* XDP: the kernel redirects frames in several buffers (Linux 6.3) */
	__u32 emc_lines;     /* of one CPU */
	__u32 generation;    /* of this variant; never 0 */
	__u32 emc_total;     /* lines of all CPUs */
	__u32 cpus;          /* CPUs that have cache lines */
	__u32 chains;        /* of one CPU; a power of two, or 0: none are kept: see chain.h */
	__u32 pad;
	__u64 factors[FACTORS];
	__u64 union_mask[WORDS]; /* all masks ORed */
};

const volatile struct settings settings = {
	.needs = ~0ull,
	.features = ~0u,
	.vlan_limit = 2,
	.max_flows = 1,
	.max_programs = 1,
	.chains = 2,
};

/**
 * hash_weigh - Returns the contribution of one word to a sum; zero for a zero word.
 * @word: the word
 * @whole: number of the factor of the word
 * @half: number of the factor of its high half
 *
 * The high half has a factor of its own. Otherwise the highest bits of a word would reach only the
 * highest bits of the sum, and keys that differ in such bits of two words could have equal sums for
 * any factors. With it, the sums of two keys that were chosen without knowledge of the factors are
 * equal for one choice of factors in 2^32.
 */
static __always_inline __u64 hash_weigh(__u64 word, __u32 whole, __u32 half)
{
	return word * settings.factors[whole] + (word >> 32) * settings.factors[half];
}

/* Returns the contribution of word `x` to a hash. */
static __always_inline __u64 hash_word(__u32 x, __u64 word)
{
	return hash_weigh(word, x, FACTORS_OF_HALVES + x);
}

/* Returns the hash of a key, given the sum of its words. */
static __always_inline __u32 finish_hash(__u64 sum)
{
	sum ^= sum >> 32;
	sum *= 0x9e3779b97f4a7c15ull;
	return sum >> 32;
}

/* Returns another hash of a hash. The factor is 2^32 divided by the golden ratio, which spreads
 * values that are close to each other. */
static __always_inline __u32 rehash(__u32 hash)
{
	return hash * 0x9e3779b1u;
}

#endif
