/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XDP: programs with FLOW_PRECHECK. These send copies, look the packet up again, track its
 * connection, or cut the frame.
 * Before such a program runs, a precheck decides whether XDP can complete it; if not, the frame
 * goes on to the next hook.
 *
 * A packet that is looked up again may find no flow that runs at XDP. The next hook cannot continue
 * there: it starts again with the frame as it arrived. So the first precheck of a packet whose
 * program recirculates keeps the start of the frame (undo_keep_head). If XDP leaves the packet
 * after all, undo_restore() puts these bytes back and reverses changes of the headroom. Flows that
 * the packet met are counted only when the packet is sure to stay (deferred counts); otherwise they
 * would be counted at the next hook as well.
 *
 * The daemon places flows with actions that cannot be undone, meters and chance, at tc. A frame in
 * several buffers is not cut here: up to Linux 6.17 bpf_xdp_adjust_tail() returns the buffers of a
 * frame from a veth to an allocator that they did not come from.
 *
 * Worth, measured as in copies.h: a flow that sets an address, recirculates and outputs runs at XDP
 * 2.55 times as fast as at tcx with 64-byte frames and 2.47 times with 1,500-byte frames (peers
 * with GRO: 1.34 and 1.27). Precheck and undo take 14 to 17 % of the rate of such packets. A packet
 * that is restored and left to tcx has 0.85 of the rate of one that XDP leaves at once.
 */
#ifndef SLIPSWITCH_UNDO_H
#define SLIPSWITCH_UNDO_H

#include "output.h"

#if AT_XDP

/* Words of a frame that are kept: the headers of most packets. */
#define UNDO_WORDS 24
#define UNDO_BYTES (UNDO_WORDS * 8)
/* Bytes after the start of the transport header, and of the layer before it, that edits change. */
#define REACH_L4 24
#define REACH_L3 40
/* Flows that one packet can meet: RECIRCULATION_LIMIT and the first one, rounded up. */
#define DEFERRED_COUNTS 8
/* The kernel's copy of a frame, headroom included, must fit into a page. Only the first buffer is
 * copied. */
#define LONGEST_COPY 3500

/* A packet of a flow that is not counted yet. */
struct deferred_count {
	__u32 slot;
	__u32 bytes;
	__u32 tcp_flags;
};

/* One packet's undo state. A change here requires a new LAYOUT_VERSION, as one of struct state
 * does. */
struct undo {
	__u64 head[UNDO_WORDS];
	__u32 kept;   /* bytes in `head` */
	__u32 length; /* of the frame as it arrived */
	struct deferred_count deferred[DEFERRED_COUNTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct undo);
} undos SEC(".maps");

/* Returns the undo state of this CPU; NULL never, but the verifier requires a check. */
static __always_inline struct undo *undo_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&undos, &zero);
}

/**
 * undo_keep_head - Keeps the start of the frame.
 * @ctx: the frame as it arrived
 *
 * Whole words first, then the bytes after them. The loops are not unrolled, because each bound
 * check of a packet pointer is a branch that the verifier would follow from every state before it.
 *
 * Return: 0, or not 0 when there is no memory.
 */
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

/**
 * undo_restore - Makes the frame equal to the one that arrived.
 * @ctx: the frame; pointers into it become invalid
 *
 * The frame grew or shrank only at its head, by tags, MPLS labels and outer headers.
 *
 * Return: 0, or not 0 when that is not possible; the caller drops the packet.
 */
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

/**
 * deferred_counts_add - Counts the flows whose counts were deferred.
 *
 * A function of its own: the verifier reads the loop once.
 *
 * Return: 0, or -1 without state.
 */
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

/* Counts the flows that the packet met; called once the packet is sure to stay at this hook. */
static __always_inline void deferred_counts_flush(struct state *st)
{
	if (st->deferred)
		deferred_counts_add();
}

/**
 * deferred_count_add - Notes a flow that is counted once the packet is sure to stay.
 * @st: the packet's state
 * @slot: number of the flow
 * @bytes: of the packet
 * @tcp_flags: host integer; 0 when the packet is not TCP
 *
 * Return: false when there is no room.
 */
static __always_inline bool deferred_count_add(struct state *st, __u32 slot, __u32 bytes,
					       __u32 tcp_flags)
{
	struct undo *h = undo_here();
	__u64 at = st->deferred;

	opaque(at);
	if (!h || at >= DEFERRED_COUNTS)
		return false;
	opaque(at);
	h->deferred[at].slot = slot;
	h->deferred[at].bytes = bytes;
	h->deferred[at].tcp_flags = tcp_flags;
	st->deferred = at + 1;
	return true;
}

/**
 * precheck_begin - Starts a program with FLOW_PRECHECK.
 * @ctx: the frame
 * @st: its state, at the beginning of the program
 * @slot: number of the flow, which is counted later
 * @tcp_flags: host integer; 0 when the packet is not TCP
 *
 * Return: the verdict.
 */
static __always_inline int precheck_begin(hook_ctx *ctx, struct state *st, __u32 slot,
					  __u32 tcp_flags)
{
	if (!deferred_count_add(st, slot, st->length, tcp_flags))
		return drop(DROP_UNSUPPORTED);
	return tail_call(ctx, TAIL_PRECHECK);
}

/**
 * precheck_copies - Checks that all ports of a set accept the frame as it will be.
 * @ctx: the frame
 * @st: its state
 * @p: the program, which has OP_COPIES
 *
 * A port that does not accept the frame is reported and counted at tc, port by port. One blocked
 * port is accepted when it is the ingress port, which the kernel leaves out.
 *
 * Return: false when the frame has to go to tc.
 */
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

/**
 * precheck_undo - Checks that every edit of a program lies within the kept bytes.
 * @ctx: the frame
 * @st: its state; the first program of a packet keeps the start of the frame here
 *
 * Return: false when the frame has to go to tc.
 */
static __always_inline bool precheck_undo(hook_ctx *ctx, const struct state *st)
{
	struct undo *h = undo_here();
	__s32 reach = st->l3 + REACH_L3;

	if (!h || (!st->depth && undo_keep_head(ctx)))
		return false;
	if (st->l4 + REACH_L4 > reach)
		reach = st->l4 + REACH_L4;
	/* As an offset in the frame that arrived. Negative: outer headers are in front of it. */
	reach -= (__s32)(data_length(ctx) - h->length);
	return h->kept == h->length || reach <= (__s32)h->kept;
}

/**
 * precheck - The program in TAIL_PRECHECK: checks the frame before a program with FLOW_PRECHECK.
 * @ctx: the frame
 *
 * It runs the actions, or leaves the packet to the next hook as it arrived.
 *
 * Return: the verdict.
 */
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

/* Nothing is deferred at tc. */
static __always_inline void deferred_counts_flush(struct state *st)
{
}

static __always_inline int precheck_begin(hook_ctx *ctx, struct state *st, __u32 slot,
					  __u32 tcp_flags)
{
	return drop(DROP_UNSUPPORTED); /* no flow at tc has FLOW_PRECHECK */
}

#endif

#endif
