/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The short way into a tunnel, for packets of the common shape that the exact-match cache knows: from the
 * cache to OP_TUN_PUSH. The interpreter is passed over, and the packet is not parsed again. */
#ifndef SLIPSWITCH_PUSH_FAST_H
#define SLIPSWITCH_PUSH_FAST_H

#include "flow_count.h"
#include "output.h"
#include "parse_fast.h"

/**
 * push_aim - Sets the state to the OP_TUN_PUSH with which the actions of a flow begin, and counts the packet.
 * @ctx: the packet, which parse_fast() accepted
 * @in_port: ingress port
 * @number: slot of the flow
 * @tcp_flags: host integer; 0 when the packet is not TCP
 *
 * A function of its own, for the verifier: other flows' packets keep no registers for it.
 *
 * Return: 0; -1, and nothing is done, when the flow's actions begin otherwise.
 */
__noinline int push_aim(hook_ctx *ctx, __u32 in_port, __u32 number, __u32 tcp_flags)
{
	struct slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u32 bytes = linear_length(ctx);
	struct state *st = state_here();
	struct program *program;

	if (!st || !slot || slot->flags & FLOW_PRECHECK)
		return -1;
	if (slot->flags & FLOW_NO_GSO && is_gso(ctx))
		return -1;
	program = bpf_map_lookup_elem(&programs, &slot->program);
	if (!program || (program->cells[0] & 31) != OP_TUN_PUSH)
		return -1;
	count_flow(number, bytes, tcp_flags);
	count_ingress(in_port, bytes);
	state_init(st, in_port);
	st->mpls = 0;
	st->l3 = ETH_HLEN;
	st->l4 = ETH_HLEN + FAST_IP;
	st->covered = ETH_HLEN;
	state_begin_program(st, number, slot->program, bytes);
	return 0;
}

#endif
