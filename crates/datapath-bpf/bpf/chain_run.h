/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sends packets by results of chains. */
#ifndef SLIPSWITCH_CHAIN_RUN_H
#define SLIPSWITCH_CHAIN_RUN_H

#include "chain.h"
#include "ct_advance.h"
#include "edit_ip.h"
#include "edit_l4.h"
#include "lookup.h"

/**
 * chain_touch - Moves the expiry of an established connection.
 * @slot: of the connection
 * @head: its head
 * @tcp: not 0: the connection is of TCP, else of UDP
 * @now: ct_now()
 *
 * Return: the number of ticks after which it is to be moved again, at least 1.
 */
__noinline int chain_touch(__u32 slot, __u64 head, __u32 tcp, __u32 now)
{
	struct ct_found found = { .head = head, .slot = slot };
	struct ct_conn *c = ct_conn_at(slot);
	__u32 policy, timeout, rest;

	if (!c)
		return 1;
	policy = ct_load(c->words[CT_CONN_MARK]) >> CT_MARK_POLICY_SHIFT & 0xfff;
	timeout = tcp ? ct_timeout(policy, CT_TCP_ESTABLISHED, 86400) :
			ct_timeout(policy, CT_UDP_MULTIPLE, 30);
	ct_touch(&found, 0, timeout, now);
	rest = timeout / CHAIN_REST_SHARE;
	if (rest > CHAIN_MOST_TICKS)
		rest = CHAIN_MOST_TICKS;
	return rest ? rest : 1;
}

/* Returns the result for a packet, or NULL. `place` becomes its number. */
static __always_inline struct chain *chain_find(const struct chain_packet *p, __u32 *place)
{
	struct chain *c;

	*place = chain_place(p->key, 0);
	c = chain_at(*place);
	if (c && chain_has(c, p->key))
		return c;
	*place ^= 1;
	c = chain_at(*place);
	return c && chain_has(c, p->key) ? c : 0;
}

/* Returns 0 when all flows of a result are alive. */
static __always_inline __u32 chain_flows_differ(const struct chain *c)
{
	__u32 differs = c->epochs;

#pragma unroll
	for (int i = 0; i < CHAIN_FLOWS; i++)
		if (i <= c->length)
			differs -= chain_epoch(c->flows[i]);
	return differs;
}

/**
 * chain_advance - Carries out what a packet does to a connection of its result.
 * @c: the result
 * @i: number of the connection
 * @p: the packet
 * @now: ct_now()
 * @rest: ticks after which the expiries are to be checked again, if they are checked now; 0: they are
 *        not. Falls to those of this connection.
 *
 * All of it can be done twice.
 *
 * Return: false when the connection is not as it was, or the packet moves its state.
 */
static __always_inline bool chain_advance(const struct chain *c, const int i,
					  const struct chain_packet *p, __u32 now, __u32 *rest)
{
	const struct chain_conn *kept = &c->conns[i];
	struct ct_conn *conn = ct_conn_at(kept->slot);
	__u32 ticks;
	__u64 head;

	if (!conn)
		return false;
	head = ct_load(conn->words[CT_CONN_HEAD]);
	if (head >> 32 != kept->head || !ct_is_live(head, now))
		return false;
	if (c->flags & CHAIN_MARKS && (__u32)ct_load(conn->words[CT_CONN_MARK]) != kept->mark)
		return false;
	if (p->tcp && !ct_advance_tcp(kept->slot, c->flags >> i & 1, &p->segment))
		return false;
	if (!*rest)
		return true;
	ticks = chain_touch(kept->slot, head, p->tcp, now);
	if (ticks < *rest)
		*rest = ticks;
	return true;
}

/**
 * chain_count - Counts a packet of all flows of a result.
 * @c: the result
 * @bytes: of the frame
 * @tcp_flags: host integer; 0 when the packet is not TCP
 */
static __always_inline void chain_count(const struct chain *c, __u32 bytes, __u32 tcp_flags)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < CHAIN_FLOWS; i++) {
		if (i > c->length)
			return;
		count_flow(c->flows[i], bytes, tcp_flags);
	}
}

/**
 * chain_edit - Gives a packet the headers with which the packets of its result leave.
 * @ctx: the packet; pointers into it become invalid
 * @place: number of the result
 * @end: of the IP packet, as an offset in the frame
 *
 * A function of its own: most results change nothing.
 *
 * Return: EDITED, or the reason to drop plus one.
 */
__noinline int chain_edit(hook_ctx *ctx, __u32 place, __u32 end)
{
	struct chain *c = chain_at(place);
	struct state *st = state_here();
	struct ip ip = { .l3 = ETH_HLEN, .l4 = ETH_HLEN + FAST_IP, .end = end };
	__u64 operands[3];
	__u8 fields[16]; /* W_ETH0 and W_ETH1 */
	int err;

	if (!c || !st)
		return FAILED;
	st->covered = ETH_HLEN;
	__builtin_memcpy(fields, &c->to[0], sizeof(fields));
	ip.proto = fields[15];
	if (edit_store(ctx, st, 0, fields, 2 * ETH_ALEN))
		return FAILED;
	operands[0] = c->to[2];
	operands[1] = ~0ull;
	operands[2] = PLACE(fields[13], 1, 0) | PLACE(0xff, 1, 1) | PLACE(fields[14], 1, 2) |
		      PLACE(0xff, 1, 3);
	err = set_ipv4(ctx, st, &ip, operands);
	if (err || !((c->to[3] ^ c->key[3]) & PLACE(~0u, 4, 0)))
		return err;
	operands[0] = PLACE(((__be16 *)&c->to[3])[0], 2, 0) | PLACE(0xffff, 2, 2) |
		      PLACE(((__be16 *)&c->to[3])[1], 2, 4) | PLACE(0xffff, 2, 6);
	return ip.proto == IPPROTO_TCP ? set_tcp(ctx, st, &ip, operands) :
					 set_udp(ctx, st, &ip, operands);
}

/**
 * chain_push - Goes on with a packet from a port that a result sends into a tunnel.
 * @ctx: the packet
 * @in_port: the port
 *
 * Return: NOT_HERE when the kernel refused the program for such packets; else the function does not return.
 */
static __always_inline int chain_push(hook_ctx *ctx, __u32 in_port)
{
	struct state *st = state_here();

	if (!st)
		return NOT_HERE;
	state_init(st, in_port);
	bpf_tail_call_static(ctx, &tails, TAIL_TUN_CHAIN);
	return NOT_HERE;
}

/**
 * chain_send - Sends a packet by a result.
 * @ctx: the packet, which comes from a port; pointers into it become invalid
 * @in_port: the port
 *
 * Return: the verdict, or NOT_HERE when there is no result that holds.
 */
static __always_inline int chain_send(hook_ctx *ctx, __u32 in_port)
{
	const struct view v = { data_of(ctx), data_end_of(ctx), linear_length(ctx), true };
	struct chain_packet p = {};
	struct port *port;
	struct chain *c;
	__u32 now, place, rest;
	__s32 late;
	int err;

	if (!chain_parse(ctx, &v, in_port, &p))
		return NOT_HERE;
	c = chain_find(&p, &place);
	now = ct_now();
	if (!c)
		return NOT_HERE;
	late = now - c->due;
	if (late > CHAIN_LONGEST_REST || chain_flows_differ(c))
		return NOT_HERE;
	rest = late >= 0 ? CHAIN_MOST_TICKS : 0;
	port = port_of(c->output);
	opaque(port); /* Linux 6.1 does not follow an address that is made of a saved number */
	if (!port)
		return chain_push(ctx, in_port);
	if (!output_can_redirect(&v, port))
		return NOT_HERE;
#pragma unroll
	for (int i = 0; i < CHAIN_CONNS; i++)
		if (i < c->length && !chain_advance(c, i, &p, now, &rest))
			return NOT_HERE;
	if (rest)
		c->due = now + rest;
	chain_count(c, v.length, p.tcp_flags);
	count_ingress(in_port, v.length);
	if (c->flags & CHAIN_EDITS) {
		err = chain_edit(ctx, place, p.end);
		if (err)
			return drop(err - 1);
	}
	return output_to(ctx, port, c->output, in_port, v.length, ETH_HLEN);
}

/**
 * chain - The program in TAIL_CHAIN: sends a packet by the result of its chain, or looks it up.
 * @ctx: the packet, which comes from a port
 *
 * Return: the verdict.
 */
static __always_inline int chain(hook_ctx *ctx)
{
	__u32 in_port = ingress_port(ctx);
	struct state *st;
	int verdict;

	if (in_port >= PORT_POLICED)
		return ingress_refused(ctx, in_port);
	verdict = chain_send(ctx, in_port);
	if (verdict != NOT_HERE)
		return verdict;
	st = state_here();
	if (!st)
		return drop(DROP_UNSUPPORTED);
	state_init(st, in_port);
	return lookup_recirc(ctx);
}

#endif
