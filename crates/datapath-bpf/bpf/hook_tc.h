/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tc hook: a packet as the kernel knows it; maybe still to be segmented, maybe with its
 * checksum unfinished, maybe with its outermost VLAN tag beside it. hook_xdp.h says what the
 * names mean. */
#ifndef SLIPSWITCH_HOOK_H
#define SLIPSWITCH_HOOK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>

typedef struct __sk_buff hook_ctx;

#define HOOK HOOK_TC
#define AT_XDP 0
#define VERDICT_DROP TC_ACT_SHOT
#define VERDICT_NONE TC_ACT_UNSPEC

#include "hook_common.h"

/* The device whose hook this is, on the way in and on the way out. */
static __always_inline __u32 arrival_ifindex(hook_ctx *ctx)
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

/* vlan_proto is in network order in a context, vlan_tci is a host integer. */
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

static __always_inline int load(hook_ctx *ctx, __u32 offset, void *to, const __u32 len)
{
	return bpf_skb_load_bytes(ctx, offset, to, len);
}

/* A checksum that the card computed (CHECKSUM_COMPLETE) covers what is behind the 14 bytes of the
 * Ethernet header, and follows. */
static __always_inline int store(hook_ctx *ctx, __u32 offset, const void *from, const __u32 len)
{
	if (offset < ETH_HLEN)
		return bpf_skb_store_bytes(ctx, offset, from, len, 0);
	return bpf_skb_store_bytes(ctx, offset, from, len, BPF_F_RECOMPUTE_CSUM);
}

/* The kernel puts the new tag beside the frame, and the one that was there into it. */
static __always_inline int push_vlan(hook_ctx *ctx, __u16 tpid, __u16 tci, int *shift)
{
	__u32 before = ctx->len;
	int err = bpf_skb_vlan_push(ctx, bpf_htons(tpid), tci);

	*shift = (int)(ctx->len - before);
	return err;
}

/* The kernel takes the tag beside the frame away, and the next one out of the frame. */
static __always_inline int pop_vlan(hook_ctx *ctx, int *shift)
{
	__u32 before = ctx->len;
	int err = bpf_skb_vlan_pop(ctx);

	*shift = (int)(ctx->len - before);
	return err;
}

static __always_inline int resize(hook_ctx *ctx, __u32 length)
{
	return bpf_skb_change_tail(ctx, length, 0);
}

#endif
