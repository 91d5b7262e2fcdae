/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The last flow of a CPU. Packets often follow each other in one flow. Once two of a flow came in
 * succession, the CPU keeps the key of the next one and the cache's entry for it. To compare a key
 * takes a few instructions; to sum it up and search the exact-match cache takes about a hundred.
 * Where packets of many flows are mixed the comparison would mostly fail, so nothing is kept or
 * compared then.
 *
 * A kept entry is valid exactly as long as the entry of the exact-match cache that it was made
 * from. It has the tag under which that entry was found, and the tag changes with the slot's epoch
 * and with the variant (emc.h).
 *
 * There is no last flow when flows are so numerous that packets are counted in batches.
 */
#ifndef SLIPSWITCH_LAST_FLOW_H
#define SLIPSWITCH_LAST_FLOW_H

#include "emc.h"

/* Returns the last flow of this CPU, or NULL when there is none or the feature is off. */
static __always_inline struct last_flow *last_flow_here(void)
{
	struct last_flow *t;

	if (settings.batched)
		return 0;
	t = ENTRY_OF(last_flows, bpf_get_smp_processor_id(), settings.cpus);
	opaque(t);
	return t;
}

#define LAST_FLOW_DIFFERENCE(x) diff |= t->key[x] ^ words[x];

/**
 * last_flow_find - Compares a packet with the last flow.
 * @t: the last flow, which has an entry
 * @words: the packet's words under the union of all masks (emc_under)
 *
 * Return: `what` of the kept entry, or 0 when the packet may be of another flow.
 */
static __always_inline __u64 last_flow_find(const struct last_flow *t, const __u64 *words)
{
	__u64 what = t->what, diff = t->tag ^ emc_tag(what % EMC_SLOTS);

	EMC_EACH(LAST_FLOW_DIFFERENCE)
	return diff ? 0 : what;
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
 * @what: `what` of the packet's entry in the exact-match cache; 0: it has none
 * @tag: tag under which the entry was found
 */
static __always_inline void last_flow_note(struct last_flow *t, __u64 what, __u64 tag)
{
	__u32 slot = emc_slot(what);

	if (t->again) {
		t->again = 0;
		t->tag = tag;
		t->what = what;
	} else {
		t->again = slot == t->last;
		t->what = 0;
	}
	t->last = slot;
}

/**
 * last_flow_or_emc_find - Finds the entry of a key by the last flow or the exact-match cache.
 * @t: the last flow, or NULL
 * @words: the packet's words under the union of all masks (emc_under)
 *
 * Return: `what` of the entry; 0 when there is none.
 */
static __always_inline __u64 last_flow_or_emc_find(struct last_flow *t, const __u64 *words)
{
	struct emc_key k;
	__u64 what, tag = 0;

	if (t && t->what) {
		what = last_flow_find(t, words);
		if (what)
			return what;
	} else if (t && t->again) {
		last_flow_keep_key(t, words);
	}
	emc_words(&k, words);
	what = emc_find(&k, &tag);
	if (t)
		last_flow_note(t, what, tag);
	return what;
}

#endif
