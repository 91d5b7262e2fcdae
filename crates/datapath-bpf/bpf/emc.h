/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The exact-match cache: the action for a packet, found by the words that most flows match on.
 *
 * An entry is made from a flow that a packet matched. Its key is that packet's key under the union
 * of all masks of this variant. A packet with the same bits belongs to the same flow under three
 * conditions: the flow matches on no other bits (emc_may_remember), the flow is alive, and the
 * union is the same. The entry's tag represents the last two: it is the slot's epoch and the
 * variant's generation.
 *
 * Entries are small. With many flows, the cost of a lookup is the cache lines that it reads, and
 * the bytes per flow decide whether the CPU's caches have them. So an entry contains no key but two
 * sums of it: one of 64 bits, and the top of another. Both use factors that are random and secret.
 * Two keys that somebody chose have both sums in common for one choice of factors in 2^55 if they
 * differ only in the highest bits of several halves of words, for one in 2^87 otherwise, and never
 * if they differ in a single half of one word. The tag is added to the first sum, times an odd
 * factor: for one key, two tags never give equal sums.
 *
 * The entry of a dead flow is not used. The daemon marks a slot dead, then raises its epoch. A
 * program that makes an entry reads the epoch first, and then whether the slot is dead (at an
 * address that depends on the epoch). With the new epoch it finds the slot dead; with the old epoch
 * the entry is void.
 */
#ifndef SLIPSWITCH_EMC_H
#define SLIPSWITCH_EMC_H

#include "key.h"

/* Expands `f` for each word of an entry's key. */
#define EMC_EACH(f) f(W_PORT) f(W_ETH0) f(W_ETH1) f(W_IP4) f(W_TP)

/* A packet's key for this cache. */
struct emc_key {
	__u64 sum;
	__u64 check; /* the top bits of the other sum */
	__u32 hash;  /* selects the two lines that the entry may be in */
};

/* Returns the contribution of word `x` to the other sum. */
static __always_inline __u64 check_word(__u32 x, __u64 word)
{
	return hash_weigh(word, FACTORS_OF_CHECK + x, FACTORS_OF_CHECK + EMC_WORDS + x);
}

#define EMC_UNDER(x) words[x] = key[x] & settings.union_mask[x];

/* Sets `words` to those of `key` under the union of all masks. (To test which words the union
 * covers would take longer.) */
static __always_inline void emc_under(__u64 *words, const __u64 *key)
{
	EMC_EACH(EMC_UNDER)
}

#define EMC_ADD(x)                                 \
	if (wants(BIT(x))) {                       \
		sum += hash_word(x, words[x]);     \
		check += check_word(x, words[x]);  \
	}

/**
 * emc_words - Makes the cache's key.
 * @k: becomes the key
 * @words: the packet's words, from emc_under()
 *
 * Return: the sum, which the hash of the signature cache begins with.
 */
static __always_inline __u64 emc_words(struct emc_key *k, const __u64 *words)
{
	__u64 sum = 0, check = 0;

	EMC_EACH(EMC_ADD)
	k->sum = sum;
	k->check = check >> EMC_CHECK_SHIFT;
	k->hash = finish_hash(sum);
	return sum;
}

/* Returns the line of this CPU that a hash selects. The number of lines in use may change between
 * two calls: an entry is then looked for where it is not, or found where it was put before, and is
 * as valid there. */
static __always_inline __u32 emc_line_of(__u32 hash)
{
	__u32 line = (__u64)hash * config_here()->emc_used >> 32;

	return bpf_get_smp_processor_id() * settings.emc_lines + line;
}

/* Returns the line that a key is looked for in first. */
static __always_inline __u32 emc_first(const struct emc_key *k)
{
	return emc_line_of(k->hash);
}

/* Returns the other line. Keys that share their first line do not share this one, so nearly all
 * keys find room even when three quarters of the entries are in use. */
static __always_inline __u32 emc_second(const struct emc_key *k)
{
	return emc_line_of(rehash(k->hash));
}

/* Returns the present tag of a slot's entries. */
static __always_inline __u64 emc_tag(__u32 slot)
{
	struct epochs *e = epochs_table;

	opaque(e);
	return (__u64)settings.generation << 32 | e->of[slot % EPOCHS];
}

/* Returns the sum of a key and its tag. */
static __always_inline __u64 emc_sign(const struct emc_key *k, __u64 tag)
{
	return k->sum + tag * settings.factors[FACTOR_OF_TAG];
}

/* Returns a line by its number, or NULL beyond the end. */
static __always_inline struct emc_line *emc_line_at(__u32 line)
{
	return ENTRY_OF(emc, line, settings.emc_total);
}

/* Returns 1 when the entry has this check, else 0. It has no branch, because none could be
 * predicted. */
static __always_inline __u64 emc_has_check(const struct emc_entry *e, __u64 check)
{
	__u64 diff = e->what >> EMC_CHECK_SHIFT ^ check;

	opaque(diff);
	return (diff - 1) >> 63;
}

/* Returns the entry of the line that has the key's check, or any entry. It has no branch either. */
static __always_inline struct emc_entry *emc_likely(struct emc_line *l, __u64 check)
{
	__u64 last = emc_has_check(&l->ways[3], check);
	__u64 way = emc_has_check(&l->ways[1], check) | emc_has_check(&l->ways[2], check) << 1 |
		    last << 1 | last;

	opaque(way);
	return &l->ways[way % EMC_WAYS];
}

/**
 * emc_at - Looks a key up in one line.
 * @k: the key
 * @line: number of the line
 * @tag: becomes the tag of the entry
 *
 * Return: `what` of the entry; 0 when the line does not have the key.
 */
static __always_inline __u64 emc_at(const struct emc_key *k, __u32 line, __u64 *tag)
{
	struct emc_line *l = emc_line_at(line);
	struct emc_entry *e;
	__u64 what, diff;

	if (!l)
		return 0;
	e = emc_likely(l, k->check);
	what = e->what;
	diff = what >> EMC_CHECK_SHIFT ^ k->check;
	*tag = emc_tag(what % EMC_SLOTS);
	diff |= e->sign ^ emc_sign(k, *tag);
	return diff ? 0 : what;
}

/**
 * emc_find - Looks a key up.
 * @k: the key
 * @tag: becomes the tag of the entry
 *
 * Return: `what` of the entry; 0 when there is none.
 */
static __always_inline __u64 emc_find(const struct emc_key *k, __u64 *tag)
{
	__u64 what;

	what = emc_at(k, emc_first(k), tag);
	return what ? what : emc_at(k, emc_second(k), tag);
}

/* emc_slot to emc_flags return the parts of `what`. */
static __always_inline __u32 emc_slot(__u64 what)
{
	return what % EMC_SLOTS;
}

/* NO_PORT: the slot has the action. */
static __always_inline __u32 emc_output(__u64 what)
{
	__u32 output = what >> EMC_OUTPUT_SHIFT & EMC_NO_OUTPUT;

	return output == EMC_NO_OUTPUT ? NO_PORT : output;
}

static __always_inline __u32 emc_hooks(__u64 what)
{
	return what >> EMC_HOOKS_SHIFT & (HOOK_XDP | HOOK_TC);
}

/* The slot's flags that programs read. */
static __always_inline __u32 emc_flags(__u64 what)
{
	return what >> EMC_FLAGS_SHIFT & (FLOW_NO_GSO | FLOW_PRECHECK);
}

#define EMC_BEYOND(x) beyond |= mask->words[x] & ~settings.union_mask[x];

/* Returns true when the mask covers only words that an entry's key has. W_RECIRC is always zero in
 * packets from ports. */
static __always_inline bool emc_may_remember(const struct mask *mask)
{
	__u64 beyond = 0;

	EMC_EACH(EMC_BEYOND)
	return config_here()->emc_used && !beyond && !(mask->needs & COLD_BITS);
}

/* Returns true when nothing is in the entry. */
static __always_inline bool emc_is_free(const struct emc_entry *e)
{
	return !e->what;
}

/* Returns a free entry of the line, or NULL. */
static __always_inline struct emc_entry *emc_free(struct emc_line *l)
{
	struct emc_entry *found = 0;

#pragma unroll
	for (int i = EMC_WAYS - 1; i >= 0; i--)
		if (emc_is_free(&l->ways[i]))
			found = &l->ways[i];
	return found;
}

/**
 * emc_room - Chooses the entry for a key that was not found.
 * @k: the key
 *
 * An entry of the key with another tag, else a free one, else a random one. The last is in the
 * first line most of the time: an entry in the other line costs a further cache line to find.
 *
 * Return: NULL only when the cache is off.
 */
static __always_inline struct emc_entry *emc_room(const struct emc_key *k)
{
	struct emc_line *l = emc_line_at(emc_first(k)), *other = emc_line_at(emc_second(k));
	__u32 random = bpf_get_prandom_u32();
	struct emc_entry *e;

	if (!l || !other)
		return 0;
	e = emc_likely(l, k->check);
	if (emc_has_check(e, k->check))
		return e;
	e = emc_likely(other, k->check);
	if (emc_has_check(e, k->check))
		return e;
	e = emc_free(l);
	if (e)
		return e;
	e = emc_free(other);
	if (e)
		return e;
	if (!(random >> 16 & 7))
		l = other;
	COUNT(evicted);
	return &l->ways[random % EMC_WAYS];
}

/**
 * emc_remember - Puts a flow into the cache.
 * @k: the packet's key
 * @slot: the flow
 * @number: its number
 * @tag: tag that was read before the slot was
 */
static __always_inline void emc_remember(const struct emc_key *k, const struct slot *slot,
					 __u32 number, __u64 tag)
{
	struct emc_entry *e = emc_room(k);
	__u64 output = slot->output < EMC_NO_OUTPUT ? slot->output : EMC_NO_OUTPUT;
	__u64 flags = slot->flags & (FLOW_NO_GSO | FLOW_PRECHECK);

	if (!e)
		return;
	e->sign = emc_sign(k, tag);
	e->what = k->check << EMC_CHECK_SHIFT | flags << EMC_FLAGS_SHIFT |
		  (__u64)slot->hooks << EMC_HOOKS_SHIFT | output << EMC_OUTPUT_SHIFT |
		  number % EMC_SLOTS;
}

#endif
