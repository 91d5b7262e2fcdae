/* The benchmark's programs at the XDP hook. */
#include "flows.h"

/* Where `generate` and `bare` redirect to. */
#define WAY_OUT 0
#define WAY_ON 1

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} ways SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

/* Run over live frames: sends them out of a device. */
SEC("xdp")
int generate(struct xdp_md *ctx)
{
	struct control *c = control_here();

	if (!c || c->stop)
		return XDP_DROP;
	if (next_flow(c, (void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return XDP_ABORTED;
	return bpf_redirect_map(&ways, WAY_OUT, 0);
}

/* Run over live frames: they arrive on the device that the context names, behind XDP. */
SEC("xdp")
int arrive(struct xdp_md *ctx)
{
	struct control *c = control_here();

	if (!c || c->stop)
		return XDP_DROP;
	if (next_flow(c, (void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return XDP_ABORTED;
	return XDP_PASS;
}

/* The least that a switch can do. */
SEC("xdp")
int bare(struct xdp_md *ctx)
{
	return bpf_redirect_map(&ways, WAY_ON, 0);
}

/* Where traffic ends. */
SEC("xdp")
int sink(struct xdp_md *ctx)
{
	__u32 zero = 0;
	__u64 *packets = bpf_map_lookup_elem(&seen, &zero);

	if (packets)
		++*packets;
	return XDP_DROP;
}

/* Changes the flow, then runs the subject. */
SEC("xdp")
int touch(struct xdp_md *ctx)
{
	struct control *c = control_here();

	if (!c || touch_flow(c, (void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return XDP_ABORTED;
	bpf_tail_call_static(ctx, &subject, 0);
	return XDP_ABORTED;
}

char _license[] SEC("license") = "Apache-2.0";
