/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which flow a packet is of: the IPv4 source address is 10.0.0.0 and the flow's number. */
#ifndef BENCH_FLOWS_H
#define BENCH_FLOWS_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* What the benchmark asks for. One element. */
struct control {
	__u32 flows;
	__u32 stop; /* not 0: no more traffic */
	__u32 stamp; /* not 0: each frame says when it was made */
	__u32 mask; /* the least power of two that is not less than `flows`, less one */
	__u64 gap; /* nanoseconds from frame to frame; 0: none */
};

/* How far it is. One element, the program's own; one CPU at a time runs it. */
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

/* What is measured: the switch's program or a bare redirect. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} subject SEC(".maps");

static __always_inline struct control *control_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline struct progress *progress_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&progress, &zero);
}

#define FIRST_SOURCE 0x0a000000
/* Flows that there may be, at most: a power of two. */
#define MOST_FLOWS (1 << 18)

static __always_inline __be32 source_of(__u32 flow)
{
	return bpf_htonl(FIRST_SOURCE | flow);
}

static __always_inline __u32 flow_of(__be32 source)
{
	return bpf_ntohl(source) & (MOST_FLOWS - 1);
}

/* Numbers in a row that may be no flow's. */
#define TRIES 64

/* The source address of the next flow. They take turns in the order of a linear congruential generator
 * whose period is the power of two (Hull and Dobell: the increment is odd, the factor 1 modulo 4), each
 * of them once in a period. The order is not kept in a table: a packet from a device takes none of
 * the CPU's caches for that either. */
static __always_inline int next_source(struct control *c, struct progress *p, __be32 *address)
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
	__be32 address;

	if (next_source(c, p, &address) || (void *)(ip + 1) > data_end)
		return -1;
	sum = (__u16)~ip->check + (__u16)~(ip->saddr >> 16) + (__u16)~ip->saddr;
	sum += (address >> 16) + (__u16)address;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
	ip->saddr = address;
	return 0;
}

/* The same where the frame is looked at at once: a processor stalls when it loads what it stored
 * a moment ago in other sizes, which no packet from a device makes it do. So nothing is stored
 * when there is one flow; else both addresses are at once, and the checksum stays as it was. */
static __always_inline int touch_flow(struct control *c, struct progress *p, void *data,
				      void *data_end)
{
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__be32 address;

	if (c->flows == 1)
		return 0;
	if (next_source(c, p, &address) || (void *)(ip + 1) > data_end)
		return -1;
	*(volatile __u64 *)&ip->saddr =
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
		(__u64)ip->daddr << 32 | address;
#else
		(__u64)address << 32 | ip->daddr;
#endif
	return 0;
}

#endif
