/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What both hooks have: included by their headers, which say what the names mean. */
#ifndef SLIPSWITCH_HOOK_COMMON_H
#define SLIPSWITCH_HOOK_COMMON_H

#include <bpf/bpf_helpers.h>

#include "flow_count.h"

/* What the verifier lets a packet pointer move by, with room for the operand. */
#define MAX_OFFSET 0x7fff

static __always_inline void *data_of(hook_ctx *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *data_end_of(hook_ctx *ctx)
{
	return (void *)(long)ctx->data_end;
}

/* Constant `tail`: the call becomes a jump. */
#define go(ctx, tail)                                   \
	({                                              \
		bpf_tail_call_static(ctx, &tails, tail); \
		count_drop(DROP_UNSUPPORTED);           \
		VERDICT_DROP;                           \
	})

#endif
