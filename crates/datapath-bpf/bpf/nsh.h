/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The layout of the Network Service Header (RFC 8300, section 2). Its first 16 bits have, from the
 * top, the version (2 bits), flags (2), TTL (6) and the length in words of 4 bytes (6). */
#ifndef SLIPSWITCH_NSH_H
#define SLIPSWITCH_NSH_H

#include <linux/if_ether.h>
#include <linux/types.h>

#define NSH_BASE 8      /* bytes before the contexts */
#define NSH_CONTEXTS 1  /* metadata type: four contexts of 4 bytes */
#define NSH_VARIABLE 2  /* metadata type: contexts of variable length */
#define NSH_NEXT_AT 3   /* offset of the protocol of the packet below the header */
#define NSH_PUSHED 64   /* bytes of the longest header that is pushed */

/* The protocol of the packet below the header. */
#define NSH_NEXT_IPV4 1
#define NSH_NEXT_IPV6 2
#define NSH_NEXT_ETHERNET 3
#define NSH_NEXT_NSH 4

/* These return parts of the first 16 bits, a host integer. */
static __always_inline __u32 nsh_flags(__u32 first)
{
	return first >> 12 & 3;
}

static __always_inline __u32 nsh_ttl(__u32 first)
{
	return first >> 6 & 0x3f;
}

static __always_inline __u32 nsh_bytes(__u32 first)
{
	return (first & 0x3f) * 4;
}

/**
 * nsh_is_possible - Checks version and length.
 * @first: the first 16 bits, a host integer
 * @kind: metadata type
 *
 * The base header of other types is read whatever the length is, as by flow::extract.
 *
 * Return: false for a header whose fields do not count.
 */
static __always_inline bool nsh_is_possible(__u32 first, __u32 kind)
{
	__u32 bytes = nsh_bytes(first);

	if (first >> 14)
		return false;
	return kind == NSH_CONTEXTS ? bytes == NSH_BASE + 16 : kind != NSH_VARIABLE || bytes >= NSH_BASE;
}

#endif
