/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Edits of the Network Service Header. */
#ifndef SLIPSWITCH_EDIT_NSH_H
#define SLIPSWITCH_EDIT_NSH_H

#include "edit.h"

/* The part of a header before its contexts. */
struct nsh_base {
	__be16 first;
	__u8 kind;
	__u8 next;
	__be32 path;
};

/**
 * nsh_load - Reads the part of the header before its contexts.
 * @ctx: the packet
 * @st: its state
 * @base: becomes that part
 *
 * Return: 0, or not 0 when the packet has no valid header.
 */
static __always_inline int nsh_load(hook_ctx *ctx, const struct state *st, struct nsh_base *base)
{
	__u32 place = st->l3, first;

	if (st->mpls || place < ETH_HLEN || edit_ethertype(ctx, st) != bpf_htons(ETH_P_NSH) ||
	    edit_load(ctx, place, base, sizeof(*base)))
		return -1;
	first = bpf_ntohs(base->first);
	if (!nsh_is_possible(first, base->kind) || place + nsh_bytes(first) > data_length(ctx))
		return -1;
	return 0;
}

/**
 * set_nsh - Runs HEADER_SET_NSH.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @operands: as layout.h defines them
 * @has_contexts: some context changes
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_nsh(hook_ctx *ctx, const struct state *st, const __u64 *operands,
				   bool has_contexts)
{
	const __u8 *bits = (const __u8 *)operands;
	struct nsh_base base;
	__u32 first, flags, ttl, set[2], place = st->l3;

	if (nsh_load(ctx, st, &base) || (has_contexts && base.kind != NSH_CONTEXTS))
		return MALFORMED;
	first = bpf_ntohs(base.first);
	flags = merged(nsh_flags(first), bits[0], bits[1]) & 3;
	ttl = merged(nsh_ttl(first), bits[2], bits[3]) & 0x3f;
	base.first = bpf_htons(flags << 12 | ttl << 6 | (first & 0x3f));
	__builtin_memcpy(set, &operands[1], sizeof(set));
	base.path = merged(base.path, set[0], set[1]);
	if (edit_store(ctx, st, place, &base, sizeof(base)))
		return FAILED;
	if (!has_contexts)
		return EDITED;
#pragma clang loop unroll(disable)
	for (int i = 0; i < 4; i++) {
		__be32 context;
		__u32 at = place + NSH_BASE + 4 * i;

		if (edit_load(ctx, at, &context, sizeof(context)))
			return MALFORMED;
		__builtin_memcpy(set, &operands[2 + i], sizeof(set));
		context = merged(context, set[0], set[1]);
		if (edit_store(ctx, st, at, &context, sizeof(context)))
			return FAILED;
	}
	return EDITED;
}

#endif
