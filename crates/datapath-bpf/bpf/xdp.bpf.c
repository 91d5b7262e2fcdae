// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The datapath at the XDP hook. */
#include "hook_xdp.h"

#include "entry.h"
#include "lookup.h"
#include "mask_scan.h"
#include "exec.h"
#include "ct.h"
#include "chain_run.h"
#include "tunnel.h"
#include "tunnel_push.h"
#include "tunnel_chain.h"

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
	return lookup_recirc(ctx);
}

SEC("xdp")
int mask_scan_xdp(struct xdp_md *ctx)
{
	return mask_scan(ctx);
}

SEC("xdp")
int precheck_xdp(struct xdp_md *ctx)
{
	return precheck(ctx);
}

SEC("xdp")
int exec_xdp(struct xdp_md *ctx)
{
	return exec(ctx);
}

SEC("xdp")
int ct_xdp(struct xdp_md *ctx)
{
	return ct(ctx);
}

SEC("xdp")
int chain_xdp(struct xdp_md *ctx)
{
	return chain(ctx);
}

SEC("xdp")
int tunnel_xdp(struct xdp_md *ctx)
{
	return tunnel(ctx);
}

SEC("xdp")
int tun_push_xdp(struct xdp_md *ctx)
{
	return push(ctx);
}

SEC("xdp")
int tun_chain_xdp(struct xdp_md *ctx)
{
	return tunnel_chain(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
