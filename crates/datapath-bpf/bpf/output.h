/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sending. `output` and `output_to` end a packet, `output_copy` (tc) does not. */
#ifndef SLIPSWITCH_OUTPUT_H
#define SLIPSWITCH_OUTPUT_H

#if !defined(SLIPSWITCH_HOOK_H)
#error include hook_xdp.h or hook_tc.h first
#endif

static __always_inline int drop(__u32 reason)
{
	count_drop(reason);
	return VERDICT_DROP;
}

/* Bytes of the frame, the tag beside it included. */
static __always_inline __u32 frame_length(hook_ctx *ctx)
{
	return data_length(ctx) + tag_length(ctx);
}

/* The actions of a slot are to drop. */
static __always_inline int drop_by(__u32 slot)
{
	struct slot_detail *detail = detail_of(slot);

	return drop(detail ? detail->reason : DROP_FLOW);
}

/* One VLAN tag does not count against the MTU. A packet still to be segmented is cut to fit
 * later. `length` here and below: data_length(ctx). */
static __always_inline bool output_exceeds_mtu(hook_ctx *ctx, struct port *port, __u32 length)
{
	__u32 behind = length - ETH_HLEN;
	__be16 type;

	if (behind <= port->mtu || is_gso(ctx))
		return false;
	if (has_tag(ctx) || behind - 4 > port->mtu || frame_load(ctx, 12, &type, sizeof(type)))
		return true;
	return type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD);
}

/* True when `port` takes the packet; else the reason is counted. */
static __always_inline bool output_accepts(hook_ctx *ctx, struct port *port, __u32 length)
{
	if (!port || !port->ifindex) {
		count_drop(DROP_PORT_GONE);
		return false;
	}
	if (!(port->flags & PORT_UP)) {
		count_drop(DROP_OUTPUT);
		return false;
	}
	if (output_exceeds_mtu(ctx, port, length)) {
		count_drop(DROP_TOO_LONG);
		return false;
	}
	return true;
}

#if AT_XDP

/* The frame is in several buffers. */
static __always_inline bool is_split(hook_ctx *ctx, __u32 length)
{
	return settings.have_frags && data_end_of(ctx) - data_of(ctx) < length;
}

/* Sends the packet itself to `port`, which is port `number`; returns the verdict. */
static __always_inline int output_to(hook_ctx *ctx, struct port *port, __u32 number,
				     __u32 length)
{
	int verdict;

	if (!output_accepts(ctx, port, length))
		return VERDICT_DROP;
	verdict = bpf_redirect_map(&devmap, number, XDP_DROP);
	if (verdict != XDP_REDIRECT)
		count_drop(DROP_OUTPUT);
	return verdict;
}

#else

static __always_inline int output_to(hook_ctx *ctx, struct port *port, __u32 number,
				     __u32 length)
{
	if (!output_accepts(ctx, port, length))
		return VERDICT_DROP;
	if (port->flags & PORT_STACK) {
		count_tx(number, length + tag_length(ctx));
		return bpf_redirect(port->ifindex, BPF_F_INGRESS);
	}
	return bpf_redirect(port->ifindex, 0);
}

/* Sends a copy. What the copy meets may run these programs on this CPU before the call returns:
 * the caller saves what it needs of the per-CPU state. */
static __always_inline void output_copy(hook_ctx *ctx, __u32 number)
{
	struct port *port = port_of(number);
	__u32 length = data_length(ctx);
	__u64 flags = 0;

	if (!output_accepts(ctx, port, length))
		return;
	if (port->flags & PORT_STACK) {
		count_tx(number, length + tag_length(ctx));
		flags = BPF_F_INGRESS;
	}
	if (bpf_clone_redirect(ctx, port->ifindex, flags) < 0)
		count_drop(DROP_OUTPUT);
}

#endif

static __always_inline int output(hook_ctx *ctx, __u32 number)
{
	return output_to(ctx, port_of(number), number, data_length(ctx));
}

#endif
