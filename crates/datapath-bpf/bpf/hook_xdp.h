/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The XDP hook: a frame as the driver received it.
 *
 * Both hook headers define the same names; the shared headers use nothing else of a context:
 *
 *   hook_ctx, HOOK, VERDICT_DROP, VERDICT_NONE (the packet goes where it would without us)
 *   data_length   bytes of the frame in memory (all buffers)
 *   linear_length the same without asking the kernel: at XDP, of the first buffer
 *   tag_length    bytes of the tag that is beside the frame
 *   has_tag, tag_tpid, tag_tci   the outermost VLAN tag when it is beside the frame
 *   is_gso        still to be segmented
 *   load, store   bytes of the frame, anywhere in it; 0 or an error. `len` is a constant
 *   push_vlan, pop_vlan          `shift`: by how much later headers moved
 *   resize        changes the length at the tail
 *   go            on to another program; returns a verdict when that is not possible
 *
 * Whatever changes the frame ends every pointer into it; offsets stay. */
#ifndef SLIPSWITCH_HOOK_H
#define SLIPSWITCH_HOOK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

typedef struct xdp_md hook_ctx;

#define HOOK HOOK_XDP
#define AT_XDP 1
#define VERDICT_DROP XDP_DROP
#define VERDICT_NONE XDP_PASS

#include "hook_common.h"

static __always_inline __u32 arrival_ifindex(hook_ctx *ctx)
{
	return ctx->ingress_ifindex;
}

static __always_inline __u32 data_length(hook_ctx *ctx)
{
	if (settings.have_frags)
		return bpf_xdp_get_buff_len(ctx);
	return data_end_of(ctx) - data_of(ctx);
}

static __always_inline __u32 linear_length(hook_ctx *ctx)
{
	return data_end_of(ctx) - data_of(ctx);
}

static __always_inline __u32 tag_length(hook_ctx *ctx)
{
	return 0;
}

static __always_inline bool has_tag(hook_ctx *ctx)
{
	return false;
}

static __always_inline __u16 tag_tpid(hook_ctx *ctx)
{
	return 0;
}

static __always_inline __u16 tag_tci(hook_ctx *ctx)
{
	return 0;
}

static __always_inline bool is_gso(hook_ctx *ctx)
{
	return false;
}

static __always_inline int load(hook_ctx *ctx, __u32 offset, void *to, const __u32 len)
{
	void *at = data_of(ctx);

	if (offset > MAX_OFFSET)
		return -1;
	at += offset;
	if (at + len <= data_end_of(ctx)) {
		__builtin_memcpy(to, at, len);
		return 0;
	}
	if (settings.have_frags)
		return bpf_xdp_load_bytes(ctx, offset, to, len);
	return -1;
}

static __always_inline int store(hook_ctx *ctx, __u32 offset, const void *from, const __u32 len)
{
	void *at = data_of(ctx);

	if (offset > MAX_OFFSET)
		return -1;
	at += offset;
	if (at + len <= data_end_of(ctx)) {
		__builtin_memcpy(at, from, len);
		return 0;
	}
	if (settings.have_frags)
		return bpf_xdp_store_bytes(ctx, offset, (void *)from, len);
	return -1;
}

/* The Ethernet addresses. */
static __always_inline int move_front(hook_ctx *ctx, __u32 from, __u32 to)
{
	__u8 front[12];

	return load(ctx, from, front, sizeof(front)) || store(ctx, to, front, sizeof(front)) ? -1 : 0;
}

static __always_inline int push_vlan(hook_ctx *ctx, __u16 tpid, __u16 tci, int *shift)
{
	__be16 tag[2] = { bpf_htons(tpid), bpf_htons(tci) };

	if (bpf_xdp_adjust_head(ctx, -4) || move_front(ctx, 4, 0))
		return -1;
	*shift = 4;
	return store(ctx, 12, tag, sizeof(tag));
}

/* The frame has a tag: the caller has seen it. */
static __always_inline int pop_vlan(hook_ctx *ctx, int *shift)
{
	*shift = -4;
	return move_front(ctx, 0, 4) || bpf_xdp_adjust_head(ctx, 4) ? -1 : 0;
}

static __always_inline int resize(hook_ctx *ctx, __u32 length)
{
	return bpf_xdp_adjust_tail(ctx, (int)length - (int)data_length(ctx));
}

#endif
