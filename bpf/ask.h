/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Making a running task choose its CPU anew.
 *
 * What changes a task's rule is mostly the task itself, by an exec or a
 * setuid(2), and it is noticed in a BPF program that runs on that task. There it
 * may not migrate, so a kick at that moment would come to nothing: it is asked a
 * little later, when it has left the program, and again, after ever longer times,
 * until it has answered (ops.dispatch). The tick asks too.
 */
#ifndef GTH_ASK_H
#define GTH_ASK_H

#include "state.h"

enum {
	ASK_NS = 20000,		/* until a task is asked for the first time */
	ASK_MAX_NS = 2000000,	/* and at most between two times */
};

struct ask {
	struct bpf_timer timer;
	u32 after_ns;		/* since it was asked last; 0: it has answered */
};

/* One for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GTH_MAX_CPUS);
	__type(key, u32);
	__type(value, struct ask);
} asks SEC(".maps");

static int ask_now(void *map, u32 *cpu, struct ask *ask)
{
	u32 after_ns = ask->after_ns;

	if (!after_ns)
		return 0;
	kick_preempt(*cpu);
	ask->after_ns = after_ns < ASK_MAX_NS ? 2 * after_ns : 0;
	if (ask->after_ns)
		bpf_timer_start(&ask->timer, ask->after_ns, 0);
	return 0;
}

static __always_inline void ask_soon(u32 cpu)
{
	struct ask *ask = bpf_map_lookup_elem(&asks, &cpu);

	if (!ask || !can_kick())
		return;
	ask->after_ns = ASK_NS;
	bpf_timer_start(&ask->timer, ASK_NS, 0);
}

static __always_inline void has_answered(u32 cpu)
{
	struct ask *ask = bpf_map_lookup_elem(&asks, &cpu);

	if (ask)
		ask->after_ns = 0;
}

/* Called once for each CPU, by ops.init. */
static __always_inline void init_ask(u32 cpu)
{
	struct ask *ask = bpf_map_lookup_elem(&asks, &cpu);

	if (!ask)
		return;
	bpf_timer_init(&ask->timer, &asks, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&ask->timer, ask_now);
}

#endif
