/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tc: OP_CT for the packets that ct.h leaves: those that move the state of their connection, those of
 * no connection, and those that make one. The rules are those of conntrack's tracker.rs.
 *
 * Transport checksums are verified first, because a forged packet could end a connection.
 *
 * These packets go up: those of a connection with a helper, and those that may be expected; ICMP
 * errors about translated packets; packets whose checksum takes too long to verify; those for whose
 * connection there is no free slot. To them nothing was done.
 */
#ifndef SLIPSWITCH_CT_MOVE_H
#define SLIPSWITCH_CT_MOVE_H

#include "ct.h"
#include "ct_choose.h"
#include "ct_tcp.h"
#include "ct_verify.h"

/* Attempts to end a connection that other packets refresh meanwhile. */
#define CT_END_TRIES 8
/* While half the rings of free slots are empty, one in this many packets of new connections goes up:
 * the daemon then fills the rings. */
#define CT_LOW_EVERY 64
/* Most bytes of TCP options. */
#define TCP_OPTIONS 40

/* Counts an event. */
static __always_inline void ct_event(const __u32 event)
{
	struct ct_config *config = ct_config_here();
	__u32 shard = bpf_get_smp_processor_id() % CT_CONFIG_SHARDS;

	if (config)
		ct_add(&config->words[CT_CONFIG_EVENTS + shard * CT_EVENTS + event], 1);
}

/**
 * ct_read_scale - Reads the window scale option of a SYN (RFC 7323, 2.2); the last one counts.
 * @ctx: the packet, which ct_extract() has accepted
 * @s: its `scale` is set
 *
 * A function of its own: the verifier reads the loop once.
 *
 * Return: 0, or -1 when the options cannot be read.
 */
__noinline int ct_read_scale(hook_ctx *ctx, struct ct_segment *s)
{
	struct ct_scratch *w = ct_scratch_here();
	struct ip ip = {};
	volatile __u32 *cursor;
	__u64 length;
	__u8 words;

	if (!w || !s || find_ip(ctx, &ip) || edit_load(ctx, ip.l4 + 12, &words, sizeof(words)))
		return -1;
	s->scale = 0;
	length = (words >> 4) * 4 - 20;
	if (!length || length > TCP_OPTIONS)
		return 0;
	/* Linux 6.1 has to see that the size is not zero. */
	length--;
	opaque(length);
	length = (length & 63) + 1;
	if (ip.l4 > MAX_OFFSET || bpf_skb_load_bytes(ctx, ip.l4 + 20, w->piece, length))
		return -1;
	/* The cursor is in memory: the verifier need not follow its values. */
	cursor = &w->cursor;
	*cursor = 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < TCP_OPTIONS; i++) {
		__u32 at = *cursor, kind = w->piece[at & 63], bytes = w->piece[(at + 1) & 63], shift;

		if (at >= length || !kind)
			break;
		if (kind == 1) {
			*cursor = at + 1;
			continue;
		}
		if (at + 1 >= length)
			break;
		shift = w->piece[(at + 2) & 63];
		if (kind == 3 && at + 2 < length)
			s->scale = CT_SCALE_KNOWN | (shift < CT_MOST_SHIFT ? shift : CT_MOST_SHIFT);
		*cursor = at + (bytes < 2 ? 2 : bytes);
	}
	return 0;
}

/* Returns a default timeout in seconds. */
static __always_inline __u64 ct_default_seconds(__u32 number)
{
	switch (number) {
	case CT_TCP_ESTABLISHED:
		return 86400;
	case CT_TCP_FIN_WAIT:
		return 900;
	case CT_TCP_TIME_WAIT:
		return 45;
	case CT_UDP_FIRST:
	case CT_UDP_SINGLE:
	case CT_ICMP_FIRST:
		return 60;
	default:
		return 30;
	}
}

/**
 * ct_ticks - Returns a timeout in ticks: ct_timeout() for a number that is no constant.
 * @policy: number of the policy
 * @number: of the timeout
 */
__noinline __u32 ct_ticks(__u32 policy, __u32 number)
{
	struct ct_policy *p = ct_policy_of(policy), *basic = ct_policy_of(0);
	__u32 word = number / 2 % CT_POLICY_WORDS, shift = number % 2 * 32, ticks = 0;

	if (p)
		ticks = ct_load(p->words[word]) >> shift;
	if (!ticks && basic)
		ticks = ct_load(basic->words[word]) >> shift;
	return ticks ? ticks : ct_ticks_of(ct_default_seconds(number));
}

/* Ends a connection, whatever happens to it meanwhile. */
static __always_inline void ct_end(const struct ct_found *found)
{
	struct ct_conn *c = ct_conn_at(found->slot);

	if (!c)
		return;
#pragma clang loop unroll(disable)
	for (int i = 0; i < CT_END_TRIES; i++) {
		__u64 head = ct_load(c->words[CT_CONN_HEAD]);

		if (ct_phase(head) != CT_LIVE || (head ^ found->head) << 16 >> 48 || ct_kill(c, head))
			return;
	}
}

/* Moves the state of a connection of another protocol than TCP; the result is as of ct_move_tcp(). */
static __always_inline __u32 ct_move_other(const struct ct_scratch *w)
{
	bool replied = ct_flags(w->found.head) & CT_REPLIED || w->found.reply;
	__u32 timeout;

	if (ct_is_icmp(&w->tuple))
		timeout = replied ? CT_ICMP_REPLY : CT_ICMP_FIRST;
	else
		timeout = replied ? CT_UDP_MULTIPLE : CT_UDP_SINGLE;
	return timeout << CT_MOVED_TIMEOUT_SHIFT |
	       (replied ? CT_UPDATE_ESTABLISHED | CT_MOVED_ASSURED : CT_UPDATE_STILL_NEW);
}

/* Moves the state of a connection of TCP, and counts what is invalid. */
static __always_inline __u32 ct_move_segment(const struct ct_scratch *w)
{
	__u32 moved = ct_move_tcp(w->found.slot, w->found.reply, &w->segment);

	if (ct_has_invalid_flags(&w->segment))
		ct_event(CT_EVENT_INVALID_FLAGS);
	if (moved & CT_MOVED_OUTSIDE) {
		if ((moved & CT_MOVED_UPDATE) == CT_UPDATE_INVALID)
			ct_event(CT_EVENT_SEQUENCE_FAILED);
		else
			ct_event(CT_EVENT_SEQUENCE_BYPASSED);
	}
	return moved;
}

/**
 * ct_move_conn - Moves the state of the connection that a packet belongs to.
 * @now: ct_now()
 *
 * The packet and the connection are in the scratch memory. A function of its own, for the verifier.
 *
 * Return: enum ct_update.
 */
__noinline __u32 ct_move_conn(__u32 now)
{
	struct ct_scratch *w = ct_scratch_here();
	__u32 moved, timeout, policy;
	__u64 class, set = 0;
	struct ct_conn *c;
	bool tcp;

	if (!w)
		return CT_UPDATE_INVALID;
	tcp = w->tuple.proto == IPPROTO_TCP;
	moved = tcp ? ct_move_segment(w) : ct_move_other(w);
	c = ct_conn_at(w->found.slot);
	timeout = moved >> CT_MOVED_TIMEOUT_SHIFT & 0xf;
	if (!c || timeout == CT_NO_TIMEOUT)
		return moved & CT_MOVED_UPDATE;
	if (w->found.reply)
		set = CT_REPLIED;
	else if (!tcp && !ct_is_icmp(&w->tuple))
		set = CT_MULTIPLE;
	if (moved & CT_MOVED_ASSURED)
		set |= CT_ASSURED;
	class = ct_load(c->words[CT_CONN_MARK]);
	if ((class >> CT_MARK_TIMEOUT_SHIFT & 0xf) != timeout)
		ct_change(&c->words[CT_CONN_MARK], (__u64)timeout << CT_MARK_TIMEOUT_SHIFT,
			  0xfull << CT_MARK_TIMEOUT_SHIFT);
	policy = class >> CT_MARK_POLICY_SHIFT & 0xfff;
	ct_refresh(w->found.slot, w->found.head, set, now + ct_ticks(policy, timeout));
	return moved & CT_MOVED_UPDATE;
}

/* Returns ct_state after a packet that did `update` to its connection. */
static __always_inline __u32 ct_state_after(__u32 state, __u32 update, bool reply)
{
	if (update == CT_UPDATE_INVALID)
		return CT_STATE_INV;
	if (update == CT_UPDATE_STILL_NEW)
		return state | CT_STATE_NEW;
	return (state & ~CT_STATE_NEW) | CT_STATE_EST | (reply ? CT_STATE_RPL : 0);
}

/* Returns true when half the rings of free slots are empty, from this CPU's on. */
static __always_inline bool ct_is_low(void)
{
	__u32 number = bpf_get_smp_processor_id();

#pragma clang loop unroll(disable)
	for (int i = 0; i < CT_RINGS / 2; i++, number++) {
		__u32 at = number % CT_RINGS;
		struct ct_ring *ring = bpf_map_lookup_elem(&ct_free, &at);

		if (ring && ct_load(ring->words[CT_RING_HEAD]) != ct_load(ring->words[CT_RING_TAIL]))
			return false;
	}
	return true;
}

/* Writes the connection that a packet begins into `new`, without NAT. */
static __always_inline void ct_describe(struct ct_scratch *w, __u32 flags, __u32 policy,
					const struct operands *o, __u32 now)
{
	struct ct_new *n = &w->new;
	const __u64 *label = &o->cells[flags & CT_OP_MARK ? 1 : 0];
	__u32 timeout = CT_UDP_FIRST;

	n->original = w->tuple;
	ct_reverse(&n->reply, &w->tuple);
	n->label[0] = flags & CT_OP_LABEL ? label[0] & label[2] : 0;
	n->label[1] = flags & CT_OP_LABEL ? label[1] & label[3] : 0;
	n->window[0] = n->window[1] = n->control = 0;
	n->mark = flags & CT_OP_MARK ? (__u32)o->cells[0] & (__u32)(o->cells[0] >> 32) : 0;
	n->flags = 0;
	n->now = now;
	n->pad = 0;
	if (w->tuple.proto == IPPROTO_TCP) {
		timeout = CT_TCP_SYN_SENT;
		ct_begin_tcp(n, &w->segment);
	} else if (ct_is_icmp(&w->tuple)) {
		timeout = CT_ICMP_FIRST;
	}
	policy &= 0xfff;
	n->class = policy | timeout << (CT_MARK_TIMEOUT_SHIFT - 32);
	n->timeout = ct_ticks(policy, timeout);
}

/* Counts the reason for which a connection was not made. */
static __always_inline void ct_count_failure(int made)
{
	switch (made) {
	case CT_FULL:
		return ct_event(CT_EVENT_FULL);
	case CT_FULL_ZONE:
		return ct_event(CT_EVENT_ZONE_FULL);
	case CT_FULL_HALF_OPEN:
	case CT_FULL_ZONE_HALF_OPEN:
		return ct_event(CT_EVENT_HALF_OPEN_FULL);
	case CT_FULL_BUCKET:
		return ct_event(CT_EVENT_BUCKET_FULL);
	default:
		return ct_event(CT_EVENT_OVERTAKEN);
	}
}

/* A bit of the result of ct_begin(): a connection was made, which is `found` of the scratch memory. */
#define CT_BEGUN 0x100

/**
 * ct_begin - Begins a connection with a packet, and makes it when the action commits.
 * @flags: CT_OP_* of the instruction
 * @policy: number of its timeout policy
 * @o: its operands
 * @now: ct_now()
 *
 * The packet is in the scratch memory. A function of its own, for the verifier.
 *
 * Return: ct_state, with CT_BEGUN; or CT_LEAVE.
 */
__noinline int ct_begin(__u32 flags, __u32 policy, const struct operands *o, __u32 now)
{
	struct ct_scratch *w = ct_scratch_here();
	struct ct_zone *zone;
	int made;

	if (!w || !o)
		return CT_LEAVE;
	zone = ct_zone_of(w->tuple.zone);
	if (!zone || ct_load(zone->words[CT_ZONE_EXPECTATIONS]))
		return CT_LEAVE;
	if (w->tuple.proto == IPPROTO_TCP && !ct_may_begin(&w->segment)) {
		if (ct_has_invalid_flags(&w->segment))
			ct_event(CT_EVENT_INVALID_FLAGS);
		return CT_STATE_INV;
	}
	if (ct_is_icmp(&w->tuple) && !w->tuple.request)
		return CT_STATE_INV;
	if (!(flags & CT_OP_COMMIT))
		return CT_STATE_NEW;
	if (ct_is_low() && !(bpf_get_prandom_u32() % CT_LOW_EVERY))
		return CT_LEAVE;
	ct_describe(w, flags, policy, o, now);
	if (flags & (CT_OP_SRC | CT_OP_DST))
		made = ct_create_natted(w, flags, o);
	else
		made = ct_create(&w->new);
	if (made == CT_MADE) {
		w->found = w->new.made;
		ct_reverse(&w->to, &w->new.reply);
		return CT_STATE_NEW | CT_BEGUN;
	}
	/* With `nat` alone another reply tuple may be free. */
	if (made == CT_NO_SLOT || made == CT_NOT_TRIED ||
	    (made == CT_CLASH && (flags & (CT_OP_NAT | CT_OP_SRC | CT_OP_DST)) == CT_OP_NAT))
		return CT_LEAVE;
	ct_count_failure(made);
	return CT_STATE_NEW;
}

/* Writes the metadata of a packet without a connection. */
static __always_inline void ct_put_none(struct ct_fields *f, const struct ct_tuple *t)
{
	ct_put_tuple(f, t);
	f->mark = 0;
	f->label[0] = f->label[1] = 0;
}

/**
 * ct_judge - Extracts the packet's tuple and segment into the scratch memory, and verifies the packet.
 * @ctx: the packet; pointers into it become invalid
 *
 * A function of its own, for the verifier.
 *
 * Return: CT_TUPLE, CT_ERROR, CT_INVALID, or CT_NO_TUPLE.
 */
__noinline int ct_judge(hook_ctx *ctx)
{
	struct ct_scratch *w = ct_scratch_here();
	int extracted, sum;

	if (!w)
		return CT_NO_TUPLE;
	extracted = ct_extract(ctx, &w->tuple, &w->segment);
	if (extracted == CT_NO_TUPLE)
		return CT_NO_TUPLE;
	if (extracted == CT_WRONG_IP) {
		ct_event(CT_EVENT_IP_CHECKSUM_WRONG);
		w->tuple.kind = 0;
		extracted = CT_INVALID;
	}
	if (extracted == CT_ERROR) {
		w->to = w->tuple;
		w->sought.zone = w->tuple.zone;
		extracted = ct_extract_quoted(ctx, &w->sought);
		if (extracted == CT_NO_TUPLE)
			return CT_NO_TUPLE;
		/* The error goes to the sender of the packet in it. */
		if (extracted == CT_TUPLE)
			extracted = w->to.dst[0] == w->sought.src[0] &&
				    w->to.dst[1] == w->sought.src[1] ? CT_ERROR : CT_INVALID;
		ct_reverse(&w->tuple, &w->sought);
	}
	sum = extracted == CT_INVALID ? CT_SUM_VERIFIED : ct_verify(ctx);
	if (sum == CT_SUM_UNKNOWN)
		return CT_NO_TUPLE;
	if (!(w->tuple.kind & CT_KIND_V6))
		ct_event(CT_EVENT_IP_CHECKSUM);
	if (sum != CT_SUM_GOOD)
		ct_event(CT_EVENT_CHECKSUM);
	if (sum == CT_SUM_WRONG) {
		ct_event(CT_EVENT_CHECKSUM_WRONG);
		return CT_INVALID;
	}
	if (w->segment.flags & TCP_SYN && ct_read_scale(ctx, &w->segment))
		return CT_NO_TUPLE;
	return extracted;
}

/**
 * ct_settle - Runs OP_CT for any packet. It reads the zone from the scratch memory where it can: Linux
 * 6.1 allows 512 bytes of stack for it and all that it calls.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @flags: CT_OP_* of the instruction
 * @zone: its zone
 * @policy: number of its timeout policy
 * @o: its operands
 *
 * Return: EDITED, the reason to drop plus one, or CT_LEAVE.
 */
static __always_inline int ct_settle(hook_ctx *ctx, struct state *st, __u32 flags, __u32 zone,
				     __u32 policy, const struct operands *o)
{
	struct ct_scratch *w = ct_scratch_here();
	struct ct_fields *f = ct_fields_of(st);
	__u32 now = ct_now(), state, update;
	bool natted, found, error;
	__u8 nat = 0;
	int result;

	if (!w)
		return FAILED;
	w->tuple.zone = zone;
	w->segment = (struct ct_segment){};
	state_has_ct(st);
	if (ct_recall(st, zone, flags, now, &w->found))
		return CT_LEAVE; /* its translation takes the daemon */
	state = f->zone == bpf_htons(zone) ? f->state : 0;
	result = ct_judge(ctx);
	if (result == CT_NO_TUPLE)
		return CT_LEAVE;
	if (result == CT_INVALID) {
		ct_put_invalid(st, w->tuple.zone);
		return EDITED;
	}
	natted = state & (CT_STATE_SNAT | CT_STATE_DNAT);
	error = result == CT_ERROR;
	if (error && natted)
		return CT_LEAVE;
	if (natted)
		ct_reverse(&w->sought, &w->tuple);
	else
		w->sought = w->tuple;
	found = ct_find(&w->sought, now, &w->found);
	if (found ? ct_flags(w->found.head) & CT_DAEMON : natted)
		return CT_LEAVE;
	if (natted)
		w->found.reply = !w->found.reply;
	if (found && flags & CT_OP_FORCE && w->found.reply) {
		ct_end(&w->found);
		found = false;
	}
	if (found && error) {
		if (flags & CT_OP_NAT && ct_nat_bit(&w->found))
			return CT_LEAVE; /* the packet in it is to be translated, too */
		state |= CT_STATE_REL | (w->found.reply ? CT_STATE_RPL : 0);
	} else if (found) {
		if (flags & CT_OP_NAT && ct_nat_bit(&w->found) &&
		    (!ct_translated(&w->to, &w->found) || !ct_may_rewrite(w)))
			return CT_LEAVE;
		update = ct_move_conn(now);
		found = update != CT_UPDATE_ANOTHER;
		if (found)
			state = ct_state_after(state | ct_related_bit(&w->found), update,
					       w->found.reply);
		else
			ct_end(&w->found);
	}
	if (!found && error) {
		state = CT_STATE_INV; /* errors begin no connection */
	} else if (!found) {
		result = ct_begin(flags, policy, o, now);
		if (result == CT_LEAVE)
			return CT_LEAVE;
		state = result & 0xff;
		found = result & CT_BEGUN;
	}
	st->tracked = 1;
	st->ct_cached = 0;
	f->zone = bpf_htons(w->tuple.zone);
	if (!found) {
		f->state = state | CT_STATE_TRK;
		ct_put_none(f, &w->tuple);
		return EDITED;
	}
	if (flags & CT_OP_NAT) {
		if (!(state & (CT_STATE_SNAT | CT_STATE_DNAT)))
			nat = ct_nat_bit(&w->found);
	} else if (!error) {
		ct_remember(st, w->tuple.zone, &w->found);
	}
	f->state = state | nat | CT_STATE_TRK;
	ct_put_conn(w->found.slot, w->found.head);
	if (flags & (CT_OP_MARK | CT_OP_LABEL) && !ct_related_bit(&w->found))
		ct_set_mark_and_label(w->found.slot, flags, o);
	return nat && !ct_same(&w->to, &w->tuple) ? ct_rewrite(ctx, w) : EDITED;
}

/**
 * ct_move - The program in TAIL_CT_MOVE: runs an OP_CT whose packet ct.h has left.
 * @ctx: the packet
 *
 * Return: the verdict.
 */
static __always_inline int ct_move(hook_ctx *ctx)
{
	struct state *st = state_here();
	const __u64 *cell;
	int err;

	if (!st)
		return VERDICT_DROP;
	cell = program_cell(st);
	if (!cell)
		return drop(DROP_UNSUPPORTED);
	err = ct_settle(ctx, st, *cell >> 16 & 0xffff, *cell >> 32 & 0xffff, *cell >> 48,
			(const struct operands *)(cell + 1));
	if (err == CT_LEAVE)
		return ct_go_up(ctx, st);
	if (err)
		return drop(err - 1);
	return ct_next(ctx, st, cell);
}

#endif
