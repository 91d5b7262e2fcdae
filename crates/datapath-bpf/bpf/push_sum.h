/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The hash of a packet that gets outer headers, and the sum of its bytes.
 *
 * The sum counts an unfinished checksum as finished. The bytes of a TCP segment or a UDP datagram, and
 * those of its pseudo header, add up to zero in one's complement, whether the checksum is finished or
 * left to a device. So the sum of the segment is the complement of that of its pseudo header, and
 * the segment is not read. */
#ifndef SLIPSWITCH_PUSH_SUM_H
#define SLIPSWITCH_PUSH_SUM_H

#include "checksum.h"
#include "tuple.h"

#define PUSH_CHUNK 64
#define PUSH_PIECE 16
#define PUSH_CHUNKS 160 /* most whole chunks that are added up: 10 KB */
#define IPV4_HEADER 20
#define IPV6_HEADER 40
#define TCP_HEADER 20
#define UDP_HEADER 8

/**
 * push_sum_chunk - Adds up PUSH_CHUNK bytes of the frame.
 * @ctx: the packet
 * @at: offset of the first byte
 *
 * A function of its own: the verifier follows the ways to read bytes once, and not in each turn of a
 * loop.
 *
 * Return: the folded sum; negative when the frame ends before.
 */
__noinline int push_sum_chunk(hook_ctx *ctx, __u32 at)
{
	__be32 chunk[PUSH_CHUNK / 4];

	if (edit_load(ctx, at, chunk, sizeof(chunk)))
		return -1;
	return checksum_fold((__u32)bpf_csum_diff(0, 0, chunk, sizeof(chunk), 0));
}

/* The same for PUSH_PIECE bytes. */
__noinline int push_sum_piece(hook_ctx *ctx, __u32 at)
{
	__be32 piece[PUSH_PIECE / 4];

	if (edit_load(ctx, at, piece, sizeof(piece)))
		return -1;
	return checksum_fold((__u64)piece[0] + piece[1] + piece[2] + piece[3]);
}

/**
 * push_sum_word - Returns two bytes of the frame, or the last one.
 * @ctx: the packet
 * @at: offset of the first byte
 * @bytes: how many; more than two are two
 *
 * Return: the word; negative when the frame ends before.
 */
__noinline int push_sum_word(hook_ctx *ctx, __u32 at, __u32 bytes)
{
	__u16 word = 0;

	if (bytes == 1)
		return edit_load(ctx, at, &word, 1) ? -1 : word;
	return edit_load(ctx, at, &word, 2) ? -1 : word;
}

/**
 * push_sum_range - Adds up bytes of the frame.
 * @ctx: the packet
 * @from: offset of the first byte
 * @to: offset after the last one
 *
 * Return: the folded sum of words in memory order, as if `from` were even in the sum; negative when
 * these are too many bytes.
 */
__noinline int push_sum_range(hook_ctx *ctx, __u32 from, __u32 to)
{
	__u64 sum = 0;
	__u32 at = from;

#pragma clang loop unroll(disable)
	for (int i = 0; i < PUSH_CHUNKS; i++) {
		int some;

		if (at + PUSH_CHUNK > to)
			break;
		some = push_sum_chunk(ctx, at);
		if (some < 0)
			return -1;
		sum += some;
		at += PUSH_CHUNK;
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < PUSH_CHUNK / PUSH_PIECE; i++) {
		int some;

		if (at + PUSH_PIECE > to)
			break;
		some = push_sum_piece(ctx, at);
		if (some < 0)
			return -1;
		sum += some;
		at += PUSH_PIECE;
	}
#pragma clang loop unroll(disable)
	for (int i = 0; i < PUSH_PIECE / 2; i++) {
		int word;

		if (at >= to)
			break;
		word = push_sum_word(ctx, at, to - at);
		if (word < 0)
			return -1;
		sum += word;
		at += 2;
	}
	if (at < to)
		return -1;
	sum = checksum_fold(sum);
	/* A sum of bytes at an odd offset has its bytes swapped (RFC 1071, 2 (B)). */
	return from & 1 ? (__u16)(sum << 8 | sum >> 8) : sum;
}

/* Returns true when the sum of a segment follows from that of its pseudo header; `bytes`: of the whole
 * segment. */
static __always_inline bool push_is_summed(hook_ctx *ctx, const struct ip *ip, __u32 bytes)
{
	__be16 udp[2];

	if (ip->fragment || ip->routed)
		return false;
	if (ip->proto == IPPROTO_TCP)
		return bytes >= TCP_HEADER;
	return ip->proto == IPPROTO_UDP && bytes >= UDP_HEADER &&
	       !edit_load(ctx, ip->l4 + 4, udp, sizeof(udp)) && udp[0] == bpf_htons(bytes) &&
	       udp[1];
}

/* Returns the sum of the pseudo header; negative when the packet is too short. */
static __always_inline int push_sum_pseudo(hook_ctx *ctx, const struct ip *ip, __u32 bytes)
{
	int sum = ip->v6 ? push_sum_range(ctx, ip->l3 + 8, ip->l3 + 40) :
			   push_sum_range(ctx, ip->l3 + 12, ip->l3 + 20);

	if (sum < 0)
		return -1;
	return checksum_fold((__u64)sum + bpf_htons(ip->proto) + bpf_htons(bytes));
}

/**
 * push_sum - Returns the sum of a packet of any shape.
 * @ctx: the packet; at tc, pointers into it become invalid
 *
 * Return: the folded sum; negative when it is unknown here.
 */
__noinline int push_sum(hook_ctx *ctx)
{
	__u32 length = data_length(ctx), bytes;
	struct ip ip = {};
	int sum, rest = 0;

	if (find_ip(ctx, &ip) || ip.end < ip.l4 || ip.end > length)
		goto all;
	bytes = ip.end - ip.l4;
	if (!push_is_summed(ctx, &ip, bytes))
		goto all;
	sum = push_sum_pseudo(ctx, &ip, bytes);
	if (sum < 0)
		return -1;
	sum = (__u16)~sum;
	rest = push_sum_range(ctx, 0, ip.l4);
	if (rest < 0)
		return -1;
	sum += rest;
	rest = ip.end < length ? push_sum_range(ctx, ip.end, length) : 0;
	return rest < 0 ? -1 : checksum_fold((__u64)sum + rest);
all:
	if (checksum_is_unfinished(ctx, 0))
		return -1;
	return push_sum_range(ctx, 0, length);
}

/* The facts about a packet of the common shape: IP without options or extension headers, without tags
 * in the frame, no fragment, with TCP or UDP. */
struct push_common {
	const void *l3;
	const void *l4;
	__u32 bytes; /* of the segment */
	__u32 end;   /* of the IP packet, as an offset */
	bool tcp;
};

/**
 * push_find_common - Finds the segment of a packet of the common shape.
 * @v: the packet's bytes
 * @c: becomes the facts
 * @l4: offset of the segment; a constant
 *
 * Return: false when the packet has another shape.
 */
static __always_inline bool push_find_common(const struct view *v, struct push_common *c,
					     const __u32 l4)
{
	const bool v6 = l4 == ETH_HLEN + IPV6_HEADER;
	__u8 proto;

	c->l3 = v->data + ETH_HLEN;
	c->l4 = v->data + l4;
	if (c->l4 + UDP_HEADER > v->end)
		return false;
	if (v6) {
		c->end = l4 + bpf_ntohs(load16(c->l3 + 4));
		proto = load8(c->l3 + 6);
	} else {
		c->end = ETH_HLEN + bpf_ntohs(load16(c->l3 + 2));
		proto = load8(c->l3 + 9);
		if (load16(c->l3 + 6) & bpf_htons(FRAGMENT_MORE | FRAGMENT_OFFSET))
			return false;
	}
	if (c->end < l4 || c->end > v->length)
		return false;
	c->bytes = c->end - l4;
	c->tcp = proto == IPPROTO_TCP;
	if (c->tcp) {
		__u32 header;

		if (c->l4 + TCP_HEADER > v->end)
			return false;
		header = (load8(c->l4 + 12) >> 4) * 4;
		return header >= TCP_HEADER && header <= c->bytes;
	}
	return proto == IPPROTO_UDP && c->bytes >= UDP_HEADER;
}

/* Returns the hash of a packet of the common shape, as exec_hash() does. */
static __always_inline __u32 push_hash_common(const struct push_common *c, const bool v6)
{
	struct tuple t = { .proto = c->tcp ? IPPROTO_TCP : IPPROTO_UDP };

	if (v6) {
		t.words = 2;
		t.type = ETH_P_IPV6;
		t.src.address[0] = bpf_be64_to_cpu(load64(c->l3 + 8));
		t.src.address[1] = bpf_be64_to_cpu(load64(c->l3 + 16));
		t.dst.address[0] = bpf_be64_to_cpu(load64(c->l3 + 24));
		t.dst.address[1] = bpf_be64_to_cpu(load64(c->l3 + 32));
	} else {
		t.words = 1;
		t.type = ETH_P_IP;
		t.src.address[0] = bpf_ntohl(load32(c->l3 + 12));
		t.dst.address[0] = bpf_ntohl(load32(c->l3 + 16));
	}
	t.src.port = bpf_ntohs(load16(c->l4));
	t.dst.port = bpf_ntohs(load16(c->l4 + 2));
	return hash_five_tuple(&t, 0, 0);
}

/**
 * push_sum_common - Returns the sum of a packet of the common shape.
 * @v: the packet's bytes
 * @c: its segment
 * @v6: the packet is IPv6; a constant
 *
 * Return: the sum without that of the bytes after the IP packet; negative when the segment does not
 * have a checksum of its own.
 */
static __always_inline int push_sum_common(const struct view *v, const struct push_common *c,
					   const bool v6)
{
	const void *addresses = c->l3 + (v6 ? 8 : 12);
	__u64 sum = 0, pseudo = bpf_htons(c->tcp ? IPPROTO_TCP : IPPROTO_UDP) + bpf_htons(c->bytes);

	if (!c->tcp && (!load16(c->l4 + 6) || load16(c->l4 + 4) != bpf_htons(c->bytes)))
		return -1;
	for (int i = 0; i < (v6 ? 32 : 8); i += 4)
		pseudo += load32(addresses + i);
	for (int i = 0; i < 12; i += 4)
		sum += load32(v->data + i);
	sum += load16(v->data + 12);
	for (int i = 0; i < (v6 ? IPV6_HEADER : IPV4_HEADER); i += 4)
		sum += load32(c->l3 + i);
	return checksum_fold(sum + (__u16)~checksum_fold(pseudo));
}

/**
 * push_examine_common - Examines a packet of the common shape.
 * @ctx: the packet
 * @flags: of the header: TUNNEL_*
 * @hash: set when the header has a source port
 * @sum: set when the header has a checksum
 * @l4: offset of the segment; a constant
 *
 * Return: false when the packet has another shape.
 */
static __always_inline bool push_examine_common(hook_ctx *ctx, __u32 flags, __u32 *hash,
						__u32 *sum, const __u32 l4)
{
	const struct view v = { data_of(ctx), data_end_of(ctx), data_length(ctx), true };
	const bool v6 = l4 == ETH_HLEN + IPV6_HEADER;
	struct push_common c;
	int inner, rest;

	if (!push_find_common(&v, &c, l4))
		return false;
	if (flags & TUNNEL_UDP)
		*hash = push_hash_common(&c, v6);
	if (!(flags & TUNNEL_CHECKSUM))
		return true;
	inner = push_sum_common(&v, &c, v6);
	if (inner < 0) {
		inner = push_sum(ctx);
		*sum = inner;
		return inner >= 0;
	}
	if (c.end < v.length) {
		rest = push_sum_range(ctx, c.end, v.length);
		if (rest < 0)
			return false;
		inner += rest;
	}
	*sum = inner;
	return true;
}

/**
 * push_examine - Finds what outer headers take from the inner packet.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state; the offsets of layers show that the parser found the headers valid
 * @flags: of the header: TUNNEL_*
 * @hash: set when the header has a source port
 * @sum: set when the header has a checksum
 *
 * Return: 0, or not 0 when the sum is unknown here; the packet is unchanged.
 */
static __always_inline int push_examine(hook_ctx *ctx, struct state *st, __u32 flags, __u32 *hash,
					__u32 *sum)
{
	__be16 type = 0;
	int inner;

	if (st->l3 == ETH_HLEN && !st->mpls)
		type = edit_ethertype(ctx, st);
	if (type == bpf_htons(ETH_P_IP) && st->l4 == ETH_HLEN + IPV4_HEADER &&
	    push_examine_common(ctx, flags, hash, sum, ETH_HLEN + IPV4_HEADER))
		goto tags;
	if (type == bpf_htons(ETH_P_IPV6) && st->l4 == ETH_HLEN + IPV6_HEADER &&
	    push_examine_common(ctx, flags, hash, sum, ETH_HLEN + IPV6_HEADER))
		goto tags;
	exec_hash(ctx, 0, 0); /* finds the layers, too */
	*hash = st->dp_hash;
	if (flags & TUNNEL_CHECKSUM) {
		inner = push_sum(ctx);
		if (inner < 0)
			return -1;
		*sum = inner;
	}
tags:
	if (has_tag(ctx))
		*sum += bpf_htons(tag_tpid(ctx)) + bpf_htons(tag_tci(ctx));
	return 0;
}

#endif
