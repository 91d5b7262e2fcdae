/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Decides whether a packet that arrives at a device belongs to these programs or to the daemon,
 * which has a packet socket on the device.
 *
 * The kernel runs the socket first and the tc hook after it, on the same CPU. A port changes from
 * one to the other while packets are between them, so one place has to decide: the socket's filter
 * does, by the table of interfaces, and marks the packets of the programs (NOTE_OURS). While
 * IFACE_NOTED is set, the tc hook goes by this mark alone. XDP comes before both and decides for
 * itself: neither of them sees a packet that XDP takes.
 */
#ifndef SLIPSWITCH_INGRESS_H
#define SLIPSWITCH_INGRESS_H

#include "maps.h"

/* The mark, in the first word of the packet's control block, which socket filters and the tc hook
 * share. */
#define NOTE_OURS 0x736c6970u

/* The mark of a packet that the limit of its interface admitted, in the second word. The index of the
 * interface is part of it: the packet may arrive at others later. */
#define NOTE_POLICED 0x706f6c69u

/* ingress_port(): the limit of the interface has to admit the packet before. */
#define PORT_POLICED (NO_PORT - 1)

/**
 * ingress_port_of - Returns the port of an interface, with its IFACE_* flags.
 * @ifindex: the interface
 *
 * Return: NO_PORT, in which all flags are set, when the interface has no port.
 */
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

/**
 * ingress_restore_header - Makes sure that a packet begins with its Ethernet header.
 * @ctx: the packet; pointers into it become invalid
 *
 * Generic XDP copies a packet when the packet lacks the headroom that programs may use (Linux 6.9).
 * The copy does not know the length of its link header, so the hook sees only the bytes after the
 * header. The header still lies before them: it is inserted again, which also sets its length.
 *
 * Return: false when that is not possible.
 */
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

/**
 * ingress_port - Returns the datapath port of the hook's device.
 * @ctx: the packet; at tc, pointers into it become invalid
 *
 * Return: NO_PORT when the packet is not for the programs, PORT_POLICED when police() is to see it
 * before.
 */
static __always_inline __u32 ingress_port(hook_ctx *ctx)
{
	__u32 port = ingress_port_of(hook_ifindex(ctx));

	if (!(port & IFACE_FLAGS))
		return port;
#if AT_XDP
	return port & (IFACE_DAEMONS | IFACE_POLICED) ? NO_PORT : port & ~IFACE_FLAGS;
#else
	if (port == NO_PORT || (port & IFACE_NOTED && ctx->cb[0] != NOTE_OURS))
		return NO_PORT;
	if (port & IFACE_GENERIC && !ingress_restore_header(ctx))
		return NO_PORT;
	if (port & IFACE_POLICED && ctx->cb[1] != (NOTE_POLICED ^ hook_ifindex(ctx)))
		return PORT_POLICED;
	return port & ~IFACE_FLAGS;
#endif
}

#if !AT_XDP

/* The filter of the daemon's socket. Returns -1, all of the packet, or 0 when the packet is for the
 * programs, and marks the packet. */
static __always_inline int ingress_filter(hook_ctx *ctx)
{
	bool is_ours = !(ingress_port_of(ctx->ifindex) & IFACE_DAEMONS);

	ctx->cb[0] = is_ours ? NOTE_OURS : 0;
	return is_ours ? 0 : -1;
}

#endif

#endif
