/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Definitions shared by bpf/trace.bpf.c and user space. Every struct here is the type of
 * a global variable or a map, as in intf.h. Times are in ns, CLOCK_MONOTONIC.
 */
#ifndef GTH_TRACE_H
#define GTH_TRACE_H

#include "vmlinux_min.h"
#include "trace/packet_intf.h"

enum gth_trace_limit {
	GTH_TRACE_KEYS = 8192,		/* combinations of task, context and function kept */
	GTH_TRACE_FUNCTIONS = 64,	/* power of two: used as an index mask */
	GTH_TRACE_BUCKETS = 64,		/* of times: two per power of two */
	GTH_TRACE_COMM_LEN = 16,	/* TASK_COMM_LEN, include/linux/sched.h */
	GTH_TRACE_NO_ARG = 0xff,	/* the function has no packet as an argument */
};

/* The context in which a function runs. */
enum gth_context {
	GTH_CONTEXT_TASK,	/* the task, or a softirq that the task raised and runs itself */
	GTH_CONTEXT_SOFTIRQ,	/* a softirq at the end of an interrupt of the task, or ksoftirqd */
	GTH_CONTEXT_IDLE,	/* the same on an idle CPU */
};

/*
 * The cookie of an attached program: the function's index in user space's list and, from
 * these bits on,
 * - the number of the argument that is the packet, from 0; or GTH_TRACE_NO_ARG; or the address
 *   family of a socket function,
 * - when the function refuses a packet (enum gth_packet_refusal),
 * - flags.
 */
enum gth_trace_cookie {
	GTH_TRACE_ARG_SHIFT = 32,
	GTH_TRACE_REFUSAL_SHIFT = 40,
	GTH_TRACE_ENTRY_SHIFT = 44,	/* packets enter the data plane by this function */
	GTH_TRACE_GTPU_SHIFT = 45,	/* they begin at the UDP header of GTP-U */
};

/* Set before loading. */
struct gth_trace_what {
	u32 tgid;		/* only this process or thread; 0: all */
	u32 events;		/* also send each packet to the ring buffer */
	u32 port;		/* the local port of the UDP sockets, if these are traced */
};

/* Which task runs a function. The CPU is the index of the map's per-CPU value. */
struct gth_trace_key {
	u64 started;		/* the thread's start, in ns since boot: ids are reused */
	u32 tid;		/* in the first PID namespace; 0: idle */
	u32 tgid;
	u32 function;
	enum gth_context context;
};

struct gth_trace_count {
	u64 packets;
	u64 bytes;
	u64 last_ns;		/* when the last call began */
	u32 tid_inside;		/* in the task's own PID namespace */
	u32 tgid_inside;
	char comm[GTH_TRACE_COMM_LEN];
	u32 times[GTH_TRACE_BUCKETS]; /* how many calls took how long */
};

/* What was not counted or sent because there was no room. */
struct gth_trace_lost {
	u64 counts;
	u64 events;
	u64 drops;
};

/* One packet in the ring buffer. */
struct gth_trace_event {
	u64 at_ns;
	struct gth_trace_key key;
	u32 cpu;
	u32 bytes;
	u32 tid_inside;
	u32 tgid_inside;
	char comm[GTH_TRACE_COMM_LEN];
};

/* Only for its BTF: it makes the skeleton generator write out these types. */
struct gth_trace_types {
	enum gth_trace_limit limit;
	enum gth_trace_cookie cookie;
	struct gth_trace_event event;
};

#endif
