// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The benchmark's programs at the skb hook. */
#include "sink.h"

#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

/* Interface index of the device that `bare` and `bare_peer` redirect to. */
const volatile __u32 output = 0;

/* The least work of a switch. */
SEC("tc")
int bare(struct __sk_buff *skb)
{
	return bpf_redirect(output, 0);
}

/* The least work for a container: packets enter the other end of the veth pair of `output`. */
SEC("tc")
int bare_peer(struct __sk_buff *skb)
{
	return bpf_redirect_peer(output, 0);
}

/* Where traffic ends. */
SEC("tc")
int sink(struct __sk_buff *skb)
{
	/* Packets from a ring of AF_PACKET have their headers in pages. */
	if (skb->data + sizeof(struct stamped) > skb->data_end)
		bpf_skb_pull_data(skb, sizeof(struct stamped));
	arrived((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len);
	return TC_ACT_SHOT;
}

/* Sends a UDP packet out of `output` whose addresses and ports are random, so that its flow is almost
 * certainly new. Neither checksum is right; no receiver checks them. */
SEC("tc")
int flood(struct __sk_buff *skb)
{
	void *end = (void *)(long)skb->data_end;
	struct iphdr *ip = (void *)(long)skb->data + sizeof(struct ethhdr);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > end)
		return TC_ACT_SHOT;
	ip->saddr = bpf_get_prandom_u32();
	ip->daddr = bpf_get_prandom_u32();
	*(__u32 *)udp = bpf_get_prandom_u32();
	bpf_clone_redirect(skb, output, 0);
	return TC_ACT_OK;
}

/* Takes a change of a header word from 0 to `value` into its checksum. */
static __always_inline void account(__sum16 *checksum, __u32 value)
{
	__u32 sum = (__u16)~*checksum + (value & 0xffff) + (value >> 16);

	sum = (sum & 0xffff) + (sum >> 16);
	*checksum = ~((sum & 0xffff) + (sum >> 16));
}

/* Sends a TCP segment out of `output` whose source address and port are random. In the frame they are
 * 0. Both checksums are right, as a firewall verifies them. */
SEC("tc")
int flood_tcp(struct __sk_buff *skb)
{
	void *end = (void *)(long)skb->data_end;
	struct iphdr *ip = (void *)(long)skb->data + sizeof(struct ethhdr);
	struct tcphdr *tcp = (void *)(ip + 1);

	if ((void *)(tcp + 1) > end)
		return TC_ACT_SHOT;
	ip->saddr = bpf_get_prandom_u32();
	tcp->source = bpf_get_prandom_u32() | 1; /* 0 is no port */
	account(&ip->check, ip->saddr);
	account(&tcp->check, ip->saddr);
	account(&tcp->check, tcp->source);
	bpf_clone_redirect(skb, output, 0);
	return TC_ACT_OK;
}

char _license[] SEC("license") = "Dual BSD/GPL";
