/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Edits of IPv6 neighbour solicitations and advertisements. Functions that set fields return EDITED
 * or the reason to drop plus one. */
#ifndef SLIPSWITCH_EDIT_ND_H
#define SLIPSWITCH_EDIT_ND_H

#include "checksum.h"

#define OPTION_SOURCE 1
#define OPTION_TARGET 2
/* Options that are searched for the one to set. No message of a router has more; later options
 * count as absent. */
#define EDIT_OPTIONS 32

/* Returns true for a whole neighbour message. */
static __always_inline bool nd_is_neighbour(hook_ctx *ctx, const struct ip *ip)
{
	__u8 head[2];

	if (!ip->v6 || !has_transport(ip, PROTO_ICMPV6, 24) ||
	    edit_load(ctx, ip->l4, head, sizeof(head)))
		return false;
	return (head[0] == NEIGHBOUR_SOLICIT || head[0] == NEIGHBOUR_ADVERT) && !head[1];
}

/* Offsets of the first option of each kind that has an Ethernet address; 0: absent. */
struct options {
	__u32 source;
	__u32 target;
};

/**
 * nd_find_options - Finds the options of a neighbour message.
 * @ctx: the packet
 * @offset: of the first option
 * @end: of the message
 * @found: becomes the offsets
 *
 * A function of its own: the verifier reads the loop once.
 *
 * Return: 0.
 */
__noinline int nd_find_options(hook_ctx *ctx, __u32 offset, __u32 end, struct options *found)
{
	if (!found)
		return 0;
	found->source = found->target = 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < EDIT_OPTIONS; i++) {
		__u8 head[2];
		__u32 len;

		if (offset + 8 > end || edit_load(ctx, offset, head, sizeof(head)))
			return 0;
		len = head[1] * 8;
		if (!len || offset + len > end)
			return 0;
		if (len == 8 && head[0] == OPTION_SOURCE && !found->source)
			found->source = offset;
		if (len == 8 && head[0] == OPTION_TARGET && !found->target)
			found->target = offset;
		offset += len;
	}
	return 0;
}

/**
 * nd_set_words - Sets 16-bit words of the message, and its checksum.
 * @ctx: the packet; pointers into it become invalid
 * @ip: its IP packet
 * @offset: of the words
 * @value: new words
 * @mask: bits of them that are set
 * @words: how many; a constant
 */
static __always_inline int nd_set_words(hook_ctx *ctx, const struct ip *ip, __u32 offset,
					const __u16 *value, const __u16 *mask, const __u32 words)
{
	__u16 word[8], change = 0;
	__u64 gone = 0, come = 0;

	if (edit_load(ctx, offset, word, words * 2))
		return MALFORMED;
	for (int i = 0; i < words; i++) {
		__u16 new = merged(word[i], value[i], mask[i]);

		change |= new ^ word[i];
		gone += word[i];
		come += new;
		word[i] = new;
	}
	if (!change)
		return EDITED;
	if (edit_store_neutral(ctx, offset, word, words * 2) ||
	    checksum_transport(ctx, ip->l4 + 2, gone, come, 0))
		return FAILED;
	return EDITED;
}

/**
 * set_nd - Runs OP_SET_ND.
 * @ctx: the packet; pointers into it become invalid
 * @ip: its headers
 * @operands: in 16-bit words: target value 0, mask 8; source option value 16, mask 20; target
 *            option value 24, mask 28
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_nd(hook_ctx *ctx, const struct ip *ip, const __u64 *operands)
{
	const __u16 *set = (const __u16 *)operands;
	struct options found = {};
	int err;

	if (!nd_is_neighbour(ctx, ip))
		return MALFORMED;
	nd_find_options(ctx, ip->l4 + 24, ip->end, &found);
	err = nd_set_words(ctx, ip, ip->l4 + 8, set, set + 8, 8);
	if (!err && found.source)
		err = nd_set_words(ctx, ip, found.source + 2, set + 16, set + 20, 3);
	if (!err && found.target)
		err = nd_set_words(ctx, ip, found.target + 2, set + 24, set + 28, 3);
	return err;
}

/**
 * set_nd_extensions - Runs OP_SET_ND_EXT.
 * @ctx: the packet; pointers into it become invalid
 * @ip: its headers
 * @kind: option type value | mask << 8
 * @operands: as layout.h defines them
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_nd_extensions(hook_ctx *ctx, const struct ip *ip, __u32 kind,
					     const __u64 *operands)
{
	const __u16 *set = (const __u16 *)operands;
	__u16 value = bpf_htons((kind & 0xff) << 8), mask = bpf_htons(kind & 0xff00);
	struct options found = {};
	__u32 first;
	int err;

	if (!nd_is_neighbour(ctx, ip))
		return MALFORMED;
	nd_find_options(ctx, ip->l4 + 24, ip->end, &found);
	err = nd_set_words(ctx, ip, ip->l4 + 4, set, set + 2, 2);
	first = found.source;
	if (!first || (found.target && found.target < first))
		first = found.target;
	if (!err && first)
		err = nd_set_words(ctx, ip, first, &value, &mask, 1);
	return err;
}

#endif
