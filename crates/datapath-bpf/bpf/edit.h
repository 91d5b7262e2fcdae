/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The facts about a packet that edits need, and the functions that change its bytes.
 *
 * A lookup writes only the words of the key that some flow matches on. So edits go by the offsets
 * of layers in the state, and read everything else from the packet. */
#ifndef SLIPSWITCH_EDIT_H
#define SLIPSWITCH_EDIT_H

#if !defined(SLIPSWITCH_HOOK_H)
#error include hook_xdp.h or hook_tc.h first
#endif

#include "parse.h"

/* Results of an edit: 0, or the reason to drop the packet plus one; of some, LEAVES. */
#define EDITED 0
#define REFUSED(reason) ((reason) + 1)
#define MALFORMED REFUSED(DROP_MALFORMED)
/* The packet is unchanged, and leaves at the instruction: its list of actions goes on elsewhere. */
#define LEAVES (-1)
/* There is no headroom, or no memory. */
#define FAILED REFUSED(DROP_UNSUPPORTED)

/**
 * edit_load - Copies bytes out of the frame, as frame_load() does, at an offset without bounds.
 * @ctx: the packet
 * @offset: first byte, for which the verifier has no bounds
 * @to: memory for the bytes
 * @len: how many; a constant
 *
 * The mask gives the offset bounds, and opaque() keeps the compiler from dropping the mask.
 *
 * Return: 0, or not 0 when the bytes are not all in the frame.
 */
static __always_inline int edit_load(hook_ctx *ctx, __u32 offset, void *to, const __u32 len)
{
	__u64 o = offset;

	opaque(o);
	return o > MAX_OFFSET ? -1 : frame_load(ctx, o & MAX_OFFSET, to, len);
}

#if AT_XDP

/**
 * edit_store - Writes bytes into the frame, at an offset without bounds.
 * @ctx: the packet
 * @st: its state; `covered` is the first byte that skb->csum covers
 * @offset: first byte
 * @from: the bytes
 * @len: how many; a constant
 *
 * At tc, skb->csum (CHECKSUM_COMPLETE) is updated if it covers the bytes, and pointers into the
 * packet become invalid.
 *
 * Return: 0, or not 0 when the bytes are not all in the frame.
 */
static __always_inline int edit_store(hook_ctx *ctx, const struct state *st, __u32 offset,
				      const void *from, const __u32 len)
{
	__u64 o = offset;

	opaque(o);
	return o > MAX_OFFSET ? -1 : frame_store(ctx, o & MAX_OFFSET, from, len);
}

/**
 * edit_store_neutral - Writes bytes whose change leaves skb->csum unchanged.
 * @ctx: the packet
 * @offset: first byte
 * @from: the bytes, whose change and that of their checksum cancel out
 * @len: how many; a constant
 *
 * At XDP there is no skb->csum. At tc, pointers into the packet become invalid.
 *
 * Return: as edit_store().
 */
static __always_inline int edit_store_neutral(hook_ctx *ctx, __u32 offset, const void *from,
					      const __u32 len)
{
	return edit_store(ctx, 0, offset, from, len);
}

#else

/* As at XDP. */
static __always_inline int edit_store(hook_ctx *ctx, const struct state *st, __u32 offset,
				      const void *from, const __u32 len)
{
	return bpf_skb_store_bytes(ctx, offset, from, len,
				   offset < st->covered ? 0 : BPF_F_RECOMPUTE_CSUM);
}

/* As at XDP. */
static __always_inline int edit_store_neutral(hook_ctx *ctx, __u32 offset, const void *from,
					      const __u32 len)
{
	return bpf_skb_store_bytes(ctx, offset, from, len, 0);
}

#endif

/* The cells after that of an instruction: its operands, and more. */
struct operands {
	__u64 cells[CELLS_TOTAL - CELLS];
};

/* Returns `old` with the bits of `value` under `mask`. */
#define merged(old, value, mask) (((old) & ~(mask)) | ((value) & (mask)))

/* Returns the offset of the MPLS label stack, or the offset at which one would be inserted. The two
 * bytes before it are the Ethernet type. 0: the frame is too short. */
static __always_inline __u32 edit_label_place(const struct state *st)
{
	__u32 place = st->mpls ? st->mpls : st->l3;

	return place < ETH_HLEN || place > MAX_OFFSET ? 0 : place;
}

/* Returns dl_type, as in a key. */
static __always_inline __be16 edit_ethertype(hook_ctx *ctx, const struct state *st)
{
	__u32 place = edit_label_place(st);
	__be16 type;

	if (!place || edit_load(ctx, place - 2, &type, sizeof(type)))
		return 0;
	return bpf_ntohs(type) < 0x600 ? bpf_htons(0x05ff) : type;
}

/* An IP packet that the parser found valid. */
struct ip {
	__u32 l3;
	__u32 l4;
	__u32 end; /* of the packet; padding may follow */
	__u8 proto;
	bool v6;
	bool fragment; /* first or later */
	bool later;    /* a fragment other than the first: no transport header */
	bool routed;   /* IPv6: a routing header has segments left */
};

/**
 * edit_skip_extensions - Follows IPv6 extension headers up to the transport header.
 * @ctx: the packet
 * @ip: its headers, with the offset of the transport header; the protocol and the flags are set
 *
 * Return: 0 or an error.
 */
static __always_inline int edit_skip_extensions(hook_ctx *ctx, struct ip *ip)
{
	__u32 offset = ip->l3 + 40;

#pragma clang loop unroll(disable)
	for (int i = 0; i <= EXTENSIONS; i++) {
		__u8 header[4];
		__u32 kind = ip->proto, len;

		if (offset >= ip->l4)
			return 0;
		if (edit_load(ctx, offset, header, sizeof(header)))
			return -1;
		ip->proto = header[0];
		len = header[1] * 8 + 8;
		if (kind == IPPROTO_AH)
			len = header[1] * 4 + 8;
		if (kind == IPPROTO_ROUTING)
			ip->routed = header[3];
		if (kind == IPPROTO_FRAGMENT) {
			len = 8;
			if (header[2] || header[3])
				ip->fragment = true;
			if (header[2] || header[3] & 0xf8) {
				ip->later = true;
				ip->proto = PROTO_IPV6_LATER;
			}
		}
		offset += len;
	}
	return 0;
}

/**
 * find_ip - Describes the IP packet.
 * @ctx: the packet
 * @ip: filled in
 *
 * A function of its own: for the verifier the many paths through it become one path of the caller.
 *
 * Return: 0, or not 0 when the packet is no valid IP packet.
 */
__noinline int find_ip(hook_ctx *ctx, struct ip *ip)
{
	struct state *st = state_here();
	__be16 head[5];
	__be16 type;

	if (!st || !ip)
		return -1;
	type = edit_ethertype(ctx, st);
	ip->l3 = st->l3;
	ip->l4 = st->l4;
	ip->fragment = ip->later = ip->routed = false;
	if (!ip->l4 || ip->l4 > MAX_OFFSET || ip->l3 >= ip->l4 || st->mpls)
		return -1;
	if (edit_load(ctx, ip->l3, head, sizeof(head)))
		return -1;
	if (type == bpf_htons(ETH_P_IP)) {
		ip->v6 = false;
		ip->end = ip->l3 + bpf_ntohs(head[1]);
		ip->fragment = head[3] & bpf_htons(FRAGMENT_MORE | FRAGMENT_OFFSET);
		ip->later = head[3] & bpf_htons(FRAGMENT_OFFSET);
		ip->proto = bpf_ntohs(head[4]);
		return 0;
	}
	if (type != bpf_htons(ETH_P_IPV6))
		return -1;
	ip->v6 = true;
	ip->end = ip->l3 + 40 + bpf_ntohs(head[2]);
	ip->proto = bpf_ntohs(head[3]) >> 8;
	return edit_skip_extensions(ctx, ip);
}

/**
 * has_transport - Checks for a whole transport header.
 * @ip: the packet's headers
 * @proto: the protocol
 * @len: bytes of its header; a constant
 *
 * Return: true when the packet has it.
 */
static __always_inline bool has_transport(const struct ip *ip, __u32 proto, const __u32 len)
{
	return ip->proto == proto && !ip->later && ip->l4 + len <= ip->end;
}

#endif
