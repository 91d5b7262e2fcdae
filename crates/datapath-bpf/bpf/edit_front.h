/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Headers in front of a packet: Ethernet, NSH and labels that come before an Ethernet header or where
 * there is none.
 *
 * A packet without an Ethernet header keeps the room of one, so that all offsets and helpers are as for
 * frames: `bare` in the state says that the 14 bytes do not belong to the packet. Their addresses are
 * zero, and their type is that of the packet.
 */
#ifndef SLIPSWITCH_EDIT_FRONT_H
#define SLIPSWITCH_EDIT_FRONT_H

#include "edit_nsh.h"
#include "edit_vlan.h"
#include "undo.h"

#define FRONT_TAGS 2 /* VLAN tags that the kernel may keep outside of a frame, one after the other */
#define FRONT_TYPE_AT 12
#define ETHERTYPE_TEB 0x6558 /* of a label stack: an Ethernet frame follows */

/* The room for an Ethernet header. */
struct front_room {
	__u8 none[FRONT_TYPE_AT];
	__be16 type;
};

/* Makes the state that of a packet without an Ethernet header, of this type. */
static __always_inline void front_is_bare(struct state *st, __u32 type)
{
	bool is_mpls = type == ETH_P_MPLS_UC || type == ETH_P_MPLS_MC;

	st->bare = 1;
	st->mpls = is_mpls ? ETH_HLEN : 0;
	st->l3 = ETH_HLEN;
	st->l4 = 0;
}

/* Returns the Ethernet type of a packet without an Ethernet header, a host integer; 0: there is none. */
static __always_inline __u32 front_type(hook_ctx *ctx)
{
	__be16 type;

	return edit_load(ctx, FRONT_TYPE_AT, &type, sizeof(type)) ? 0 : bpf_ntohs(type);
}

#if AT_XDP

/**
 * front_insert - Makes room for a header in front of the packet, which then has no Ethernet header.
 * @ctx: the packet; pointers into it become invalid
 * @len: bytes of the header; the caller writes them
 * @type: Ethernet type of the header, host integer
 *
 * A function of its own, for the verifier.
 *
 * Return: EDITED; LEAVES, and nothing is done; or the reason to drop plus one.
 */
__noinline int front_insert(hook_ctx *ctx, __u32 len, __u32 type)
{
	struct front_room room = { .type = bpf_htons(type) };
	struct state *st = state_here();

	if (!st || len > TUNNEL_BYTES)
		return FAILED;
	if (bpf_xdp_adjust_head(ctx, -(int)(len + (st->bare ? 0 : ETH_HLEN))))
		return LEAVES;
	if (edit_store(ctx, st, 0, &room, sizeof(room)))
		return FAILED;
	front_is_bare(st, type);
	return EDITED;
}

/* Returns true when the frame can still be made equal to the one that arrived once `off` bytes have come off it,
 * and an Ethernet header was written over the next ones. A program without `again` never does so. */
static __always_inline bool front_can_undo(hook_ctx *ctx, const struct state *st, __u32 off)
{
	struct program *p = bpf_map_lookup_elem(&programs, &st->program);
	struct undo *h = undo_here();
	int end; /* of the bytes that change, as an offset in the frame that arrived */

	if (!p || !h)
		return false;
	end = (int)(h->length - data_length(ctx) + off + ETH_HLEN);
	return !p->again || h->kept == h->length || end <= (int)h->kept;
}

/**
 * front_remove - Takes a header off a packet without an Ethernet header.
 * @ctx: the packet; pointers into it become invalid
 * @len: bytes of the header
 * @type: Ethernet type of the packet below it, host integer; 0: it is an Ethernet frame
 *
 * A function of its own, for the verifier. The offsets of the layers below are unknown.
 *
 * Return: as front_insert().
 */
__noinline int front_remove(hook_ctx *ctx, __u32 len, __u32 type)
{
	struct front_room room = { .type = bpf_htons(type) };
	__u32 off = len + (type ? 0 : ETH_HLEN);
	struct state *st = state_here();

	if (!st)
		return FAILED;
	/* The daemon judges a frame that is too short to be one. */
	if (off + ETH_HLEN > data_length(ctx) || !front_can_undo(ctx, st, off))
		return LEAVES;
	if (bpf_xdp_adjust_head(ctx, (int)off))
		return FAILED;
	front_is_bare(st, type);
	st->bare = type != 0;
	if (type && edit_store(ctx, st, 0, &room, sizeof(room)))
		return FAILED;
	return EDITED;
}

#else

/* Sets skb->protocol by the frame, which has no tag. The kernel's network header is further from the start than
 * an Ethernet header, and since Linux 6.12 it comes nearer by the tag that tag_sync_protocol() pushes and pops:
 * skb->csum covers 4 more bytes then. Returns 0 or an error. */
static __always_inline int front_sync_protocol(hook_ctx *ctx, struct state *st)
{
	__u32 before = st->covered, more;

	if (tag_sync_protocol(ctx, st))
		return -1;
	if (st->covered >= before)
		return 0;
	if (edit_load(ctx, st->covered, &more, sizeof(more)))
		return -1;
	bpf_csum_update(ctx, more); /* it refuses when there is no skb->csum */
	return 0;
}

/* As at XDP. bpf_skb_change_head() adds zeros. Tags that are kept outside of the frame are below the
 * header, so they enter the frame. */
__noinline int front_insert(hook_ctx *ctx, __u32 len, __u32 type)
{
	__u32 tags[FRONT_TAGS] = {}, count = 0, room;
	struct state *st = state_here();
	__be16 kind = bpf_htons(type);
	__u8 addresses[12];
	int shift;

	if (!st || len > TUNNEL_BYTES)
		return FAILED;
#pragma unroll
	for (int i = 0; i < FRONT_TAGS; i++) {
		if (!has_tag(ctx))
			break;
		tags[i] = bpf_htonl((__u32)tag_tpid(ctx) << 16 | tag_tci(ctx));
		if (tag_pop_raw(ctx, st))
			return FAILED;
		count++;
	}
	room = len + (st->bare ? 0 : ETH_HLEN) + 4 * count;
	if (has_tag(ctx) || edit_load(ctx, 0, addresses, sizeof(addresses)) ||
	    bpf_skb_change_head(ctx, room, 0)) {
#pragma unroll
		for (int i = FRONT_TAGS - 1; i >= 0; i--) {
			__u32 tag = bpf_ntohl(tags[i]);

			if (i < count && tag_push(ctx, st, tag >> 16, tag, &shift))
				return FAILED;
		}
		return LEAVES;
	}
	st->covered += room;
	if (bpf_skb_store_bytes(ctx, FRONT_TYPE_AT, &kind, sizeof(kind), 0))
		return FAILED;
	if (count && (bpf_skb_store_bytes(ctx, ETH_HLEN + len, addresses, sizeof(addresses), 0) ||
		      bpf_skb_store_bytes(ctx, ETH_HLEN + len + 12, &tags[0], 4, 0)))
		return FAILED;
	if (count > 1 && bpf_skb_store_bytes(ctx, ETH_HLEN + len + 16, &tags[1], 4, 0))
		return FAILED;
	front_is_bare(st, type);
	st->no_peer = 1;
	return front_sync_protocol(ctx, st) ? FAILED : EDITED;
}

/* As at XDP. The helper takes bytes off after the Ethernet header, and of IP packets alone. So the
 * packet becomes one of IP first, by its type. The helper goes by the kernel's network header, which is
 * elsewhere after other headers were pushed. */
__noinline int front_remove(hook_ctx *ctx, __u32 len, __u32 type)
{
	struct front_room room = { .type = bpf_htons(type) };
	const __be16 ip = bpf_htons(ETH_P_IP);
	__u32 off = len + (type ? 0 : ETH_HLEN);
	struct state *st = state_here();
	__be16 kind;

	if (!st || edit_load(ctx, FRONT_TYPE_AT, &kind, sizeof(kind)))
		return FAILED;
	if (st->covered != ETH_HLEN || off + ETH_HLEN > data_length(ctx))
		return LEAVES;
	if (!type && edit_load(ctx, ETH_HLEN + len, &room, sizeof(room)))
		return LEAVES;
	if (bpf_skb_store_bytes(ctx, FRONT_TYPE_AT, &ip, sizeof(ip), 0) ||
	    tag_sync_protocol(ctx, st))
		return FAILED;
	if (bpf_skb_adjust_room(ctx, -(int)off, BPF_ADJ_ROOM_MAC,
				BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)) {
		if (bpf_skb_store_bytes(ctx, FRONT_TYPE_AT, &kind, sizeof(kind), 0))
			return FAILED;
		return LEAVES;
	}
	front_is_bare(st, type);
	st->bare = type != 0;
	st->no_peer = 1;
	if (bpf_skb_store_bytes(ctx, 0, &room, sizeof(room), 0))
		return FAILED;
	return tag_sync_protocol(ctx, st) ? FAILED : EDITED;
}

#endif

/* Runs HEADER_POP_ETH. A tag is after an Ethernet header, and does not come off with it. */
static __always_inline int front_pop_eth(hook_ctx *ctx, struct state *st)
{
	const __u8 none[FRONT_TYPE_AT] = {};
	__u32 type = front_type(ctx);

	if (st->bare || has_tag(ctx) || type < 0x600 || is_vlan(bpf_htons(type)))
		return MALFORMED;
	if (edit_store(ctx, st, 0, none, sizeof(none)))
		return FAILED;
	st->bare = 1;
	return EDITED;
}

/* Runs HEADER_PUSH_ETH. */
static __always_inline int front_push_eth(hook_ctx *ctx, struct state *st, const __u64 *operands)
{
	__u32 addresses[3];

	__builtin_memcpy(addresses, operands, sizeof(addresses));
	if (!st->bare)
		return MALFORMED;
	if (edit_store(ctx, st, 0, addresses, sizeof(addresses)))
		return FAILED;
	st->bare = 0;
	return EDITED;
}

/* Returns the protocol in NSH of the packet, which it is to be put in front of; 0: it cannot be. */
static __always_inline __u8 front_next(hook_ctx *ctx, const struct state *st)
{
	if (!st->bare)
		return NSH_NEXT_ETHERNET;
	switch (front_type(ctx)) {
	case ETH_P_IP:
		return NSH_NEXT_IPV4;
	case ETH_P_IPV6:
		return NSH_NEXT_IPV6;
	case ETH_P_NSH:
		return NSH_NEXT_NSH;
	}
	return 0;
}

/**
 * front_push_nsh - Runs HEADER_PUSH_NSH.
 * @ctx: the packet; pointers into it become invalid
 * @st: its state
 * @bytes: of the header
 * @o: the header
 *
 * Return: EDITED, LEAVES, or the reason to drop plus one.
 */
static __always_inline int front_push_nsh(hook_ctx *ctx, struct state *st, __u32 bytes,
					  const struct operands *o)
{
	const __u32 *words = (const __u32 *)o->cells;
	__u8 next = front_next(ctx, st);
	int err;

	if (!next)
		return MALFORMED;
	if (bytes < NSH_BASE || bytes > NSH_PUSHED)
		return REFUSED(DROP_UNSUPPORTED);
	err = front_insert(ctx, bytes, ETH_P_NSH);
	if (err)
		return err;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < NSH_PUSHED / 4; i++) {
		__u32 word = words[i];

		if (4 * i < bytes && edit_store(ctx, st, ETH_HLEN + 4 * i, &word, sizeof(word)))
			return FAILED;
	}
	return edit_store(ctx, st, ETH_HLEN + NSH_NEXT_AT, &next, sizeof(next)) ? FAILED : EDITED;
}

/* Runs HEADER_POP_NSH. */
static __always_inline int front_pop_nsh(hook_ctx *ctx, struct state *st)
{
	struct nsh_base base;
	__u32 bytes, type;

	if (!st->bare || nsh_load(ctx, st, &base))
		return MALFORMED;
	bytes = nsh_bytes(bpf_ntohs(base.first));
	switch (base.next) {
	case NSH_NEXT_IPV4:
		type = ETH_P_IP;
		break;
	case NSH_NEXT_IPV6:
		type = ETH_P_IPV6;
		break;
	case NSH_NEXT_ETHERNET:
		type = 0;
		break;
	case NSH_NEXT_NSH:
		type = ETH_P_NSH;
		break;
	default:
		return MALFORMED;
	}
	return bytes < NSH_BASE ? MALFORMED : front_remove(ctx, bytes, type);
}

/* Puts a label stack entry in front of the packet; the arguments are host integers. */
static __always_inline int front_add_label(hook_ctx *ctx, struct state *st, __u32 kind, __u32 lse)
{
	__be32 entry = bpf_htonl(lse);
	int err = front_insert(ctx, sizeof(entry), kind);

	if (err)
		return err;
	return edit_store(ctx, st, ETH_HLEN, &entry, sizeof(entry)) ? FAILED : EDITED;
}

/* Returns true when a packet without an Ethernet header begins with a label. */
static __always_inline bool front_has_label(hook_ctx *ctx)
{
	__u32 type = front_type(ctx);

	return (type == ETH_P_MPLS_UC || type == ETH_P_MPLS_MC) && data_length(ctx) >= ETH_HLEN + 4;
}

/**
 * exec_header - Runs OP_HEADER.
 * @ctx: the packet; pointers into it become invalid
 * @a: field of the instruction
 * @b: field of the instruction
 * @o: its operands
 *
 * A function of its own, for the verifier.
 *
 * Return: EDITED, LEAVES, or the reason to drop plus one.
 */
__noinline int exec_header(hook_ctx *ctx, __u32 a, __u32 b, const struct operands *o)
{
	struct state *st = state_here();

	if (!st || !o)
		return FAILED;
	switch (a & 0xff) {
	case HEADER_SET_NSH:
		return set_nsh(ctx, st, o->cells, a >> 8 > 2);
	case HEADER_PUSH_NSH:
		return front_push_nsh(ctx, st, b, o);
	case HEADER_POP_NSH:
		return front_pop_nsh(ctx, st);
	case HEADER_PUSH_ETH:
		return front_push_eth(ctx, st, o->cells);
	case HEADER_POP_ETH:
		return front_pop_eth(ctx, st);
	case HEADER_ADD_MPLS:
		return front_add_label(ctx, st, o->cells[0] & 0xffff, b);
	default:
		return REFUSED(DROP_UNSUPPORTED);
	}
}

#endif
