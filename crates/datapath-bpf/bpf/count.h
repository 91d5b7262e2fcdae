/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters, and statistics of ports. Each CPU counts on its shard; only when there are fewer shards
 * than CPUs do two CPUs meet there. */
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
