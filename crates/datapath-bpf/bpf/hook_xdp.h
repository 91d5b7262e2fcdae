/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The XDP hook: a frame as the driver received it.
 *
 * hook_xdp.h and hook_tc.h define the same names. The shared headers use nothing else of a context:
 *
 *   hook_ctx, HOOK       the type of a context; HOOK_XDP or HOOK_TC
 *   AT_XDP               1 or 0
 *   VERDICT_DROP         drops the packet
 *   VERDICT_NONE         the packet goes where it would go without these programs
 *   hook_ifindex         the device of the hook
 *   data_length          bytes of the frame in memory, all buffers
 *   linear_length        the same without a helper call: at XDP, bytes of the first buffer
 *   tag_length           bytes of the VLAN tag that is kept outside of the frame: 0 or 4
 *   has_tag, tag_tpid, tag_tci   the outermost VLAN tag when it is kept outside of the frame
 *   is_gso               the packet is still to be segmented
 *   frame_load, frame_store      bytes anywhere in the frame; 0 or an error. `len` is a constant
 *   frame_push_vlan, frame_pop_vlan   `shift` becomes the distance that later headers moved by
 *   frame_resize         changes the length at the tail; 0 or an error
 *   tail_call            continues in another program; returns a verdict if that is not possible
 *
 * A change of the frame invalidates every pointer into it. Offsets remain valid.
 */
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

static __always_inline __u32 hook_ifindex(hook_ctx *ctx)
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

/**
 * frame_load - Copies bytes out of the frame.
 * @ctx: the frame
 * @offset: where they begin
 * @to: destination
 * @len: how many; a constant
 *
 * The first branch reads through a packet pointer, which costs no call. The helper reads frames in
 * several buffers; without them (settings.have_frags) the verifier removes that branch.
 *
 * Return: 0, or not 0 when the frame is too short.
 */
static __always_inline int frame_load(hook_ctx *ctx, __u32 offset, void *to, const __u32 len)
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

/**
 * frame_store - Writes bytes into the frame, as frame_load() reads them.
 *
 * Return: 0, or not 0 when the frame is too short.
 */
static __always_inline int frame_store(hook_ctx *ctx, __u32 offset, const void *from,
				       const __u32 len)
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

/**
 * xdp_move_addresses - Copies the Ethernet addresses to another offset.
 * @ctx: the frame
 * @from: present offset
 * @to: new offset
 *
 * Return: 0, or not 0 when the frame is too short.
 */
static __always_inline int xdp_move_addresses(hook_ctx *ctx, __u32 from, __u32 to)
{
	__u8 front[12];

	if (frame_load(ctx, from, front, sizeof(front)))
		return -1;
	return frame_store(ctx, to, front, sizeof(front)) ? -1 : 0;
}

/**
 * frame_push_vlan - Inserts a VLAN header after the Ethernet addresses.
 * @ctx: the frame; pointers into it become invalid
 * @tpid: Ethernet type of the tag, host integer
 * @tci: tag control information, host integer
 * @shift: becomes 4
 *
 * Return: 0, or not 0 when there is no headroom.
 */
static __always_inline int frame_push_vlan(hook_ctx *ctx, __u16 tpid, __u16 tci, int *shift)
{
	__be16 tag[2] = { bpf_htons(tpid), bpf_htons(tci) };

	if (bpf_xdp_adjust_head(ctx, -4) || xdp_move_addresses(ctx, 4, 0))
		return -1;
	*shift = 4;
	return frame_store(ctx, 12, tag, sizeof(tag));
}

/**
 * frame_pop_vlan - Removes the VLAN header after the Ethernet addresses.
 * @ctx: the frame, which has a tag (the caller checks); pointers into it become invalid
 * @shift: becomes -4
 *
 * Return: 0, or not 0 when the frame is too short.
 */
static __always_inline int frame_pop_vlan(hook_ctx *ctx, int *shift)
{
	*shift = -4;
	return xdp_move_addresses(ctx, 0, 4) || bpf_xdp_adjust_head(ctx, 4) ? -1 : 0;
}

static __always_inline int frame_resize(hook_ctx *ctx, __u32 length)
{
	return bpf_xdp_adjust_tail(ctx, (int)length - (int)data_length(ctx));
}

#endif
