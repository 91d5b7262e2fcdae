/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets from tunnels: the way into tunnel.h, and the way out of it.
 *
 * A packet whose flow has FLOW_POP is looked up once more without being changed: the program in
 * TAIL_TUNNEL reads the outer headers, and parses the inner frame where it lies, at `base`. Only when
 * the inner flow runs at this hook are the outer headers taken off. Otherwise the packet leaves as it
 * arrived: nothing has to be undone, and no metadata has to travel.
 *
 * Both flows are counted when the headers are taken off, the outer one by the outer bytes. From then
 * on the packet is one that was looked up again, with the metadata of a tunnel.
 */
#ifndef SLIPSWITCH_TUNNEL_STRIP_H
#define SLIPSWITCH_TUNNEL_STRIP_H

#include "undo.h"
#include "parse.h"

/**
 * tunnel_enter - Goes on to the packet in a packet from a port.
 * @ctx: the packet
 * @in_port: ingress port
 * @flow: number of the packet's flow, which has FLOW_POP
 *
 * Return: the verdict.
 */
static __always_inline int tunnel_enter(hook_ctx *ctx, __u32 in_port, __u32 flow)
{
	struct state *st = state_here();

	if (!st)
		return drop(DROP_UNSUPPORTED);
	st->outer_port = in_port;
	st->outer_flow = flow;
	st->popping = 0;
	return tail_call(ctx, TAIL_TUNNEL);
}

/* Makes the state that of the outer packet, before any lookup. */
static __always_inline void tunnel_forget(struct state *st)
{
	if (!st->popping)
		return;
	st->popping = 0;
	st->base = 0;
	st->tunnelled = 0;
	st->in_port = st->outer_port;
}

/* Returns the offset of the inner frame, with bounds that the verifier follows. */
static __always_inline __u64 tunnel_base(const struct state *st)
{
	__u64 base = st->base;

	opaque(base);
	return base & (TUNNEL_REACH - 1);
}

#if AT_XDP

/* Takes the outer headers off; returns false, and nothing is done, when that is not possible. */
static __always_inline bool tunnel_take_off(hook_ctx *ctx, struct state *st)
{
	return !bpf_xdp_adjust_head(ctx, (int)st->base);
}

#else

#ifndef BPF_F_ADJ_ROOM_DECAP_L3_IPV4
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV4 (1ull << 7)
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV6 (1ull << 8)
#endif

#define TUNNEL_ROOM (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

/* Returns true when an outer packet comes from the host's stack, so that its hook is at egress. */
static __always_inline bool tunnel_is_from_stack(const struct state *st)
{
	struct port *port;

	if (!(settings.features & FEATURE_STACK))
		return false;
	port = port_of(st->outer_port);
	return port && port->flags & PORT_STACK;
}

/* The inner Ethernet header, and the VLAN tag after it. */
struct tunnel_inner {
	__be16 addresses[6];
	__be16 type;
	__be16 tci;
	__be16 type_of_tagged;
};

/**
 * tunnel_take_off - Takes the outer headers off.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 *
 * The helper removes bytes after the Ethernet header, and the inner one is written over the outer. It
 * leaves skb->protocol as it is, or changes the version of IP there. The kernel's functions for VLAN
 * tags go by skb->protocol: so a tag of the inner frame moves out of the frame, as it does when a
 * device receives such a frame. A tag of the outer frame is outside of the frame, and is dropped.
 *
 * Return: false, and nothing is done, when that is not possible.
 */
static __always_inline bool tunnel_take_off(hook_ctx *ctx, struct state *st)
{
	bool is_v6 = ctx->protocol == bpf_htons(ETH_P_IPV6), is_tagged, is_foreign = false;
	struct tunnel_inner inner = {};
	__u64 base = tunnel_base(st), flags = TUNNEL_ROOM;
	__be16 type;

	if (bpf_skb_load_bytes(ctx, base, &inner, sizeof(inner)))
		return false;
	is_tagged = is_vlan(inner.type);
	type = is_tagged ? inner.type_of_tagged : inner.type;
	if (type == bpf_htons(ETH_P_IP) && is_v6)
		flags |= BPF_F_ADJ_ROOM_DECAP_L3_IPV4;
	else if (type == bpf_htons(ETH_P_IPV6) && !is_v6)
		flags |= BPF_F_ADJ_ROOM_DECAP_L3_IPV6;
	else if (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6))
		is_foreign = true;
	/* Labels and further tags are edited by skb->protocol. */
	if (is_foreign && type != bpf_htons(ETH_P_ARP) && (is_tagged || is_vlan(type) || st->mpls))
		return false;
	/* Kernels before Linux 6.3 refuse a change of the version of IP. */
	if (bpf_skb_adjust_room(ctx, -(int)(base + (is_tagged ? 4 : 0)), BPF_ADJ_ROOM_MAC, flags))
		return false;
	/* The receiver would go by skb->protocol; and the helper drops packets of an egress hook. */
	st->no_peer = is_foreign || tunnel_is_from_stack(st);
	/* The sum that the card verified may be that of the outer packet. */
	bpf_csum_level(ctx, BPF_CSUM_LEVEL_DEC);
	if (has_tag(ctx))
		bpf_skb_vlan_pop(ctx);
	bpf_skb_store_bytes(ctx, 0, inner.addresses, sizeof(inner.addresses), 0);
	bpf_skb_store_bytes(ctx, 12, &type, sizeof(type), 0);
	if (!is_tagged)
		return true;
	st->l3 -= 4;
	st->l4 -= st->l4 ? 4 : 0;
	bpf_skb_vlan_push(ctx, inner.type, bpf_ntohs(inner.tci));
	return true;
}

#endif

/**
 * tunnel_strip - Takes the outer headers off a packet whose inner flow is about to run.
 * @ctx: the packet; pointers into it become invalid
 * @is_undone: XDP: the frame may have to be restored
 * @bytes: of the outer frame
 *
 * A function of its own, for the verifier.
 *
 * Return: 0; -1, and nothing is done, when that is not possible.
 */
__noinline int tunnel_strip(hook_ctx *ctx, __u32 is_undone, __u32 bytes)
{
	struct state *st = state_here();
	__u32 flow;

	opaque(is_undone); /* at tc, too: the compiler passes no value to an argument without use */
	if (!st)
		return -1;
	flow = st->outer_flow;
#if AT_XDP
	if (is_undone && undo_keep_head(ctx))
		return -1;
#endif
	if (!tunnel_take_off(ctx, st))
		return -1;
#if AT_XDP
	if (is_undone) {
		deferred_count_add(st, flow, bytes, 0);
		flow = NO_SLOT;
	}
#endif
	if (flow != NO_SLOT) {
		count_flow(flow, bytes, 0);
		count_ingress(st->outer_port, bytes);
	}
	st->popping = 0;
	st->base = 0;
	st->depth = 1;
	st->covered = ETH_HLEN;
	return 0;
}

#endif
