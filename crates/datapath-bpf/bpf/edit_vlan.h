/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pushing and popping VLAN tags, and where the layers are after that. */
#ifndef SLIPSWITCH_EDIT_VLAN_H
#define SLIPSWITCH_EDIT_VLAN_H

#include "checksum.h"

static __always_inline __u16 layers_shifted(__u16 offset, int shift)
{
	return offset ? offset + shift : 0;
}

static __always_inline void layers_shift(struct state *st, int shift)
{
	st->mpls = layers_shifted(st->mpls, shift);
	st->l3 = layers_shifted(st->l3, shift);
	st->l4 = layers_shifted(st->l4, shift);
}

/* The frame begins with a VLAN header, and the type behind it is in the frame. */
static __always_inline bool tag_is_in_frame(hook_ctx *ctx)
{
	__be16 type;

	return data_length(ctx) >= 18 && !edit_load(ctx, 12, &type, sizeof(type)) && is_vlan(type);
}

/* The outermost VLAN header is payload: there were more than the limit. Where the kernel has put it
 * beside the frame, what is behind its type is less than an Ethernet header from the start. */
static __always_inline bool tag_is_payload(hook_ctx *ctx, const struct state *st)
{
	__u32 place = st->mpls ? st->mpls : st->l3;

	return place + tag_length(ctx) <= ETH_HLEN;
}

#if AT_XDP

#define tag_push(ctx, st, tpid, tci, shift) frame_push_vlan(ctx, tpid, tci, shift)
#define tag_pop(ctx, st, shift) frame_pop_vlan(ctx, shift)

#else

/* skb->csum covers what is behind the network header as the kernel knows it, and that stays where
 * it is when tags go into the frame and out of it, but never comes closer than an Ethernet
 * header. */
static __always_inline void tag_move_covered(struct state *st, int shift)
{
	int covered = (int)st->covered + shift;

	st->covered = covered < ETH_HLEN ? ETH_HLEN : covered;
}

static __always_inline int tag_push(hook_ctx *ctx, struct state *st, __u16 tpid, __u16 tci,
				    int *shift)
{
	if (frame_push_vlan(ctx, tpid, tci, shift))
		return -1;
	tag_move_covered(st, *shift);
	return 0;
}

/* Takes the outermost tag away. Having done so the kernel wants the next one beside the frame, and
 * fails when the frame ends in it; that is no failure here. */
static __always_inline int tag_pop_raw(hook_ctx *ctx, struct state *st)
{
	bool tagged = has_tag(ctx);
	int shift, err = frame_pop_vlan(ctx, &shift);

	tag_move_covered(st, shift);
	if (!err)
		return 0;
	return tagged ? has_tag(ctx) : !shift;
}

/* Makes skb->protocol what the frame says, and puts its outermost tag beside it: of two tags
 * pushed the first goes into the frame, and when the kernel takes it out again it reads the type
 * behind it. */
static __always_inline int tag_sync_protocol(hook_ctx *ctx, struct state *st)
{
	int ignored;

	return tag_push(ctx, st, ETH_P_8021Q, 0, &ignored) ||
	       tag_push(ctx, st, ETH_P_8021Q, 0, &ignored) || tag_pop_raw(ctx, st) ||
	       tag_pop_raw(ctx, st);
}

/* The kernel goes by skb->protocol, which a sender can have set to anything. */
static __always_inline int tag_pop(hook_ctx *ctx, struct state *st, int *shift)
{
	__u32 before = ctx->len;

	if (!has_tag(ctx) && ctx->protocol != bpf_htons(ETH_P_8021Q) &&
	    ctx->protocol != bpf_htons(ETH_P_8021AD) && tag_sync_protocol(ctx, st))
		return -1;
	if (tag_pop_raw(ctx, st))
		return -1;
	*shift = (int)(ctx->len - before);
	return 0;
}

#endif

__noinline int exec_push_vlan(hook_ctx *ctx, __u32 tpid, __u32 tci)
{
	struct state *st = state_here();
	int shift;

	if (!st)
		return FAILED;
	if (data_length(ctx) < ETH_HLEN)
		return MALFORMED;
	if (tag_push(ctx, st, tpid, tci, &shift))
		return FAILED;
	layers_shift(st, shift);
	return EDITED;
}

__noinline int exec_pop_vlan(hook_ctx *ctx)
{
	struct state *st = state_here();
	int shift;

	if (!st)
		return FAILED;
	if (tag_is_payload(ctx, st) || (!has_tag(ctx) && !tag_is_in_frame(ctx)))
		return MALFORMED;
	if (tag_pop(ctx, st, &shift))
		return FAILED;
	layers_shift(st, shift);
	return EDITED;
}

#endif
