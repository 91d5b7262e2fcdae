/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* CRC32c of a message in which few bytes changed. The CRC is linear: its change depends on the
 * changed bytes and on their distance from the end, and on nothing else.
 *
 * Polynomials are modulo 0x11edc6f41, with bits in the order of the CRC: bit 31 is the coefficient
 * of x^0. */
#ifndef SLIPSWITCH_CRC32C_H
#define SLIPSWITCH_CRC32C_H

#include <linux/types.h>

#define CRC32C_POLYNOMIAL 0x82f63b78u

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define le32(word) (word)
#else
#define le32(word) __builtin_bswap32(word)
#endif

/* Entry i is x^(8 * 2^i). */
static const __u32 crc32c_powers[16] = {
	0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c,
	0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7,
	0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a,
	0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
};

/**
 * crc32c_multiply - Returns the product of two polynomials, modulo CRC32C_POLYNOMIAL.
 * @a: one; bit 31 is the coefficient of x^0
 * @b: the other, in the same form
 */
static __always_inline __u32 crc32c_multiply(__u32 a, __u32 b)
{
	__u32 product = 0;

#pragma clang loop unroll(disable)
	for (int i = 0; i < 32; i++) {
		product ^= b & -(a >> 31);
		a <<= 1;
		b = b >> 1 ^ (CRC32C_POLYNOMIAL & -(b & 1));
	}
	return product;
}

/**
 * crc32c_difference - Returns the change of a CRC when the first four bytes change.
 * @difference: old bytes XOR new bytes, as a little-endian number
 * @len: bytes of the message
 *
 * The CRC of four bytes is their product with x^32; the bytes after them multiply it to a total of
 * x^(8 * len). A function of its own: the verifier reads its loops once.
 */
__noinline __u32 crc32c_difference(__u32 difference, __u32 len)
{
	if (!difference)
		return 0;
#pragma clang loop unroll(disable)
	for (int i = 0; i < 16; i++)
		if (len >> i & 1)
			difference = crc32c_multiply(difference, crc32c_powers[i]);
	return difference;
}

#endif
