/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Results of chains that begin or end in a tunnel. The program in TAIL_TUN_CHAIN sends packets by them.
 *
 * A packet out of a tunnel is looked up here while its outer headers are in place, and loses them once
 * everything that the result was made of holds. The flow of the outer packet is in no result: its lookup
 * led here.
 *
 * A packet into a tunnel gets the headers of its result, and goes on at the instruction that pushes the
 * outer ones (tunnel_push.h). At XDP that program may leave the packet to the next hook. So the start of the frame
 * is kept, and the flows are counted once the headers are on.
 */
#ifndef SLIPSWITCH_TUNNEL_CHAIN_H
#define SLIPSWITCH_TUNNEL_CHAIN_H

#include "chain_run.h"
#include "tunnel.h"
#include "tunnel_push.h"

/* A packet that is sent by a result. */
struct tunnel_chain {
	struct chain *chain;
	__u32 place; /* number of the result */
	__u32 bytes; /* of the frame without outer headers */
	__u32 end;   /* of the IP packet, as an offset in that frame */
	__u32 tcp_flags;
};

/**
 * tunnel_chain_find - Returns the result for a packet, or NULL.
 * @st: the packet's state
 * @p: its headers, to which the tunnel is added
 * @place: becomes the number of the result
 */
static __always_inline struct chain *tunnel_chain_find(const struct state *st,
						       struct chain_packet *p, __u32 *place)
{
	__u64 sums[2];
	struct chain *c;

	if (!st->popping)
		return chain_find(p, place);
	chain_enter_tunnel(st, p, sums);
	*place = chain_place(p->key, sums[0]);
	c = chain_at(*place);
	if (c && chain_has_tunnelled(c, p->key, sums))
		return c;
	*place ^= 1;
	c = chain_at(*place);
	return c && chain_has_tunnelled(c, p->key, sums) ? c : 0;
}

/* Returns the bytes of the longest frame that a packet becomes when it is segmented, without outer headers. */
static __always_inline __u32 tunnel_chain_segment(hook_ctx *ctx, const struct chain_packet *p,
						  __u32 bytes)
{
#if !AT_XDP
	__u32 headers = ETH_HLEN + FAST_IP + FAST_UDP;

	if (p->tcp)
		headers = p->end - p->segment.data;
	if (is_gso(ctx))
		return headers + ctx->gso_size;
#endif
	return bytes;
}

/**
 * tunnel_chain_aim - Sets the state to the instruction that pushes the headers.
 * @ctx: the packet
 * @st: its state
 * @c: the result, whose output has CHAIN_PUSH
 * @differs: chain_flows_differ() of it, which is 0. The slot is read after the epochs: its address depends
 *           on them (see emc.h)
 * @p: the headers
 * @bytes: of the frame
 *
 * Return: false when the packet does not fit its path, or cannot be segmented later.
 */
static __always_inline bool tunnel_chain_aim(hook_ctx *ctx, struct state *st, const struct chain *c,
					     __u32 differs, const struct chain_packet *p,
					     __u32 bytes)
{
	const struct tunnel_header *t;
	struct program *program;
	__u64 last = c->length, pc = c->output & ~CHAIN_PUSH;
	struct slot *slot;
	__u32 number;

	opaque(last);
	if (last >= CHAIN_FLOWS)
		return false;
	opaque(last);
	asm volatile("%0 ^= %0" : "+r"(differs));
	number = c->flows[last] + differs;
	slot = bpf_map_lookup_elem(&slots, &number);
	if (!slot || (slot->flags & FLOW_NO_GSO && is_gso(ctx)))
		return false;
	st->flow = number;
	st->program = slot->program;
	program = bpf_map_lookup_elem(&programs, &st->program);
	opaque(pc);
	if (!program || pc >= CELLS)
		return false;
	opaque(pc);
	number = program->cells[pc] >> 32;
	t = bpf_map_lookup_elem(&tunnel_headers, &number);
	if (!t)
		return false;
	st->pc = pc;
	st->trunc = 0;
	return tunnel_chain_segment(ctx, p, bytes) + t->length - ETH_HLEN <= push_longest(t);
}

#if AT_XDP

/* Returns true when a frame that changes can be restored: all changes are within the kept bytes. */
static __always_inline bool tunnel_chain_can_undo(const struct state *st)
{
	return st->base + ETH_HLEN + FAST_IP + REACH_L4 <= UNDO_BYTES;
}

/* Counts a packet of all flows of a result, once it is sure to stay. Returns 0. A function of its own, for the
 * verifier. */
__noinline int tunnel_chain_defer(__u32 place, __u32 bytes, __u32 tcp_flags)
{
	struct chain *c = chain_at(place);
	struct state *st = state_here();

	if (!c || !st)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < CHAIN_FLOWS; i++) {
		if (i > c->length)
			break;
		deferred_count_add(st, c->flows[i], bytes, tcp_flags);
	}
	return 0;
}
_Static_assert(CHAIN_FLOWS + 1 <= DEFERRED_COUNTS, "the flows of a result, and that of the outer packet");

#endif

/**
 * tunnel_chain_count - Counts a packet of all flows of its result.
 * @ctx: the packet, without outer headers
 * @st: its state
 * @t: the packet
 * @pushes: outer headers follow
 */
static __always_inline void tunnel_chain_count(struct state *st, const struct tunnel_chain *t,
					       bool pushes)
{
#if AT_XDP
	if (pushes) {
		tunnel_chain_defer(t->place, t->bytes, t->tcp_flags);
		return;
	}
#endif
	chain_count(t->chain, t->bytes, t->tcp_flags);
}

/**
 * tunnel_chain_strip - Takes the outer headers off, and keeps the start of a frame that may be left at XDP.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @pushes: outer headers follow
 * @bytes: of the frame as it is
 *
 * Return: false, and nothing is done, when that is not possible.
 */
static __always_inline bool tunnel_chain_strip(hook_ctx *ctx, struct state *st, bool pushes,
					       __u32 bytes)
{
	if (st->popping)
		return !tunnel_strip(ctx, AT_XDP && pushes, bytes);
#if AT_XDP
	if (undo_keep_head(ctx))
		return false;
#endif
	count_ingress(st->in_port, bytes);
	st->covered = ETH_HLEN;
	return true;
}

/**
 * tunnel_chain_send - Sends a packet by a result.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state: that of a packet from a port, or one in a tunnel whose headers were read
 *
 * Return: the verdict, or NOT_HERE when there is no result that holds.
 */
static __always_inline int tunnel_chain_send(hook_ctx *ctx, struct state *st)
{
	struct view v = { data_of(ctx), data_end_of(ctx), 0, true };
	struct chain_packet p = {};
	struct tunnel_chain t;
	struct port *port = 0;
	__u32 now, rest, whole = linear_length(ctx), differs;
	__u64 base = tunnel_base(st);
	bool pushes;
	__s32 late;
	int err;

	opaque(whole);
	v.data += base;
	v.length = whole - base;
	if (!chain_parse(ctx, &v, st->in_port, &p))
		return NOT_HERE;
	t.bytes = v.length;
	t.end = p.end;
	t.tcp_flags = p.tcp_flags;
	t.chain = tunnel_chain_find(st, &p, &t.place);
	now = ct_now();
	if (!t.chain)
		return NOT_HERE;
	late = now - t.chain->due;
	differs = chain_flows_differ(t.chain);
	if (late > CHAIN_LONGEST_REST || differs)
		return NOT_HERE;
	rest = late >= 0 ? CHAIN_MOST_TICKS : 0;
	pushes = t.chain->output & CHAIN_PUSH;
	if (pushes) {
#if AT_XDP
		if (!tunnel_chain_can_undo(st))
			return NOT_HERE;
#endif
		if (!tunnel_chain_aim(ctx, st, t.chain, differs, &p, t.bytes))
			return NOT_HERE;
	} else {
		port = port_of(t.chain->output);
		opaque(port); /* as in chain_send() */
		if (!output_can_redirect(&v, port))
			return NOT_HERE;
	}
#pragma unroll
	for (int i = 0; i < CHAIN_CONNS; i++)
		if (i < t.chain->length && !chain_advance(t.chain, i, &p, now, &rest))
			return NOT_HERE;
	if (rest)
		t.chain->due = now + rest;
	if (!tunnel_chain_strip(ctx, st, pushes, whole))
		return NOT_HERE;
	tunnel_chain_count(st, &t, pushes);
	st->depth = t.chain->length + st->tunnelled;
	st->mpls = 0;
	st->l3 = ETH_HLEN;
	st->l4 = ETH_HLEN + FAST_IP;
	if (t.chain->flags & CHAIN_EDITS) {
		err = chain_edit(ctx, t.place, t.end);
		if (err) {
			deferred_counts_flush(st);
			return drop(err - 1);
		}
	}
	if (pushes)
		return tail_call(ctx, TAIL_TUN_PUSH);
	return output_to(ctx, port, t.chain->output, st->in_port, linear_length(ctx),
			 state_network(st));
}

/**
 * tunnel_chain - The program in TAIL_TUN_CHAIN: sends a packet by the result of its chain, or looks it up.
 * @ctx: the packet
 *
 * Return: the verdict.
 */
static __always_inline int tunnel_chain(hook_ctx *ctx)
{
	struct state *st = state_here();
	int verdict;

	if (!st)
		return drop(DROP_UNSUPPORTED);
	st->calls += 2; /* to this program, from a port through another one */
	verdict = tunnel_chain_send(ctx, st);
	if (verdict != NOT_HERE)
		return verdict;
	return tail_call(ctx, TAIL_RECIRC);
}

#endif
