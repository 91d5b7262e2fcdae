/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets come in trains: the next one is often of the same flow. So where some have followed each
 * other a CPU keeps their key, bit by bit, and what their flow does with them. To compare that takes
 * a few instructions, where to sum a key up and to look for the sums takes a hundred. Where packets
 * of many flows are mixed, that would mostly be in vain, and nothing is kept or compared.
 *
 * A train is as good as the entry of the exact-match cache that it was made from, and no longer: it
 * has the tag that this entry was found under, which ends with the slot's epoch and the variant
 * (emc.h).
 *
 * None where flows are so many that packets are counted batch by batch. */
#ifndef SLIPSWITCH_TRAIN_H
#define SLIPSWITCH_TRAIN_H

#include "emc.h"

/* NULL: this CPU has none, or none is asked. */
static __always_inline struct train *train_here(void)
{
	struct train *t;

	if (settings.batched)
		return 0;
	t = ENTRY_OF(trains, bpf_get_smp_processor_id(), settings.cpus);
	opaque(t);
	return t;
}

#define TRAIN_DIFFERENCE(x) diff |= t->key[x] ^ words[x];

/* `what` of the entry of the train, 0 when the packet may have another. */
static __always_inline __u64 train_find(const struct train *t, const __u64 *words)
{
	__u64 what = t->what, diff = t->tag ^ emc_tag(what % EMC_SLOTS);

	EMC_EACH(TRAIN_DIFFERENCE)
	return diff ? 0 : what;
}

#define TRAIN_KEEP(x) t->key[x] = words[x];

/* Keeps a key that may be a train's, while it is in registers. */
static __always_inline void train_begin(struct train *t, const __u64 *words)
{
	EMC_EACH(TRAIN_KEEP)
}

/* Behind a packet of no train that has an entry with `what`, found under `tag`; 0: it has none. */
static __always_inline void train_note(struct train *t, __u64 what, __u64 tag)
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
static __always_inline __u64 emc_find_plain(struct train *t, const __u64 *words)
{
	struct emc_key k;
	__u64 what, tag = 0;

	if (t && t->what) {
		what = train_find(t, words);
		if (what)
			return what;
	} else if (t && t->again) {
		train_begin(t, words);
	}
	emc_words(&k, words);
	what = emc_find(&k, &tag);
	if (t)
		train_note(t, what, tag);
	return what;
}

#endif
