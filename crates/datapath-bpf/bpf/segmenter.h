/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tc: a pair of devices of the daemon segments packets that cannot have outer headers while they are whole.
 *
 * A packet leaves for a macvlan device whose limits have the kernel segment everything. The device under it
 * has a program at its egress, where the segments arrive one by one, on the same CPU, before the packet's own
 * programs have ended: so they overtake nothing, no queue can be full, and the flow is still there. Each
 * goes on at the instruction at which the packet left. docs/design/39-segmenter.md.
 */
#ifndef SLIPSWITCH_SEGMENTER_H
#define SLIPSWITCH_SEGMENTER_H

#include "exec.h"
#include "lookup.h"

/* The state of a segment, in the words of the packet's control block, which the kernel copies to segments. */
#define SEGMENT_NOTE 0x73656773u /* the first word */
enum segment_word { SEGMENT_IS_OURS, SEGMENT_FLOW, SEGMENT_PORT, SEGMENT_LAYERS, SEGMENT_PLACE };

/* The device does not segment a packet of fewer bytes if nothing states the number of its segments. */
#define SEGMENTER_LEAST 512

_Static_assert(CELLS <= 1 << 8 && RECIRCULATION_LIMIT < 1 << 8, "fields of SEGMENT_PLACE");

/**
 * segmenter_of - Returns the device that can segment a packet.
 * @ctx: the packet
 * @st: its state
 *
 * A tag that is kept outside of the frame would move into it, and the offsets of layers with it.
 *
 * Return: index of the device; 0 when there is none.
 */
static __always_inline __u32 segmenter_of(hook_ctx *ctx, const struct state *st)
{
	if (!is_gso(ctx) || st->segmented || st->mpls || st->trunc || has_tag(ctx))
		return 0;
	if (ctx->gso_segs < 2 && ctx->len < SEGMENTER_LEAST)
		return 0;
	return *(volatile __u32 *)&config_here()->segmenter;
}

/**
 * segmenter_give - Has a packet segmented.
 * @ctx: the packet, which segmenter_of() accepted
 * @st: its state
 * @to: index of the device
 *
 * Return: the verdict.
 */
static __always_inline int segmenter_give(hook_ctx *ctx, const struct state *st, __u32 to)
{
	ctx->cb[SEGMENT_IS_OURS] = SEGMENT_NOTE;
	ctx->cb[SEGMENT_FLOW] = st->flow;
	ctx->cb[SEGMENT_PORT] = st->in_port;
	ctx->cb[SEGMENT_LAYERS] = (__u32)st->l4 << 16 | st->l3;
	ctx->cb[SEGMENT_PLACE] = (__u32)st->covered << 16 | (st->depth & 0xff) << 8 | (st->pc & 0xff);
	return bpf_redirect(to, 0);
}

/**
 * segmenter_return - The program at the segmenter: goes on with a segment.
 * @ctx: the segment
 *
 * No packet leaves by the device itself.
 *
 * Return: the verdict.
 */
static __always_inline int segmenter_return(hook_ctx *ctx)
{
	struct state *st = state_here();
	__u32 flow = ctx->cb[SEGMENT_FLOW], layers = ctx->cb[SEGMENT_LAYERS];
	__u32 place = ctx->cb[SEGMENT_PLACE];
	struct slot *slot;

	if (!st || ctx->cb[SEGMENT_IS_OURS] != SEGMENT_NOTE)
		return drop(DROP_TUNNEL_PUSH);
	slot = bpf_map_lookup_elem(&slots, &flow);
	if (!slot)
		return drop(DROP_TUNNEL_PUSH);
	state_init(st, ctx->cb[SEGMENT_PORT]);
	state_begin_program(st, flow, slot->program, frame_length(ctx));
	st->segmented = 1;
	st->mark = ctx->mark;
	st->priority = ctx->priority;
	st->mpls = 0;
	st->l3 = layers;
	st->l4 = layers >> 16;
	st->pc = place & 0xff;
	st->depth = place >> 8;
	st->covered = place >> 16;
	ctx->cb[SEGMENT_IS_OURS] = 0;
	return tail_call(ctx, TAIL_TUN_PUSH);
}

#endif
