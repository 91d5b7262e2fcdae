/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The exact-match cache: the action for a packet, found by the words that most flows match on, and
 * the counts of such packets.
 *
 * An entry is made from a flow that a packet matched. Its key is that packet's key under the union
 * of all masks of this variant. A packet with the same bits belongs to the same flow under three
 * conditions: the flow matches on no other bits (emc_may_remember), the flow is alive, and the
 * union is the same. The entry's tag represents the last two: it is made of the slot's epoch and
 * the variant's generation.
 *
 * Entries are small. With many flows, the cost of a lookup is the cache lines that it reads, and
 * the bytes per flow decide whether the CPU's caches have them. So an entry contains no key but the
 * tops of two sums of it, of 32 and 19 bits. Both use factors that are random and secret. The tag is
 * added to the first. Two keys have both in common for about one choice of factors in 2^51; for at
 * most one in 2^49 when somebody chose the keys. A lookup compares at most eight entries, so a key
 * without a flow is taken for another once in 2^48 lookups. Its packet then runs the action of the
 * other flow, which may be wrong for it, and counts there. Nothing else comes of it. At ten million
 * such lookups a second this happens once in ten months.
 *
 * For one key, two tags give equal signs only if they are equal, so the entry of a dead flow is not
 * used. The daemon marks a slot dead, then raises its epoch. A program that makes an entry reads the
 * epoch first, and then whether the slot is dead (at an address that depends on the epoch). With the
 * new epoch it finds the slot dead; with the old epoch the entry is void. A void entry keeps its
 * counts until another flow gets it, or the daemon takes them: see layout.h.
 */
#ifndef SLIPSWITCH_EMC_H
#define SLIPSWITCH_EMC_H

#include "flow_count.h"
#include "key.h"

/**
 * emc_exchange - Moves the counts of an entry to its flow, and sets its word.
 * @e: the entry
 * @count: becomes `count` of the entry
 *
 * A function of its own, as it is rare.
 *
 * Return: 0, because such a function must return a number.
 */
static __noinline int emc_exchange(struct emc_entry *e, __u64 count)
{
	struct moves *m = ENTRY_OF(moves, bpf_get_smp_processor_id(), settings.cpus);
	__u64 turn, old, counts;
	__u32 at;

	if (!e || !m)
		return 0;
	turn = m->turn;
	store_in_order(&m->turn, turn + 1);
	old = __sync_lock_test_and_set(&e->count, count);
	counts = (old & EMC_COUNTS) >> EMC_PACKETS_SHIFT << RECENT_PACKETS_SHIFT | (old & EMC_BYTES);
	at = count_shard() * settings.max_flows + (old >> EMC_SLOT_SHIFT) % EMC_SLOTS;
	if (counts && (settings.shards_atomic || add_counts(at, counts, 0)))
		spill(at, settings.shards_atomic ? counts : 0);
	store_in_order(&m->turn, turn + 2);
	return 0;
}

/**
 * emc_note_flags - Adds TCP flags to a flow's word.
 * @count: `count` of the entry
 * @tcp_flags: host integer
 *
 * Return: `count` with those of the flags that it has room for.
 */
static __noinline __u64 emc_note_flags(__u64 count, __u64 tcp_flags)
{
	__u32 slot = (count >> EMC_SLOT_SHIFT) % EMC_SLOTS;

	add_counts(count_shard() * settings.max_flows + slot, 0, tcp_flags << TCP_FLAGS_SHIFT);
	return count | (tcp_flags & EMC_TCP_FLAGS) << EMC_TCP_FLAGS_SHIFT;
}

/**
 * emc_count - Counts a packet of a flow in the entry that it was found by.
 * @e: the entry
 * @bytes: of the packet
 * @tcp_flags: host integer; 0 when the packet is not TCP
 */
static __always_inline void emc_count(struct emc_entry *e, __u32 bytes, __u64 tcp_flags)
{
	__u64 count = e->count;

	if (tcp_flags & ~(count >> EMC_TCP_FLAGS_SHIFT & EMC_TCP_FLAGS))
		count = emc_note_flags(count, tcp_flags);
	count += EMC_PACKET + bytes;
	*(volatile __u64 *)&e->count = count;
	if (count & EMC_FULL)
		emc_exchange(e, count & ~EMC_COUNTS);
}

/* Expands `f` for each word of an entry's key. */
#define EMC_EACH(f) f(W_PORT) f(W_ETH0) f(W_ETH1) f(W_IP4) f(W_TP)

/* A packet's key for this cache. */
struct emc_key {
	__u32 sum;   /* the top bits of a sum */
	__u32 check; /* the top bits of another */
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
	k->sum = sum >> 32;
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

/* emc_slot to emc_hooks return the parts of an entry. */
static __always_inline __u32 emc_slot(const struct emc_entry *e)
{
	return e->count >> EMC_SLOT_SHIFT & (EMC_SLOTS - 1);
}

/* NO_PORT: the slot has the action. */
static __always_inline __u32 emc_output(const struct emc_entry *e)
{
	__u32 output = e->sign & EMC_NO_OUTPUT;

	return output == EMC_NO_OUTPUT ? NO_PORT : output;
}

/* Only of an entry that has the output. */
static __always_inline __u32 emc_hooks(const struct emc_entry *e)
{
	return e->sign & EMC_XDP ? HOOK_XDP | HOOK_TC : HOOK_TC;
}

/* Returns the present tag of a slot's entries. Two tags of a slot are equal only if they are 2^24
 * epochs or 256 generations apart. */
static __always_inline __u32 emc_tag(__u32 slot)
{
	struct epochs *e = epochs_table;

	opaque(e);
	return (settings.generation << 24) + e->of[slot % EPOCHS];
}

/* Returns the sign of a key's entry without the output. For one key, two tags never give equal
 * signs. */
static __always_inline __u64 emc_sign(__u32 sum, __u32 check, __u32 tag)
{
	return (__u64)check << EMC_CHECK_SHIFT | (__u64)(__u32)(sum + tag) << EMC_SIGN_SHIFT;
}

/* Returns true when the entry is the valid one of a key with these sums. */
static __always_inline bool emc_is(const struct emc_entry *e, __u32 sum, __u32 check)
{
	return !((e->sign ^ emc_sign(sum, check, emc_tag(emc_slot(e)))) >> EMC_SIGN_SHIFT);
}

/* Returns a line by its number, or NULL beyond the end. */
static __always_inline struct emc_line *emc_line_at(__u32 line)
{
	return ENTRY_OF(emc, line, settings.emc_total);
}

/* Returns 1 when the entry has this check, else 0. It has no branch, because none could be
 * predicted. */
static __always_inline __u64 emc_has_check(const struct emc_entry *e, __u32 check)
{
	__u64 diff = e->sign >> EMC_CHECK_SHIFT ^ check;

	opaque(diff);
	return (diff - 1) >> 63;
}

/* Returns the way of the line's entry that has the key's check, or any way. It has no branch
 * either. */
static __always_inline __u64 emc_likely(const struct emc_line *l, __u32 check)
{
	__u64 last = emc_has_check(&l->ways[3], check);
	__u64 way = emc_has_check(&l->ways[1], check) | emc_has_check(&l->ways[2], check) << 1 |
		    last << 1 | last;

	opaque(way);
	return way % EMC_WAYS;
}

/**
 * emc_at - Looks a key up in one line.
 * @k: the key
 * @line: number of the line
 * @at: becomes the place of the entry: line * EMC_WAYS + way
 *
 * Return: the entry; NULL when the line does not have the key.
 */
static __always_inline struct emc_entry *emc_at(const struct emc_key *k, __u32 line, __u32 *at)
{
	struct emc_line *l = emc_line_at(line);
	__u64 way;

	if (!l)
		return 0;
	way = emc_likely(l, k->check);
	*at = line * EMC_WAYS + way;
	return emc_is(&l->ways[way], k->sum, k->check) ? &l->ways[way] : 0;
}

/**
 * emc_find - Looks a key up.
 * @k: the key
 * @at: becomes the place of the entry, as above
 *
 * Return: the entry; NULL when there is none.
 */
static __always_inline struct emc_entry *emc_find(const struct emc_key *k, __u32 *at)
{
	struct emc_entry *e = emc_at(k, emc_first(k), at);

	return e ? e : emc_at(k, emc_second(k), at);
}

#define EMC_BEYOND(x) beyond |= mask->words[x] & ~settings.union_mask[x];

/* Returns true when the mask covers only words that an entry's key has. W_RECIRC and the words of
 * metadata are always zero in packets from ports. */
static __always_inline bool emc_may_remember(const struct mask *mask)
{
	__u64 beyond = 0;

	EMC_EACH(EMC_BEYOND)
	return config_here()->emc_used && !beyond && !(mask->needs & COLD_BITS);
}

/* Returns true when nothing is in the entry. */
static __always_inline bool emc_is_free(const struct emc_entry *e)
{
	return !e->sign;
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
	e = &l->ways[emc_likely(l, k->check)];
	if (emc_has_check(e, k->check))
		return e;
	e = &other->ways[emc_likely(other, k->check)];
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

/* Returns the output and EMC_XDP for a flow's entry. */
static __always_inline __u64 emc_action(const struct slot *slot)
{
	if (slot->output >= EMC_NO_OUTPUT || !(slot->hooks & HOOK_TC) ||
	    slot->flags & (FLOW_NO_GSO | FLOW_PRECHECK))
		return EMC_NO_OUTPUT;
	return slot->output | (slot->hooks & HOOK_XDP ? EMC_XDP : 0);
}

/**
 * emc_remember - Puts a flow into the cache.
 * @k: the packet's key
 * @slot: the flow
 * @number: its number
 * @tag: tag that was read before the slot was
 */
static __always_inline void emc_remember(const struct emc_key *k, const struct slot *slot,
					 __u32 number, __u32 tag)
{
	struct emc_entry *e = emc_room(k);

	if (!e)
		return;
	emc_exchange(e, (__u64)(number % EMC_SLOTS) << EMC_SLOT_SHIFT);
	e->sign = emc_sign(k->sum, k->check, tag) | emc_action(slot);
}

#endif
