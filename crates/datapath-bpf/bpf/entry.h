/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is attached. It stays while variants of the lookup come and go. */
#ifndef SLIPSWITCH_ENTRY_H
#define SLIPSWITCH_ENTRY_H

#include "maps.h"

/* Without a lookup program (the daemon is about to put one there) the packet goes where it would
 * without us. */
static __always_inline int enter(hook_ctx *ctx)
{
	bpf_tail_call_static(ctx, &tails, TAIL_LOOKUP);
	return VERDICT_NONE;
}

#endif
