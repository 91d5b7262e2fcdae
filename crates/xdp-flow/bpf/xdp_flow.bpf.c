// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Runs filters of traffic control at XDP, and counts the changes that the kernel makes to them.
 * src/layout.rs has the same structures. docs/design/43-xdp-flow.md explains the design.
 *
 * XDP_PASS leaves a packet to traffic control. It is the answer in every case of doubt.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_DEVICES 64
#define MAX_TABLES 32
#define MAX_RULES 16384

/* The fields of a packet, in network byte order. Fields that a packet lacks are zero. */
struct key {
	__u8 eth[12];
	__be16 protocol;
	__be16 ethertype;
	__be16 vlan_tci;
	__be16 cvlan_tci;
	__be16 vlan_type;
	__be16 cvlan_type;
	__u8 ip_proto;
	__u8 tos;
	__u8 ttl;
	__u8 zero;
	__be32 src[4];
	__be32 dst[4];
	__be16 sport;
	__be16 dport;
	__be16 tcp_flags;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 arp_hw[12];
	__u8 arp_op;
	__u8 zeros[7];
};

#define KEY_WORDS (sizeof(struct key) / 8)

union words {
	struct key key;
	__u64 word[KEY_WORDS];
};

struct lookup {
	union words key;
	__u64 table;
};

enum verdict { STOP, DROP, REDIRECT };

enum effect_flags {
	EDIT_ETH = 1,
	EDIT_NET = 2,
	EDIT_L4 = 4,
	SUM_IPV4 = 8,
	SUM_TCP = 16,
	SUM_UDP = 32,
	SUM_ICMP = 64,
};

struct rule {
	__u64 refreshed; /* ns */
	__u32 rank;
	__u32 counter;
	__u32 ifindex;
	__u32 longest; /* bytes of a frame that the target accepts */
	__u8 verdict;
	__u8 flags;
	__u8 pops;
	__u8 pushes;
	__be16 push[2][2]; /* tag protocol, tag control information */
	__u8 tos[2]; /* value, mask */
	__u8 ttl[2];
	__u8 eth_value[12];
	__u8 eth_mask[12];
	__be32 src_value[4];
	__be32 src_mask[4];
	__be32 dst_value[4];
	__be32 dst_mask[4];
	__be16 sport[2];
	__be16 dport[2];
};

struct table {
	union words mask;
	__u64 number;
	__u32 rank; /* lowest of its rules */
	__u32 zero;
};

struct device {
	__u32 tables;
	__u32 slot;
	struct table table[MAX_TABLES];
};

enum outcome {
	RAN,
	CHANGING,
	EXPIRED,
	NOT_PARSED,
	MISSED,
	STOPPED,
	REFRESHED,
	TOO_LONG,
	WRONG_LENGTH,
	NO_ROOM,
	FAILED,
	OUTCOMES
};

struct control {
	__u64 begun; /* changes that the kernel began */
	__u64 done; /* and ended */
	__u64 acknowledged; /* sum of both at which the rules were read */
	__u64 deadline; /* ns of CLOCK_MONOTONIC after which the agent counts as dead */
	__u64 refresh; /* ns between packets of a rule that are left to traffic control; 0: never */
};

struct counts {
	__u64 packets;
	__u64 bytes;
};

struct outcomes {
	__u64 packets[OUTCOMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, struct device);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_RULES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct lookup);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_RULES);
	__type(key, __u32);
	__type(value, struct counts);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, struct outcomes);
} device_outcomes SEC(".maps");

static __always_inline struct control *the_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* Where the headers of a packet are. */
struct offsets {
	__u8 tags;
	__u16 net;
	__u16 l4;
};

struct tag {
	__be16 tci;
	__be16 type;
};

/* The first bytes of a header. */
struct halves2 { __u16 at[2]; };
struct halves4 { __u16 at[4]; };
struct halves10 { __u16 at[10]; };
struct tagged { __u8 addresses[12]; __be16 tag[2]; __be16 type; };

#define AT(type, offset)                                             \
	({                                                           \
		type *at_ = data + (offset);                         \
		if ((void *)(at_ + 1) > end)                         \
			return -1;                                   \
		at_;                                                 \
	})

/**
 * parse_l4 - Reads the header after IP.
 *
 * Return: 0, or -1 for a packet that is left to traffic control.
 */
static __always_inline int parse_l4(void *data, void *end, __u16 offset, struct key *key)
{
	switch (key->ip_proto) {
	case IPPROTO_TCP: {
		struct { __be16 sport, dport; __be32 seq, ack; __be16 flags, window, sum, urgent; } *tcp;

		tcp = AT(typeof(*tcp), offset);
		if ((bpf_ntohs(tcp->flags) >> 12) < 5)
			return -1;
		key->sport = tcp->sport;
		key->dport = tcp->dport;
		key->tcp_flags = tcp->flags & bpf_htons(0x0fff);
		return 0;
	}
	case IPPROTO_UDP:
	case IPPROTO_SCTP: {
		struct { __be16 sport, dport, length, sum; } *udp;

		udp = AT(typeof(*udp), offset);
		key->sport = udp->sport;
		key->dport = udp->dport;
		return 0;
	}
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6: {
		struct { __u8 type, code; __be16 sum; __be32 rest; } *icmp;

		if ((key->ip_proto == IPPROTO_ICMP) != (key->ethertype == bpf_htons(ETH_P_IP)))
			return -1;
		icmp = AT(typeof(*icmp), offset);
		key->icmp_type = icmp->type;
		key->icmp_code = icmp->code;
		return 0;
	}
	default:
		return -1;
	}
}

/**
 * parse - Reads a packet as the kernel's flow dissector does for the classifier flower.
 *
 * Return: 0, or -1 for a packet that is left to traffic control: fragments, IP options that lead to other
 * headers, more than two tags, tunnels, and whatever is cut short or unknown.
 */
static __always_inline int parse(void *data, void *end, struct key *key, struct offsets *at)
{
	struct ethhdr *eth = AT(struct ethhdr, 0);
	__u16 offset = sizeof(*eth);
	__be16 type = eth->h_proto;

	__builtin_memcpy(key->eth, eth, sizeof(key->eth));
	key->protocol = type;
	if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD)) {
		struct tag *tag = AT(struct tag, offset);

		key->vlan_tci = tag->tci;
		key->vlan_type = type = tag->type;
		at->tags = 1;
		offset += sizeof(*tag);
		if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD)) {
			tag = AT(struct tag, offset);
			key->cvlan_tci = tag->tci;
			key->cvlan_type = type = tag->type;
			at->tags = 2;
			offset += sizeof(*tag);
		}
	}
	key->ethertype = type;
	at->net = offset;
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = AT(struct iphdr, offset);

		/* Options are not parsed, nor are fragments. */
		if (*(__u8 *)ip != 0x45 || ip->frag_off & bpf_htons(0x3fff))
			return -1;
		key->ip_proto = ip->protocol;
		key->tos = ip->tos;
		key->ttl = ip->ttl;
		key->src[0] = ip->saddr;
		key->dst[0] = ip->daddr;
		at->l4 = offset + sizeof(*ip);
		return parse_l4(data, end, at->l4, key);
	}
	if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = AT(struct ipv6hdr, offset);
		__u8 *first = (__u8 *)ip;

		if (*first >> 4 != 6)
			return -1;
		key->ip_proto = ip->nexthdr;
		key->tos = first[0] << 4 | first[1] >> 4;
		key->ttl = ip->hop_limit;
		__builtin_memcpy(key->src, &ip->saddr, 16);
		__builtin_memcpy(key->dst, &ip->daddr, 16);
		at->l4 = offset + sizeof(*ip);
		return parse_l4(data, end, at->l4, key);
	}
	if (type == bpf_htons(ETH_P_ARP)) {
		struct {
			__be16 hw, proto;
			__u8 hw_length, length;
			__be16 op;
			__u8 sha[6], sip[4], tha[6], tip[4];
		} __attribute__((packed)) *arp;

		arp = AT(typeof(*arp), offset);
		if (arp->hw != bpf_htons(1) || arp->proto != bpf_htons(ETH_P_IP) ||
		    arp->hw_length != 6 || arp->length != 4 ||
		    (arp->op != bpf_htons(1) && arp->op != bpf_htons(2)))
			return -1;
		key->arp_op = bpf_ntohs(arp->op);
		__builtin_memcpy(key->arp_hw, arp->sha, 6);
		__builtin_memcpy(key->arp_hw + 6, arp->tha, 6);
		__builtin_memcpy(key->src, arp->sip, 4);
		__builtin_memcpy(key->dst, arp->tip, 4);
		return 0;
	}
	return -1;
}

/**
 * find - Returns the first rule in the order of traffic control that matches; NULL for none.
 *
 * Each table has the rules of one mask, and the tables are in the order of their first rules.
 */
static __always_inline struct rule *find(struct device *device, const union words *key)
{
	struct rule *best = NULL;
	struct lookup lookup;
	__u32 rank = ~0U;

	for (__u32 i = 0; i < MAX_TABLES; i++) {
		struct table *table = &device->table[i];
		struct rule *rule;

		if (i >= device->tables || table->rank >= rank)
			break;
		for (__u32 w = 0; w < KEY_WORDS; w++)
			lookup.key.word[w] = key->word[w] & table->mask.word[w];
		lookup.table = table->number;
		rule = bpf_map_lookup_elem(&rules, &lookup);
		if (rule && rule->rank < rank) {
			rank = rule->rank;
			best = rule;
		}
	}
	return best;
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Replaces a word, and adds the difference to a sum of ones' complement. */
static __always_inline void edit_word(__be32 *at, __be32 value, __be32 mask, __u64 *sum)
{
	__be32 before = *at;
	__be32 after = (before & ~mask) | value;

	*sum += (__u32)~before;
	*sum += after;
	*at = after;
}

static __always_inline void edit_port(__be16 *at, const __be16 edit[2], __u64 *sum)
{
	__be16 before = *at;
	__be16 after = (before & ~edit[1]) | edit[0];

	*sum += (__u16)~before;
	*sum += after;
	*at = after;
}

/* Whether a rule computes the checksum after IP for packets of a protocol. */
static __always_inline bool sums_l4(const struct rule *rule, __u8 proto)
{
	switch (proto) {
	case IPPROTO_TCP:
		return rule->flags & SUM_TCP;
	case IPPROTO_UDP:
		return rule->flags & SUM_UDP;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return rule->flags & SUM_ICMP;
	default:
		return false;
	}
}

/**
 * check_lengths - Checks a packet whose checksum after IP is computed.
 *
 * The kernel drops it when it is shorter than its IP header says, and takes the checksum away when the
 * length in its UDP header is another one (net/sched/act_csum.c). It computes also a missing one of UDP
 * over IPv6.
 *
 * Return: 0, or -1 for such a packet.
 */
static __always_inline int check_lengths(void *data, void *end, const struct key *key,
					 const struct offsets *at)
{
	struct { __be16 sport, dport, length, sum; } *udp;
	bool is_ipv4 = key->ethertype == bpf_htons(ETH_P_IP);
	__u16 net = at->net, l4 = at->l4;
	__u32 length, header;

	if (net > 32 || l4 > 64)
		return -1;
	if (is_ipv4) {
		struct iphdr *ip = AT(struct iphdr, net);

		length = bpf_ntohs(ip->tot_len);
		header = sizeof(*ip);
	} else {
		struct ipv6hdr *ip = AT(struct ipv6hdr, net);

		length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
		header = sizeof(*ip);
	}
	if (net + length > (__u32)(end - data))
		return -1;
	if (length < header + (key->ip_proto == IPPROTO_TCP ? 20 : 8))
		return -1;
	if (key->ip_proto != IPPROTO_UDP)
		return 0;
	udp = AT(typeof(*udp), l4);
	if (bpf_ntohs(udp->length) != length - header || (!is_ipv4 && !udp->sum))
		return -1;
	return 0;
}

/**
 * edit - Runs the edits of headers and the checksums after them.
 *
 * Return: 0, or -1 before anything is changed.
 */
static __always_inline int edit(struct xdp_md *ctx, const struct rule *rule, const struct key *key,
				const struct offsets *at)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = AT(struct ethhdr, 0);
	bool is_ipv4 = key->ethertype == bpf_htons(ETH_P_IP);
	bool is_ipv6 = key->ethertype == bpf_htons(ETH_P_IPV6);
	__u16 *l4 = NULL, *l4_sum = NULL;
	__u64 sum = 0;

	if ((is_ipv4 || is_ipv6) && rule->flags & ~EDIT_ETH) {
		__u16 offset = at->l4;

		if (offset > 64)
			return -1;
		if (sums_l4(rule, key->ip_proto) && check_lengths(data, end, key, at))
			return -1;
		if (key->ip_proto == IPPROTO_TCP) {
			l4 = AT(struct halves10, offset)->at;
			l4_sum = rule->flags & SUM_TCP ? l4 + 8 : NULL;
		} else if (key->ip_proto == IPPROTO_UDP) {
			l4 = AT(struct halves4, offset)->at;
			/* Zero is no checksum. */
			l4_sum = rule->flags & SUM_UDP && l4[3] ? l4 + 3 : NULL;
		} else if (key->ip_proto == IPPROTO_ICMPV6) {
			__u16 *icmp = AT(struct halves2, offset)->at;

			l4_sum = rule->flags & SUM_ICMP ? icmp + 1 : NULL;
		}
	}
	if (is_ipv4 && rule->flags & (EDIT_NET | SUM_IPV4)) {
		__u16 offset = at->net;
		struct iphdr *ip;

		if (offset > 32)
			return -1;
		ip = AT(struct iphdr, offset);
		ip->tos = (ip->tos & ~rule->tos[1]) | rule->tos[0];
		ip->ttl = (ip->ttl & ~rule->ttl[1]) | rule->ttl[0];
		edit_word(&ip->saddr, rule->src_value[0], rule->src_mask[0], &sum);
		edit_word(&ip->daddr, rule->dst_value[0], rule->dst_mask[0], &sum);
		if (rule->flags & SUM_IPV4) {
			__u16 *word = (__u16 *)ip;
			__u64 all = 0;

			ip->check = 0;
			for (int i = 0; i < 10; i++)
				all += word[i];
			ip->check = ~fold(all);
		}
	}
	if (is_ipv6 && rule->flags & EDIT_NET) {
		__u16 offset = at->net;
		struct ipv6hdr *ip;

		if (offset > 32)
			return -1;
		ip = AT(struct ipv6hdr, offset);
		ip->hop_limit = (ip->hop_limit & ~rule->ttl[1]) | rule->ttl[0];
		for (int i = 0; i < 4; i++) {
			edit_word((__be32 *)&ip->saddr + i, rule->src_value[i], rule->src_mask[i], &sum);
			edit_word((__be32 *)&ip->daddr + i, rule->dst_value[i], rule->dst_mask[i], &sum);
		}
	}
	if (rule->flags & EDIT_L4 && l4) {
		edit_port(l4, rule->sport, &sum);
		edit_port(l4 + 1, rule->dport, &sum);
	}
	if (l4_sum && sum) {
		__u16 new = ~fold(sum + (__u16)~*l4_sum);

		if (!new && key->ip_proto == IPPROTO_UDP)
			new = 0xffff;
		*l4_sum = new;
	}
	if (rule->flags & EDIT_ETH) {
		__u8 *byte = (__u8 *)eth;

		for (int i = 0; i < 12; i++)
			byte[i] = (byte[i] & ~rule->eth_mask[i]) | rule->eth_value[i];
	}
	return 0;
}

/* Takes the outermost tag off. */
static __always_inline int pop(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct tagged *frame = AT(struct tagged, 0);

	__builtin_memmove(frame->addresses + 4, frame->addresses, sizeof(frame->addresses));
	return bpf_xdp_adjust_head(ctx, 4) ? -1 : 0;
}

/* Puts a tag on. */
static __always_inline int push(struct xdp_md *ctx, const __be16 tag[2])
{
	void *data, *end;
	struct tagged *frame;

	if (bpf_xdp_adjust_head(ctx, -4))
		return -1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	frame = AT(struct tagged, 0);
	__builtin_memmove(frame->addresses, frame->addresses + 4, sizeof(frame->addresses));
	frame->tag[0] = tag[0];
	frame->tag[1] = tag[1];
	return 0;
}

/**
 * run - Runs a rule: sets the action, and changes the packet unless it is dropped.
 *
 * A packet that is only half changed is dropped: traffic control would not meet the one that arrived. It
 * has been parsed, and has room, so that does not happen.
 */
static __always_inline enum outcome run(struct xdp_md *ctx, const struct rule *rule,
					const struct key *key, const struct offsets *at, int *action)
{
	int tags = at->tags, room;

	if (rule->verdict == DROP) {
		*action = XDP_DROP;
		return RAN;
	}
	/* Without room for the tags the packet must stay as it is. */
	room = 4 * (rule->pushes & 3);
	if (room) {
		if (bpf_xdp_adjust_head(ctx, -room))
			return NO_ROOM;
		if (bpf_xdp_adjust_head(ctx, room))
			goto failed;
	}
	if (rule->flags && edit(ctx, rule, key, at))
		return WRONG_LENGTH;
	for (int i = 0; i < 2; i++) {
		if (i >= rule->pops || !tags)
			break;
		if (pop(ctx))
			goto failed;
		tags--;
	}
	for (int i = 0; i < 2; i++) {
		if (i >= rule->pushes)
			break;
		if (push(ctx, rule->push[i]))
			goto failed;
	}
	*action = bpf_redirect(rule->ifindex, 0);
	return RAN;
failed:
	*action = XDP_ABORTED;
	return FAILED;
}

static __always_inline enum outcome decide(struct xdp_md *ctx, struct device *device, int *action)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 length = end - data;
	struct control *control = the_control();
	struct offsets at = {};
	union words key = {};
	struct counts *counts;
	enum outcome outcome;
	struct rule *rule;
	__u64 now, changes;

	if (!control)
		return CHANGING;
	/* Neither count ever falls, so the sum is the acknowledged one only when both are. */
	changes = *(volatile __u64 *)&control->begun + *(volatile __u64 *)&control->done;
	if (changes != *(volatile __u64 *)&control->acknowledged)
		return CHANGING;
	now = bpf_ktime_get_ns();
	if (now > *(volatile __u64 *)&control->deadline)
		return EXPIRED;
	if (parse(data, end, &key.key, &at))
		return NOT_PARSED;
	rule = find(device, &key);
	if (!rule)
		return MISSED;
	if (rule->verdict == STOP)
		return STOPPED;
	if (rule->verdict == REDIRECT && length > rule->longest)
		return TOO_LONG;
	/* The kernel's network header is after the first tag, and its edits count from there. */
	if (rule->flags & ~EDIT_ETH && at.tags > 1)
		return STOPPED;
	if (control->refresh && now - rule->refreshed > control->refresh) {
		rule->refreshed = now;
		return REFRESHED;
	}
	outcome = run(ctx, rule, &key.key, &at, action);
	if (outcome != RAN)
		return outcome;
	counts = bpf_map_lookup_elem(&counters, &rule->counter);
	if (counts) {
		counts->packets++;
		/* Traffic control counts bytes after the Ethernet header and the first tag. */
		counts->bytes += length - ETH_HLEN - (at.tags ? 4 : 0);
	}
	return RAN;
}

SEC("xdp")
int xdp_flow(struct xdp_md *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex;
	struct device *device = bpf_map_lookup_elem(&devices, &ifindex);
	struct outcomes *outcomes;
	int action = XDP_PASS;
	enum outcome outcome;

	if (!device)
		return XDP_PASS;
	outcome = decide(ctx, device, &action);
	outcomes = bpf_map_lookup_elem(&device_outcomes, &device->slot);
	if (outcomes && outcome < OUTCOMES)
		outcomes->packets[outcome]++;
	return action;
}

/* Programs at the kernel's functions that change rules: the entry counts before the change has an
 * effect, the exit when it is complete. */
#define GUARD(function)                                                              \
	SEC("fentry/" #function) int begin_##function(void *ctx)                     \
	{                                                                            \
		struct control *control = the_control();                             \
		if (control)                                                         \
			__sync_fetch_and_add(&control->begun, 1);                    \
		return 0;                                                            \
	}                                                                            \
	SEC("fexit/" #function) int end_##function(void *ctx)                        \
	{                                                                            \
		struct control *control = the_control();                             \
		if (control)                                                         \
			__sync_fetch_and_add(&control->done, 1);                     \
		return 0;                                                            \
	}

GUARD(tc_new_tfilter)
GUARD(tc_del_tfilter)
GUARD(tc_ctl_chain)
GUARD(tc_ctl_action)
GUARD(tc_modify_qdisc)
GUARD(tc_get_qdisc)
GUARD(tcf_block_put_ext)
GUARD(call_netdevice_notifiers_info)
GUARD(tcx_link_attach)
GUARD(tcx_prog_attach)
GUARD(netns_bpf_prog_attach)
GUARD(netns_bpf_link_create)

char _license[] SEC("license") = "Dual BSD/GPL";
