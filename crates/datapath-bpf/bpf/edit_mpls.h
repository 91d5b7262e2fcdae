/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Edits of MPLS. The label stack lies between the Ethernet type (after tags and LLC/SNAP) and layer
 * 3. */
#ifndef SLIPSWITCH_EDIT_MPLS_H
#define SLIPSWITCH_EDIT_MPLS_H

#include "edit_front.h"

#define ADDRESSES 12
#define ENTRY 4
/* Upper bound of the bytes from the addresses to the stack: four tags (see encode.rs), type and
 * LLC/SNAP, rounded up. */
#define FRONT 28

/* Returns true for the Ethernet types of MPLS. */
static __always_inline bool mpls_is_type(__be16 type)
{
	return type == bpf_htons(ETH_P_MPLS_UC) || type == bpf_htons(ETH_P_MPLS_MC);
}

/* Returns the offset of the outermost entry; 0: there is none. */
static __always_inline __u32 mpls_outermost(hook_ctx *ctx, const struct state *st)
{
	__u32 place = edit_label_place(st);

	return place + ENTRY <= data_length(ctx) && mpls_is_type(edit_ethertype(ctx, st)) ? place : 0;
}

/**
 * set_mpls - Runs OP_SET_MPLS.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @operands: as layout.h defines them
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_mpls(hook_ctx *ctx, const struct state *st, const __u64 *operands)
{
	__u32 place = mpls_outermost(ctx, st), entry, set[2];

	__builtin_memcpy(set, operands, sizeof(set));
	if (!place || edit_load(ctx, place, &entry, sizeof(entry)))
		return MALFORMED;
	entry = merged(entry, set[0], set[1]);
	return edit_store(ctx, st, place, &entry, sizeof(entry)) ? FAILED : EDITED;
}

/* The front of a frame: its bytes from 12 on, up to the label stack, in 16-bit words. `len` counts
 * bytes. */
struct front {
	__u16 words[16]; /* FRONT + ENTRY bytes, rounded up to a power of two */
	__u32 len;
};

#if AT_XDP

/**
 * mpls_load_front - Reads the front of a frame.
 * @ctx: the frame
 * @offset: where the front begins
 * @f: its `len` is set; becomes the front
 *
 * Return: 0 or an error.
 */
static __always_inline int mpls_load_front(hook_ctx *ctx, __u32 offset, struct front *f)
{
#pragma unroll
	for (int i = 0; i < FRONT / 2; i++)
		if (i * 2 < f->len && edit_load(ctx, offset + i * 2, &f->words[i], 2))
			return -1;
	return 0;
}

/**
 * mpls_store_front - Writes the front of a frame.
 * @ctx: the frame
 * @offset: where the front is to begin
 * @f: the front
 *
 * Return: 0 or an error.
 */
static __always_inline int mpls_store_front(hook_ctx *ctx, const __u32 offset, struct front *f)
{
#pragma unroll
	for (int i = 0; i < FRONT / 2; i++)
		if (i * 2 < f->len && edit_store_neutral(ctx, offset + i * 2, &f->words[i], 2))
			return -1;
	return 0;
}

/**
 * mpls_move_stack - Moves the addresses and the front to another offset.
 * @ctx: the frame
 * @from: present offset
 * @to: new offset
 * @f: becomes the front
 * @type: written over the last two bytes of the front: its new Ethernet type
 *
 * Return: 0 or an error.
 */
static __always_inline int mpls_move_stack(hook_ctx *ctx, const __u32 from, const __u32 to,
					   struct front *f, __be16 type)
{
	__u8 addresses[ADDRESSES];

	if (edit_load(ctx, from, addresses, sizeof(addresses)) ||
	    mpls_load_front(ctx, from + ADDRESSES, f) ||
	    edit_store_neutral(ctx, to, addresses, sizeof(addresses)) ||
	    mpls_store_front(ctx, to + ADDRESSES, f))
		return -1;
	return edit_store_neutral(ctx, to + ADDRESSES + f->len - 2, &type, sizeof(type));
}

/**
 * mpls_insert_entry - Inserts a label stack entry after the front.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @f: its `len` is set; becomes the front
 * @type: new Ethernet type
 * @entry: the entry
 * @shift: becomes the distance that later headers moved by
 *
 * Return: 0 or an error.
 */
static __always_inline int mpls_insert_entry(hook_ctx *ctx, struct state *st, struct front *f,
					     __be16 type, __be32 entry, int *shift)
{
	*shift = ENTRY;
	if (bpf_xdp_adjust_head(ctx, -ENTRY) || mpls_move_stack(ctx, ENTRY, 0, f, type))
		return -1;
	return edit_store_neutral(ctx, ADDRESSES + f->len, &entry, sizeof(entry));
}

/**
 * mpls_remove_entry - Removes the outermost label stack entry.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @f: its `len` is set; becomes the front
 * @type: new Ethernet type
 * @shift: becomes the distance that later headers moved by
 *
 * Return: 0 or an error.
 */
static __always_inline int mpls_remove_entry(hook_ctx *ctx, struct state *st, struct front *f,
					     __be16 type, int *shift)
{
	*shift = -ENTRY;
	return mpls_move_stack(ctx, 0, ENTRY, f, type) || bpf_xdp_adjust_head(ctx, ENTRY) ? -1 : 0;
}

#else

/* Returns all ones when `a` is below `b`, else 0. A branch would make the verifier follow both
 * sides each time. */
static __always_inline __u64 mpls_below(int a, int b)
{
	__s64 difference = (__s64)a - b;

	opaque(difference);
	return difference >> 63;
}

/**
 * mpls_sum_between - Returns the sum of the words that lie between two offsets of the frame.
 * @words: the frame's bytes from 12 on
 * @from: first offset
 * @end: offset after the last word
 */
static __always_inline __u64 mpls_sum_between(const __u16 *words, __u32 from, __u32 end)
{
	__u64 sum = 0;

#pragma clang loop unroll(disable)
	for (int i = 0; i < (FRONT + ENTRY) / 2; i++)
		sum += words[i] & ~mpls_below(ADDRESSES + i * 2, from) & mpls_below(ADDRESSES + i * 2, end);
	return sum;
}

/**
 * checksum_skb_changed - Updates skb->csum (CHECKSUM_COMPLETE) after a change.
 * @ctx: the packet; the helper refuses when it has no skb->csum
 * @gone: sum of the old 16-bit words
 * @come: sum of the new ones
 */
static __always_inline void checksum_skb_changed(hook_ctx *ctx, __u64 gone, __u64 come)
{
	bpf_csum_update(ctx, (__u32)checksum_fold(come) + (__u16)~checksum_fold(gone));
}

/**
 * mpls_set_end - Writes over the last two bytes of the front.
 * @f: the front
 * @len: its bytes
 * @value: the bytes as they lie in memory
 */
static __always_inline void mpls_set_end(struct front *f, __u32 len, __u16 value)
{
	f->words[(len / 2 - 1) & 15] = value;
}

/* As at XDP. bpf_skb_change_head() adds headroom and leaves skb->protocol alone. The network
 * header, and with it the offset from which skb->csum covers the frame, moves 4 bytes further. */
static __always_inline int mpls_insert_entry(hook_ctx *ctx, struct state *st, struct front *f,
					     __be16 type, __be32 entry, int *shift)
{
	__u32 before = ctx->len, end = ADDRESSES + f->len, covered = st->covered;
	__u8 addresses[ADDRESSES];
	__u64 gone, come, len = f->len;
	__u16 half[2];

	opaque(len);
	if (len < 2 || len > FRONT || bpf_skb_load_bytes(ctx, ADDRESSES, f->words, len) ||
	    edit_load(ctx, 0, addresses, sizeof(addresses)))
		return -1;
	gone = mpls_sum_between(f->words, covered, end);
	__builtin_memcpy(half, &entry, sizeof(half));
	mpls_set_end(f, f->len, type);
	mpls_set_end(f, f->len + 2, half[0]);
	mpls_set_end(f, f->len + 4, half[1]);
	come = mpls_sum_between(f->words, covered + ENTRY, end + ENTRY);
	if (bpf_skb_change_head(ctx, ENTRY, 0) ||
	    bpf_skb_store_bytes(ctx, 0, addresses, sizeof(addresses), 0) ||
	    bpf_skb_store_bytes(ctx, ADDRESSES, f->words, len + ENTRY, 0))
		return -1;
	checksum_skb_changed(ctx, gone, come);
	st->covered = covered + ENTRY;
	if (tag_sync_protocol(ctx, st))
		return -1;
	*shift = (int)(ctx->len - before);
	return 0;
}

/* As at XDP. The kernel removes bytes from the inside of a packet only as VLAN tags. So the front
 * moves up over the entry, and the 4 bytes that this frees before the front become a tag, which is
 * popped. */
static __always_inline int mpls_remove_entry(hook_ctx *ctx, struct state *st, struct front *f,
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
	gone = mpls_sum_between(f->words, st->covered, end);
	moved.words[0] = bpf_htons(ETH_P_8021Q);
#pragma unroll
	for (int i = 0; i < FRONT / 2; i++)
		moved.words[i + ENTRY / 2] = f->words[i];
	mpls_set_end(&moved, f->len + ENTRY, type);
	come = mpls_sum_between(moved.words, st->covered, end);
	if (bpf_skb_store_bytes(ctx, ADDRESSES, moved.words, len + ENTRY, 0))
		return -1;
	checksum_skb_changed(ctx, gone, come);
	/* The kernel must not keep the frame's own tag outside of it when the false one is popped. If the
	 * pop of the own tag took the false one out of the frame already, tag_sync_protocol() changes
	 * nothing. */
	if ((tagged && tag_pop_raw(ctx, st)) || tag_sync_protocol(ctx, st) || tag_pop_raw(ctx, st))
		return -1;
	if (tagged && tag_push(ctx, st, tpid, tci, &ignored))
		return -1;
	*shift = (int)(ctx->len - before);
	return 0;
}

#endif

/**
 * exec_push_mpls - Runs OP_PUSH_MPLS.
 * @ctx: the packet; pointers into it become invalid
 * @kind: Ethernet type, host integer
 * @lse: the entry, host integer
 *
 * The label goes before a VLAN header that is payload. If the kernel keeps that header outside of
 * the frame, a temporary tag is pushed to make the kernel move it into the frame.
 *
 * Return: EDITED, or the reason to drop plus one.
 */
__noinline int exec_push_mpls(hook_ctx *ctx, __u32 kind, __u32 lse)
{
	struct state *st = state_here();
	bool covers_payload = false;
	struct front f = {};
	__u32 place;
	int shift;

	if (!st)
		return FAILED;
	if (st->bare)
		return front_has_label(ctx) ? front_add_label(ctx, st, kind, lse) : MALFORMED;
	if (has_tag(ctx) && tag_is_payload(ctx, st)) {
		if (tag_push(ctx, st, ETH_P_8021Q, 0, &shift))
			return FAILED;
		layers_shift(st, shift);
		covers_payload = true;
	}
	place = edit_label_place(st);
	if (!place || place > data_length(ctx) || edit_ethertype(ctx, st) == bpf_htons(0x05ff))
		return MALFORMED;
	f.len = place - ADDRESSES;
	if (f.len > FRONT)
		return MALFORMED;
	if (mpls_insert_entry(ctx, st, &f, bpf_htons(kind), bpf_htonl(lse), &shift))
		return FAILED;
	/* Offsets in the present frame: the kernel may have taken tags out of it. */
	st->mpls = st->l3 = place + shift - ENTRY;
	st->l4 = 0;
	if (!covers_payload)
		return EDITED;
	if (tag_pop(ctx, st, &shift))
		return FAILED;
	layers_shift(st, shift);
	return EDITED;
}

/**
 * exec_pop_mpls - Runs OP_POP_MPLS.
 * @ctx: the packet; pointers into it become invalid
 * @kind: new Ethernet type, host integer
 *
 * The headers below are parsed when the packet is looked up again.
 *
 * Return: EDITED, or the reason to drop plus one.
 */
__noinline int exec_pop_mpls(hook_ctx *ctx, __u32 kind)
{
	struct state *st = state_here();
	struct front f = {};
	__u32 place;
	int shift;

	if (!st)
		return FAILED;
	if (st->bare && !front_has_label(ctx))
		return MALFORMED;
	if (st->bare)
		return front_remove(ctx, ENTRY, kind == ETHERTYPE_TEB ? 0 : kind);
	place = mpls_outermost(ctx, st);
	if (!place)
		return MALFORMED;
	f.len = place - ADDRESSES;
	if (f.len > FRONT)
		return MALFORMED;
	if (mpls_remove_entry(ctx, st, &f, bpf_htons(kind), &shift))
		return FAILED;
	st->mpls = 0;
	st->l3 = place + shift + ENTRY;
	st->l4 = 0;
	return EDITED;
}

#endif
