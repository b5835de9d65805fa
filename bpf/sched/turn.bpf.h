/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The start and the end of a turn on a CPU.
 */
#ifndef GTH_TURN_H
#define GTH_TURN_H

#include "sched/plan.bpf.h"
#include "sched/tickless.bpf.h"

/*
 * A task that a stronger one preempts (the victim) keeps its place on the CPU. ops.stopping gives
 * it back the rest of its slice, so the kernel puts it at the head of the local DSQ
 * (put_prev_task_scx(), kernel/sched/ext) and does not queue it anew. It goes on without a dispatch
 * when the stronger task sleeps. If the stronger task does not sleep, the tick queues the victim
 * anew. The guard gives turns at a dispatch, so no task keeps its place while such a turn is due.
 * Nor does one while a priority task waits: that task would run only after the victim. Nor if the
 * stopper comes first: the victim would be in front of the stronger task.
 */
static __always_inline bool keep_place(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	struct cpu_ctx *c = cpu_of(cpu);
	u64 used = p->se.sum_exec_runtime - tctx->turn_began, left = SHORT_NS;

	if (!can_empty_local_dsq() || c->rank >= tctx->rank || p->scx.slice || tctx->need_resched ||
	    c->prio_debt > GUARD_RATIO * turn_ns() || used > tctx->turn_slice + LATE_NS ||
	    priority_waits(cpu_pool(live_tables(tunables.generation), cpu)) ||
	    scx_bpf_dsq_nr_queued(DSQ_LOCAL) > 1 || /* others wait besides the task that gets the CPU now */
	    is_limited(tctx) || /* it is charged at once */
	    stopper_waits(cpu))
		return false;
	if (used + SHORT_NS < tctx->turn_slice)
		left = tctx->turn_slice - used;
	c->has_victim = true;
	tctx->kept = true;
	task_set_slice(p, left);
	return true;
}

/*
 * Charges a task that kept its place for its turn before that: the stronger task did not wait for
 * the charge. Returns whether the task had kept its place.
 */
static __always_inline bool charge_kept(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	if (!tctx->kept)
		return false;
	charge(p, tctx, cpu, GTH_TURN_PREEMPTED);
	tctx->kept = false;
	return true;
}

/* What ended the turn of a task that could have gone on. */
static __always_inline u32 end_of_turn(struct task_struct *p, const struct task_ctx *tctx, const struct cpu_ctx *c)
{
	/* A real-time task, or any other that the kernel takes before ours, leaves the slice as it was. */
	return p->scx.slice || c->rank < tctx->rank || c->overtaken || c->gives_way ? GTH_TURN_PREEMPTED :
											      GTH_TURN_EXPIRED;
}

/*
 * Whether a task waits for the end of the turn: it was handed something and follows its waker, or has
 * less CPU time than the task that runs. The waker most likely sleeps before its turn is SETTLED_NS
 * old, so until then no tick ends it.
 */
static __always_inline bool is_overdue(const struct cpu_ctx *c)
{
	return c->overdue && now_ns() - c->turn_began >= SETTLED_NS;
}

/* Ends the victim's turn if a task in a DSQ is stronger, or clearly earlier in virtual time. */
__noinline int end_victims_turn(const struct task_ctx *tctx __arg_nonnull, s32 cpu)
{
	u32 pool = cpu_pool(live_tables(tunables.generation), cpu);
	u64 vtime = tctx->vtime - tunables.slice_min_ns;

	if (prio_key_rank(prio_head_key(pool, cpu)) < tctx->rank)
		kick_preempt(cpu);
	else if (is_priority(tctx->rank))
		return 0;
	else if (is_earlier(own_head_key(cpu), vtime) || is_earlier(head_key(pool_dsq(pool), cpu), vtime))
		kick_preempt(cpu);
	return 0;
}

/*
 * The lead in virtual time that ends with the task, beyond what its last child took over. Lead that the
 * task has waited out since does not count.
 */
static __always_inline s64 unpaid_lead(struct task_struct *p, const struct task_ctx *tctx, s32 cpu)
{
	s64 lead = tctx->vtime - clock_for(p, tctx->pool, cpu);

	return tctx->heir_id && tctx->since_fork < lead ? tctx->since_fork : lead;
}

/* Makes the last child pay for that lead. True if there is such a child. */
static __always_inline bool pass_on_debt(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	struct task_struct *heir;
	struct task_ctx *to;
	bool passed = false;
	s64 lead;

	if (!tctx->heir_id)
		return false;
	heir = bpf_task_from_pid(tctx->heir);
	if (!heir)
		return false;
	to = task_of(heir);
	if (to && to->id == tctx->heir_id) {
		lead = unpaid_lead(p, tctx, cpu);
		if (lead > 0)
			to->vtime += lead;
		tctx->since_fork = 0;
		passed = true;
	}
	bpf_task_release(heir);
	return passed;
}

/*
 * A task cannot drop what it has run by exiting. In a cgroup, the next new task takes it over. In
 * the root, the task's last child does. Without one, the turn advances the pool's clock twice over
 * for all waiting tasks, because their own running meanwhile does not.
 */
static __always_inline void settle(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	u64 total = p->se.sum_exec_runtime;
	s64 lead;

	if (!(p->flags & PF_EXITING) || is_priority(tctx->rank) || tctx->pool == NO_POOL)
		return;
	if (tctx->group != ROOT_GROUP) {
		lead = unpaid_lead(p, tctx, cpu);
		owe(tctx->group, lead);
		tctx->since_fork = 0;
		if (lead > 0) /* it may sleep again before it has ended */
			tctx->vtime -= lead;
	} else if (!pass_on_debt(p, tctx, cpu)) {
		advance_clock(tctx->pool, cpu, 2 * virtual_time(total - tctx->turn_began, tctx->pace));
	}
	tctx->turn_began = total;
}

#endif
