/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Devices that the host's stack shares with the switch: the switch gets the packets of tunnels that
 * come to an address of the host, and every other packet goes on to the stack as it came. */
#ifndef SLIPSWITCH_UNDERLAY_H
#define SLIPSWITCH_UNDERLAY_H

#include <stdbool.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "maps.h"

/* Addresses to which packets of tunnels come. The value has no meaning. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ENDPOINTS);
	__type(key, struct tunnel_endpoint);
	__type(value, __u32);
} endpoints SEC(".maps");

#define UNDERLAY_FRAGMENT 0x3fff /* of frag_off: more fragments, and the offset */

/**
 * underlay_ipv4 - Fills in the destination of an IPv4 packet.
 * @ctx: the packet
 * @to: becomes the destination, with the protocol
 *
 * Return: offset of the header that follows; 0 for a fragment and a packet with options.
 */
static __always_inline __u32 underlay_ipv4(hook_ctx *ctx, struct tunnel_endpoint *to)
{
	struct iphdr header;

	if (frame_load(ctx, ETH_HLEN, &header, sizeof(header)) || header.version != 4 ||
	    header.ihl != 5 || header.frag_off & bpf_htons(UNDERLAY_FRAGMENT))
		return 0;
	to->protocol = header.protocol;
	to->address[2] = bpf_htonl(0xffff);
	to->address[3] = header.daddr;
	return ETH_HLEN + sizeof(header);
}

/**
 * underlay_ipv6 - Fills in the destination of an IPv6 packet.
 * @ctx: the packet
 * @to: becomes the destination, with the protocol: that after the routing header, if there is one
 *
 * Return: offset of the header that follows; 0 for a packet with other extension headers.
 */
static __always_inline __u32 underlay_ipv6(hook_ctx *ctx, struct tunnel_endpoint *to)
{
	struct ipv6hdr header;

	if (frame_load(ctx, ETH_HLEN, &header, sizeof(header)) || header.version != 6)
		return 0;
	to->protocol = header.nexthdr;
	__builtin_memcpy(to->address, &header.daddr, sizeof(to->address));
	if (to->protocol == IPPROTO_ROUTING &&
	    frame_load(ctx, ETH_HLEN + sizeof(header), &to->protocol, sizeof(to->protocol)))
		return 0;
	return ETH_HLEN + sizeof(header);
}

/**
 * underlay_takes - Decides whether a packet is the switch's.
 * @ctx: the packet, which is not changed
 *
 * Return: true for a packet of a tunnel to an address of the host.
 */
static __always_inline bool underlay_takes(hook_ctx *ctx)
{
	struct tunnel_endpoint to = {};
	__u32 next;

	if (ctx->pkt_type != PACKET_HOST || has_tag(ctx))
		return false;
	if (ctx->protocol == bpf_htons(ETH_P_IP))
		next = underlay_ipv4(ctx, &to);
	else if (ctx->protocol == bpf_htons(ETH_P_IPV6))
		next = underlay_ipv6(ctx, &to);
	else
		return false;
	if (!next)
		return false;
	switch (to.protocol) {
	case IPPROTO_UDP:
		if (frame_load(ctx, next + 2, &to.port, sizeof(to.port)))
			return false;
		break;
	case IPPROTO_GRE:
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
		break;
	default:
		return false;
	}
	return bpf_map_lookup_elem(&endpoints, &to);
}

#endif
