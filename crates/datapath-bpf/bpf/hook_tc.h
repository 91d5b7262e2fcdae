/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tc hook: a packet as the kernel holds it in a socket buffer. It may be still to be segmented,
 * its checksum may be unfinished, and its outermost VLAN tag may be kept outside of the frame (in
 * skb->vlan_tci). The head of hook_xdp.h lists the names that both hooks define. */
#ifndef SLIPSWITCH_HOOK_H
#define SLIPSWITCH_HOOK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>

typedef struct __sk_buff hook_ctx;

#define HOOK HOOK_TC
#define AT_XDP 0
#define VERDICT_DROP TC_ACT_SHOT
#define VERDICT_NONE TC_ACT_UNSPEC

#include "hook_common.h"

/* The device whose hook this is, both at ingress and at egress. */
static __always_inline __u32 hook_ifindex(hook_ctx *ctx)
{
	return ctx->ifindex;
}

static __always_inline __u32 data_length(hook_ctx *ctx)
{
	return ctx->len;
}

static __always_inline __u32 linear_length(hook_ctx *ctx)
{
	return ctx->len;
}

static __always_inline bool has_tag(hook_ctx *ctx)
{
	return ctx->vlan_present;
}

static __always_inline __u32 tag_length(hook_ctx *ctx)
{
	return ctx->vlan_present ? 4 : 0;
}

/* In a context vlan_proto is in network order; vlan_tci is a host integer. */
static __always_inline __u16 tag_tpid(hook_ctx *ctx)
{
	return bpf_ntohs(ctx->vlan_proto);
}

static __always_inline __u16 tag_tci(hook_ctx *ctx)
{
	return ctx->vlan_tci;
}

static __always_inline bool is_gso(hook_ctx *ctx)
{
	return ctx->gso_size;
}

static __always_inline int frame_load(hook_ctx *ctx, __u32 offset, void *to, const __u32 len)
{
	return bpf_skb_load_bytes(ctx, offset, to, len);
}

/**
 * frame_store - Writes bytes into the frame.
 * @ctx: the packet; pointers into it become invalid
 * @offset: where they begin
 * @from: source
 * @len: how many; a constant
 *
 * A checksum that the card computed (CHECKSUM_COMPLETE) covers the bytes after the 14 of the
 * Ethernet header; the helper updates it for those.
 *
 * Return: 0, or not 0 when the packet is too short.
 */
static __always_inline int frame_store(hook_ctx *ctx, __u32 offset, const void *from,
				       const __u32 len)
{
	if (offset < ETH_HLEN)
		return bpf_skb_store_bytes(ctx, offset, from, len, 0);
	return bpf_skb_store_bytes(ctx, offset, from, len, BPF_F_RECOMPUTE_CSUM);
}

/**
 * frame_push_vlan - Adds an outermost VLAN tag.
 * @ctx: the packet; pointers into it become invalid
 * @tpid: Ethernet type of the tag, host integer
 * @tci: tag control information, host integer
 * @shift: becomes the distance that later headers moved by
 *
 * The kernel keeps the new tag outside of the frame, and moves a tag that it kept there into the
 * frame.
 *
 * Return: 0 or an error.
 */
static __always_inline int frame_push_vlan(hook_ctx *ctx, __u16 tpid, __u16 tci, int *shift)
{
	__u32 before = ctx->len;
	int err = bpf_skb_vlan_push(ctx, bpf_htons(tpid), tci);

	*shift = (int)(ctx->len - before);
	return err;
}

/**
 * frame_pop_vlan - Removes the outermost VLAN tag.
 * @ctx: the packet; pointers into it become invalid
 * @shift: becomes the distance that later headers moved by
 *
 * The kernel removes the tag that it keeps outside of the frame, and takes the next one out of the
 * frame.
 *
 * Return: 0 or an error.
 */
static __always_inline int frame_pop_vlan(hook_ctx *ctx, int *shift)
{
	__u32 before = ctx->len;
	int err = bpf_skb_vlan_pop(ctx);

	*shift = (int)(ctx->len - before);
	return err;
}

static __always_inline int frame_resize(hook_ctx *ctx, __u32 length)
{
	return bpf_skb_change_tail(ctx, length, 0);
}

#endif
