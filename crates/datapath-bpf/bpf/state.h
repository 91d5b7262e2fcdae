/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state that one packet carries from program to program when it leaves the fast path.
 *
 * A packet may begin in a program of a previous daemon and end in one of ours, so a change of
 * struct state requires a new LAYOUT_VERSION. */
#ifndef SLIPSWITCH_STATE_H
#define SLIPSWITCH_STATE_H

#include "layout.h"

/* Tail calls up to the first lookup, which is twice when headers are made linear in between. */
#define CALLS_TO_LOOKUP 5

#define CT_CACHED 1       /* the packet is of the connection's original direction */
#define CT_CACHED_REPLY 2

struct state {
	__u64 key[WORDS];  /* of the last lookup. The words from W_CT on are the metadata of connection
			    * tracking, and garbage unless `tracked`; those of tunnels before them are
			    * garbage unless `tunnelled` */
	__u32 program;     /* index into programs, and the cell of the next instruction */
	__u32 pc;
	__u32 trunc;       /* bytes of the frame that the next output sends; 0: all */
	__u32 in_port;
	__u32 recirc_id;   /* host integers */
	__u32 dp_hash;
	__u32 mark;
	__u32 priority;
	__u32 cache_hash;  /* key under the union of all masks, for the signature cache */
	__u32 length;      /* bytes of the frame at the last lookup */
	__u16 mpls;        /* offsets of the first MPLS label, of the layer 3 header, and of the */
	__u16 l3;          /* transport header, from the frame's start at this hook. 0: none */
	__u16 l4;
	__u8 depth;        /* recirculations so far */
	__u8 pulled;       /* tc: headers were made linear once */
	__u16 covered;     /* tc: offset from which a checksum of the card covers the frame */
	__u16 calls;       /* upper bound of the tail calls so far */
	union {
		__u16 deferred; /* XDP: flows that are counted once the packet stays: see undo.h */
		__u16 segment;  /* tc: 0: no header was pushed; else the bytes of the longest
				 * segment, or 1 for a packet that is not to be segmented */
	};
	__u8 tracked;      /* the packet has metadata of connection tracking */
	__u8 resumes;      /* tc: the packet goes up with a list of actions that goes on there */
	__u32 flow;        /* number of the flow whose program runs */
	__u32 ct_slot;     /* the connection that an OP_CT found, for the next one in its zone */
	__u16 ct_generation;
	__u16 ct_zone;
	__u8 ct_cached;    /* CT_CACHED*; 0: there is no such connection */
	__u8 chain;        /* connections of the result that is being made, plus one for a packet out of a
			    * tunnel: see chain.h */
	__u16 chain_maker; /* low bits of the generation of the programs that make it */
	__u32 outer_flow;  /* the flow with FLOW_POP, not counted yet, and the ingress port of the outer */
	__u32 outer_port;  /* packet; meaningful while `popping` */
	union {
		struct {
			__u16 base;     /* offset of the frame that is parsed: 0, or while `popping`
					 * that of the inner one */
			__u8 tunnelled; /* the packet came out of a tunnel */
			__u8 no_peer;   /* tc: the packet must not skip a port's device (see
					 * output_enters_peer) */
			__u8 popping;   /* the outer headers are in place, and the packet in them is
					 * looked up */
			__u8 segmented; /* tc: the packet comes out of the segmenter */
			__u8 goes_up;   /* tc: a copy is on its way to the miss device: see up() */
			__u8 bare;      /* the packet has no Ethernet header: see edit_front.h */
		};
		__u64 of_tunnel; /* all of these */
	};
};

/**
 * state_init - Initializes the state of a packet from a port.
 * @st: the state
 * @in_port: ingress port
 */
static __always_inline void state_init(struct state *st, __u32 in_port)
{
	st->in_port = in_port;
	st->recirc_id = 0;
	st->dp_hash = 0;
	st->mark = 0;
	st->priority = 0;
	st->depth = 0;
	st->pulled = 0;
	st->deferred = 0;
	st->tracked = 0;
	st->of_tunnel = 0;
	st->resumes = 0;
	st->ct_cached = 0;
	st->chain = 0;
	st->calls = CALLS_TO_LOOKUP;
}

/**
 * state_begin_program - Sets the state to the beginning of a program.
 * @st: the state
 * @flow: number of the flow
 * @program: index into programs
 * @length: bytes of the frame
 */
static __always_inline void state_begin_program(struct state *st, __u32 flow, __u32 program,
						__u32 length)
{
	st->flow = flow;
	st->program = program;
	st->pc = 0;
	st->trunc = 0;
	st->length = length;
}

#endif
