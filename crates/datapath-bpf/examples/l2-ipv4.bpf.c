// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* An example of a user's datapath at the XDP hook: Ethernet and IPv4, one output or drop. Other
 * packets and flows are left to the next hook. docs/user-programs.md describes it. */
#include "user.h"

#include <linux/in.h>

#define L2_WORDS (BIT(W_PORT) | BIT(W_ETH0) | BIT(W_ETH1) | BIT(W_RECIRC))
#define IPV4_WORDS (L2_WORDS | BIT(W_IP4) | NEEDS_L3)

CAPABILITIES(IPV4_WORDS, BIT(OP_OUTPUT) | BIT(OP_DROP));

/* Fills in the words of the key. False: the packet is not for this program. */
static __always_inline bool parse(struct xdp_md *ctx, struct query *q)
{
	struct view v = view_of(ctx);
	void *eth = at(&v, 0, ETH_HLEN), *ip = at(&v, ETH_HLEN, 20);
	__u32 behind = v.length - ETH_HLEN, total;
	__u16 type;

	if (!eth)
		return false;
	type = bpf_ntohs(load16(eth + 12));
	if (type < ETH_P_802_3_MIN || type == ETH_P_8021Q || type == ETH_P_8021AD)
		return false;
	q->key[W_ETH0] = load64(eth);
	q->key[W_ETH1] = PLACE(load32(eth + 8), 4, 0);
	q->key[W_PORT] = PLACE(load16(eth + 12), 2, 2);
	q->known = L2_WORDS;
	if (type != ETH_P_IP)
		return true;
	/* No options, no fragment, no wrong length. */
	if (!ip || load8(ip) != 0x45 || load16(ip + 6) & bpf_htons(0x3fff))
		return false;
	total = bpf_ntohs(load16(ip + 2));
	if (total < 20 || total > behind || behind - total > 0xffff)
		return false;
	q->key[W_IP4] = load64(ip + 12);
	q->key[W_ETH1] |= PLACE(load8(ip + 1), 1, 5) | PLACE(load8(ip + 8), 1, 6) |
			  PLACE(load8(ip + 9), 1, 7);
	q->known = IPV4_WORDS;
	return load8(ip + 9) != IPPROTO_TCP || read_tcp_flags(&v, ETH_HLEN + 20, total - 20, q);
}

SEC("xdp")
int l2_ipv4(struct xdp_md *ctx)
{
	struct query q = {};

	return parse(ctx, &q) && find_flow(ctx, &q) ? run_flow(ctx, &q) : pass();
}

char _license[] SEC("license") = "Dual BSD/GPL";
