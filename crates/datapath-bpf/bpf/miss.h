/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tc: a packet without a flow that runs here goes up to the daemon. It goes through a tap device,
 * so that its segmentation and its unfinished checksum go with it. */
#ifndef SLIPSWITCH_MISS_H
#define SLIPSWITCH_MISS_H

#include "lookup.h"

/* Returns true when the daemon accepts no packets of this port at an OP_CT now. */
static __always_inline bool port_takes_no_ct(const struct port *port)
{
	return *(volatile __u64 *)&port->ct_closed_until > bpf_ktime_get_coarse_ns();
}

/**
 * miss_admit - Decides whether one more packet of a port may go up, and counts it.
 * @st: the packet's state
 *
 * At most `upcall_limit` packets of a port are on their way to the daemon. Packets at an OP_CT take at
 * most half of them, which leaves room for misses. None goes while the daemon has closed the account:
 * misses, and packets at an OP_CT, have one each.
 *
 * Return: true when the packet may go up.
 */
static __always_inline bool miss_admit(const struct state *st)
{
	struct port *port = port_of(st->in_port);
	__s64 waiting, limit;

	if (!port || (st->resumes ? port_takes_no_ct(port) : port_is_closed(port)))
		return false;
	waiting = *(volatile __u64 *)&port->sent_up - *(volatile __u64 *)&port->taken_up;
	/* Negative when the daemon took a packet before its program counted it. */
	limit = port->upcall_limit;
	if (st->resumes)
		limit = (limit + 1) / 2;
	if (waiting >= limit)
		return false;
	__sync_fetch_and_add(&port->sent_up, 1);
	return true;
}

/* Takes a packet that does not go up off those that are on their way. */
static __always_inline void miss_release(__u32 in_port)
{
	struct port *port = port_of(in_port);

	if (port)
		__sync_fetch_and_add(&port->sent_up, -1);
}

/**
 * miss_put_tracked - Puts struct miss_tracked before the packet.
 * @ctx: the packet
 * @st: its state
 *
 * Return: 0 or an error.
 */
static __always_inline int miss_put_tracked(hook_ctx *ctx, struct state *st)
{
	struct slot_detail *detail = detail_of(st->flow);
	struct miss_tracked more = {};

	if (st->tunnelled)
		__builtin_memcpy(more.words, &st->key[W_TUN0], TUNNEL_WORDS * 8);
	if (st->tracked)
		__builtin_memcpy(&more.words[TUNNEL_WORDS], &st->key[W_CT], CT_WORDS * 8);
	more.cell = bpf_htonl(NO_CELL);
	if (st->resumes && detail) {
		more.installed = bpf_cpu_to_be64(detail->installed);
		more.flow = bpf_htonl(st->flow);
		more.cell = bpf_htonl(st->pc);
	}
	return bpf_skb_change_head(ctx, sizeof(more), 0) ||
	       bpf_skb_store_bytes(ctx, 0, &more, sizeof(more), 0);
}

/**
 * miss_put_header - Puts struct miss_header, and struct miss_tracked if it is needed, before the packet.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 *
 * Return: 0 or an error.
 */
static __always_inline int miss_put_header(hook_ctx *ctx, struct state *st)
{
	struct miss_header header = {};

	header.in_port = bpf_htonl(st->in_port);
	header.recirc_id = bpf_htonl(st->recirc_id);
	header.dp_hash = bpf_htonl(st->dp_hash);
	header.ethertype = bpf_htons(MISS_ETHERTYPE);
	header.version = bpf_htons(LAYOUT_VERSION);
	header.priority = bpf_htonl(st->priority);
	header.mark = bpf_htonl(st->mark);
	header.depth = bpf_htonl(st->depth);
	if (st->tunnelled || st->tracked || st->resumes || st->bare) {
		header.more = bpf_htonl(MISS_TRACKED | (st->bare ? MISS_BARE : 0));
		if (miss_put_tracked(ctx, st))
			return -1;
	}
	return bpf_skb_change_head(ctx, sizeof(header), 0) ||
	       bpf_skb_store_bytes(ctx, 0, &header, sizeof(header), 0);
}

/**
 * miss - The program in TAIL_MISS: puts struct miss_header before the packet and sends it up.
 * @ctx: the packet, whose metadata is in the state
 *
 * Return: the verdict.
 */
static __always_inline int miss(hook_ctx *ctx)
{
	struct state *st = state_here();
	__u32 to;

	if (!st)
		return drop(DROP_UNSUPPORTED);
	if (!st->recirc_id && !st->resumes)
		count_ingress(st->in_port, frame_length(ctx));
	to = config_here()->miss_ifindex;
	if (!to || !miss_admit(st))
		return drop(DROP_UPCALL_LIMIT);
	if (miss_put_header(ctx, st)) {
		miss_release(st->in_port);
		return drop(DROP_UPCALL_LIMIT);
	}
	COUNT(up);
	return bpf_redirect(to, 0);
}

/**
 * up_send - Runs an OP_OUTPUT to the daemon: sends a copy of the packet up, which goes on there with the action of the sample.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state, at the instruction
 *
 * The copy shares its bytes with the packet, so the header is put before the copy alone: by up(), which
 * runs within the call of the helper.
 */
static __always_inline void up_send(hook_ctx *ctx, struct state *st)
{
	__u32 to = config_here()->miss_ifindex;
	bool is_lost = true;

	st->resumes = 1;
	if (to && miss_admit(st)) {
		st->goes_up = 1;
		is_lost = bpf_clone_redirect(ctx, to, 0) < 0;
		st->goes_up = 0;
		if (is_lost)
			miss_release(st->in_port);
	}
	st->resumes = 0;
	if (is_lost)
		count_drop(DROP_UPCALL_LIMIT);
}

/**
 * up - The program at the miss device: puts the header before a copy that up_send() sends.
 * @ctx: a packet that leaves by the miss device
 *
 * Return: the verdict. Other packets pass: misses have their header.
 */
static __always_inline int up(hook_ctx *ctx)
{
	struct state *st = state_here();

	if (!st || !st->goes_up)
		return VERDICT_NONE;
	if (miss_put_header(ctx, st)) {
		miss_release(st->in_port);
		return drop(DROP_UPCALL_LIMIT);
	}
	COUNT(up);
	return VERDICT_NONE;
}

/**
 * miss_pull - The program in TAIL_PULL: makes headers linear, then starts the lookup again.
 * @ctx: the packet, whose metadata is in the state
 *
 * Return: the verdict.
 */
static __always_inline int miss_pull(hook_ctx *ctx)
{
	struct state *st = state_here();
	__u32 bytes = ctx->len < PULL_BYTES ? ctx->len : PULL_BYTES;

	if (!st || bpf_skb_pull_data(ctx, bytes))
		return drop(DROP_MALFORMED);
	st->pulled = 1;
	st->calls++;
	if (st->popping)
		return tail_call(ctx, TAIL_TUNNEL);
	if (st->recirc_id)
		return tail_call(ctx, TAIL_RECIRC);
	return tail_call(ctx, TAIL_LOOKUP);
}

#endif
