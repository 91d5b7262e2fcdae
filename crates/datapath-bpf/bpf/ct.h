/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* OP_CT: tracks a packet's connection, by the rules of conntrack's tracker.rs.
 *
 * Only packets that move no state of their connection are tracked here: those of established
 * connections, and more packets of a connection that has no reply yet. They refresh the connection,
 * and get its translation, mark and label.
 *
 * The other packets leave in the midst of their list of actions, and nothing was done to them or to
 * their connection. At XDP the frame is made equal to the one that arrived, and tc starts again: what
 * was done to connections can be done twice. At tc the next program moves states and makes connections
 * (ct_move.h). A packet that this one leaves, too, goes up with the place of the OP_CT, and the daemon
 * runs the list from there on (miss.h). The tracker in the daemon works on the same memory.
 *
 * Checksums of transport headers are not verified here.
 */
#ifndef SLIPSWITCH_CT_H
#define SLIPSWITCH_CT_H

#include "ct_advance.h"
#include "ct_nat.h"

/* Bits of ct_state. */
#define CT_STATE_NEW 1
#define CT_STATE_EST 2
#define CT_STATE_REL 4
#define CT_STATE_RPL 8
#define CT_STATE_INV 16
#define CT_STATE_TRK 32
#define CT_STATE_SNAT 64
#define CT_STATE_DNAT 128

/* A result of ct_track(): the packet is not tracked here, and nothing was done to it. */
#define CT_LEAVE (-1)

/* The words of a key from W_CT on. */
struct ct_fields {
	__u8 state;
	__u8 proto;
	__be16 zone;
	__be32 mark;
	__be64 label[2];
	__be32 nw_src;
	__be32 nw_dst;
	__be16 tp_src;
	__be16 tp_dst;
	__u32 zero;
	__be64 ipv6_src[2];
	__be64 ipv6_dst[2];
};

_Static_assert(sizeof(struct ct_fields) == CT_WORDS * 8, "the words of connections");

/* Returns the metadata of connection tracking. */
static __always_inline struct ct_fields *ct_fields_of(struct state *st)
{
	return (struct ct_fields *)&st->key[W_CT];
}

/* Sets the metadata of a packet that cannot be tracked. */
static __always_inline void ct_put_invalid(struct state *st, __u16 zone)
{
	struct ct_fields *f = ct_fields_of(st);

	st->tracked = 0;
	state_has_ct(st);
	f->state = CT_STATE_INV | CT_STATE_TRK;
	f->zone = bpf_htons(zone);
	st->tracked = 1;
	st->ct_cached = 0;
}

/* Returns the type of ICMP that a tuple stands for. */
static __always_inline __u16 ct_icmp_type(const struct ct_tuple *t)
{
	__u32 class = t->kind >> CT_KIND_CLASS_SHIFT & CT_KIND_CLASS_MASK;

	if (t->kind & CT_KIND_V6)
		return t->request ? 128 : 129;
	if (class == CT_CLASS_ECHO)
		return t->request ? 8 : 0;
	return (class == CT_CLASS_TIMESTAMP ? 13 : 15) + !t->request;
}

/* Writes the tuple of a connection's original direction into the metadata. */
static __always_inline void ct_put_tuple(struct ct_fields *f, const struct ct_tuple *t)
{
	bool v6 = t->kind & CT_KIND_V6;

	f->proto = t->proto;
	f->tp_src = bpf_htons(ct_is_icmp(t) ? ct_icmp_type(t) : t->sport);
	f->tp_dst = bpf_htons(t->dport);
	f->zero = 0;
	f->nw_src = v6 ? 0 : bpf_htonl((__u32)t->src[1]);
	f->nw_dst = v6 ? 0 : bpf_htonl((__u32)t->dst[1]);
	f->ipv6_src[0] = v6 ? bpf_cpu_to_be64(t->src[0]) : 0;
	f->ipv6_src[1] = v6 ? bpf_cpu_to_be64(t->src[1]) : 0;
	f->ipv6_dst[0] = v6 ? bpf_cpu_to_be64(t->dst[0]) : 0;
	f->ipv6_dst[1] = v6 ? bpf_cpu_to_be64(t->dst[1]) : 0;
}

/**
 * ct_put_conn - Writes a connection's mark, label and original tuple into the metadata; of an
 * expected one, the original tuple of its parent.
 * @slot: of the connection
 * @head: its head
 *
 * A function of its own, for the verifier.
 *
 * Return: 0, or -1 without state.
 */
__noinline int ct_put_conn(__u32 slot, __u64 head)
{
	struct ct_conn *c = ct_conn_at(slot);
	struct state *st = state_here();
	struct ct_tuple original;
	struct ct_fields *f;

	if (!c || !st)
		return -1;
	f = ct_fields_of(st);
	if (!(ct_flags(head) & CT_RELATED) || !ct_parent(&original, c))
		ct_original(&original, c, head);
	ct_put_tuple(f, &original);
	f->mark = bpf_htonl((__u32)ct_load(c->words[CT_CONN_MARK]));
	f->label[0] = bpf_cpu_to_be64(ct_load(c->words[CT_CONN_LABEL + 1]));
	f->label[1] = bpf_cpu_to_be64(ct_load(c->words[CT_CONN_LABEL]));
	return 0;
}

/* Sets one word of the label, of a connection and of a packet. */
static __always_inline void ct_set_label_word(struct ct_conn *c, const __u32 word, __be64 *field,
					      __u64 value, __u64 mask)
{
	__u64 old = bpf_be64_to_cpu(*field);

	if (!mask)
		return;
	*field = bpf_cpu_to_be64(merged(old, value, mask));
	ct_change(&c->words[CT_CONN_LABEL + word], value, mask);
}

/**
 * ct_set_mark_and_label - Sets mark and label, of a connection and in the metadata.
 * @slot: of the connection
 * @flags: CT_OP_* of the instruction
 * @o: its operands
 *
 * A function of its own, for the verifier: it has loops.
 *
 * Return: 0, or -1 without state.
 */
__noinline int ct_set_mark_and_label(__u32 slot, __u32 flags, const struct operands *o)
{
	struct ct_conn *c = ct_conn_at(slot);
	struct state *st = state_here();
	const __u64 *label;
	struct ct_fields *f;

	if (!c || !st || !o)
		return -1;
	f = ct_fields_of(st);
	label = &o->cells[0];
	if (flags & CT_OP_MARK) {
		__u32 value = o->cells[0], mask = o->cells[0] >> 32;

		f->mark = bpf_htonl(merged(bpf_ntohl(f->mark), value, mask));
		ct_change(&c->words[CT_CONN_MARK], value, mask);
		label = &o->cells[1];
	}
	if (flags & CT_OP_LABEL) {
		ct_set_label_word(c, 0, &f->label[1], label[0], label[2]);
		ct_set_label_word(c, 1, &f->label[0], label[1], label[3]);
	}
	return 0;
}

/* Returns the bit of ct_state for the translation of a direction; 0: there is none. */
static __always_inline __u8 ct_nat_bit(const struct ct_found *found)
{
	__u64 nat = ct_flags(found->head) & (CT_NAT_SRC | CT_NAT_DST);

	if (!nat)
		return 0;
	return !(nat & CT_NAT_SRC) == !found->reply ? CT_STATE_DNAT : CT_STATE_SNAT;
}

/* Returns the bit of ct_state for a connection that another one expected, else 0. */
static __always_inline __u8 ct_related_bit(const struct ct_found *found)
{
	return ct_flags(found->head) & CT_RELATED ? CT_STATE_REL : 0;
}

/**
 * ct_translated - Makes the tuple that packets of a direction get by their connection's translation.
 * @to: becomes the tuple
 * @found: the connection and the direction
 *
 * A function of its own, for the verifier.
 *
 * Return: 1, or 0 without a connection.
 */
__noinline int ct_translated(struct ct_tuple *to, const struct ct_found *found)
{
	struct ct_tuple opposite;
	struct ct_conn *c;

	if (!to || !found)
		return 0;
	c = ct_conn_at(found->slot);
	if (!c)
		return 0;
	if (found->reply)
		ct_original(&opposite, c, found->head);
	else
		ct_reply(&opposite, c, found->head);
	ct_reverse(to, &opposite);
	return 1;
}

/**
 * ct_recall - Finds the connection that an earlier OP_CT in the zone found for the packet.
 * @st: the packet's state
 * @zone: the zone
 * @flags: CT_OP_* of the instruction
 * @now: ct_now()
 * @found: becomes the connection
 *
 * Return: false when there is none.
 */
static __always_inline bool ct_recall(struct state *st, __u32 zone, __u32 flags, __u32 now,
				      struct ct_found *found)
{
	struct ct_conn *c;
	__u64 head;

	if (!st->ct_cached || st->ct_zone != zone || flags & CT_OP_FORCE)
		return false;
	c = ct_conn_at(st->ct_slot);
	if (!c)
		return false;
	head = ct_load(c->words[CT_CONN_HEAD]);
	if (!ct_is_live(head, now) || (__u16)(head >> CT_GENERATION_SHIFT) != st->ct_generation ||
	    ct_flags(head) & CT_DAEMON)
		return false;
	found->head = head;
	found->slot = st->ct_slot;
	found->reply = st->ct_cached == CT_CACHED_REPLY;
	return true;
}

/* Remembers the connection for the next OP_CT. */
static __always_inline void ct_remember(struct state *st, __u32 zone, const struct ct_found *found)
{
	st->ct_cached = found->reply ? CT_CACHED_REPLY : CT_CACHED;
	st->ct_zone = zone;
	st->ct_slot = found->slot;
	st->ct_generation = found->head >> CT_GENERATION_SHIFT;
}

/**
 * ct_lookup - Finds the connection of a packet.
 * @w: `tuple` is the packet's; `found` becomes the connection
 * @state: ct_state in this zone so far
 * @now: ct_now()
 *
 * A packet that was translated in this zone has the tuple that the other direction's packets
 * reverse.
 *
 * Return: true when the connection is one that is tracked here.
 */
static __always_inline bool ct_lookup(struct ct_scratch *w, __u32 state, __u32 now)
{
	bool natted = state & (CT_STATE_SNAT | CT_STATE_DNAT);

	if (natted)
		ct_reverse(&w->sought, &w->tuple);
	else
		w->sought = w->tuple;
	if (!ct_find(&w->sought, now, &w->found) || ct_flags(w->found.head) & CT_DAEMON)
		return false;
	if (natted)
		w->found.reply = !w->found.reply;
	return true;
}

/* Returns true when the packet can be translated here: not when the checksum is one of SCTP, which
 * may be over more bytes than can be read. */
static __always_inline bool ct_may_rewrite(const struct ct_scratch *w)
{
	return w->tuple.proto != IPPROTO_SCTP ||
	       (w->tuple.sport == w->to.sport && w->tuple.dport == w->to.dport);
}

/**
 * ct_track - Runs OP_CT.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @flags: CT_OP_* of the instruction
 * @zone: its zone
 * @o: its operands
 *
 * Return: EDITED, the reason to drop plus one, or CT_LEAVE.
 */
static __always_inline int ct_track(hook_ctx *ctx, struct state *st, __u32 flags, __u32 zone,
				    const struct operands *o)
{
	struct ct_scratch *w = ct_scratch_here();
	__be16 type = edit_ethertype(ctx, st);
	struct ct_fields *f = ct_fields_of(st);
	__u32 now = ct_now(), state;
	__u8 nat = 0;
	bool recalled;

	if (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6)) {
		ct_put_invalid(st, zone); /* only IP has connections */
		return EDITED;
	}
	if (!w)
		return FAILED;
	w->tuple.zone = zone;
	w->segment = (struct ct_segment){};
	state_has_ct(st);
	recalled = ct_recall(st, zone, flags, now, &w->found);
	state = recalled || f->zone == bpf_htons(zone) ? f->state : 0;
	if ((!recalled || flags & CT_OP_NAT) &&
	    ct_extract(ctx, &w->tuple, &w->segment) != CT_TUPLE)
		return CT_LEAVE;
	if (!recalled && !ct_lookup(w, state, now))
		return CT_LEAVE;
	if (flags & CT_OP_FORCE && w->found.reply)
		return CT_LEAVE;
	if (flags & CT_OP_NAT && !(state & (CT_STATE_SNAT | CT_STATE_DNAT)))
		nat = ct_nat_bit(&w->found);
	if (nat && (!ct_translated(&w->to, &w->found) || !ct_may_rewrite(w)))
		return CT_LEAVE;
	if (!recalled) {
		state |= ct_related_bit(&w->found);
		switch (ct_advance(&w->found, &w->tuple, &w->segment, now)) {
		case CT_STILL_NEW:
			state |= CT_STATE_NEW;
			break;
		case CT_ESTABLISHED:
			state = (state & ~CT_STATE_NEW) | CT_STATE_EST;
			state |= w->found.reply ? CT_STATE_RPL : 0;
			break;
		default:
			return CT_LEAVE;
		}
	}
	f->state = state | nat | CT_STATE_TRK;
	f->zone = bpf_htons(zone);
	st->tracked = 1;
	st->ct_cached = 0;
	if (!(flags & CT_OP_NAT))
		ct_remember(st, zone, &w->found);
	ct_put_conn(w->found.slot, w->found.head);
	if (flags & (CT_OP_MARK | CT_OP_LABEL) && !ct_related_bit(&w->found))
		ct_set_mark_and_label(w->found.slot, flags, o);
	if (settings.chains && st->chain == st->depth && state & CT_STATE_EST)
		chain_add(ctx, w->found.slot, w->found.head, w->found.reply);
	return nat && !ct_same(&w->to, &w->tuple) ? ct_rewrite(ctx, w) : EDITED;
}

#if !AT_XDP
/* Sends a packet up, at its OP_CT; returns the verdict. */
static __always_inline int ct_go_up(hook_ctx *ctx, struct state *st)
{
	st->resumes = 1;
	return tail_call(ctx, TAIL_MISS);
}
#endif

/**
 * ct_leave - Leaves a packet that is not tracked here.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state, at the OP_CT
 *
 * Return: the verdict.
 */
static __always_inline int ct_leave(hook_ctx *ctx, struct state *st)
{
#if AT_XDP
	if (undo_restore(ctx))
		return drop(DROP_UNSUPPORTED);
	COUNT(passed);
	return VERDICT_NONE;
#else
	bpf_tail_call_static(ctx, &tails, TAIL_CT_MOVE);
	/* The kernel refused that program: the daemon tracks the packet. */
	return ct_go_up(ctx, st);
#endif
}

/* Goes on to the instruction after the OP_CT of a cell; returns the verdict. */
static __always_inline int ct_next(hook_ctx *ctx, struct state *st, const __u64 *cell)
{
	st->pc += *cell >> 8 & 0xff;
	return tail_call(ctx, TAIL_EXEC);
}

/**
 * ct - The program in TAIL_CT: runs an OP_CT, and goes on to the instruction after it.
 * @ctx: the packet
 *
 * Return: the verdict.
 */
static __always_inline int ct(hook_ctx *ctx)
{
	struct state *st = state_here();
	const __u64 *cell;
	int err;

	if (!st)
		return VERDICT_DROP;
	cell = program_cell(st);
	if (!cell)
		return drop(DROP_UNSUPPORTED);
	err = ct_track(ctx, st, *cell >> 16 & 0xffff, *cell >> 32 & 0xffff,
		       (const struct operands *)(cell + 1));
	if (err == CT_LEAVE)
		return ct_leave(ctx, st);
	if (err) {
		deferred_counts_flush(st);
		return drop(err - 1);
	}
	return ct_next(ctx, st, cell);
}

#endif
