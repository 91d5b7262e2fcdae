/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bytes of a frame that can be read directly, and the results of a parse. */
#ifndef SLIPSWITCH_VIEW_H
#define SLIPSWITCH_VIEW_H

#include "key.h"

/* Results of parse_headers() and its parts. */
enum parse {
	PARSED,
	PARSE_PULL, /* a header lies beyond the readable bytes */
	PARSE_UP,   /* more headers than these programs follow */
	PARSE_ALL,  /* a header that only `parse_all` handles */
};

/* The readable bytes of a frame, from `data` to `end`, and its whole length. `whole` is true when
 * all of the frame can be read, `inner` when the frame is one in a tunnel. */
struct view {
	void *data;
	void *end;
	__u32 length;
	bool whole;
	bool inner;
};

/* Returns the view of a frame; invalid after a change of the frame. */
static __always_inline struct view view_of(hook_ctx *ctx)
{
	struct view v = { data_of(ctx), data_end_of(ctx), data_length(ctx), true };

	v.whole = v.end - v.data >= v.length;
	return v;
}

/* Returns a view without the length, which takes a call at XDP. */
static __always_inline struct view view_of_bytes(hook_ctx *ctx)
{
	return (struct view){ data_of(ctx), data_end_of(ctx), 0, true };
}

/**
 * view_of_state - Returns the view of the frame that is to be parsed: that in the tunnel, as long as
 * the outer headers are in place.
 * @ctx: the packet
 * @st: its state
 */
static __always_inline struct view view_of_state(hook_ctx *ctx, const struct state *st)
{
	struct view v = view_of(ctx);
	__u64 base = st->base;

	opaque(base);
	base &= TUNNEL_REACH - 1;
	v.data += base;
	v.length -= base;
	v.inner = base;
	return v;
}

/**
 * at - Returns a pointer to bytes of the frame.
 * @v: the view
 * @offset: where the bytes begin
 * @len: how many; a constant
 *
 * The offset is masked so that the verifier knows its bounds. opaque() keeps the compiler from
 * dropping the mask where it knows more than the verifier.
 *
 * Return: NULL when the bytes cannot be read.
 */
static __always_inline void *at(const struct view *v, __u32 offset, const __u32 len)
{
	__u64 o = offset;
	void *p;

	opaque(o);
	o &= MAX_OFFSET;
	p = v->data + o;
	return p + len <= v->end ? p : 0;
}

/* Returns the reason why at() gave NULL: PARSED when the frame ends there, else PARSE_PULL. */
static __always_inline int short_of(const struct view *v)
{
	return v->whole ? PARSED : PARSE_PULL;
}

/* load8 to load64 return bytes as they lie in memory. */
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
