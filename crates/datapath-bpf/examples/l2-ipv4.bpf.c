/* A datapath of one's own for the XDP hook, as an example: Ethernet and IPv4, one output or
 * drop. Packets and flows that it does not know are left to the next hook. docs/user-programs.md
 * says what such a program owes to the daemon. */
#include "hook_xdp.h"

#include <linux/in.h>

#include "capabilities.h"
#include "output.h"
#include "view.h"

#define L2_WORDS (BIT(W_PORT) | BIT(W_ETH0) | BIT(W_ETH1) | BIT(W_RECIRC))
#define IPV4_WORDS (L2_WORDS | BIT(W_IP4) | NEEDS_L3)
#define NOTHING 0xffffffffu

CAPABILITIES(IPV4_WORDS, BIT(OP_OUTPUT) | BIT(OP_DROP));

struct search {
	__u64 key[HOT_WORDS];
	__u32 known;     /* words of `key` that are right for this packet */
	__u32 tcp_flags;
	__u32 found;     /* slot */
};

/* False: the packet is not for this program. */
static __always_inline bool parse(struct xdp_md *ctx, struct search *s)
{
	struct view v = view_of(ctx);
	void *eth = at(&v, 0, ETH_HLEN), *ip = at(&v, ETH_HLEN, 20), *tcp;
	__u32 behind = v.length - ETH_HLEN, total, offset;
	__u16 type;

	if (!eth)
		return false;
	type = bpf_ntohs(load16(eth + 12));
	if (type < ETH_P_802_3_MIN || type == ETH_P_8021Q || type == ETH_P_8021AD)
		return false;
	s->key[W_ETH0] = load64(eth);
	s->key[W_ETH1] = PLACE(load32(eth + 8), 4, 0);
	s->key[W_PORT] = PLACE(load16(eth + 12), 2, 2); /* the port comes later */
	s->known = L2_WORDS;
	if (type != ETH_P_IP)
		return true;
	/* No options, no fragment, no wrong length. */
	if (!ip || load8(ip) != 0x45 || load16(ip + 6) & bpf_htons(0x3fff))
		return false;
	total = bpf_ntohs(load16(ip + 2));
	if (total < 20 || total > behind || behind - total > 0xffff)
		return false;
	s->key[W_IP4] = load64(ip + 12);
	s->key[W_ETH1] |= PLACE(load8(ip + 1), 1, 5) | PLACE(load8(ip + 8), 1, 6) |
			  PLACE(load8(ip + 9), 1, 7);
	s->known = IPV4_WORDS;
	if (load8(ip + 9) != IPPROTO_TCP || total < 40)
		return true;
	tcp = at(&v, ETH_HLEN + 20, 20);
	if (!tcp)
		return false;
	offset = load8(tcp + 12) >> 4;
	if (offset >= 5 && offset * 4 <= total - 20)
		s->tcp_flags = bpf_ntohs(load16(tcp + 12)) & 0xfff;
	return true;
}

static __always_inline bool is_of(const struct search *s, const struct slot *slot,
				  const struct mask *mask)
{
	__u64 diff = 0;

#pragma unroll
	for (int x = 0; x < HOT_WORDS; x++)
		diff |= (s->key[x] ^ slot->hot[x]) & mask->words[x];
	return !diff;
}

static __always_inline void search_bucket(struct search *s, const struct mask *mask,
					  __u32 mask_number, __u32 hash, __u32 at)
{
	struct bucket *bucket = bpf_map_lookup_elem(&flow_index, &at);

#pragma unroll
	for (int i = 0; bucket && i < BUCKET; i++) {
		__u64 entry = *(volatile __u64 *)&bucket->entries[i];
		__u32 number = (__u32)entry - 1;
		struct slot *slot;

		if (!entry || entry >> 32 != hash)
			continue;
		slot = bpf_map_lookup_elem(&slots, &number);
		if (slot && !slot->dead && slot->mask == mask_number && is_of(s, slot, mask))
			s->found = number;
	}
}

/* For each mask; 1 ends the search. */
static long search_mask(void *map, const __u32 *number, struct mask *mask, struct search *s)
{
	__u64 sum = *number * settings.factors[FACTOR_OF_MASK];
	__u32 hash;

	if (!mask->needs)
		return 1;
	if (mask->needs & ~s->known) /* MASK_VACANT, too */
		return 0;
#pragma unroll
	for (int x = 0; x < HOT_WORDS; x++)
		sum += hash_word(x, s->key[x] & mask->words[x]);
	sum ^= sum >> 32;
	hash = sum * 0x9e3779b97f4a7c15ull >> 32;
	search_bucket(s, mask, *number, hash, hash & settings.bucket_mask);
	if (s->found == NOTHING)
		search_bucket(s, mask, *number, hash,
			      (hash * 0x9e3779b1u) >> 13 & settings.bucket_mask);
	return s->found != NOTHING;
}

/* The port of the device that the packet came in by. */
static __always_inline __u32 in_port(struct xdp_md *ctx)
{
#pragma unroll
	for (int i = 0; i < IFACE_PROBES; i++) {
		__u32 place = (ctx->ingress_ifindex + i) % IFACES;
		struct iface *iface = ENTRY_OF(ifaces, place, IFACES);

		if (iface && iface->ifindex == ctx->ingress_ifindex)
			return iface->port & IFACE_DAEMONS ? NO_PORT : iface->port & ~IFACE_FLAGS;
	}
	return NO_PORT;
}

static __always_inline int pass(void)
{
	COUNT(passed);
	return XDP_PASS;
}

SEC("xdp")
int l2_ipv4(struct xdp_md *ctx)
{
	struct search s = { .found = NOTHING };
	__u32 length = data_length(ctx), from = in_port(ctx);
	struct slot *slot;
	struct port *to;

	if (from == NO_PORT || !parse(ctx, &s))
		return pass();
	s.key[W_PORT] |= PLACE(bpf_htons(from), 2, 0);
	bpf_for_each_map_elem(&masks, search_mask, &s, 0);
	slot = bpf_map_lookup_elem(&slots, &s.found);
	if (!slot || !(slot->hooks & HOOK_XDP))
		return pass();
	if (slot->output == NO_PORT) {
		if (slot->program != NO_PROGRAM)
			return pass();
		count_flow(s.found, length, s.tcp_flags);
		return drop_by(s.found);
	}
	to = port_of(slot->output);
	if (to && to->flags & PORT_UP && !(to->flags & PORT_DEVMAP))
		return pass();
	if (to && !(to->flags & PORT_SPLIT) && is_split(ctx, length))
		return pass();
	count_flow(s.found, length, s.tcp_flags);
	return output_to(ctx, to, slot->output, length);
}

char _license[] SEC("license") = "Apache-2.0";
