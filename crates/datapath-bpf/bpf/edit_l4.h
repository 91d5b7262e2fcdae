/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Edits of transport ports, and of type and code of ICMP. Functions return EDITED or the reason to
 * drop plus one; layout.h defines the operands. */
#ifndef SLIPSWITCH_EDIT_L4_H
#define SLIPSWITCH_EDIT_L4_H

#include "checksum.h"
#include "crc32c.h"

/* Source and destination ports: values and masks, in network order. */
struct ports {
	__u16 src, src_mask, dst, dst_mask;
};

/**
 * set_ports - Sets the ports of TCP and UDP.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @ip: its IP packet
 * @operands: struct ports
 * @sum_at: offset of the checksum in the transport header
 * @kind: SUM_* of the checksum
 */
static __always_inline int set_ports(hook_ctx *ctx, const struct state *st, const struct ip *ip,
				     const __u64 *operands, const __u32 sum_at, const __u32 kind)
{
	__u16 old[2], new[2], sum;
	struct ports set;

	__builtin_memcpy(&set, operands, sizeof(set));
	if (edit_load(ctx, ip->l4, old, sizeof(old)) || edit_load(ctx, ip->l4 + sum_at, &sum, sizeof(sum)))
		return MALFORMED;
	new[0] = merged(old[0], set.src, set.src_mask);
	new[1] = merged(old[1], set.dst, set.dst_mask);
	if (kind & SUM_OPTIONAL && !sum)
		return edit_store(ctx, st, ip->l4, new, sizeof(new)) ? FAILED : EDITED;
	if (edit_store_neutral(ctx, ip->l4, new, sizeof(new)))
		return FAILED;
	if (new[0] != old[0] && checksum_transport(ctx, ip->l4 + sum_at, old[0], new[0], kind))
		return FAILED;
	if (new[1] != old[1] && checksum_transport(ctx, ip->l4 + sum_at, old[1], new[1], kind))
		return FAILED;
	return EDITED;
}

/**
 * set_tcp - Runs OP_SET_TCP.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @ip: its headers
 * @operands: as layout.h defines them
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_tcp(hook_ctx *ctx, const struct state *st, const struct ip *ip,
				   const __u64 *operands)
{
	if (!has_transport(ip, IPPROTO_TCP, 20))
		return MALFORMED;
	return set_ports(ctx, st, ip, operands, 16, 0);
}

/**
 * set_udp - Runs OP_SET_UDP.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @ip: its headers
 * @operands: as layout.h defines them
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_udp(hook_ctx *ctx, const struct state *st, const struct ip *ip,
				   const __u64 *operands)
{
	if (!has_transport(ip, IPPROTO_UDP, 8))
		return MALFORMED;
	return set_ports(ctx, st, ip, operands, 6, SUM_OPTIONAL);
}

/**
 * set_sctp - Runs OP_SET_SCTP.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @ip: its headers
 * @operands: as layout.h defines them
 *
 * The checksum is a CRC32c over header and data, with its own field zero, least significant byte
 * first.
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_sctp(hook_ctx *ctx, const struct state *st, const struct ip *ip,
				    const __u64 *operands)
{
	__u32 header[3], difference;
	struct ports set;
	__u16 ports[2];

	if (!has_transport(ip, IPPROTO_SCTP, 12))
		return MALFORMED;
	__builtin_memcpy(&set, operands, sizeof(set));
	if (edit_load(ctx, ip->l4, ports, sizeof(ports)))
		return MALFORMED;
	ports[0] = merged(ports[0], set.src, set.src_mask);
	ports[1] = merged(ports[1], set.dst, set.dst_mask);
	if (checksum_is_unfinished(ctx, ip->l4 + 8))
		return edit_store(ctx, st, ip->l4, ports, sizeof(ports)) ? FAILED : EDITED;
	if (edit_load(ctx, ip->l4, header, sizeof(header)))
		return MALFORMED;
	__builtin_memcpy(&difference, ports, sizeof(difference));
	difference ^= header[0];
	header[0] ^= difference;
	header[2] ^= le32(crc32c_difference(le32(difference), ip->end - ip->l4));
	return edit_store(ctx, st, ip->l4, header, sizeof(header)) ? FAILED : EDITED;
}

/**
 * set_icmp - Runs OP_SET_ICMP.
 * @ctx: the packet; pointers into it become invalid
 * @ip: its headers
 * @v6: the instruction is for ICMPv6
 * @set: type value, type mask, code value, code mask, as bytes in memory order
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_icmp(hook_ctx *ctx, const struct ip *ip, bool v6, __u32 set)
{
	__u8 s[4], head[2];
	__u16 old, new;

	if (ip->v6 != v6 || !has_transport(ip, v6 ? PROTO_ICMPV6 : IPPROTO_ICMP, 8))
		return MALFORMED;
	__builtin_memcpy(s, &set, sizeof(s));
	if (edit_load(ctx, ip->l4, head, sizeof(head)))
		return MALFORMED;
	__builtin_memcpy(&old, head, sizeof(old));
	head[0] = merged(head[0], s[0], s[1]);
	head[1] = merged(head[1], s[2], s[3]);
	__builtin_memcpy(&new, head, sizeof(new));
	if (old == new)
		return EDITED;
	if (edit_store_neutral(ctx, ip->l4, head, sizeof(head)) ||
	    checksum_transport(ctx, ip->l4 + 2, old, new, 0))
		return FAILED;
	return EDITED;
}

#endif
