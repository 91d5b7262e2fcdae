/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The whole state machine of TCP, as conntrack's tcp.rs has it. ct_advance.h has the part for
 * segments that move no state. */
#ifndef SLIPSWITCH_CT_TCP_H
#define SLIPSWITCH_CT_TCP_H

#include "ct_advance.h"
#include "ct_creation.h"

/* States of a peer. */
#define CT_PEER_SYN_SENT 2
#define CT_PEER_ESTABLISHED 4
#define CT_PEER_CLOSING 7
#define CT_PEER_FIN_WAIT_2 9
#define CT_PEER_TIME_WAIT 10

/* Times that an update begins again after another thread changed the state: machine.rs. */
#define CT_MOVE_TRIES 4

/* Effects of a packet on its connection, tcp.rs::Update. */
enum ct_update {
	CT_UPDATE_ESTABLISHED,
	CT_UPDATE_STILL_NEW,
	CT_UPDATE_INVALID,
	CT_UPDATE_ANOTHER, /* the connection is over, and the packet begins another one */
};

/* A result of ct_move_tcp(): the update, and these. */
#define CT_MOVED_UPDATE 3
#define CT_MOVED_TIMEOUT_SHIFT 4    /* number of the timeout that begins; CT_NO_TIMEOUT: none */
#define CT_MOVED_ASSURED (1 << 8)   /* both peers have their SYN acknowledged */
#define CT_MOVED_OUTSIDE (1 << 9)   /* the segment is outside the window */
#define CT_NO_TIMEOUT 0xf
#define CT_MOVED_AGAIN (1 << 10)    /* nothing was done: the state has changed meanwhile */

/* One peer of a connection. The members are whole words, as they lie in memory that a function gets. */
struct ct_peer {
	__u32 state;
	__u32 scale;   /* CT_SCALE_KNOWN and a shift, CT_SCALE_UNKNOWN, or 0 */
	__u32 sent;    /* the end of the data that it sent */
	__u32 allowed; /* the end of the data that the other peer lets it send */
	__u32 window;  /* the largest that it announced */
};

/* The peers of a connection, by the direction of a segment. */
struct ct_peers {
	struct ct_peer src; /* its sender */
	struct ct_peer dst;
};

/* Returns true for combinations of flags that no stack sends. */
static __always_inline bool ct_has_invalid_flags(const struct ct_segment *s)
{
	__u32 flags = s->flags;

	if (flags & TCP_SYN) {
		if (flags & (TCP_RST | TCP_FIN))
			return true;
	} else if (!(flags & (TCP_ACK | TCP_RST))) {
		return true;
	}
	return !(flags & TCP_ACK) && flags & (TCP_FIN | TCP_PSH | TCP_URG);
}

/* Returns true when a segment may begin a connection. */
static __always_inline bool ct_may_begin(const struct ct_segment *s)
{
	return !ct_has_invalid_flags(s) && (s->flags & (TCP_SYN | TCP_ACK)) != (TCP_SYN | TCP_ACK);
}

/* Returns a window in units of a shift, rounded up. */
static __always_inline __u32 ct_unscaled(__u32 window, __u32 shift)
{
	shift &= 0xf;
	return (window + (1u << shift) - 1) >> shift;
}

/* Returns a scale as the state machine has it. */
static __always_inline __u32 ct_scale(__u32 bits)
{
	__u32 shift = bits & 0xf;

	if (bits & CT_SCALE_KNOWN)
		return CT_SCALE_KNOWN | (shift < CT_MOST_SHIFT ? shift : CT_MOST_SHIFT);
	return bits & CT_SCALE_UNKNOWN;
}

/* Reads a peer of the control word: 0 is the one that began the connection. */
static __always_inline void ct_read_peer(struct ct_peer *p, __u64 control, __u32 number)
{
	p->state = control >> (number ? 4 : 0) & 0xf;
	if (p->state > CT_PEER_TIME_WAIT)
		p->state = CT_PEER_TIME_WAIT;
	p->scale = ct_scale(control >> (number ? 16 : 8) & 0xff);
	p->window = control >> (number ? 40 : 24) & 0xffff;
}

/* Returns a peer's part of the control word. */
static __always_inline __u64 ct_write_peer(const struct ct_peer *p, __u32 number)
{
	return (__u64)p->state << (number ? 4 : 0) | (__u64)p->scale << (number ? 16 : 8) |
	       (__u64)(p->window & 0xffff) << (number ? 40 : 24);
}

/* Returns the number of the timeout of a connection with these peers. */
static __always_inline __u32 ct_tcp_timeout(__u32 a, __u32 b)
{
	__u32 low = a < b ? a : b, high = a < b ? b : a;

	if (low >= CT_PEER_FIN_WAIT_2)
		return CT_TCP_CLOSE;
	if (low >= CT_PEER_CLOSING)
		return CT_TCP_TIME_WAIT;
	if (low < CT_PEER_ESTABLISHED)
		return CT_TCP_SYN_RECV;
	if (high >= CT_PEER_CLOSING)
		return CT_TCP_FIN_WAIT;
	return CT_TCP_ESTABLISHED;
}

/* Carries out the first segment of a peer. Sets the shifts of both; returns 1 when the segment sets the
 * data that the peer may send. */
static __always_inline __u32 ct_first_segment(struct ct_peer *src, struct ct_peer *dst,
					     const struct ct_segment *s, __u32 end, __u32 *window,
					     __u32 *src_shift, __u32 *dst_shift)
{
	__u32 shift = dst->scale & 0xf, allowed;
	__u32 sets = 0;

	if (s->flags & TCP_SYN && dst->scale & CT_SCALE_KNOWN) {
		src->scale = s->scale;
		if (src->scale) {
			*window = ct_unscaled(*window, src->scale);
			*src_shift = src->scale & 0xf;
			*dst_shift = shift;
		} else {
			/* Neither side scales then. */
			dst->window = (__u16)(dst->window << shift);
			dst->scale = 0;
		}
	}
	src->sent = s->seq;
	src->state = CT_PEER_SYN_SENT;
	allowed = dst->window << *dst_shift;
	allowed = end + (allowed ? allowed : 1);
	if (src->allowed == 1 || ct_at_or_after(allowed, src->allowed)) {
		src->allowed = allowed;
		sets = 1;
	}
	if (*window > src->window)
		src->window = *window;
	return sets;
}

/**
 * ct_update_tcp - Moves the state of both peers by a segment.
 * @p: the peers
 * @s: the segment
 * @check: 1: segments outside the window are invalid
 *
 * A function of its own, for the verifier: it has many branches.
 *
 * Return: as ct_move_tcp(), without CT_MOVED_ASSURED.
 */
__noinline __u32 ct_update_tcp(struct ct_peers *p, const struct ct_segment *s, __u32 check)
{
	const __u32 none = CT_NO_TIMEOUT << CT_MOVED_TIMEOUT_SHIFT;
	__u32 flags, window, seq, end, ack, scaled, src_shift = 0, dst_shift = 0, timeout, sets = 0;
	bool inside, close, tracked;
	struct ct_peer *src, *dst;
	__s64 skew;

	if (!p || !s)
		return CT_UPDATE_INVALID | none;
	src = &p->src;
	dst = &p->dst;
	flags = s->flags;
	window = s->window;
	seq = s->seq;
	if (ct_has_invalid_flags(s))
		return CT_UPDATE_INVALID | none;
	if ((flags & (TCP_SYN | TCP_ACK)) == TCP_SYN) {
		if (src->state >= CT_PEER_FIN_WAIT_2 && dst->state >= CT_PEER_FIN_WAIT_2)
			return CT_UPDATE_ANOTHER | none;
		if (src->state <= CT_PEER_SYN_SENT) {
			src->state = CT_PEER_SYN_SENT;
			return CT_UPDATE_STILL_NEW | CT_TCP_SYN_SENT << CT_MOVED_TIMEOUT_SHIFT;
		}
	}
	if (!(flags & TCP_SYN)) {
		src_shift = ct_shift(src->scale, dst->scale);
		dst_shift = ct_shift(dst->scale, src->scale);
	}
	end = seq + s->data + !!(flags & TCP_SYN) + !!(flags & TCP_FIN);
	if (src->state < CT_PEER_SYN_SENT)
		sets = ct_first_segment(src, dst, s, end, &window, &src_shift, &dst_shift);
	ack = s->ack;
	if (!(flags & TCP_ACK) || (!ack && flags & TCP_RST))
		ack = dst->sent;
	if (seq == end) /* segments without data are not held to their number */
		seq = end = src->sent;
	skew = sets ? 0 : (__s32)(dst->sent - ack);
	inside = ct_at_or_after(src->allowed, end) &&
		 ct_at_or_after(seq, src->sent - (dst->window << dst_shift)) &&
		 skew >= -(__s64)CT_ACK_SLACK && skew <= (__s64)CT_ACK_SLACK << src_shift &&
		 (!(flags & TCP_RST) || s->seq - src->sent + 1 <= 2);
	close = (dst->state < CT_PEER_SYN_SENT || dst->state >= CT_PEER_FIN_WAIT_2 ||
		 src->state >= CT_PEER_FIN_WAIT_2) &&
		ct_at_or_after(src->allowed + CT_ACK_SLACK, end) &&
		ct_at_or_after(seq, src->sent - CT_ACK_SLACK);
	tracked = inside || !check;
	if (!tracked && !close)
		return CT_UPDATE_INVALID | none | CT_MOVED_OUTSIDE;
	if (window > src->window)
		src->window = window;
	if (!ct_at_or_after(src->sent, end))
		src->sent = end;
	scaled = window << src_shift;
	if (ct_at_or_after(ack + scaled, dst->allowed))
		dst->allowed = ack + (scaled ? scaled : 1);
	if (flags & TCP_FIN && src->state < CT_PEER_CLOSING)
		src->state = CT_PEER_CLOSING;
	if (flags & TCP_ACK && tracked) {
		if (dst->state == CT_PEER_SYN_SENT)
			dst->state = CT_PEER_ESTABLISHED;
		else if (dst->state == CT_PEER_CLOSING)
			dst->state = CT_PEER_FIN_WAIT_2;
	}
	if (flags & TCP_RST)
		src->state = dst->state = CT_PEER_TIME_WAIT;
	/* A segment that only the looser rule admits does not prolong the connection. */
	timeout = tracked ? ct_tcp_timeout(src->state, dst->state) : CT_NO_TIMEOUT;
	return CT_UPDATE_ESTABLISHED | timeout << CT_MOVED_TIMEOUT_SHIFT |
	       (inside ? 0 : CT_MOVED_OUTSIDE);
}

/**
 * ct_try_move_tcp - Moves the state of a TCP connection by a segment, unless another thread changes the
 * control word meanwhile.
 * @slot: of the connection
 * @reply: 1: the segment is of the reply direction
 * @s: the segment
 * @check: 1: segments outside the window are invalid
 * @last: 1: packets of the other direction, which move another word of the window, may win
 *
 * A function of its own, for the verifier.
 *
 * Return: as ct_move_tcp(), or CT_MOVED_AGAIN.
 */
__noinline __u32 ct_try_move_tcp(__u32 slot, __u32 reply, const struct ct_segment *s, __u32 check,
				 __u32 last)
{
	struct ct_conn *c = ct_conn_at(slot);
	__u64 control, own, other, changed;
	__u64 *own_at, *other_at;
	struct ct_peers p;
	__u32 moved;

	if (!c || !s)
		return CT_UPDATE_INVALID | CT_NO_TIMEOUT << CT_MOVED_TIMEOUT_SHIFT;
	own_at = &c->words[reply ? CT_CONN_WINDOW + 1 : CT_CONN_WINDOW];
	other_at = &c->words[reply ? CT_CONN_WINDOW : CT_CONN_WINDOW + 1];
	control = ct_load(c->words[CT_CONN_CONTROL]);
	own = ct_load(*own_at);
	other = ct_load(*other_at);
	ct_read_peer(&p.src, control, reply);
	ct_read_peer(&p.dst, control, !reply);
	p.src.sent = own;
	p.src.allowed = other >> 32;
	p.dst.sent = other;
	p.dst.allowed = own >> 32;
	moved = ct_update_tcp(&p, s, check);
	if (p.src.state >= CT_PEER_ESTABLISHED && p.dst.state >= CT_PEER_ESTABLISHED)
		moved |= CT_MOVED_ASSURED;
	changed = ct_write_peer(&p.src, reply) | ct_write_peer(&p.dst, !reply);
	if (changed != control && !ct_exchange(&c->words[CT_CONN_CONTROL], control, changed) && !last)
		return CT_MOVED_AGAIN;
	changed = p.src.sent | (__u64)p.dst.allowed << 32;
	if (changed != own)
		ct_exchange(own_at, own, changed);
	changed = p.dst.sent | (__u64)p.src.allowed << 32;
	if (changed != other)
		ct_exchange(other_at, other, changed);
	return moved;
}

/**
 * ct_move_tcp - Moves the state of a TCP connection by a segment.
 * @slot: of the connection
 * @reply: 1: the segment is of the reply direction
 * @s: the segment
 *
 * Return: enum ct_update with CT_MOVED_*.
 */
static __always_inline __u32 ct_move_tcp(__u32 slot, __u32 reply, const struct ct_segment *s)
{
	struct ct_config *config = ct_config_here();
	__u32 moved = CT_MOVED_AGAIN, check;

	check = config && !(ct_load(config->words[CT_CONFIG_FLAGS]) & CT_NO_SEQUENCE_CHECK);
#pragma clang loop unroll(disable)
	for (int i = 1; i <= CT_MOVE_TRIES && moved == CT_MOVED_AGAIN; i++)
		moved = ct_try_move_tcp(slot, reply, s, check, i == CT_MOVE_TRIES);
	return moved;
}

/**
 * ct_begin_tcp - Sets the state after the first segment of a connection.
 * @n: the connection
 * @s: the segment; without a SYN the connection is picked up: its window scales are unknown
 */
static __always_inline void ct_begin_tcp(struct ct_new *n, const struct ct_segment *s)
{
	struct ct_peer source = { .state = CT_PEER_SYN_SENT, .scale = CT_SCALE_UNKNOWN };
	struct ct_peer other = { .allowed = 1, .window = 1, .scale = CT_SCALE_UNKNOWN };

	source.sent = s->seq;
	source.allowed = s->seq + s->data + 1 + !!(s->flags & TCP_FIN);
	if (s->flags & TCP_SYN) {
		source.allowed++;
		source.scale = s->scale;
		other.scale = 0;
	}
	/* The window of a SYN is not scaled. */
	source.window = s->window ? s->window : 1;
	if (source.scale & CT_SCALE_KNOWN)
		source.window = ct_unscaled(source.window, source.scale);
	n->window[0] = source.sent | (__u64)other.allowed << 32;
	n->window[1] = other.sent | (__u64)source.allowed << 32;
	n->control = ct_write_peer(&source, 0) | ct_write_peer(&other, 1);
}

#endif
