/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Packets by tunnel. An uplink packet's TEID is in the header that it arrives with, a
 * downlink packet's in the header that it is sent with.
 */
#ifndef GTH_TRACE_TEIDS_H
#define GTH_TRACE_TEIDS_H

#include "packet.bpf.h"

/* The least recently used ones make room for new ones. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_PERCPU_HASH);
	__uint(max_entries, GTH_PACKET_TEIDS);
	__type(key, struct gth_teid_key);
	__type(value, struct gth_teid_count);
} teids SEC(".maps");

/* The packet gets its outer UDP header next. So far it begins with the GTP-U header. */
static __always_inline void note_sent_teid(const struct sk_buff *skb)
{
	struct packet *packet = current_packet();
	struct gtpu header;

	if (!packet || packet->skb != (u64)skb)
		return;
	if (bpf_probe_read_kernel(&header.flags, sizeof(header) - sizeof(header.udp), BPF_CORE_READ(skb, data)))
		return;
	take_teid(packet, &header);
}

static __always_inline void count_teid(const struct packet *packet)
{
	struct gth_teid_key key = {
		.entry = packet->entry,
		.has_teid = packet->has_teid,
		.teid = packet->teid,
	};
	struct gth_teid_count *count = bpf_map_lookup_elem(&teids, &key), fresh = {};

	if (!count) {
		bpf_map_update_elem(&teids, &key, &fresh, 1 /* BPF_NOEXIST */);
		count = bpf_map_lookup_elem(&teids, &key);
		if (!count)
			return;
	}
	count->packets++;
	count->bytes += packet->bytes;
	if (packet->dropped)
		count->drops++;
}

#endif
