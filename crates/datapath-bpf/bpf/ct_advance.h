/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state machines of connections, for packets that move no state: those of established
 * connections, and more packets of a connection without a reply. crates/conntrack (machine.rs,
 * tcp.rs) has the rules. Everything else is for ct_move.h, or the daemon. */
#ifndef SLIPSWITCH_CT_ADVANCE_H
#define SLIPSWITCH_CT_ADVANCE_H

#include "ct_packet.h"
#include "ct_table.h"

/* Numbers of timeouts, conntrack::Timeout. */
#define CT_TCP_SYN_SENT 0
#define CT_TCP_SYN_RECV 1
#define CT_TCP_ESTABLISHED 2
#define CT_TCP_FIN_WAIT 3
#define CT_TCP_TIME_WAIT 4
#define CT_TCP_CLOSE 5
#define CT_UDP_FIRST 6
#define CT_UDP_SINGLE 7
#define CT_UDP_MULTIPLE 8
#define CT_ICMP_FIRST 9
#define CT_ICMP_REPLY 10

/* Both peers' states in CT_CONN_CONTROL: established. */
#define CT_CONTROL_STATES 0xff
#define CT_BOTH_ESTABLISHED 0x44
#define CT_SCALE_KNOWN 0x80
#define CT_SCALE_UNKNOWN 0x40
#define CT_MOST_SHIFT 14 /* RFC 7323, 2.3 */

/* Bytes by which an acknowledgement may differ from the data seen: a whole window and a segment. */
#define CT_ACK_SLACK (0xffff + 1500)

/* Attempts to change the control word that other threads win. */
#define CT_TCP_TRIES 2

/* Returns the shift of a peer's window; `other` is the other peer's scale. */
static __always_inline __u32 ct_shift(__u32 scale, __u32 other)
{
	__u32 shift = scale & 0xf;

	if (scale & other & CT_SCALE_KNOWN)
		return shift < CT_MOST_SHIFT ? shift : CT_MOST_SHIFT;
	if ((scale | other) & CT_SCALE_KNOWN)
		return 0;
	return scale & other & CT_SCALE_UNKNOWN ? CT_MOST_SHIFT : 0;
}

/* Returns true when sequence number `a` is at or after `b`. */
static __always_inline bool ct_at_or_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) >= 0;
}

/**
 * ct_advance_tcp - Tracks the window of an established TCP connection.
 * @slot: of the connection
 * @reply: 1: the segment is of the reply direction
 * @s: the segment
 *
 * A direction's packets move one word: the end of the data that its sender sent, and the end of
 * the data that the receiver may send. A function of its own, for the verifier.
 *
 * Return: 1, or 0 when the segment moves the state, or is outside the window; nothing is changed.
 */
__noinline int ct_advance_tcp(__u32 slot, __u32 reply, const struct ct_segment *s)
{
	struct ct_conn *c = ct_conn_at(slot);
	__u64 *own_at, *other_at;

	if (!c || !s || (s->flags & (TCP_SYN | TCP_FIN | TCP_RST | TCP_ACK)) != TCP_ACK)
		return 0;
	own_at = &c->words[reply ? CT_CONN_WINDOW + 1 : CT_CONN_WINDOW];
	other_at = &c->words[reply ? CT_CONN_WINDOW : CT_CONN_WINDOW + 1];
#pragma clang loop unroll(disable)
	for (int i = 1; i <= CT_TCP_TRIES; i++) {
		__u64 control = ct_load(c->words[CT_CONN_CONTROL]), changed = control;
		__u64 own = ct_load(*own_at), other = ct_load(*other_at);
		__u32 sent = own, allowed = other >> 32;
		__u32 peer_sent = other, peer_allowed = own >> 32;
		__u32 scale = control >> (reply ? 16 : 8) & 0xff;
		__u32 peer_scale = control >> (reply ? 8 : 16) & 0xff;
		__u32 window_at = reply ? 40 : 24;
		__u32 largest = control >> window_at & 0xffff;
		__u32 peer_largest = control >> (reply ? 24 : 40) & 0xffff;
		__u32 shift = ct_shift(scale, peer_scale);
		__u32 peer_shift = ct_shift(peer_scale, scale);
		__u32 seq = s->seq, end = seq + s->data, scaled;
		__s64 skew = (__s32)(peer_sent - s->ack);

		if ((control & CT_CONTROL_STATES) != CT_BOTH_ESTABLISHED)
			return 0;
		if (seq == end) /* segments without data are not held to their number */
			seq = end = sent;
		if (!ct_at_or_after(allowed, end) ||
		    !ct_at_or_after(seq, sent - (peer_largest << peer_shift)) ||
		    skew < -(__s64)CT_ACK_SLACK || skew > (__s64)CT_ACK_SLACK << shift)
			return 0;
		if (s->window > largest)
			changed = (control & ~(0xffffull << window_at)) | (__u64)s->window << window_at;
		if (!ct_at_or_after(sent, end))
			sent = end;
		scaled = (__u32)s->window << shift;
		if (ct_at_or_after(s->ack + scaled, peer_allowed))
			peer_allowed = s->ack + (scaled ? scaled : 1);
		if (changed != control &&
		    !ct_exchange(&c->words[CT_CONN_CONTROL], control, changed) && i < CT_TCP_TRIES)
			continue;
		changed = sent | (__u64)peer_allowed << 32;
		if (changed != own)
			ct_exchange(own_at, own, changed);
		return 1;
	}
	return 0;
}

/* Returns a time in ticks, rounded up. */
static __always_inline __u32 ct_ticks_of(__u64 seconds)
{
	return (seconds * 1000000000ull + (1ull << CT_TICK_SHIFT) - 1) >> CT_TICK_SHIFT;
}

/* Returns a timeout in ticks: `number` of `policy`, else of the default policy, else `seconds`. */
static __always_inline __u32 ct_timeout(__u32 policy, const __u32 number, const __u64 seconds)
{
	struct ct_policy *p = ct_policy_of(policy), *basic = ct_policy_of(0);
	__u32 ticks = 0;

	if (p)
		ticks = ct_load(p->words[number / 2]) >> (number % 2 * 32);
	if (!ticks && basic)
		ticks = ct_load(basic->words[number / 2]) >> (number % 2 * 32);
	if (ticks)
		return ticks;
	return ct_ticks_of(seconds);
}

/* Results of ct_advance(). */
#define CT_LEFT 0 /* for ct_move.h */
#define CT_STILL_NEW 1
#define CT_ESTABLISHED 2

/**
 * ct_advance - Carries out what a packet does to its connection.
 * @found: the connection and the direction
 * @t: the packet's tuple
 * @s: its TCP segment
 * @now: ct_now()
 *
 * Return: CT_LEFT, and nothing is changed, unless the packet leaves the state as it is.
 */
static __always_inline int ct_advance(const struct ct_found *found, const struct ct_tuple *t,
				      const struct ct_segment *s, __u32 now)
{
	const __u64 settled = CT_ASSURED | CT_REPLIED;
	struct ct_conn *c = ct_conn_at(found->slot);
	__u64 class, flags = ct_flags(found->head);
	bool replied = (flags & settled) == settled;
	__u32 present, policy, ticks;

	if (!c)
		return CT_LEFT;
	class = ct_load(c->words[CT_CONN_MARK]);
	present = class >> CT_MARK_TIMEOUT_SHIFT & 0xf;
	policy = class >> CT_MARK_POLICY_SHIFT & 0xfff;
	if (t->proto == IPPROTO_TCP) {
		if (!(flags & CT_ASSURED) || present != CT_TCP_ESTABLISHED ||
		    (found->reply && !replied) || !ct_advance_tcp(found->slot, found->reply, s))
			return CT_LEFT;
		ticks = ct_timeout(policy, CT_TCP_ESTABLISHED, 86400);
	} else if (ct_is_icmp(t)) {
		if (!replied || present != CT_ICMP_REPLY)
			return CT_LEFT;
		ticks = ct_timeout(policy, CT_ICMP_REPLY, 30);
	} else if (!found->reply && !(flags & CT_MULTIPLE)) {
		return CT_LEFT;
	} else if (replied) {
		if (present != CT_UDP_MULTIPLE)
			return CT_LEFT;
		ticks = ct_timeout(policy, CT_UDP_MULTIPLE, 30);
	} else {
		if (found->reply || flags & settled || present != CT_UDP_SINGLE)
			return CT_LEFT;
		ct_touch(found, 0, ct_timeout(policy, CT_UDP_SINGLE, 60), now);
		return CT_STILL_NEW;
	}
	ct_touch(found, 0, ticks, now);
	return CT_ESTABLISHED;
}

#endif
