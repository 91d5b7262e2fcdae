/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Meters: token buckets as datapath::MeterConfig says, kept as the time at which a bucket is full
 * again ("theoretical arrival time" of the generic cell rate algorithm, ITU-T I.371): one word
 * that CPUs change by compare and swap, with no clock to advance.
 *
 * At `now` a bucket lacks tat - now nanoseconds of its gain, and holds `depth` of it. */
#ifndef SLIPSWITCH_METER_H
#define SLIPSWITCH_METER_H

#include "count.h"

/* Other CPUs that may be faster, one after the other. */
#define METER_TRIES 8

/* Takes `cost` nanoseconds of gain; false when the bucket has too little, or when others are
 * faster all the time: better drop a packet than exceed a rate. */
static __always_inline bool take(struct meter_band *band, __u64 cost, __u64 now)
{
	__u64 depth = band->depth;

#pragma clang loop unroll(disable)
	for (int i = 0; i < METER_TRIES; i++) {
		__u64 tat = *(volatile __u64 *)&band->tat;
		__u64 next = (tat > now ? tat : now) + cost;

		if (next - now > depth)
			return false;
		if (__sync_val_compare_and_swap(&band->tat, tat, next) == tat)
			return true;
	}
	return false;
}

/* 1 when a packet of `bytes` bytes may pass. */
__noinline int meter_pass(__u32 id, __u64 bytes)
{
	struct meter *meter = bpf_map_lookup_elem(&meters, &id);
	struct meter_band *exceeded = 0;
	__u64 now, units;

	if (!meter || !meter->in_use)
		return 1;
	now = bpf_ktime_get_ns();
	units = meter->per_packet ? 1 : bytes * 8;
	__sync_fetch_and_add(&meter->packets, 1);
	__sync_fetch_and_add(&meter->bytes, bytes);
#pragma clang loop unroll(disable)
	for (int i = 0; i < METER_BANDS; i++) {
		struct meter_band *band = &meter->bands[i];
		__u64 cost = band->cost * units / 1000;

		if (!band->cost)
			break;
		/* Whatever has a rate is limited. */
		if (take(band, cost ? cost : 1, now))
			continue;
		/* The highest rate has the lowest cost. */
		if (!exceeded || band->cost < exceeded->cost)
			exceeded = band;
	}
	if (!exceeded)
		return 1;
	__sync_fetch_and_add(&exceeded->packets, 1);
	__sync_fetch_and_add(&exceeded->bytes, bytes);
	return 0;
}

#endif
