/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Packets that end in the data plane, just before it or just after it, counted by the
 * code that ended them and the reason.
 */
#ifndef GTH_TRACE_DROPS_H
#define GTH_TRACE_DROPS_H

#include "packet.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GTH_PACKET_DROPS);
	__type(key, struct gth_drop_key);
	__type(value, struct gth_drop_count);
} drops SEC(".maps");

static __always_inline void count_drop(const struct gth_drop_key *key, u32 bytes)
{
	struct gth_drop_count *count, fresh = {};

	if (!packet_what.drops)
		return;
	count = bpf_map_lookup_elem(&drops, key);
	if (!count) {
		bpf_map_update_elem(&drops, key, &fresh, 1 /* BPF_NOEXIST */);
		count = bpf_map_lookup_elem(&drops, key);
		if (!count) {
			__sync_fetch_and_add(&lost.drops, 1);
			return;
		}
	}
	count->packets++;
	count->bytes += bytes;
}

static __always_inline void describe_packet(struct gth_drop_key *key, const struct packet *packet)
{
	key->entry = packet->entry;
	key->refused = packet->refused;
	key->returned = packet->returned;
	key->passed = packet->passed;
	key->message = packet->message;
}

/* Called when the entry function has ended. */
static __always_inline void count_if_left(struct packet *packet, u64 cookie, u64 returned)
{
	struct gth_drop_key key = { .end = GTH_END_LEFT };

	if (!refuses(refusal_of(cookie), returned))
		return;
	packet->dropped = true;
	describe_packet(&key, packet);
	count_drop(&key, packet->bytes);
}

/* Whether the packet is at a device of the data plane. Sets @received to whether it came from that device. */
static __always_inline bool is_at_device(const struct sk_buff *skb, u32 *received)
{
	struct net_device *dev = BPF_CORE_READ(skb, dev);
	char kind[GTH_PACKET_KIND_LEN] = {};
	const char *name;
	u32 i;

	if (!packet_what.kind[0] || !dev)
		return false;
	name = BPF_CORE_READ(dev, rtnl_link_ops, kind);
	if (bpf_probe_read_kernel_str(kind, sizeof(kind), name) < 0)
		return false;
	for (i = 0; i < GTH_PACKET_KIND_LEN; i++) {
		if (kind[i] != packet_what.kind[i])
			return false;
		if (!kind[i])
			break;
	}
	*received = BPF_CORE_READ(skb, skb_iif) == BPF_CORE_READ(dev, ifindex);
	return true;
}

enum {
	ETH_P_IP = 0x0800,
	ETH_P_IPV6 = 0x86dd,
	IP_PROTOCOL = 9,	/* offset of the protocol in an IPv4 header, bytes (RFC 791, 3.1) */
	IPV6_NEXT_HEADER = 6,	/* ... and in an IPv6 header (RFC 8200, 3) */
	IPPROTO_UDP = 17,
	NO_HEADER = 0xffff,	/* skb_transport_header_was_set(), include/linux/skbuff.h */
};

/* The offset of the protocol in the packet's IP header; 0: it is not an IP packet. */
static __always_inline u32 protocol_at(const struct sk_buff *skb)
{
	switch (BPF_CORE_READ(skb, protocol)) {
	case __builtin_bswap16(ETH_P_IP):
		return IP_PROTOCOL;
	case __builtin_bswap16(ETH_P_IPV6):
		return IPV6_NEXT_HEADER;
	default:
		return 0;
	}
}

/* Whether the packet is a UDP datagram to the port. Over IPv6, only without extension headers. */
static __always_inline bool is_at_port(const struct sk_buff *skb)
{
	const unsigned char *head = BPF_CORE_READ(skb, head);
	u16 ip = BPF_CORE_READ(skb, network_header), udp = BPF_CORE_READ(skb, transport_header);
	u32 at = packet_what.port ? protocol_at(skb) : 0;
	__be16 port = 0;
	u8 protocol = 0;

	if (!at || udp == NO_HEADER || udp <= ip)
		return false;
	if (bpf_probe_read_kernel(&protocol, sizeof(protocol), head + ip + at) || protocol != IPPROTO_UDP)
		return false;
	return !bpf_probe_read_kernel(&port, sizeof(port), head + udp + 2) &&
	       port == __builtin_bswap16(packet_what.port);
}

/*
 * Some drivers free the packets that they have sent as if they were dropped: vmxnet3, bnx2x, pcnet32. Such
 * a packet was not received by the device that it is at: a socket or another device sent it there.
 */
static __always_inline bool may_be_sent(const struct sk_buff *skb, u32 reason)
{
	return reason == bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_NOT_SPECIFIED) &&
	       BPF_CORE_READ(skb, skb_iif) != BPF_CORE_READ(skb, dev, ifindex);
}

/* A packet socket, such as tcpdump's, had no room for its copy (packet_rcv(), net/packet/af_packet.c). */
static __always_inline bool is_copy(u32 reason)
{
	return bpf_core_enum_value_exists(enum skb_drop_reason, SKB_DROP_REASON_PACKET_SOCK_ERROR) &&
	       reason == bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_PACKET_SOCK_ERROR);
}

/* The kernel drops a packet because it has no receiver, no room, no route... (kfree_skb()). */
static __always_inline void packet_dropped(const struct sk_buff *skb, u64 location, u32 reason)
{
	struct gth_drop_key key = { .location = location, .reason = reason };
	struct packet *packet = current_packet();

	if (is_copy(reason))
		return;
	/* Other packets may be freed meanwhile, too, such as those that a queue drops to take this one. */
	if (packet && packet->skb == (u64)skb) {
		key.end = GTH_END_DROPPED;
		packet->dropped = true;
		describe_packet(&key, packet);
	} else if (what.tgid) {
		/* It is unknown which task's packet it was. */
		return;
	} else if (is_at_device(skb, &key.received)) {
		key.end = GTH_END_AT_DEVICE;
	} else if (!may_be_sent(skb, reason) && is_at_port(skb)) {
		key.end = GTH_END_AT_PORT;
	} else {
		return;
	}
	count_drop(&key, BPF_CORE_READ(skb, len));
}

/* The kernel frees a packet that was consumed (consume_skb()). Some drivers call this for drops, too. */
static __always_inline void packet_consumed(const struct sk_buff *skb, u64 location)
{
	struct gth_drop_key key = { .location = location, .end = GTH_END_CONSUMED };
	struct packet *packet = current_packet();

	if (!packet || packet->skb != (u64)skb)
		return;
	packet->dropped |= packet->refused > 0;
	describe_packet(&key, packet);
	count_drop(&key, BPF_CORE_READ(skb, len));
}

#endif
