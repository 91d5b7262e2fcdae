/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tc: makes connections with a translation of a range, as conntrack's nat.rs does it. */
#ifndef SLIPSWITCH_CT_CHOOSE_H
#define SLIPSWITCH_CT_CHOOSE_H

#include "ct_nat.h"

/* Candidates that are tried here; the daemon tries more. */
#define CT_CANDIDATES 16

/* A result in addition to enum ct_made: the daemon has to try. */
#define CT_NOT_TRIED (-1)

/* The range of an OP_CT. */
struct ct_range {
	const __u64 *addresses;
	__u32 low; /* ports */
	__u32 span;
};

/* Finds the range in the operands. */
static __always_inline void ct_read_range(struct ct_range *r, __u32 flags, const struct operands *o)
{
	const __u64 *next = &o->cells[0];
	__u32 low, high;

	if (flags & CT_OP_MARK)
		next += 1;
	if (flags & CT_OP_LABEL)
		next += 4;
	r->addresses = next;
	if (flags & CT_OP_ADDRESSES)
		next += flags & CT_OP_IPV6 ? 4 : 1;
	low = *next & 0xffff;
	high = *next >> 16 & 0xffff;
	r->low = low;
	r->span = (high > low ? high - low : 0) + 1;
}

/* Returns a hash of an address without a seed. */
static __always_inline __u32 ct_persistent_hash(const __u64 *address)
{
	__u64 mixed = (address[0] ^ address[1]) * 0x9e3779b97f4a7c15ull;

	return ((mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull) >> 32;
}

/* Returns the number by which a range is chosen from. */
static __always_inline __u32 ct_choice(const struct ct_tuple *original, __u32 flags)
{
	if (flags & CT_OP_RANDOM)
		return bpf_get_prandom_u32();
	if (flags & CT_OP_PERSISTENT)
		return ct_persistent_hash(original->src);
	return ct_entry(original, 0) >> 32;
}

/**
 * ct_pick_ipv4 - Chooses an IPv4 address of a range.
 * @address: the address that changes; becomes the chosen one
 * @cells: first and last address
 * @hash: by which to choose
 *
 * Return: false when the range is none.
 */
static __always_inline bool ct_pick_ipv4(__u64 *address, const __u64 *cells, __u32 hash)
{
	__u64 low = (__u32)cells[0], high = cells[0] >> 32;

	if (low) {
		if (high < low)
			return false;
		address[1] = low + hash % (high - low + 1);
	}
	return true;
}

/* As ct_pick_ipv4(), of IPv6. Ranges beyond 32 bits use their first 2^32 addresses. */
static __always_inline bool ct_pick_ipv6(__u64 *address, const __u64 *cells, __u32 hash)
{
	__u64 low[2] = { cells[1], cells[0] }, high[2] = { cells[3], cells[2] }, span[2], offset;

	if (!(low[0] | low[1]))
		return true;
	if (high[0] < low[0] || (high[0] == low[0] && high[1] < low[1]))
		return false;
	span[1] = high[1] - low[1];
	span[0] = high[0] - low[0] - (high[1] < low[1]);
	if (span[0] || span[1] > 0xffffffff)
		span[1] = 0xffffffff;
	offset = hash % (span[1] + 1);
	address[1] = low[1] + offset;
	address[0] = low[0] + (address[1] < offset);
	return true;
}

/* Writes the reply tuple of `new` with the new address. Returns false when the range is none. */
static __always_inline bool ct_pick_address(struct ct_new *n, const struct ct_range *r, __u32 flags,
					    __u32 hash)
{
	bool v6 = n->original.kind & CT_KIND_V6;
	__u64 *address = flags & CT_OP_SRC ? n->reply.dst : n->reply.src;

	if (!(flags & CT_OP_ADDRESSES))
		return true;
	if (v6 != !!(flags & CT_OP_IPV6))
		return false;
	return v6 ? ct_pick_ipv6(address, r->addresses, hash) :
		    ct_pick_ipv4(address, r->addresses, hash);
}

/**
 * ct_candidate_port - Chooses a port that replaces one without a range, of the same class.
 * @own: the port, which is the first candidate
 * @number: of the candidate
 */
static __always_inline __u32 ct_candidate_port(__u32 own, __u32 number, __u32 *span)
{
	__u32 low = own < 512 ? 1 : own < 1024 ? 600 : 1024;
	__u32 high = own < 512 ? 511 : own < 1024 ? 1023 : 65535, start;

	*span = high - low + 2;
	if (!number)
		return own;
	start = own < 65535 ? own + 1 : own;
	start = start < low ? 0 : start - low;
	return low + (start + number - 1) % (high - low + 1);
}

/**
 * ct_set_candidate - Writes the ports of a candidate into the reply tuple of `new`.
 * @n: the connection
 * @r: the range
 * @flags: CT_OP_* of the instruction
 * @hash: by which to choose
 * @number: of the candidate
 *
 * Return: false when there are no more candidates here.
 */
static __always_inline bool ct_set_candidate(struct ct_new *n, const struct ct_range *r, __u32 flags,
					     __u32 hash, __u32 number)
{
	__u32 span = r->span, port;

	if (ct_is_icmp(&n->original)) {
		n->reply.sport = n->original.sport + number;
		return true;
	}
	if (n->original.proto != IPPROTO_TCP && n->original.proto != IPPROTO_UDP)
		return !number;
	if (flags & CT_OP_PORTS)
		port = r->low + (hash % span + number) % span;
	else
		port = ct_candidate_port(n->original.sport, number, &span);
	/* Replies come from the destination port and go to the source port. */
	if ((flags & (CT_OP_DST | CT_OP_PORTS)) == (CT_OP_DST | CT_OP_PORTS))
		n->reply.sport = port;
	else
		n->reply.dport = port;
	return number < span;
}

/**
 * ct_choose - Writes the reply tuple of a candidate into `new` of the scratch memory.
 * @flags: CT_OP_* of the instruction, with CT_OP_SRC or CT_OP_DST
 * @o: its operands
 * @hash: by which to choose
 * @number: of the candidate
 *
 * A function of its own, for the verifier.
 *
 * Return: 1, or 0 when there are no more candidates here.
 */
__noinline int ct_choose(__u32 flags, const struct operands *o, __u32 hash, __u32 number)
{
	struct ct_scratch *w = ct_scratch_here();
	struct ct_range r;

	if (!w || !o)
		return 0;
	ct_read_range(&r, flags, o);
	return ct_pick_address(&w->new, &r, flags, hash) &&
	       ct_set_candidate(&w->new, &r, flags, hash, number);
}

/**
 * ct_create_natted - Makes the connection `new` of the scratch memory with a translation.
 * @w: the memory
 * @flags: CT_OP_* of the instruction, with CT_OP_SRC or CT_OP_DST
 * @o: its operands
 *
 * Return: enum ct_made or CT_NOT_TRIED.
 */
static __always_inline int ct_create_natted(struct ct_scratch *w, __u32 flags,
					    const struct operands *o)
{
	__u32 hash;

	if (w->new.original.proto == IPPROTO_SCTP)
		return CT_NOT_TRIED;
	hash = ct_choice(&w->new.original, flags);
	w->new.flags |= flags & CT_OP_SRC ? CT_NAT_SRC : CT_NAT_DST;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < CT_CANDIDATES && ct_choose(flags, o, hash, i); i++) {
		int made;

		if (ct_find(&w->new.reply, w->new.now, &w->found))
			continue;
		made = ct_create(&w->new);
		/* When the original tuple is taken no candidate can succeed. */
		if (made != CT_CLASH || ct_find(&w->new.original, w->new.now, &w->found))
			return made;
	}
	return CT_NOT_TRIED;
}

#endif
