// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The benchmark's programs at the XDP hook. */
#include "flows.h"
#include "sink.h"

/* Targets of `generate` and `bare`. */
#define WAY_OUT 0
#define WAY_ON 1

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} ways SEC(".maps");

/* The largest number of clock reads. */
#define READS (1 << 16)
/* Nanoseconds by which a frame may be late before the following ones are late, too. */
#define LATE 1000000

struct wait {
	__u64 now;
	__u64 due;
};

static long read_clock(__u32 read, struct wait *wait)
{
	wait->now = bpf_ktime_get_ns();
	return wait->now >= wait->due;
}

/* Waits until the next frame is to leave. */
static __always_inline void await(struct progress *p, __u64 gap)
{
	struct wait wait = { .due = p->due };

	bpf_loop(READS, read_clock, &wait, 0);
	p->due = wait.now > wait.due + LATE ? wait.now + gap : wait.due + gap;
}

/* Makes the frame the next one; XDP_PASS, or the reason why there is none. */
static __always_inline int next_frame(struct xdp_md *ctx)
{
	struct stamped *frame;
	struct progress *p;
	struct control *c;
	__u32 zero = 0;
	void *end;

	c = bpf_map_lookup_elem(&control, &zero);
	p = bpf_map_lookup_elem(&progress, &zero);
	if (!c || !p || c->stop)
		return XDP_DROP;
	if (c->gap)
		await(p, c->gap);
	frame = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (next_flow(c, p, frame, end))
		return XDP_ABORTED;
	if (c->stamp) {
		if ((void *)(frame + 1) > end)
			return XDP_ABORTED;
		frame->stamp = bpf_ktime_get_ns();
	}
	p->sent++;
	return XDP_PASS;
}

/* Runs on live frames: sends them out of a device. */
SEC("xdp")
int generate(struct xdp_md *ctx)
{
	int verdict = next_frame(ctx);

	if (verdict != XDP_PASS)
		return verdict;
	return bpf_redirect_map(&ways, WAY_OUT, 0);
}

/* The least work of a switch. */
SEC("xdp")
int bare(struct xdp_md *ctx)
{
	return bpf_redirect_map(&ways, WAY_ON, 0);
}

/* The least state of a flow: where it goes, and its number of packets. */
struct known {
	__u64 way; /* always 0 */
	__u64 packets;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_FLOWS);
	__type(key, __u32);
	__type(value, struct known);
} known SEC(".maps");

/* The least work of a switch with flows: it reads and counts in the memory of the packet's flow. The
 * flow's number is its index, and nothing is compared. */
SEC("xdp")
int lookup(struct xdp_md *ctx)
{
	struct iphdr *ip = (void *)(long)ctx->data + sizeof(struct ethhdr);
	struct known *flow;
	__u32 number;

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	number = flow_of(ip->saddr);
	flow = bpf_map_lookup_elem(&known, &number);
	if (!flow)
		return XDP_DROP;
	flow->packets++;
	return bpf_redirect_map(&ways, WAY_ON + flow->way, 0);
}

static __always_inline int sink_here(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;

	arrived(data, data_end, data_end - data);
	return XDP_DROP;
}

/* Where traffic ends. */
SEC("xdp")
int sink(struct xdp_md *ctx)
{
	return sink_here(ctx);
}

/* Where traffic ends, too: runs on frames on their way out, before their device takes them. */
SEC("xdp/devmap")
int leave(struct xdp_md *ctx)
{
	return sink_here(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
