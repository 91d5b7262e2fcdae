/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose a packet is that arrives at a device: ours, or that of the daemon, which has a packet
 * socket there.
 *
 * The kernel shows a packet to the socket first and to the tc hook then, on one CPU. A port goes
 * from one to the other while packets are between the two, so one of them decides and tells the
 * other: the socket's filter decides, by the table of interfaces, and notes in the packet that it
 * is ours. While IFACE_NOTED is set only that counts at the tc hook. XDP is before both and
 * decides for itself: what it takes neither of them sees. */
#ifndef SLIPSWITCH_INGRESS_H
#define SLIPSWITCH_INGRESS_H

#include "maps.h"

/* In the first word of the packet's control block, which filters and the tc hook share. */
#define NOTE_OURS 0x736c6970u

/* The port of an interface, with its IFACE_* flags; NO_PORT, in which all of them are set, when it
 * has none. */
static __always_inline __u32 ingress_port_of(__u32 ifindex)
{
#pragma unroll
	for (int i = 0; i < IFACE_PROBES; i++) {
		__u32 place = (ifindex + i) % IFACES;
		struct iface *iface = ENTRY_OF(ifaces, place, IFACES);

		if (iface && iface->ifindex == ifindex)
			return *(volatile __u32 *)&iface->port;
	}
	return NO_PORT;
}

#if !AT_XDP

/* Where generic XDP has to copy a packet to give it the room that programs may ask for (Linux 6.9),
 * the copy does not know how long its link header is, and the hook sees what is behind it. What is
 * before it is the header: it is put there again, which also tells its length. False when that
 * cannot be done. */
static __always_inline bool ingress_restore_header(hook_ctx *ctx)
{
	__u64 seen[2] = {}, header[2] = {};

	if (bpf_skb_load_bytes_relative(ctx, 0, header, ETH_HLEN, BPF_HDR_START_MAC))
		return false;
	if (bpf_skb_load_bytes(ctx, 0, seen, ETH_HLEN))
		return false;
	if (seen[0] == header[0] && seen[1] == header[1])
		return true;
	return !bpf_skb_change_head(ctx, ETH_HLEN, 0) &&
	       !bpf_skb_store_bytes(ctx, 0, header, ETH_HLEN, 0);
}

#endif

/* The datapath port of the hook's device, or NO_PORT when the packet is none of ours. */
static __always_inline __u32 ingress_port(hook_ctx *ctx)
{
	__u32 port = ingress_port_of(hook_ifindex(ctx));

	if (!(port & IFACE_FLAGS))
		return port;
#if AT_XDP
	return port & IFACE_DAEMONS ? NO_PORT : port & ~IFACE_FLAGS;
#else
	if (port == NO_PORT || (port & IFACE_NOTED && ctx->cb[0] != NOTE_OURS))
		return NO_PORT;
	if (port & IFACE_GENERIC && !ingress_restore_header(ctx))
		return NO_PORT;
	return port & ~IFACE_FLAGS;
#endif
}

#if !AT_XDP

/* The filter of the daemon's socket: all of a packet, or nothing when it is ours. */
static __always_inline int ingress_filter(hook_ctx *ctx)
{
	bool is_ours = !(ingress_port_of(ctx->ifindex) & IFACE_DAEMONS);

	ctx->cb[0] = is_ours ? NOTE_OURS : 0;
	return is_ours ? 0 : -1;
}

#endif

#endif
