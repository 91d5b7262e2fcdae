/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pushing and popping VLAN tags, and where the layers are after that. */
#ifndef SLIPSWITCH_EDIT_VLAN_H
#define SLIPSWITCH_EDIT_VLAN_H

#include "checksum.h"

static __always_inline __u16 shifted(__u16 offset, int shift)
{
	return offset ? offset + shift : 0;
}

static __always_inline void shift_layers(struct state *st, int shift)
{
	st->mpls = shifted(st->mpls, shift);
	st->l3 = shifted(st->l3, shift);
	st->l4 = shifted(st->l4, shift);
}

/* The frame begins with a VLAN header, and the type behind it is in the frame. */
static __always_inline bool has_header(hook_ctx *ctx)
{
	__be16 type;

	return data_length(ctx) >= 18 && !get(ctx, 12, &type, sizeof(type)) && is_vlan(type);
}

/* The outermost VLAN header is payload: there were more than the limit. Where the kernel has put it
 * beside the frame, what is behind its type is less than an Ethernet header from the start. */
static __always_inline bool begins_with_payload(hook_ctx *ctx, const struct state *st)
{
	__u32 place = st->mpls ? st->mpls : st->l3;

	return place + tag_length(ctx) <= ETH_HLEN;
}

#if AT_XDP

#define tag_push(ctx, st, tpid, tci, shift) push_vlan(ctx, tpid, tci, shift)
#define tag_pop(ctx, st, shift) pop_vlan(ctx, shift)

#else

/* skb->csum covers what is behind the network header as the kernel knows it, and that stays where
 * it is when tags go into the frame and out of it, but never comes closer than an Ethernet
 * header. */
static __always_inline void cover(struct state *st, int shift)
{
	int covered = (int)st->covered + shift;

	st->covered = covered < ETH_HLEN ? ETH_HLEN : covered;
}

static __always_inline int tag_push(hook_ctx *ctx, struct state *st, __u16 tpid, __u16 tci,
				    int *shift)
{
	if (push_vlan(ctx, tpid, tci, shift))
		return -1;
	cover(st, *shift);
	return 0;
}

/* Takes the outermost tag away. Having done so the kernel wants the next one beside the frame, and
 * fails when the frame ends in it; that is no failure here. */
static __always_inline int tag_pop_raw(hook_ctx *ctx, struct state *st)
{
	bool tagged = has_tag(ctx);
	int shift, err = pop_vlan(ctx, &shift);

	cover(st, shift);
	if (!err)
		return 0;
	return tagged ? has_tag(ctx) : !shift;
}

/* Makes skb->protocol what the frame says, and puts its outermost tag beside it: of two tags
 * pushed the first goes into the frame, and when the kernel takes it out again it reads the type
 * behind it. */
static __always_inline int settle(hook_ctx *ctx, struct state *st)
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
	    ctx->protocol != bpf_htons(ETH_P_8021AD) && settle(ctx, st))
		return -1;
	if (tag_pop_raw(ctx, st))
		return -1;
	*shift = (int)(ctx->len - before);
	return 0;
}

#endif

__noinline int act_push_vlan(hook_ctx *ctx, __u32 tpid, __u32 tci)
{
	struct state *st = state_here();
	int shift;

	if (!st)
		return FAILED;
	if (data_length(ctx) < ETH_HLEN)
		return MALFORMED;
	if (tag_push(ctx, st, tpid, tci, &shift))
		return FAILED;
	shift_layers(st, shift);
	return EDITED;
}

__noinline int act_pop_vlan(hook_ctx *ctx)
{
	struct state *st = state_here();
	int shift;

	if (!st)
		return FAILED;
	if (begins_with_payload(ctx, st) || (!has_tag(ctx) && !has_header(ctx)))
		return MALFORMED;
	if (tag_pop(ctx, st, &shift))
		return FAILED;
	shift_layers(st, shift);
	return EDITED;
}

#endif
