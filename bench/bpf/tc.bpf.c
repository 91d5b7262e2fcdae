// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The benchmark's programs at the skb hook. */
#include "flows.h"
#include "sink.h"

#include <linux/pkt_cls.h>
#include <linux/udp.h>

/* Where `bare` redirects to. */
const volatile __u32 output = 0;

/* The least that a switch can do. */
SEC("tc")
int bare(struct __sk_buff *skb)
{
	return bpf_redirect(output, 0);
}

/* Where traffic ends. */
SEC("tc")
int sink(struct __sk_buff *skb)
{
	/* What a ring of AF_PACKET sends has its headers in pages. */
	if (skb->data + sizeof(struct stamped) > skb->data_end)
		bpf_skb_pull_data(skb, sizeof(struct stamped));
	arrived((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len);
	return TC_ACT_SHOT;
}

/* Changes the flow, then runs the subject. */
SEC("tc")
int touch(struct __sk_buff *skb)
{
	struct control *c = control_here();
	struct progress *p = progress_here();

	if (!c || !p || touch_flow(c, p, (void *)(long)skb->data, (void *)(long)skb->data_end))
		return TC_ACT_SHOT;
	bpf_tail_call_static(skb, &subject, 0);
	return TC_ACT_SHOT;
}

/* A UDP packet of a flow that was nearly surely never there goes out of `output`: addresses and
 * ports are random. Neither checksum is right; nobody who gets such a packet looks at them. */
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

char _license[] SEC("license") = "Dual BSD/GPL";
