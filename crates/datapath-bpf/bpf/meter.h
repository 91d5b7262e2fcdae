/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Meters: token buckets as datapath::MeterConfig defines them. A bucket is stored as the time at
 * which it is full again ("theoretical arrival time" of the generic cell rate algorithm, ITU-T
 * I.371). This is one word, which CPUs change by compare and swap; no clock advances it.
 *
 * At time `now` a bucket lacks tat - now nanoseconds of its gain, and it holds `depth` of it. */
#ifndef SLIPSWITCH_METER_H
#define SLIPSWITCH_METER_H

#include "count.h"

/* Attempts of a compare and swap that other CPUs win, one after the other. */
#define METER_TRIES 8

/**
 * meter_take - Takes tokens out of a bucket.
 * @band: the bucket
 * @cost: nanoseconds of gain
 * @depth: the most that may lack after that, nanoseconds
 * @now: bpf_ktime_get_ns()
 *
 * Return: false when the bucket has too little, or when other CPUs win every attempt: to drop a
 * packet is better than to exceed a rate.
 */
static __always_inline bool meter_take(struct meter_band *band, __u64 cost, __u64 depth,
				       __u64 now)
{
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

/**
 * meter_pass - Applies a meter to a packet and counts it.
 * @id: number of the meter
 * @bytes: length of the packet
 *
 * A function of its own: the verifier reads the loop over bands once.
 *
 * Return: 1 when the packet may pass, also when there is no such meter, else 0.
 */
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
		/* A packet costs something even at a very high rate. */
		if (meter_take(band, cost ? cost : 1, band->depth, now))
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
