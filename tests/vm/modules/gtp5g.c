// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A small GTP-U data path that looks to a tracer like free5GC's gtp5g v0.10.2:
 * the same module name, functions, arguments and contexts. For the VM tests only.
 *
 *   uplink    gtp5g_encap_recv, in the softirq that receives from N3
 *               gtp1u_udp_encap_recv
 *                 pdr_find_by_gtp1u
 *                 gtp5g_rx
 *                   gtp5g_fwd_skb_encap: policePacket, netif_rx
 *   downlink  gtp5g_dev_xmit, in whatever context sends to the device
 *               gtp5g_handle_skb_ipv4
 *                 pdr_find_by_ipv4
 *                 gtp5g_fwd_skb_ipv4
 *                   ip4_find_route (v0.10.2 has an inlined one of its own here)
 *                   policePacket
 *                   gtp5g_push_header
 *               gtp5g_xmit_skb_ipv4
 *
 * `ip link add upf0 type gtp5g` makes a device and a socket on port 2152 of every
 * address of its network namespace. There is no control plane: the device learns
 * from each uplink packet where its UE is. What is sent to the UE then goes back to
 * the outer source address of that packet, to port 2152, in the tunnel of the same
 * TEID and as QoS flow 1.
 */

#include <linux/if_arp.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/gtp.h>
#include <net/ip.h>
#include <net/route.h>
#include <net/rtnetlink.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

/*
 * Marks the traced functions: the compiler must neither inline nor rename them. It may
 * do so with the real ones: GCC 16 leaves no gtp1u_udp_encap_recv, gtp5g_rx or
 * gtp5g_fwd_skb_*.
 */
#define __traced noinline __noclone

/* What happens to a packet. */
enum {
	PKT_DROPPED_AND_FREED = -2,
	PKT_DROPPED = -1,
	PKT_FORWARDED = 0,
};

enum {
	GTP5G_ROLE_UPF = 0,
	/* How many UEs a device can learn. */
	MAX_UES = 64,
	/* The PDU session container (3GPP TS 38.415) as a GTP-U extension header. */
	PDU_SESSION_CONTAINER = 0x85,
	QOS_FLOW = 1,
};

/* The GTP-U header of every downlink packet. */
struct gtpu_header {
	struct gtp1_header_long gtp;
	u8 words;		/* length of the extension header, in 4 bytes */
	u8 pdu_type;		/* 0: downlink, in the upper half */
	u8 qfi;
	u8 next;
} __packed;

typedef enum { Green, Yellow, Red } Color;

typedef struct {
	spinlock_t lock;
	u64 bytes;
} TrafficPolicer;

/* Forwarding action: where the tunnel of a UE ends. */
struct far {
	__be32 peer_addr;
	__be32 teid;
};

/* Packet detection rule: one for each UE, in both directions. */
struct pdr {
	__be32 ue_addr;
	__be32 role_addr;	/* our end of the tunnel */
	struct sock *sk;
	struct net_device *dev;
	struct far far;
	TrafficPolicer policer;
};

struct gtp5g_dev {
	struct net_device *dev;
	struct sock *sk1u;
	unsigned int role;
	spinlock_t lock;	/* held to add or change a rule */
	unsigned int pdr_num;
	struct pdr pdrs[MAX_UES];
};

/* What gtp5g_xmit_skb_ipv4 needs to know about a packet. */
struct gtp5g_pktinfo {
	struct sock *sk;
	struct iphdr *iph;
	struct flowi4 fl4;
	struct rtable *rt;
	struct far *far;
	u8 qfi;
	__be16 gtph_port;
};

static bool drop;
module_param(drop, bool, 0644);
MODULE_PARM_DESC(drop, "drop every packet that has a rule");

static struct pdr *find_ue(struct gtp5g_dev *gtp, __be32 addr)
{
	/* Pairs with the release in learn_ue. */
	unsigned int num = smp_load_acquire(&gtp->pdr_num);

	for (unsigned int i = 0; i < num; i++)
		if (gtp->pdrs[i].ue_addr == addr)
			return &gtp->pdrs[i];
	return NULL;
}

/* The rule for a UE whose packet came in @outer and the tunnel @teid. */
static struct pdr *learn_ue(struct gtp5g_dev *gtp, const struct iphdr *outer,
			    __be32 teid, __be32 addr)
{
	struct pdr *pdr = find_ue(gtp, addr);

	if (pdr && READ_ONCE(pdr->far.peer_addr) == outer->saddr &&
	    READ_ONCE(pdr->far.teid) == teid && READ_ONCE(pdr->role_addr) == outer->daddr)
		return pdr;

	spin_lock_bh(&gtp->lock);
	pdr = find_ue(gtp, addr);
	if (!pdr && gtp->pdr_num < MAX_UES) {
		pdr = &gtp->pdrs[gtp->pdr_num];
		pdr->ue_addr = addr;
		pdr->sk = gtp->sk1u;
		pdr->dev = gtp->dev;
		spin_lock_init(&pdr->policer.lock);
	}
	if (pdr) {
		WRITE_ONCE(pdr->far.peer_addr, outer->saddr);
		WRITE_ONCE(pdr->far.teid, teid);
		WRITE_ONCE(pdr->role_addr, outer->daddr);
		if (pdr == &gtp->pdrs[gtp->pdr_num])
			smp_store_release(&gtp->pdr_num, gtp->pdr_num + 1);
	}
	spin_unlock_bh(&gtp->lock);
	return pdr;
}

static __traced struct pdr *pdr_find_by_gtp1u(struct gtp5g_dev *gtp, struct sk_buff *skb,
					      unsigned int hdrlen, u32 teid, u8 type)
{
	struct iphdr *iph;

	if (type != GTP_TPDU || !pskb_may_pull(skb, hdrlen + sizeof(*iph)))
		return NULL;
	iph = (struct iphdr *)(skb->data + hdrlen);
	if (iph->version != 4)
		return NULL;
	return learn_ue(gtp, ip_hdr(skb), (__force __be32)teid, iph->saddr);
}

static __traced struct pdr *pdr_find_by_ipv4(struct gtp5g_dev *gtp, struct sk_buff *skb,
					     unsigned int hdrlen, __be32 addr)
{
	return find_ue(gtp, addr);
}

/* Counts under a lock, like the real one, and lets everything pass. */
static __traced Color policePacket(TrafficPolicer *p, int pktLen)
{
	spin_lock_bh(&p->lock);
	p->bytes += pktLen;
	spin_unlock_bh(&p->lock);
	return Green;
}

/* The compiler may inline these two: a tracer must do without some functions. */
static int gtp5g_drop_skb_encap(struct sk_buff *skb, struct net_device *dev, struct pdr *pdr)
{
	dev_core_stats_rx_dropped_inc(dev);
	return PKT_DROPPED;
}

static int gtp5g_drop_skb_ipv4(struct sk_buff *skb, struct net_device *dev, struct pdr *pdr)
{
	dev_core_stats_tx_dropped_inc(dev);
	return PKT_DROPPED;
}

static __traced int gtp5g_fwd_skb_encap(struct sk_buff *skb, struct net_device *dev,
					unsigned int hdrlen, struct pdr *pdr, struct far *far)
{
	if (policePacket(&pdr->policer, skb->len - hdrlen) == Red)
		return PKT_DROPPED;
	if (iptunnel_pull_header(skb, hdrlen, htons(ETH_P_IP), false))
		return PKT_DROPPED;
	skb_reset_network_header(skb);
	skb_reset_mac_header(skb);
	skb->dev = dev;
	dev_sw_netstats_rx_add(dev, skb->len);
	return netif_rx(skb) == NET_RX_SUCCESS ? PKT_FORWARDED : PKT_DROPPED_AND_FREED;
}

static __traced int gtp5g_rx(struct pdr *pdr, struct sk_buff *skb,
			     unsigned int hdrlen, unsigned int role)
{
	if (READ_ONCE(drop))
		return gtp5g_drop_skb_encap(skb, pdr->dev, pdr);
	return gtp5g_fwd_skb_encap(skb, pdr->dev, hdrlen, pdr, &pdr->far);
}

/*
 * Where the optional fields at @pos and the extension headers after them end; 0 if
 * they are cut off. The last byte of each says what comes next.
 */
static unsigned int skip_optional(struct sk_buff *skb, unsigned int pos, bool extended)
{
	unsigned int len = sizeof(struct gtp1_header_long) - sizeof(struct gtp1_header);

	for (;;) {
		pos += len;
		if (!pskb_may_pull(skb, pos))
			return 0;
		if (!extended || !skb->data[pos - 1])
			return pos;
		if (!pskb_may_pull(skb, pos + 1) || !skb->data[pos])
			return 0;
		len = 4 * skb->data[pos];
	}
}

static __traced int gtp1u_udp_encap_recv(struct gtp5g_dev *gtp, struct sk_buff *skb)
{
	unsigned int hdrlen = sizeof(struct udphdr) + sizeof(struct gtp1_header);
	struct gtp1_header gtp1;
	struct pdr *pdr;

	if (!pskb_may_pull(skb, hdrlen))
		return PKT_DROPPED;
	gtp1 = *(struct gtp1_header *)(skb->data + sizeof(struct udphdr));
	/* This drops echo requests, too: no process reads the socket. */
	if (gtp1.flags >> 5 != 1 || gtp1.type != GTP_TPDU)
		return PKT_DROPPED;
	if (gtp1.flags & GTP1_F_MASK) {
		hdrlen = skip_optional(skb, hdrlen, gtp1.flags & GTP1_F_EXTHDR);
		if (!hdrlen)
			return PKT_DROPPED;
	}
	pdr = pdr_find_by_gtp1u(gtp, skb, hdrlen, (__force u32)gtp1.tid, gtp1.type);
	if (!pdr)
		return PKT_DROPPED;
	return gtp5g_rx(pdr, skb, hdrlen, gtp->role);
}

static __traced int gtp5g_encap_recv(struct sock *sk, struct sk_buff *skb)
{
	struct gtp5g_dev *gtp = rcu_dereference_sk_user_data(sk);

	/* The device is about to be removed. */
	if (!gtp)
		return 1;
	if (gtp1u_udp_encap_recv(gtp, skb) == PKT_DROPPED)
		kfree_skb(skb);
	return 0;
}

static __traced struct rtable *ip4_find_route(struct sk_buff *skb, struct iphdr *iph,
					      struct sock *sk, struct net_device *gtp_dev,
					      __be32 saddr, __be32 daddr, struct flowi4 *fl4)
{
	struct rtable *rt;

	*fl4 = (struct flowi4){
		.daddr = daddr,
		.saddr = saddr,
		.flowi4_proto = sk->sk_protocol,
	};
	rt = ip_route_output_key(dev_net(gtp_dev), fl4);
	if (IS_ERR(rt)) {
		netdev_dbg(gtp_dev, "no route for a packet to %pI4\n", &iph->daddr);
		return rt;
	}
	/* The packet would enter the tunnel again, forever. */
	if (rt->dst.dev == gtp_dev) {
		ip_rt_put(rt);
		return ERR_PTR(-ELOOP);
	}
	skb_dst_drop(skb);
	return rt;
}

static __traced void gtp5g_push_header(struct sk_buff *skb, struct gtp5g_pktinfo *pktinfo)
{
	unsigned int payload = skb->len;
	struct gtpu_header *header = skb_push(skb, sizeof(*header));

	*header = (struct gtpu_header){
		.gtp = {
			.flags = 1 << 5 | 1 << 4 | GTP1_F_EXTHDR,
			.type = GTP_TPDU,
			.length = htons(payload + sizeof(*header) - sizeof(struct gtp1_header)),
			.tid = READ_ONCE(pktinfo->far->teid),
			.next = PDU_SESSION_CONTAINER,
		},
		.words = 1,
		.qfi = pktinfo->qfi,
	};
}

static __traced int gtp5g_fwd_skb_ipv4(struct sk_buff *skb, struct net_device *dev,
				       struct gtp5g_pktinfo *pktinfo, struct pdr *pdr,
				       struct far *far)
{
	struct iphdr *iph = ip_hdr(skb);
	struct rtable *rt;

	if (policePacket(&pdr->policer, skb->len) == Red)
		return PKT_DROPPED;
	rt = ip4_find_route(skb, iph, pdr->sk, dev, READ_ONCE(pdr->role_addr),
			    READ_ONCE(far->peer_addr), &pktinfo->fl4);
	if (IS_ERR(rt))
		return -EBADMSG;
	pktinfo->sk = pdr->sk;
	pktinfo->iph = iph;
	pktinfo->rt = rt;
	pktinfo->far = far;
	pktinfo->qfi = QOS_FLOW;
	pktinfo->gtph_port = htons(GTP1U_PORT);
	gtp5g_push_header(skb, pktinfo);
	return PKT_FORWARDED;
}

static __traced int gtp5g_handle_skb_ipv4(struct sk_buff *skb, struct net_device *dev,
					  struct gtp5g_pktinfo *pktinfo)
{
	struct gtp5g_dev *gtp = netdev_priv(dev);
	struct pdr *pdr = pdr_find_by_ipv4(gtp, skb, 0, ip_hdr(skb)->daddr);

	if (!pdr)
		return -ENOENT;
	if (READ_ONCE(drop))
		return gtp5g_drop_skb_ipv4(skb, dev, pdr);
	return gtp5g_fwd_skb_ipv4(skb, dev, pktinfo, pdr, &pdr->far);
}

static __traced void gtp5g_xmit_skb_ipv4(struct sk_buff *skb, struct gtp5g_pktinfo *pktinfo)
{
	udp_tunnel_xmit_skb(pktinfo->rt, pktinfo->sk, skb, pktinfo->fl4.saddr, pktinfo->fl4.daddr,
			    pktinfo->iph->tos, ip4_dst_hoplimit(&pktinfo->rt->dst), 0,
			    pktinfo->gtph_port, pktinfo->gtph_port, true, true, 0);
}

static __traced netdev_tx_t gtp5g_dev_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct gtp5g_pktinfo pktinfo;
	int ret = -EOPNOTSUPP;

	if (skb_cow_head(skb, dev->needed_headroom) || !pskb_inet_may_pull(skb))
		goto error;
	skb_reset_inner_headers(skb);
	rcu_read_lock();
	if (skb->protocol == htons(ETH_P_IP))
		ret = gtp5g_handle_skb_ipv4(skb, dev, &pktinfo);
	rcu_read_unlock();
	if (ret < 0)
		goto error;
	gtp5g_xmit_skb_ipv4(skb, &pktinfo);
	return NETDEV_TX_OK;

error:
	DEV_STATS_INC(dev, tx_errors);
	kfree_skb(skb);
	return NETDEV_TX_OK;
}

static int gtp5g_dev_init(struct net_device *dev)
{
	struct gtp5g_dev *gtp = netdev_priv(dev);
	struct net *net = dev_net(dev);
	struct udp_port_cfg port = {
		.family = AF_INET,
		.local_ip.s_addr = htonl(INADDR_ANY),
		.local_udp_port = htons(GTP1U_PORT),
	};
	struct udp_tunnel_sock_cfg tunnel = {
		.sk_user_data = gtp,
		.encap_type = UDP_ENCAP_GTP1U,
		.encap_rcv = gtp5g_encap_recv,
	};
	struct socket *sock;
	int err;

	err = udp_sock_create(net, &port, &sock);
	if (err)
		return err;
	gtp->dev = dev;
	gtp->sk1u = sock->sk;
	gtp->role = GTP5G_ROLE_UPF;
	spin_lock_init(&gtp->lock);
	setup_udp_tunnel_sock(net, sock->sk, &tunnel);
	return 0;
}

static void gtp5g_dev_uninit(struct net_device *dev)
{
	struct gtp5g_dev *gtp = netdev_priv(dev);

	udp_tunnel_sock_release(gtp->sk1u);
}

static const struct net_device_ops gtp5g_netdev_ops = {
	.ndo_init = gtp5g_dev_init,
	.ndo_uninit = gtp5g_dev_uninit,
	.ndo_start_xmit = gtp5g_dev_xmit,
};

static void gtp5g_link_setup(struct net_device *dev)
{
	unsigned int overhead =
		sizeof(struct iphdr) + sizeof(struct udphdr) + sizeof(struct gtpu_header);

	dev->netdev_ops = &gtp5g_netdev_ops;
	dev->needs_free_netdev = true;
	dev->type = ARPHRD_NONE;
	dev->flags = IFF_POINTOPOINT | IFF_NOARP | IFF_MULTICAST;
	dev->mtu = ETH_DATA_LEN - overhead;
	dev->needed_headroom = LL_MAX_HEADER + overhead;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	dev->priv_flags |= IFF_NO_QUEUE;
	dev->lltx = true;
	/* The device's socket stays in its network namespace. */
	dev->netns_immutable = true;
	netif_keep_dst(dev);
}

static struct rtnl_link_ops gtp5g_link_ops __read_mostly = {
	.kind = "gtp5g",
	.priv_size = sizeof(struct gtp5g_dev),
	.setup = gtp5g_link_setup,
};

static int __init gtp5g_init(void)
{
	return rtnl_link_register(&gtp5g_link_ops);
}

/* Removes the devices, too. */
static void __exit gtp5g_fini(void)
{
	rtnl_link_unregister(&gtp5g_link_ops);
}

module_init(gtp5g_init);
module_exit(gtp5g_fini);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A stand-in for free5GC's gtp5g in gthctl's tests");
MODULE_ALIAS_RTNL_LINK("gtp5g");
