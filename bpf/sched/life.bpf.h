/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a new task inherits from its parent.
 */
#ifndef GTH_LIFE_H
#define GTH_LIFE_H

#include "sched/clock.bpf.h"
#include "sched/match.bpf.h"

/*
 * A new task continues its parent's burst, because forking is not sleeping. It
 * also continues its parent's virtual time unless that is behind the clock. So a
 * chain of tasks that fork and end gets one task's share.
 */
static __always_inline void inherit(struct task_struct *p, struct task_ctx *tctx)
{
	struct task_ctx *parent = task_of(bpf_get_current_task_btf());
	u64 ran, now;

	if (!parent)
		return;
	ran = *(volatile u64 *)&parent->running_at;
	ran = now_ns() - ran;
	/* A parent in another scheduling class was last charged long ago. */
	if (ran > tunables.slice_ns)
		ran = tunables.slice_ns;
	tctx->burst = parent->burst + ran;
	if (parent->pool == NO_POOL || is_priority(parent->rank))
		return;
	ran = virtual_time(ran, parent->pace);
	now = clock_for(p, parent->pool, bpf_get_smp_processor_id());
	tctx->pool = parent->pool;
	tctx->vtime = parent->vtime + ran + take_over_debt(tctx->group);
	if ((s64)(tctx->vtime - now) < 0)
		tctx->vtime = now;
	parent->heir = p->pid;
	parent->heir_id = tctx->id;
	parent->since_fork = -(s64)ran;
}

#endif
