/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Edits of Ethernet addresses. */
#ifndef SLIPSWITCH_EDIT_ETH_H
#define SLIPSWITCH_EDIT_ETH_H

#include "edit.h"

/**
 * set_eth - Runs OP_SET_ETH.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @operands: as layout.h defines them
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_eth(hook_ctx *ctx, const struct state *st, const __u64 *operands)
{
	__u32 addresses[3], value[3], mask[3];

	if (st->bare)
		return MALFORMED;
	__builtin_memcpy(value, operands, sizeof(value));
	__builtin_memcpy(mask, operands + 2, sizeof(mask));
	if (edit_load(ctx, 0, addresses, sizeof(addresses)))
		return MALFORMED;
	for (int i = 0; i < 3; i++)
		addresses[i] = merged(addresses[i], value[i], mask[i]);
	return edit_store(ctx, st, 0, addresses, sizeof(addresses)) ? FAILED : EDITED;
}

#endif
