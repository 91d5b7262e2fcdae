/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Statistics of flows. A packet is added to a word of `recent`, at once or, where flows are many, with
 * others of its CPU's batch; what is full there goes to `totals`. layout.h has the forms, and the
 * order that readers rely on. */
#ifndef SLIPSWITCH_FLOW_COUNT_H
#define SLIPSWITCH_FLOW_COUNT_H

#include "count.h"

/* Adds in the order of the program, for all CPUs: an addition that gives the old value is fully
 * ordered on every architecture, one that does not is not. */
static __always_inline void add_in_order(__u64 *to, __u64 amount)
{
	__u64 old = __sync_fetch_and_add(to, amount);

	asm volatile("" : : "r"(old)); /* else the compiler takes the other one */
}

/* Takes the counts out of a word, and gives what was in it.
 *
 * Where CPUs share it: the exchange gives every count that was added to the word to one spiller, the
 * one whose exchange comes next; what is added later is the next one's. A flag that was set after
 * the first look at the word is in what the exchange gave, and put back. Who looks for it meanwhile
 * and does not find it sets it again. */
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

/* Moves what recent[at] has to its flow's totals. This is rare: slot and word are found anew, so
 * that nothing is kept for it where packets pass. */
static __always_inline void spill(__u32 at)
{
	__u32 slot = at & (settings.max_flows - 1);
	struct totals *t = bpf_map_lookup_elem(&totals, &slot);
	struct recent *r = bpf_map_lookup_elem(&recent, &at);
	__u64 word;

	if (!t || !r)
		return; /* the maps would be smaller than `settings` says */
	add_in_order(&t->begun, 1);
	word = take_recent(r);
	add_in_order(&t->packets, (word & (RECENT_SPILLED - 1)) >> RECENT_PACKETS_SHIFT);
	add_in_order(&t->bytes, word & RECENT_BYTES);
	add_in_order(&t->ended, 1);
}

/* The same from places that are many; only a function of its own is not put into each of them. */
static __noinline int spill_apart(__u32 at)
{
	spill(at);
	return 0;
}

/* Adds a packet to recent[at]. `flags`: those of RECENT_FLAGS. True: it is to be spilled. */
static __always_inline bool add_packet(__u32 at, __u64 bytes, __u64 flags)
{
	struct recent *r = bpf_map_lookup_elem(&recent, &at);
	__u64 packet = RECENT_PACKET, word;

	if (!r)
		return false;
	if (settings.shards_atomic) {
		packet += bytes;
		word = __sync_fetch_and_add(&r->word, packet) + packet;
		if (flags & ~word)
			__sync_fetch_and_or(&r->word, flags);
	} else {
		opaque(packet); /* two additions are shorter than to put both counts together */
		word = (r->word + bytes + packet) | flags;
		r->word = word;
	}
	return word & RECENT_FULL;
}

/* Stores behind what the program stored before, and before what it stores then, for all CPUs. */
static __always_inline void store_in_order(__u64 *to, __u64 value)
{
#ifdef __TARGET_ARCH_x86
	/* Others see this CPU's stores in its order; and a fence would wait for all of them. */
	asm volatile("" : : : "memory");
	*(volatile __u64 *)to = value;
	asm volatile("" : : : "memory");
#else
	add_in_order(to, value - *to);
#endif
}

/* Adds all packets of a batch. */
static __noinline int add_batch(struct batch *b)
{
	__u32 shard_at = count_shard() * settings.max_flows;
	__u64 turn;

	if (!b)
		return 0;
	turn = b->turn;
	store_in_order(&b->turn, turn + 1);
#pragma unroll
	for (int i = 0; i < BATCH; i++) {
		__u64 entry = b->entries[i];
		__u32 at = shard_at + entry % EMC_SLOTS;

		if (add_packet(at, entry >> BATCH_BYTES_SHIFT & BATCH_BYTES, entry & RECENT_FLAGS))
			spill_apart(at);
	}
	store_in_order(&b->turn, turn + 2);
	return 0;
}

/* Notes a packet in the batch of this CPU. `flags`: those of RECENT_FLAGS. False: it has none. */
static __always_inline bool note_packet(__u32 slot, __u64 bytes, __u64 flags)
{
	struct batch *b = ENTRY_OF(batches, bpf_get_smp_processor_id(), settings.cpus);
	__u64 cursor;

	if (!b)
		return false;
	cursor = b->cursor;
	*(volatile __u64 *)&b->entries[cursor % BATCH] = slot | bytes << BATCH_BYTES_SHIFT |
		(b->turn >> 1 & 1) << BATCH_TURN_SHIFT | flags;
	cursor++;
	if (!(cursor % BATCH))
		add_batch(b);
	b->cursor = cursor;
	return true;
}

/* `tcp_flags`: host integer; 0 when the packet is not TCP. */
static __always_inline void count_flow(__u32 slot, __u32 bytes, __u32 tcp_flags)
{
	__u64 flags = (__u64)tcp_flags << TCP_FLAGS_SHIFT;
	__u32 at = count_shard() * settings.max_flows + slot;

	if (settings.batched && note_packet(slot, bytes, flags))
		return;
	if (add_packet(at, bytes, flags))
		spill(at);
}

#endif
