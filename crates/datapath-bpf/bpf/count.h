/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters, and statistics of ports that no device counts.
 *
 * Each CPU counts on its own shard. CPUs share a shard only when there are fewer shards than CPUs;
 * additions are atomic then (settings.shards_atomic). */
#ifndef SLIPSWITCH_COUNT_H
#define SLIPSWITCH_COUNT_H

#include "maps.h"

/* Returns the shard of this CPU. */
static __always_inline __u32 count_shard(void)
{
	return bpf_get_smp_processor_id() & settings.shard_mask;
}

/* Adds to a counter of this CPU's shard. */
static __always_inline void count_add(__u64 *to, __u64 amount)
{
	if (settings.shards_atomic)
		__sync_fetch_and_add(to, amount);
	else
		*to += amount;
}

/* Returns the counters of this shard; NULL only if the maps are smaller than `settings` states. */
static __always_inline struct counters *counters_here(void)
{
	__u32 at = count_shard();

	return bpf_map_lookup_elem(&counters, &at);
}

/* Counts a dropped packet; `reason` is enum drop. As in ENTRY_OF(), the address is computed from the
 * very register that was compared. */
static __always_inline void count_drop(__u32 reason)
{
	struct counters *c = counters_here();
	__u64 at = reason;

	opaque(at);
	if (c && at < DROPS) {
		opaque(at);
		count_add(&c->drops[at], 1);
	}
}

/* Adds one to a field of struct counters. */
#define COUNT(field)                                 \
	do {                                         \
		struct counters *c_ = counters_here(); \
		if (c_)                              \
			count_add(&c_->field, 1);          \
	} while (0)

/* Returns the statistics of a port on this shard; NULL as in counters_here(). */
static __always_inline struct port_stats *port_stats_here(__u32 port)
{
	__u32 at = count_shard() * MAX_PORTS + port;

	return bpf_map_lookup_elem(&port_stats, &at);
}

/* Counts a packet that came from the host's stack through `port`; `bytes` is the frame. */
static __always_inline void count_rx(__u32 port, __u32 bytes)
{
	struct port_stats *s = port_stats_here(port);

	if (s) {
		count_add(&s->rx_packets, 1);
		count_add(&s->rx_bytes, bytes);
	}
}

/* Counts a packet that went to the host's stack through `port`; `bytes` is the frame. */
static __always_inline void count_tx(__u32 port, __u32 bytes)
{
	struct port_stats *s = port_stats_here(port);

	if (s) {
		count_add(&s->tx_packets, 1);
		count_add(&s->tx_bytes, bytes);
	}
}

#endif
