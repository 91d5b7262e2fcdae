/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sending. output() and output_to() end a packet; output_copy(), at tc only, does not. */
#ifndef SLIPSWITCH_OUTPUT_H
#define SLIPSWITCH_OUTPUT_H

#if !defined(SLIPSWITCH_HOOK_H)
#error include hook_xdp.h or hook_tc.h first
#endif

#include "view.h"

/* Counts a drop for `reason` (enum drop) and returns the verdict for it. */
static __always_inline int drop(__u32 reason)
{
	count_drop(reason);
	return VERDICT_DROP;
}

/* Returns the bytes of the frame, including a tag that is kept outside of it. */
static __always_inline __u32 frame_length(hook_ctx *ctx)
{
	return data_length(ctx) + tag_length(ctx);
}

/* Returns the bytes of the packet: without the room of an Ethernet header that it does not have. */
static __always_inline __u32 packet_length(hook_ctx *ctx, const struct state *st)
{
	return frame_length(ctx) - (st->bare ? ETH_HLEN : 0);
}

/* Drops a packet of a flow whose action is to drop, for the reason in the slot; returns the
 * verdict. */
static __always_inline int drop_by(__u32 slot)
{
	struct slot_detail *detail = detail_of(slot);

	return drop(detail ? detail->reason : DROP_FLOW);
}

/**
 * output_exceeds_mtu - Checks a frame against the MTU of a port.
 * @ctx: the packet
 * @port: the port
 * @length: data_length(ctx)
 *
 * One VLAN tag does not count against the MTU. A packet that is still to be segmented is cut to
 * size later.
 *
 * Return: true when the frame is too long.
 */
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

/**
 * output_accepts - Checks whether a port accepts a packet.
 * @ctx: the packet
 * @port: the port, or NULL
 * @length: data_length(ctx)
 *
 * Return: true when it does; else the reason is counted as a drop.
 */
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

/**
 * output_fits_segments - Checks the segments of an outer packet against the MTU of a port.
 * @st: the packet's state
 * @number: number of the port
 *
 * Segments of other packets are those that their sender made. Outer headers make them longer.
 *
 * Return: true when they fit; else the reason is counted as a drop.
 */
static __always_inline bool output_fits_segments(const struct state *st, __u32 number)
{
#if !AT_XDP
	struct port *port = st->segment > 1 ? port_of(number) : 0;

	if (port && st->segment - ETH_HLEN > port->mtu) {
		count_drop(DROP_TOO_LONG);
		return false;
	}
#endif
	return true;
}

#if AT_XDP

/* Returns true when the frame is in several buffers. */
static __always_inline bool is_split(hook_ctx *ctx, __u32 length)
{
	return settings.have_frags && data_end_of(ctx) - data_of(ctx) < length;
}

/**
 * output_to - Sends the packet itself to a port.
 * @ctx: the packet
 * @port: the port, or NULL
 * @number: its number
 * @in_port: ingress port of the packet
 * @length: data_length(ctx)
 * @network: tc: offset of the kernel's network header
 *
 * Return: the verdict; a packet that the port does not accept is dropped and counted.
 */
static __always_inline int output_to(hook_ctx *ctx, struct port *port, __u32 number,
				     __u32 in_port, __u32 length, __u32 network)
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

/**
 * output_enters_peer - Checks whether a packet may skip the port's device.
 * @ctx: the packet
 * @port: the port to send to
 * @in_port: ingress port of the packet
 * @network: offset of the kernel's network header
 *
 * bpf_redirect_peer() makes every packet PACKET_HOST, so the frame must be for the address of the
 * other end. The helper drops packets of an egress hook, which those of PORT_STACK come from. The
 * kernel takes the frame up at its network header, which before Linux 6.12 a pushed tag or label
 * moves away from the end of the Ethernet header.
 */
static __always_inline bool output_enters_peer(hook_ctx *ctx, const struct port *port,
					       __u32 in_port, __u32 network)
{
	__u8 *frame = data_of(ctx);
	__u64 mac;

	if (!(port->flags & PORT_PEER) || network != ETH_HLEN)
		return false;
	if (frame + ETH_ALEN > (__u8 *)data_end_of(ctx))
		return false;
	mac = *(volatile __u64 *)&port->peer_mac;
	if (*(__u32 *)frame != (__u32)mac || *(__u16 *)(frame + 4) != (__u16)(mac >> 32))
		return false;
	if (settings.features & FEATURE_STACK) {
		struct port *from = port_of(in_port);

		return from && !(from->flags & PORT_STACK);
	}
	return true;
}

/**
 * output_peer - Sends a packet into the other end of the port's veth pair, in its namespace.
 * @ctx: the packet
 * @port: the port
 * @number: its number
 * @bytes: of the frame
 *
 * The device of the port neither sees nor counts the packet. The helper leaves the mark and the
 * priority as they are, and before Linux 6.16 the packet type, too; on the way through the device
 * all of them would be reset (____dev_forward_skb()).
 *
 * Return: the verdict.
 */
static __always_inline int output_peer(hook_ctx *ctx, const struct port *port, __u32 number,
				       __u32 bytes)
{
	__u32 ifindex = port->ifindex;

	count_tx(number, bytes);
	ctx->mark = 0;
	ctx->priority = 0;
	if (ctx->pkt_type != PACKET_HOST)
		bpf_skb_change_type(ctx, PACKET_HOST);
	return bpf_redirect_peer(ifindex, 0);
}

/* As at XDP. */
static __always_inline int output_to(hook_ctx *ctx, struct port *port, __u32 number,
				     __u32 in_port, __u32 length, __u32 network)
{
	if (!output_accepts(ctx, port, length))
		return VERDICT_DROP;
	if (port->flags & PORT_STACK) {
		count_tx(number, length + tag_length(ctx));
		return bpf_redirect(port->ifindex, BPF_F_INGRESS);
	}
	if (output_enters_peer(ctx, port, in_port, network))
		return output_peer(ctx, port, number, length + tag_length(ctx));
	return bpf_redirect(port->ifindex, 0);
}

/**
 * output_copy - Sends a copy of the packet to a port.
 * @ctx: the packet; pointers into it become invalid
 * @number: number of the port
 *
 * The device that receives the copy may run these programs on this CPU before the call returns. The
 * caller saves the parts of the per-CPU state that it still needs.
 */
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

/* No verdict: nothing was done, and the packet takes a slower path. */
#define NOT_HERE 0x7fffffff

/**
 * output_can_redirect - Checks whether this hook can send a packet to a port.
 * @v: the packet's bytes
 * @port: the port, or NULL
 *
 * XDP can redirect only to devices in the devmap, and frames in several buffers only to some of
 * these. The next hook can send to any port.
 *
 * Return: true also for a port that the packet is dropped at.
 */
static __always_inline bool output_can_redirect(const struct view *v, const struct port *port)
{
#if AT_XDP
	const __u32 open = PORT_UP | PORT_DEVMAP | PORT_SPLIT;
	__u32 flags;

	/* One comparison suffices for most ports. */
	if (!port || (port->flags & open) == open)
		return true;
	flags = *(volatile __u32 *)&port->flags; /* read again: most packets would pay for a register */
	if (!(flags & PORT_UP))
		return true;
	return flags & PORT_DEVMAP && v->whole;
#else
	return true;
#endif
}

/* Counts a packet that the host's stack sent, which no device counts. `bytes`: of the frame. */
static __always_inline void count_ingress(__u32 in_port, __u32 bytes)
{
	struct port *port;

	if (!(settings.features & FEATURE_STACK))
		return;
	port = port_of(in_port);
	if (port && port->flags & PORT_STACK)
		count_rx(in_port, bytes);
}

/* Sends the packet itself, which came from `in_port`, to port `number`; returns the verdict. At tc,
 * the kernel's network header is at `network`. */
static __always_inline int output(hook_ctx *ctx, __u32 number, __u32 in_port, __u32 network)
{
	return output_to(ctx, port_of(number), number, in_port, data_length(ctx), network);
}

#endif
