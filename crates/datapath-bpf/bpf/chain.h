/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Results of chains. A chain is the way of a packet from a port through flows with FLOW_CHAIN, each
 * of which tracks its connection in a zone and looks it up again, to a flow that sends it. When the
 * packet moved no state on the way, the result is kept: the flows, the connections, the port, and
 * the headers with which the packet left. The next packet with the same headers needs one lookup
 * here instead of one for each flow and each connection. chain_run.h uses the results.
 *
 * A chain may begin in a tunnel: after the outer headers were taken off, and with the words of the tunnel in
 * the key. It may end in one: the result then has the instruction that pushes the outer headers.
 * tunnel_chain.h uses these results.
 *
 * A result holds as long as all of this does:
 *
 *   - No flow of it is dead: the epochs of their slots are as they were (see emc.h).
 *   - Each connection is live, and its flags and generation are as they were.
 *   - The marks are as they were, if a flow matches on them.
 *   - Each TCP segment is in the window, and moves no state.
 *
 * The key has all that flows may match on in such a packet. The metadata of connection tracking, and
 * what edits and translations make of the headers, follow from it and the connections. Flows that
 * match on more (labels, cold words) are in no result.
 *
 * Each CPU has results of its own, which only programs on it use. They are not pinned: they name
 * slots of the daemon's present table of connections.
 */
#ifndef SLIPSWITCH_CHAIN_H
#define SLIPSWITCH_CHAIN_H

#include "ct_packet.h"
#include "parse_fast.h"

#define CHAIN_CONNS 6 /* the most connections of a result */
#define CHAIN_FLOWS (CHAIN_CONNS + 1)
#define CHAIN_KEY 4
#define CHAIN_MARKS (1u << CHAIN_CONNS)
#define CHAIN_EDITS (2u << CHAIN_CONNS)
#define CHAIN_PUSH 0x8000u
_Static_assert(CHAIN_PUSH >= MAX_PORTS && CHAIN_PUSH >= CELLS, "no port, no cell");
/* In the last word of a key: the packet came out of a tunnel. */
#define CHAIN_TUNNELLED (1ull << 56)
/* A result that no packet used for this many ticks, about a minute, does not hold: generations of
 * connections return after 2^16 uses of a slot, which take longer. */
#define CHAIN_LONGEST_REST 4096
/* Expiries are checked once in this share of the timeout, and at most this many ticks after the last
 * check, half a second. With many connections nearly every packet would otherwise read the second line
 * of its connections, and write to its result. */
#define CHAIN_REST_SHARE 64
#define CHAIN_MOST_TICKS 30

struct chain_conn {
	__u32 slot;
	__u32 head; /* phase, flags and generation */
	__u32 mark;
};

/* A result. Packets of short chains without edits read two lines of memory. An epoch never falls, so
 * no epoch has changed as long as the sum of all has not. */
struct chain {
	__u64 key[CHAIN_KEY];
	__u32 flows[CHAIN_FLOWS]; /* slots */
	__u32 epochs;  /* sum of those of the flows */
	__u32 due;     /* the tick at which the expiries are checked next */
	__u16 output;  /* number of the port; CHAIN_PUSH | cell: the place of an OP_TUN_PUSH */
	__u8 length;   /* connections; 0: the place is free */
	__u8 flags;    /* bit n: connection n sees a reply; CHAIN_MARKS: marks matter; CHAIN_EDITS */
	struct chain_conn conns[CHAIN_CONNS];
	__u64 to[CHAIN_KEY]; /* CHAIN_EDITS: the key of the packet as it leaves */
	__u64 tunnel[2]; /* CHAIN_TUNNELLED: sums of the words of the tunnel */
};

/* The headers of a packet. */
struct chain_packet {
	__u64 key[CHAIN_KEY];
	struct ct_segment segment;
	__u32 tcp;       /* 1: TCP, 0: UDP */
	__u32 tcp_flags; /* host integer; 0 when the packet is UDP */
	__u32 end;       /* of the IP packet, as an offset in the frame */
};

/* [cpu * settings.chains + number]
 *
 * No process maps it. The flag puts the results at the beginning of pages, and so of cache lines. Without
 * it the kernel puts them after its own fields, at 56 of 64 bytes (Linux 6.18), and each would be in one
 * line more. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct chain);
} chains SEC(".maps");

/* The result that is being made of a packet. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct chain);
} chain_begun SEC(".maps");

/* Takes the segment of TCP. */
static __always_inline bool chain_take_tcp(const struct view *v, const void *l4, __u32 behind,
					   struct chain_packet *p)
{
	struct ct_segment *s = &p->segment;

	if (l4 + FAST_TCP > v->end)
		return false;
	s->seq = bpf_ntohl(load32(l4 + 4));
	s->ack = bpf_ntohl(load32(l4 + 8));
	s->data = behind - (load8(l4 + 12) >> 4) * 4;
	s->window = bpf_ntohs(load16(l4 + 14));
	s->flags = p->tcp_flags;
	return true;
}

/**
 * chain_parse - Parses a packet of the common shape.
 * @ctx: the packet
 * @v: its bytes, with linear_length()
 * @in_port: ingress port
 * @p: becomes its headers
 *
 * The checks are those of parse_fast_key() and of ct_extract().
 *
 * Return: false when the packet has another shape.
 */
static __always_inline bool chain_parse(hook_ctx *ctx, const struct view *v, __u32 in_port,
					struct chain_packet *p)
{
	const void *ip = v->data + ETH_HLEN, *l4 = ip + FAST_IP;
	__u64 key[EMC_WORDS], sum = 0;
	__u32 behind;

	if (!parse_fast_key(ctx, v, in_port, key, &p->tcp_flags))
		return false;
#pragma unroll
	for (int i = 0; i < FAST_IP; i += 4)
		sum += load32(ip + i);
	if (checksum_fold(sum) != 0xffff || !load16(l4) || !load16(l4 + 2))
		return false;
	p->key[0] = key[W_ETH0];
	p->key[1] = key[W_ETH1];
	p->key[2] = key[W_IP4];
	p->key[3] = key[W_TP] | PLACE(in_port, 2, 4) | PLACE(HOOK, 1, 6);
	behind = bpf_ntohs(load16(ip + 2)) - FAST_IP;
	p->end = ETH_HLEN + FAST_IP + behind;
	p->tcp = load8(ip + 9) == IPPROTO_TCP;
	if (p->tcp)
		return chain_take_tcp(v, l4, behind, p);
	return bpf_ntohs(load16(l4 + 4)) == behind;
}

/* Adds word `x` of a tunnel to two sums with different factors, as for the exact-match cache. Sums of zero
 * words are zero. */
#define CHAIN_TUNNEL_WORD(x)                                                                         \
	if (st->key[x]) {                                                                            \
		sums[0] += hash_word(x, st->key[x]);                                                 \
		sums[1] += hash_weigh(st->key[x], FACTORS_OF_TUNNEL_CHECK + (x - W_TUN0),            \
				      FACTORS_OF_TUNNEL_CHECK + TUNNEL_WORDS + (x - W_TUN0));        \
	}

/**
 * chain_enter_tunnel - Adds the tunnel that a packet came out of to its headers.
 * @st: the packet's state, with the words of the tunnel
 * @p: the headers
 * @sums: become those of the words of the tunnel
 */
static __always_inline void chain_enter_tunnel(const struct state *st, struct chain_packet *p,
					       __u64 *sums)
{
	sums[0] = sums[1] = 0;
	p->key[3] |= CHAIN_TUNNELLED;
	CHAIN_TUNNEL_WORD(W_TUN0)
	CHAIN_TUNNEL_WORD(W_TUN1)
	CHAIN_TUNNEL_WORD(W_TIP4)
	CHAIN_TUNNEL_WORD(W_TSRC0)
	CHAIN_TUNNEL_WORD(W_TSRC1)
	CHAIN_TUNNEL_WORD(W_TDST0)
	CHAIN_TUNNEL_WORD(W_TDST1)
	CHAIN_TUNNEL_WORD(W_OPT0)
	CHAIN_TUNNEL_WORD(W_OPT1)
	CHAIN_TUNNEL_WORD(W_OPT2)
	CHAIN_TUNNEL_WORD(W_OPT3)
}

/* Returns the number of the place that a key is looked for in first. The other place is the one
 * whose number differs in the lowest bit. `sum`: of the words of the tunnel, or 0. */
static __always_inline __u32 chain_place(const __u64 *key, __u64 sum)
{

#pragma unroll
	for (int i = 0; i < CHAIN_KEY; i++)
		sum += hash_word(i, key[i]);
	return bpf_get_smp_processor_id() * settings.chains +
	       (finish_hash(sum) & (settings.chains - 1));
}

/* Returns the place of a number; NULL when this CPU has none. */
static __always_inline struct chain *chain_at(__u32 number)
{
	return bpf_map_lookup_elem(&chains, &number);
}

/* Returns true when the place has the result of a key. */
static __always_inline bool chain_has(const struct chain *c, const __u64 *key)
{
	__u64 differs = 0;

#pragma unroll
	for (int i = 0; i < CHAIN_KEY; i++)
		differs |= c->key[i] ^ key[i];
	return !differs;
}

/* Returns true when the place has the result of a key and a tunnel. */
static __always_inline bool chain_has_tunnelled(const struct chain *c, const __u64 *key,
						const __u64 *sums)
{
	return chain_has(c, key) && c->tunnel[0] == sums[0] && c->tunnel[1] == sums[1];
}

/* Returns the result that is being made; NULL never, but the verifier requires a check. */
static __always_inline struct chain *chain_begun_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&chain_begun, &zero);
}

/* Returns the present epoch of a slot. */
static __always_inline __u32 chain_epoch(__u32 slot)
{
	struct epochs *e = epochs_table;

	opaque(e);
	return e->of[slot % EPOCHS];
}

/* Makes sure that `at`, a __u64, is below `end`; returns 0 from the function otherwise. The compiler may
 * have saved an older copy of a number on the stack, about which Linux 6.1 does not learn from a
 * comparison, so it must not know that both are one. */
#define CHAIN_CHECK(at, end)      \
	do {                      \
		opaque(at);       \
		if (at >= (end))  \
			return 0; \
		opaque(at);       \
	} while (0)

#define CHAIN_REFUSED (COLD_BITS | BIT(W_CT_LABEL0) | BIT(W_CT_LABEL1))

/**
 * chain_add_flow - Adds a flow that the packet met.
 * @c: the result that is being made
 * @at: number of flows before
 * @number: of the slot
 * @flag: FLOW_CHAIN or FLOW_CHAIN_END, which the slot must have; 0: the actions are one output
 * @refused: flags that it must not have
 *
 * The epoch is read first, and the slot at an address that depends on it: see emc.h.
 *
 * Return: the slot, or NULL when the flow can be in no result.
 */
static __always_inline struct slot *chain_add_flow(struct chain *c, __u32 at, __u32 number,
						   const __u8 flag, const __u8 refused)
{
	__u32 epoch = chain_epoch(number), after = epoch, place = number, mask_number;
	__u64 index = at;
	struct slot *slot;
	struct mask *mask;

	asm volatile("%0 ^= %0" : "+r"(after));
	place += after;
	slot = bpf_map_lookup_elem(&slots, &place);
	if (!slot || slot->dead || slot->flags & refused)
		return 0;
	if (flag ? !(slot->flags & flag) : slot->output == NO_PORT)
		return 0;
	mask_number = slot->mask;
	mask = bpf_map_lookup_elem(&masks, &mask_number);
	if (!mask || mask->needs & CHAIN_REFUSED)
		return 0;
	if (mask->words[W_CT] & PLACE(~0u, 4, 4))
		c->flags |= CHAIN_MARKS;
	CHAIN_CHECK(index, CHAIN_FLOWS);
	c->flows[index] = number;
	c->epochs = at ? c->epochs + epoch : epoch;
	return slot;
}

/**
 * chain_add - Adds what a `ct` found for the packet to the result that is being made.
 * @ctx: the packet, which this `ct` has not changed
 * @conn: slot of the connection, which was established before the packet came
 * @head: its head
 * @reply: 1: the packet is a reply
 *
 * The metadata of a connection that another one expected depends on that one, too, so it is in no
 * result. A packet that began in the programs of an earlier daemon makes no result, because that had
 * other connections.
 *
 * Return: 0, because such a function must return a number.
 */
__noinline int chain_add(hook_ctx *ctx, __u32 conn, __u64 head, __u32 reply)
{
	const struct view v = { data_of(ctx), data_end_of(ctx), linear_length(ctx), true };
	struct chain *c = chain_begun_here();
	struct state *st = state_here();
	struct chain_packet p;
	__u64 index;
	__u32 at;

	if (!c || !st)
		return 0;
	index = at = st->chain - st->tunnelled;
	if (at >= CHAIN_CONNS || head >> CT_FLAGS_SHIFT & CT_RELATED)
		return 0;
	if (!at) {
		if (st->pc || !chain_parse(ctx, &v, st->in_port, &p))
			return 0;
		c->tunnel[0] = c->tunnel[1] = 0;
		if (st->tunnelled)
			chain_enter_tunnel(st, &p, c->tunnel);
		__builtin_memcpy(c->key, p.key, sizeof(c->key));
		c->flags = 0;
		st->chain_maker = settings.generation;
	} else if (st->chain_maker != (__u16)settings.generation) {
		return 0;
	}
	if (!chain_add_flow(c, at, st->flow, FLOW_CHAIN, FLOW_NO_GSO))
		return 0;
	CHAIN_CHECK(index, CHAIN_CONNS);
	c->conns[index].slot = conn;
	c->conns[index].head = head >> 32;
	c->conns[index].mark = bpf_ntohl(((__be32 *)&st->key[W_CT])[1]);
	c->flags |= (reply & 1) << at;
	st->chain++;
	return 0;
}

/* Returns the place for a result: its own, a free one, or any of the two that it may be in. */
static __always_inline struct chain *chain_room(const struct chain *made)
{
	__u32 place = chain_place(made->key, made->tunnel[0]);
	struct chain *one = chain_at(place), *other = chain_at(place ^ 1);

	if (!one || !other || chain_has_tunnelled(one, made->key, made->tunnel))
		return one;
	if (chain_has_tunnelled(other, made->key, made->tunnel))
		return other;
	if (one->length && (!other->length || bpf_get_prandom_u32() & 1))
		return other;
	return one;
}

/* Returns true when the program may go on after its OP_TUN_PUSH in packets of results. At XDP such packets
 * are not checked before it. */
static __always_inline bool chain_may_push(const struct state *st)
{
	struct program *p = bpf_map_lookup_elem(&programs, &st->program);

	return p && !(AT_XDP && (p->set || p->cuts));
}

/**
 * chain_keep - Keeps the result of a packet that is sent.
 * @ctx: the packet as it leaves
 * @number: slot of the flow that sends it
 * @port: number of the port, or CHAIN_PUSH | cell
 *
 * Return: 0, because such a function must return a number.
 */
__noinline int chain_keep(hook_ctx *ctx, __u32 number, __u32 port)
{
	const struct view v = { data_of(ctx), data_end_of(ctx), linear_length(ctx), true };
	struct chain *c = chain_begun_here(), *to;
	struct state *st = state_here();
	struct chain_packet p;
	__u32 at;

	if (!c || !st || st->chain_maker != (__u16)settings.generation)
		return 0;
	at = st->chain - st->tunnelled;
	if (!at)
		return 0;
	if (port & CHAIN_PUSH) {
		if (!chain_may_push(st) || !chain_add_flow(c, at, number, FLOW_CHAIN_END, 0))
			return 0;
	} else if (!chain_add_flow(c, at, number, FLOW_CHAIN_END, FLOW_NO_GSO) &&
		   !chain_add_flow(c, at, number, 0, FLOW_NO_GSO)) {
		return 0;
	}
	if (!chain_parse(ctx, &v, st->in_port, &p))
		return 0;
	p.key[3] |= c->key[3] & CHAIN_TUNNELLED;
	__builtin_memcpy(c->to, p.key, sizeof(c->to));
	if (!chain_has(c, p.key))
		c->flags |= CHAIN_EDITS;
	c->output = port;
	c->length = at;
	c->due = ct_now();
	to = chain_room(c);
	if (to)
		*to = *c;
	return 0;
}

/* Keeps the result of a packet that leaves by `port`, if it took a chain. */
static __always_inline void chain_end(hook_ctx *ctx, const struct state *st, __u32 number,
				      __u32 port)
{
	if (settings.chains && st->chain && st->chain == st->depth)
		chain_keep(ctx, number, port);
}

#endif
