/* The benchmark's programs at the skb hook. */
#include "flows.h"
#include "sink.h"

#include <linux/pkt_cls.h>

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

char _license[] SEC("license") = "Apache-2.0";
