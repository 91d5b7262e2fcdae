/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XDP: one frame to several ports. */
#ifndef SLIPSWITCH_COPIES_H
#define SLIPSWITCH_COPIES_H

#include "output.h"

#if AT_XDP

/* The ports of one set: place -> interface. */
#define SET(n)                                        \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_DEVMAP);    \
		__uint(max_entries, SET_PORTS);       \
		__type(key, __u32);                   \
		__type(value, __u32);                 \
	} set##n SEC(".maps");

#define SETS_EACH(f)                                                                   \
	f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13)      \
		f(14) f(15) f(16) f(17) f(18) f(19) f(20) f(21) f(22) f(23) f(24)      \
			f(25) f(26) f(27) f(28) f(29) f(30) f(31)

SETS_EACH(SET)

#define SEND_TO_SET(n) \
	case n:        \
		return bpf_redirect_map(&set##n, 0, flags);

/* `undo.h` has seen that the ports take it. The kernel leaves out one that has gone down since. */
static __noinline int copies_redirect(__u32 set, __u64 flags)
{
	switch (set) {
		SETS_EACH(SEND_TO_SET)
	}
	return XDP_ABORTED;
}

static __always_inline int exec_copies(const struct program *p)
{
	__u64 flags = BPF_F_BROADCAST | (p->exclude ? BPF_F_EXCLUDE_INGRESS : 0);
	int verdict = copies_redirect((__u32)p->set - 1, flags);

	return verdict == XDP_REDIRECT ? verdict : drop(DROP_OUTPUT);
}

#endif

#endif
