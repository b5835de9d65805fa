/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Definitions shared by bpf/trace/ and user space: what becomes of packets, and how long
 * they take. As in trace_intf.h, every struct is the type of a global variable or a map.
 */
#ifndef GTH_PACKET_H
#define GTH_PACKET_H

#include "vmlinux_min.h"

enum gth_packet_limit {
	GTH_PACKET_BUCKETS = 64,	/* of times, as GTH_TRACE_BUCKETS */
	GTH_PACKET_DROPS = 4096,	/* combinations of reason and place kept */
	GTH_PACKET_TEIDS = 8192,	/* tunnels kept: the most recently used ones */
	GTH_PACKET_KIND_LEN = 16,	/* length of a device's kind, with the terminating 0 */
	GTH_PACKET_ARRIVALS = 256,	/* power of two: packets of a CPU between arrival and data plane */
};

/* A GTP message, as one number. */
#define GTH_MESSAGE(version, type) ((version) << 8 | (type))

/* Which return values of a function say that it has refused the packet. */
enum gth_packet_refusal {
	GTH_REFUSES_NEVER,
	GTH_REFUSES_NONZERO,
	GTH_REFUSES_NEGATIVE,
	GTH_REFUSES_POSITIVE,
	GTH_REFUSES_NULL,
	GTH_REFUSES_ERROR,		/* an error pointer (include/linux/err.h) */
	GTH_REFUSES_RED,		/* 2, a policer's Red */
	GTH_REFUSES_ALWAYS,
};

/* What happened to a packet. */
enum gth_packet_end {
	GTH_END_DROPPED,	/* kfree_skb() within the data plane's entry function */
	GTH_END_CONSUMED,	/* consume_skb() there; whether this is a drop depends on its caller */
	GTH_END_LEFT,		/* the entry function left it to the socket */
	GTH_END_AT_DEVICE,	/* kfree_skb() elsewhere, of a packet of the data plane's device */
	GTH_END_AT_PORT,	/* kfree_skb() elsewhere, of a packet to the UDP port */
};

/* Set before loading. */
struct gth_packet_what {
	u32 drops;
	u32 latency;
	u32 teids;
	u16 port;			/* of GTP-U, or the traced one; 0: count only in entry functions */
	char kind[GTH_PACKET_KIND_LEN]; /* of the data plane's devices (ip-link(8)); empty: none */
	u8 padding[2];
};

/* Functions are numbered as in the cookies, but from 1; 0: none. */
struct gth_drop_key {
	u64 location;		/* return address of the call that freed the packet; 0: none did */
	u32 reason;		/* enum skb_drop_reason, of kfree_skb() */
	enum gth_packet_end end;
	u32 entry;		/* the entry function that had the packet */
	u32 refused;		/* the first function that refused it */
	s32 returned;		/* what that returned */
	u32 passed;		/* if none refused it: the last function that let it pass */
	u32 message;		/* GTP version and message type: GTH_MESSAGE() */
	u32 received;		/* at the device: 1: received from it, 0: sent to it */
};

struct gth_drop_count {
	u64 packets;
	u64 bytes;
};

struct gth_teid_key {
	u32 entry;		/* as in struct gth_drop_key */
	u32 has_teid;		/* 0: the packet ended before it got one, or it is unreadable */
	u32 teid;
};

struct gth_teid_count {
	u64 packets;
	u64 bytes;
	u64 drops;		/* dropped within the entry function, or left to the socket */
};

struct gth_latency {
	u64 without_arrival;	/* packets that originated on this host, or whose arrival was not kept */
	u64 max_ns;
	u64 buckets[GTH_PACKET_BUCKETS];
};

/* CLOCK_REALTIME minus CLOCK_MONOTONIC. */
struct gth_wall_clock {
	s64 ahead_ns;
};

/* Only for its BTF, as struct gth_trace_types. */
struct gth_packet_types {
	enum gth_packet_limit limit;
	enum gth_packet_refusal refusal;
};

#endif
