/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bytes of a frame that can be read directly, and how a parse ends. */
#ifndef SLIPSWITCH_VIEW_H
#define SLIPSWITCH_VIEW_H

#include "key.h"

enum parse {
	PARSED,
	PARSE_PULL, /* a header lies beyond what is in reach */
	PARSE_UP,   /* more headers than these programs follow */
	PARSE_ALL,  /* `parse_all` knows it */
};

/* What can be read, and how long the frame is: some of it may be out of reach. */
struct view {
	void *data;
	void *end;
	__u32 length;
	bool whole;
};

static __always_inline struct view view_of(hook_ctx *ctx)
{
	struct view v = { data_of(ctx), data_end_of(ctx), data_length(ctx), true };

	v.whole = v.end - v.data >= v.length;
	return v;
}

/* NULL when `len` bytes at `offset` cannot be read. */
static __always_inline void *at(const struct view *v, __u32 offset, const __u32 len)
{
	__u64 o = offset;
	void *p;

	opaque(o);
	o &= MAX_OFFSET;
	p = v->data + o;
	return p + len <= v->end ? p : 0;
}

/* Why not. */
static __always_inline int short_of(const struct view *v)
{
	return v->whole ? PARSED : PARSE_PULL;
}

static __always_inline __u16 load16(const void *p)
{
	return *(const __u16 *)p;
}

static __always_inline __u32 load32(const void *p)
{
	return *(const __u32 *)p;
}

static __always_inline __u64 load64(const void *p)
{
	return *(const __u64 *)p;
}

static __always_inline __u8 load8(const void *p)
{
	return *(const __u8 *)p;
}

#endif
