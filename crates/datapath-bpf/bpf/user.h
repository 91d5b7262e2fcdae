/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For users' programs at the XDP hook: all that is alike in them, so that what is left to write is
 * the parsing of frames. docs/user-programs.md is the contract; what is here keeps its side of it.
 *
 *   CAPABILITIES, BIT   once: what the program compares and runs, in bits
 *   struct query        a packet that is looked up; the program's parser fills it in
 *   view_of, at         what of the frame can be read, and the bytes at a place in it, or NULL
 *   load8 to load64     bytes as they lie in memory; PLACE puts them to their place in a word
 *   read_tcp_flags      what `fin_timeout` needs
 *   find_flow           searches the daemon's table for the packet
 *   run_flow            does what the flow says, and counts it
 *   pass                leaves the packet to the next hook, and counts it
 */
#ifndef SLIPSWITCH_USER_H
#define SLIPSWITCH_USER_H

#include "hook_xdp.h"

#include "ingress.h"
#include "capabilities.h"
#include "flow_index.h"
#include "output.h"
#include "view.h"

#define NO_SLOT 0xffffffffu

/* Begins as zeros. */
struct query {
	__u64 key[HOT_WORDS]; /* by W_x, as layout.h says. Of W_PORT the port is put in by find_flow */
	__u32 known;          /* bit W_x of words that are right, NEEDS_L3: see CAPABILITIES. Words
			       * behind the hot ones are not compared: flows with them are not found */
	__u32 tcp_flags;      /* host integer; 0 when the packet is not TCP */
	__u32 slot;           /* what was found, or NO_SLOT */
};

/* Of the TCP header at `offset`; `length`: bytes of it and its data, as IP says. A header that
 * says of itself what cannot be has no flags. False: it is beyond what can be read. */
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

static __always_inline bool query_matches(const struct query *q, const struct slot *slot,
				  const struct mask *mask)
{
	__u64 diff = 0;

#pragma unroll
	for (int x = 0; x < HOT_WORDS; x++)
		diff |= (q->key[x] ^ slot->hot[x]) & mask->words[x];
	return !diff;
}

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

/* For each mask; 1 ends the search. */
static inline long query_search_mask(void *map, const __u32 *number, struct mask *mask, struct query *q)
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

/* False: no flow that this program knows is one of the packet's, or it came by no port. */
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

static __always_inline int pass(void)
{
	COUNT(passed);
	return XDP_PASS;
}

/* Returns the verdict. Flows that are not for this hook, those of a list of instructions, and
 * outputs that XDP cannot reach are passed on. */
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
	return output_to(ctx, to, slot->output, length);
}

#endif
