/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tc: limits of the rate at which the packets of a port arrive (`ingress_policing_*`). Each packet meets
 * them once, before its first lookup; ports without a limit do not come here. XDP leaves the packets of
 * these ports to tc: it would count those twice that it passes on. */
#ifndef SLIPSWITCH_POLICE_H
#define SLIPSWITCH_POLICE_H

#include "ingress.h"
#include "meter.h"
#include "output.h"

/* Returns the bytes of the headers that each segment of a packet gets; 0 when that is unknown. */
static __always_inline __u32 police_headers(hook_ctx *ctx)
{
	__u32 l4 = ETH_HLEN + 40;
	__be16 type = 0;
	__u8 byte = 0, proto;

	if (frame_load(ctx, 12, &type, sizeof(type)))
		return 0;
	if (type == bpf_htons(ETH_P_IP)) {
		if (frame_load(ctx, ETH_HLEN, &byte, 1) || frame_load(ctx, ETH_HLEN + 9, &proto, 1))
			return 0;
		l4 = ETH_HLEN + (byte & 15) * 4;
	} else if (type != bpf_htons(ETH_P_IPV6) || frame_load(ctx, ETH_HLEN + 6, &proto, 1)) {
		return 0;
	}
	if (proto == 17)
		return l4 + 8;
	if (proto != 6 || frame_load(ctx, l4 + 12, &byte, 1))
		return 0;
	return l4 + (byte >> 4) * 4;
}

/**
 * police_take - Takes the tokens of a packet out of a bucket.
 * @band: the bucket
 * @units: bits, or packets
 * @now: bpf_ktime_get_ns()
 * @cost: becomes the nanoseconds of gain that were taken
 *
 * A full bucket admits a packet of any cost, and the packets that follow wait until it is paid for:
 * otherwise a bucket that is smaller than an aggregate would never admit one.
 *
 * Return: false when the bucket has too little.
 */
static __always_inline bool police_take(struct meter_band *band, __u64 units, __u64 now, __u64 *cost)
{
	__u64 gain = band->cost * units / 1000, depth = band->depth;

	*cost = 0;
	if (!band->cost)
		return true;
	if (!meter_take(band, gain, depth > gain ? depth : gain, now))
		return false;
	*cost = gain;
	return true;
}

/**
 * police_admits - Applies the limits of a port to a packet. An aggregate costs as much as its segments.
 * @ctx: the packet
 * @number: number of the port
 *
 * A function of its own: the verifier reads its loops once.
 *
 * Return: 1 when the packet may pass, else 0.
 */
__noinline int police_admits(hook_ctx *ctx, __u32 number)
{
	struct policer *p = bpf_map_lookup_elem(&policers, &number);
	__u64 now, bytes, taken, ignored, packets = 1;

	if (!p)
		return 1;
	now = bpf_ktime_get_ns();
	bytes = frame_length(ctx);
	if (is_gso(ctx) && ctx->gso_segs > 1) {
		packets = ctx->gso_segs;
		bytes += (packets - 1) * police_headers(ctx);
	}
	if (police_take(&p->bits, bytes * 8, now, &taken)) {
		if (police_take(&p->packets, packets, now, &ignored))
			return 1;
		__sync_fetch_and_add(&p->bits.tat, -taken);
	}
	__sync_fetch_and_add(&p->dropped, 1);
	return 0;
}

/**
 * police - The program in TAIL_POLICE: drops a packet, or marks it as admitted and looks it up.
 * @ctx: the packet
 *
 * Return: the verdict.
 */
static __always_inline int police(hook_ctx *ctx)
{
	__u32 port = ingress_port_of(hook_ifindex(ctx));

	if (!police_admits(ctx, port & ~IFACE_FLAGS))
		return drop(DROP_POLICING);
	ctx->cb[1] = NOTE_POLICED ^ hook_ifindex(ctx);
	return tail_call(ctx, TAIL_LOOKUP);
}

#endif
