/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The input of the `hash` action: the endpoints of the packet as it is now. */
#ifndef SLIPSWITCH_TUPLE_H
#define SLIPSWITCH_TUPLE_H

#include "edit.h"
#include "hash.h"

/* Takes the Ethernet addresses as endpoints. */
static __always_inline void tuple_ethernet(hook_ctx *ctx, struct tuple *t)
{
	__be16 a[6] = {};

	edit_load(ctx, 0, a, sizeof(a));
	t->words = 1;
	t->dst.address[0] = (__u64)bpf_ntohs(a[0]) << 32 | (__u64)bpf_ntohs(a[1]) << 16 |
			    bpf_ntohs(a[2]);
	t->src.address[0] = (__u64)bpf_ntohs(a[3]) << 32 | (__u64)bpf_ntohs(a[4]) << 16 |
			    bpf_ntohs(a[5]);
}

/* Returns the opcode of ARP, which is the protocol in a key; 0 when the message is malformed. */
static __always_inline __u8 tuple_arp_op(hook_ctx *ctx, __u32 l3)
{
	__be16 head[4];

	if (l3 + 28 > data_length(ctx) || edit_load(ctx, l3, head, sizeof(head)) ||
	    head[0] != bpf_htons(1) || head[1] != bpf_htons(ETH_P_IP) ||
	    head[2] != bpf_htons(0x0604) || bpf_ntohs(head[3]) > 255)
		return 0;
	return bpf_ntohs(head[3]);
}

/**
 * tuple_ipv6 - Takes the IPv6 addresses as endpoints.
 * @ctx: the packet
 * @l3: offset of the IPv6 header
 * @t: its addresses are set, unless the header is malformed
 *
 * The addresses are in a key even when the headers after them are cut off.
 */
static __always_inline void tuple_ipv6(hook_ctx *ctx, __u32 l3, struct tuple *t)
{
	__u32 behind = data_length(ctx) - l3, payload;
	__be64 a[2]; /* one address: the stack of a chain of calls is short */
	__be16 length;

	t->words = 2;
	if (l3 + 40 > data_length(ctx) || edit_load(ctx, l3 + 4, &length, sizeof(length)))
		return;
	payload = bpf_ntohs(length);
	if (payload > behind - 40 || behind - 40 - payload > 0xffff)
		return;
	if (edit_load(ctx, l3 + 8, a, sizeof(a)))
		return;
	t->src.address[0] = bpf_be64_to_cpu(a[0]);
	t->src.address[1] = bpf_be64_to_cpu(a[1]);
	if (edit_load(ctx, l3 + 24, a, sizeof(a)))
		return;
	t->dst.address[0] = bpf_be64_to_cpu(a[0]);
	t->dst.address[1] = bpf_be64_to_cpu(a[1]);
}

/**
 * tuple_ipv4 - Takes the IPv4 addresses as endpoints.
 * @ctx: the packet
 * @l3: offset of the IPv4 header
 * @t: its addresses are set
 */
static __always_inline void tuple_ipv4(hook_ctx *ctx, __u32 l3, struct tuple *t)
{
	__be32 a[2];

	if (edit_load(ctx, l3 + 12, a, sizeof(a)))
		return;
	t->src.address[0] = bpf_ntohl(a[0]);
	t->dst.address[0] = bpf_ntohl(a[1]);
}

/**
 * tuple_ports - Takes the transport ports, if the whole header is there and valid.
 * @ctx: the packet
 * @ip: its headers
 * @t: its ports are set
 *
 * Ports of a first fragment are left out: later fragments have none, and all fragments of a packet
 * must have one hash.
 */
static __always_inline void tuple_ports(hook_ctx *ctx, const struct ip *ip, struct tuple *t)
{
	__be16 ports[2];

	if (ip->fragment)
		return;
	if (has_transport(ip, IPPROTO_TCP, 20)) {
		__u8 words;

		if (edit_load(ctx, ip->l4 + 12, &words, sizeof(words)) || words >> 4 < 5 ||
		    ip->l4 + (words >> 4) * 4 > ip->end)
			return;
	} else if (!has_transport(ip, IPPROTO_UDP, 8) && !has_transport(ip, IPPROTO_SCTP, 12)) {
		return;
	}
	if (edit_load(ctx, ip->l4, ports, sizeof(ports)))
		return;
	t->src.port = bpf_ntohs(ports[0]);
	t->dst.port = bpf_ntohs(ports[1]);
}

/* Finds the layers as for a packet that arrives in the present form: the VLAN headers that are
 * skipped are counted again. */
static __always_inline void tuple_find_layers(hook_ctx *ctx, struct state *st)
{
#if !AT_XDP
	bpf_skb_pull_data(ctx, ctx->len < 256 ? ctx->len : 256);
#endif
	if (parse_all(ctx))
		st->mpls = st->l3 = st->l4 = 0;
}

/**
 * exec_hash - Runs OP_HASH: stores the hash of the packet in the state.
 * @ctx: the packet; at tc, pointers into it become invalid
 * @symmetric: not 0: equal when both endpoints change places
 * @basis: seed of the action
 *
 * A function of its own, for the verifier.
 *
 * Return: 0, or -1 without state.
 */
__noinline int exec_hash(hook_ctx *ctx, __u32 symmetric, __u32 basis)
{
	struct state *st = state_here();
	struct tuple t = { .words = 1 };
	struct ip ip = {};
	bool is_ip;
	__be16 type;

	if (!st)
		return -1;
	tuple_find_layers(ctx, st);
	type = edit_ethertype(ctx, st);
	t.type = bpf_ntohs(type);
	is_ip = !find_ip(ctx, &ip);
	if (type == bpf_htons(ETH_P_IPV6) && st->l3)
		tuple_ipv6(ctx, st->l3, &t);
	else if (type != bpf_htons(ETH_P_IP))
		tuple_ethernet(ctx, &t);
	else if (is_ip)
		tuple_ipv4(ctx, ip.l3, &t);
	if (is_ip) {
		/* In IPv6 later fragments hide the protocol. */
		t.proto = ip.v6 && ip.fragment ? PROTO_IPV6_LATER : ip.proto;
		tuple_ports(ctx, &ip, &t);
	} else if (type == bpf_htons(ETH_P_ARP) || type == bpf_htons(ETH_P_RARP)) {
		t.proto = tuple_arp_op(ctx, st->l3);
	}
	st->dp_hash = hash_five_tuple(&t, symmetric, basis);
	return 0;
}

#endif
