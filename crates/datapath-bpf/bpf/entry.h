/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs that are attached to hooks. They stay attached while the daemon replaces the lookup,
 * which is compiled for the present flows (settings.h). */
#ifndef SLIPSWITCH_ENTRY_H
#define SLIPSWITCH_ENTRY_H

#include "maps.h"

/**
 * enter - Hands a packet to the present lookup.
 *
 * Return: only when there is no lookup program, because the daemon is about to install one:
 * VERDICT_NONE.
 */
static __always_inline int enter(hook_ctx *ctx)
{
	bpf_tail_call_static(ctx, &tails, TAIL_LOOKUP);
	return VERDICT_NONE;
}

#endif
