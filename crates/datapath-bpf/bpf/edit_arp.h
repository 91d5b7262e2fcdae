/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Edits of ARP and RARP for IPv4 over Ethernet. */
#ifndef SLIPSWITCH_EDIT_ARP_H
#define SLIPSWITCH_EDIT_ARP_H

#include "edit.h"

/* The message, as in RFC 826. */
struct arp {
	__be16 hardware;
	__be16 protocol;
	__be16 lengths;
	__be16 op;
	__u16 sha[3];
	__u16 spa[2];
	__u16 tha[3];
	__u16 tpa[2];
};

/* Indexes of the operands, in 16-bit words: spa+tpa value, mask; sha+tha value, mask. */
enum {
	ARP_SPA = 0,
	ARP_TPA = 2,
	ARP_IP_MASK = 4,
	ARP_SHA = 8,
	ARP_THA = 11,
	ARP_HW_MASK = 8,
};

/**
 * set_arp - Runs OP_SET_ARP.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @op: opcode, host integer
 * @op_mask: mask of the opcode, host integer
 * @operands: as layout.h defines them
 *
 * Return: EDITED, or the reason to drop plus one.
 */
static __always_inline int set_arp(hook_ctx *ctx, const struct state *st, __u16 op, __u16 op_mask,
				   const __u64 *operands)
{
	const __u16 *value = (const __u16 *)operands;
	__be16 type = edit_ethertype(ctx, st);
	struct arp h;

	if (type != bpf_htons(ETH_P_ARP) && type != bpf_htons(ETH_P_RARP))
		return MALFORMED;
	if (edit_load(ctx, st->l3, &h, sizeof(h)) || h.hardware != bpf_htons(1) ||
	    h.protocol != bpf_htons(ETH_P_IP) || h.lengths != bpf_htons(0x0604))
		return MALFORMED;
	h.op = merged(h.op, bpf_htons(op), bpf_htons(op_mask));
	for (int i = 0; i < 2; i++) {
		h.spa[i] = merged(h.spa[i], value[ARP_SPA + i], value[ARP_SPA + ARP_IP_MASK + i]);
		h.tpa[i] = merged(h.tpa[i], value[ARP_TPA + i], value[ARP_TPA + ARP_IP_MASK + i]);
	}
	for (int i = 0; i < 3; i++) {
		h.sha[i] = merged(h.sha[i], value[ARP_SHA + i], value[ARP_SHA + ARP_HW_MASK + i]);
		h.tha[i] = merged(h.tha[i], value[ARP_THA + i], value[ARP_THA + ARP_HW_MASK + i]);
	}
	return edit_store(ctx, st, st->l3, &h, sizeof(h)) ? FAILED : EDITED;
}

#endif
