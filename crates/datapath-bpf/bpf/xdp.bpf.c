// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The datapath at the XDP hook. */
#include "hook_xdp.h"

#include "entry.h"
#include "lookup.h"
#include "walk.h"
#include "act.h"

SEC("xdp")
int entry_xdp(struct xdp_md *ctx)
{
	return enter(ctx);
}

SEC("xdp")
int lookup_xdp(struct xdp_md *ctx)
{
	return lookup(ctx);
}

SEC("xdp")
int recirc_xdp(struct xdp_md *ctx)
{
	return recirc(ctx);
}

SEC("xdp")
int walk_xdp(struct xdp_md *ctx)
{
	return walk(ctx);
}

SEC("xdp")
int hold_xdp(struct xdp_md *ctx)
{
	return hold(ctx);
}

SEC("xdp")
int act_xdp(struct xdp_md *ctx)
{
	return act(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
