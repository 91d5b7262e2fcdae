/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Statistics of flows. A packet is added to a word of `recent`: at once, or, when flows are
 * numerous, together with other packets of its CPU's batch. Full counts move to `totals`. layout.h
 * defines the forms and the order that readers rely on. */
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
 *
 * This is rare: slot and word are looked up again, so that the path of other packets keeps no
 * registers for it.
 */
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

/* The same as a function of its own, for callers that would contain it many times. */
static __noinline int spill_apart(__u32 at)
{
	spill(at);
	return 0;
}

/**
 * add_packet - Adds a packet to a word.
 * @at: index into recent
 * @bytes: of the packet
 * @flags: TCP flags, in the bits of RECENT_FLAGS
 *
 * Return: true when the word has to be spilled.
 */
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
		opaque(packet); /* two additions take fewer instructions than to combine both counts */
		word = (r->word + bytes + packet) | flags;
		r->word = word;
	}
	return word & RECENT_FULL;
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

/**
 * add_batch - Adds all packets of a batch to their words.
 * @b: the batch of this CPU; the verifier requires a check for NULL
 *
 * A function of its own, as it is rare and long.
 *
 * Return: 0, because such a function must return a number.
 */
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

/**
 * note_packet - Notes a packet in the batch of this CPU.
 * @slot: number of the flow
 * @bytes: of the packet
 * @flags: TCP flags, in the bits of RECENT_FLAGS
 *
 * Return: false when the CPU has no batch.
 */
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

/**
 * count_flow - Counts a packet of a flow.
 * @slot: number of the flow
 * @bytes: of the packet
 * @tcp_flags: host integer; 0 when the packet is not TCP
 */
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
