/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The time from a packet's arrival at this host to the end of the data plane's entry
 * function.
 *
 * The kernel writes the time of arrival into a packet as soon as it gets the packet from the
 * NIC (or a veth), before the packet may wait for a CPU in a backlog (net_timestamp_check(),
 * net/core/dev.c). It clears that time when it forwards the packet. So the time is saved here
 * when the packet enters the protocols on this CPU. From there it gets to the data plane
 * without another wait.
 */
#ifndef GTH_TRACE_LATENCY_H
#define GTH_TRACE_LATENCY_H

#include "packet.bpf.h"

struct arrival {
	u64 skb;
	u64 at_ns;
};

/* Indexed by the packet's address. If an arrival is overwritten, it is only missing in the counts. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GTH_PACKET_ARRIVALS);
	__type(key, u32);
	__type(value, struct arrival);
} arrivals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GTH_TRACE_FUNCTIONS);
	__type(key, u32);
	__type(value, struct gth_latency);
} latencies SEC(".maps");

struct gth_wall_clock wall_clock SEC(".bss.wall_clock");

enum {
	SKB_SHIFT = 8,		/* an skb takes 256 bytes */
};

#define LONGEST_WAIT_NS (10ULL * 1000 * 1000 * 1000)

static __always_inline struct arrival *arrival_slot(u64 skb)
{
	u32 slot = (skb >> SKB_SHIFT) & (GTH_PACKET_ARRIVALS - 1);

	return bpf_map_lookup_elem(&arrivals, &slot);
}

/* If the packet has no time of arrival, or one of another clock, it counts as arriving now. */
static __always_inline void packet_arrives(const struct sk_buff *skb)
{
	struct arrival *arrival = arrival_slot((u64)skb);
	u64 now = bpf_ktime_get_ns(), arrived = skb->tstamp - wall_clock.ahead_ns;

	if (!arrival)
		return;
	arrival->skb = (u64)skb;
	arrival->at_ns = now - arrived < LONGEST_WAIT_NS ? arrived : now;
}

/* The packet enters the data plane. One that originated on this host did not come from a device. */
static __always_inline void take_arrival(struct packet *packet, const struct sk_buff *skb)
{
	struct arrival *arrival = arrival_slot(packet->skb);

	if (!arrival || arrival->skb != packet->skb)
		return;
	arrival->skb = 0;
	if (BPF_CORE_READ(skb, skb_iif))
		packet->arrived_ns = arrival->at_ns;
}

/* The data plane is done with the packet. */
static __always_inline void count_latency(const struct packet *packet, u64 now)
{
	u32 function = (packet->entry - 1) & (GTH_TRACE_FUNCTIONS - 1);
	struct gth_latency *latency = bpf_map_lookup_elem(&latencies, &function);
	u64 ns = now - packet->arrived_ns;

	if (!latency)
		return;
	if (!packet->arrived_ns) {
		latency->without_arrival++;
		return;
	}
	latency->buckets[bucket_of(ns) & (GTH_PACKET_BUCKETS - 1)]++;
	if (ns > latency->max_ns)
		latency->max_ns = ns;
}

#endif
