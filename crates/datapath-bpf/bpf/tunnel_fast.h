/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The exact-match cache for packets in tunnels. Their key has the words of tunnels in addition, and
 * their ingress port is that of a tunnel, so they share the cache with packets from ports.
 *
 * Words that are zero add nothing to a sum, so they are passed over: those of IPv6 addresses and of
 * options, in most packets. */
#ifndef SLIPSWITCH_TUNNEL_FAST_H
#define SLIPSWITCH_TUNNEL_FAST_H

#include "lookup.h"

/* Adds word `x` of a tunnel to both sums. */
#define TUNNEL_ADD(x)                                                                         \
	do {                                                                                  \
		__u64 word_ = st->key[x] & settings.union_mask[x];                            \
		sum += hash_word(x, word_);                                                   \
		check += hash_weigh(word_, FACTORS_OF_TUNNEL_CHECK + (x - W_TUN0),            \
				    FACTORS_OF_TUNNEL_CHECK + TUNNEL_WORDS + (x - W_TUN0));   \
	} while (0);

/**
 * tunnel_emc_words - Makes the cache's key of a packet in a tunnel.
 * @k: becomes the key
 * @words: the inner packet's words, from emc_under()
 * @st: the state, with the words of the tunnel
 */
static __always_inline void tunnel_emc_words(struct emc_key *k, const __u64 *words,
					     const struct state *st)
{
	__u64 sum = 0, check = 0;

	EMC_EACH(EMC_ADD)
	TUNNEL_ADD(W_TUN0)
	TUNNEL_ADD(W_TUN1)
	if (st->key[W_TIP4]) {
		TUNNEL_ADD(W_TIP4)
	} else {
		TUNNEL_ADD(W_TSRC0)
		TUNNEL_ADD(W_TSRC1)
		TUNNEL_ADD(W_TDST0)
		TUNNEL_ADD(W_TDST1)
	}
	if (st->key[W_OPT0]) {
		TUNNEL_ADD(W_OPT0)
		TUNNEL_ADD(W_OPT1)
		TUNNEL_ADD(W_OPT2)
		TUNNEL_ADD(W_OPT3)
	}
	k->sum = sum >> 32;
	k->check = check >> EMC_CHECK_SHIFT;
	k->hash = finish_hash(sum);
}

#define TUNNEL_BEYOND(x) beyond |= mask->words[x] & ~settings.union_mask[x];

/* Returns true when the mask covers only words that an entry's key has. Those of connections are zero
 * in packets that have just come out of a tunnel. */
static __always_inline bool tunnel_may_remember(const struct mask *mask)
{
	__u64 beyond = 0;

	TUNNEL_EACH(TUNNEL_BEYOND)
	return !beyond && emc_may_remember(mask);
}

/**
 * tunnel_key - Makes the cache's key of a packet in a tunnel, if the inner packet has the common shape.
 * @ctx: the packet
 * @st: its state; the headers were read
 * @k: becomes the key
 * @length: becomes the length of the outer frame
 * @tcp_flags: becomes the TCP flags, a host integer; 0 when the packet is not TCP
 *
 * Return: false when there is no key, or the cache is off.
 */
static __always_inline bool tunnel_key(hook_ctx *ctx, const struct state *st, struct emc_key *k,
				       __u32 *length, __u32 *tcp_flags)
{
	struct view v = { data_of(ctx), data_end_of(ctx), 0, true };
	__u64 words[EMC_WORDS], base = tunnel_base(st);
	__u32 bytes = linear_length(ctx);

	opaque(bytes);
	*length = bytes;
	v.data += base;
	v.length = bytes - base;
	if (!parse_fast(ctx, &v, st->in_port, words, tcp_flags))
		return false;
	tunnel_emc_words(k, words, st);
	return true;
}

/**
 * tunnel_fast - Sends a packet in a tunnel whose flow is cached with one output.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @k: the key
 * @length: of the outer frame
 * @tcp_flags: host integer; 0 when the packet is not TCP
 *
 * Return: the verdict, or NOT_HERE, and nothing is done.
 */
static __always_inline int tunnel_fast(hook_ctx *ctx, struct state *st, const struct emc_key *k,
				       __u32 length, __u32 tcp_flags)
{
	/* All of the frame is in the first buffer, or the packet had no key. */
	const struct view whole = { .whole = true };
	struct emc_entry *e;
	struct port *port;
	__u32 at, output;

	e = emc_find(k, &at);
	if (!e)
		return NOT_HERE;
	output = emc_output(e);
	if (output == NO_PORT && lookup_flags(emc_slot(e)) & FLOW_CHAIN)
		bpf_tail_call_static(ctx, &tails, TAIL_TUN_CHAIN);
	if (output == NO_PORT || !(emc_hooks(e) & HOOK))
		return NOT_HERE;
	port = port_of(output);
	if (!output_can_redirect(&whole, port) ||
	    tunnel_strip(ctx, 0, length + tag_length(ctx)))
		return NOT_HERE;
	length = linear_length(ctx);
	emc_count(e, length + tag_length(ctx), tcp_flags);
	return output_to(ctx, port, output, st->in_port, length, state_network(st));
}

/**
 * tunnel_lookup - Looks up a packet in a tunnel by the signature cache, or by the masks.
 * @ctx: the packet
 * @k: its key for the exact-match cache
 * @has_key: there is one
 *
 * Return: the verdict.
 */
static __always_inline int tunnel_lookup(hook_ctx *ctx, const struct emc_key *k,
					 bool has_key)
{
	__u32 number, tag, after;
	struct state *st;
	struct slot *slot;
	struct mask *mask;
	int verdict;

	st = lookup_resume(ctx, &verdict);
	if (!st)
		return verdict;
	st->cache_hash = cache_hash(st);
	number = sigcache_find(st->cache_hash);
	/* As in lookup_decide(). */
	tag = after = emc_tag(number);
	asm volatile("%0 ^= %0" : "+r"(after));
	number += after;
	slot = lookup_confirmed(st, number, &mask);
	if (!slot)
		return tail_call(ctx, TAIL_MASK_SCAN);
	if (has_key && tunnel_may_remember(mask))
		emc_remember(k, slot, number, tag);
	/* With an entry, tunnel_fast() has tried that. */
	if (slot->flags & FLOW_CHAIN && slot->hooks & HOOK)
		bpf_tail_call_static(ctx, &tails, TAIL_TUN_CHAIN);
	return lookup_run(ctx, st, slot, number);
}

#endif
