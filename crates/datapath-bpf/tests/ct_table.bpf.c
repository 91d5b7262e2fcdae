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
