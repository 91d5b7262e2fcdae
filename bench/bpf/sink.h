/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where traffic ends: frames of the generator and their delays are counted. */
#ifndef BENCH_SINK_H
#define BENCH_SINK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The receiver's UDP port: all frames are from or to it. */
#define TARGET_PORT 5000
/* Ports of VXLAN and Geneve: frames that a switch has encapsulated. */
#define VXLAN_PORT 4789
#define GENEVE_PORT 6081

/* A frame with its stamp: 0, or the time at which it was made (bpf_ktime_get_ns). Padding aligns the
 * stamp in the frame. */
struct stamped {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	__u8 pad[6];
	__u64 stamp;
} __attribute__((packed, aligned(8)));

struct tally {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} seen SEC(".maps");

/* A histogram of nanoseconds: values below 2^FINE have a bucket each, and every doubling
 * above is cut into 2^FINE buckets. */
#define FINE 5
#define BUCKETS 1024

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} delays SEC(".maps");

static __always_inline __u32 log2_of(__u64 value)
{
	__u32 log = 0;

	if (value >> 32) { log += 32; value >>= 32; }
	if (value >> 16) { log += 16; value >>= 16; }
	if (value >> 8) { log += 8; value >>= 8; }
	if (value >> 4) { log += 4; value >>= 4; }
	if (value >> 2) { log += 2; value >>= 2; }
	return log + (value >> 1);
}

static __always_inline __u32 bucket_of(__u64 delay)
{
	__u32 log = log2_of(delay);
	__u32 bucket;

	if (log < FINE)
		return delay;
	bucket = ((log - FINE + 1) << FINE) + ((delay >> (log - FINE)) & ((1 << FINE) - 1));
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static __always_inline void arrived(void *data, void *data_end, __u64 length)
{
	struct stamped *frame = data;
	struct tally *tally;
	__u64 now, *count;
	bool in_tunnel;
	__u32 key = 0;

	if ((void *)(frame + 1) > data_end || frame->eth.h_proto != bpf_htons(ETH_P_IP) ||
	    frame->ip.protocol != IPPROTO_UDP)
		return;
	in_tunnel = frame->udp.dest == bpf_htons(VXLAN_PORT) ||
		    frame->udp.dest == bpf_htons(GENEVE_PORT);
	if (!in_tunnel && frame->udp.dest != bpf_htons(TARGET_PORT) &&
	    frame->udp.source != bpf_htons(TARGET_PORT))
		return;
	tally = bpf_map_lookup_elem(&seen, &key);
	if (!tally)
		return;
	tally->packets++;
	tally->bytes += length;
	/* The stamp of a frame in a tunnel is not read. */
	if (in_tunnel || !frame->stamp)
		return;
	now = bpf_ktime_get_ns();
	key = bucket_of(now > frame->stamp ? now - frame->stamp : 0);
	count = bpf_map_lookup_elem(&delays, &key);
	if (count)
		++*count;
}

#endif
