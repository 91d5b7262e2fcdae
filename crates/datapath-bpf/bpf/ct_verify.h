/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tc: verifies the checksum of a transport header, as conntrack's extract.rs does it. */
#ifndef SLIPSWITCH_CT_VERIFY_H
#define SLIPSWITCH_CT_VERIFY_H

#include "ct_nat.h"

/* Results of ct_verify(). */
#define CT_SUM_WRONG 0
#define CT_SUM_GOOD 1
#define CT_SUM_VERIFIED 2 /* good, and it took a computation */
#define CT_SUM_UNKNOWN 3  /* the daemon has to verify it */

/* Pieces of CT_PIECE bytes that are summed here. Longer packets are for the daemon. */
#define CT_SUM_PIECES 4

/* Adds the pseudo header of a packet to a sum; returns not 0 when it is cut off. */
static __always_inline int ct_add_pseudo(hook_ctx *ctx, const struct ip *ip, __u64 *sum)
{
	__u32 words[8] = {};

	if (ip->v6 ? edit_load(ctx, ip->l3 + 8, words, 32) : edit_load(ctx, ip->l3 + 12, words, 8))
		return -1;
#pragma unroll
	for (int i = 0; i < 8; i++)
		*sum += words[i];
	*sum += bpf_htons(ip->proto) + bpf_htons((__u16)(ip->end - ip->l4));
	return 0;
}

/**
 * ct_sum - Sums the bytes of a packet from its transport header on.
 * @ctx: the packet
 * @at: offset of the transport header
 * @end: end of the packet
 *
 * Return: the sum, of words as they lie in memory; negative when the packet is too long or cut off.
 */
__noinline __s64 ct_sum(hook_ctx *ctx, __u32 at, __u32 end)
{
	struct ct_scratch *w = ct_scratch_here();
	__s64 sum = 0;

	if (!w)
		return -1;
#pragma clang loop unroll(disable)
	for (int i = 0; i < CT_SUM_PIECES; i++) {
		__u64 last = end - at, size;

		if (!last || at > MAX_OFFSET)
			break;
		if (last > CT_PIECE)
			last = CT_PIECE;
		/* Linux 6.1 has to see that the size is not zero. */
		last--;
		opaque(last);
		size = (last & (CT_PIECE - 1)) + 1;
		last &= CT_PIECE - 4;
		*(__u32 *)&w->piece[last] = 0; /* an odd byte is padded */
		if (bpf_skb_load_bytes(ctx, at, w->piece, size))
			return -1;
		sum = bpf_csum_diff(0, 0, (__be32 *)w->piece, last + 4, sum);
		if (sum < 0)
			return -1;
		at += size;
	}
	return at == end ? sum : -1;
}

/* Returns the offset of the checksum in a transport header; 0: the protocol has none. */
static __always_inline __u32 ct_sum_place(const struct ip *ip)
{
	switch (ip->proto) {
	case IPPROTO_TCP:
		return 16;
	case IPPROTO_UDP:
		return 6;
	case IPPROTO_SCTP:
		return 8;
	case IPPROTO_ICMP:
		return ip->v6 ? 0 : 2;
	case PROTO_ICMPV6:
		return ip->v6 ? 2 : 0;
	default:
		return 0;
	}
}

/**
 * ct_verify - Verifies the checksum of the packet's transport header.
 * @ctx: the packet, which ct_extract() has accepted; pointers into it become invalid
 *
 * A checksum that a device verified or will complete is good. One that equals the sum of the pseudo
 * header is probably unfinished: that is checked before the bytes are summed.
 *
 * Return: CT_SUM_*.
 */
__noinline int ct_verify(hook_ctx *ctx)
{
	__u64 pseudo = 0, total;
	struct ip ip = {};
	__u32 place;
	__u16 field;
	__s64 sum;

	if (find_ip(ctx, &ip))
		return CT_SUM_UNKNOWN;
	place = ct_sum_place(&ip);
	if (!place)
		return CT_SUM_GOOD;
	if (edit_load(ctx, ip.l4 + place, &field, sizeof(field)))
		return CT_SUM_UNKNOWN;
	if (ip.proto == IPPROTO_UDP && !ip.v6 && !field)
		return CT_SUM_VERIFIED;
	if (is_gso(ctx) || bpf_csum_level(ctx, BPF_CSUM_LEVEL_QUERY) >= 0)
		return CT_SUM_GOOD;
	if (ip.proto == IPPROTO_SCTP)
		return checksum_is_unfinished(ctx, ip.l4 + place) ? CT_SUM_GOOD : CT_SUM_UNKNOWN;
	if ((ip.proto != IPPROTO_ICMP || ip.v6) && ct_add_pseudo(ctx, &ip, &pseudo))
		return CT_SUM_UNKNOWN;
	if (field == checksum_fold(pseudo) && checksum_is_unfinished(ctx, ip.l4 + place))
		return CT_SUM_GOOD;
	sum = ct_sum(ctx, ip.l4, ip.end);
	if (sum >= 0) {
		total = pseudo + sum;
		if (checksum_fold(total) == 0xffff)
			return CT_SUM_VERIFIED;
	}
	if (checksum_is_unfinished(ctx, ip.l4 + place))
		return CT_SUM_GOOD;
	return sum < 0 ? CT_SUM_UNKNOWN : CT_SUM_WRONG;
}

#endif
