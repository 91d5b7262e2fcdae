/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The parser for the most common shape of packets: an untagged frame with an IPv4 header without
 * options, not a fragment, that carries TCP or UDP, with all headers within the readable bytes.
 *
 * It assembles the key for the exact-match cache in registers, without a branch for anything else.
 * The key is equal to that of parse_headers(), which handles every other packet, and also this one
 * when neither the last flow nor the cache has it. */
#ifndef SLIPSWITCH_PARSE_FAST_H
#define SLIPSWITCH_PARSE_FAST_H

#include "emc.h"
#include "view.h"

#define FAST_IP 20
#define FAST_UDP 8
#define FAST_TCP 20

/**
 * parse_fast_transport - Reads the transport header.
 * @key: W_TP is set
 * @v: the frame
 * @proto: protocol number
 * @behind: bytes of the packet after the IPv4 header
 * @tcp_flags: becomes the flags, a host integer; 0 when the packet is not TCP
 *
 * Return: false when the packet has another shape.
 */
static __always_inline bool parse_fast_transport(__u64 *key, const struct view *v, __u32 proto,
						 __u32 behind, __u32 *tcp_flags)
{
	const void *l4 = v->data + ETH_HLEN + FAST_IP;
	__u16 bits;

	key[W_TP] = PLACE(load32(l4), 4, 0);
	*tcp_flags = 0;
	if (proto == IPPROTO_UDP)
		return true;
	if (proto != IPPROTO_TCP || behind < FAST_TCP || l4 + FAST_TCP > v->end)
		return false;
	bits = bpf_ntohs(load16(l4 + 12));
	*tcp_flags = bits & 0xfff;
	return bits >> 12 >= 5 && (bits >> 12) * 4 <= behind;
}

/* Returns true when all of the frame is in the first buffer. At XDP the length of all buffers costs
 * a call, so it is inferred: a driver fills its first buffer before it uses another, unless it
 * separates headers from data. Either the packet ends where the buffer does, or it is a shortest
 * frame with padding. */
static __always_inline bool parse_fast_in_reach(const struct view *v, __u32 total)
{
	return !AT_XDP || !settings.have_frags || v->length <= ETH_ZLEN + ETH_FCS_LEN ||
	       v->length == ETH_HLEN + total;
}

/**
 * parse_fast_ipv4 - Reads the IPv4 header and the transport header.
 * @key: the words of the exact-match cache, those of Ethernet filled in
 * @v: the packet's bytes, with linear_length()
 * @tcp_flags: becomes the TCP flags, a host integer; 0 when the packet is not TCP
 *
 * The checks are those of parse_ipv4() in parse.h.
 *
 * Return: false when the packet has another shape.
 */
static __always_inline bool parse_fast_ipv4(__u64 *key, const struct view *v, __u32 *tcp_flags)
{
	const void *ip = v->data + ETH_HLEN;
	__u32 behind = v->length - ETH_HLEN;
	__u32 total = bpf_ntohs(load16(ip + 2));

	if (load8(ip) != 0x45 || load16(ip + 6) & bpf_htons(FRAGMENT_MORE | FRAGMENT_OFFSET))
		return false;
	if (total < FAST_IP + FAST_UDP || total > behind || behind - total > 0xffff ||
	    !parse_fast_in_reach(v, total))
		return false;
	key[W_ETH1] |= PLACE(load8(ip + 1), 1, 5) | PLACE(load16(ip + 8), 2, 6);
	key[W_IP4] = load64(ip + 12);
	return parse_fast_transport(key, v, load8(ip + 9), total - FAST_IP, tcp_flags);
}

/**
 * parse_fast_key - Parses a packet of the common shape.
 * @ctx: the packet
 * @v: its bytes, with linear_length()
 * @in_port: ingress port
 * @key: becomes the packet's words of the exact-match cache
 * @tcp_flags: becomes the TCP flags, a host integer; 0 when the packet is not TCP
 *
 * Return: false when the packet has another shape.
 */
static __always_inline bool parse_fast_key(hook_ctx *ctx, const struct view *v, __u32 in_port,
					   __u64 *key, __u32 *tcp_flags)
{
	const void *eth = v->data;

	if (has_tag(ctx) || eth + ETH_HLEN + FAST_IP + FAST_UDP > v->end ||
	    load16(eth + 12) != bpf_htons(ETH_P_IP))
		return false;
	key[W_PORT] = PLACE(bpf_htons(in_port), 2, 0) | PLACE(bpf_htons(ETH_P_IP), 2, 2);
	key[W_ETH0] = load64(eth);
	key[W_ETH1] = PLACE(load32(eth + 8), 4, 0);
	return parse_fast_ipv4(key, v, tcp_flags);
}

/* Does parse_fast_key() for the exact-match cache: `words` become those under the union of all
 * masks. Returns false also when the cache is off. */
static __always_inline bool parse_fast(hook_ctx *ctx, const struct view *v, __u32 in_port,
				       __u64 *words, __u32 *tcp_flags)
{
	__u64 key[EMC_WORDS];

	if (!config_here()->emc_used || !parse_fast_key(ctx, v, in_port, key, tcp_flags))
		return false;
	emc_under(words, key);
	return true;
}

#endif
