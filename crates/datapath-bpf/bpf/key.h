/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A key in the making: words as they lie in memory, see layout.h. */
#ifndef SLIPSWITCH_KEY_H
#define SLIPSWITCH_KEY_H

#include "count.h"

/* `value`, as it was loaded from `width` bytes of memory, as bytes `at`.. of a word. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define PLACE(value, width, at) ((__u64)(value) << (8 * (at)))
#else
#define PLACE(value, width, at) ((__u64)(value) << (8 * (8 - (width) - (at))))
#endif

#define BIT(word) (1u << (word))
#define HOT_BITS (BIT(HOT_WORDS) - 1)
#define COLD_BITS ((BIT(WORDS) - 1) & ~HOT_BITS)
#define ND_BITS (BIT(W_ND0) | BIT(W_ND1) | BIT(W_HW0) | BIT(W_HW1) | BIT(W_ND2))

/* True when some flow looks at one of these words. */
static __always_inline bool wants(__u32 bits)
{
	return settings.needs & bits;
}

/* Where layers start, from the frame's start as the hook sees it; 0: not there. */
struct layers {
	__u32 mpls;
	__u32 l3;
	__u32 l4;
	__u32 tcp_flags; /* host integer */
};

/* A test that the verifier decides still leaves two or three instructions behind, which is what
 * writing or comparing a word takes. So hot words are always there; each cold word is tested for,
 * behind one test for all of them. */
#define PUT(key, word, value)                                        \
	do {                                                         \
		if ((word) < HOT_WORDS || wants(BIT(word)))          \
			(key)[word] = (value);                       \
	} while (0)

#define MERGE(key, word, value)                                      \
	do {                                                         \
		if ((word) < HOT_WORDS || wants(BIT(word)))          \
			(key)[word] |= (value);                      \
	} while (0)

#endif
