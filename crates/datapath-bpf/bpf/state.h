/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What one packet carries from program to program, where it is not in the fast path. Programs of a
 * former daemon may begin a packet that ours end: a change here is a new LAYOUT_VERSION. */
#ifndef SLIPSWITCH_STATE_H
#define SLIPSWITCH_STATE_H

#include "layout.h"

struct state {
	__u64 key[WORDS];  /* as of the last lookup */
	__u32 program;     /* actions that run, and where they are */
	__u32 pc;
	__u32 trunc;       /* bytes of the next output; 0: all */
	__u32 in_port;
	__u32 recirc_id;   /* host integers */
	__u32 dp_hash;
	__u32 mark;
	__u32 priority;
	__u32 cache_hash;  /* hash that the walk fills the cache under */
	__u32 length;      /* bytes of the frame */
	__u16 mpls;        /* offset of the first label, of the layer behind, of the transport */
	__u16 l3;          /* header; from the frame's start as this hook sees it. 0: none */
	__u16 l4;
	__u8 depth;        /* recirculations so far */
	__u8 pulled;       /* tc: headers were made linear once */
	__u16 covered;     /* tc: from where on a checksum that the card computed covers the frame */
	__u16 calls;       /* tail calls so far, or more */
	__u16 pending;     /* XDP: flows that are counted when the packet is kept: see hold.h */
	__u16 pad;
};

#endif
