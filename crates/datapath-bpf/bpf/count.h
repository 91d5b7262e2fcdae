/* Statistics and counters. Each CPU counts on its shard; only when there are fewer shards than
 * CPUs do two CPUs meet there. */
#ifndef SLIPSWITCH_COUNT_H
#define SLIPSWITCH_COUNT_H

#include "maps.h"

static __always_inline __u32 shard(void)
{
	return bpf_get_smp_processor_id() & settings.shard_mask;
}

static __always_inline void add(__u64 *to, __u64 amount)
{
	if (settings.shards_atomic)
		__sync_fetch_and_add(to, amount);
	else
		*to += amount;
}

/* NULL only where the maps are smaller than `settings` says. */
static __always_inline struct counters *counters_here(void)
{
	__u32 at = shard();

	return bpf_map_lookup_elem(&counters, &at);
}

static __always_inline void count_drop(__u32 reason)
{
	struct counters *c = counters_here();

	if (c && reason < DROPS)
		add(&c->drops[reason], 1);
}

#define COUNT(field)                                 \
	do {                                         \
		struct counters *c_ = counters_here(); \
		if (c_)                              \
			add(&c_->field, 1);          \
	} while (0)

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

/* Moves what recent[at] has to its flow's totals; layout.h has the order. This is rare: slot and
 * word are found anew, so that nothing is kept for it where packets pass. */
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

/* `tcp_flags`: host integer; 0 when the packet is not TCP. */
static __always_inline void count_flow(__u32 slot, __u32 bytes, __u32 tcp_flags)
{
	__u32 at = shard() * settings.max_flows + slot;
	struct recent *r = bpf_map_lookup_elem(&recent, &at);
	__u64 flags = (__u64)tcp_flags << TCP_FLAGS_SHIFT;
	__u64 packet = RECENT_PACKET, word;

	if (!r)
		return;
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
	if (word & RECENT_FULL)
		spill(at);
}

static __always_inline struct port_stats *port_stats_here(__u32 port)
{
	__u32 at = shard() * MAX_PORTS + port;

	return bpf_map_lookup_elem(&port_stats, &at);
}

static __always_inline void count_rx(__u32 port, __u32 bytes)
{
	struct port_stats *s = port_stats_here(port);

	if (s) {
		add(&s->rx_packets, 1);
		add(&s->rx_bytes, bytes);
	}
}

static __always_inline void count_tx(__u32 port, __u32 bytes)
{
	struct port_stats *s = port_stats_here(port);

	if (s) {
		add(&s->tx_packets, 1);
		add(&s->tx_bytes, bytes);
	}
}

#endif
