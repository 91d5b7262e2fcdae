/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tc: a tunnel device of the kernel takes the outer headers off packets of a tunnel that these programs
 * cannot shorten, because they are still to be segmented. The packets leave for the host's stack, come
 * out of the device, and go on as packets of the tunnel's port. */
#ifndef SLIPSWITCH_TUNNEL_HELPER_H
#define SLIPSWITCH_TUNNEL_HELPER_H

#include "kernel_tunnel.h"
#include "tunnel.h"

/* Most bytes of the headers and data of options that the table of known options has room for. */
#define HELPER_OPTIONS (4 * TUNNEL_OPTIONS + OPTION_BYTES + 4)
_Static_assert(HELPER_OPTIONS == 64, "a power of two");

/* Reads the fields of the outer header, in the form that `flags` asks for; returns 0 or an error. */
static __always_inline long helper_read(hook_ctx *ctx, struct kernel_tunnel_key *key, const __u64 flags)
{
	return bpf_skb_get_tunnel_key(ctx, (struct bpf_tunnel_key *)key, sizeof(*key), flags);
}

/**
 * helper_key - Reads the fields of the outer header.
 * @ctx: the packet
 * @key: becomes the fields
 * @ipv6: becomes true for outer IPv6
 *
 * The flags exist since Linux 6.1, and are left zero before. Without the local address, which is as old
 * as Linux 6.0, no packet has such fields.
 *
 * Return: true when the packet has such fields.
 */
static __always_inline bool helper_key(hook_ctx *ctx, struct kernel_tunnel_key *key, bool *ipv6)
{
	*ipv6 = false;
	if (!helper_read(ctx, key, KERNEL_FLAGS))
		return true;
	if (helper_read(ctx, key, 0)) {
		*ipv6 = true;
		if (!helper_read(ctx, key, KERNEL_IPV6 | KERNEL_FLAGS))
			return true;
		if (helper_read(ctx, key, KERNEL_IPV6))
			return false;
	}
	key->flags = 0;
	return true;
}

/* PLACE_BE16, PLACE_BE32 - Move a host integer, in network order, to its place in a word. */
#define PLACE_BE16(value, at) PLACE((__u16)bpf_htons(value), 2, at)
#define PLACE_BE32(value, at) PLACE((__u32)bpf_htonl(value), 4, at)

/**
 * helper_words - Makes the words of a tunnel, except those of options.
 * @ctx: the packet
 * @st: its state
 * @kind: enum tunnel_kind
 *
 * The kernel does not report the outer ports. No flow matches on them.
 *
 * Return: false when the packet came out of no tunnel.
 */
static __always_inline bool helper_words(hook_ctx *ctx, struct state *st, __u32 kind)
{
	struct kernel_tunnel_key key = {};
	__u16 flags = 0;
	__u32 gbp = 0;
	bool ipv6;

	if (!helper_key(ctx, &key, &ipv6))
		return false;
	if (key.flags & KERNEL_CSUM)
		flags |= TUN_CHECKSUM;
	if (key.flags & KERNEL_KEY || kind != TUNNEL_GRE)
		flags |= TUN_KEY;
	if (key.flags & KERNEL_OAM)
		flags |= TUN_OAM;
	st->key[W_TUN0] = PLACE_BE32(key.id, 0) | PLACE_BE16(flags, 4) |
			  PLACE(key.tos, 1, 6) | PLACE(key.ttl, 1, 7);
	st->key[W_TUN1] = 0;
	if (kind == TUNNEL_VXLAN_GBP && bpf_skb_get_tunnel_opt(ctx, &gbp, sizeof(gbp)) == sizeof(gbp))
		st->key[W_TUN1] = PLACE_BE16(gbp, 4) |
				  PLACE(gbp >> KERNEL_GBP_FLAGS_SHIFT & GBP_FLAGS, 1, 6);
	st->key[W_TIP4] = 0;
#pragma unroll
	for (int i = W_TSRC0; i < W_CT; i++)
		st->key[i] = 0;
	if (!ipv6) {
		st->key[W_TIP4] = PLACE_BE32(key.remote[0], 0) | PLACE_BE32(key.local[0], 4);
		return true;
	}
	__builtin_memcpy(&st->key[W_TSRC0], key.remote, sizeof(key.remote));
	__builtin_memcpy(&st->key[W_TDST0], key.local, sizeof(key.local));
	return true;
}

/* The options of a packet. The second half is zero, for reads beyond the end. */
struct helper_options {
	__be32 raw[2 * HELPER_OPTIONS / 4];
};

/**
 * helper_take_option - Puts one option into the words of the state.
 * @st: the state
 * @o: the options
 * @at: number of the four octets where the option begins
 *
 * Return: where the next one begins; 0 when the table has no such option, or the packet has it twice.
 */
static __noinline __u32 helper_take_option(struct state *st, const struct helper_options *o, __u32 at)
{
	const volatile struct tunnel_option *known;
	__u8 *present = (__u8 *)&st->key[W_OPT0];
	__be32 *words = (__be32 *)&st->key[W_OPT0];
	__u32 number = 0, to, count;

	at %= HELPER_OPTIONS / 4;
	known = option_of(o->raw[at] & OPTION_HEADER, &number);
	if (!known || *present >> number & 1)
		return 0;
	*present |= 1u << number;
	to = known->at / 4;
	count = known->bytes / 4;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < OPTION_BYTES / 4; i++) {
		if (i >= count)
			break;
		words[(to + i) % (2 * WORDS_OF_OPTIONS)] = o->raw[at + 1 + i];
	}
	return at + 1 + count;
}

/**
 * helper_put_options - Makes the words of Geneve options.
 * @ctx: the packet, whose state has the other words of its tunnel
 *
 * Return: 0, or -1 when the packet has options that have no words.
 */
__noinline int helper_put_options(hook_ctx *ctx)
{
	struct helper_options o = {};
	struct state *st = state_here();
	__u32 at = 0;
	long bytes;

	if (!st)
		return -1;
	bytes = bpf_skb_get_tunnel_opt(ctx, o.raw, HELPER_OPTIONS);
	if (bytes == -2) /* ENOENT: there are none */
		return 0;
	if (bytes < 0 || bytes > HELPER_OPTIONS)
		return -1;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < TUNNEL_OPTIONS; i++) {
		if (4 * at >= bytes)
			break;
		at = helper_take_option(st, &o, at);
		if (!at)
			return -1;
	}
	return 4 * at == bytes ? 0 : -1;
}

/**
 * helper_return - The program at a tunnel device: looks up what comes out of the device.
 * @ctx: the packet
 *
 * Nothing goes on to the host's stack.
 *
 * Return: the verdict.
 */
static __always_inline int helper_return(hook_ctx *ctx)
{
	__u32 number = ingress_port_of(ctx->ifindex);
	struct port *port = port_of(number);
	struct state *st = state_here();
	__u32 kind;

	if (!st || !port)
		return drop(DROP_TUNNEL_POP);
	kind = *(volatile __u32 *)&port->tunnel;
	if (kind == TUNNEL_NONE)
		return drop(DROP_TUNNEL_POP);
	state_init(st, number);
	if (!helper_words(ctx, st, kind))
		return drop(DROP_TUNNEL_POP);
	if (kind == TUNNEL_GENEVE && helper_put_options(ctx))
		return drop(DROP_TUNNEL_POP);
	/* The kernel segments datagrams before they come out. */
	count_rx(number, frame_length(ctx));
	st->tunnelled = 1;
	st->depth = 1;
	st->covered = ETH_HLEN;
	return tail_call(ctx, TAIL_RECIRC);
}

#endif
