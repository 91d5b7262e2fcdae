/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The declaration of what a user's program at the XDP hook can do. docs/user-programs.md is the
 * contract. */
#ifndef SLIPSWITCH_CAPABILITIES_H
#define SLIPSWITCH_CAPABILITIES_H

#include <bpf/bpf_helpers.h>

#include "layout.h"

struct capabilities {
	__u32 version; /* LAYOUT_VERSION that the program was compiled with */
	__u32 pad;
	__u64 ops;     /* bit OP_x: OP_OUTPUT is slot.output, OP_DROP is slot_detail.reason, OP_END
			* is lists of instructions (slot.program), each of which has its bit */
	__u64 needs;   /* bit W_x: the program compares word W_x, and in each packet that it
			* looks up the word is equal to the daemon's */
};

/**
 * CAPABILITIES - Declares what the program can do; exactly once in an object.
 * @words: struct capabilities.needs
 * @instructions: struct capabilities.ops
 */
#define CAPABILITIES(words, instructions)                                             \
	const volatile struct capabilities capabilities SEC(".rodata.slipswitch") = { \
		.version = LAYOUT_VERSION,                                            \
		.needs = (words),                                                     \
		.ops = (instructions),                                                \
	}

#endif
