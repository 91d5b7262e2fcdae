/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet hash of the `hash` action. It gives the same numbers as datapath::hash::five_tuple. */
#ifndef SLIPSWITCH_HASH_H
#define SLIPSWITCH_HASH_H

#include <linux/types.h>

/* One endpoint of a packet: address and port as numbers. An IPv6 address has two words. */
struct end {
	__u64 address[2];
	__u16 port;
};

struct tuple {
	struct end src;
	struct end dst;
	__u16 type; /* host integer */
	__u8 proto;
	__u8 words; /* of an address */
};

/* Returns the high half of a product of 64-bit numbers; BPF has no such multiplication. */
static __always_inline __u64 hash_multiply_high(__u64 a, __u64 b)
{
	__u64 a0 = a & 0xffffffff, a1 = a >> 32;
	__u64 b0 = b & 0xffffffff, b1 = b >> 32;
	__u64 middle = a1 * b0 + (a0 * b0 >> 32);
	__u64 other = a0 * b1 + (middle & 0xffffffff);

	return a1 * b1 + (middle >> 32) + (other >> 32);
}

/* Mixes two numbers into one. */
static __always_inline __u64 hash_mix(__u64 a, __u64 b)
{
	a ^= 0x9e3779b97f4a7c15ull;
	b ^= 0xd6e8feb86659fd93ull;
	return hash_multiply_high(a, b) ^ a * b;
}

/* Returns the hash of one endpoint, whose address has `words` words. */
static __always_inline __u64 hash_end(const struct end *e, __u32 words)
{
	__u64 h = hash_mix(1, e->address[0]);

	if (words == 2)
		h = hash_mix(h, e->address[1]);
	return hash_mix(h, e->port);
}

/**
 * hash_five_tuple - Returns the hash of a packet; never 0.
 * @t: its endpoints, Ethernet type and protocol
 * @symmetric: not 0: equal when both endpoints change places
 * @basis: seed of the action
 */
static __always_inline __u32 hash_five_tuple(const struct tuple *t, int symmetric, __u32 basis)
{
	__u64 src = hash_end(&t->src, t->words), dst = hash_end(&t->dst, t->words), h;
	__u32 folded;

	if (symmetric)
		h = src < dst ? hash_mix(src, dst) : hash_mix(dst, src);
	else
		h = hash_mix(hash_mix(src, 0), dst);
	h = hash_mix(hash_mix(h, (__u64)t->type << 8 | t->proto), basis);
	folded = (__u32)(h >> 32) ^ (__u32)h;
	return folded ? folded : 1;
}

#endif
