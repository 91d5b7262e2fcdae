// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The datapath at the tc hook. */
#include "hook_tc.h"

#include "entry.h"
#include "lookup.h"
#include "mask_scan.h"
#include "miss.h"
#include "police.h"
#include "exec.h"
#include "ct_move.h"
#include "chain_run.h"
#include "tunnel.h"
#include "tunnel_helper.h"
#include "tunnel_push.h"
#include "segmenter.h"
#include "tunnel_chain.h"
#include "underlay.h"

SEC("tc")
int entry_tc_ingress(struct __sk_buff *ctx)
{
	return enter(ctx);
}

/* Devices of the host: the packets of tunnels. */
SEC("tc")
int entry_tc_underlay(struct __sk_buff *ctx)
{
	return underlay_takes(ctx) ? enter(ctx) : VERDICT_NONE;
}

/* Internal and tap ports: packets that the host's stack sends. */
SEC("tc")
int entry_tc_egress(struct __sk_buff *ctx)
{
	return enter(ctx);
}

/* Tunnel devices of the kernel. Nothing that comes out of them reaches the host's stack. */
SEC("tc")
int entry_tc_helper(struct __sk_buff *ctx)
{
	return helper_return(ctx);
}

/* The egress of the segmenter: segments of packets that left for it. */
SEC("tc")
int entry_tc_segment(struct __sk_buff *ctx)
{
	return segmenter_return(ctx);
}

/* The miss device: copies that go up. */
SEC("tc")
int entry_tc_up(struct __sk_buff *ctx)
{
	return up(ctx);
}

SEC("tc")
int police_tc(struct __sk_buff *ctx)
{
	return police(ctx);
}

SEC("tc")
int lookup_tc(struct __sk_buff *ctx)
{
	return lookup(ctx);
}

SEC("tc")
int recirc_tc(struct __sk_buff *ctx)
{
	return lookup_recirc(ctx);
}

SEC("tc")
int mask_scan_tc(struct __sk_buff *ctx)
{
	return mask_scan(ctx);
}

SEC("tc")
int exec_tc(struct __sk_buff *ctx)
{
	return exec(ctx);
}

SEC("tc")
int ct_tc(struct __sk_buff *ctx)
{
	return ct(ctx);
}

SEC("tc")
int ct_move_tc(struct __sk_buff *ctx)
{
	return ct_move(ctx);
}

SEC("tc")
int chain_tc(struct __sk_buff *ctx)
{
	return chain(ctx);
}

SEC("tc")
int tunnel_tc(struct __sk_buff *ctx)
{
	return tunnel(ctx);
}

SEC("tc")
int tun_push_tc(struct __sk_buff *ctx)
{
	return push(ctx);
}

SEC("tc")
int tun_chain_tc(struct __sk_buff *ctx)
{
	return tunnel_chain(ctx);
}

SEC("tc")
int pull_tc(struct __sk_buff *ctx)
{
	return miss_pull(ctx);
}

SEC("tc")
int miss_tc(struct __sk_buff *ctx)
{
	return miss(ctx);
}

/* Attached to the packet sockets of the daemon, not to the tc hook. */
SEC("socket")
int filter_socket(struct __sk_buff *ctx)
{
	return ingress_filter(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
