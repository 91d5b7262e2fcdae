/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The common part of users' programs for the XDP hook. A program adds the parser.
 * docs/user-programs.md is the contract; these functions keep their side of it.
 *
 *   CAPABILITIES, BIT   once: the words that the program compares and the instructions that it runs
 *   struct query        the lookup of a packet; the program's parser fills it in
 *   view_of, at         the readable bytes of the frame; a pointer to bytes at an offset, or NULL
 *   load8 to load64     bytes as they lie in memory; PLACE moves them to their place in a word
 *   read_tcp_flags      the TCP flags, which `fin_timeout` needs
 *   find_flow           searches the daemon's table for the packet
 *   run_flow            runs the flow's action and counts the packet
 *   pass                leaves the packet to the next hook and counts it
 */
#ifndef SLIPSWITCH_USER_H
#define SLIPSWITCH_USER_H

#include "hook_xdp.h"

#include "ingress.h"
#include "capabilities.h"
#include "flow_index.h"
#include "output.h"
#include "view.h"

/* The lookup of one packet; zeros at first. */
struct query {
	__u64 key[HOT_WORDS]; /* by W_x of layout.h; find_flow() adds the port to W_PORT */
	__u64 known;          /* bits W_x of the words that are filled in, NEEDS_L3; see CAPABILITIES.
			       * Words after the hot ones are not compared: a flow that matches on
			       * one is not found */
	__u32 tcp_flags;      /* host integer; 0 when the packet is not TCP */
	__u32 slot;           /* the flow's number, or NO_SLOT */
};

/**
 * read_tcp_flags - Reads the flags of a TCP header.
 * @v: the frame
 * @offset: of the header
 * @length: bytes of the header and its data, by the IP header
 * @q: `tcp_flags` is set, unless the header's own length is invalid
 *
 * Return: false when the header is beyond the readable bytes.
 */
static __always_inline bool read_tcp_flags(const struct view *v, __u32 offset, __u32 length,
					   struct query *q)
{
	void *tcp = at(v, offset, 20);
	__u32 words;

	if (length < 20)
		return true;
	if (!tcp)
		return false;
	words = load8(tcp + 12) >> 4;
	if (words >= 5 && words * 4 <= length)
		q->tcp_flags = bpf_ntohs(load16(tcp + 12)) & 0xfff;
	return true;
}

/**
 * query_matches - Compares a packet with a flow, by the hot words.
 * @q: the query
 * @slot: the flow
 * @mask: its mask, which covers hot words only
 *
 * Return: true when the packet belongs to the flow.
 */
static __always_inline bool query_matches(const struct query *q, const struct slot *slot,
					  const struct mask *mask)
{
	__u64 diff = 0;

#pragma unroll
	for (int x = 0; x < HOT_WORDS; x++)
		diff |= (q->key[x] ^ slot->hot[x]) & mask->words[x];
	return !diff;
}

/**
 * query_search_bucket - Searches one bucket of the index.
 * @q: the query; `slot` is set when the flow is found
 * @mask: the mask
 * @mask_number: its number
 * @bucket: number of the bucket
 * @hash: of the key under the mask
 *
 * Return: true when the flow is found.
 */
static __always_inline bool query_search_bucket(struct query *q, const struct mask *mask,
						__u32 mask_number, __u32 bucket, __u32 hash)
{
	__u32 number;
	struct slot *slot = index_find(bucket, hash, mask_number, &number);

	if (!slot || !query_matches(q, slot, mask))
		return false;
	q->slot = number;
	return true;
}

/**
 * query_search_mask - Searches under one mask; a callback of bpf_for_each_map_elem().
 * @map: masks
 * @number: number of the mask
 * @mask: the mask
 * @q: the query; `slot` is set when the flow is found
 *
 * Return: 1 to end the search, 0 to go on.
 */
static inline long query_search_mask(void *map, const __u32 *number, struct mask *mask,
				     struct query *q)
{
	__u64 sum = *number * settings.factors[FACTOR_OF_MASK];
	__u32 hash;

	if (!mask->needs)
		return 1;
	if (mask->needs & ~(q->known & (HOT_BITS | NEEDS_L3))) /* MASK_VACANT, too */
		return 0;
#pragma unroll
	for (int x = 0; x < HOT_WORDS; x++)
		sum += hash_word(x, q->key[x] & mask->words[x]);
	hash = finish_hash(sum);
	return query_search_bucket(q, mask, *number, index_first(hash), hash) ||
	       query_search_bucket(q, mask, *number, index_second(hash), hash);
}

/**
 * find_flow - Searches the daemon's table for a packet.
 * @ctx: the packet
 * @q: key and `known` filled in; `slot` is set
 *
 * Return: false when no flow that this program can compare matches, or the device is no port.
 */
static __always_inline bool find_flow(struct xdp_md *ctx, struct query *q)
{
	__u32 port = ingress_port(ctx);

	if (port == NO_PORT)
		return false;
	q->key[W_PORT] |= PLACE(bpf_htons(port), 2, 0);
	q->slot = NO_SLOT;
	bpf_for_each_map_elem(&masks, query_search_mask, q, 0);
	return q->slot != NO_SLOT;
}

/* Leaves the packet to the next hook and counts it; returns the verdict. */
static __always_inline int pass(void)
{
	COUNT(passed);
	return XDP_PASS;
}

/**
 * run_flow - Runs the flow that find_flow() found.
 * @ctx: the packet
 * @q: the query
 *
 * Flows that are not for this hook, flows with a list of instructions, and outputs that XDP cannot
 * redirect to are passed on.
 *
 * Return: the verdict.
 */
static __always_inline int run_flow(struct xdp_md *ctx, const struct query *q)
{
	struct slot *slot = bpf_map_lookup_elem(&slots, &q->slot);
	__u32 length = data_length(ctx);
	struct port *to;

	if (!slot || !(slot->hooks & HOOK_XDP))
		return pass();
	if (slot->output == NO_PORT) {
		if (slot->program != NO_PROGRAM)
			return pass();
		count_flow(q->slot, length, q->tcp_flags);
		return drop_by(q->slot);
	}
	to = port_of(slot->output);
	if (to && to->flags & PORT_UP && !(to->flags & PORT_DEVMAP))
		return pass();
	if (to && !(to->flags & PORT_SPLIT) && is_split(ctx, length))
		return pass();
	count_flow(q->slot, length, q->tcp_flags);
	return output_to(ctx, to, slot->output, NO_PORT, length, ETH_HLEN);
}

#endif
