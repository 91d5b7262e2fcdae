/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Changes a packet from one tuple to another: addresses, ports and checksums. */
#ifndef SLIPSWITCH_CT_NAT_H
#define SLIPSWITCH_CT_NAT_H

#include "ct_packet.h"
#include "ct_table.h"
#if !AT_XDP
#include "ct_creation.h"
#endif
#include "exec.h"

/* Bytes of a packet that one step of ct_sum() adds: as many as the helper takes on all kernels. */
#define CT_PIECE 512

/* The data of one run of OP_CT. Its functions call others that need much stack. */
struct ct_scratch {
	struct ct_tuple tuple;  /* of the packet */
	struct ct_tuple sought; /* by which the connection is looked up */
	struct ct_tuple to;     /* of the packet after its translation */
	struct ct_segment segment;
	struct ct_found found;
	struct operands operands;
#if !AT_XDP
	struct ct_new new;
	__u32 cursor; /* in the TCP options */
	__u8 piece[CT_PIECE] __attribute__((aligned(4)));
#endif
};

/* Each hook has a map of its own. No run leaves anything in it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ct_scratch);
} scratch SEC(".maps");

/* Returns the memory of this CPU; NULL never, but the verifier requires a check. */
static __always_inline struct ct_scratch *ct_scratch_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

/* Writes a value of 16 bytes and a whole mask, as operands of OP_SET_IPV6. */
static __always_inline void ct_put_ipv6(__u64 *operand, const __u64 *address)
{
	operand[0] = bpf_cpu_to_be64(address[0]);
	operand[1] = bpf_cpu_to_be64(address[1]);
	operand[2] = operand[3] = ~0ull;
}

/**
 * ct_set_addresses - Gives a packet the addresses of a tuple.
 * @ctx: the packet; pointers into it become invalid
 * @to: the tuple
 * @o: memory for operands
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int ct_set_addresses(hook_ctx *ctx, const struct ct_tuple *to,
					    struct operands *o)
{
	__builtin_memset(o, 0, sizeof(*o));
	if (to->kind & CT_KIND_V6) {
		ct_put_ipv6(&o->cells[0], to->src);
		ct_put_ipv6(&o->cells[4], to->dst);
		return exec_edit_ip(ctx, OP_SET_IPV6, 0, 0, o);
	}
	o->cells[0] = PLACE(bpf_htonl((__u32)to->src[1]), 4, 0) |
		      PLACE(bpf_htonl((__u32)to->dst[1]), 4, 4);
	o->cells[1] = ~0ull;
	return exec_edit_ip(ctx, OP_SET_IPV4, 0, 0, o);
}

/**
 * ct_set_icmp_id - Gives an ICMP message another identifier.
 * @ctx: the packet; pointers into it become invalid
 * @from: the identifier that it has
 * @to: the other one
 *
 * A function of its own: its callers need their stack for functions with much more.
 *
 * Return: EDITED, or the reason to drop plus one.
 */
__noinline int ct_set_icmp_id(hook_ctx *ctx, __u32 from, __u32 to)
{
	struct ip ip = {};
	__be16 old = bpf_htons(from), new = bpf_htons(to);

	if (find_ip(ctx, &ip))
		return MALFORMED;
	if (edit_store_neutral(ctx, ip.l4 + 4, &new, sizeof(new)) ||
	    checksum_transport(ctx, ip.l4 + 2, old, new, 0))
		return FAILED;
	return EDITED;
}

/* Gives a packet the ports of a tuple; returns EDITED, or the reason to drop plus one. */
static __always_inline int ct_set_ports(hook_ctx *ctx, const struct ct_tuple *to,
					struct operands *o)
{
	o->cells[0] = PLACE(bpf_htons(to->sport), 2, 0) | PLACE(0xffff, 2, 2) |
		      PLACE(bpf_htons(to->dport), 2, 4) | PLACE(0xffff, 2, 6);
	return exec_edit_ip(ctx, to->proto == IPPROTO_TCP ? OP_SET_TCP : OP_SET_UDP, 0, 0, o);
}

/**
 * ct_rewrite - Changes a packet from `tuple` of the scratch memory to `to`.
 * @ctx: the packet; pointers into it become invalid
 * @w: the memory. The protocol is TCP, UDP or ICMP, or the ports are equal
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int ct_rewrite(hook_ctx *ctx, struct ct_scratch *w)
{
	const struct ct_tuple *from = &w->tuple, *to = &w->to;
	int err = EDITED;

	if ((from->src[0] ^ to->src[0]) | (from->src[1] ^ to->src[1]) |
	    (from->dst[0] ^ to->dst[0]) | (from->dst[1] ^ to->dst[1]))
		err = ct_set_addresses(ctx, to, &w->operands);
	if (err)
		return err;
	if (ct_is_icmp(from))
		return from->sport == to->sport ? EDITED :
						  ct_set_icmp_id(ctx, from->sport, to->sport);
	if (from->sport == to->sport && from->dport == to->dport)
		return EDITED;
	return ct_set_ports(ctx, to, &w->operands);
}

#endif
