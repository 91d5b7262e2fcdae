/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fields of a tunnel as the kernel's tunnel devices in collect_md mode have them. */
#ifndef SLIPSWITCH_KERNEL_TUNNEL_H
#define SLIPSWITCH_KERNEL_TUNNEL_H

#include "hook_tc.h"

/* `struct bpf_tunnel_key` of Linux 6.1; headers of earlier kernels lack the last fields. Host integers,
 * except IPv6 addresses and flags. */
struct kernel_tunnel_key {
	__u32 id;
	__u32 remote[4]; /* IPv4: the first word */
	__u8 tos;
	__u8 ttl;
	__be16 flags;
	__u32 label;
	__u32 local[4];
};

/* Flags of the helpers for this structure. */
#define KERNEL_IPV6 1
#define KERNEL_FLAGS 16
/* Values of `flags`, include/uapi/linux/if_tunnel.h. */
#define KERNEL_CSUM bpf_htons(0x01)
#define KERNEL_KEY bpf_htons(0x04)
#define KERNEL_OAM bpf_htons(0x0200)
/* The same of `struct vxlan_metadata`, include/net/vxlan.h: policy flags after the 16 bits of the group. */
#define KERNEL_GBP_FLAGS_SHIFT 16

#endif
