/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XDP: programs after which the frame may have to go on to the next hook as it came, or that send
 * copies.
 *
 * A packet that is looked up again may find no flow that runs here. The next hook cannot go on in
 * the midst: it begins anew, with the frame as it came. So before the first program that may look
 * a packet up again, the headers are kept (`hold`); when the frame is left after all they are put
 * back, and what was taken off in front or put there is undone. And the flows that it met are not
 * counted (`pending`) before it is sure that the packet stays: there they would be counted again.
 *
 * The daemon leaves to tc what cannot be undone: meters, chance. And a frame in several buffers is
 * not cut here: up to Linux 6.17 bpf_xdp_adjust_tail() gives the buffers of one from a veth back to
 * where they do not come from. */
#ifndef SLIPSWITCH_UNDO_H
#define SLIPSWITCH_UNDO_H

#include "output.h"

#if AT_XDP

/* Bytes of a frame that are kept: headers of most packets. */
#define UNDO_WORDS 24
#define UNDO_BYTES (UNDO_WORDS * 8)
/* How far an edit reaches behind the start of the transport header, of the layer before it. */
#define REACH_L4 24
#define REACH_L3 40
/* Flows that are met one after the other: one more than lookups again. */
#define DEFERRED_COUNTS 8
/* What the kernel copies, the room in front of it included, must fit a page. It copies the first
 * buffer only. */
#define LONGEST_COPY 3500

struct deferred_count {
	__u32 slot;
	__u32 bytes;
	__u32 tcp_flags;
};

/* A change here is a new LAYOUT_VERSION, as of struct state. */
struct undo {
	__u64 head[UNDO_WORDS];
	__u32 kept;   /* bytes of it */
	__u32 length; /* of the frame as it came */
	struct deferred_count deferred[DEFERRED_COUNTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct undo);
} undos SEC(".maps");

static __always_inline struct undo *undo_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&undos, &zero);
}

/* Keeps the start of the frame. */
__noinline int undo_keep_head(hook_ctx *ctx)
{
	void *from = data_of(ctx), *end = data_end_of(ctx);
	struct undo *h = undo_here();
	__u32 kept = 0;

	if (!h)
		return -1;
#pragma clang loop unroll(disable)
	for (int i = 0; i < UNDO_WORDS && from + 8 <= end; i++) {
		h->head[i] = *(__u64 *)from;
		from += 8;
		kept += 8;
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < 7 && kept < UNDO_BYTES && from + 1 <= end; i++) {
		((__u8 *)h->head)[kept] = *(__u8 *)from;
		from++;
		kept++;
	}
	h->kept = kept;
	h->length = data_length(ctx);
	return 0;
}

/* Makes the frame what it was when its start was kept. */
__noinline int undo_restore(hook_ctx *ctx)
{
	struct undo *h = undo_here();
	void *to, *end;
	__u32 at = 0, moved;

	if (!h)
		return -1;
	moved = data_length(ctx) - h->length;
	if (moved && bpf_xdp_adjust_head(ctx, (int)moved))
		return -1;
	to = data_of(ctx);
	end = data_end_of(ctx);
#pragma clang loop unroll(disable)
	for (int i = 0; i < UNDO_WORDS && to + 8 <= end; i++) {
		*(__u64 *)to = h->head[i];
		to += 8;
		at += 8;
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < 7 && at < UNDO_BYTES && to + 1 <= end; i++) {
		*(__u8 *)to = ((__u8 *)h->head)[at];
		to++;
		at++;
	}
	return 0;
}

/* Counts the flows that wait for it. */
__noinline int deferred_counts_add(void)
{
	struct state *st = state_here();
	struct undo *h = undo_here();

	if (!st || !h)
		return -1;
#pragma clang loop unroll(disable)
	for (int i = 0; i < DEFERRED_COUNTS && i < st->deferred; i++) {
		struct deferred_count *p = &h->deferred[i];

		count_flow(p->slot, p->bytes, p->tcp_flags);
	}
	st->deferred = 0;
	return 0;
}

/* The packet stays here. */
static __always_inline void deferred_counts_flush(struct state *st)
{
	if (st->deferred)
		deferred_counts_add();
}

/* A program with FLOW_PRECHECK, which `st` is at the beginning of, is to run. */
static __always_inline int precheck_begin(hook_ctx *ctx, struct state *st, __u32 slot, __u32 tcp_flags)
{
	struct undo *h = undo_here();
	__u32 at = st->deferred;

	if (!h || at >= DEFERRED_COUNTS)
		return drop(DROP_UNSUPPORTED);
	h->deferred[at].slot = slot;
	h->deferred[at].bytes = st->length;
	h->deferred[at].tcp_flags = tcp_flags;
	st->deferred = at + 1;
	return tail_call(ctx, TAIL_PRECHECK);
}

/* All ports of the program's set would take the frame as it will be. What a port would not take
 * is told and counted at tc, port by port. */
static __always_inline bool precheck_copies(hook_ctx *ctx, const struct state *st,
				     const struct program *p)
{
	__u32 number = p->set - 1, length = data_length(ctx), most, blocked;
	struct port_set *s = bpf_map_lookup_elem(&port_sets, &number);

	if (!s || is_split(ctx, length))
		return false;
	most = length + p->growth;
	if (most > LONGEST_COPY || most > s->mtu + ETH_HLEN)
		return false;
	blocked = *(volatile __u32 *)&s->blocked;
	return !blocked || (blocked == 1 && p->exclude && s->blocked_port == st->in_port);
}

/* What the program edits is within what is kept, or will be. */
static __always_inline bool precheck_undo(hook_ctx *ctx, const struct state *st)
{
	struct undo *h = undo_here();
	__u32 reach = st->l3 + REACH_L3;

	if (!h || (!st->depth && undo_keep_head(ctx)))
		return false;
	if (st->l4 + REACH_L4 > reach)
		reach = st->l4 + REACH_L4;
	/* As places in the frame that came. */
	reach -= data_length(ctx) - h->length;
	return h->kept == h->length || reach <= h->kept;
}

static __always_inline int precheck(hook_ctx *ctx)
{
	struct state *st = state_here();
	struct program *p;

	if (!st)
		return drop(DROP_UNSUPPORTED);
	st->calls++;
	p = bpf_map_lookup_elem(&programs, &st->program);
	if (!p)
		return drop(DROP_UNSUPPORTED);
	if ((p->set && !precheck_copies(ctx, st, p)) || (p->again && !precheck_undo(ctx, st)) ||
	    (p->cuts && is_split(ctx, data_length(ctx)))) {
		if (st->depth && undo_restore(ctx))
			return drop(DROP_UNSUPPORTED);
		COUNT(passed);
		return VERDICT_NONE;
	}
	return tail_call(ctx, TAIL_EXEC);
}

#else

static __always_inline void deferred_counts_flush(struct state *st)
{
}

static __always_inline int precheck_begin(hook_ctx *ctx, struct state *st, __u32 slot, __u32 tcp_flags)
{
	return drop(DROP_UNSUPPORTED); /* not here */
}

#endif

#endif
