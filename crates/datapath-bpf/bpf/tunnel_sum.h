/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Checksums of outer UDP and GRE headers.
 *
 * A finished inner TCP or UDP segment and its pseudo header add up to 0xffff, and so does one whose
 * checksum a device is still to finish, as the outer sum was made for the finished one. So the sum of
 * the segment is the complement of that of its pseudo header, and its bytes need not be read. Other
 * frames are summed up byte by byte.
 *
 * A sum that is not as expected is no reason to drop the packet here: the daemon knows which checksums
 * their senders left to a device, verifies all bytes, and counts.
 *
 * All offsets are even, and sums are of 16-bit words as they lie in memory.
 */
#ifndef SLIPSWITCH_TUNNEL_SUM_H
#define SLIPSWITCH_TUNNEL_SUM_H

#include "checksum.h"

/* Longest frame, in pieces of 16 bytes, whose bytes are summed up: that of an MTU of 1,500. */
#define SUM_PIECES 96
#define SUM_PIECE 16

/**
 * sum_bytes - Adds up bytes of the frame.
 * @ctx: the packet
 * @from: the first, an even offset
 * @end: the end
 *
 * Return: the sum, folded; negative when they are too many, or cannot be read.
 */
__noinline int sum_bytes(hook_ctx *ctx, __u32 from, __u32 end)
{
	struct view v = view_of_bytes(ctx);
	__u64 sum = 0;

#pragma clang loop unroll(disable)
	for (int i = 0; i < SUM_PIECES && from + SUM_PIECE <= end; i++) {
		void *p = at(&v, from, SUM_PIECE);

		if (!p)
			return -1;
		sum += (__u64)load32(p) + load32(p + 4) + load32(p + 8) + load32(p + 12);
		from += SUM_PIECE;
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < SUM_PIECE / 4 && from + 4 <= end; i++) {
		void *p = at(&v, from, 4);

		if (!p)
			return -1;
		sum += load32(p);
		from += 4;
	}
	if (from + 2 <= end) {
		void *p = at(&v, from, 2);

		if (!p)
			return -1;
		sum += load16(p);
		from += 2;
	}
	if (from + 1 == end) {
		void *p = at(&v, from, 1);

		if (!p)
			return -1;
		sum += PLACE(load8(p), 1, 0) & 0xffff;
		from++;
	}
	return from == end ? checksum_fold(sum) : -1;
}

/* Returns true for protocols whose checksum is over the whole payload of an IP packet. `checksum` is
 * that of UDP, where 0 is none. */
static __always_inline bool sum_covers(__u32 proto, __u16 checksum)
{
	return proto == IPPROTO_TCP || (proto == IPPROTO_UDP && checksum);
}

/**
 * sum_of_ipv4 - Returns the sum of an IPv4 packet whose transport checksum is right.
 * @v: the frame
 * @l3: offset of the packet
 *
 * Return: the sum; negative when its bytes have to be read.
 */
static __always_inline __s64 sum_of_ipv4(const struct view *v, __u32 l3)
{
	void *ip = at(v, l3, 28);
	__u64 sum = 0, pseudo;

	if (!ip || load8(ip) != 0x45 || l3 + bpf_ntohs(load16(ip + 2)) != v->length ||
	    load16(ip + 6) & bpf_htons(FRAGMENT_MORE | FRAGMENT_OFFSET) ||
	    !sum_covers(load8(ip + 9), load16(ip + 26)))
		return -1;
#pragma unroll
	for (int i = 0; i < 20; i += 4)
		sum += load32(ip + i);
	/* A wrong address would change both this sum and that of the pseudo header. */
	if (checksum_fold(sum) != 0xffff)
		return -1;
	pseudo = (__u64)load32(ip + 12) + load32(ip + 16) + bpf_htons(load8(ip + 9)) +
		 bpf_htons(v->length - l3 - 20);
	return sum + (0xffff ^ checksum_fold(pseudo));
}

/* The same of an IPv6 packet. */
static __always_inline __s64 sum_of_ipv6(const struct view *v, __u32 l3)
{
	void *ip = at(v, l3, 48);
	__u64 sum, addresses = 0, pseudo;

	if (!ip || l3 + 40 + bpf_ntohs(load16(ip + 4)) != v->length ||
	    !sum_covers(load8(ip + 6), load16(ip + 46)))
		return -1;
#pragma unroll
	for (int i = 8; i < 40; i += 4)
		addresses += load32(ip + i);
	sum = (__u64)load32(ip) + load32(ip + 4) + addresses;
	pseudo = addresses + bpf_htons(load8(ip + 6)) + load16(ip + 4);
	return sum + (0xffff ^ checksum_fold(pseudo));
}

/**
 * sum_is_right - Verifies the checksum of an outer header.
 * @ctx: the packet
 * @l4: offset of the header
 * @base: offset of the inner frame, with which the packet ends
 * @pseudo: sum of the pseudo header, folded; 0 of GRE, which has none
 * @length: of the frame
 *
 * Return: 1 when it is right, 0 when it is not, or is not verified here.
 */
__noinline int sum_is_right(hook_ctx *ctx, __u32 l4, __u32 base, __u32 pseudo, __u32 length)
{
	struct view v = view_of_bytes(ctx);
	__s64 inner = -1;
	__u64 sum = pseudo;
	int bytes;
	void *eth;

	v.length = length;
	eth = at(&v, base, ETH_HLEN);
	if (!eth)
		return 0;
	if (load16(eth + 12) == bpf_htons(ETH_P_IP))
		inner = sum_of_ipv4(&v, base + ETH_HLEN);
	else if (load16(eth + 12) == bpf_htons(ETH_P_IPV6))
		inner = sum_of_ipv6(&v, base + ETH_HLEN);
	if (inner >= 0) {
		sum += inner;
		bytes = sum_bytes(ctx, l4, base + ETH_HLEN);
	} else {
		bytes = sum_bytes(ctx, l4, v.length);
	}
	if (bytes < 0)
		return 0;
	return checksum_fold(sum + bytes) == 0xffff;
}

#endif
