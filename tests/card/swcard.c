// SPDX-License-Identifier: GPL-2.0-only
/* A switch card in software, for tests of filters that a card runs.
 *
 * Port I of the card has two network devices. cardI is the port's representor: the switch on the host
 * attaches to it, and its driver takes flower filters. wireI is the far end of the port's cable: a test
 * moves it into a namespace. A packet that is sent on wireI meets the card's rules. A packet with a rule
 * is finished in the card: cardI, its sockets, BPF programs and traffic control never see it. A packet
 * without a rule is received on cardI. Packets that the host sends on cardI meet no rules.
 *
 * The card knows tunnels of VXLAN over IPv4, by the kernel's devices for them. A packet of a tunnel that
 * comes by any cable meets the rules of the tunnel's device by what is in it. Outer headers are pushed by
 * the kernel's code, as the device has it: a card has the same routes and neighbours.
 *
 * Only tests load this module. It trusts its caller, and the module may be unloaded only when no packet
 * is under way.
 */
#include <linux/module.h>
#include <linux/etherdevice.h>
#include <linux/rtnetlink.h>
#include <linux/if_vlan.h>
#include <linux/debugfs.h>
#include <linux/version.h>
#include <net/flow_offload.h>
#include <net/flow_dissector.h>
#include <net/pkt_cls.h>
#include <net/dst_metadata.h>
#include <net/vxlan.h>

static unsigned int ports = 4;
module_param(ports, uint, 0444);
static bool chains;		/* rules may go to chains; a packet without a rule there is dropped */
module_param(chains, bool, 0644);
static unsigned int room = 1024;	/* the number of rules that the card holds */
module_param(room, uint, 0644);
static unsigned int refuse;	/* bits of enum flow_action_id: actions that the card lacks */
module_param(refuse, uint, 0644);

#define KEY_BYTES 1024
#define MOST_ACTIONS 16
#define MOST_POLICERS 16
#define MOST_TUNNELS 4

struct card_port {
	struct net_device *dev;		/* the representor, or a tunnel's device */
	struct net_device *wire;	/* the far end of the cable; none of a tunnel */
	struct list_head rules;
	unsigned int index;
};

struct dev_priv { struct card_port *port; bool is_wire; };

/* A token bucket that rules share. It stays until another policer needs its place. */
struct policer {
	u32 index;
	unsigned int users;
	bool per_packet;
	u64 rate;		/* packets or bytes a second */
	u64 burst;		/* packets or bytes */
	u64 tokens;		/* in billionths */
	u64 last;		/* nanoseconds */
};

struct act {
	enum flow_action_id id;
	struct card_port *to;
	u16 vid;
	__be16 proto;
	u8 prio;
	u32 chain;
	struct policer *policer;
	struct metadata_dst *tunnel;	/* outer headers to push */
	struct net_device *by;		/* the tunnel's device that sends */
};

struct rule {
	struct list_head list;
	struct rcu_head rcu;
	unsigned long cookie;
	u32 chain, prio;
	__be16 protocol;
	struct flow_dissector dissector;
	unsigned int len;
	u8 key[KEY_BYTES], mask[KEY_BYTES];
	struct act acts[MOST_ACTIONS];
	unsigned int n_acts;
	atomic64_t packets, bytes, drops;
	u64 reported_packets, reported_bytes, reported_drops;
	unsigned long used;
};

static struct card_port *card;
static struct card_port tunnels[MOST_TUNNELS];
static LIST_HEAD(block_cbs);
static LIST_HEAD(tunnel_block_cbs);
static DEFINE_SPINLOCK(lock);
static struct policer policers[MOST_POLICERS];
static DEFINE_SPINLOCK(policer_lock);
static atomic_t n_rules;
static struct dentry *dir;
static u32 hits, misses;

static const u16 key_size[FLOW_DISSECTOR_KEY_MAX] = {
	[FLOW_DISSECTOR_KEY_CONTROL] = sizeof(struct flow_dissector_key_control),
	[FLOW_DISSECTOR_KEY_BASIC] = sizeof(struct flow_dissector_key_basic),
	[FLOW_DISSECTOR_KEY_META] = sizeof(struct flow_dissector_key_meta),
	[FLOW_DISSECTOR_KEY_ETH_ADDRS] = sizeof(struct flow_dissector_key_eth_addrs),
	[FLOW_DISSECTOR_KEY_IPV4_ADDRS] = sizeof(struct flow_dissector_key_ipv4_addrs),
	[FLOW_DISSECTOR_KEY_IPV6_ADDRS] = sizeof(struct flow_dissector_key_ipv6_addrs),
	[FLOW_DISSECTOR_KEY_PORTS] = sizeof(struct flow_dissector_key_ports),
	[FLOW_DISSECTOR_KEY_IP] = sizeof(struct flow_dissector_key_ip),
	[FLOW_DISSECTOR_KEY_TCP] = sizeof(struct flow_dissector_key_tcp),
	[FLOW_DISSECTOR_KEY_ICMP] = sizeof(struct flow_dissector_key_icmp),
	[FLOW_DISSECTOR_KEY_ARP] = sizeof(struct flow_dissector_key_arp),
	[FLOW_DISSECTOR_KEY_VLAN] = sizeof(struct flow_dissector_key_vlan),
	[FLOW_DISSECTOR_KEY_CVLAN] = sizeof(struct flow_dissector_key_vlan),
	[FLOW_DISSECTOR_KEY_ENC_CONTROL] = sizeof(struct flow_dissector_key_control),
	[FLOW_DISSECTOR_KEY_ENC_KEYID] = sizeof(struct flow_dissector_key_keyid),
	[FLOW_DISSECTOR_KEY_ENC_IPV4_ADDRS] = sizeof(struct flow_dissector_key_ipv4_addrs),
	/* Flower has them at the same place, and names both. */
	[FLOW_DISSECTOR_KEY_ENC_IPV6_ADDRS] = sizeof(struct flow_dissector_key_ipv6_addrs),
	[FLOW_DISSECTOR_KEY_ENC_PORTS] = sizeof(struct flow_dissector_key_ports),
	[FLOW_DISSECTOR_KEY_ENC_IP] = sizeof(struct flow_dissector_key_ip),
};

static bool matches(struct rule *r, struct sk_buff *skb)
{
	u8 buf[KEY_BYTES] __aligned(8);
	unsigned int i;

	memset(buf, 0, r->len);
	if (dissector_uses_key(&r->dissector, FLOW_DISSECTOR_KEY_BASIC)) {
		struct flow_dissector_key_basic *b = (void *)(buf + r->dissector.offset[FLOW_DISSECTOR_KEY_BASIC]);
		b->n_proto = skb_protocol(skb, false);
	}
	skb_flow_dissect_meta(skb, &r->dissector, buf);
	skb_flow_dissect_tunnel_info(skb, &r->dissector, buf);
	skb_flow_dissect(skb, &r->dissector, buf, FLOW_DISSECTOR_F_STOP_BEFORE_ENCAP);
	for (i = 0; i < r->len; i++)
		if ((buf[i] & r->mask[i]) != r->key[i])
			return false;
	return true;
}

static struct rule *find(struct card_port *p, struct sk_buff *skb, u32 chain)
{
	struct rule *r, *best = NULL;

	list_for_each_entry_rcu(r, &p->rules, list)
		if (r->chain == chain && (!best || r->prio < best->prio) &&
		    (r->protocol == htons(ETH_P_ALL) || r->protocol == skb_protocol(skb, false)) && matches(r, skb))
			best = r;
	return best;
}

/* Returns true when a packet of this length conforms. */
static bool conforms(struct policer *p, unsigned int len)
{
	u64 cost = (p->per_packet ? 1 : len) * (u64)NSEC_PER_SEC;
	u64 now, full = p->burst * NSEC_PER_SEC;
	bool ok;

	spin_lock_bh(&policer_lock);
	now = ktime_get_ns();
	/* A second at most, so that the product has room. */
	p->tokens = min(full, p->tokens + min(now - p->last, (u64)NSEC_PER_SEC) * p->rate);
	p->last = now;
	ok = p->tokens >= cost;
	if (ok)
		p->tokens -= cost;
	spin_unlock_bh(&policer_lock);
	return ok;
}

/* Returns the policer of an action, which begins full with its first rule. */
static struct policer *policer_of(const struct flow_action_entry *a)
{
	struct policer *p, *free = NULL;

	for (p = policers; p < policers + MOST_POLICERS; p++) {
		if (p->users && p->index == a->hw_index)
			goto found;
		if (!p->users)
			free = p;
	}
	if (!free)
		return NULL;
	p = free;
	p->index = a->hw_index;
	p->per_packet = a->police.rate_pkt_ps != 0;
	p->rate = p->per_packet ? a->police.rate_pkt_ps : a->police.rate_bytes_ps;
	p->burst = p->per_packet ? a->police.burst_pkt : a->police.burst;
	p->tokens = p->burst * NSEC_PER_SEC;
	p->last = ktime_get_ns();
found:
	p->users++;
	return p;
}

static void leave_policers(struct rule *r)
{
	unsigned int i;

	for (i = 0; i < r->n_acts; i++)
		if (r->acts[i].policer)
			r->acts[i].policer->users--;
}

/* Frees a rule that no packet meets. */
static void free_rule(struct rcu_head *head)
{
	struct rule *r = container_of(head, struct rule, rcu);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(r->acts); i++)
		if (r->acts[i].tunnel)
			dst_release(&r->acts[i].tunnel->dst);
	kfree(r);
}

/* Returns a copy of outer headers for packets to have. */
static struct metadata_dst *headers_of(const struct ip_tunnel_info *info)
{
	struct metadata_dst *md = metadata_dst_alloc(info->options_len, METADATA_IP_TUNNEL, GFP_KERNEL);

	if (!md)
		return NULL;
	memcpy(&md->u.tun_info, info, sizeof(*info) + info->options_len);
	memset(&md->u.tun_info.dst_cache, 0, sizeof(md->u.tun_info.dst_cache));
	return md;
}

static void to_wire(struct card_port *p, struct sk_buff *skb)
{
	skb_push(skb, ETH_HLEN);
	skb_dst_drop(skb);
	skb->dev = p->wire;
	skb->pkt_type = PACKET_HOST;
	skb->protocol = eth_type_trans(skb, p->wire);
	dev_sw_netstats_tx_add(p->dev, 1, skb->len);
	netif_rx(skb);
}

/* Sends a packet, with these headers around it. */
static void to_tunnel(struct net_device *by, struct metadata_dst *headers, struct sk_buff *skb)
{
	skb_push(skb, ETH_HLEN);
	skb_reset_mac_header(skb);
	skb_dst_drop(skb);
	dst_hold(&headers->dst);
	skb_dst_set(skb, &headers->dst);
	skb->dev = by;
	dev_queue_xmit(skb);
}

/* Runs the rules on a packet whose data begins at the network header. Returns true when the card has
 * finished the packet, which is then gone. */
static bool process(struct card_port *p, struct sk_buff *skb)
{
	u32 chain = 0;
	int depth;

	for (depth = 0; depth < 8; depth++) {
		struct rule *r = find(p, skb, chain);
		struct metadata_dst *headers = NULL;
		unsigned int i;

		if (!r) {
			if (!depth)
				return false;
			kfree_skb(skb);
			return true;
		}
		atomic64_inc(&r->packets);
		atomic64_add(skb->len + ETH_HLEN, &r->bytes);
		WRITE_ONCE(r->used, jiffies);
		for (i = 0; i < r->n_acts; i++) {
			struct act *a = &r->acts[i];
			struct sk_buff *copy;

			switch (a->id) {
			case FLOW_ACTION_MIRRED:
				copy = skb_copy(skb, GFP_ATOMIC);
				if (copy && a->by)
					to_tunnel(a->by, headers, copy);
				else if (copy)
					to_wire(a->to, copy);
				break;
			case FLOW_ACTION_REDIRECT:
				if (a->by)
					to_tunnel(a->by, headers, skb);
				else
					to_wire(a->to, skb);
				return true;
			case FLOW_ACTION_TUNNEL_ENCAP:
				headers = a->tunnel;
				break;
			case FLOW_ACTION_TUNNEL_DECAP:
				skb_dst_drop(skb);
				break;
			case FLOW_ACTION_VLAN_PUSH:
				skb_push(skb, ETH_HLEN);
				if (skb_vlan_push(skb, a->proto, a->vid | a->prio << 13))
					return true;
				skb_pull(skb, ETH_HLEN);
				break;
			case FLOW_ACTION_VLAN_POP:
				skb_push(skb, ETH_HLEN);
				if (skb_vlan_pop(skb))
					return true;
				skb_pull(skb, ETH_HLEN);
				break;
			case FLOW_ACTION_GOTO:
				chain = a->chain;
				break;
			case FLOW_ACTION_POLICE:
				if (conforms(a->policer, skb->len + ETH_HLEN))
					break;
				atomic64_inc(&r->drops);
				kfree_skb(skb);
				return true;
			default:
				kfree_skb(skb);
				return true;
			}
		}
		if (!r->n_acts || r->acts[r->n_acts - 1].id != FLOW_ACTION_GOTO) {
			kfree_skb(skb);
			return true;
		}
	}
	kfree_skb(skb);
	return true;
}

/* Runs the rules of a tunnel on what is in a packet of VXLAN over IPv4. Returns true when the card has
 * finished the packet, which is then gone. */
static bool process_inner(struct sk_buff *skb)
{
	struct headers { struct iphdr ip; struct udphdr udp; struct vxlanhdr vxlan; } __packed *h;
	struct ip_tunnel_key *key;
	struct metadata_dst *md;
	struct sk_buff *inner;
	unsigned int i;

	if (skb->protocol != htons(ETH_P_IP) || !pskb_may_pull(skb, sizeof(*h) + ETH_HLEN))
		return false;
	h = (void *)skb->data;
	if (h->ip.ihl != 5 || ip_is_fragment(&h->ip) || h->ip.protocol != IPPROTO_UDP)
		return false;
	for (i = 0; i < MOST_TUNNELS; i++) {
		struct net_device *dev = READ_ONCE(tunnels[i].dev);

		if (dev && ((struct vxlan_dev *)netdev_priv(dev))->cfg.dst_port == h->udp.dest)
			break;
	}
	if (i == MOST_TUNNELS)
		return false;
	md = metadata_dst_alloc(0, METADATA_IP_TUNNEL, GFP_ATOMIC);
	inner = md ? skb_copy(skb, GFP_ATOMIC) : NULL;
	if (!inner) {
		if (md)
			dst_release(&md->dst);
		return false;
	}
	key = &md->u.tun_info.key;
	key->tun_id = key32_to_tunnel_id(vxlan_vni(h->vxlan.vx_vni));
	key->u.ipv4.src = h->ip.saddr;
	key->u.ipv4.dst = h->ip.daddr;
	key->tos = h->ip.tos;
	key->ttl = h->ip.ttl;
	key->tp_src = h->udp.source;
	key->tp_dst = h->udp.dest;
	skb_dst_drop(inner);
	skb_dst_set(inner, &md->dst);
	skb_pull(inner, sizeof(*h));
	inner->protocol = eth_type_trans(inner, skb->dev);
	skb_reset_network_header(inner);
	if (process(&tunnels[i], inner)) {
		kfree_skb(skb);
		return true;
	}
	kfree_skb(inner);
	return false;
}

static netdev_tx_t card_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct dev_priv *d = netdev_priv(dev);
	struct card_port *p = d->port;
	struct net_device *other = d->is_wire ? p->dev : p->wire;

	skb_tx_timestamp(skb);
	dev_sw_netstats_tx_add(dev, 1, skb->len);
	skb_orphan(skb);
	skb_dst_drop(skb);
	nf_reset_ct(skb);
	if (skb->ip_summed == CHECKSUM_PARTIAL)
		skb_checksum_help(skb);
	if (!(other->flags & IFF_UP) || !(dev->flags & IFF_UP)) {
		kfree_skb(skb);
		return NETDEV_TX_OK;
	}
	skb->dev = other;
	skb->pkt_type = PACKET_HOST;
	skb->protocol = eth_type_trans(skb, other);
	skb_reset_network_header(skb);
	dev_sw_netstats_rx_add(other, skb->len + ETH_HLEN);
	if (d->is_wire) {
		bool done;

		rcu_read_lock();
		done = process(p, skb) || process_inner(skb);
		rcu_read_unlock();
		if (done) {
			hits++;
			return NETDEV_TX_OK;
		}
		misses++;
	}
	netif_rx(skb);
	return NETDEV_TX_OK;
}

static int is_card(struct net_device *dev);

static int add(struct card_port *p, struct flow_cls_offload *f)
{
	struct flow_rule *fr = flow_cls_offload_flow_rule(f);
	struct netlink_ext_ack *extack = f->common.extack;
	const struct flow_action_entry *a;
	struct rule *r;
	bool has_headers = false;
	int i, k;

	if (f->common.chain_index && !chains) {
		NL_SET_ERR_MSG_MOD(extack, "this card has chain 0 only");
		return -EOPNOTSUPP;
	}
	if (atomic_read(&n_rules) >= room) {
		NL_SET_ERR_MSG_MOD(extack, "the card is full");
		return -ENOSPC;
	}
	r = kzalloc(sizeof(*r), GFP_KERNEL);
	if (!r)
		return -ENOMEM;
	r->cookie = f->cookie;
	r->chain = f->common.chain_index;
	r->prio = f->common.prio;
	r->protocol = f->common.protocol;
	r->dissector = *fr->match.dissector;
	for (k = 0; k < FLOW_DISSECTOR_KEY_MAX; k++) {
		unsigned int end;

		if (!dissector_uses_key(&r->dissector, k))
			continue;
		if (!key_size[k] || r->dissector.offset[k] + key_size[k] > KEY_BYTES) {
			NL_SET_ERR_MSG_MOD(extack, "the card does not parse a field of the match");
			kfree(r);
			return -EOPNOTSUPP;
		}
		end = r->dissector.offset[k] + key_size[k];
		memcpy(r->key + r->dissector.offset[k], (u8 *)fr->match.key + r->dissector.offset[k], key_size[k]);
		memcpy(r->mask + r->dissector.offset[k], (u8 *)fr->match.mask + r->dissector.offset[k], key_size[k]);
		r->len = max(r->len, end);
	}
	flow_action_for_each(i, a, &fr->action) {
		struct act *t = &r->acts[r->n_acts];

		if (r->n_acts == MOST_ACTIONS || refuse & BIT(a->id)) {
			NL_SET_ERR_MSG_MOD(extack, "the card lacks an action");
			goto unsupported;
		}
		t->id = a->id;
		switch (a->id) {
		case FLOW_ACTION_REDIRECT:
		case FLOW_ACTION_MIRRED:
			k = is_card(a->dev);
			if (k < 0 && has_headers && netif_is_vxlan(a->dev)) {
				t->by = a->dev;
				has_headers = false;
				break;
			}
			if (k < 0) {
				NL_SET_ERR_MSG_MOD(extack, "the card sends to its own ports only");
				goto unsupported;
			}
			t->to = &card[k];
			break;
		case FLOW_ACTION_VLAN_PUSH:
			t->vid = a->vlan.vid;
			t->proto = a->vlan.proto;
			t->prio = a->vlan.prio;
			break;
		case FLOW_ACTION_GOTO:
			if (!chains) {
				NL_SET_ERR_MSG_MOD(extack, "this card has chain 0 only");
				goto unsupported;
			}
			t->chain = a->chain_index;
			break;
		case FLOW_ACTION_POLICE:
			if (a->police.exceed.act_id != FLOW_ACTION_DROP ||
			    a->police.notexceed.act_id != FLOW_ACTION_PIPE) {
				NL_SET_ERR_MSG_MOD(extack, "the card's policers drop or go on");
				goto unsupported;
			}
			t->policer = policer_of(a);
			if (!t->policer) {
				NL_SET_ERR_MSG_MOD(extack, "the card has no more policers");
				goto unsupported;
			}
			break;
		case FLOW_ACTION_TUNNEL_ENCAP:
			/* The flags that say how the headers are used are those of the kernel's action. */
			t->tunnel = a->tunnel->mode & IP_TUNNEL_INFO_IPV6 ? NULL : headers_of(a->tunnel);
			if (!t->tunnel) {
				NL_SET_ERR_MSG_MOD(extack, "the card's tunnels are over IPv4");
				goto unsupported;
			}
			has_headers = true;
			break;
		case FLOW_ACTION_TUNNEL_DECAP:
		case FLOW_ACTION_VLAN_POP:
		case FLOW_ACTION_DROP:
			break;
		default:
			NL_SET_ERR_MSG_MOD(extack, "the card lacks an action");
			goto unsupported;
		}
		r->n_acts++;
	}
	spin_lock_bh(&lock);
	list_add_tail_rcu(&r->list, &p->rules);
	spin_unlock_bh(&lock);
	atomic_inc(&n_rules);
	return 0;
unsupported:
	leave_policers(r);
	free_rule(&r->rcu);
	return -EOPNOTSUPP;
}

static struct rule *by_cookie(struct card_port *p, unsigned long cookie)
{
	struct rule *r;

	list_for_each_entry(r, &p->rules, list)
		if (r->cookie == cookie)
			return r;
	return NULL;
}

static int block_cb(enum tc_setup_type type, void *type_data, void *cb_priv)
{
	struct card_port *p = cb_priv;
	struct flow_cls_offload *f = type_data;
	struct rule *r;
	u64 packets, bytes, drops;
	int err = 0;

	if (type != TC_SETUP_CLSFLOWER)
		return -EOPNOTSUPP;
	if (p->wire && !tc_can_offload_extack(p->dev, f->common.extack))
		return -EOPNOTSUPP;
	switch (f->command) {
	case FLOW_CLS_REPLACE:
		return add(p, f);
	case FLOW_CLS_DESTROY:
		spin_lock_bh(&lock);
		r = by_cookie(p, f->cookie);
		if (r)
			list_del_rcu(&r->list);
		spin_unlock_bh(&lock);
		if (!r)
			return -ENOENT;
		atomic_dec(&n_rules);
		leave_policers(r);
		call_rcu(&r->rcu, free_rule);
		return 0;
	case FLOW_CLS_STATS:
		spin_lock_bh(&lock);
		r = by_cookie(p, f->cookie);
		if (r) {
			packets = atomic64_read(&r->packets);
			bytes = atomic64_read(&r->bytes);
			drops = atomic64_read(&r->drops);
			flow_stats_update(&f->stats, bytes - r->reported_bytes, packets - r->reported_packets,
					  drops - r->reported_drops, r->used, FLOW_ACTION_HW_STATS_DELAYED);
			r->reported_drops = drops;
			r->reported_packets = packets;
			r->reported_bytes = bytes;
		} else {
			err = -ENOENT;
		}
		spin_unlock_bh(&lock);
		return err;
	default:
		return -EOPNOTSUPP;
	}
}

static int card_setup_tc(struct net_device *dev, enum tc_setup_type type, void *type_data)
{
	struct dev_priv *d = netdev_priv(dev);

	if (type != TC_SETUP_BLOCK || d->is_wire)
		return -EOPNOTSUPP;
	return flow_block_cb_setup_simple(type_data, &block_cbs, block_cb, d->port, d->port, true);
}

static void leave_tunnel(void *priv)
{
	struct card_port *tunnel = priv;

	WRITE_ONCE(tunnel->dev, NULL);
}

/* Takes the filters of tunnel devices, of which no driver is asked. */
static int tunnel_setup_tc(struct net_device *dev, struct Qdisc *sch, void *priv, enum tc_setup_type type,
			   void *type_data, void *data, void (*cleanup)(struct flow_block_cb *block_cb))
{
	struct flow_block_offload *f = type_data;
	struct card_port *t, *free = NULL, *tunnel = NULL;
	struct flow_block_cb *cb;

	if (!dev || type != TC_SETUP_BLOCK || !netif_is_vxlan(dev) ||
	    f->binder_type != FLOW_BLOCK_BINDER_TYPE_CLSACT_INGRESS)
		return -EOPNOTSUPP;
	for (t = tunnels; t < tunnels + MOST_TUNNELS; t++) {
		if (t->dev == dev)
			tunnel = t;
		if (!t->dev)
			free = t;
	}
	f->driver_block_list = &tunnel_block_cbs;
	switch (f->command) {
	case FLOW_BLOCK_BIND:
		if (tunnel || !free)
			return -EOPNOTSUPP;
		cb = flow_indr_block_cb_alloc(block_cb, free, free, leave_tunnel, f, dev, sch, data, priv, cleanup);
		if (IS_ERR(cb))
			return PTR_ERR(cb);
		WRITE_ONCE(free->dev, dev);
		flow_block_cb_add(cb, f);
		list_add_tail(&cb->driver_list, &tunnel_block_cbs);
		return 0;
	case FLOW_BLOCK_UNBIND:
		cb = tunnel ? flow_block_cb_lookup(f->block, block_cb, tunnel) : NULL;
		if (!cb)
			return -ENOENT;
		flow_indr_block_cb_remove(cb, f);
		list_del(&cb->driver_list);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int card_parent_id(struct net_device *dev, struct netdev_phys_item_id *id)
{
	struct dev_priv *d = netdev_priv(dev);

	if (d->is_wire)
		return -EOPNOTSUPP;
	id->id_len = 4;
	memcpy(id->id, "card", 4);
	return 0;
}

static int card_port_name(struct net_device *dev, char *name, size_t len)
{
	struct dev_priv *d = netdev_priv(dev);

	if (d->is_wire)
		return -EOPNOTSUPP;
	return snprintf(name, len, "pf0vf%u", d->port->index) >= len ? -EINVAL : 0;
}

static const struct net_device_ops card_ops = {
	.ndo_start_xmit = card_xmit,
	.ndo_setup_tc = card_setup_tc,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_get_port_parent_id = card_parent_id,
	.ndo_get_phys_port_name = card_port_name,
};

static int is_card(struct net_device *dev)
{
	struct dev_priv *d;

	if (dev->netdev_ops != &card_ops)
		return -1;
	d = netdev_priv(dev);
	return d->is_wire ? -1 : d->port->index;
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
static int card_init(struct net_device *dev)
{
	dev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	return dev->tstats ? 0 : -ENOMEM;
}
static void card_free(struct net_device *dev) { free_percpu(dev->tstats); }
#endif

static void setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &card_ops;
	dev->needs_free_netdev = true;
	dev->hw_features = NETIF_F_HW_TC | NETIF_F_SG | NETIF_F_HW_CSUM;
	dev->features = NETIF_F_SG | NETIF_F_HW_CSUM;
	dev->max_mtu = 9000;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
	dev->features |= NETIF_F_LLTX;
#else
	dev->lltx = true;
#endif
	eth_hw_addr_random(dev);
}

static struct net_device *make(struct card_port *p, bool is_wire)
{
	char name[IFNAMSIZ];
	struct net_device *dev;
	struct dev_priv *d;

	snprintf(name, sizeof(name), "%s%u", is_wire ? "wire" : "card", p->index);
	dev = alloc_netdev(sizeof(*d), name, NET_NAME_USER, setup);
	if (!dev)
		return NULL;
	d = netdev_priv(dev);
	d->port = p;
	d->is_wire = is_wire;
	if (is_wire)
		dev->hw_features &= ~NETIF_F_HW_TC;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
	if (card_init(dev))
		return NULL;
	dev->priv_destructor = card_free;
#else
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
#endif
	if (register_netdev(dev))
		return NULL;
	return dev;
}

static int __init swcard_init(void)
{
	unsigned int i;

	card = kcalloc(ports, sizeof(*card), GFP_KERNEL);
	if (!card)
		return -ENOMEM;
	for (i = 0; i < ports; i++) {
		card[i].index = i;
		INIT_LIST_HEAD(&card[i].rules);
		card[i].dev = make(&card[i], false);
		card[i].wire = make(&card[i], true);
		if (!card[i].dev || !card[i].wire)
			return -ENOMEM; /* the guest ends; nothing is undone */
	}
	for (i = 0; i < MOST_TUNNELS; i++)
		INIT_LIST_HEAD(&tunnels[i].rules);
	if (flow_indr_dev_register(tunnel_setup_tc, tunnels))
		return -ENOMEM; /* the guest ends; nothing is undone */
	dir = debugfs_create_dir("swcard", NULL);
	debugfs_create_atomic_t("rules", 0444, dir, &n_rules);
	debugfs_create_u32("hits", 0444, dir, &hits);
	debugfs_create_u32("misses", 0444, dir, &misses);
	return 0;
}

static void __exit swcard_exit(void)
{
	unsigned int i;

	debugfs_remove_recursive(dir);
	flow_indr_dev_unregister(tunnel_setup_tc, tunnels, leave_tunnel);
	for (i = 0; i < ports; i++) {
		unregister_netdev(card[i].wire);
		unregister_netdev(card[i].dev);
	}
	rcu_barrier();
	kfree(card);
}

module_init(swcard_init);
module_exit(swcard_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A switch card in software, for tests");
