/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Output to a bond: the hash of the packet chooses a bucket, and the bucket has a member. bond_send()
 * is for packets of the common shape whose only action that is; exec.h has all other packets. */
#ifndef SLIPSWITCH_BOND_H
#define SLIPSWITCH_BOND_H

#include "hash.h"
#include "output.h"
#include "flow_count.h"

/* Bytes of an IPv4 header without options, with the ports of the transport header after it. */
#define BOND_HEADERS 24

/* Returns the place of a bond; `bonds` has no element there when there is no such bond. */
static __always_inline __u32 bond_place(__u32 id)
{
	__u32 zero = 0;
	struct bond_places *p = bpf_map_lookup_elem(&bond_places, &zero);
	__u64 at = id;

	opaque(at);
	if (!p || at >= MAX_PORTS)
		return MAX_BONDS;
	opaque(at);
	return (__u32)p->of[at] - 1;
}

/* Returns the member of the bucket that a hash chooses; NO_PORT: there is none. */
static __always_inline __u32 bond_member(const struct bond *b, __u32 hash)
{
	__u32 member = *(const volatile __u16 *)&b->members[hash % BOND_BUCKETS];

	return member == NO_MEMBER ? NO_PORT : member;
}

/* Counts a packet of a bucket. `bytes`: of the frame. */
static __always_inline void bond_count(__u32 place, __u32 hash, __u32 bytes)
{
	__u32 at = count_shard() * MAX_BONDS + place;
	struct bond_bytes *b = bpf_map_lookup_elem(&bond_bytes, &at);

	if (b)
		count_add(&b->of[hash % BOND_BUCKETS], bytes);
}

/**
 * bond_send - Sends a packet of the common shape by a flow with FLOW_BOND.
 * @ctx: the packet, which parse_fast() accepted
 * @in_port: ingress port
 * @number: slot of the flow
 * @tcp_flags: host integer; 0 when the packet is not TCP
 *
 * A function of its own, for the verifier: other flows' packets keep no registers for it.
 *
 * Return: the verdict, or NOT_HERE, and nothing is done, when the flow's program has to run.
 */
__noinline int bond_send(hook_ctx *ctx, __u32 in_port, __u32 number, __u32 tcp_flags)
{
	const struct view v = { data_of(ctx), data_end_of(ctx), linear_length(ctx), true };
	const void *ip = v.data + ETH_HLEN;
	struct slot *slot = bpf_map_lookup_elem(&slots, &number);
	struct tuple t = { .type = ETH_P_IP, .words = 1 };
	struct program *program;
	__u32 place, hash, member;
	struct port *port;
	struct bond *bond;

	if (!slot || ip + BOND_HEADERS > v.end)
		return NOT_HERE;
	program = bpf_map_lookup_elem(&programs, &slot->program);
	if (!program)
		return NOT_HERE;
	place = bond_place(program->cells[0] >> 32 & ~OUTPUT_BOND);
	bond = bpf_map_lookup_elem(&bonds, &place);
	if (!bond)
		return NOT_HERE;
	t.proto = load8(ip + 9);
	t.src.address[0] = bpf_ntohl(load32(ip + 12));
	t.dst.address[0] = bpf_ntohl(load32(ip + 16));
	t.src.port = bpf_ntohs(load16(ip + 20));
	t.dst.port = bpf_ntohs(load16(ip + 22));
	hash = hash_five_tuple(&t, 1, bond->basis);
	member = bond_member(bond, hash);
	port = port_of(member);
	if (!port || !output_can_redirect(&v, port))
		return NOT_HERE;
	bond_count(place, hash, v.length);
	count_flow(number, v.length, tcp_flags);
	count_ingress(in_port, v.length);
	return output_to(ctx, port, member, in_port, v.length, ETH_HLEN);
}

#endif
