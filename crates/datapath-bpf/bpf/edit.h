/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What edits need to know of a packet, and how they change its bytes.
 *
 * A lookup writes only the words of the key that some flow looks at, so edits go by the places of
 * the layers in `state` and read the rest from the packet. */
#ifndef SLIPSWITCH_EDIT_H
#define SLIPSWITCH_EDIT_H

#if !defined(SLIPSWITCH_HOOK_H)
#error include hook_xdp.h or hook_tc.h first
#endif

#include "parse.h"

/* What an edit answers: 0, or the reason to drop the packet plus one. */
#define EDITED 0
#define REFUSED(reason) ((reason) + 1)
#define MALFORMED REFUSED(DROP_MALFORMED)
/* No room in front of the frame, no memory. */
#define FAILED REFUSED(DROP_UNSUPPORTED)

/* As `load`, at an offset that the verifier knows nothing of. */
static __always_inline int edit_load(hook_ctx *ctx, __u32 offset, void *to, const __u32 len)
{
	__u64 o = offset;

	opaque(o);
	return o > MAX_OFFSET ? -1 : frame_load(ctx, o & MAX_OFFSET, to, len);
}

#if AT_XDP

static __always_inline int edit_store(hook_ctx *ctx, const struct state *st, __u32 offset,
			       const void *from, const __u32 len)
{
	__u64 o = offset;

	opaque(o);
	return o > MAX_OFFSET ? -1 : frame_store(ctx, o & MAX_OFFSET, from, len);
}

static __always_inline int edit_store_neutral(hook_ctx *ctx, __u32 offset, const void *from,
				       const __u32 len)
{
	return edit_store(ctx, 0, offset, from, len);
}

#else

/* Stores, and keeps skb->csum right where it covers the place (CHECKSUM_COMPLETE). */
static __always_inline int edit_store(hook_ctx *ctx, const struct state *st, __u32 offset,
			       const void *from, const __u32 len)
{
	return bpf_skb_store_bytes(ctx, offset, from, len,
				   offset < st->covered ? 0 : BPF_F_RECOMPUTE_CSUM);
}

/* Stores what, with the checksum that changes along, is no change of skb->csum. */
static __always_inline int edit_store_neutral(hook_ctx *ctx, __u32 offset, const void *from,
				       const __u32 len)
{
	return bpf_skb_store_bytes(ctx, offset, from, len, 0);
}

#endif

#define merged(old, value, mask) (((old) & ~(mask)) | ((value) & (mask)))

/* Where the label stack is or would be, with the Ethernet type in the two bytes before; 0: the
 * frame is too short. */
static __always_inline __u32 edit_label_place(const struct state *st)
{
	__u32 place = st->mpls ? st->mpls : st->l3;

	return place < ETH_HLEN || place > MAX_OFFSET ? 0 : place;
}

/* dl_type, as in a key. */
static __always_inline __be16 edit_ethertype(hook_ctx *ctx, const struct state *st)
{
	__u32 place = edit_label_place(st);
	__be16 type;

	if (!place || edit_load(ctx, place - 2, &type, sizeof(type)))
		return 0;
	return bpf_ntohs(type) < 0x600 ? bpf_htons(0x05ff) : type;
}

/* An IP packet that the parser found sane. */
struct ip {
	__u32 l3;
	__u32 l4;
	__u32 end; /* of the packet; padding may follow */
	__u8 proto;
	bool v6;
	bool later;  /* a fragment but the first: no transport header */
	bool routed; /* IPv6: a routing header has segments left */
};

/* Extension headers up to the transport; the parser has been there. */
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
			if (header[2] || header[3] & 0xf8) {
				ip->later = true;
				ip->proto = PROTO_IPV6_LATER;
			}
		}
		offset += len;
	}
	return 0;
}

/* Fills `ip` in; not 0 when the packet is no sane IP packet. A function that the verifier looks at
 * once: the many ways through it are one for the caller. */
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
	ip->later = ip->routed = false;
	if (!ip->l4 || ip->l4 > MAX_OFFSET || ip->l3 >= ip->l4 || st->mpls)
		return -1;
	if (edit_load(ctx, ip->l3, head, sizeof(head)))
		return -1;
	if (type == bpf_htons(ETH_P_IP)) {
		ip->v6 = false;
		ip->end = ip->l3 + bpf_ntohs(head[1]);
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

/* The packet has a whole transport header of `len` bytes, of protocol `proto`. */
static __always_inline bool has_transport(const struct ip *ip, __u32 proto, const __u32 len)
{
	return ip->proto == proto && !ip->later && ip->l4 + len <= ip->end;
}

#endif
