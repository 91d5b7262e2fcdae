/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet's key while it is assembled. layout.h defines the words, whose bytes lie in memory
 * order. */
#ifndef SLIPSWITCH_KEY_H
#define SLIPSWITCH_KEY_H

#include "count.h"

/**
 * PLACE - Moves a value to its place in a word.
 * @value: as loaded from memory
 * @width: bytes of the value
 * @at: its first byte in the word
 *
 * Return: the word with these bytes set.
 */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define PLACE(value, width, at) ((__u64)(value) << (8 * (at)))
#else
#define PLACE(value, width, at) ((__u64)(value) << (8 * (8 - (width) - (at))))
#endif

/* Bits of words, as in slot_detail.needs, mask.needs and settings.needs. */
#define BIT(word) (1ull << (word))
#define HOT_BITS (BIT(HOT_WORDS) - 1)
#define COLD_BITS ((BIT(PORT_WORDS) - 1) & ~HOT_BITS) /* of words that headers fill in */
#define METADATA_BITS ((BIT(WORDS) - 1) & ~(BIT(PORT_WORDS) - 1)) /* zero in packets from ports */
#define TUNNEL_BITS ((BIT(W_CT) - 1) & ~(BIT(W_TUN0) - 1))
#define CT_BITS ((BIT(WORDS) - 1) & ~(BIT(W_CT) - 1))
#define ND_BITS (BIT(W_ND0) | BIT(W_ND1) | BIT(W_HW0) | BIT(W_HW1) | BIT(W_ND2))

#define NSH_BITS (BIT(W_ND0) | BIT(W_ND1) | BIT(W_ND2)) /* of packets with NSH */

/* Returns true when some flow matches on one of these words. Constant for the verifier. */
static __always_inline bool wants(__u64 bits)
{
	return settings.needs & bits;
}

/* Offsets at which layers begin, from the frame's start at this hook; 0: there is none. */
struct layers {
	__u32 mpls;
	__u32 l3;
	__u32 l4;
	__u32 tcp_flags; /* host integer */
};

/* PUT - Sets a word of a key; MERGE - ORs into it.
 *
 * A test that the verifier decides still leaves two or three instructions in the program, as many
 * as it takes to write or compare a word. So hot words are always written. Each cold word has a
 * test, and one test guards all of them. */
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
