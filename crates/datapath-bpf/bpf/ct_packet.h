/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a packet to the tuple of its connection, as conntrack's extract.rs does it. Packets that are
 * rare have no tuple here: the daemon tracks them. */
#ifndef SLIPSWITCH_CT_PACKET_H
#define SLIPSWITCH_CT_PACKET_H

#include "checksum.h"
#include "ct_tuple.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_PSH 0x08
#define TCP_ACK 0x10
#define TCP_URG 0x20

/* A TCP segment without its data. Host integers. */
struct ct_segment {
	__u32 seq;
	__u32 ack;
	__u32 data;   /* bytes */
	__u16 window; /* unscaled */
	__u16 flags;  /* 0: the packet is not TCP */
	__u32 scale;  /* CT_SCALE_KNOWN and the shift of the window; 0: no such option, or not read */
};

/* The parts of the transport headers that tracking reads; all of them begin with ports. */
struct ct_tcp_header {
	__be16 sport, dport;
	__be32 seq, ack;
	__be16 flags, window;
};

/* Results of ct_extract(). */
#define CT_NO_TUPLE 0 /* the daemon has to track the packet */
#define CT_TUPLE 1
#define CT_INVALID 2  /* the packet cannot be tracked */
#define CT_ERROR 3    /* an ICMP error: the tuple is the reverse of that of the packet in it */
#define CT_WRONG_IP 4 /* the checksum of the IPv4 header is wrong: the packet cannot be tracked */

/* Takes addresses and version of IPv4. A header with options is for the daemon. */
static __always_inline int ct_take_ipv4(hook_ctx *ctx, __u32 l3, struct ct_tuple *t)
{
	__u32 words[5];
	__u64 sum = 0;

	if (edit_load(ctx, l3, words, sizeof(words)))
		return CT_NO_TUPLE;
	if ((bpf_ntohl(words[0]) >> 24) != 0x45)
		return CT_NO_TUPLE;
	for (int i = 0; i < 5; i++)
		sum += words[i];
	if (checksum_fold(sum) != 0xffff)
		return CT_WRONG_IP;
	t->src[0] = 0;
	t->src[1] = bpf_ntohl(words[3]);
	t->dst[0] = 0;
	t->dst[1] = bpf_ntohl(words[4]);
	t->kind = 0;
	return CT_TUPLE;
}

/* Takes addresses and version of IPv6. */
static __always_inline int ct_take_ipv6(hook_ctx *ctx, __u32 l3, struct ct_tuple *t)
{
	__be64 words[5];

	if (edit_load(ctx, l3, words, sizeof(words)))
		return CT_NO_TUPLE;
	if (bpf_be64_to_cpu(words[0]) >> 60 != 6)
		return CT_NO_TUPLE;
	t->src[0] = bpf_be64_to_cpu(words[1]);
	t->src[1] = bpf_be64_to_cpu(words[2]);
	t->dst[0] = bpf_be64_to_cpu(words[3]);
	t->dst[1] = bpf_be64_to_cpu(words[4]);
	t->kind = CT_KIND_V6;
	return CT_TUPLE;
}

/* Returns true for an ICMP error, which quotes a packet. */
static __always_inline bool ct_is_error(bool v6, __u8 type)
{
	return v6 ? type >= 1 && type <= 4 :
		    type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

/* Takes the class of an ICMP request or reply, code and identifier. */
static __always_inline int ct_take_icmp(hook_ctx *ctx, const struct ip *ip, struct ct_tuple *t)
{
	__u8 class, reply = 0, head[8];

	if (ip->l4 + 8 > ip->end)
		return CT_INVALID;
	if (edit_load(ctx, ip->l4, head, sizeof(head)))
		return CT_NO_TUPLE;
	if (ct_is_error(ip->v6, head[0]))
		return CT_ERROR;
	if (ip->v6 ? head[0] == 128 || head[0] == 129 : head[0] == 8 || !head[0])
		class = CT_CLASS_ECHO;
	else if (!ip->v6 && (head[0] == 13 || head[0] == 14))
		class = CT_CLASS_TIMESTAMP;
	else if (!ip->v6 && (head[0] == 15 || head[0] == 16))
		class = CT_CLASS_INFORMATION;
	else
		return CT_INVALID;
	if (head[1])
		return CT_INVALID;
	reply = ip->v6 ? head[0] == 129 : !head[0] || head[0] == 14 || head[0] == 16;
	t->kind |= class << CT_KIND_CLASS_SHIFT;
	t->request = !reply;
	t->sport = (__u16)head[4] << 8 | head[5];
	return CT_TUPLE;
}

/* Takes the ports of TCP and the segment. */
static __always_inline int ct_take_tcp(hook_ctx *ctx, const struct ip *ip, struct ct_tuple *t,
				       struct ct_segment *s)
{
	struct ct_tcp_header h;
	__u32 header;

	if (ip->l4 + 20 > ip->end)
		return CT_INVALID;
	if (edit_load(ctx, ip->l4, &h, sizeof(h)))
		return CT_NO_TUPLE;
	header = (bpf_ntohs(h.flags) >> 12) * 4;
	if (header < 20 || ip->l4 + header > ip->end)
		return CT_INVALID;
	t->sport = bpf_ntohs(h.sport);
	t->dport = bpf_ntohs(h.dport);
	s->seq = bpf_ntohl(h.seq);
	s->ack = bpf_ntohl(h.ack);
	s->data = ip->end - ip->l4 - header;
	s->window = bpf_ntohs(h.window);
	s->flags = bpf_ntohs(h.flags) & 0xfff;
	return t->sport && t->dport ? CT_TUPLE : CT_INVALID;
}

/* Takes the ports of UDP and SCTP. A datagram that is shorter than its IP packet is for the daemon. */
static __always_inline int ct_take_ports(hook_ctx *ctx, const struct ip *ip, struct ct_tuple *t)
{
	__u32 length;
	__be16 h[4];

	if (ip->l4 + 8 > ip->end)
		return CT_INVALID;
	if (edit_load(ctx, ip->l4, h, sizeof(h)))
		return CT_NO_TUPLE;
	t->sport = bpf_ntohs(h[0]);
	t->dport = bpf_ntohs(h[1]);
	if (!t->sport || !t->dport)
		return CT_INVALID;
	if (ip->proto != IPPROTO_UDP)
		return ip->l4 + 12 > ip->end ? CT_NO_TUPLE : CT_TUPLE;
	length = bpf_ntohs(h[2]);
	if (length < 8 || ip->l4 + length > ip->end)
		return CT_INVALID;
	return ip->l4 + length == ip->end ? CT_TUPLE : CT_NO_TUPLE;
}

/* Takes the ports, or the ICMP message, of a packet that an ICMP error quotes. */
static __always_inline int ct_take_quoted(hook_ctx *ctx, const struct ip *ip, struct ct_tuple *t)
{
	__be16 ports[2];

	if (ip->l4 + 8 > ip->end)
		return CT_INVALID;
	if (ip->proto == (ip->v6 ? PROTO_ICMPV6 : IPPROTO_ICMP)) {
		int taken = ct_take_icmp(ctx, ip, t);

		return taken == CT_ERROR ? CT_INVALID : taken; /* an error about an error */
	}
	if (ip->proto != IPPROTO_TCP && ip->proto != IPPROTO_UDP && ip->proto != IPPROTO_SCTP)
		return CT_TUPLE;
	if (edit_load(ctx, ip->l4, ports, sizeof(ports)))
		return CT_NO_TUPLE;
	t->sport = bpf_ntohs(ports[0]);
	t->dport = bpf_ntohs(ports[1]);
	return t->sport && t->dport ? CT_TUPLE : CT_INVALID;
}

/* Takes the IPv4 header that an ICMP error quotes at `ip->l3`. */
static __always_inline int ct_quoted_ipv4(hook_ctx *ctx, struct ip *ip, struct ct_tuple *t)
{
	__u32 words[5];

	if (ip->l3 + 20 > ip->end)
		return CT_INVALID;
	if (edit_load(ctx, ip->l3, words, sizeof(words)))
		return CT_NO_TUPLE;
	words[0] = bpf_ntohl(words[0]) >> 24;
	if (words[0] >> 4 != 4 || (words[0] & 0xf) < 5 ||
	    bpf_ntohl(words[1]) & (FRAGMENT_MORE | FRAGMENT_OFFSET))
		return CT_INVALID;
	if (words[0] != 0x45)
		return CT_NO_TUPLE;
	ip->l4 = ip->l3 + 20;
	ip->proto = bpf_ntohl(words[2]) >> 16;
	t->src[0] = t->dst[0] = 0;
	t->src[1] = bpf_ntohl(words[3]);
	t->dst[1] = bpf_ntohl(words[4]);
	return CT_TUPLE;
}

/* The same of IPv6. */
static __always_inline int ct_quoted_ipv6(hook_ctx *ctx, struct ip *ip, struct ct_tuple *t)
{
	__be64 words[5];

	if (ip->l3 + 40 > ip->end)
		return CT_INVALID;
	if (edit_load(ctx, ip->l3, words, sizeof(words)))
		return CT_NO_TUPLE;
	words[0] = bpf_be64_to_cpu(words[0]);
	if (words[0] >> 60 != 6)
		return CT_INVALID;
	ip->l4 = ip->l3 + 40;
	ip->proto = words[0] >> 8;
	if (is_extension(ip->proto))
		return CT_NO_TUPLE;
	t->src[0] = bpf_be64_to_cpu(words[1]);
	t->src[1] = bpf_be64_to_cpu(words[2]);
	t->dst[0] = bpf_be64_to_cpu(words[3]);
	t->dst[1] = bpf_be64_to_cpu(words[4]);
	return CT_TUPLE;
}

/**
 * ct_extract_quoted - Makes the tuple of the packet that an ICMP error quotes.
 * @ctx: the packet
 * @t: the zone is set; becomes the tuple, of the direction in which that packet was sent
 *
 * A function of its own, as ct_extract().
 *
 * Return: CT_TUPLE, CT_INVALID, or CT_NO_TUPLE.
 */
__noinline int ct_extract_quoted(hook_ctx *ctx, struct ct_tuple *t)
{
	struct ip ip = {};
	int taken;

	if (!t || find_ip(ctx, &ip))
		return CT_NO_TUPLE;
	ip.l3 = ip.l4 + 8;
	t->kind = ip.v6 ? CT_KIND_V6 : 0;
	taken = ip.v6 ? ct_quoted_ipv6(ctx, &ip, t) : ct_quoted_ipv4(ctx, &ip, t);
	if (taken != CT_TUPLE)
		return taken;
	t->proto = ip.proto;
	t->sport = t->dport = 0;
	t->request = 0;
	t->pad = 0;
	return ct_take_quoted(ctx, &ip, t);
}

/**
 * ct_extract - Makes the tuple of a packet.
 * @ctx: the packet
 * @t: its zone is set; becomes the tuple
 * @s: zeros; becomes the TCP segment
 *
 * A function of its own: for the verifier the many paths through it become one path of the caller.
 *
 * Return: CT_TUPLE, CT_INVALID, CT_NO_TUPLE, CT_WRONG_IP, or CT_ERROR, when the tuple has addresses
 * alone.
 */
__noinline int ct_extract(hook_ctx *ctx, struct ct_tuple *t, struct ct_segment *s)
{
	struct ip ip = {};
	int taken;

	if (!t || !s || find_ip(ctx, &ip) || ip.fragment ||
	    ip.l4 != ip.l3 + (ip.v6 ? 40 : 20))
		return CT_NO_TUPLE;
	taken = ip.v6 ? ct_take_ipv6(ctx, ip.l3, t) : ct_take_ipv4(ctx, ip.l3, t);
	if (taken != CT_TUPLE)
		return taken;
	t->proto = ip.proto;
	t->sport = t->dport = 0;
	t->request = 0;
	t->pad = 0;
	if (ip.proto == IPPROTO_TCP)
		return ct_take_tcp(ctx, &ip, t, s);
	if (ip.proto == IPPROTO_UDP || ip.proto == IPPROTO_SCTP)
		return ct_take_ports(ctx, &ip, t);
	if (ip.proto == (ip.v6 ? PROTO_ICMPV6 : IPPROTO_ICMP))
		return ct_take_icmp(ctx, &ip, t);
	return CT_TUPLE;
}

#endif
