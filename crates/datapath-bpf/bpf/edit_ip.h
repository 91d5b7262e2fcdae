/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Edits of IPv4 and IPv6 headers. Functions return EDITED or the reason to drop plus one; layout.h
 * defines the operands. */
#ifndef SLIPSWITCH_EDIT_IP_H
#define SLIPSWITCH_EDIT_IP_H

#include <linux/ip.h>

#include "checksum.h"

/* Values and masks of bytes. */
struct byte_pairs {
	__u8 tos, tos_mask, ttl, ttl_mask, unused[4];
};

/**
 * set_ipv4 - Runs OP_SET_IPV4, and updates the checksums of the header and the transport.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @ip: its headers
 * @operands: as layout.h defines them
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_ipv4(hook_ctx *ctx, const struct state *st, const struct ip *ip,
				    const __u64 *operands)
{
	struct byte_pairs bytes;
	__u32 value[2], mask[2];
	struct iphdr h;
	__u32 src, dst;
	__u64 gone, come;
	__u8 tos, ttl;
	bool readdressed;

	if (ip->v6)
		return MALFORMED;
	__builtin_memcpy(value, &operands[0], sizeof(value));
	__builtin_memcpy(mask, &operands[1], sizeof(mask));
	__builtin_memcpy(&bytes, &operands[2], sizeof(bytes));
	if (edit_load(ctx, ip->l3, &h, sizeof(h)))
		return MALFORMED;
	src = merged(h.saddr, value[0], mask[0]);
	dst = merged(h.daddr, value[1], mask[1]);
	tos = merged(h.tos, bytes.tos, bytes.tos_mask);
	ttl = merged(h.ttl, bytes.ttl, bytes.ttl_mask);
	gone = (__u64)h.saddr + h.daddr;
	come = (__u64)src + dst;
	readdressed = src != h.saddr || dst != h.daddr;
	if (readdressed)
		h.check = checksum_moved(h.check, gone, come);
	if (tos != h.tos)
		h.check = checksum_moved(h.check, bpf_htons(h.tos), bpf_htons(tos));
	if (ttl != h.ttl)
		h.check = checksum_moved(h.check, bpf_htons(h.ttl << 8), bpf_htons(ttl << 8));
	h.saddr = src;
	h.daddr = dst;
	h.tos = tos;
	h.ttl = ttl;
	if (edit_store(ctx, st, ip->l3, &h, sizeof(h)))
		return FAILED;
	if (readdressed && checksum_pseudo_changed(ctx, ip, gone, come))
		return FAILED;
	return EDITED;
}

/* The IPv6 header. */
struct ipv6 {
	__be32 first; /* version, traffic class, label */
	__be16 payload;
	__u8 next;
	__u8 limit;
	__u32 src[4];
	__u32 dst[4];
};

/**
 * set_ipv6 - Runs OP_SET_IPV6, and updates the checksum of the transport.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @ip: its headers
 * @operands: as layout.h defines them
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_ipv6(hook_ctx *ctx, const struct state *st, const struct ip *ip,
				    const __u64 *operands)
{
	const __u32 *value = (const __u32 *)operands;
	struct byte_pairs bytes;
	__u64 gone = 0, come = 0;
	__u32 changed = 0, class_mask;
	struct ipv6 h;

	if (!ip->v6)
		return MALFORMED;
	if (edit_load(ctx, ip->l3, &h, sizeof(h)))
		return MALFORMED;
	__builtin_memcpy(&bytes, &operands[9], sizeof(bytes));
	for (int i = 0; i < 4; i++) {
		__u32 new = merged(h.src[i], value[i], value[4 + i]);

		gone += h.src[i];
		come += new;
		changed |= new ^ h.src[i];
		h.src[i] = new;
	}
	for (int i = 0; i < 4; i++) {
		__u32 new = merged(h.dst[i], value[8 + i], value[12 + i]);

		/* With a routing header the pseudo header has the final destination. */
		if (!ip->routed) {
			gone += h.dst[i];
			come += new;
			changed |= new ^ h.dst[i];
		}
		h.dst[i] = new;
	}
	h.first = merged(h.first, value[16], value[17] & bpf_htonl(0xfffff));
	class_mask = bpf_htonl((__u32)bytes.tos_mask << 20);
	h.first = merged(h.first, bpf_htonl((__u32)bytes.tos << 20), class_mask);
	h.limit = merged(h.limit, bytes.ttl, bytes.ttl_mask);
	if (edit_store(ctx, st, ip->l3, &h, sizeof(h)))
		return FAILED;
	if (changed && checksum_pseudo_changed(ctx, ip, gone, come))
		return FAILED;
	return EDITED;
}

#endif
