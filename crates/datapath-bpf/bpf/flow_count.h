/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Statistics of flows. A packet is added to an entry of the exact-match cache (emc.h) or to a word
 * of `recent`. Counts of entries move to `recent`, full ones of `recent` to `totals`. layout.h defines
 * the forms and the order that readers rely on. */
#ifndef SLIPSWITCH_FLOW_COUNT_H
#define SLIPSWITCH_FLOW_COUNT_H

#include "count.h"

/* Adds in program order, as seen by all CPUs. An atomic addition that returns the old value is
 * fully ordered on every architecture; one that does not is not. */
static __always_inline void add_in_order(__u64 *to, __u64 amount)
{
	__u64 old = __sync_fetch_and_add(to, amount);

	asm volatile("" : : "r"(old)); /* else the compiler uses the addition without a result */
}

/**
 * take_recent - Takes the counts out of a word.
 * @r: the word
 *
 * Where CPUs share the word, the exchange gives every count that was added to it to exactly one
 * spiller: the one whose exchange comes next. A later addition belongs to the next spiller. A TCP
 * flag that was set after the first read of the word is in the result of the exchange, and is put
 * back. Another CPU that misses the flag in between sets it again.
 *
 * Return: the word as it was.
 */
static __always_inline __u64 take_recent(struct recent *r)
{
	__u64 word = *(volatile __u64 *)&r->word;
	__u64 left = (word & RECENT_FLAGS) | RECENT_SPILLED;

	if (!settings.shards_atomic) {
		*(volatile __u64 *)&r->word = left;
		return word;
	}
	word = __sync_lock_test_and_set(&r->word, left);
	if (word & RECENT_FLAGS & ~left)
		__sync_fetch_and_or(&r->word, word & RECENT_FLAGS);
	return word;
}

/**
 * spill - Moves the counts of a word to the totals of its flow.
 * @at: index into recent
 * @more: further counts for the totals, in the form of the word
 *
 * This is rare: slot and word are looked up again, so that the path of other packets keeps no
 * registers for it.
 */
static __always_inline void spill(__u32 at, __u64 more)
{
	__u32 slot = at & (settings.max_flows - 1);
	struct totals *t = bpf_map_lookup_elem(&totals, &slot);
	struct recent *r = bpf_map_lookup_elem(&recent, &at);
	__u64 word;

	if (!t || !r)
		return; /* the maps would be smaller than `settings` says */
	add_in_order(&t->begun, 1);
	/* No sum overflows: the top bits of `more` are clear. */
	word = (take_recent(r) & (RECENT_SPILLED - 1)) + more;
	add_in_order(&t->packets, word >> RECENT_PACKETS_SHIFT);
	add_in_order(&t->bytes, word & RECENT_BYTES);
	add_in_order(&t->ended, 1);
}

/**
 * add_counts - Adds counts to a word.
 * @at: index into recent
 * @counts: packets and bytes, in the form of the word; several packets only where no CPUs share it
 * @flags: TCP flags, in the bits of RECENT_FLAGS
 *
 * Return: true when the word has to be spilled.
 */
static __always_inline bool add_counts(__u32 at, __u64 counts, __u64 flags)
{
	struct recent *r = bpf_map_lookup_elem(&recent, &at);
	__u64 word;

	if (!r)
		return false;
	if (settings.shards_atomic) {
		word = __sync_fetch_and_add(&r->word, counts) + counts;
		if (flags & ~word)
			__sync_fetch_and_or(&r->word, flags);
	} else {
		word = (r->word + counts) | flags;
		r->word = word;
	}
	return word & RECENT_FULL;
}

/**
 * count_flow - Counts a packet of a flow.
 * @slot: number of the flow
 * @bytes: of the packet
 * @tcp_flags: host integer; 0 when the packet is not TCP
 */
static __always_inline void count_flow(__u32 slot, __u32 bytes, __u32 tcp_flags)
{
	__u32 at = count_shard() * settings.max_flows + slot;

	if (add_counts(at, RECENT_PACKET + bytes, (__u64)tcp_flags << TCP_FLAGS_SHIFT))
		spill(at, 0);
}

/* Stores after all earlier stores of the program and before all later ones, as seen by all CPUs. */
static __always_inline void store_in_order(__u64 *to, __u64 value)
{
#ifdef __TARGET_ARCH_x86
	/* Other CPUs see stores of this CPU in order; a fence would wait for all of them. */
	asm volatile("" : : : "memory");
	*(volatile __u64 *)to = value;
	asm volatile("" : : : "memory");
#else
	add_in_order(to, value - *to);
#endif
}

#endif
