// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * freer0, an Ethernet device that frees sent packets with dev_kfree_skb_any(), as vmxnet3 does. The
 * kernel's tracepoints report that as a drop.
 */
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/netdevice.h>

static netdev_tx_t freer_xmit(struct sk_buff *skb, struct net_device *dev)
{
	dev_sw_netstats_tx_add(dev, 1, skb->len);
	dev_kfree_skb_any(skb);
	return NETDEV_TX_OK;
}

static const struct net_device_ops freer_ops = {
	.ndo_start_xmit = freer_xmit,
};

static struct net_device *freer;

static void freer_setup(struct net_device *dev)
{
	ether_setup(dev);
	eth_hw_addr_random(dev);
	dev->netdev_ops = &freer_ops;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	dev->flags |= IFF_NOARP;
	dev->priv_flags |= IFF_NO_QUEUE;
}

static int __init freer_init(void)
{
	int err;

	freer = alloc_netdev(0, "freer%d", NET_NAME_ENUM, freer_setup);
	if (!freer)
		return -ENOMEM;
	err = register_netdev(freer);
	if (err)
		free_netdev(freer);
	return err;
}

static void __exit freer_exit(void)
{
	unregister_netdev(freer);
	free_netdev(freer);
}

module_init(freer_init);
module_exit(freer_exit);
MODULE_DESCRIPTION("A network device that frees what it has sent as if it were dropped");
MODULE_LICENSE("GPL");
