/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets come in last_flows: the next one is often of the same flow. So where some have followed each
 * other a CPU keeps their key, bit by bit, and what their flow does with them. To compare that takes
 * a few instructions, where to sum a key up and to look for the sums takes a hundred. Where packets
 * of many flows are mixed, that would mostly be in vain, and nothing is kept or compared.
 *
 * A train is as good as the entry of the exact-match cache that it was made from, and no longer: it
 * has the tag that this entry was found under, which ends with the slot's epoch and the variant
 * (emc.h).
 *
 * None where flows are so many that packets are counted batch by batch. */
#ifndef SLIPSWITCH_LAST_FLOW_H
#define SLIPSWITCH_LAST_FLOW_H

#include "emc.h"

/* NULL: this CPU has none, or none is asked. */
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

/* `what` of the entry of the train, 0 when the packet may have another. */
static __always_inline __u64 last_flow_find(const struct last_flow *t, const __u64 *words)
{
	__u64 what = t->what, diff = t->tag ^ emc_tag(what % EMC_SLOTS);

	EMC_EACH(LAST_FLOW_DIFFERENCE)
	return diff ? 0 : what;
}

#define LAST_FLOW_KEEP(x) t->key[x] = words[x];

/* Keeps a key that may be a train's, while it is in registers. */
static __always_inline void last_flow_keep_key(struct last_flow *t, const __u64 *words)
{
	EMC_EACH(LAST_FLOW_KEEP)
}

/* Behind a packet of no train that has an entry with `what`, found under `tag`; 0: it has none. */
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

/* `what` of the entry of a key, by the train `t` or by the exact-match cache; 0: there is none.
 * `words`: what `emc_under` left of the key. */
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
