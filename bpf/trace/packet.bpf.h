/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The packet that the data plane is handling on this CPU: from the beginning to the end
 * of its entry function.
 */
#ifndef GTH_TRACE_PACKET_H
#define GTH_TRACE_PACKET_H

#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "trace_intf.h"

const volatile struct gth_packet_what packet_what SEC(".rodata.packet_what");
const volatile struct gth_packet_types packet_types;

/* Whether to find out what becomes of packets. */
static __always_inline bool judges_packets(void)
{
	return packet_what.drops || packet_what.teids;
}

/* Whether to follow single packets for any purpose. */
static __always_inline bool follows_packets(void)
{
	return judges_packets() || packet_what.latency;
}

/*
 * One per CPU is enough: a data plane runs with softirqs disabled, or in one, and its
 * entry functions do not call each other. Other functions may (any function can be
 * traced): then the outer one keeps the packet that it hands to the inner one.
 */
struct packet {
	u64 skb;		/* its address, to compare; 0: none */
	u64 arrived_ns;		/* 0: unknown */
	u64 migrations;		/* of the task, as in struct call */
	u32 tid;
	u32 entry;		/* functions as in struct gth_drop_key */
	u32 refused;
	s32 returned;
	u32 passed;
	u32 message;
	u32 bytes;
	u32 teid;
	bool has_teid;
	bool dropped;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct packet);
} packets SEC(".maps");

static __always_inline struct packet *packet_slot(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&packets, &zero);
}

/* The packet that the current task is handling in the data plane. */
static __always_inline struct packet *current_packet(void)
{
	struct packet *packet = packet_slot();

	if (!packet || !packet->skb || packet->tid != (u32)bpf_get_current_pid_tgid() ||
	    packet->migrations != bpf_get_current_task_btf()->se.nr_migrations)
		return NULL;
	return packet;
}

/* A GTP-U packet from the UDP header on (3GPP TS 29.281, 5.1). */
struct gtpu {
	u8 udp[8];
	u8 flags;
	u8 type;
	__be16 length;
	__be32 teid;
};

static __always_inline bool read_gtpu(const struct sk_buff *skb, struct gtpu *header)
{
	if (BPF_CORE_READ(skb, len) - BPF_CORE_READ(skb, data_len) < sizeof(*header))
		return false;
	return !bpf_probe_read_kernel(header, sizeof(*header), BPF_CORE_READ(skb, data));
}

/* What a cookie says: enum gth_trace_cookie. */
static __always_inline u32 function_of(u64 cookie)
{
	return cookie;
}

static __always_inline bool is_entry(u64 cookie)
{
	return cookie >> GTH_TRACE_ENTRY_SHIFT & 1;
}

static __always_inline bool has_gtpu(u64 cookie)
{
	return cookie >> GTH_TRACE_GTPU_SHIFT & 1;
}

static __always_inline u32 refusal_of(u64 cookie)
{
	return (cookie >> GTH_TRACE_REFUSAL_SHIFT) & 0xf;
}

/* Only version 1 has a TEID: GTPv0 has its sequence number there (3GPP TS 09.60, 6). */
static __always_inline void take_teid(struct packet *packet, const struct gtpu *header)
{
	packet->has_teid = header->flags >> 5 == 1;
	packet->teid = packet->has_teid ? __builtin_bswap32(header->teid) : 0;
}

static __always_inline void packet_enters(u64 cookie, const struct sk_buff *skb)
{
	u32 tid = bpf_get_current_pid_tgid(), entry = function_of(cookie) + 1;
	struct packet *packet = packet_slot();
	struct gtpu header;

	if (!packet || !skb || !is_entry(cookie))
		return;
	/* The outer function has the packet. If that is this one, the end of its last call was missed. */
	if (packet->skb == (u64)skb && packet->tid == tid && packet->entry != entry)
		return;
	*packet = (struct packet){
		.skb = (u64)skb,
		.tid = tid,
		.migrations = bpf_get_current_task_btf()->se.nr_migrations,
		.entry = entry,
		.bytes = BPF_CORE_READ(skb, len),
	};
	if (!judges_packets() || !has_gtpu(cookie) || !read_gtpu(skb, &header))
		return;
	packet->message = GTH_MESSAGE(header.flags >> 5, header.type);
	take_teid(packet, &header);
}

/* Linux's IS_ERR() (include/linux/err.h). */
static __always_inline bool is_error(u64 pointer)
{
	return pointer >= (u64)-4095;
}

static __always_inline bool refuses(u32 refusal, u64 returned)
{
	switch (refusal) {
	case GTH_REFUSES_NONZERO:
		return (s32)returned != 0;
	case GTH_REFUSES_NEGATIVE:
		return (s32)returned < 0;
	case GTH_REFUSES_POSITIVE:
		return (s32)returned > 0;
	case GTH_REFUSES_NULL:
		return !returned;
	case GTH_REFUSES_ERROR:
		return is_error(returned);
	case GTH_REFUSES_RED:
		return (s32)returned == 2;
	case GTH_REFUSES_ALWAYS:
		return true;
	}
	return false;
}

/* Called when a function within the entry function has ended. */
static __always_inline void note_verdict(struct packet *packet, u64 cookie, u64 returned)
{
	if (!refusal_of(cookie) || packet->refused)
		return;
	if (!refuses(refusal_of(cookie), returned)) {
		packet->passed = function_of(cookie) + 1;
		return;
	}
	packet->passed = 0;
	packet->refused = function_of(cookie) + 1;
	packet->returned = returned;
}

#endif
