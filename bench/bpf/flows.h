/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flows of the generator: the IPv4 source address is 10.0.0.0 plus the flow's number; of replies,
 * the destination address. */
#ifndef BENCH_FLOWS_H
#define BENCH_FLOWS_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Set by the benchmark. One element. */
struct control {
	__u32 flows;
	__u32 stop; /* not 0: no more traffic */
	__u32 stamp; /* not 0: each frame carries the time at which it was made */
	__u32 mask; /* the least power of two that is not less than `flows`, less one */
	__u64 gap; /* nanoseconds from frame to frame; 0: none */
	__u32 reply; /* not 0: frames are replies */
	__u32 pad;
};

/* State of the generator. One element; the program runs on one CPU at a time. */
struct progress {
	__u32 last; /* number */
	__u32 pad;
	__u64 due; /* when the next frame is to leave */
	__u64 sent;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct progress);
} progress SEC(".maps");

#define FIRST_SOURCE 0x0a000000
/* The largest number of flows, a power of two. */
#define MOST_FLOWS (1 << 20)

static __always_inline __be32 source_of(__u32 flow)
{
	return bpf_htonl(FIRST_SOURCE | flow);
}

static __always_inline __u32 flow_of(__be32 source)
{
	return bpf_ntohl(source) & (MOST_FLOWS - 1);
}

/* How many consecutive numbers may belong to no flow. */
#define TRIES 64

/* The address of the next flow. Flows take turns in the order of a linear congruential
 * generator whose period is the power of two (Hull and Dobell: the increment is odd, the factor 1
 * modulo 4), each once in a period. A table of the order would take part of the CPU's caches, which
 * packets from a device do not. */
static __always_inline int next_address(struct control *c, struct progress *p, __be32 *address)
{
	for (int i = 0; i < TRIES; i++) {
		p->last = (p->last * 1664525u + 1013904223u) & c->mask;
		if (p->last < c->flows) {
			*address = source_of(p->last);
			return 0;
		}
	}
	return -1;
}

/* Makes the frame one of the next flow; the header's checksum stays right (RFC 1624). */
static __always_inline int next_flow(struct control *c, struct progress *p, void *data,
				     void *data_end)
{
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u32 sum;
	__be32 address, old;

	if (next_address(c, p, &address) || (void *)(ip + 1) > data_end)
		return -1;
	old = c->reply ? ip->daddr : ip->saddr;
	sum = (__u16)~ip->check + (__u16)~(old >> 16) + (__u16)~old;
	sum += (address >> 16) + (__u16)address;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
	if (c->reply)
		ip->daddr = address;
	else
		ip->saddr = address;
	return 0;
}

#endif
