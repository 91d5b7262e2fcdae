/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Definitions that both hooks share. hook_xdp.h and hook_tc.h include this header after they have
 * defined the names that it uses: hook_ctx, VERDICT_DROP. */
#ifndef SLIPSWITCH_HOOK_COMMON_H
#define SLIPSWITCH_HOOK_COMMON_H

#include <bpf/bpf_helpers.h>

#include "flow_count.h"

/* The largest offset that the verifier lets a packet pointer move by is 0xffff; this is half of it,
 * which leaves room for the operand that is read there. */
#define MAX_OFFSET 0x7fff

static __always_inline void *data_of(hook_ctx *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *data_end_of(hook_ctx *ctx)
{
	return (void *)(long)ctx->data_end;
}

/**
 * tail_call - Goes on in another program of this hook.
 * @ctx: the packet
 * @tail: enum tail; a constant, so that the JIT compiles the call to a direct jump
 *
 * Return: only when the jump is not possible (the table has no such program, or the packet made
 * its 33 tail calls): VERDICT_DROP, and the drop is counted as DROP_UNSUPPORTED.
 */
#define tail_call(ctx, tail)                                   \
	({                                              \
		bpf_tail_call_static(ctx, &tails, tail); \
		count_drop(DROP_UNSUPPORTED);           \
		VERDICT_DROP;                           \
	})

#endif
