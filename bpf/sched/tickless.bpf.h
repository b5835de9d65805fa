/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CPUs that need no tick (nohz_full, Documentation/timers/no_hz.rst). A task that has such a
 * CPU to itself by an exclusive rule gets an endless slice, and the kernel stops the tick
 * (scx_can_stop_tick(), kernel/sched/ext.c). From then on no slice ends there: whoever queues a
 * task for that CPU has to kick it.
 */
#ifndef GTH_TICKLESS_H
#define GTH_TICKLESS_H

#include "sched/idle.bpf.h"
#include "sched/limit.bpf.h"

enum {
	ENDLESS = ~0ULL,	/* SCX_SLICE_INF, include/linux/sched/ext.h */
};

static __always_inline bool is_tickless(s32 cpu)
{
	return machine.any_tickless && (machine.tickless[((u32)cpu / 64) & (GTH_CPU_WORDS - 1)] >> ((u32)cpu % 64)) & 1;
}

/* Lets what is queued for @cpu run although no slice ends. */
static __always_inline void make_room(s32 cpu)
{
	if (is_tickless(cpu))
		kick_preempt(cpu);
}

/*
 * The same for @p, unless @p's own turn there has just ended. In that case the next task begins after
 * @p was queued and gets no endless slice (is_lonely()). A kick would end its turn at once.
 */
static __always_inline void make_room_for(struct task_struct *p, s32 cpu)
{
	const struct rq *rq = is_tickless(cpu) ? rq_of(cpu) : NULL;

	if (!rq || rq->curr->pid != p->pid)
		make_room(cpu);
}

/*
 * Whether @cpu is exclusive and can be kicked, and no task waits for it. A task in its local DSQ
 * counts, too: without a tick it would wait there until the running task sleeps.
 */
__noinline int is_lonely(s32 cpu, u32 pool)
{
	struct waiting waiting;

	if (!can_kick() || !pool_is_exclusive(pool) || waits_locally(cpu))
		return false;
	waiting = count_waiting(pool, cpu);
	return !waiting.own && !waiting.shared && !waiting.priority;
}

/*
 * Whether the task needs no tick. A task that cannot migrate now may have to leave later, when
 * nothing asks it to.
 */
static __always_inline bool may_be_endless(struct task_struct *p, const struct task_ctx *tctx, s32 cpu)
{
	return is_tickless(cpu) && !tctx->marked_until && is_lonely(cpu, tctx->pool) && !is_limited(tctx) && !is_held(p);
}

#endif
