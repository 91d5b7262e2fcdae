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

/* A VLAN header at 12 + `inside` * 4: its type, and the type behind it is in the frame. */
static __always_inline bool has_header(hook_ctx *ctx, const __u32 inside)
{
	__be16 type;

	return data_length(ctx) >= 18 + inside * 4 &&
	       !get(ctx, 12 + inside * 4, &type, sizeof(type)) && is_vlan(type);
}

/* Tags that a key has; no more than the limit. */
static __always_inline __u32 visible_tags(hook_ctx *ctx)
{
	__u32 count = has_tag(ctx) ? 1 : 0;

	if (count < settings.vlan_limit && has_header(ctx, 0)) {
		count++;
		if (count < settings.vlan_limit && has_header(ctx, 1))
			count++;
	}
	return count;
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
	bool hides;
	int shift;

	if (!st)
		return FAILED;
	if (data_length(ctx) < ETH_HLEN)
		return MALFORMED;
	hides = visible_tags(ctx) >= settings.vlan_limit;
	if (tag_push(ctx, st, tpid, tci, &shift))
		return FAILED;
	if (!hides) {
		shift_layers(st, shift);
		return EDITED;
	}
	/* The innermost tag is beyond the limit now: its TPID is the type. */
	st->mpls = st->l4 = 0;
	st->l3 = ETH_HLEN + 4 * settings.vlan_limit - (has_tag(ctx) ? 4 : 0);
	return EDITED;
}

/* Headers that a tag beyond the limit hid. */
static __always_inline void find_layers(hook_ctx *ctx, struct state *st)
{
#if !AT_XDP
	bpf_skb_pull_data(ctx, ctx->len < 256 ? ctx->len : 256);
#endif
	if (parse_all(ctx))
		st->mpls = st->l3 = st->l4 = 0;
}

__noinline int act_pop_vlan(hook_ctx *ctx)
{
	struct state *st = state_here();
	int shift;

	if (!st)
		return FAILED;
	if (!has_tag(ctx) && !has_header(ctx, 0))
		return MALFORMED;
	if (is_vlan(type_of(ctx, st))) {
		if (tag_pop(ctx, st, &shift))
			return FAILED;
		find_layers(ctx, st);
		return EDITED;
	}
	if (tag_pop(ctx, st, &shift))
		return FAILED;
	shift_layers(st, shift);
	return EDITED;
}

#endif
