/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a key to a flow by the caches, and the action for a packet whose flow is known.
 *
 * Hash: the sum of the words under a mask, each weighted by factors of its own (hash_word), with
 * the high half of the sum mixed in once. In the index the weighted number of the mask is added.
 * Factors are odd, random and secret.
 *
 * Order: the last flow, the exact-match cache, the signature cache (by the hash under the union of
 * all masks), the scan of the masks. An entry of the signature cache is a hint: the key is compared
 * under the mask of the slot. The present variant ignores flows whose words it does not compare;
 * the scan of the masks, which parses everything, decides then.
 */
#ifndef SLIPSWITCH_LOOKUP_H
#define SLIPSWITCH_LOOKUP_H

#include "ingress.h"
#include "emc.h"
#include "undo.h"
#include "tunnel_strip.h"
#include "output.h"
#include "parse.h"
#include "parse_fast.h"
#include "last_flow.h"
#include "chain.h"
#include "bond.h"
#include "push_fast.h"

#define PULL_BYTES 512 /* tc: bytes of a packet that are made linear for its headers */

/* The kernel ends a packet's program at its 34th tail call (MAX_TAIL_CALL_CNT). */
#define TAIL_CALLS 33
/* Tail calls after a program: to a new lookup, twice, to the scan of the masks, and to the miss. */
#define CALLS_AFTER_PROGRAM 5

/* Expand `f` for each word of a group. */
#define HOT_EACH(f) EMC_EACH(f) f(W_RECIRC)
#define COLD_EACH(f)                                                                      \
	f(W_META) f(W_REST) f(W_MPLS0) f(W_MPLS1) f(W_SRC0) f(W_SRC1) f(W_DST0) f(W_DST1) \
		f(W_ND0) f(W_ND1) f(W_HW0) f(W_HW1) f(W_ND2)
#define TUNNEL_EACH(f)                                                                    \
	f(W_TUN0) f(W_TUN1) f(W_TIP4) f(W_TSRC0) f(W_TSRC1) f(W_TDST0) f(W_TDST1) f(W_OPT0) \
		f(W_OPT1) f(W_OPT2) f(W_OPT3)
#define CT_EACH(f)                                                                        \
	f(W_CT) f(W_CT_LABEL0) f(W_CT_LABEL1) f(W_CT_IP4) f(W_CT_TP) f(W_CT_SRC0) f(W_CT_SRC1) \
		f(W_CT_DST0) f(W_CT_DST1)

#define UNION_WORD(x) sum += hash_word(x, key[x] & settings.union_mask[x]);
#define UNION_COLD(x)      \
	if (wants(BIT(x))) \
		UNION_WORD(x)

/**
 * cache_hash_of_port - Returns the signature cache's hash of a packet from a port.
 * @sum: sum of the words before W_RECIRC, which is zero in packets from ports
 * @key: the packet's key
 */
static __always_inline __u32 cache_hash_of_port(__u64 sum, const __u64 *key)
{
	if (wants(COLD_BITS)) {
		COLD_EACH(UNION_COLD)
	}
	return finish_hash(sum);
}

/**
 * cache_hash - Returns the signature cache's hash of a key in the state.
 * @st: the state
 *
 * Words that are zero, as those of connections in packets that are not tracked, add nothing.
 */
static __always_inline __u32 cache_hash(const struct state *st)
{
	const __u64 *key = st->key;
	__u64 sum = 0;

	HOT_EACH(UNION_WORD)
	if (st->tunnelled) {
		TUNNEL_EACH(UNION_WORD)
	}
	if (st->tracked) {
		CT_EACH(UNION_WORD)
	}
	return cache_hash_of_port(sum, key);
}

/* Returns the line of a hash; NULL only if the maps are smaller than they state. */
static __always_inline struct cache_line *sigcache_line(__u32 hash)
{
	__u32 line = hash & config_here()->cache_mask;

	return bpf_map_lookup_elem(&cache, &line);
}

/**
 * sigcache_find - Looks a hash up in the signature cache.
 * @hash: of the packet's key under the union of all masks
 *
 * Return: the slot of the first entry with this hash, or NO_SLOT. The caller compares the slot.
 */
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
	/* A free entry is 0, which becomes NO_SLOT. */
	return (__u32)found - 1;
}

#define DIFFERENCE(x) diff |= (key[x] ^ slot->hot[x]) & mask->words[x];
#define DIFFERENCE_COLD(x)                                                  \
	if (wants(BIT(x)))                                                  \
		diff |= (key[x] ^ detail->cold[x - HOT_WORDS]) & mask->words[x];

/**
 * lookup_matches - Compares a key with a flow, by the words that packets from ports have.
 * @key: the packet's key
 * @slot: the flow
 * @number: its number
 * @mask: its mask
 *
 * Return: true when the packet belongs to the flow.
 */
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

#define DIFFERENCE_METADATA(x) diff |= (key[x] ^ detail->cold[x - HOT_WORDS]) & mask->words[x];

/* Does lookup_matches() for a key in the state, by all words. */
static __always_inline bool lookup_matches_all(const __u64 *key, const struct slot *slot,
					       __u32 number, const struct mask *mask)
{
	struct slot_detail *detail;
	__u64 diff = 0;

	if (!lookup_matches(key, slot, number, mask))
		return false;
	if (mask->needs & METADATA_BITS) {
		detail = detail_of(number);
		if (!detail)
			return false;
		if (mask->needs & TUNNEL_BITS) {
			TUNNEL_EACH(DIFFERENCE_METADATA)
		}
		if (mask->needs & CT_BITS) {
			CT_EACH(DIFFERENCE_METADATA)
		}
	}
	return !diff;
}

/* Keeps the offsets of layers in the state. */
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

/* Keeps a key in the state, those words that some flow matches on. */
static __always_inline void state_keep_key(struct state *st, const __u64 *key)
{
	HOT_EACH(KEEP_WORD)
	if (wants(COLD_BITS)) {
		COLD_EACH(KEEP_COLD)
	}
}

/**
 * lookup_leave - Leaves a packet whose flow cannot run at this hook.
 * @ctx: the packet; pointers into it become invalid
 * @depth: recirculations so far
 *
 * Return: the verdict. At XDP the packet goes to the next hook as it arrived, at tc to the daemon.
 */
static __always_inline int lookup_leave(hook_ctx *ctx, __u32 depth)
{
#if AT_XDP
	/* The next hook starts again with the frame as it arrived. */
	if (depth && undo_restore(ctx))
		return drop(DROP_UNSUPPORTED);
	COUNT(passed);
	return VERDICT_NONE;
#else
	return tail_call(ctx, TAIL_MISS);
#endif
}

/* Leaves a packet whose metadata is in the state: as it arrived, while the outer headers of a tunnel are
 * in place. */
static __always_inline int lookup_leave_state(hook_ctx *ctx, struct state *st)
{
	tunnel_forget(st);
	return lookup_leave(ctx, st->depth);
}

/* Returns true when the daemon accepts no misses of this port now. */
static __always_inline bool port_is_closed(const struct port *port)
{
	return *(volatile __u64 *)&port->closed_until > bpf_ktime_get_coarse_ns();
}

/**
 * lookup_runs_here - Checks whether a packet can run its flow at this hook.
 * @ctx: the packet
 * @hooks: hooks of the slot
 * @flags: flags of the slot
 */
static __always_inline bool lookup_runs_here(hook_ctx *ctx, __u32 hooks, __u32 flags)
{
	if (!(hooks & HOOK))
		return false;
	return AT_XDP || !(flags & FLOW_NO_GSO) || !is_gso(ctx);
}

/**
 * lookup_can_redirect_any - Checks whether this hook can send a packet to every port.
 * @v: the packet's bytes
 *
 * A program may send to any port.
 */
static __always_inline bool lookup_can_redirect_any(const struct view *v)
{
#if AT_XDP
	return v->whole || !config_here()->whole_only;
#else
	return true;
#endif
}

/**
 * lookup_unparsed - Continues with a packet that was not parsed.
 * @ctx: the packet
 * @why: enum parse: a header is out of reach, or there are too many
 * @st: its state
 *
 * Headers are made linear once. If that is not enough, the packet is for the daemon.
 *
 * Return: the verdict.
 */
static __always_inline int lookup_unparsed(hook_ctx *ctx, int why, struct state *st)
{
#if !AT_XDP
	__u64 reach = data_end_of(ctx) - data_of(ctx);

	if (why == PARSE_PULL && reach < PULL_BYTES && reach < ctx->len)
		return tail_call(ctx, TAIL_PULL);
#endif
	return lookup_leave_state(ctx, st);
}

/* The fast path's view of a packet. */
struct packet {
	__u64 key[PORT_WORDS];
	struct layers layers;
};

/* The action for the packets of a flow; fields as in struct slot. */
struct decision {
	__u32 slot;
	__u32 output, program;
	__u32 hooks, flags;
};

/**
 * lookup_decide_by - Decides by a slot.
 * @d: becomes the decision
 * @number: number of the slot
 * @slot: the slot
 */
static __always_inline void lookup_decide_by(struct decision *d, __u32 number,
					     const struct slot *slot)
{
	d->slot = number;
	d->output = slot->output;
	d->program = slot->program;
	d->hooks = slot->hooks;
	d->flags = slot->flags;
}

/**
 * lookup_decide_at_once - Decides by an entry of the exact-match cache.
 * @d: becomes the decision
 * @e: the entry
 *
 * Return: false when the masks have to be scanned.
 */
static __always_inline bool lookup_decide_at_once(struct decision *d, const struct emc_entry *e)
{
	__u32 number = emc_slot(e);
	struct slot *slot;

	d->slot = number;
	d->output = emc_output(e);
	d->program = NO_PROGRAM;
	d->hooks = emc_hooks(e);
	d->flags = 0;
	if (d->output != NO_PORT)
		return true;
	slot = bpf_map_lookup_elem(&slots, &number);
	if (!slot)
		return false;
	lookup_decide_by(d, number, slot);
	return true;
}

/**
 * lookup_decide - Decides by the signature cache, and puts the flow into the exact-match cache.
 * @key: the packet's key
 * @k: the same for the exact-match cache
 * @hash: the same for the signature cache
 * @d: becomes the decision
 *
 * Return: false when the masks have to be scanned.
 */
static __always_inline bool lookup_decide(const __u64 *key, const struct emc_key *k, __u32 hash,
					  struct decision *d)
{
	__u32 number = sigcache_find(hash), mask_number;
	__u32 tag = emc_tag(number), after = tag;
	struct slot *slot;
	struct mask *mask;

	/* Zero, but computed from the epoch: the CPU loads the slot after the epoch (emc.h). The
	 * assembler keeps the compiler from seeing that it is zero. */
	asm volatile("%0 ^= %0" : "+r"(after));
	number += after;
	slot = bpf_map_lookup_elem(&slots, &number);
	if (!slot)
		return false;
	mask_number = slot->mask;
	mask = bpf_map_lookup_elem(&masks, &mask_number);
	if (!mask || slot->dead || slot->flags & FLOW_METADATA ||
	    mask->needs & ~(settings.needs | METADATA_BITS) ||
	    !lookup_matches(key, slot, number, mask))
		return false;
	lookup_decide_by(d, number, slot);
	if (emc_may_remember(mask))
		emc_remember(k, slot, number, tag);
	return true;
}

/**
 * lookup_forward - Sends a packet from a port by a flow whose action is one output.
 * @ctx: the packet
 * @v: its bytes
 * @in_port: ingress port
 * @e: the flow's entry in the exact-match cache, or NULL
 * @slot: number of the flow, where there is no entry
 * @output: number of the port to send to
 * @bytes: of the frame
 * @tcp_flags: host integer; 0 when the packet is not TCP
 *
 * Return: the verdict, or NOT_HERE, and nothing is done, when this hook cannot send there.
 */
static __always_inline int lookup_forward(hook_ctx *ctx, const struct view *v, __u32 in_port,
					  struct emc_entry *e, __u32 slot, __u32 output,
					  __u32 bytes, __u32 tcp_flags)
{
	struct port *port = port_of(output);

	if (!output_can_redirect(v, port))
		return NOT_HERE;
	if (e)
		emc_count(e, bytes, tcp_flags);
	else
		count_flow(slot, bytes, tcp_flags);
	count_ingress(in_port, bytes);
	return output_to(ctx, port, output, in_port, v->length, ETH_HLEN);
}

/* Returns the flags of a slot that runs at this hook; of others none. */
static __always_inline __u32 lookup_flags(__u32 number)
{
	struct slot *slot = bpf_map_lookup_elem(&slots, &number);

	return slot && slot->hooks & HOOK ? slot->flags : 0;
}

/**
 * lookup_fast - Handles a packet of the common shape if its flow is cached with one output.
 * @ctx: the packet
 * @in_port: ingress port
 *
 * Return: the verdict, or NOT_HERE.
 */
static __always_inline int lookup_fast(hook_ctx *ctx, __u32 in_port)
{
	const struct view v = { data_of(ctx), data_end_of(ctx), linear_length(ctx), true };
	struct last_flow *train = last_flow_here(); /* calls a helper: before registers are in use */
	struct emc_entry *e;
	__u64 words[EMC_WORDS];
	__u32 tcp_flags, output;

	if (!parse_fast(ctx, &v, in_port, words, &tcp_flags))
		return NOT_HERE;
	e = last_flow_or_emc_find(train, words);
	if (!e)
		return NOT_HERE;
	output = emc_output(e);
	if (output == NO_PORT) {
		__u32 flags = lookup_flags(emc_slot(e));

		if (flags & FLOW_CHAIN)
			bpf_tail_call_static(ctx, &tails, TAIL_CHAIN);
		else if (settings.features & FEATURE_TUNNEL && flags & FLOW_POP)
			return tunnel_enter(ctx, in_port, emc_slot(e));
		else if (settings.features & FEATURE_BOND && flags & FLOW_BOND)
			return bond_send(ctx, in_port, emc_slot(e), tcp_flags);
		else if (settings.features & FEATURE_PUSH && flags & FLOW_CHAIN_END &&
			 !push_aim(ctx, in_port, emc_slot(e), tcp_flags))
			return tail_call(ctx, TAIL_TUN_PUSH);
		return NOT_HERE; /* or the kernel refused the program for chains */
	}
	if (!(emc_hooks(e) & HOOK))
		return NOT_HERE;
	/* The whole frame is in memory: parse_fast() refuses tags outside of it. */
	return lookup_forward(ctx, &v, in_port, e, 0, output, v.length, tcp_flags);
}

/* Returns true when the slot, which has a program, has FLOW_PRECHECK. The slot is read for this
 * alone: if the fast path carried the flag along, every packet would pay for it. */
static __always_inline bool needs_precheck(__u32 number)
{
#if AT_XDP
	struct slot *slot = bpf_map_lookup_elem(&slots, &number);

	return slot && slot->flags & FLOW_PRECHECK;
#else
	return false;
#endif
}

/**
 * ingress_refused - Leaves a packet for which ingress_port() returned no port.
 * @ctx: the packet
 * @in_port: NO_PORT or PORT_POLICED
 *
 * Return: the verdict.
 */
static __always_inline int ingress_refused(hook_ctx *ctx, __u32 in_port)
{
#if !AT_XDP
	if (in_port == PORT_POLICED)
		return tail_call(ctx, TAIL_POLICE);
#endif
	return VERDICT_NONE;
}

/**
 * lookup - The program in TAIL_LOOKUP: looks up a packet from a port.
 * @ctx: the packet
 *
 * Return: the verdict.
 */
static __always_inline int lookup(hook_ctx *ctx)
{
	__u32 in_port = ingress_port(ctx);
	struct view view;
	struct packet packet;
	struct packet *p = &packet;
	struct emc_key emc_key;
	struct decision d;
	struct state *st;
	struct emc_entry *e;
	__u64 words[EMC_WORDS], *key, sum;
	__u32 hash, bytes, at;
	bool held;
	int err, verdict;

	if (in_port >= PORT_POLICED)
		return ingress_refused(ctx, in_port);
	verdict = lookup_fast(ctx, in_port);
	if (verdict != NOT_HERE)
		return verdict;
	view = view_of(ctx);
	/* Keeps the packet in memory. The compiler would split it into variables, and assemble it again
	 * at each branch of the parser. */
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
	e = emc_find(&emc_key, &at);
	if (!(e ? lookup_decide_at_once(&d, e) : lookup_decide(key, &emc_key, hash, &d)))
		goto walk;
	/* With an entry, the fast path has tried that. */
	if (!e && d.flags & FLOW_CHAIN && d.hooks & HOOK) {
		bpf_tail_call_static(ctx, &tails, TAIL_CHAIN);
		/* The kernel refused that program. Since Linux 6.14 pointers into the packet become
		 * invalid. */
		view = view_of(ctx);
	}
	if (!lookup_runs_here(ctx, d.hooks, d.flags))
		goto slow;
	bytes = view.length + tag_length(ctx);
	if (d.output != NO_PORT) {
		verdict = lookup_forward(ctx, &view, in_port, e, d.slot, d.output, bytes,
				  p->layers.tcp_flags);
		if (verdict == NOT_HERE)
			goto slow;
		return verdict;
	}
	if (d.flags & FLOW_POP) {
		if (settings.features & FEATURE_TUNNEL)
			return tunnel_enter(ctx, in_port, d.slot);
		goto walk;
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
	state_begin_program(st, d.slot, d.program, bytes);
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
	return lookup_unparsed(ctx, err, st);
}

/* Returns true when the kernel would end the flow's program before its end. */
static __always_inline bool lookup_exceeds_tail_calls(const struct state *st, __u32 number)
{
	struct slot_detail *detail = detail_of(number);

	return !detail || detail->instructions + st->calls + CALLS_AFTER_PROGRAM > TAIL_CALLS;
}

/* Returns the offset of the kernel's network header; 0 when that is of no use to the receiver. */
static __always_inline __u32 state_network(const struct state *st)
{
	if (st->no_peer)
		return 0;
	return st->depth ? st->covered : ETH_HLEN;
}

/**
 * lookup_run - Runs the flow of a packet whose key and metadata are in the state.
 * @ctx: the packet
 * @st: its state
 * @slot: the flow
 * @number: its number
 *
 * Return: the verdict.
 */
static __always_inline int lookup_run(hook_ctx *ctx, struct state *st, struct slot *slot,
				      __u32 number)
{
	__u32 bytes, to = slot->output;
	struct port *port = port_of(to); /* NULL for NO_PORT */
	struct view view = view_of(ctx);

	if (!lookup_runs_here(ctx, slot->hooks, slot->flags))
		return lookup_leave_state(ctx, st);
	if (to != NO_PORT && !output_can_redirect(&view, port))
		return lookup_leave_state(ctx, st);
	if (slot->program != NO_PROGRAM && !lookup_can_redirect_any(&view))
		return lookup_leave_state(ctx, st);
	/* The daemon takes over a packet that needs too many tail calls. */
	if (slot->program != NO_PROGRAM && lookup_exceeds_tail_calls(st, number))
		return lookup_leave_state(ctx, st);
	if (slot->flags & FLOW_POP) {
		/* Tunnels in tunnels are for the daemon, and packets that were changed before. */
		if (st->popping || st->depth)
			return lookup_leave_state(ctx, st);
		return tunnel_enter(ctx, st->in_port, number);
	}
	bytes = packet_length(ctx, st);
	if (st->popping) {
		if (tunnel_strip(ctx, slot->flags & FLOW_PRECHECK, bytes))
			return lookup_leave_state(ctx, st);
		bytes = frame_length(ctx);
		/* As much as the depth: the chain begins here. */
		st->chain = slot->flags & FLOW_CHAIN ? 1 : 0;
	}
	if (AT_XDP && slot->program != NO_PROGRAM && slot->flags & FLOW_PRECHECK) {
		state_begin_program(st, number, slot->program, bytes);
		return precheck_begin(ctx, st, number, state_tcp_flags(st));
	}
	if (to != NO_PORT)
		chain_end(ctx, st, number, to);
	deferred_counts_flush(st);
	count_flow(number, bytes, state_tcp_flags(st));
	if (!st->depth)
		count_ingress(st->in_port, bytes);
	if (to != NO_PORT) {
		if (st->bare)
			return drop(DROP_MALFORMED);
		if (!output_fits_segments(st, to))
			return VERDICT_DROP;
		return output_to(ctx, port, to, st->in_port, data_length(ctx),
				 state_network(st));
	}
	if (slot->program == NO_PROGRAM)
		return drop_by(number);
	state_begin_program(st, number, slot->program, bytes);
	return tail_call(ctx, TAIL_EXEC);
}

/**
 * lookup_resume - Begins a program that looks up a packet whose metadata is in the state.
 * @ctx: the packet
 * @verdict: set when the result is NULL
 *
 * The tail call is counted, and everything is parsed into the state.
 *
 * Return: the state, or NULL when the packet ends with @verdict.
 */
static __always_inline struct state *lookup_resume(hook_ctx *ctx, int *verdict)
{
	struct state *st = state_here();
	int err;

	if (!st) {
		*verdict = drop(DROP_UNSUPPORTED);
		return 0;
	}
	st->calls++;
	err = parse_all(ctx);
	if (!err)
		return st;
	*verdict = lookup_unparsed(ctx, err, st);
	return 0;
}

/**
 * lookup_confirmed - Returns a slot that the signature cache names, if the packet matches it.
 * @st: the packet's state; everything is parsed
 * @number: number of the slot
 * @mask: becomes the slot's mask
 *
 * Return: the slot, or NULL when the masks have to be scanned.
 */
static __always_inline struct slot *lookup_confirmed(const struct state *st, __u32 number,
						     struct mask **mask)
{
	struct slot *slot = bpf_map_lookup_elem(&slots, &number);
	__u32 mask_number;

	if (!slot)
		return 0;
	mask_number = slot->mask;
	*mask = bpf_map_lookup_elem(&masks, &mask_number);
	if (!*mask || slot->dead || !lookup_matches_all(st->key, slot, number, *mask))
		return 0;
	return slot;
}

/**
 * lookup_recirc - The program in TAIL_RECIRC: looks a packet up again, or one with rare headers.
 * @ctx: the packet, whose metadata is in the state
 *
 * Return: the verdict.
 */
static __always_inline int lookup_recirc(hook_ctx *ctx)
{
	struct state *st;
	struct slot *slot;
	struct mask *mask;
	__u32 number;
	int verdict;

	st = lookup_resume(ctx, &verdict);
	if (!st)
		return verdict;
	st->cache_hash = cache_hash(st);
	number = sigcache_find(st->cache_hash);
	slot = lookup_confirmed(st, number, &mask);
	if (!slot)
		return tail_call(ctx, TAIL_MASK_SCAN);
	return lookup_run(ctx, st, slot, number);
}

#endif
