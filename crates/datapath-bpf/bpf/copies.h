/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XDP: one frame to several ports. The kernel copies a frame to every entry of a devmap, so each
 * set of ports has a devmap of its own, set0 to set31 (src/sets.rs).
 *
 * Worth, in packets per CPU-second against the same flow at tcx (Linux 6.18, veth ports, live
 * frames of BPF_PROG_RUN, medians of 9 runs that alternate):
 *
 *   output to                               2 ports  3 ports  8 ports
 *   peers that run XDP, 64-byte frames         1.83     2.15     2.74
 *   peers that run XDP, 1,500-byte frames      1.82     2.13     2.78
 *   peers with GRO, 64-byte frames             0.96     1.00     1.13
 *   peers with GRO, 1,500-byte frames          0.95     1.00     1.05
 *
 * A peer with GRO needs a socket buffer for each copy, whichever hook made it: copies at XDP are
 * for devices that send XDP frames.
 */
#ifndef SLIPSWITCH_COPIES_H
#define SLIPSWITCH_COPIES_H

#include "output.h"

#if AT_XDP

/* The devmap of one set: place in the set -> interface. */
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

/**
 * copies_redirect - Sends the frame to all ports of a set.
 * @set: number of the set
 * @flags: flags of bpf_redirect_map()
 *
 * undo.h has checked that the ports accept the frame. The kernel skips a port that went down since.
 * Each map has a case, because the verifier allows one map for one call of the helper. A function
 * of its own: the verifier reads the cases once.
 *
 * Return: XDP_REDIRECT, or XDP_ABORTED when there is no such set.
 */
static __noinline int copies_redirect(__u32 set, __u64 flags)
{
	switch (set) {
		SETS_EACH(SEND_TO_SET)
	}
	return XDP_ABORTED;
}

/**
 * exec_copies - Runs OP_COPIES, which ends a program.
 * @p: the program
 *
 * Return: the verdict.
 */
static __always_inline int exec_copies(const struct program *p)
{
	__u64 flags = BPF_F_BROADCAST | (p->exclude ? BPF_F_EXCLUDE_INGRESS : 0);
	int verdict = copies_redirect((__u32)p->set - 1, flags);

	return verdict == XDP_REDIRECT ? verdict : drop(DROP_OUTPUT);
}

#endif

#endif
