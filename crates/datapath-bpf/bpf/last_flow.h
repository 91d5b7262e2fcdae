/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The last flow of a CPU. Packets often follow each other in one flow. Once two of a flow came in
 * succession, the CPU keeps the key of the next one and the cache's entry for it. To compare a key
 * takes a few instructions; to sum it up and search the exact-match cache takes about a hundred.
 * Where packets of many flows are mixed the comparison would mostly fail, so nothing is kept or
 * compared then.
 *
 * The place of the entry is kept with the sums of the key. They are compared with the entry as in a
 * search, because another flow may have got it, or it may be void (emc.h).
 */
#ifndef SLIPSWITCH_LAST_FLOW_H
#define SLIPSWITCH_LAST_FLOW_H

#include "emc.h"

enum last_flow_stage {
	LAST_FLOW_OTHER, /* the last two packets were of different flows */
	LAST_FLOW_AGAIN, /* they were of one flow: the next packet's key is kept */
	LAST_FLOW_KEPT,
};

/* Returns the last flow of this CPU, or NULL when the CPU has none. */
static __always_inline struct last_flow *last_flow_here(void)
{
	struct last_flow *t = ENTRY_OF(last_flows, bpf_get_smp_processor_id(), settings.cpus);

	opaque(t);
	return t;
}

#define LAST_FLOW_DIFFERENCE(x) diff |= t->key[x] ^ words[x];

/**
 * last_flow_find - Compares a packet with the last flow.
 * @t: the last flow, which is kept
 * @words: the packet's words under the union of all masks (emc_under)
 *
 * Return: the cache's entry, or NULL when the packet may be of another flow.
 */
static __always_inline struct emc_entry *last_flow_find(const struct last_flow *t,
							const __u64 *words)
{
	struct emc_line *l = emc_line_at(t->at / EMC_WAYS);
	struct emc_entry *e;
	__u64 diff = 0;

	if (!l)
		return 0;
	e = &l->ways[t->at % EMC_WAYS];
	EMC_EACH(LAST_FLOW_DIFFERENCE)
	return !diff && emc_is(e, t->sum, t->check) ? e : 0;
}

#define LAST_FLOW_KEEP(x) t->key[x] = words[x];

/* Keeps the key of a packet that may be the first of a last flow, while it is in registers. */
static __always_inline void last_flow_keep_key(struct last_flow *t, const __u64 *words)
{
	EMC_EACH(LAST_FLOW_KEEP)
}

/**
 * last_flow_note - Notes a packet that is not of the last flow.
 * @t: the last flow
 * @k: the packet's key
 * @e: its entry in the exact-match cache, or NULL
 * @at: place of the entry
 */
static __always_inline void last_flow_note(struct last_flow *t, const struct emc_key *k,
					   const struct emc_entry *e, __u32 at)
{
	__u32 slot = e ? emc_slot(e) : NO_SLOT;

	if (t->stage == LAST_FLOW_AGAIN && e) {
		t->sum = k->sum;
		t->check = k->check;
		t->at = at;
		t->stage = LAST_FLOW_KEPT;
	} else {
		t->stage = slot == t->last && e ? LAST_FLOW_AGAIN : LAST_FLOW_OTHER;
	}
	t->last = slot;
}

/**
 * last_flow_or_emc_find - Finds the entry of a key by the last flow or the exact-match cache.
 * @t: the last flow, or NULL
 * @words: the packet's words under the union of all masks (emc_under)
 *
 * Return: the entry; NULL when there is none.
 */
static __always_inline struct emc_entry *last_flow_or_emc_find(struct last_flow *t,
							       const __u64 *words)
{
	struct emc_key k;
	struct emc_entry *e;
	__u32 at = 0;

	if (t && t->stage == LAST_FLOW_KEPT) {
		e = last_flow_find(t, words);
		if (e)
			return e;
	} else if (t && t->stage == LAST_FLOW_AGAIN) {
		last_flow_keep_key(t, words);
	}
	emc_words(&k, words);
	e = emc_find(&k, &at);
	if (t)
		last_flow_note(t, &k, e, at);
	return e;
}

#endif
