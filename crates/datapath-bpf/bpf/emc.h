/* The exact-match cache: what a packet's flow does with it, by the words that most flows look at,
 * in one cache line.
 *
 * An entry is made from a flow that a packet was found to match; its key is that packet's under
 * the union of all masks that this variant knows. A packet with the same bits is of the same
 * flow, as long as the flow looks at no other bits (`may_remember`), is alive, and the union is
 * the same. The last two are the entry's tag: the slot's epoch and the variant's generation.
 *
 * Why a dead flow's entry is not taken: the daemon marks a slot dead, then raises its epoch. Who
 * makes an entry reads the epoch first, then whether the slot is dead (at an address that depends
 * on the epoch): with the new epoch it finds the slot dead, with the old one the entry is void. */
#ifndef SLIPSWITCH_EMC_H
#define SLIPSWITCH_EMC_H

#include "key.h"

#define EMC_EACH(f) f(W_PORT) f(W_ETH0) f(W_ETH1) f(W_IP4) f(W_TP)

/* A packet's key for this cache. */
struct emc_key {
	__u64 words[EMC_WORDS];
	__u32 place; /* of one of the two entries that it may be in, the other is place ^ 1 */
};

#define EMC_UNDER(x)                                   \
	k->words[x] = key[x] & settings.union_mask[x]; \
	sum += hash_word(x, k->words[x]);

/* Fills in the words; what they add to the hash of the signature cache. */
static __always_inline __u64 emc_words(struct emc_key *k, const __u64 *key)
{
	__u64 sum = 0;

	EMC_EACH(EMC_UNDER)
	return sum;
}

static __always_inline __u32 finish_hash(__u64 sum)
{
	sum ^= sum >> 32;
	sum *= 0x9e3779b97f4a7c15ull;
	return sum >> 32;
}

static __always_inline void emc_set_place(struct emc_key *k, __u32 hash)
{
	k->place = bpf_get_smp_processor_id() * settings.emc_lines + (hash & settings.emc_mask);
}

/* The tag of a slot's entries now. */
static __always_inline __u64 emc_tag(__u32 slot)
{
	struct epochs *e = epochs_table;

	opaque(e);
	return (__u64)settings.generation << 32 | e->of[slot % EPOCHS];
}

static __always_inline bool emc_is_live(const struct emc_entry *e)
{
	return e->tag == emc_tag(e->slot);
}

static __always_inline struct emc_entry *emc_entry_at(__u32 place)
{
	return ENTRY_OF(emc, place, settings.emc_entries);
}

#define EMC_DIFFERENCE(x) diff |= k->words[x] ^ e->key[x];

/* NULL when the entry at `place` is not this key's. */
static __always_inline struct emc_entry *emc_at(const struct emc_key *k, __u32 place)
{
	struct emc_entry *e = emc_entry_at(place);
	__u64 diff = 0;

	if (!e)
		return 0;
	EMC_EACH(EMC_DIFFERENCE)
	return !diff && emc_is_live(e) ? e : 0;
}

static __always_inline struct emc_entry *emc_find(const struct emc_key *k)
{
	struct emc_entry *e;

	if (!settings.emc_mask)
		return 0;
	e = emc_at(k, k->place);
	return e ? e : emc_at(k, k->place ^ 1);
}

#define EMC_BEYOND(x) beyond |= mask->words[x] & ~settings.union_mask[x];

/* The mask looks at nothing but what the key of an entry has. Of packets from ports W_RECIRC is
 * always zero. */
static __always_inline bool may_remember(const struct mask *mask)
{
	__u64 beyond = 0;

	EMC_EACH(EMC_BEYOND)
	return settings.emc_mask && !beyond && !(mask->needs & COLD_BITS);
}

#define EMC_WRITE(x) e->key[x] = k->words[x];

/* In the place of an entry that is void, else of either. `tag`: of before the slot was read. */
static __always_inline void emc_remember(const struct emc_key *k, const struct slot *slot,
					 __u32 number, __u64 tag)
{
	struct emc_entry *e = emc_entry_at(k->place), *other;

	if (!e)
		return;
	if (emc_is_live(e)) {
		other = emc_entry_at(k->place ^ 1);
		if (other && (!emc_is_live(other) || bpf_get_prandom_u32() & 1))
			e = other;
	}
	EMC_EACH(EMC_WRITE)
	e->slot = number;
	e->output = slot->output;
	e->program = slot->program;
	e->hooks = slot->hooks;
	e->flags = slot->flags;
	e->tag = tag;
}

#endif
