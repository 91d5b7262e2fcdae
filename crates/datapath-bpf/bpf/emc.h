/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The exact-match cache: what a packet's flow does with it, by the words that most flows look at.
 *
 * An entry is made from a flow that a packet was found to match; its key is that packet's under
 * the union of all masks that this variant knows. A packet with the same bits is of the same
 * flow, as long as the flow looks at no other bits (`may_remember`), is alive, and the union is
 * the same. The last two are the entry's tag: the slot's epoch and the variant's generation.
 *
 * Entries are small, as with many flows what a lookup costs is the lines of memory that it reads,
 * and those are in the CPU's caches or not by how many bytes there are for each flow. So an entry
 * has no key but two sums of it, one of 64 bits and the top of another. Both are by factors that
 * are random and secret: two keys that somebody chose have both sums in common for one choice of
 * factors in 2^55 when they differ in nothing but the highest bits of several halves of words,
 * else for one in 2^87, and never when they differ in one half of a word alone. The tag is added
 * to the first sum, times an odd factor: of one key two tags never look the same.
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
	__u64 sum;
	__u64 check; /* the other sum, as entries have it */
	__u32 hash;  /* says in which two lines it may be */
};

static __always_inline __u64 check_word(__u32 x, __u64 word)
{
	return hash_weigh(word, FACTORS_OF_CHECK + x, FACTORS_OF_CHECK + EMC_WORDS + x);
}

#define EMC_UNDER(x) words[x] = key[x] & settings.union_mask[x];

/* Of a packet's key what flows look at. (To ask which words these are would take longer.) */
static __always_inline void emc_under(__u64 *words, const __u64 *key)
{
	EMC_EACH(EMC_UNDER)
}

#define EMC_ADD(x)                                 \
	if (wants(BIT(x))) {                       \
		sum += hash_word(x, words[x]);     \
		check += check_word(x, words[x]);  \
	}

/* The key of what `emc_under` left; its sum, which the hash of the signature cache begins with. */
static __always_inline __u64 emc_words(struct emc_key *k, const __u64 *words)
{
	__u64 sum = 0, check = 0;

	EMC_EACH(EMC_ADD)
	k->sum = sum;
	k->check = check >> EMC_CHECK_SHIFT;
	k->hash = finish_hash(sum);
	return sum;
}

/* The line of this CPU that a hash leads to. */
static __always_inline __u32 emc_line_of(__u32 hash)
{
	__u32 line = (__u64)hash * settings.emc_used >> 32;

	return bpf_get_smp_processor_id() * settings.emc_lines + line;
}

/* The line that a key is put in and looked for first. */
static __always_inline __u32 emc_first(const struct emc_key *k)
{
	return emc_line_of(k->hash);
}

/* The other one: keys that share their first lines do not share these, so that nearly all find
 * room though three quarters of the entries are in use. */
static __always_inline __u32 emc_second(const struct emc_key *k)
{
	return emc_line_of(rehash(k->hash));
}

/* The tag of a slot's entries now. */
static __always_inline __u64 emc_tag(__u32 slot)
{
	struct epochs *e = epochs_table;

	opaque(e);
	return (__u64)settings.generation << 32 | e->of[slot % EPOCHS];
}

static __always_inline __u64 emc_sign(const struct emc_key *k, __u64 tag)
{
	return k->sum + tag * settings.factors[FACTOR_OF_TAG];
}

static __always_inline struct emc_line *emc_line_at(__u32 line)
{
	return ENTRY_OF(emc, line, settings.emc_total);
}

/* 1 when the entry has this check, else 0; without a branch, as nobody could foretell it. */
static __always_inline __u64 emc_has_check(const struct emc_entry *e, __u64 check)
{
	__u64 diff = e->what >> EMC_CHECK_SHIFT ^ check;

	opaque(diff);
	return (diff - 1) >> 63;
}

/* The entry that has the check of the key, else any. */
static __always_inline struct emc_entry *emc_likely(struct emc_line *l, __u64 check)
{
	__u64 last = emc_has_check(&l->ways[3], check);
	__u64 way = emc_has_check(&l->ways[1], check) | emc_has_check(&l->ways[2], check) << 1 | last << 1 | last;

	opaque(way);
	return &l->ways[way % EMC_WAYS];
}

/* 0 when the line does not have the key; else `tag` is that of the entry. */
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

/* `what` of the key's entry, and its tag; 0 when there is none. */
static __always_inline __u64 emc_find(const struct emc_key *k, __u64 *tag)
{
	__u64 what;

	if (!settings.emc_used)
		return 0;
	what = emc_at(k, emc_first(k), tag);
	return what ? what : emc_at(k, emc_second(k), tag);
}

static __always_inline __u32 emc_slot(__u64 what)
{
	return what % EMC_SLOTS;
}

/* NO_PORT: see the slot. */
static __always_inline __u32 emc_output(__u64 what)
{
	__u32 output = what >> EMC_OUTPUT_SHIFT & EMC_NO_OUTPUT;

	return output == EMC_NO_OUTPUT ? NO_PORT : output;
}

static __always_inline __u32 emc_hooks(__u64 what)
{
	return what >> EMC_HOOKS_SHIFT & (HOOK_XDP | HOOK_TC);
}

/* Of a slot's flags, those that programs look at. */
static __always_inline __u32 emc_flags(__u64 what)
{
	return what >> EMC_FLAGS_SHIFT & (FLOW_NO_GSO | FLOW_PRECHECK);
}

#define EMC_BEYOND(x) beyond |= mask->words[x] & ~settings.union_mask[x];

/* The mask looks at nothing but what the key of an entry has. Of packets from ports W_RECIRC is
 * always zero. */
static __always_inline bool emc_may_remember(const struct mask *mask)
{
	__u64 beyond = 0;

	EMC_EACH(EMC_BEYOND)
	return settings.emc_used && !beyond && !(mask->needs & COLD_BITS);
}

static __always_inline bool emc_is_free(const struct emc_entry *e)
{
	return !e->what;
}

/* A free entry of the line, else NULL. */
static __always_inline struct emc_entry *emc_free(struct emc_line *l)
{
	struct emc_entry *found = 0;

#pragma unroll
	for (int i = EMC_WAYS - 1; i >= 0; i--)
		if (emc_is_free(&l->ways[i]))
			found = &l->ways[i];
	return found;
}

/* Where a key that is not found is put: where it was with another tag, else in a free entry,
 * else in any, of its first line most times: what is in the other costs a line more to find. */
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

/* `tag`: of before the slot was read. */
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
