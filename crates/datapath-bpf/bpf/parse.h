/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a frame to the words of its key. The result equals that of flow::extract, whose
 * documentation says which fields of a malformed frame are zero.
 *
 * parse_headers() is inlined and writes to the key that it is given. Headers that are rare and
 * costly for the verifier (MPLS, IPv6 extension headers, neighbour messages) are left to
 * parse_all(), which is a function of its own, as are the two loops. The verifier reads each of
 * these functions once, with unknown arguments, and not once for each path that leads there.
 *
 * Functions that return int return enum parse. Parameters that several of them share:
 *
 *   key      the words to fill in; the caller zeroed them
 *   v        the frame
 *   layers   becomes the offsets of layers
 *   scope    PARSE_COMMON: rare headers give PARSE_ALL
 */
#ifndef SLIPSWITCH_PARSE_H
#define SLIPSWITCH_PARSE_H

#include <linux/in.h>
#include <linux/in6.h>

#include "key.h"
#include "nsh.h"
#include "view.h"

#define FRAGMENT_MORE 0x2000
#define FRAGMENT_OFFSET 0x1fff
#define EXTENSIONS 6 /* IPv6 extension headers followed */
#define ND_OPTIONS 6 /* neighbour options looked at */
#define NEIGHBOUR_SOLICIT 135
#define NEIGHBOUR_ADVERT 136
#define PROTO_ICMPV6 58
#define PROTO_IPV6_LATER 44 /* nw_proto of later fragments, whatever they carry */

/* The headers that parse_headers() follows. */
enum parse_scope {
	PARSE_COMMON,       /* headers of most packets; PARSE_ALL for others */
	PARSE_EVERY_HEADER, /* also MPLS, IPv6 extension headers, neighbour messages */
};

/* Returns true for the Ethernet types of VLAN tags, in network order. */
static __always_inline bool is_vlan(__u16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/**
 * parse_neighbour - Reads a neighbour solicitation or advertisement.
 * @ctx: the packet
 * @offset: its ICMPv6 header
 * @end: end of its IP packet
 *
 * The words go into the key in the state. If an address option occurs twice, neither the addresses
 * nor the target count.
 */
__noinline int parse_neighbour(hook_ctx *ctx, __u32 offset, __u32 end)
{
	struct state *st = state_here();
	__u64 source = 0, target = 0, twice = 0;
	__u32 first = 0, from = offset;
	struct view v;
	void *p;

	if (!st)
		return PARSE_UP;
	v = view_of_state(ctx, st);
	p = at(&v, offset, 8);
	if (!p)
		return short_of(&v);
	st->key[W_ND2] = PLACE(load32(p + 4), 4, 0);
	if (from + 24 > end)
		return PARSED;
	if (!at(&v, from, 24))
		return short_of(&v);
	from += 24;
#pragma clang loop unroll(disable)
	for (int i = 0; i < ND_OPTIONS; i++) {
		__u32 kind, len;
		__u64 address;

		/* Fewer than 8 bytes are no option, whatever their length field is. */
		if (from + 8 > end)
			goto done;
		if (from > MAX_OFFSET)
			return PARSE_UP;
		p = at(&v, from, 8);
		if (!p)
			return short_of(&v);
		kind = load8(p);
		len = load8(p + 1) * 8;
		if (!len || from + len > end)
			goto done;
		from += len;
		address = PLACE(load32(p + 2), 4, 0) | PLACE(load16(p + 6), 2, 4);
		if (len != 8)
			continue;
		if (kind == 1) {
			twice |= source;
			source = address;
		} else if (kind == 2) {
			twice |= target;
			target = address;
		} else {
			continue;
		}
		if (twice)
			break;
		if (!first)
			first = kind;
	}
	if (!twice && from + 8 <= end)
		return PARSE_UP;
done:
	st->key[W_ND2] |= PLACE(first, 1, 4);
	p = at(&v, offset + 8, 16);
	if (twice || !p)
		return PARSED;
	st->key[W_ND0] = load64(p);
	st->key[W_ND1] = load64(p + 8);
	st->key[W_HW0] = source;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	st->key[W_HW0] |= target << 48;
	st->key[W_HW1] = target >> 16;
#else
	st->key[W_HW0] |= target >> 48;
	st->key[W_HW1] = target << 16;
#endif
	return PARSED;
}

/**
 * parse_transport - Reads the transport header, as the protocol number demands.
 * @proto: protocol number
 * @offset: of the transport header
 * @end: of its IP packet
 */
static __always_inline int parse_transport(__u64 *key, hook_ctx *ctx, const struct view *v,
					   __u32 proto, __u32 offset, __u32 end,
					   struct layers *layers, const enum parse_scope scope)
{
	__u32 behind = end - offset;
	void *p;

	if (proto == IPPROTO_TCP) {
		__u16 bits;

		if (behind < 20)
			return PARSED;
		p = at(v, offset, 20);
		if (!p)
			return short_of(v);
		bits = bpf_ntohs(load16(p + 12));
		if (bits >> 12 < 5 || (bits >> 12) * 4 > behind)
			return PARSED;
		layers->tcp_flags = bits & 0xfff;
		MERGE(key, W_TP, PLACE(load32(p), 4, 0));
		PUT(key, W_HW1, PLACE(bpf_htons(bits & 0xfff), 2, 4));
		return PARSED;
	}
	if (proto == IPPROTO_SCTP) {
		if (behind < 12)
			return PARSED;
		p = at(v, offset, 12);
		if (!p)
			return short_of(v);
		MERGE(key, W_TP, PLACE(load32(p), 4, 0));
		return PARSED;
	}
	if (proto != IPPROTO_UDP && proto != IPPROTO_ICMP && proto != PROTO_ICMPV6 &&
	    proto != IPPROTO_IGMP)
		return PARSED;
	if (behind < 8)
		return PARSED;
	p = at(v, offset, 8);
	if (!p)
		return short_of(v);
	if (proto == IPPROTO_UDP) {
		MERGE(key, W_TP, PLACE(load32(p), 4, 0));
		return PARSED;
	}
	MERGE(key, W_TP, PLACE(load8(p), 1, 1) | PLACE(load8(p + 1), 1, 3));
	if (proto == IPPROTO_IGMP)
		MERGE(key, W_REST, PLACE(load32(p + 4), 4, 0));
	if (wants(ND_BITS) && proto == PROTO_ICMPV6 && load8(p + 1) == 0 &&
	    (load8(p) == NEIGHBOUR_SOLICIT || load8(p) == NEIGHBOUR_ADVERT))
		return scope == PARSE_EVERY_HEADER ? parse_neighbour(ctx, offset, end) : PARSE_ALL;
	return PARSED;
}

/**
 * ip_bytes - Returns the fields of W_ETH1 that IP and ARP set.
 * @frag: nw_frag
 * @tos: nw_tos
 * @ttl: nw_ttl
 * @proto: nw_proto
 */
static __always_inline __u64 ip_bytes(__u32 frag, __u32 tos, __u32 ttl, __u32 proto)
{
	return PLACE(frag, 1, 4) | PLACE(tos, 1, 5) | PLACE(ttl, 1, 6) | PLACE(proto, 1, 7);
}

/**
 * parse_ipv4 - Reads the IPv4 header and the headers after it.
 * @key: the words to fill in
 * @ctx: the packet
 * @v: its bytes
 * @offset: of the header
 * @layers: becomes the offsets of layers
 * @scope: the headers to follow
 *
 * Return: enum parse.
 */
static __always_inline int parse_ipv4(__u64 *key, hook_ctx *ctx, const struct view *v, __u32 offset,
				      struct layers *layers, const enum parse_scope scope)
{
	__u32 behind = v->length - offset;
	__u32 header, total, fragment, frag = 0, proto;
	void *p = at(v, offset, 20);

	if (!p)
		return short_of(v);
	header = (load8(p) & 0xf) * 4;
	total = bpf_ntohs(load16(p + 2));
	if (header < 20 || total < header || total > behind || behind - total > 0xffff)
		return PARSED;
	fragment = bpf_ntohs(load16(p + 6));
	if (fragment & (FRAGMENT_MORE | FRAGMENT_OFFSET))
		frag = fragment & FRAGMENT_OFFSET ? FRAG_ANY | FRAG_LATER : FRAG_ANY;
	proto = load8(p + 9);
	PUT(key, W_IP4, load64(p + 12));
	MERGE(key, W_ETH1, ip_bytes(frag, load8(p + 1), load8(p + 8), proto));
	layers->l4 = offset + header;
	if (frag & FRAG_LATER)
		return PARSED;
	return parse_transport(key, ctx, v, proto, offset + header, offset + total, layers, scope);
}

/* Returns true for the protocol number of an extension header. */
static __always_inline bool is_extension(__u32 proto)
{
	return proto == IPPROTO_HOPOPTS || proto == IPPROTO_ROUTING || proto == IPPROTO_DSTOPTS ||
	       proto == IPPROTO_AH || proto == IPPROTO_FRAGMENT;
}

/* The result of parse_extensions() in one word: offset, protocol, fragment bits, enum parse. The
 * last bit is set when a header is cut off. */
#define LED_TO(offset, proto, frag, err) \
	((__u64)(offset) | (__u64)(proto) << 32 | (__u64)(frag) << 40 | (__u64)(err) << 48)
#define CUT_OFF ((__u64)1 << 63)

/**
 * parse_extensions - Follows IPv6 extension headers.
 * @ctx: the packet
 * @offset: of the first one
 * @end: of the IP packet
 * @proto: type of the first one
 *
 * Return: LED_TO() of the transport header.
 */
__noinline __u64 parse_extensions(hook_ctx *ctx, __u32 offset, __u32 end, __u32 proto)
{
	struct state *st = state_here();
	struct view v;
	__u32 frag = 0;

	if (!st)
		return LED_TO(0, 0, 0, PARSE_UP);
	v = view_of_state(ctx, st);

#pragma clang loop unroll(disable)
	for (int i = 0; i <= EXTENSIONS; i++) {
		__u32 len;
		void *p;

		if (!is_extension(proto))
			return LED_TO(offset, proto, frag, PARSED);
		if (offset + 8 > end)
			return CUT_OFF;
		if (offset > MAX_OFFSET)
			return LED_TO(0, 0, 0, PARSE_UP);
		p = at(&v, offset, 8);
		if (!p)
			return LED_TO(0, 0, 0, v.whole ? PARSE_UP : PARSE_PULL);
		len = load8(p + 1) * 8 + 8;
		if (proto == IPPROTO_AH)
			len = load8(p + 1) * 4 + 8;
		if (proto == IPPROTO_FRAGMENT)
			len = 8;
		if (offset + len > end)
			return CUT_OFF;
		offset += len;
		if (proto == IPPROTO_FRAGMENT && load16(p + 2)) {
			frag |= FRAG_ANY;
			if (load16(p + 2) & bpf_htons(0xfff8))
				return LED_TO(offset, IPPROTO_FRAGMENT, FRAG_ANY | FRAG_LATER,
					      PARSED);
		}
		proto = load8(p);
	}
	return LED_TO(0, 0, 0, PARSE_UP);
}

/**
 * parse_ipv6 - Reads the IPv6 header and the headers after it.
 * @key: the words to fill in
 * @ctx: the packet
 * @v: its bytes
 * @offset: of the header
 * @layers: becomes the offsets of layers
 * @scope: the headers to follow
 *
 * Return: enum parse.
 */
static __always_inline int parse_ipv6(__u64 *key, hook_ctx *ctx, const struct view *v, __u32 offset,
				      struct layers *layers, const enum parse_scope scope)
{
	__u32 behind = v->length - offset;
	__u32 payload, first, proto, frag = 0, next = offset + 40, end;
	void *p = at(v, offset, 40);
	__u8 hops;

	if (!p)
		return short_of(v);
	payload = bpf_ntohs(load16(p + 4));
	if (payload > behind - 40 || behind - 40 - payload > 0xffff)
		return PARSED;
	PUT(key, W_SRC0, load64(p + 8));
	PUT(key, W_SRC1, load64(p + 16));
	PUT(key, W_DST0, load64(p + 24));
	PUT(key, W_DST1, load64(p + 32));
	end = next + payload;
	proto = load8(p + 6);
	first = bpf_ntohl(load32(p));
	hops = load8(p + 7);
	if (is_extension(proto)) {
		__u64 led;

		if (scope == PARSE_COMMON)
			return PARSE_ALL;
		led = parse_extensions(ctx, next, end, proto);
		if (led & CUT_OFF)
			return PARSED;
		if (led >> 48)
			return led >> 48;
		next = (__u32)led;
		proto = led >> 32 & 0xff;
		frag = led >> 40 & 0xff;
	}
	MERGE(key, W_ETH1, ip_bytes(frag, first >> 20 & 0xff, hops, proto));
	MERGE(key, W_REST, PLACE(bpf_htonl(first & 0xfffff), 4, 4));
	layers->l4 = next;
	if (frag & FRAG_LATER)
		return PARSED;
	if (next > MAX_OFFSET)
		return PARSE_UP;
	return parse_transport(key, ctx, v, proto, next, end, layers, scope);
}

/**
 * parse_arp - Reads ARP and RARP. An opcode above 255 is 0 in a key.
 * @key: the words to fill in
 * @v: the packet's bytes
 * @offset: of the header
 *
 * Return: enum parse.
 */
static __always_inline int parse_arp(__u64 *key, const struct view *v, __u32 offset)
{
	void *p = at(v, offset, 28);
	__u16 op;

	if (!p)
		return short_of(v);
	if (load16(p) != bpf_htons(1) || load16(p + 2) != bpf_htons(ETH_P_IP) ||
	    load16(p + 4) != bpf_htons(0x0604))
		return PARSED;
	op = bpf_ntohs(load16(p + 6));
	PUT(key, W_IP4, PLACE(load32(p + 14), 4, 0) | PLACE(load32(p + 24), 4, 4));
	MERGE(key, W_ETH1, ip_bytes(0, 0, 0, op > 255 ? 0 : op));
	PUT(key, W_HW0,
	    PLACE(load32(p + 8), 4, 0) | PLACE(load16(p + 12), 2, 4) | PLACE(load16(p + 18), 2, 6));
	PUT(key, W_HW1, PLACE(load32(p + 20), 4, 0));
	return PARSED;
}

/**
 * parse_nsh - Reads the Network Service Header (RFC 8300).
 * @key: the words to fill in
 * @v: the packet's bytes
 * @offset: of the header
 *
 * The packet below it is not looked at.
 *
 * Return: enum parse.
 */
static __always_inline int parse_nsh(__u64 *key, const struct view *v, __u32 offset)
{
	__u32 behind = v->length - offset, first, bytes, kind;
	void *p = at(v, offset, NSH_BASE);

	if (!p)
		return short_of(v);
	first = bpf_ntohs(load16(p));
	kind = load8(p + 2);
	bytes = nsh_bytes(first);
	if (bytes > behind || !nsh_is_possible(first, kind))
		return PARSED;
	PUT(key, W_ND0,
	    PLACE(nsh_flags(first), 1, 0) | PLACE(nsh_ttl(first), 1, 1) |
		    PLACE(load16(p + 2), 2, 2) | PLACE(load32(p + 4), 4, 4));
	if (kind != NSH_CONTEXTS)
		return PARSED;
	p = at(v, offset + NSH_BASE, 16);
	if (!p)
		return short_of(v);
	PUT(key, W_ND1, load64(p));
	PUT(key, W_ND2, load64(p + 8));
	return PARSED;
}

/**
 * parse_mpls - Reads up to three MPLS labels.
 * @key: the words to fill in
 * @v: the packet's bytes
 * @offset: of the label stack; becomes its end, or 0 when the stack goes on
 *
 * Return: enum parse.
 */
static __always_inline int parse_mpls(__u64 *key, const struct view *v, __u32 *offset)
{
	__be32 label[3] = {};
	bool bottom = false;

#pragma unroll
	for (int i = 0; i < 3; i++) {
		void *p;

		if (bottom)
			break;
		p = at(v, *offset, 4);
		if (!p) {
			if (!v->whole)
				return PARSE_PULL;
			break;
		}
		label[i] = load32(p);
		*offset += 4;
		bottom = label[i] & bpf_htonl(0x100);
	}
	if (!bottom)
		*offset = 0;
	PUT(key, W_MPLS0, PLACE(label[0], 4, 0) | PLACE(label[1], 4, 4));
	PUT(key, W_MPLS1, PLACE(label[2], 4, 0));
	return PARSED;
}

/**
 * parse_vlans - Reads VLAN tags, outside of the frame and in it.
 * @key: the words to fill in
 * @ctx: the packet
 * @v: its bytes
 * @type: Ethernet type before the tags; becomes the one after them
 * @offset: of the bytes after the type; becomes the one after the tags
 * @scope: PARSE_COMMON: the frame is not in a tunnel
 *
 * Return: enum parse.
 */
static __always_inline int parse_vlans(__u64 *key, hook_ctx *ctx, const struct view *v,
				       __be16 *type, __u32 *offset, const enum parse_scope scope)
{
	__u32 tag = 0, count = 0;

	/* That of the outer frame is none of the inner one. */
	if (has_tag(ctx) && (scope == PARSE_COMMON || !v->inner)) {
		tag = PLACE(bpf_htons(tag_tpid(ctx)), 2, 0) |
		      PLACE(bpf_htons(tag_tci(ctx) | VLAN_CFI), 2, 2);
		MERGE(key, W_PORT, PLACE(tag, 4, 4));
		count = 1;
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		void *p;

		if (count >= settings.vlan_limit || !is_vlan(*type))
			break;
		p = at(v, *offset, 4);
		if (!p) {
			if (!v->whole)
				return PARSE_PULL;
			break;
		}
		tag = PLACE(*type, 2, 0) | PLACE(load16(p) | bpf_htons(VLAN_CFI), 2, 2);
		if (count)
			MERGE(key, W_TP, PLACE(tag, 4, 4));
		else
			MERGE(key, W_PORT, PLACE(tag, 4, 4));
		count++;
		*type = load16(p + 2);
		*offset += 4;
	}
	return PARSED;
}

/**
 * parse_llc - Reads the Ethernet type of an 802.3 frame out of its LLC/SNAP header.
 * @v: the packet's bytes
 * @type: becomes the Ethernet type; 0x05ff when the header has none
 * @offset: of the LLC header; becomes the end of a SNAP header with a type
 *
 * Return: enum parse.
 */
static __always_inline int parse_llc(const struct view *v, __be16 *type, __u32 *offset)
{
	void *p = at(v, *offset, 8);

	*type = bpf_htons(0x05ff);
	if (!p)
		return short_of(v);
	if (load32(p) == bpf_htonl(0xaaaa0300) && load16(p + 4) == 0 &&
	    bpf_ntohs(load16(p + 6)) >= 0x600) {
		*type = load16(p + 6);
		*offset += 8;
	}
	return PARSED;
}

/**
 * parse_clear - Zeroes the words of headers.
 * @key: the words; the ingress port in W_PORT and metadata are set before, and stay
 */
static __always_inline void parse_clear(__u64 *key)
{
	PUT(key, W_ETH0, 0);
	PUT(key, W_ETH1, 0);
	PUT(key, W_IP4, 0);
	PUT(key, W_TP, 0);
	if (!wants(COLD_BITS))
		return;
	PUT(key, W_REST, 0);
	PUT(key, W_MPLS0, 0);
	PUT(key, W_MPLS1, 0);
	PUT(key, W_SRC0, 0);
	PUT(key, W_SRC1, 0);
	PUT(key, W_DST0, 0);
	PUT(key, W_DST1, 0);
	PUT(key, W_ND0, 0);
	PUT(key, W_ND1, 0);
	PUT(key, W_HW0, 0);
	PUT(key, W_HW1, 0);
	PUT(key, W_ND2, 0);
}

/* Sets the metadata of a packet from a port. */
static __always_inline void metadata_of_port(__u64 *key, __u32 in_port)
{
	PUT(key, W_RECIRC, 0);
	PUT(key, W_PORT, PLACE(bpf_htons(in_port), 2, 0));
	PUT(key, W_META, 0);
}

/* Sets the metadata of a packet that is looked up again. */
static __always_inline void metadata_of_state(__u64 *key, const struct state *st)
{
	PUT(key, W_RECIRC,
	    PLACE(bpf_htonl(st->recirc_id), 4, 0) | PLACE(bpf_htonl(st->dp_hash), 4, 4));
	PUT(key, W_PORT,
	    PLACE(bpf_htons(st->in_port), 2, 0) | PLACE(bpf_htons(st->bare ? TPID_BARE : 0), 2, 4));
	PUT(key, W_META, PLACE(bpf_htonl(st->priority), 4, 0) | PLACE(bpf_htonl(st->mark), 4, 4));
}

/* Makes sure that a state has metadata of connection tracking, of no connection if there was none. */
static __always_inline void state_has_ct(struct state *st)
{
	if (st->tracked)
		return;
#pragma unroll
	for (int i = W_CT; i < WORDS; i++)
		st->key[i] = 0;
}

/* Makes sure that a state has metadata of a tunnel, of none if the packet did not come out of one. */
static __always_inline void state_has_tunnel(struct state *st)
{
	if (st->tunnelled)
		return;
#pragma unroll
	for (int i = W_TUN0; i < W_CT; i++)
		st->key[i] = 0;
}

/**
 * parse_headers - Fills in all words except metadata: in_port, recirc_id, dp_hash, priority, mark.
 * @key: the words; W_PORT has the ingress port
 * @ctx: the packet
 * @v: its bytes
 * @layers: zeros; becomes the offsets of layers
 * @scope: which headers are followed
 *
 * Return: enum parse.
 */
static __always_inline int parse_headers(__u64 *key, hook_ctx *ctx, const struct view *v,
					 struct layers *layers, const enum parse_scope scope)
{
	__u32 offset = ETH_HLEN;
	__be16 type;
	void *eth;
	int err;

	parse_clear(key);
	eth = v->data;
	if (eth + ETH_HLEN > v->end)
		return short_of(v);
	PUT(key, W_ETH0, load64(eth));
	PUT(key, W_ETH1, PLACE(load32(eth + 8), 4, 0));
	type = load16(eth + 12);
	err = parse_vlans(key, ctx, v, &type, &offset, scope);
	if (err)
		return err;
	if (bpf_ntohs(type) < 0x600) {
		err = parse_llc(v, &type, &offset);
		if (err)
			return err;
	}
	MERGE(key, W_PORT, PLACE(type, 2, 2));
	layers->l3 = offset;
	if ((wants(BIT(W_MPLS0) | BIT(W_MPLS1)) || settings.features & (FEATURE_LAYERS | FEATURE_MPLS)) &&
	    (type == bpf_htons(ETH_P_MPLS_UC) || type == bpf_htons(ETH_P_MPLS_MC))) {
		if (scope == PARSE_COMMON)
			return PARSE_ALL;
		layers->mpls = offset;
		err = parse_mpls(key, v, &offset);
		layers->l3 = offset;
		return err;
	}
	if (!wants(NEEDS_L3) && !(settings.features & FEATURE_LAYERS))
		return PARSED;
	if (type == bpf_htons(ETH_P_IP))
		return parse_ipv4(key, ctx, v, offset, layers, scope);
	if (type == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(key, ctx, v, offset, layers, scope);
	if (type == bpf_htons(ETH_P_ARP) || type == bpf_htons(ETH_P_RARP))
		return parse_arp(key, v, offset);
	if (wants(NSH_BITS) && type == bpf_htons(ETH_P_NSH))
		return parse_nsh(key, v, offset);
	return PARSED;
}

/**
 * parse_all - Parses the whole key and the offsets of layers into the state.
 * @ctx: the packet, whose metadata is in the state
 *
 * For programs that the loader compiles with all words (settings.needs).
 *
 * Return: enum parse.
 */
__noinline int parse_all(hook_ctx *ctx)
{
	struct state *st = state_here();
	struct layers layers = {};
	struct view v;
	int err;

	if (!st)
		return PARSE_UP;
	v = view_of_state(ctx, st);
	metadata_of_state(st->key, st);
	state_has_ct(st);
	state_has_tunnel(st);
	err = parse_headers(st->key, ctx, &v, &layers, PARSE_EVERY_HEADER);
	st->mpls = layers.mpls;
	st->l3 = layers.l3;
	st->l4 = layers.l4;
	return err;
}

/* Returns the TCP flags of the key that parse_all() made, a host integer. */
static __always_inline __u32 state_tcp_flags(const struct state *st)
{
	return bpf_ntohs(((const __be16 *)&st->key[W_HW1])[2]);
}

#endif
