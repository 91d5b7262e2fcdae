/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet in a packet of a tunnel: the outer headers are read where they are, and the inner frame
 * is looked up (tunnel_strip.h has the overview).
 *
 * The checks are those of the crate `tunnel`. A packet that fails one is left as it is to the next
 * hook, and at tc to the daemon, which drops and counts it. So is a packet that is valid, but rare:
 * in several buffers at XDP, with padding after the outer packet, with IPv6 extension headers, or with a Geneve option that the
 * table in `config` lacks. The words could not carry such an option any further.
 */
#ifndef SLIPSWITCH_TUNNEL_H
#define SLIPSWITCH_TUNNEL_H

#include "tunnel_strip.h"
#include "tunnel_sum.h"
#include "tunnel_fast.h"
#include "lookup.h"

/* Results of tunnel_peek(). */
#define PEEKED 0
#define PEEK_PULL 1  /* a header lies beyond the readable bytes */
#define PEEK_LEAVE 2 /* the packet is not for this hook */

/* Bits of tun_flags. */
#define TUN_OAM 1
#define TUN_CHECKSUM 4
#define TUN_KEY 8

/* RFC 7348, 5, and draft-smith-vxlan-group-policy, 2.1: bits of the first word. */
#define VXLAN_VNI 0x08000000u
#define VXLAN_GROUP_POLICY 0x80000000u
#define VXLAN_POLICY_FIELDS 0x00ffffffu
#define GBP_FLAGS 0x48

/* RFC 8926, 3.4 and 3.5. */
#define GENEVE_OAM 0x80
#define OPTION_HEADER bpf_htonl(0xffffff1f)
#define OPTION_HEADER_BYTES 4

/* RFC 2784, 2, and RFC 2890, 2. */
#define GRE_CHECKSUM 0x8000
#define GRE_KEY 0x2000
#define GRE_SEQUENCE 0x1000


/* An outer packet. */
struct outer {
	__u32 l4;     /* offset of the header after IP */
	__u32 proto;  /* its number */
	__u32 bytes;  /* from there to the end of the frame */
	__u32 tos;
	__u32 ttl;
	__u32 pseudo; /* sum of the pseudo header, folded */
	__u32 flags;  /* TUN_* */
	__u32 base;   /* becomes the offset of the inner frame */
	__be32 key;   /* becomes tun_id */
	__u64 more;   /* becomes W_TUN1 */
};

/* Returns the reason why at() gave NULL in an outer packet. */
static __always_inline int peek_short(const struct view *v)
{
	return v->whole ? PEEK_LEAVE : PEEK_PULL;
}

/* Reads the outer IPv4 header at `l3`. */
static __always_inline int peek_ipv4(const struct view *v, __u64 *key, __u32 l3, struct outer *o)
{
	void *ip = at(v, l3, 20);
	__u64 sum = 0;

	if (!ip)
		return peek_short(v);
	if (load8(ip) != 0x45 || l3 + bpf_ntohs(load16(ip + 2)) != v->length ||
	    load16(ip + 6) & bpf_htons(FRAGMENT_MORE | FRAGMENT_OFFSET))
		return PEEK_LEAVE;
#pragma unroll
	for (int i = 0; i < 20; i += 4)
		sum += load32(ip + i);
	if (checksum_fold(sum) != 0xffff)
		return PEEK_LEAVE;
	o->l4 = l3 + 20;
	o->bytes = v->length - o->l4;
	o->tos = load8(ip + 1);
	o->ttl = load8(ip + 8);
	o->proto = load8(ip + 9);
	o->pseudo = checksum_fold((__u64)load32(ip + 12) + load32(ip + 16) + bpf_htons(o->proto) +
				  bpf_htons(o->bytes));
	key[W_TIP4] = load64(ip + 12);
	return PEEKED;
}

/* Reads the outer IPv6 header at `l3`. */
static __always_inline int peek_ipv6(const struct view *v, __u64 *key, __u32 l3, struct outer *o)
{
	void *ip = at(v, l3, 40);
	__u64 sum = 0;

	if (!ip)
		return peek_short(v);
	if (load8(ip) >> 4 != 6 || l3 + 40 + bpf_ntohs(load16(ip + 4)) != v->length)
		return PEEK_LEAVE;
#pragma unroll
	for (int i = 8; i < 40; i += 4)
		sum += load32(ip + i);
	o->l4 = l3 + 40;
	o->bytes = v->length - o->l4;
	o->tos = bpf_ntohl(load32(ip)) >> 20 & 0xff;
	o->proto = load8(ip + 6);
	o->ttl = load8(ip + 7);
	o->pseudo = checksum_fold(sum + bpf_htons(o->proto) + bpf_htons(o->bytes));
	key[W_TSRC0] = load64(ip + 8);
	key[W_TSRC1] = load64(ip + 16);
	key[W_TDST0] = load64(ip + 24);
	key[W_TDST1] = load64(ip + 32);
	return PEEKED;
}

/**
 * peek_ip - Reads the outer Ethernet and IP headers.
 * @v: the frame
 * @key: the words of IP addresses are set
 * @o: becomes the outer packet
 *
 * At tc a frame with a tag in it is left: the kernel could not take the headers off.
 *
 * Return: PEEKED, PEEK_PULL or PEEK_LEAVE.
 */
static __always_inline int peek_ip(const struct view *v, __u64 *key, struct outer *o)
{
	__u32 l3 = ETH_HLEN;
	void *p = at(v, 0, ETH_HLEN);
	__be16 type;

	if (!p)
		return peek_short(v);
	type = load16(p + 12);
#if AT_XDP
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (!is_vlan(type))
			break;
		p = at(v, l3, 4);
		if (!p)
			return peek_short(v);
		type = load16(p + 2);
		l3 += 4;
	}
#endif
	if (type == bpf_htons(ETH_P_IP))
		return peek_ipv4(v, key, l3, o);
	if (type == bpf_htons(ETH_P_IPV6))
		return peek_ipv6(v, key, l3, o);
	return PEEK_LEAVE;
}

/* Returns true when the checksum of the outer header is right, or left to a device: then UDP has the
 * sum of the pseudo header alone, and by chance at most one wrong packet in 2^16. */
static __always_inline bool peek_sum_is_right(hook_ctx *ctx, const struct outer *o, __u16 checksum)
{
	if (!AT_XDP && o->proto == IPPROTO_UDP && checksum == o->pseudo)
		return true;
	return sum_is_right(ctx, o->l4, o->base, o->proto == IPPROTO_UDP ? o->pseudo : 0,
			    o->l4 + o->bytes);
}

/* Reads VXLAN at `p`, with group policy if `kind` has it. */
static __always_inline int peek_vxlan(void *p, __u32 kind, struct outer *o)
{
	__u32 flags = bpf_ntohl(load32(p)), vni = bpf_ntohl(load32(p + 4));

	if (kind == TUNNEL_VXLAN_GBP && flags & VXLAN_GROUP_POLICY) {
		if (flags >> 16 & 0xff & ~GBP_FLAGS)
			return PEEK_LEAVE;
		o->more |= PLACE(bpf_htons(flags & 0xffff), 2, 4) | PLACE(flags >> 16 & 0xff, 1, 6);
		flags &= ~(VXLAN_GROUP_POLICY | VXLAN_POLICY_FIELDS);
	}
	if (flags != VXLAN_VNI || vni & 0xff)
		return PEEK_LEAVE;
	o->key = bpf_htonl(vni >> 8);
	return PEEKED;
}

/* Reads the fixed part of Geneve at `p`. */
static __always_inline int peek_geneve(void *p, struct outer *o)
{
	__u32 first = bpf_ntohl(load32(p));

	if (first >> 30 || (first & 0xffff) != ETH_P_TEB)
		return PEEK_LEAVE;
	o->base += (first >> 24 & 0x3f) * 4;
	if (first >> 16 & GENEVE_OAM)
		o->flags |= TUN_OAM;
	o->key = bpf_htonl(bpf_ntohl(load32(p + 4)) >> 8);
	return PEEKED;
}

/* Reads UDP, and VXLAN or Geneve without options. */
static __always_inline int peek_udp(const struct view *v, __u32 kind, struct outer *o,
				    __u16 *checksum)
{
	void *udp = at(v, o->l4, 16);
	int err;

	if (o->proto != IPPROTO_UDP)
		return PEEK_LEAVE;
	if (!udp)
		return peek_short(v);
	if (bpf_ntohs(load16(udp + 4)) != o->bytes)
		return PEEK_LEAVE;
	*checksum = load16(udp + 6);
	o->more = PLACE(load32(udp), 4, 0);
	o->flags = TUN_KEY | (*checksum ? TUN_CHECKSUM : 0);
	o->base = o->l4 + 16;
	err = kind == TUNNEL_GENEVE ? peek_geneve(udp + 8, o) : peek_vxlan(udp + 8, kind, o);
	return err;
}

/* Reads GRE with an Ethernet frame. */
static __always_inline int peek_gre(const struct view *v, struct outer *o, __u16 *checksum)
{
	void *gre = at(v, o->l4, 4);
	__u32 bits;

	if (o->proto != IPPROTO_GRE)
		return PEEK_LEAVE;
	if (!gre)
		return peek_short(v);
	bits = bpf_ntohs(load16(gre));
	if (bits & ~(GRE_CHECKSUM | GRE_KEY | GRE_SEQUENCE) ||
	    load16(gre + 2) != bpf_htons(ETH_P_TEB))
		return PEEK_LEAVE;
	o->base = o->l4 + 4;
	o->flags = 0;
	o->more = 0;
	o->key = 0;
	if (bits & GRE_CHECKSUM) {
		*checksum = 1;
		o->flags |= TUN_CHECKSUM;
		o->base += 4;
	}
	if (bits & GRE_KEY) {
		void *key = at(v, o->base, 4);

		if (!key)
			return peek_short(v);
		o->key = load32(key);
		o->flags |= TUN_KEY;
		o->base += 4;
	}
	if (bits & GRE_SEQUENCE)
		o->base += 4;
	return PEEKED;
}

/* ERSPAN, draft-foschiano-erspan-03, 4. */
#define ERSPAN_V1 bpf_htons(0x88be)
#define ERSPAN_V2 bpf_htons(0x22eb)
#define ERSPAN_SESSION 0x3ff
#define ERSPAN_INDEX bpf_htonl(0xfffff)

/* Returns the entry of the table of options with this header, or NULL; `number` becomes its number. */
static __always_inline const volatile struct tunnel_option *option_of(__be32 header, __u32 *number)
{
	const volatile struct config *c = config_here();

#pragma unroll
	for (int i = 0; i < TUNNEL_OPTIONS; i++) {
		const volatile struct tunnel_option *option = &c->options[i];

		if (option->header == header && option->in_use) {
			*number = i;
			return option;
		}
	}
	return 0;
}

/**
 * peek_erspan_fields - Writes the fields of ERSPAN to their place among the words of options.
 * @key: the words
 * @fields: the eight bytes, in memory order
 *
 * Return: false when the table has no place for them.
 */
static __always_inline bool peek_erspan_fields(__u64 *key, __u64 fields)
{
	const volatile struct tunnel_option *option;
	__u32 *words = (__u32 *)&key[W_OPT0];
	__u32 number;
	__u64 to;

	option = option_of(ERSPAN_FIELDS, &number);
	if (!option)
		return false;
	to = option->at / 4;
	opaque(to);
	if (to >= 2 * WORDS_OF_OPTIONS - 1)
		return false;
	opaque(to);
	words += to;
	__builtin_memcpy(words, &fields, sizeof(fields));
	((__u8 *)&key[W_OPT0])[1] = 1;
	return true;
}

/* Reads ERSPAN. A header without a sequence number is of type I, which has no fields. */
static __always_inline int peek_erspan(const struct view *v, __u64 *key, struct outer *o)
{
	void *gre = at(v, o->l4, 16), *rest;
	__u32 first, version, word;
	__be32 index;
	__u64 fields;
	__be16 type;

	if (o->proto != IPPROTO_GRE)
		return PEEK_LEAVE;
	if (!gre)
		return peek_short(v);
	type = load16(gre + 2);
	first = bpf_ntohl(load32(gre + 8));
	version = first >> 28;
	if (load16(gre) != bpf_htons(GRE_SEQUENCE))
		return PEEK_LEAVE;
	fields = PLACE(version, 1, 0);
	if (version == 1 && type == ERSPAN_V1) {
		index = load32(gre + 12) & ERSPAN_INDEX;
		fields |= PLACE(index, 4, 4);
		o->base = o->l4 + 16;
	} else if (version == 2 && type == ERSPAN_V2) {
		rest = at(v, o->l4 + 16, 4);
		if (!rest)
			return peek_short(v);
		word = bpf_ntohs(load16(rest + 2));
		fields |= PLACE(word >> 3 & 1, 1, 1) | PLACE(word >> 4 & 0x3f, 1, 2);
		o->base = o->l4 + 20;
	} else {
		return PEEK_LEAVE;
	}
	o->flags = TUN_KEY;
	o->more = 0;
	o->key = bpf_htonl(first & ERSPAN_SESSION);
	return peek_erspan_fields(key, fields) ? PEEKED : PEEK_LEAVE;
}

/**
 * peek_option - Reads a Geneve option into the words of the key in the state.
 * @ctx: the packet
 * @offset: of the option
 * @end: of the options
 *
 * A function of its own: the verifier reads it once.
 *
 * Return: the offset after the option; 0 when the packet is not for this hook.
 */
__noinline int peek_option(hook_ctx *ctx, __u32 offset, __u32 end)
{
	const volatile struct tunnel_option *option;
	struct state *st = state_here();
	struct view v = view_of_bytes(ctx);
	__u32 number = 0, bytes;
	__u8 *present;
	__u64 to;
	void *p;

	p = at(&v, offset, OPTION_HEADER_BYTES);
	if (!st || !p)
		return 0;
	option = option_of(load32(p) & OPTION_HEADER, &number);
	bytes = (load8(p + 3) & 0x1f) * 4;
	offset += OPTION_HEADER_BYTES;
	present = (__u8 *)&st->key[W_OPT0];
	if (!option || *present >> number & 1 || offset + bytes > end)
		return 0;
	*present |= 1u << number;
	to = option->at / 4;
#pragma clang loop unroll(disable)
	for (int i = 0; i < OPTION_BYTES / 4; i++) {
		if (i * 4 >= bytes)
			break;
		p = at(&v, offset, 4);
		if (!p)
			return 0;
		opaque(to);
		to &= (WORDS_OF_OPTIONS * 2) - 1;
		((__be32 *)&st->key[W_OPT0])[to] = load32(p);
		offset += 4;
		to++;
	}
	return offset;
}

/* Reads the options from `offset` to `end`. */
static __always_inline int peek_options(hook_ctx *ctx, __u32 offset, __u32 end)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < TUNNEL_OPTIONS; i++) {
		if (offset >= end)
			break;
		offset = peek_option(ctx, offset, end);
		if (!offset)
			return PEEK_LEAVE;
	}
	return offset == end ? PEEKED : PEEK_LEAVE;
}

/**
 * tunnel_peek - Reads the outer headers.
 * @ctx: the packet
 * @kind: enum tunnel_kind
 *
 * `base` and the words of the tunnel are set in the state.
 *
 * A function of its own, for the verifier.
 *
 * Return: PEEKED, PEEK_PULL or PEEK_LEAVE.
 */
__noinline int tunnel_peek(hook_ctx *ctx, __u32 kind)
{
	struct view v = { data_of(ctx), data_end_of(ctx), linear_length(ctx), true };
	struct state *st = state_here();
	struct outer o = {};
	__u16 checksum = 0;
	int err;

	if (!st)
		return PEEK_LEAVE;
	v.whole = v.end - v.data >= v.length;
#pragma unroll
	for (int i = W_TUN0; i < W_CT; i++)
		st->key[i] = 0;
	err = peek_ip(&v, st->key, &o);
	if (err)
		return err;
	if (kind == TUNNEL_GRE)
		err = peek_gre(&v, &o, &checksum);
	else if (kind == TUNNEL_ERSPAN)
		err = peek_erspan(&v, st->key, &o);
	else if (kind == TUNNEL_PUSHED)
		err = PEEK_LEAVE;
	else
		err = peek_udp(&v, kind, &o, &checksum);
	if (err)
		return err;
	if (o.base + ETH_HLEN > v.length)
		return PEEK_LEAVE;
	if (!at(&v, o.base, ETH_HLEN))
		return peek_short(&v);
	if (kind == TUNNEL_GENEVE && o.base > o.l4 + 16) {
		err = peek_options(ctx, o.l4 + 16, o.base);
		if (err)
			return err;
	}
	if (checksum && !peek_sum_is_right(ctx, &o, checksum))
		return PEEK_LEAVE;
	st->base = o.base;
	st->key[W_TUN0] = PLACE(o.key, 4, 0) | PLACE(bpf_htons(o.flags), 2, 4) | PLACE(o.tos, 1, 6) |
			  PLACE(o.ttl, 1, 7);
	st->key[W_TUN1] = o.more;
	return PEEKED;
}

#if !AT_XDP

/**
 * tunnel_give - Leaves a packet that is still to be segmented to the kernel's device of the tunnel.
 * @ctx: the packet, as it arrived
 * @st: its state
 * @entrance: port.tunnel_helper
 *
 * The packet comes out of the device as one of the tunnel's port (tunnel_helper.h).
 *
 * Return: the verdict.
 */
static __always_inline int tunnel_give(hook_ctx *ctx, const struct state *st, __u32 entrance)
{
	struct port *outer = port_of(st->outer_port);
	__u32 bytes = frame_length(ctx);

	count_flow(st->outer_flow, bytes, 0);
	count_ingress(st->outer_port, bytes);
	count_tx(st->in_port, bytes);
	/* At a device of the host the packet is where its address is. */
	if (outer && outer->flags & PORT_UNDERLAY)
		return VERDICT_NONE;
	if (entrance == HELPER_PASS || entrance == ctx->ifindex)
		return VERDICT_NONE;
	return bpf_redirect(entrance, BPF_F_INGRESS);
}

#endif

/**
 * tunnel - The program in TAIL_TUNNEL: looks up the packet in a packet whose flow has FLOW_POP.
 * @ctx: the packet, with `outer_port`, `outer_flow` and `popping` in the state
 *
 * Return: the verdict.
 */
static __always_inline int tunnel(hook_ctx *ctx)
{
	struct state *st = state_here();
	struct slot_detail *detail;
	struct emc_key key = {};
	struct port *port;
	__u32 entrance, length, tcp_flags;
	int err, verdict;
	bool has_key;

	if (!st)
		return drop(DROP_UNSUPPORTED);
	if (!st->popping)
		state_init(st, st->outer_port);
	/* To this program, and to it again when headers were made linear. */
	st->calls += 2;
	st->popping = 1;
	st->base = 0;
	detail = detail_of(st->outer_flow);
	if (!detail)
		return lookup_leave_state(ctx, st);
	st->in_port = detail->tunnel;
	port = port_of(st->in_port);
	if (!port || !port->tunnel)
		return lookup_leave_state(ctx, st);
	entrance = *(volatile __u32 *)&port->tunnel_helper;
	if (is_gso(ctx) && (!entrance || has_tag(ctx)))
		return lookup_leave_state(ctx, st);
	err = tunnel_peek(ctx, port->tunnel);
	if (err == PEEK_PULL)
		return lookup_unparsed(ctx, PARSE_PULL, st);
	if (err)
		return lookup_leave_state(ctx, st);
#if !AT_XDP
	if (is_gso(ctx))
		return tunnel_give(ctx, st, entrance);
#endif
	st->tunnelled = 1;
	has_key = tunnel_key(ctx, st, &key, &length, &tcp_flags);
	if (has_key) {
		verdict = tunnel_fast(ctx, st, &key, length, tcp_flags);
		if (verdict != NOT_HERE)
			return verdict;
	}
	return tunnel_lookup(ctx, &key, has_key);
}

#endif
