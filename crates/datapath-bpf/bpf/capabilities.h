/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a user's program for the XDP hook can do: docs/user-programs.md is the contract. */
#ifndef SLIPSWITCH_CAPABILITIES_H
#define SLIPSWITCH_CAPABILITIES_H

#include <bpf/bpf_helpers.h>

#include "layout.h"

struct capabilities {
	__u32 version; /* LAYOUT_VERSION that the program was built with */
	__u32 needs;   /* bit W_x: the program compares word W_x; of packets that it looks up
			* the word is as the daemon's parse has it */
	__u32 ops;     /* bit OP_x: OP_OUTPUT is slot.output, OP_DROP is slot.reason, OP_END says that
			* lists are run (slot.program), in which each instruction has its bit */
	__u32 pad;     /* 0 */
};

/* To be said once in an object. Both are bits, as above. */
#define CAPABILITIES(words, instructions)                                             \
	const volatile struct capabilities capabilities SEC(".rodata.slipswitch") = { \
		.version = LAYOUT_VERSION,                                            \
		.needs = (words),                                                     \
		.ops = (instructions),                                                \
	}

#endif
