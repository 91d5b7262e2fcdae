// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The functions of bpf/ct_table.h and bpf/ct_creation.h for tests, run by BPF_PROG_RUN. A request
 * is the packet, and the answer is written into it. */
#include "ct_creation.h"

char _license[] SEC("license") = "Dual BSD/GPL";

enum op {
	OP_FIND,
	OP_CREATE,
	OP_REFRESH, /* with the flags and the timeout of `new` */
	OP_KILL,
	OP_MARK,    /* sets `mark` of `new` under `arg` */
	OP_EXCHANGE /* replaces CT_CONN_CONTROL: `control` of `new` by `arg` */
};

struct request {
	__u32 op;
	__u32 result;
	__u64 arg;
	struct ct_new new; /* `original` is the tuple of a lookup */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct request);
} requests SEC(".maps");

static __always_inline __u32 answer(struct request *r)
{
	struct ct_found *found = &r->new.made;
	struct ct_conn *c;

	if (r->op == OP_CREATE)
		return ct_create(&r->new);
	if (!ct_find(&r->new.original, r->new.now, found))
		return 0;
	c = ct_conn_at(found->slot);
	if (!c)
		return 0;
	if (r->op == OP_REFRESH)
		ct_touch(found, r->new.flags, r->new.timeout, r->new.now);
	if (r->op == OP_KILL)
		return ct_kill(c, found->head);
	if (r->op == OP_MARK)
		ct_change(&c->words[CT_CONN_MARK], r->new.mark, r->arg);
	if (r->op == OP_EXCHANGE)
		return ct_exchange(&c->words[CT_CONN_CONTROL], r->new.control, r->arg);
	return 1;
}

SEC("xdp")
int table(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct request *r = bpf_map_lookup_elem(&requests, &zero);

	if (!r || data + sizeof(*r) > end)
		return XDP_ABORTED;
	*r = *(struct request *)data;
	r->result = answer(r);
	*(struct request *)data = *r;
	return XDP_PASS;
}

/* A program that makes, finds, refreshes and ends connections of few tuples, at random. */
struct hammer {
	__u32 now;
	__u32 clients;
	__u32 ports;   /* that NAT has for all clients */
	__u32 pad;
	__u64 made;
	__u64 found;
	__u64 wrong;   /* connections without the tuple that was looked up */
	__u64 duplicates;
};

/**
 * owners - Counts the live owners of a tuple apart from one that was found.
 * @t: the tuple
 * @found: the one
 * @now: the present tick
 */
__noinline int owners(const struct ct_tuple *t, const struct ct_found *found, __u32 now)
{
	struct ct_config *config = ct_config_here();
	struct ct_conn *mine, *c;
	struct ct_key key;
	__u64 indexes;
	int count = 0;

	if (!t || !found || !config)
		return 0;
	mine = ct_conn_at(found->slot);
	if (!mine)
		return 0;
	ct_key_of(&key, t, config);
	indexes = ct_load(config->words[CT_CONFIG_INDEX]);
#pragma clang loop unroll(disable)
	for (__u32 turn = 0; turn < 4; turn++) {
		struct ct_bucket *b = ct_bucket_of(indexes, key.hash, turn);

		if (!b)
			continue;
#pragma clang loop unroll(disable)
		for (int i = 0; i < CT_PLACES; i++) {
			__u64 head, again, other;
			__u32 slot;

			c = ct_candidate(b, i, key.hash, &slot);
			if (!c || slot == found->slot)
				continue;
			head = ct_load(c->words[CT_CONN_HEAD]);
			if (!ct_is_live(head, now) || ct_direction(c, slot, head, t, &key) > 1)
				continue;
			/* Both were live at one moment: the one before and after the other. */
			again = ct_load(mine->words[CT_CONN_HEAD]);
			other = ct_load(c->words[CT_CONN_HEAD]);
			if ((again ^ found->head) << 16 >> 48 || !ct_is_live(again, now) || other != head)
				continue;
			count++;
		}
	}
	return count;
}

/* Makes the tuple of a client, or of the NAT address itself. */
static __always_inline void client_tuple(struct ct_tuple *t, __u32 client)
{
	__builtin_memset(t, 0, sizeof(*t));
	t->src[1] = client;
	t->dst[1] = 2;
	t->sport = 10;
	t->dport = 20;
	t->zone = 1;
	t->proto = 17;
}

__noinline int strike(struct hammer *h, struct ct_new *n)
{
	__u32 random = bpf_get_prandom_u32();
	struct ct_tuple original;
	struct ct_conn *c;

	if (!h || !n)
		return 0;
	__builtin_memset(n, 0, sizeof(*n));
	/* The NAT address, 9, may be a client, too. */
	client_tuple(&n->original, random & 1 ? 100 + (random >> 1) % (h->clients | 1) : 9);
	n->now = h->now;
	if (!(random & 1))
		n->original.sport = (random >> 1) % (h->ports | 1) + 1;
	if (ct_find(&n->original, h->now, &n->made)) {
		h->found++;
		c = ct_conn_at(n->made.slot);
		if (!c)
			return 0;
		ct_original(&original, c, n->made.head);
		if (n->made.reply)
			ct_reply(&original, c, n->made.head);
		if (!ct_same(&original, &n->original))
			h->wrong++;
		h->duplicates += owners(&n->original, &n->made, h->now);
		if ((random >> 8) % 4 == 0)
			ct_refresh(n->made.slot, n->made.head, 0, h->now + 9);
		else if ((random >> 8) % 8 == 1)
			ct_kill(c, n->made.head);
		return 0;
	}
	ct_reverse(&n->reply, &n->original);
	n->timeout = 5 + (random >> 8) % 8;
	if (random & 1) {
		n->flags = CT_NAT_SRC;
		n->reply.dst[1] = 9;
		n->reply.dport = (random >> 16) % (h->ports | 1) + 1;
	}
	if (ct_create(n) == CT_MADE)
		h->made++;
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ct_new);
} scratch SEC(".maps");

SEC("xdp")
int hammer(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct ct_new *n = bpf_map_lookup_elem(&scratch, &zero);
	struct hammer h;

	if (!n || data + sizeof(h) > end)
		return XDP_ABORTED;
	h = *(struct hammer *)data;
	strike(&h, n);
	*(struct hammer *)data = h;
	return XDP_PASS;
}
