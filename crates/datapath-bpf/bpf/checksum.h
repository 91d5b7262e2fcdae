/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Checksums after a change: RFC 1624, equation 3. A wrong checksum stays wrong.
 *
 * Sums are of words as they lie in memory. The sum of byte-swapped words is the byte-swapped sum.
 */
#ifndef SLIPSWITCH_CHECKSUM_H
#define SLIPSWITCH_CHECKSUM_H

#include "edit.h"

/* Folds a sum to 16 bits; the result is 0 only for a sum of zeros. */
static __always_inline __u16 checksum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/**
 * checksum_moved - Returns a checksum after a change.
 * @sum: the checksum
 * @gone: sum of the old words
 * @come: sum of the new words
 *
 * Of the two zeros of one's complement the result is 0, never 0xffff, as that of the helper at tc.
 * The 0xffff0000 keeps the sum from being zero.
 */
static __always_inline __u16 checksum_moved(__u16 sum, __u64 gone, __u64 come)
{
	return ~checksum_fold(0xffff0000 + (__u64)(__u16)~sum + (__u16)~checksum_fold(gone) + come);
}

/* Properties of a change of a transport checksum. */
#define SUM_PSEUDO 1   /* the pseudo header changed */
#define SUM_OPTIONAL 2 /* 0 means that there is no checksum */

/**
 * checksum_transport - Updates a transport checksum after covered words changed.
 * @ctx: the packet; pointers into it become invalid
 * @at: offset of the checksum
 * @gone: sum of the old words
 * @come: sum of the new words
 * @kind: SUM_*; a constant
 *
 * At tc the helper has information that a program lacks: an unfinished checksum (CHECKSUM_PARTIAL)
 * contains only the sum of the pseudo header. The helper also removes a change of the pseudo header
 * from skb->csum (CHECKSUM_COMPLETE) once, by the change of the checksum itself. So bytes of the
 * pseudo header are stored with edit_store(), which adds theirs (IPv4 addresses and the header
 * checksum change nothing together), and bytes of the transport header with edit_store_neutral().
 * That is right for IPv4 and IPv6 on every kernel. BPF_F_IPV6 (6.16) is for programs that store
 * addresses without an update of skb->csum.
 *
 * Return: 0 or an error.
 */
static __always_inline int checksum_transport(hook_ctx *ctx, __u32 at, __u64 gone, __u64 come,
					      const __u32 kind)
{
#if AT_XDP
	__u16 sum;

	if (edit_load(ctx, at, &sum, sizeof(sum)))
		return -1;
	if ((kind & SUM_OPTIONAL) && !sum)
		return 0;
	sum = checksum_moved(sum, gone, come);
	if ((kind & SUM_OPTIONAL) && !sum)
		sum = 0xffff;
	return edit_store_neutral(ctx, at, &sum, sizeof(sum));
#else
	__u64 flags = (kind & SUM_PSEUDO ? BPF_F_PSEUDO_HDR : 0) |
		      (kind & SUM_OPTIONAL ? BPF_F_MARK_MANGLED_0 : 0);

	return bpf_l4_csum_replace(ctx, at, 0,
				   (__u32)checksum_fold(come) + (__u16)~checksum_fold(gone), flags);
#endif
}

/**
 * checksum_pseudo_changed - Updates a transport checksum after a change of the pseudo header.
 * @ctx: the packet; pointers into it become invalid
 * @ip: the packet's headers
 * @gone: sum of the old 16-bit words
 * @come: sum of the new ones
 *
 * Return: 0 or an error.
 */
static __always_inline int checksum_pseudo_changed(hook_ctx *ctx, const struct ip *ip, __u64 gone,
						   __u64 come)
{
	if (ip->later)
		return 0;
	if (ip->proto == IPPROTO_TCP && ip->l4 + 20 <= ip->end)
		return checksum_transport(ctx, ip->l4 + 16, gone, come, SUM_PSEUDO);
	if (ip->proto == IPPROTO_UDP && ip->l4 + 8 <= ip->end)
		return checksum_transport(ctx, ip->l4 + 6, gone, come, SUM_PSEUDO | SUM_OPTIONAL);
	if (ip->proto == PROTO_ICMPV6 && ip->v6 && ip->l4 + 8 <= ip->end)
		return checksum_transport(ctx, ip->l4 + 2, gone, come, SUM_PSEUDO);
	return 0;
}

/**
 * checksum_is_unfinished - Checks whether the device is still to compute a checksum.
 * @ctx: the packet; pointers into it become invalid
 * @at: offset of the checksum, which is not an Internet checksum
 *
 * Return: true when the helper changes nothing there, as it does for such a packet.
 */
static __always_inline bool checksum_is_unfinished(hook_ctx *ctx, __u32 at)
{
#if AT_XDP
	return false;
#else
	__u16 before, after;

	if (bpf_skb_load_bytes(ctx, at, &before, sizeof(before)) ||
	    bpf_l4_csum_replace(ctx, at, 0, 1, sizeof(before)) ||
	    bpf_skb_load_bytes(ctx, at, &after, sizeof(after)))
		return false;
	if (before == after)
		return true;
	bpf_skb_store_bytes(ctx, at, &before, sizeof(before), 0);
	return false;
#endif
}

#endif
