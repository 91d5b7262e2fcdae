/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* MPLS: the label stack stands between the Ethernet type (behind tags and LLC/SNAP) and L3. */
#ifndef SLIPSWITCH_EDIT_MPLS_H
#define SLIPSWITCH_EDIT_MPLS_H

#include "edit_vlan.h"

#define ADDRESSES 12
#define ENTRY 4
/* From behind the addresses to the stack: four tags (see encode.rs), type, LLC/SNAP, rounded up. */
#define FRONT 28

static __always_inline bool is_mpls(__be16 type)
{
	return type == bpf_htons(ETH_P_MPLS_UC) || type == bpf_htons(ETH_P_MPLS_MC);
}

/* Offset of the outermost entry; 0: there is none. */
static __always_inline __u32 outermost(hook_ctx *ctx, const struct state *st)
{
	__u32 place = label_place(st);

	return place + ENTRY <= data_length(ctx) && is_mpls(type_of(ctx, st)) ? place : 0;
}

static __always_inline int set_mpls(hook_ctx *ctx, const struct state *st, const __u64 *operands)
{
	__u32 place = outermost(ctx, st), entry, set[2];

	__builtin_memcpy(set, operands, sizeof(set));
	if (!place || get(ctx, place, &entry, sizeof(entry)))
		return MALFORMED;
	entry = merged(entry, set[0], set[1]);
	return put(ctx, st, place, &entry, sizeof(entry)) ? FAILED : EDITED;
}

/* The frame from byte 12 on, in 16-bit words, and as many bytes of it as say where the stack is. */
struct front {
	__u16 words[16]; /* FRONT + ENTRY bytes, rounded up to a power of two */
	__u32 len;
};

#if AT_XDP

static __always_inline int load_front(hook_ctx *ctx, __u32 offset, struct front *f)
{
#pragma unroll
	for (int i = 0; i < FRONT / 2; i++)
		if (i * 2 < f->len && get(ctx, offset + i * 2, &f->words[i], 2))
			return -1;
	return 0;
}

static __always_inline int store_front(hook_ctx *ctx, const __u32 offset, struct front *f)
{
#pragma unroll
	for (int i = 0; i < FRONT / 2; i++)
		if (i * 2 < f->len && put_neutral(ctx, offset + i * 2, &f->words[i], 2))
			return -1;
	return 0;
}

/* Moves the addresses, and the front with a new type at its end. */
static __always_inline int move_stack(hook_ctx *ctx, const __u32 from, const __u32 to,
				      struct front *f, __be16 type)
{
	__u8 addresses[ADDRESSES];

	if (get(ctx, from, addresses, sizeof(addresses)) ||
	    load_front(ctx, from + ADDRESSES, f) ||
	    put_neutral(ctx, to, addresses, sizeof(addresses)) || store_front(ctx, to + ADDRESSES, f))
		return -1;
	return put_neutral(ctx, to + ADDRESSES + f->len - 2, &type, sizeof(type));
}

static __always_inline int insert_entry(hook_ctx *ctx, struct state *st, struct front *f,
					__be16 type, __be32 entry, int *shift)
{
	*shift = ENTRY;
	if (bpf_xdp_adjust_head(ctx, -ENTRY) || move_stack(ctx, ENTRY, 0, f, type))
		return -1;
	return put_neutral(ctx, ADDRESSES + f->len, &entry, sizeof(entry));
}

static __always_inline int remove_entry(hook_ctx *ctx, struct state *st, struct front *f,
					__be16 type, int *shift)
{
	*shift = -ENTRY;
	return move_stack(ctx, 0, ENTRY, f, type) || bpf_xdp_adjust_head(ctx, ENTRY) ? -1 : 0;
}

#else

/* All ones when `a` is below `b`. A branch would make the verifier follow both sides, each time. */
static __always_inline __u64 below(int a, int b)
{
	__s64 difference = (__s64)a - b;

	opaque(difference);
	return difference >> 63;
}

/* Sum of those of `words`, which are in the frame from byte 12 on, between two places of it. */
static __always_inline __u64 sum_between(const __u16 *words, __u32 from, __u32 end)
{
	__u64 sum = 0;

#pragma clang loop unroll(disable)
	for (int i = 0; i < (FRONT + ENTRY) / 2; i++)
		sum += words[i] & ~below(ADDRESSES + i * 2, from) & below(ADDRESSES + i * 2, end);
	return sum;
}

/* Tells skb->csum (CHECKSUM_COMPLETE) of a change; the helper refuses when there is none. */
static __always_inline void csum_changed(hook_ctx *ctx, __u64 gone, __u64 come)
{
	bpf_csum_update(ctx, (__u32)fold(come) + (__u16)~fold(gone));
}

/* Puts `value` into the two bytes that end the first `len` of the front. */
static __always_inline void set_end(struct front *f, __u32 len, __u16 value)
{
	f->words[(len / 2 - 1) & 15] = value;
}

/* bpf_skb_change_head makes room in front and leaves skb->protocol alone; the network header, with
 * it the place from which skb->csum covers the frame, moves 4 bytes behind. */
static __always_inline int insert_entry(hook_ctx *ctx, struct state *st, struct front *f,
					__be16 type, __be32 entry, int *shift)
{
	__u32 before = ctx->len, end = ADDRESSES + f->len, covered = st->covered;
	__u8 addresses[ADDRESSES];
	__u64 gone, come, len = f->len;
	__u16 half[2];

	opaque(len);
	if (len < 2 || len > FRONT || bpf_skb_load_bytes(ctx, ADDRESSES, f->words, len) ||
	    get(ctx, 0, addresses, sizeof(addresses)))
		return -1;
	gone = sum_between(f->words, covered, end);
	__builtin_memcpy(half, &entry, sizeof(half));
	set_end(f, f->len, type);
	set_end(f, f->len + 2, half[0]);
	set_end(f, f->len + 4, half[1]);
	come = sum_between(f->words, covered + ENTRY, end + ENTRY);
	if (bpf_skb_change_head(ctx, ENTRY, 0) ||
	    bpf_skb_store_bytes(ctx, 0, addresses, sizeof(addresses), 0) ||
	    bpf_skb_store_bytes(ctx, ADDRESSES, f->words, len + ENTRY, 0))
		return -1;
	csum_changed(ctx, gone, come);
	st->covered = covered + ENTRY;
	if (settle(ctx, st))
		return -1;
	*shift = (int)(ctx->len - before);
	return 0;
}

/* The kernel takes bytes out of any packet only as VLAN tags. So the front moves up over the
 * entry, and what is left of it in front is made a tag and popped. */
static __always_inline int remove_entry(hook_ctx *ctx, struct state *st, struct front *f,
					__be16 type, int *shift)
{
	__u32 before = ctx->len, end = ADDRESSES + f->len + ENTRY;
	bool tagged = has_tag(ctx);
	__u16 tpid = tag_tpid(ctx), tci = tag_tci(ctx);
	struct front moved = {};
	__u64 gone, come, len = f->len;
	int ignored;

	opaque(len);
	if (len < 2 || len > FRONT || bpf_skb_load_bytes(ctx, ADDRESSES, f->words, len + ENTRY))
		return -1;
	gone = sum_between(f->words, st->covered, end);
	moved.words[0] = bpf_htons(ETH_P_8021Q);
#pragma unroll
	for (int i = 0; i < FRONT / 2; i++)
		moved.words[i + ENTRY / 2] = f->words[i];
	set_end(&moved, f->len + ENTRY, type);
	come = sum_between(moved.words, st->covered, end);
	if (bpf_skb_store_bytes(ctx, ADDRESSES, moved.words, len + ENTRY, 0))
		return -1;
	csum_changed(ctx, gone, come);
	/* The frame's own tag must not be beside it when the false one goes. When its pop took the
	 * false one out of the frame already, settling changes nothing of that. */
	if ((tagged && tag_pop_raw(ctx, st)) || settle(ctx, st) || tag_pop_raw(ctx, st))
		return -1;
	if (tagged && tag_push(ctx, st, tpid, tci, &ignored))
		return -1;
	*shift = (int)(ctx->len - before);
	return 0;
}

#endif

/* The label goes in front of a VLAN header that is payload; where that is beside the frame, one that
 * is pushed for the time being has the kernel put it into the frame. */
__noinline int act_push_mpls(hook_ctx *ctx, __u32 kind, __u32 lse)
{
	struct state *st = state_here();
	bool covers_payload = false;
	struct front f = {};
	__u32 place;
	int shift;

	if (!st)
		return FAILED;
	if (has_tag(ctx) && begins_with_payload(ctx, st)) {
		if (tag_push(ctx, st, ETH_P_8021Q, 0, &shift))
			return FAILED;
		shift_layers(st, shift);
		covers_payload = true;
	}
	place = label_place(st);
	if (!place || place > data_length(ctx) || type_of(ctx, st) == bpf_htons(0x05ff))
		return MALFORMED;
	f.len = place - ADDRESSES;
	if (f.len > FRONT)
		return MALFORMED;
	if (insert_entry(ctx, st, &f, bpf_htons(kind), bpf_htonl(lse), &shift))
		return FAILED;
	/* In the frame as it is now; tags may have come out of it. */
	st->mpls = st->l3 = place + shift - ENTRY;
	st->l4 = 0;
	if (!covers_payload)
		return EDITED;
	if (tag_pop(ctx, st, &shift))
		return FAILED;
	shift_layers(st, shift);
	return EDITED;
}

/* What is below is looked at when the packet is looked up again. */
__noinline int act_pop_mpls(hook_ctx *ctx, __u32 kind)
{
	struct state *st = state_here();
	struct front f = {};
	__u32 place;
	int shift;

	if (!st)
		return FAILED;
	place = outermost(ctx, st);
	if (!place)
		return MALFORMED;
	f.len = place - ADDRESSES;
	if (f.len > FRONT)
		return MALFORMED;
	if (remove_entry(ctx, st, &f, bpf_htons(kind), &shift))
		return FAILED;
	st->mpls = 0;
	st->l3 = place + shift + ENTRY;
	st->l4 = 0;
	return EDITED;
}

#endif
