/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Makes the running task choose its CPU anew once it has left a BPF program.
 *
 * A task's rule mostly changes through the task's own exec or setuid(2). A BPF program
 * that runs on the task notices this. The task must not be preempted there: it could
 * not migrate, and until it ran again the kernel would skip that program for every
 * other task on the CPU (kernel/bpf/trampoline.c, prog->active).
 */
#ifndef GTH_ASK_H
#define GTH_ASK_H

#include "sched/state.bpf.h"

enum {
	ASK_NS = 50000,		/* longer than such a program takes; each retry doubles it */
	ASK_TIMES = 10,		/* retries, 100 ms in all; after that the tick takes over */
	/*
	 * BPF_F_TIMER_CPU_PIN (include/uapi/linux/bpf.h): without it the kernel prefers another CPU
	 * to a nohz_full one.
	 */
	ON_THIS_CPU = 1 << 1,
};

struct ask {
	struct bpf_timer timer;
	u32 tries;
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
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *tctx = task_of(p);

	if (!tctx || !tctx->need_resched)
		return 0;
	if (!p->migration_disabled)
		kick_preempt(*cpu);
	else if (ask->tries < ASK_TIMES)
		bpf_timer_start(&ask->timer, (u64)ASK_NS << ++ask->tries, ON_THIS_CPU);
	return 0;
}

/* Makes the task that runs on this CPU choose its CPU anew, after ASK_NS. */
static __always_inline void ask_soon(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ask *ask = bpf_map_lookup_elem(&asks, &cpu);

	if (!ask || !can_kick())
		return;
	ask->tries = 0;
	bpf_timer_start(&ask->timer, ASK_NS, ON_THIS_CPU);
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
