/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tuples of connections, and their keys: both directions of a connection have one key. */
#ifndef SLIPSWITCH_CT_TUPLE_H
#define SLIPSWITCH_CT_TUPLE_H

#include "ct_maps.h"

/* Addresses, ports, protocol and zone of the packets of one direction, in host order. */
struct ct_tuple {
	__u64 src[2];  /* high half first; IPv4: zero, and the address in the low 32 bits */
	__u64 dst[2];
	__u16 sport;   /* ICMP: identifier */
	__u16 dport;   /* ICMP: code */
	__u16 zone;
	__u8 proto;
	__u8 kind;     /* CT_KIND_V6, and the class of ICMP << CT_KIND_CLASS_SHIFT */
	__u32 request; /* ICMP: 1: the packet is a request */
	__u32 pad;     /* zero */
};

struct ct_key {
	__u64 words[CT_KEY_WORDS];
	__u32 high; /* 1: the source is the high endpoint */
	__u32 hash;
};

/* Returns true when the tuple is ICMP's or ICMPv6's. */
static __always_inline bool ct_is_icmp(const struct ct_tuple *t)
{
	return t->kind >> CT_KIND_CLASS_SHIFT & CT_KIND_CLASS_MASK;
}

/* Makes `to` the tuple of the opposite direction. */
static __always_inline void ct_reverse(struct ct_tuple *to, const struct ct_tuple *from)
{
	bool icmp = ct_is_icmp(from);

	to->src[0] = from->dst[0];
	to->src[1] = from->dst[1];
	to->dst[0] = from->src[0];
	to->dst[1] = from->src[1];
	to->sport = icmp ? from->sport : from->dport;
	to->dport = icmp ? from->dport : from->sport;
	to->zone = from->zone;
	to->proto = from->proto;
	to->kind = from->kind;
	to->request = icmp ? !from->request : 0;
	to->pad = 0;
}

/* ct_opaque - Hides from the compiler how a variable was computed. Otherwise it makes branches of the
 * arithmetic below. The verifier would follow both sides of each, and no CPU could predict them. */
#define ct_opaque(var) asm volatile("" : "+r"(var))

/* Returns 1 when a > b, else 0, without a branch. */
static __always_inline __u64 ct_above(__u64 a, __u64 b)
{
	__u64 borrows = b - a;

	ct_opaque(borrows);
	return ((~b & a) | (~(b ^ a) & borrows)) >> 63;
}

/* Returns 1 when a == b, else 0, without a branch. */
static __always_inline __u64 ct_equal(__u64 a, __u64 b)
{
	__u64 differs = a ^ b, negative = -differs;

	ct_opaque(differs);
	ct_opaque(negative);
	return (differs | negative) >> 63 ^ 1;
}

/* Returns `b`, or `a` where the bits of `mask` are set. */
static __always_inline __u64 ct_select(__u64 mask, __u64 a, __u64 b)
{
	return b ^ ((a ^ b) & mask);
}

/* Returns 1 for a kind of ICMP's, else 0, without a branch. */
static __always_inline __u64 ct_icmp_bit(__u64 kind)
{
	__u64 class = kind >> CT_KIND_CLASS_SHIFT;

	ct_opaque(class);
	return (class | class >> 1) & 1;
}

/**
 * ct_hash - Returns the hash of a key's words.
 * @config: the configuration, for the secrets
 * @words: the words
 *
 * As in the index of flows (settings.h), each half of a word has a secret of its own. So the hashes of
 * two keys differ for nearly all secrets, and no products wait for each other. The last words of IPv4
 * are zero and add nothing.
 */
static __always_inline __u32 ct_hash(const struct ct_config *config, const __u64 *words)
{
	const __u64 *factors = &config->words[CT_CONFIG_FACTORS];
	__u64 sum = config->words[CT_CONFIG_SEED];

#define CT_WEIGH(x) sum += words[x] * factors[2 * (x)] + (words[x] >> 32) * factors[2 * (x) + 1];
	CT_WEIGH(0)
	CT_WEIGH(1)
	if (words[0] & CT_KIND_V6) {
		CT_WEIGH(2)
		CT_WEIGH(3)
		CT_WEIGH(4)
	}
#undef CT_WEIGH
	sum ^= sum >> 32;
	return sum * 0x9e3779b97f4a7c15ull >> 32;
}

/**
 * ct_key_of - Makes the key of a tuple.
 * @k: becomes the key
 * @t: the tuple
 * @config: the configuration, for the hash
 */
static __always_inline void ct_key_of(struct ct_key *k, const struct ct_tuple *t,
				      const struct ct_config *config)
{
	__u64 icmp = ct_icmp_bit(t->kind), v6 = -(__u64)(t->kind & CT_KIND_V6);
	__u64 ports_above = ct_above(t->sport, t->dport), request = t->request & 1;
	__u64 high, reversed, swapped, top;

	/* Between equal addresses an ICMP request comes from the low endpoint. */
	high = ct_select(-icmp, request ^ 1, ports_above);
	high = ct_above(t->src[1], t->dst[1]) | (ct_equal(t->src[1], t->dst[1]) & high);
	high = ct_above(t->src[0], t->dst[0]) | (ct_equal(t->src[0], t->dst[0]) & high);
	reversed = -high;
	swapped = reversed & (icmp - 1);
	k->words[0] = ct_select(swapped, t->dport, t->sport) << 48 |
		      ct_select(swapped, t->sport, t->dport) << 32 | (__u64)t->zone << 16 |
		      (__u64)t->proto << 8 | t->kind |
		      (icmp & ~(high ^ request)) * CT_KIND_HIGH_ASKS;
	k->words[2] = ct_select(reversed, t->dst[1], t->src[1]);
	top = ct_select(reversed, t->src[1], t->dst[1]);
	k->words[1] = ct_select(v6, ct_select(reversed, t->dst[0], t->src[0]),
				k->words[2] << 32 | (__u32)top);
	k->words[2] &= v6;
	k->words[3] = ct_select(reversed, t->src[0], t->dst[0]) & v6;
	k->words[4] = top & v6;
	k->high = high;
	k->hash = ct_hash(config, k->words);
}

/**
 * ct_tuple_of - Makes a tuple of its key.
 * @t: becomes the tuple
 * @words: of the key; they change
 * @high: the tuple's source is the high endpoint
 */
static __always_inline void ct_tuple_of(struct ct_tuple *t, __u64 *words, bool high)
{
	bool swap;

	if (!(words[0] & CT_KIND_V6)) {
		words[4] = (__u32)words[1];
		words[3] = 0;
		words[2] = words[1] >> 32;
		words[1] = 0;
	}
	t->src[0] = high ? words[3] : words[1];
	t->src[1] = high ? words[4] : words[2];
	t->dst[0] = high ? words[1] : words[3];
	t->dst[1] = high ? words[2] : words[4];
	t->zone = words[0] >> 16;
	t->proto = words[0] >> 8;
	t->kind = words[0] & (CT_KIND_V6 | CT_KIND_CLASS_MASK << CT_KIND_CLASS_SHIFT);
	swap = high && !ct_is_icmp(t);
	t->sport = words[0] >> (swap ? 32 : 48);
	t->dport = words[0] >> (swap ? 48 : 32);
	t->request = ct_is_icmp(t) && high == !!(words[0] & CT_KIND_HIGH_ASKS);
	t->pad = 0;
}

/**
 * ct_original - Reads the tuple of a connection's original direction.
 * @t: becomes the tuple
 * @c: the connection
 * @head: its head
 */
static __always_inline void ct_original(struct ct_tuple *t, const struct ct_conn *c, __u64 head)
{
	__u64 words[CT_KEY_WORDS];

#pragma unroll
	for (int i = 0; i < CT_KEY_WORDS; i++)
		words[i] = ct_load(c->words[CT_CONN_KEY + i]);
	ct_tuple_of(t, words, head >> CT_FLAGS_SHIFT & CT_ORIGINAL_IS_HIGH);
}

/**
 * ct_parent - Reads the original tuple of the connection that expected another one.
 * @t: becomes the tuple
 * @c: the other one
 *
 * Return: false when it is not known.
 */
static __always_inline bool ct_parent(struct ct_tuple *t, const struct ct_conn *c)
{
	__u32 number = (ct_load(c->words[CT_CONN_NAT_PORTS]) & 0x1ffff) - 1;
	struct ct_extension *e = bpf_map_lookup_elem(&ct_exts, &number);
	__u64 words[CT_KEY_WORDS];

	if (!e)
		return false;
#pragma unroll
	for (int i = 0; i < CT_KEY_WORDS; i++)
		words[i] = ct_load(e->words[CT_EXTENSION_PARENT + i]);
	if (!words[0])
		return false;
	ct_tuple_of(t, words, ct_load(e->words[CT_EXTENSION_FLAGS]) & 1);
	return true;
}

/**
 * ct_reply - Makes the tuple of a connection's reply direction.
 * @t: becomes the tuple
 * @c: the connection
 * @head: its head
 */
static __always_inline void ct_reply(struct ct_tuple *t, const struct ct_conn *c, __u64 head)
{
	struct ct_tuple original;
	__u64 flags = head >> CT_FLAGS_SHIFT, address[2], ports;

	ct_original(&original, c, head);
	ct_reverse(t, &original);
	if (!(flags & (CT_NAT_SRC | CT_NAT_DST)))
		return;
	ports = ct_load(c->words[CT_CONN_NAT_PORTS]);
	address[0] = ct_load(c->words[CT_CONN_NAT_ADDRESS]);
	address[1] = ct_load(c->words[CT_CONN_NAT_ADDRESS + 1]);
	if (!(t->kind & CT_KIND_V6)) {
		address[0] = 0;
		address[1] = (__u32)address[1];
	}
	if (flags & CT_NAT_SRC) {
		t->dst[0] = address[0];
		t->dst[1] = address[1];
	} else {
		t->src[0] = address[0];
		t->src[1] = address[1];
	}
	t->sport = ports >> 48;
	if (!ct_is_icmp(t))
		t->dport = ports >> 32;
}

/* Returns true when two tuples are equal. */
static __always_inline bool ct_same(const struct ct_tuple *a, const struct ct_tuple *b)
{
	return !((a->src[0] ^ b->src[0]) | (a->src[1] ^ b->src[1]) | (a->dst[0] ^ b->dst[0]) |
		 (a->dst[1] ^ b->dst[1]) | (a->sport ^ b->sport) | (a->dport ^ b->dport) |
		 (a->zone ^ b->zone) | (a->proto ^ b->proto) | (a->kind ^ b->kind) |
		 (a->request ^ b->request));
}

#endif
