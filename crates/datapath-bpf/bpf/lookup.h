/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a key to a flow by the signature cache, and what to do with a packet whose flow is known.
 *
 * Hash: the sum of the words under a mask, each by factors of its own (`hash_word`; in the index
 * also the mask's number times one more), the high half mixed once. Factors are odd, random and
 * secret.
 *
 * First asked is the train, then the exact-match cache, then the signature cache, which goes by the
 * hash under the union of all masks. What that has is a hint: the key is compared under the mask of
 * the slot. What the present variant cannot compare is not there for it; the walk, which parses
 * everything, decides then. */
#ifndef SLIPSWITCH_LOOKUP_H
#define SLIPSWITCH_LOOKUP_H

#include "ingress.h"
#include "emc.h"
#include "undo.h"
#include "output.h"
#include "parse.h"
#include "parse_fast.h"
#include "last_flow.h"

#define NO_SLOT 0xffffffffu
#define PULL_BYTES 512 /* tc: how much of a packet is made linear for its headers */

/* The kernel ends a packet's 34th tail call in the program that makes it (MAX_TAIL_CALL_CNT). */
#define TAIL_CALLS 33
/* To the first lookup, twice when headers are made linear in between. */
#define CALLS_TO_LOOKUP 3
/* To a lookup again, twice, to the walk, and up. */
#define CALLS_AFTER_PROGRAM 5

/* Does `f(x)` for the words of each group. */
#define HOT_EACH(f) EMC_EACH(f) f(W_RECIRC)
#define COLD_EACH(f)                                                                      \
	f(W_META) f(W_REST) f(W_MPLS0) f(W_MPLS1) f(W_SRC0) f(W_SRC1) f(W_DST0) f(W_DST1) \
		f(W_ND0) f(W_ND1) f(W_HW0) f(W_HW1) f(W_ND2)

#define UNION_WORD(x) sum += hash_word(x, key[x] & settings.union_mask[x]);
#define UNION_COLD(x)      \
	if (wants(BIT(x))) \
		UNION_WORD(x)

/* `sum`: of the words before W_RECIRC, which is zero in packets from ports. */
static __always_inline __u32 cache_hash_of_port(__u64 sum, const __u64 *key)
{
	if (wants(COLD_BITS)) {
		COLD_EACH(UNION_COLD)
	}
	return finish_hash(sum);
}

static __always_inline __u32 cache_hash(const __u64 *key)
{
	__u64 sum = 0;

	HOT_EACH(UNION_WORD)
	return cache_hash_of_port(sum, key);
}

/* Where the signature cache has `hash`; NULL only where the maps are smaller than they say. */
static __always_inline struct cache_line *sigcache_line(__u32 hash)
{
	struct config *c = config_here();
	__u32 line = c ? hash & c->cache_mask : 0;

	return bpf_map_lookup_elem(&cache, &line);
}

/* The slot that the cache has for `hash`, or NO_SLOT. */
static __always_inline __u32 sigcache_find(__u32 hash)
{
	struct cache_line *l = sigcache_line(hash);
	__u64 found = 0;

	if (!l)
		return NO_SLOT;
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		__u64 e = *(volatile __u64 *)&l->entries[i];

		if (e >> 32 == hash) {
			found = e;
			break;
		}
	}
	/* 0 says free: the slot becomes NO_SLOT. */
	return (__u32)found - 1;
}

#define DIFFERENCE(x) diff |= (key[x] ^ slot->hot[x]) & mask->words[x];
#define DIFFERENCE_COLD(x)                                                  \
	if (wants(BIT(x)))                                                  \
		diff |= (key[x] ^ detail->cold[x - HOT_WORDS]) & mask->words[x];

/* True when `key` is of this flow. */
static __always_inline bool lookup_matches(const __u64 *key, const struct slot *slot, __u32 number,
				    const struct mask *mask)
{
	struct slot_detail *detail;
	__u64 diff = 0;

	HOT_EACH(DIFFERENCE)
	if (wants(COLD_BITS) && mask->needs & COLD_BITS) {
		detail = detail_of(number);
		if (!detail)
			return false;
		COLD_EACH(DIFFERENCE_COLD)
	}
	return !diff;
}

/* What the packet carries on when it leaves the fast path. */
static __always_inline void state_keep_layers(struct state *st, const struct layers *layers)
{
	st->mpls = layers->mpls;
	st->l3 = layers->l3;
	st->l4 = layers->l4;
}

#define KEEP_WORD(x) st->key[x] = key[x];
#define KEEP_COLD(x)       \
	if (wants(BIT(x))) \
		KEEP_WORD(x)

static __always_inline void state_keep_key(struct state *st, const __u64 *key)
{
	HOT_EACH(KEEP_WORD)
	if (wants(COLD_BITS)) {
		COLD_EACH(KEEP_COLD)
	}
}

/* This flow cannot be run at this hook; the packet is as it came, or was looked up again. */
static __always_inline int lookup_leave(hook_ctx *ctx, __u32 depth)
{
#if AT_XDP
	/* The next hook knows nothing of what was done here: it does it anew. */
	if (depth && undo_restore(ctx))
		return drop(DROP_UNSUPPORTED);
	COUNT(passed);
	return VERDICT_NONE;
#else
	return tail_call(ctx, TAIL_MISS);
#endif
}

/* The daemon wants no misses of this port now. */
static __always_inline bool port_is_closed(const struct port *port)
{
	return *(volatile __u64 *)&port->closed_until > bpf_ktime_get_coarse_ns();
}

/* `hooks`, `flags`: of a slot. */
static __always_inline bool lookup_runs_here(hook_ctx *ctx, __u32 hooks, __u32 flags)
{
	if (!(hooks & HOOK))
		return false;
	return AT_XDP || !(flags & FLOW_NO_GSO) || !is_gso(ctx);
}

/* XDP can redirect only to what is in the devmap, and frames in several buffers not to all of
 * that; the next hook can send to any port. */
static __always_inline bool lookup_can_redirect(const struct view *v, const struct port *port)
{
#if AT_XDP
	const __u32 open = PORT_UP | PORT_DEVMAP | PORT_SPLIT;
	__u32 flags;

	/* Most ports, in one comparison. */
	if (!port || (port->flags & open) == open)
		return true;
	flags = *(volatile __u32 *)&port->flags; /* anew: else most ports pay for keeping it */
	if (!(flags & PORT_UP))
		return true;
	return flags & PORT_DEVMAP && v->whole;
#else
	return true;
#endif
}

/* The same for what a program sends, to whatever port. */
static __always_inline bool lookup_can_redirect_any(const struct view *v)
{
#if AT_XDP
	struct config *c;

	if (v->whole)
		return true;
	c = config_here();
	return c && !*(volatile __u32 *)&c->whole_only;
#else
	return true;
#endif
}

static __always_inline void state_init(struct state *st, __u32 in_port)
{
	st->in_port = in_port;
	st->recirc_id = 0;
	st->dp_hash = 0;
	st->mark = 0;
	st->priority = 0;
	st->depth = 0;
	st->pulled = 0;
	st->deferred = 0;
	st->calls = CALLS_TO_LOOKUP;
}

static __always_inline void state_begin_program(struct state *st, __u32 program, __u32 length)
{
	st->program = program;
	st->pc = 0;
	st->trunc = 0;
	st->length = length;
}

/* What the host's stack sends is counted by no device. `bytes`: the frame. */
static __always_inline void count_ingress(__u32 in_port, __u32 bytes)
{
	struct port *port;

	if (!(settings.features & FEATURE_STACK))
		return;
	port = port_of(in_port);
	if (port && port->flags & PORT_STACK)
		count_rx(in_port, bytes);
}

/* A header is out of reach, or there are too many. Not twice: what was pulled is enough or it is
 * the daemon's. */
static __always_inline int lookup_unparsed(hook_ctx *ctx, int why, __u32 depth)
{
#if !AT_XDP
	__u64 reach = data_end_of(ctx) - data_of(ctx);

	if (why == PARSE_PULL && reach < PULL_BYTES && reach < ctx->len)
		return tail_call(ctx, TAIL_PULL);
#endif
	return lookup_leave(ctx, depth);
}

/* What the fast path knows of a packet. */
struct packet {
	__u64 key[WORDS];
	struct layers layers;
};

/* What a flow does with its packets. */
struct decision {
	__u32 slot;
	__u32 output, program;
	__u32 hooks, flags;
};

static __always_inline void lookup_decide_by(struct decision *d, __u32 number, const struct slot *slot)
{
	d->slot = number;
	d->output = slot->output;
	d->program = slot->program;
	d->hooks = slot->hooks;
	d->flags = slot->flags;
}

/* By an entry of the exact-match cache. False: by the walk. */
static __always_inline bool lookup_decide_at_once(struct decision *d, __u64 what)
{
	struct slot *slot;

	d->slot = emc_slot(what);
	d->output = emc_output(what);
	d->program = NO_PROGRAM;
	d->hooks = emc_hooks(what);
	d->flags = emc_flags(what);
	if (d->output != NO_PORT)
		return true;
	slot = bpf_map_lookup_elem(&slots, &d->slot);
	if (slot)
		d->program = slot->program;
	return slot;
}

/* By the signature cache; the exact-match cache then knows it, too. False: by the walk. */
static __always_inline bool lookup_decide(const __u64 *key, const struct emc_key *k, __u32 hash,
				   struct decision *d)
{
	__u32 number = sigcache_find(hash), mask_number;
	__u64 tag = emc_tag(number);
	__u32 after = tag;
	struct slot *slot;
	struct mask *mask;

	/* Zero, but known only when the epoch is. */
	asm volatile("%0 ^= %0" : "+r"(after));
	number += after;
	slot = bpf_map_lookup_elem(&slots, &number);
	if (!slot)
		return false;
	mask_number = slot->mask;
	mask = bpf_map_lookup_elem(&masks, &mask_number);
	if (!mask || slot->dead || mask->needs & ~settings.needs || !lookup_matches(key, slot, number, mask))
		return false;
	lookup_decide_by(d, number, slot);
	if (emc_may_remember(mask))
		emc_remember(k, slot, number, tag);
	return true;
}

#define NOT_HERE 0x7fffffff

/* Sends a packet from a port by the flow in `slot`, which only sends it to port `output`. `bytes`:
 * the frame. NOT_HERE, and nothing is done: this hook cannot. */
static __always_inline int lookup_forward(hook_ctx *ctx, const struct view *v, __u32 in_port, __u32 slot,
				   __u32 output, __u32 bytes, __u32 tcp_flags)
{
	struct port *port = port_of(output);

	if (!lookup_can_redirect(v, port))
		return NOT_HERE;
	count_flow(slot, bytes, tcp_flags);
	count_ingress(in_port, bytes);
	return output_to(ctx, port, output, v->length);
}

/* A packet of the shape that most have, when its flow is in the exact-match cache and only sends
 * it to one port; else NOT_HERE. */
static __always_inline int lookup_fast(hook_ctx *ctx, __u32 in_port)
{
	const struct view v = { data_of(ctx), data_end_of(ctx), linear_length(ctx), true };
	struct last_flow *train = last_flow_here(); /* a call: before registers are in use */
	__u64 words[EMC_WORDS], what;
	__u32 tcp_flags, output;

	if (!parse_fast(ctx, &v, in_port, words, &tcp_flags))
		return NOT_HERE;
	what = last_flow_or_emc_find(train, words);
	output = emc_output(what);
	if (!what || output == NO_PORT || !lookup_runs_here(ctx, emc_hooks(what), emc_flags(what)))
		return NOT_HERE;
	/* No tag is beside it. */
	return lookup_forward(ctx, &v, in_port, emc_slot(what), output, v.length, tcp_flags);
}

/* Of a slot that has a program. It is looked up for that alone: what the fast path carries along,
 * all packets pay for. */
static __always_inline bool needs_precheck(__u32 number)
{
#if AT_XDP
	struct slot *slot = bpf_map_lookup_elem(&slots, &number);

	return slot && slot->flags & FLOW_PRECHECK;
#else
	return false;
#endif
}

/* A packet from a port. */
static __always_inline int lookup(hook_ctx *ctx)
{
	__u32 in_port = ingress_port(ctx);
	struct view view;
	struct packet packet;
	struct packet *p = &packet;
	struct emc_key emc_key;
	struct decision d;
	struct state *st;
	__u64 words[EMC_WORDS], *key, sum, what, tag;
	__u32 hash, bytes;
	bool held;
	int err, verdict;

	if (in_port == NO_PORT)
		return VERDICT_NONE;
	verdict = lookup_fast(ctx, in_port);
	if (verdict != NOT_HERE)
		return verdict;
	view = view_of(ctx);
	/* In memory for good: taken apart into variables it would be put together anew at each
	 * branch of the parser. */
	opaque(p);
	key = p->key;
	p->layers = (struct layers){};
	metadata_of_port(key, in_port);
	err = parse_headers(key, ctx, &view, &p->layers, PARSE_COMMON);
	if (err)
		goto slow;
	emc_under(words, key);
	sum = emc_words(&emc_key, words);
	hash = cache_hash_of_port(sum, key);
	what = emc_find(&emc_key, &tag);
	if (!(what ? lookup_decide_at_once(&d, what) : lookup_decide(key, &emc_key, hash, &d)))
		goto walk;
	if (!lookup_runs_here(ctx, d.hooks, d.flags))
		goto slow;
	bytes = view.length + tag_length(ctx);
	if (d.output != NO_PORT) {
		verdict = lookup_forward(ctx, &view, in_port, d.slot, d.output, bytes,
				  p->layers.tcp_flags);
		if (verdict == NOT_HERE)
			goto slow;
		return verdict;
	}
	if (d.program != NO_PROGRAM && !(settings.features & FEATURE_LAYERS))
		goto walk;
	if (d.program != NO_PROGRAM && !lookup_can_redirect_any(&view))
		goto slow;
	held = d.program != NO_PROGRAM && needs_precheck(d.slot);
	if (!held) {
		count_flow(d.slot, bytes, p->layers.tcp_flags);
		count_ingress(in_port, bytes);
	}
	if (d.program == NO_PROGRAM)
		return drop_by(d.slot);
	st = state_here();
	if (!st)
		return drop(DROP_UNSUPPORTED);
	state_init(st, in_port);
	state_keep_key(st, key);
	state_keep_layers(st, &p->layers);
	state_begin_program(st, d.program, bytes);
	if (held)
		return precheck_begin(ctx, st, d.slot, p->layers.tcp_flags);
	return tail_call(ctx, TAIL_EXEC);

walk:
	st = state_here();
	if (!st)
		return drop(DROP_UNSUPPORTED);
	state_init(st, in_port);
	st->cache_hash = hash;
	return tail_call(ctx, TAIL_MASK_SCAN);

slow:
	st = state_here();
	if (!st)
		return drop(DROP_UNSUPPORTED);
	state_init(st, in_port);
	if (err == PARSE_ALL)
		return tail_call(ctx, TAIL_RECIRC);
	return lookup_unparsed(ctx, err, 0);
}

/* The kernel would end the program before its end. */
static __always_inline bool lookup_exceeds_tail_calls(const struct state *st, __u32 number)
{
	struct slot_detail *detail = detail_of(number);

	return !detail || detail->instructions + st->calls + CALLS_AFTER_PROGRAM > TAIL_CALLS;
}

/* A packet whose flow is known and whose key and metadata are in `st`. */
static __always_inline int lookup_run(hook_ctx *ctx, struct state *st, struct slot *slot, __u32 number)
{
	__u32 bytes = frame_length(ctx), to = slot->output;
	struct port *port = port_of(to); /* NULL for NO_PORT */
	struct view view = view_of(ctx);

	if (!lookup_runs_here(ctx, slot->hooks, slot->flags))
		return lookup_leave(ctx, st->depth);
	if (to != NO_PORT && !lookup_can_redirect(&view, port))
		return lookup_leave(ctx, st->depth);
	if (slot->program != NO_PROGRAM && !lookup_can_redirect_any(&view))
		return lookup_leave(ctx, st->depth);
	/* What is left of a long way is the daemon's. */
	if (slot->program != NO_PROGRAM && lookup_exceeds_tail_calls(st, number))
		return lookup_leave(ctx, st->depth);
	if (AT_XDP && slot->program != NO_PROGRAM && slot->flags & FLOW_PRECHECK) {
		state_begin_program(st, slot->program, bytes);
		return precheck_begin(ctx, st, number, state_tcp_flags(st));
	}
	deferred_counts_flush(st);
	count_flow(number, bytes, state_tcp_flags(st));
	if (!st->depth)
		count_ingress(st->in_port, bytes);
	if (to != NO_PORT)
		return output_to(ctx, port, to, data_length(ctx));
	if (slot->program == NO_PROGRAM)
		return drop_by(number);
	state_begin_program(st, slot->program, bytes);
	return tail_call(ctx, TAIL_EXEC);
}

/* A packet that is looked up again, or whose headers are rare: by the metadata in `state`. */
static __always_inline int lookup_recirc(hook_ctx *ctx)
{
	struct state *st = state_here();
	struct slot *slot;
	struct mask *mask;
	__u32 number, mask_number;
	int err;

	if (!st)
		return drop(DROP_UNSUPPORTED);
	st->calls++;
	err = parse_all(ctx);
	if (err)
		return lookup_unparsed(ctx, err, st->depth);
	st->cache_hash = cache_hash(st->key);
	number = sigcache_find(st->cache_hash);
	slot = bpf_map_lookup_elem(&slots, &number);
	if (!slot)
		return tail_call(ctx, TAIL_MASK_SCAN);
	mask_number = slot->mask;
	mask = bpf_map_lookup_elem(&masks, &mask_number);
	if (!mask || slot->dead || !lookup_matches(st->key, slot, number, mask))
		return tail_call(ctx, TAIL_MASK_SCAN);
	return lookup_run(ctx, st, slot, number);
}

#endif
