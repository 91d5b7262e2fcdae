/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The action interpreter. Each invocation runs one instruction of struct program and continues by a
 * tail call to itself. That keeps each invocation small for the verifier: the states that one
 * instruction leaves behind do not multiply with those of the next. */
#ifndef SLIPSWITCH_EXEC_H
#define SLIPSWITCH_EXEC_H

#include "chain.h"
#include "copies.h"
#include "edit_arp.h"
#include "edit_eth.h"
#include "edit_ip.h"
#include "edit_l4.h"
#include "edit_mpls.h"
#include "edit_nd.h"
#include "edit_vlan.h"
#include "undo.h"
#include "meter.h"
#if !AT_XDP
#include "miss.h"
#endif
#include "output.h"
#include "tuple.h"
#include "bond.h"

/* datapath::RECIRCULATION_LIMIT */
#define RECIRCULATION_LIMIT 6

/* A decoded instruction; layout.h defines the fields for each enum op. */
struct instruction {
	__u32 op;
	__u32 a;
	__u32 b;
	const struct operands *operands;
};

/* Instructions that edit an IP packet, as bits. */
#define IP_OPS                                                                              \
	(1u << OP_SET_IPV4 | 1u << OP_SET_IPV6 | 1u << OP_SET_TCP | 1u << OP_SET_UDP |      \
	 1u << OP_SET_SCTP | 1u << OP_SET_ICMP | 1u << OP_SET_ND | 1u << OP_SET_ND_EXT)

_Static_assert(OP_COUNT <= 32, "instructions are bits");

/* Returns the cell of the instruction at which a packet is, for one more program that runs it; NULL when
 * there is none. */
static __always_inline const __u64 *program_cell(struct state *st)
{
	struct program *p = bpf_map_lookup_elem(&programs, &st->program);
	__u32 pc = st->pc;

	st->calls++;
	return p && pc < CELLS ? &p->cells[pc] : 0;
}

/**
 * exec_edit_ip - Runs an instruction of IP_OPS.
 * @ctx: the packet; pointers into it become invalid
 * @op: enum op
 * @a: field of the instruction
 * @b: field of the instruction
 * @o: its operands
 *
 * A function of its own: for the verifier the many paths through it become one path of the caller.
 *
 * Return: EDITED, or the reason to drop plus one.
 */
__noinline int exec_edit_ip(hook_ctx *ctx, __u32 op, __u32 a, __u32 b, const struct operands *o)
{
	struct state *st = state_here();
	struct ip ip = {};

	if (!st || !o)
		return FAILED;
	if (find_ip(ctx, &ip))
		return MALFORMED;
	switch (op) {
	case OP_SET_IPV4:
		return set_ipv4(ctx, st, &ip, o->cells);
	case OP_SET_IPV6:
		return set_ipv6(ctx, st, &ip, o->cells);
	case OP_SET_TCP:
		return set_tcp(ctx, st, &ip, o->cells);
	case OP_SET_UDP:
		return set_udp(ctx, st, &ip, o->cells);
	case OP_SET_SCTP:
		return set_sctp(ctx, st, &ip, o->cells);
	case OP_SET_ICMP:
		return set_icmp(ctx, &ip, a, b);
	case OP_SET_ND:
		return set_nd(ctx, &ip, o->cells);
	case OP_SET_ND_EXT:
		return set_nd_extensions(ctx, &ip, a, o->cells);
	default:
		return REFUSED(DROP_UNSUPPORTED);
	}
}

/**
 * exec_edit - Runs an instruction that edits anything but an IP packet.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @i: the instruction
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int exec_edit(hook_ctx *ctx, struct state *st, const struct instruction *i)
{
	switch (i->op) {
	case OP_PUSH_VLAN:
		return exec_push_vlan(ctx, i->a, i->b);
	case OP_POP_VLAN:
		return exec_pop_vlan(ctx);
	case OP_SET_ETH:
		return set_eth(ctx, st, i->operands->cells);
	case OP_SET_ARP:
		return set_arp(ctx, st, i->a, i->b, i->operands->cells);
	case OP_SET_MPLS:
		return set_mpls(ctx, st, i->operands->cells);
	case OP_PUSH_MPLS:
		return exec_push_mpls(ctx, i->a, i->b);
	case OP_POP_MPLS:
		return exec_pop_mpls(ctx, i->a);
	case OP_HEADER:
		return exec_header(ctx, i->a, i->b, i->operands);
	default:
		return REFUSED(DROP_UNSUPPORTED);
	}
}

/**
 * exec_set_priority - Runs OP_SET_PRIORITY, in the state and at tc in the packet.
 * @ctx: the packet
 * @st: its state
 * @priority: new skb_priority
 */
static __always_inline void exec_set_priority(hook_ctx *ctx, struct state *st, __u32 priority)
{
	st->priority = priority;
#if !AT_XDP
	ctx->priority = priority;
#endif
}

/**
 * exec_set_mark - Runs OP_SET_MARK, in the state and at tc in the packet.
 * @ctx: the packet
 * @st: its state
 * @value: new pkt_mark
 * @mask: bits of it that change
 */
static __always_inline void exec_set_mark(hook_ctx *ctx, struct state *st, __u32 value, __u32 mask)
{
	st->mark = merged(st->mark, value, mask);
#if !AT_XDP
	ctx->mark = st->mark;
#endif
}

#if !AT_XDP
/* Returns the bytes of the longest segment with its headers; 0 when that is unknown. */
static __always_inline __u32 exec_segment_length(hook_ctx *ctx)
{
	struct ip ip = {};
	__u8 words;

	if (find_ip(ctx, &ip))
		return 0;
	if (ip.proto == IPPROTO_UDP)
		return ctx->gso_size + ip.l4 + 8;
	if (ip.proto != IPPROTO_TCP || edit_load(ctx, ip.l4 + 12, &words, sizeof(words)))
		return 0;
	return ctx->gso_size + ip.l4 + (words >> 4) * 4;
}
#endif

/* Returns the length that check_pkt_len compares: without the outermost tag; of a packet that is
 * still to be segmented, that of the longest segment. */
static __always_inline __u32 exec_checked_length(hook_ctx *ctx, const struct state *st)
{
	__u32 length = data_length(ctx);
#if !AT_XDP
	__u32 segment = 0;

	if (is_gso(ctx))
		segment = st->segment ? st->segment : exec_segment_length(ctx);

	if (segment && segment < length)
		length = segment;
#endif
	if (st->bare)
		return length - ETH_HLEN;
	return !has_tag(ctx) && tag_is_in_frame(ctx) ? length - 4 : length;
}

/**
 * exec_bond - Chooses the member of a bond for a packet, and counts the packet there.
 * @ctx: the packet; at tc, pointers into it become invalid
 * @id: of the bond
 *
 * A function of its own, for the verifier.
 *
 * Return: number of the port, or -1 when no member sends the packet.
 */
__noinline int exec_bond(hook_ctx *ctx, __u32 id)
{
	struct state *st = state_here();
	__u32 place = bond_place(id), hash, kept, member;
	struct bond *bond = bpf_map_lookup_elem(&bonds, &place);

	if (!st || !bond)
		return -1;
	kept = st->dp_hash;
	exec_hash(ctx, 1, bond->basis);
	hash = st->dp_hash;
	st->dp_hash = kept;
	member = bond_member(bond, hash);
	if (member != NO_PORT)
		bond_count(place, hash, frame_length(ctx));
	return member;
}

/**
 * exec_output - Runs an OP_OUTPUT that sends the packet itself, which ends it.
 * @ctx: the packet
 * @st: its state
 * @port: number of the port, or OUTPUT_BOND | id of a bond
 *
 * Return: the verdict.
 */
static __always_inline int exec_output(hook_ctx *ctx, struct state *st, __u32 port)
{
	bool is_bond = port & OUTPUT_BOND;

	if (st->bare)
		return drop(DROP_MALFORMED);
	if (is_bond) {
		port = exec_bond(ctx, port & ~OUTPUT_BOND);
		if (port == NO_PORT)
			return drop(DROP_INVALID_BOND);
	}
#if AT_XDP
	if (st->trunc && st->trunc < data_length(ctx) && frame_resize(ctx, st->trunc))
		return drop(DROP_MALFORMED); /* shorter than an Ethernet header */
#endif
	if (!output_fits_segments(st, port))
		return VERDICT_DROP;
	if (!is_bond) /* a result has one port */
		chain_end(ctx, st, st->flow, port);
	return output(ctx, port, st->in_port, st->no_peer ? 0 : st->covered);
}

#if !AT_XDP

/* The part of a state that a copy must not change. Of the key only the metadata of a tunnel and of
 * connection tracking is saved: a new lookup writes the rest again. */
#define SAVED_FROM __builtin_offsetof(struct state, key[PORT_WORDS])

struct saved {
	__u64 words[(sizeof(struct state) - SAVED_FROM) / 8];
};

_Static_assert(sizeof(struct state) % 8 == 0, "whole words");

/* The states that a CPU has saved. The kernel sends at most 8 packets within each other
 * (XMIT_RECURSION_LIMIT). */
#define SAVED_STATES 8
struct saved_states {
	__u64 count;
	struct saved states[SAVED_STATES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct saved_states);
} saved SEC(".maps");

/**
 * state_save - Saves a state before a copy is sent, whose way may lead through these programs again.
 * @st: the state
 *
 * Return: the saved part, for state_restore(); NULL when there is no room.
 */
static __always_inline struct saved *state_save(const struct state *st)
{
	struct saved_states *all;
	struct saved *kept;
	__u32 zero = 0;
	__u64 at;

	all = bpf_map_lookup_elem(&saved, &zero);
	if (!all)
		return 0;
	at = all->count;
	opaque(at);
	if (at >= SAVED_STATES)
		return 0;
	opaque(at);
	kept = &all->states[at];
	all->count++;
	__builtin_memcpy(kept, &st->key[PORT_WORDS], sizeof(*kept));
	return kept;
}

/* Restores a state that state_save() saved last. */
static __always_inline void state_restore(struct state *st, const struct saved *kept)
{
	struct saved_states *all;
	__u32 zero = 0;

	__builtin_memcpy(&st->key[PORT_WORDS], kept, sizeof(*kept));
	all = bpf_map_lookup_elem(&saved, &zero);
	if (all)
		all->count--;
}

#endif

/**
 * exec_copy - Runs an OP_OUTPUT that sends a copy of the packet.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @port: number of the port, OUTPUT_BOND | id of a bond, or OUTPUT_UP | number of a sample
 */
static __always_inline void exec_copy(hook_ctx *ctx, struct state *st, __u32 port)
{
#if AT_XDP
	count_drop(DROP_UNSUPPORTED); /* XDP copies only by OP_COPIES */
#else
	struct saved *kept;

	if (port & OUTPUT_UP) {
		up_send(ctx, st);
		return;
	}
	if (st->bare) {
		count_drop(DROP_MALFORMED);
		return;
	}
	if (port & OUTPUT_BOND) {
		port = exec_bond(ctx, port & ~OUTPUT_BOND);
		if (port == NO_PORT) {
			count_drop(DROP_INVALID_BOND);
			return;
		}
	}
	if (!output_fits_segments(st, port))
		return;
	kept = state_save(st);
	if (!kept) {
		count_drop(DROP_UNSUPPORTED);
		return;
	}
	output_copy(ctx, port);
	state_restore(st, kept);
#endif
}

/**
 * exec_recirculate - Runs OP_RECIRC: looks the packet up again.
 * @ctx: the packet
 * @st: its state
 * @id: new recirculation id
 *
 * Return: the verdict.
 */
static __always_inline int exec_recirculate(hook_ctx *ctx, struct state *st, __u32 id)
{
	if (st->depth >= RECIRCULATION_LIMIT)
		return drop(DROP_RECIRCULATION);
	st->depth++;
	st->recirc_id = id;
	st->trunc = 0;
	return tail_call(ctx, TAIL_RECIRC);
}

#if AT_XDP

/* Leaves a packet, as it arrived, at an instruction that cannot run; returns the verdict. Lists in which that
 * may happen after a change have `again`. */
static __always_inline int exec_leave(hook_ctx *ctx, struct state *st)
{
	struct program *p = bpf_map_lookup_elem(&programs, &st->program);

	if ((st->depth || st->pc) && (!p || !p->again || undo_restore(ctx)))
		return drop(DROP_UNSUPPORTED);
	st->deferred = 0;
	COUNT(passed);
	return VERDICT_NONE;
}

#else

/* Sends a packet up, at an instruction that cannot run; returns the verdict. */
static __always_inline int exec_leave(hook_ctx *ctx, struct state *st)
{
	st->resumes = 1;
	return tail_call(ctx, TAIL_MISS);
}

#endif

/**
 * exec_step - Runs an instruction that does not end the packet.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @i: the instruction
 * @cells: its length with operands
 * @verdict: set when the result is negative
 *
 * Return: cells to advance by, or -1 when the packet is dropped.
 */
static __always_inline int exec_step(hook_ctx *ctx, struct state *st, const struct instruction *i,
				     __u32 cells, int *verdict)
{
	__u64 operand = i->operands->cells[0];
	int err;

	switch (i->op) {
	case OP_SET_PRIORITY:
		exec_set_priority(ctx, st, i->b);
		return cells;
	case OP_SET_MARK:
		exec_set_mark(ctx, st, operand, operand >> 32);
		return cells;
	case OP_HASH:
		exec_hash(ctx, i->a, i->b);
		return cells;
	case OP_TRUNC:
		st->trunc = i->b ? i->b : 1;
		return cells;
	case OP_SAMPLE:
		if (i->b == ~0u || bpf_get_prandom_u32() < i->b)
			return cells;
		return cells + i->a;
	case OP_METER:
		if (meter_pass(i->b, packet_length(ctx, st)))
			return cells;
		*verdict = drop(DROP_METER);
		return -1;
	case OP_CHECK_LEN:
		return exec_checked_length(ctx, st) > i->b ? cells + i->a : cells;
	case OP_OUTPUT:
		exec_copy(ctx, st, i->b);
		return cells;
	case OP_CT_CLEAR:
		st->tracked = 0;
		st->ct_cached = 0;
		return cells;
	}
	if (1u << i->op & (IP_OPS | 1u << OP_HEADER))
		st->ct_cached = 0; /* the packet may be of another connection now */
	if (1u << i->op & IP_OPS) {
		err = exec_edit_ip(ctx, i->op, i->a, i->b, i->operands);
	} else {
		err = exec_edit(ctx, st, i);
	}
	if (!err)
		return cells;
	*verdict = err == LEAVES ? exec_leave(ctx, st) : drop(err - 1);
	return -1;
}

/**
 * exec_once - Runs the next instruction.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state, whose `pc` advances
 * @go_on: becomes true when more instructions follow
 *
 * Return: the verdict, if `go_on` is not set.
 */
static __always_inline int exec_once(hook_ctx *ctx, struct state *st, bool *go_on)
{
	struct instruction i;
	struct program *p;
	const __u64 *cell;
	__u32 pc = st->pc, cells;
	int verdict, advance;

	p = bpf_map_lookup_elem(&programs, &st->program);
	if (!p || pc >= CELLS)
		return drop(DROP_UNSUPPORTED);
	if (!pc && !st->depth)
		st->covered = ETH_HLEN;
	cell = &p->cells[pc];
#if !AT_XDP
	if ((*cell & 31) == OP_COPIES) {
		pc++;
		cell++;
	}
#endif
	i.op = *cell & 31;
	cells = *cell >> 8 & 0xff;
	i.a = *cell >> 16 & 0xffff;
	i.b = *cell >> 32;
	i.operands = (const struct operands *)(cell + 1);
	if (i.op == OP_END)
		return VERDICT_DROP;
	if (i.op == OP_DROP)
		return drop(i.b);
	if (i.op == OP_RECIRC)
		return exec_recirculate(ctx, st, i.b);
	if (i.op == OP_CT)
		return tail_call(ctx, TAIL_CT);
	if (i.op >= OP_TUN_PUSH)
		return tail_call(ctx, TAIL_TUN_PUSH);
	if (i.op == OP_OUTPUT && i.a)
		return exec_output(ctx, st, i.b);
#if AT_XDP
	if (i.op == OP_COPIES)
		return st->bare ? drop(DROP_MALFORMED) : exec_copies(p);
#endif
	advance = exec_step(ctx, st, &i, cells, &verdict);
	if (advance < 0)
		return verdict;
	st->pc = pc + advance;
	*go_on = true;
	return VERDICT_DROP;
}

/**
 * exec - The program in TAIL_EXEC: runs one instruction, and goes on to the next.
 * @ctx: the packet
 *
 * Return: the verdict.
 */
static __always_inline int exec(hook_ctx *ctx)
{
	struct state *st = state_here();
	bool go_on = false;
	int verdict;

	if (!st)
		return VERDICT_DROP;
	st->calls++;
	verdict = exec_once(ctx, st, &go_on);
	if (go_on)
		return tail_call(ctx, TAIL_EXEC);
	deferred_counts_flush(st);
	return verdict;
}

#endif
