/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Push and pop of VLAN tags, and the offsets of layers after them. */
#ifndef SLIPSWITCH_EDIT_VLAN_H
#define SLIPSWITCH_EDIT_VLAN_H

#include "checksum.h"

/* Returns an offset after headers moved; 0 stays 0. */
static __always_inline __u16 layers_shifted(__u16 offset, int shift)
{
	return offset ? offset + shift : 0;
}

/* Moves the offsets of all layers. */
static __always_inline void layers_shift(struct state *st, int shift)
{
	st->mpls = layers_shifted(st->mpls, shift);
	st->l3 = layers_shifted(st->l3, shift);
	st->l4 = layers_shifted(st->l4, shift);
}

/* Returns true when the frame begins with a VLAN header, and the type after it is in the frame. */
static __always_inline bool tag_is_in_frame(hook_ctx *ctx)
{
	__be16 type;

	return data_length(ctx) >= 18 && !edit_load(ctx, 12, &type, sizeof(type)) && is_vlan(type);
}

/* Returns true when the outermost VLAN header is payload: there were more tags than the limit. If
 * the kernel keeps it outside of the frame, the data after its type begins less than an Ethernet
 * header from the start. */
static __always_inline bool tag_is_payload(hook_ctx *ctx, const struct state *st)
{
	__u32 place = st->mpls ? st->mpls : st->l3;

	return place + tag_length(ctx) <= ETH_HLEN;
}

#if AT_XDP

#define tag_push(ctx, st, tpid, tci, shift) frame_push_vlan(ctx, tpid, tci, shift)
#define tag_pop(ctx, st, shift) frame_pop_vlan(ctx, shift)

#else

/* skb->csum covers the bytes after the kernel's network header. That header keeps its place in the
 * packet when a tag leaves the frame, but never comes closer to the start than an Ethernet header. */
static __always_inline void tag_left(struct state *st, int shift)
{
	int covered = (int)st->covered + shift;

	st->covered = covered < ETH_HLEN ? ETH_HLEN : covered;
}

/* When a tag enters the frame, the kernel's network header keeps its place in the packet before
 * Linux 6.12, and its distance from the start of the frame since then. The helper reads the last
 * byte of the linear part only if the header is no further from the start than before. */
static __always_inline void tag_entered(hook_ctx *ctx, struct state *st, int shift)
{
	__u64 linear = data_end_of(ctx) - data_of(ctx);
	__u32 last;
	__u8 byte;

	opaque(linear); /* or the compiler subtracts the pointers in 32 bits */
	last = (__u32)linear - 1 - st->covered;
	if (bpf_skb_load_bytes_relative(ctx, last, &byte, sizeof(byte), BPF_HDR_START_NET))
		st->covered += shift;
}

/**
 * tag_push - Pushes a VLAN tag.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state, whose `covered` follows
 * @tpid: Ethernet type of the tag, host integer
 * @tci: host integer
 * @shift: becomes the distance that later headers moved by
 *
 * Return: 0 or an error.
 */
static __always_inline int tag_push(hook_ctx *ctx, struct state *st, __u16 tpid, __u16 tci,
				    int *shift)
{
	if (frame_push_vlan(ctx, tpid, tci, shift))
		return -1;
	if (*shift)
		tag_entered(ctx, st, *shift);
	return 0;
}

/* Removes the outermost tag. The kernel then takes the next tag out of the frame and fails when the
 * frame ends in it; that is no failure here. Returns 0 or an error. */
static __always_inline int tag_pop_raw(hook_ctx *ctx, struct state *st)
{
	bool tagged = has_tag(ctx);
	int shift, err = frame_pop_vlan(ctx, &shift);

	tag_left(st, shift);
	if (!err)
		return 0;
	return tagged ? has_tag(ctx) : !shift;
}

/* Sets skb->protocol by the frame, and takes the frame's outermost tag out of it. Two tags are
 * pushed and popped: the first enters the frame, and when the kernel takes it out again it reads
 * the type after it. Returns 0 or an error. */
static __always_inline int tag_sync_protocol(hook_ctx *ctx, struct state *st)
{
	int ignored;

	return tag_push(ctx, st, ETH_P_8021Q, 0, &ignored) ||
	       tag_push(ctx, st, ETH_P_8021Q, 0, &ignored) || tag_pop_raw(ctx, st) ||
	       tag_pop_raw(ctx, st);
}

/**
 * tag_pop - Removes the outermost tag.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @shift: becomes the distance that later headers moved by
 *
 * The kernel goes by skb->protocol, which a sender can have set to anything, so it is set first.
 *
 * Return: 0 or an error.
 */
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

/**
 * exec_push_vlan - Runs OP_PUSH_VLAN.
 * @ctx: the packet; pointers into it become invalid
 * @tpid: Ethernet type of the tag, host integer
 * @tci: tag control information without CFI, host integer
 *
 * Return: EDITED, or the reason to drop plus one.
 */
__noinline int exec_push_vlan(hook_ctx *ctx, __u32 tpid, __u32 tci)
{
	struct state *st = state_here();
	int shift;

	if (!st)
		return FAILED;
	if (st->bare || data_length(ctx) < ETH_HLEN)
		return MALFORMED;
	if (tag_push(ctx, st, tpid, tci, &shift))
		return FAILED;
	layers_shift(st, shift);
	return EDITED;
}

/**
 * exec_pop_vlan - Runs OP_POP_VLAN.
 * @ctx: the packet; pointers into it become invalid
 *
 * Return: EDITED, or the reason to drop plus one.
 */
__noinline int exec_pop_vlan(hook_ctx *ctx)
{
	struct state *st = state_here();
	int shift;

	if (!st)
		return FAILED;
	if (st->bare || tag_is_payload(ctx, st) || (!has_tag(ctx) && !tag_is_in_frame(ctx)))
		return MALFORMED;
	if (tag_pop(ctx, st, &shift))
		return FAILED;
	layers_shift(st, shift);
	return EDITED;
}

#endif
