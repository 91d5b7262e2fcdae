/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Encapsulation: the program in TAIL_TUN_PUSH runs OP_TUN_PUSH and OP_TUN_ROOM, and goes on after them. The
 * result is that of tunnel::Header::push: docs/design/36-encapsulation-in-bpf.md.
 *
 * A packet that cannot have its headers here is unchanged. At tc it goes up at this instruction, and
 * the daemon runs the rest of the list; one that is to be segmented goes to the segmenter (segmenter.h).
 * At XDP it goes on to the next hook as it arrived.
 */
#ifndef SLIPSWITCH_TUNNEL_PUSH_H
#define SLIPSWITCH_TUNNEL_PUSH_H

#include "exec.h"
#include "push_sum.h"
#if !AT_XDP
#include "segmenter.h"
#endif

#define PUSH_TAGS 3 /* most VLAN tags that are moved into the inner frame */
#define PUSH_INNER (ETH_HLEN + 4 * PUSH_TAGS)
#define PUSH_LEAST (ETH_HLEN + IPV4_HEADER + 4) /* bytes of the shortest header */
#define IPV6_LABEL bpf_htonl(0xfffff) /* in the first word of the header */
#define PUSH_IPV6 bpf_htonl(1u << 31)
#define PUSH_TICK 100000 /* nanoseconds of a tick of ERSPAN's timestamps, of granularity 0 */
#define PUSH_FILLED 18 /* bytes after IP in which packets may differ; the payload is part of them */

/* The values in which headers of packets differ. */
struct push {
	__u32 length;   /* bytes of the header */
	__u32 payload;  /* bytes of the inner frame, with all tags, or of the packet without Ethernet header */
	__u32 segment;  /* as in struct state */
	__u32 hash;     /* of the inner packet */
	__u32 sum;      /* of the words of the inner frame, if the header has a checksum */
	__u32 out_port;
	struct port *numbers; /* TUNNEL_NUMBERED: the tunnel's port */
	__be32 label;   /* TUNNEL_BARE: flow label of an inner IPv6 packet, with PUSH_IPV6 */
};

/* Returns the bytes of the frame that the packet loses before the push. */
static __always_inline __u32 push_lost(const struct tunnel_header *t)
{
	return t->flags & TUNNEL_BARE ? ETH_HLEN : 0;
}

/* Returns bytes of the outer IP packet. */
static __always_inline __u32 push_ip_length(const struct push *p)
{
	return p->length - ETH_HLEN + p->payload;
}

/* Returns the most bytes of an outer IP packet. */
static __always_inline __u32 push_longest(const struct tunnel_header *t)
{
	return t->path_mtu ? t->path_mtu : 0xffff;
}

/* Writes a word at an even offset. */
static __always_inline void push_word(__u8 *h, __be32 word)
{
	__be16 halves[2];

	__builtin_memcpy(halves, &word, sizeof(word));
	((__be16 *)h)[0] = halves[0];
	((__be16 *)h)[1] = halves[1];
}

/* Writes the protocol and the flow label of a segment route. The header is IPv6 without a checksum. */
static __always_inline void push_route(__u8 *h, const struct tunnel_header *t, const struct push *p)
{
	__be32 word, label;

	h[ETH_HLEN + IPV6_HEADER] = p->label ? IPPROTO_IPV6 : IPPROTO_IPIP;
	if (t->flags & TUNNEL_LABEL_HASH)
		label = bpf_htonl(p->hash) & IPV6_LABEL;
	else if (t->flags & TUNNEL_LABEL_ZERO)
		label = 0;
	else if (p->label)
		label = p->label & IPV6_LABEL;
	else
		return;
	__builtin_memcpy(&word, t->bytes + ETH_HLEN, sizeof(word));
	push_word(h + ETH_HLEN, (word & ~IPV6_LABEL) | label);
}

/**
 * push_number - Takes the next sequence number, and writes it.
 * @h: the header after IP
 * @t: the same as all packets have it
 * @port: the tunnel's port
 *
 * Offsets are constants, for the verifier.
 *
 * Return: the sum of its words.
 */
static __always_inline __u64 push_number(__u8 *h, const struct tunnel_header *t, struct port *port)
{
	__be32 number = bpf_htonl(__sync_fetch_and_add(&port->peer_mac, 1));
	__be16 low;

	switch (t->number_at) {
	case 4:
		push_word(h + 4, number);
		return number;
	case 8:
		push_word(h + 8, number);
		return number;
	case 12:
		push_word(h + 12, number);
		return number;
	default:
		low = bpf_htons(bpf_ntohl(number));
		*(__be16 *)(h + 16) = low;
		return low;
	}
}

/**
 * push_fill - Fills in what differs between packets.
 * @h: the header, with PUSH_FILLED bytes after IP
 * @t: the same as all packets have it
 * @p: the values
 * @l4: offset of the header after IP; a constant
 */
static __always_inline void push_fill(__u8 *h, const struct tunnel_header *t, const struct push *p,
				      const __u32 l4)
{
	__u16 length = bpf_htons(push_ip_length(p) - (l4 - ETH_HLEN)), source = 0, sum;
	__u32 range = t->last_port > t->first_port ? t->last_port - t->first_port : 0;
	__u64 all = (__u64)t->l4_sum + p->sum;

	if (t->flags & TUNNEL_IPV6) {
		*(__u16 *)(h + 18) = length;
		if (t->flags & TUNNEL_ROUTE)
			push_route(h, t, p);
	} else {
		__u16 total = bpf_htons(push_ip_length(p)), id = 0;

		if (!(t->flags & TUNNEL_WHOLE)) {
			id = bpf_get_prandom_u32();
			*(__u16 *)(h + 18) = id;
		}
		*(__u16 *)(h + 16) = total;
		*(__u16 *)(h + 24) = ~checksum_fold((__u64)t->ip_sum + total + id);
	}
	if (t->flags & TUNNEL_UDP) {
		source = bpf_htons(t->first_port + ((__u64)p->hash * range >> 32));
		*(__u16 *)(h + l4) = source;
		*(__u16 *)(h + l4 + 4) = length;
		all += (__u64)source + length + length; /* the second one is in the pseudo header */
	}
	if (t->flags & TUNNEL_GTPU) {
		/* Of what follows the first eight bytes. */
		__u16 after = bpf_htons(p->length - (l4 + UDP_HEADER + 8) + p->payload);

		*(__u16 *)(h + l4 + UDP_HEADER + 2) = after;
		all += after;
	}
	/* There is room, so no number is lost. */
	if (t->flags & TUNNEL_NUMBERED && p->numbers)
		all += push_number(h + l4, t, p->numbers);
	if (t->flags & TUNNEL_STAMPED)
		push_word(h + l4 + 12, bpf_htonl(bpf_ktime_get_ns() / PUSH_TICK));
	if (!(t->flags & TUNNEL_CHECKSUM))
		return;
	sum = ~checksum_fold(all);
	if (t->flags & TUNNEL_UDP)
		*(__u16 *)(h + l4 + 6) = sum ? sum : 0xffff; /* 0 means that there is no checksum */
	else
		*(__u16 *)(h + l4 + 4) = sum;
}

#if AT_XDP

/* XDP: the next hook starts again with the frame as it arrived. A program that has changed the frame
 * has FLOW_PRECHECK, so its start is known. */
static __always_inline int push_leave(hook_ctx *ctx, struct state *st)
{
	if ((st->depth || st->pc) && undo_restore(ctx))
		return drop(DROP_TUNNEL_PUSH);
	COUNT(passed);
	return VERDICT_NONE;
}

/**
 * push_bytes - Puts a header in front of the frame.
 * @ctx: the frame; pointers into it become invalid
 * @t: the header
 * @length: its bytes
 *
 * Whole words are copied. The last one reaches into the inner packet, whose first word is written again.
 *
 * Return: 0, or not 0 when there is no headroom.
 */
static __always_inline int push_bytes(hook_ctx *ctx, const struct tunnel_header *t, __u64 length)
{
	const __u64 *from = (const __u64 *)t->bytes;
	void *to = data_of(ctx), *end;
	__u32 lost = push_lost(t);
	__u64 first;

	if (to + ETH_HLEN > data_end_of(ctx))
		return -1;
	first = load64(to);
	if (lost) {
		if (to + ETH_HLEN + 8 > data_end_of(ctx))
			return -1;
		first = load64(to + ETH_HLEN);
	}
	if (bpf_xdp_adjust_head(ctx, (int)lost - (int)length))
		return -1;
	to = data_of(ctx);
	end = data_end_of(ctx);
	if (to + 32 > end)
		return -1;
#pragma unroll
	for (int i = 0; i < 4; i++)
		((__u64 *)to)[i] = from[i];
	to += 32;
#pragma clang loop unroll(disable)
	for (__u32 i = 4; i < TUNNEL_BYTES / 8; i++) {
		if (i * 8 >= length)
			break;
		if (to + 8 > end)
			return -1;
		*(__u64 *)to = from[i];
		to += 8;
	}
	to = data_of(ctx);
	opaque(length);
	length &= 0xff; /* the verifier has lost its bounds */
	to += length;
	if (to + 8 > end)
		return -1;
	*(__u64 *)to = first;
	return 0;
}

/**
 * push_place - Puts the filled header in front of the frame.
 * @ctx: the frame; pointers into it become invalid
 * @st: its state
 * @t: the header
 * @p: the values
 *
 * Return: 0, or not 0 when the frame is unchanged.
 */
static __always_inline int push_place(hook_ctx *ctx, struct state *st,
				      const struct tunnel_header *t, const struct push *p)
{
	__u8 *h;

	if (push_bytes(ctx, t, p->length))
		return -1;
	h = data_of(ctx);
	if (t->flags & TUNNEL_IPV6) {
		if ((void *)h + ETH_HLEN + IPV6_HEADER + PUSH_FILLED <= data_end_of(ctx))
			push_fill(h, t, p, ETH_HLEN + IPV6_HEADER);
	} else if ((void *)h + ETH_HLEN + IPV4_HEADER + PUSH_FILLED <= data_end_of(ctx)) {
		push_fill(h, t, p, ETH_HLEN + IPV4_HEADER);
	}
	return 0;
}

/* XDP: no frame is to be segmented. */
static __always_inline bool push_is_cut(hook_ctx *ctx, const struct tunnel_header *t,
					const struct push *p)
{
	return false;
}

static __always_inline int push_cut(hook_ctx *ctx, struct state *st)
{
	return push_leave(ctx, st);
}

/* XDP: no frame is to be segmented. */
static __always_inline bool push_measure(hook_ctx *ctx, const struct tunnel_header *t,
					 struct push *p)
{
	return push_ip_length(p) <= push_longest(t);
}

#else

/* The bytes to write: the header, and the inner Ethernet header with tags. */
struct push_scratch {
	__u8 bytes[TUNNEL_BYTES + 32];
};
_Static_assert(PUSH_INNER <= 32, "room for the inner Ethernet header");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct push_scratch);
} push_scratch SEC(".maps");

/* Sends a packet up, at its OP_TUN_PUSH; returns the verdict. */
static __always_inline int push_leave(hook_ctx *ctx, struct state *st)
{
	st->resumes = 1;
	return tail_call(ctx, TAIL_MISS);
}

/**
 * push_measure - Finds the longest segment that the outer packet will have.
 * @ctx: the packet
 * @t: the header
 * @p: `segment` is set
 *
 * Return: false when the length of a segment is unknown, or too long for its path.
 */
static __always_inline bool push_measure(hook_ctx *ctx, const struct tunnel_header *t,
					 struct push *p)
{
	__u32 segment;

	p->segment = 1;
	if (!is_gso(ctx))
		return push_ip_length(p) <= push_longest(t);
	segment = exec_segment_length(ctx);
	if (!segment)
		return false;
	segment += p->length + tag_length(ctx) - push_lost(t);
	p->segment = segment;
	return segment - ETH_HLEN <= push_longest(t);
}

/* Returns true for a packet whose segments get their headers one by one: the kernel gives the segments of a
 * packet in a tunnel no checksums and no numbers of their own, does not look for IP after a route, and the
 * lengths of a header have 16 bits. */
static __always_inline bool push_is_cut(hook_ctx *ctx, const struct tunnel_header *t,
					const struct push *p)
{
	return is_gso(ctx) && (t->flags & (TUNNEL_CHECKSUM | TUNNEL_NUMBERED | TUNNEL_ROUTE) ||
			       push_ip_length(p) > 0xffff);
}

/* Has a packet segmented; returns the verdict. */
static __always_inline int push_cut(hook_ctx *ctx, struct state *st)
{
	__u32 to = segmenter_of(ctx, st);

	return to && !st->bare ? segmenter_give(ctx, st, to) : push_leave(ctx, st);
}

/**
 * push_room - Makes room in front of the packet.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state, whose `covered` follows
 * @t: the header
 * @room: bytes of the header and of the tags that go into the inner frame
 * @inner: bytes of the inner Ethernet header with these tags; 0: there is none
 *
 * The first helper marks the packet as one in a tunnel: a device, or the kernel, then segments both
 * packets and finishes the inner checksum. It refuses frames that are not IP, and packets that are in
 * a tunnel already. The second helper marks nothing, which is right for whole packets.
 *
 * Return: 0, or not 0 when the packet is unchanged.
 */
static __always_inline int push_room(hook_ctx *ctx, struct state *st,
				     const struct tunnel_header *t, __u32 room, __u64 inner)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;

	if (inner)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L2_ETH | BPF_F_ADJ_ROOM_ENCAP_L2(inner);
	flags |= t->flags & TUNNEL_IPV6 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 :
					  BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	if (t->flags & TUNNEL_UDP)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	else if (!(t->flags & TUNNEL_ROUTE))
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_GRE;
	/* The room begins at the kernel's network header. */
	if (st->covered == ETH_HLEN && !bpf_skb_adjust_room(ctx, room, BPF_ADJ_ROOM_MAC, flags))
		return 0;
	if (is_gso(ctx) || bpf_skb_change_head(ctx, room, 0))
		return -1;
	st->covered += room;
	return 0;
}

/**
 * push_write - Writes the filled header, and the inner Ethernet header after it.
 * @ctx: the packet, with room; pointers into it become invalid
 * @st: its state
 * @t: the header
 * @p: the values
 * @eth: the inner Ethernet header without tags
 * @tags: the tags, outermost first, as they lie in a frame
 * @count: how many
 *
 * Return: 0 or an error.
 */
static __always_inline int push_write(hook_ctx *ctx, const struct state *st,
				      const struct tunnel_header *t, const struct push *p,
				      const __be16 *eth, const __u32 *tags, __u64 count)
{
	__u32 zero = 0;
	struct push_scratch *s = bpf_map_lookup_elem(&push_scratch, &zero);
	__u64 length = p->length, bytes;
	__u8 *inner;

	if (!s)
		return -1;
	__builtin_memcpy(s->bytes, t->bytes, sizeof(t->bytes));
	if (t->flags & TUNNEL_IPV6)
		push_fill(s->bytes, t, p, ETH_HLEN + IPV6_HEADER);
	else
		push_fill(s->bytes, t, p, ETH_HLEN + IPV4_HEADER);
	opaque(length);
	if (length < PUSH_LEAST || length > TUNNEL_BYTES)
		return -1;
	opaque(count);
	if (count > PUSH_TAGS)
		return -1;
	inner = s->bytes + length;
	bytes = 4 * count;
	__builtin_memcpy(inner, eth, 2 * ETH_ALEN);
#pragma unroll
	for (int i = 0; i < PUSH_TAGS; i++)
		if (i < count)
			__builtin_memcpy(inner + 2 * ETH_ALEN + 4 * i, &tags[i], 4);
	inner += bytes;
	__builtin_memcpy(inner + 2 * ETH_ALEN, &eth[ETH_ALEN], 2);
	bytes += length - push_lost(t); /* after the outer Ethernet header */
	opaque(bytes);
	if (bytes < PUSH_LEAST - ETH_HLEN || bytes > TUNNEL_BYTES + 4 * PUSH_TAGS)
		return -1;
	if (bpf_skb_store_bytes(ctx, 0, s->bytes, ETH_HLEN, 0))
		return -1;
	return bpf_skb_store_bytes(ctx, ETH_HLEN, s->bytes + ETH_HLEN, bytes,
				   ETH_HLEN < st->covered ? 0 : BPF_F_RECOMPUTE_CSUM);
}

/**
 * push_place - Puts the filled header in front of the packet.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @t: the header
 * @p: the values
 *
 * A tag that is kept outside of the frame would become one of the outer packet, so it goes into the inner frame.
 *
 * Return: 0; negative when the packet is unchanged; positive when it is to be dropped.
 */
static __always_inline int push_place(hook_ctx *ctx, struct state *st,
				      const struct tunnel_header *t, const struct push *p)
{
	__u32 tags[PUSH_TAGS] = {}, count = 0, lost = push_lost(t);
	__be16 eth[ETH_HLEN / 2];
	int shift;

#pragma unroll
	for (int i = 0; i < PUSH_TAGS; i++) {
		if (!has_tag(ctx))
			break;
		tags[i] = bpf_htonl((__u32)tag_tpid(ctx) << 16 | tag_tci(ctx));
		if (tag_pop_raw(ctx, st))
			return 1;
		count++;
	}
	if (!has_tag(ctx) && !bpf_skb_load_bytes(ctx, 0, eth, sizeof(eth)) &&
	    !push_room(ctx, st, t, p->length - lost + 4 * count,
		       lost ? 0 : ETH_HLEN + 4 * count))
		return push_write(ctx, st, t, p, eth, tags, count) ? 1 : 0;
#pragma unroll
	for (int i = PUSH_TAGS - 1; i >= 0; i--) {
		__u32 tag = bpf_ntohl(tags[i]);

		if (i < count && tag_push(ctx, st, tag >> 16, tag, &shift))
			return 1;
	}
	return -1;
}

#endif

/**
 * push_end - Goes on after the instruction.
 * @ctx: the outer packet
 * @st: its state
 * @t: the header that was pushed
 * @p: the values
 *
 * Return: the verdict.
 */
static __always_inline int push_end(hook_ctx *ctx, struct state *st, const struct tunnel_header *t,
				    const struct push *p)
{
	struct program *program;
	__u64 pc = st->pc + 2;
	int verdict;

	st->pc = pc;
	st->mpls = 0;
	st->l3 = ETH_HLEN;
	st->l4 = t->l4;
	st->in_port = p->out_port;
	st->recirc_id = 0;
	st->dp_hash = 0;
	st->tunnelled = 0;
	st->bare = 0;
	st->tracked = 0;
	st->ct_cached = 0;
#if !AT_XDP
	st->segment = p->segment;
	st->no_peer = 1;
#endif
	/* Most packets are sent at once. */
	program = bpf_map_lookup_elem(&programs, &st->program);
	opaque(pc); /* Linux 6.1 does not learn about a saved copy from a comparison */
	if (program && pc < CELLS) {
		__u64 cell;

		opaque(pc);
		cell = program->cells[pc];
		if ((cell & 31) == OP_OUTPUT && cell >> 16 & 0xffff) {
			verdict = exec_output(ctx, st, cell >> 32);
			deferred_counts_flush(st);
			return verdict;
		}
	}
	return tail_call(ctx, TAIL_EXEC);
}

/**
 * push_check_room - Runs OP_TUN_ROOM.
 * @ctx: the packet, which the list has not changed
 * @st: its state
 * @most: bytes of the longest frame
 *
 * Return: the verdict.
 */
static __always_inline int push_check_room(hook_ctx *ctx, struct state *st, __u32 most)
{
	__u32 bytes = frame_length(ctx);

#if !AT_XDP
	if (is_gso(ctx))
		bytes = exec_segment_length(ctx) + tag_length(ctx);
#endif
	if (bytes > most)
		return push_leave(ctx, st);
	st->pc++;
	return tail_call(ctx, TAIL_EXEC);
}

/**
 * push_bare_sum - Prepares a packet that loses its Ethernet header.
 * @ctx: the packet
 * @sum: becomes what the sum of the frame has too much
 * @label: becomes the flow label of an IPv6 packet, with PUSH_IPV6; 0 of an IPv4 packet
 *
 * Such a packet is a valid IP packet without tags. The daemon judges others: the hash of a packet that is not
 * IP is made of its Ethernet addresses, and it has none in the tunnel.
 *
 * Return: 0, or not 0 when the packet is for the daemon.
 */
__noinline int push_bare_sum(hook_ctx *ctx, __u32 *sum, __u32 *label)
{
	__be16 eth[ETH_HLEN / 2];
	struct ip ip = {};
	__be32 first = 0;
	__u64 all = 0;

	if (!sum || !label || has_tag(ctx) || frame_load(ctx, 0, eth, sizeof(eth)) ||
	    find_ip(ctx, &ip) || ip.l3 != ETH_HLEN ||
	    frame_load(ctx, ETH_HLEN, &first, sizeof(first)))
		return -1;
	*label = ip.v6 ? (first & IPV6_LABEL) | PUSH_IPV6 : 0;
#pragma unroll
	for (int i = 0; i < ETH_HLEN / 2; i++)
		all += eth[i];
	*sum = (__u16)~checksum_fold(all);
	return 0;
}

/* Returns true when the packet begins with the header that the instruction is for. `ports`: the operand of the
 * instruction. */
static __always_inline bool push_suits(const struct state *st, const struct tunnel_header *t,
				       __u64 ports)
{
	bool of_bare = ports & PUSH_OF_BARE;

	if (!(t->flags & TUNNEL_BARE))
		return !st->bare;
	return st->bare == of_bare;
}

/* Keeps the result of a packet that is about to get its headers, if it took a chain. */
static __always_inline void push_end_chain(hook_ctx *ctx, struct state *st)
{
	if (!settings.chains || !st->chain)
		return;
	if (st->chain == st->depth)
		chain_keep(ctx, st->flow, CHAIN_PUSH | st->pc);
	st->chain = 0; /* the outer packet is in no chain */
}

/**
 * push - The program in TAIL_TUN_PUSH: pushes the headers of a tunnel, and goes on with the list.
 * @ctx: the packet
 *
 * Return: the verdict.
 */
static __always_inline int push(hook_ctx *ctx)
{
	struct state *st = state_here();
	const struct tunnel_header *t;
	const __u64 *cell;
	struct push p = {};
	__u32 number, without = 0, label = 0, wants;
	int err;

	if (!st)
		return drop(DROP_UNSUPPORTED);
	cell = program_cell(st);
	if (!cell)
		return drop(DROP_UNSUPPORTED);
	number = cell[0] >> 32;
	if ((cell[0] & 31) == OP_TUN_ROOM)
		return push_check_room(ctx, st, number);
	p.out_port = cell[1] >> 32;
	t = bpf_map_lookup_elem(&tunnel_headers, &number);
	if (!t)
		return drop(DROP_UNSUPPORTED);
	p.length = t->length;
	if (p.length < PUSH_LEAST || p.length > TUNNEL_BYTES)
		return drop(DROP_UNSUPPORTED);
	p.payload = frame_length(ctx) - push_lost(t);
	if (!push_suits(st, t, cell[1]))
		return push_leave(ctx, st);
	if (t->flags & TUNNEL_BARE && push_bare_sum(ctx, &without, &label))
		return push_leave(ctx, st);
	p.label = label;
	if (!push_measure(ctx, t, &p))
		return push_leave(ctx, st);
	if (push_is_cut(ctx, t, &p)) {
		push_end_chain(ctx, st);
		return push_cut(ctx, st);
	}
	wants = t->flags;
	if (wants & TUNNEL_LABEL_HASH)
		wants |= TUNNEL_UDP; /* for the hash */
	if (wants & (TUNNEL_UDP | TUNNEL_CHECKSUM) &&
	    push_examine(ctx, st, wants, &p.hash, &p.sum))
		return push_leave(ctx, st);
	if (t->flags & TUNNEL_NUMBERED) {
		p.numbers = port_of((__u32)cell[1] & ~PUSH_OF_BARE);
		if (!p.numbers || !p.numbers->tunnel)
			return push_leave(ctx, st);
	}
	p.sum += without;
	push_end_chain(ctx, st);
	err = push_place(ctx, st, t, &p);
	if (err < 0)
		return push_cut(ctx, st);
	if (err)
		return drop(DROP_TUNNEL_PUSH);
	return push_end(ctx, st, t, &p);
}

#endif
