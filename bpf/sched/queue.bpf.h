/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The DSQ of a task that found no CPU.
 */
#ifndef GTH_QUEUE_H
#define GTH_QUEUE_H

#include "sched/plan.bpf.h"
#include "sched/tickless.bpf.h"

/* Queues the task anew that waits in this CPU's local DSQ. */
static __always_inline void requeue_victim(struct cpu_ctx *c)
{
	if (!c->has_victim || !can_empty_local_dsq())
		return;
	c->has_victim = false;
	scx_bpf_reenqueue_local___v2___new();
}

/*
 * Called when a priority task has come into its DSQ. The kernel asks ops.dispatch() only when the
 * local DSQ is empty, so a task that was preempted here gives up its place, and no other keeps one.
 */
static __always_inline void give_up_place(const struct plan *plan)
{
	s32 here = bpf_get_smp_processor_id();

	pool_of(plan->pool)->priority_waits = true;
	if (is_priority(cpu_of(here)->rank) &&
	    cpu_pool(live_tables(plan->place.generation), here) == plan->pool)
		requeue_victim(cpu_of(here));
}

/* Queues a normal task for one CPU. */
static __always_inline void enqueue_on(struct task_struct *p, struct task_ctx *tctx,
				       const struct plan *plan, s32 cpu, u64 enq_flags)
{
	dsq_insert_vtime(p, cpu_dsq(cpu), plan->slice, tctx->vtime - plan->credit, enq_flags);
}

/* Queues a task that may run on one CPU only on that CPU. */
static __always_inline void enqueue_pinned(struct task_struct *p, struct task_ctx *tctx,
					   const struct plan *plan, s32 cpu, u64 enq_flags)
{
	if (plan->affinity_override)
		count(GTH_COUNT_RESERVED_PINNED);
	if (is_priority(plan->rank)) {
		if (claim_cpu(cpu, plan->rank)) {
			count_path(GTH_PATH_PREEMPT);
			dsq_insert(p, DSQ_LOCAL, plan->slice, enq_flags | ENQ_PREEMPT);
			return;
		}
		dsq_insert_vtime(p, prio_dsq(plan->pool), plan->slice, prio_key(plan->rank), enq_flags);
		give_up_place(plan);
	} else if (scx_bpf_test_and_clear_cpu_idle(cpu)) {
		occupy(cpu, plan->rank);
		count_path(GTH_PATH_IDLE);
		dsq_insert(p, DSQ_LOCAL, plan->slice, enq_flags);
		return;
	} else {
		enqueue_on(p, tctx, plan, cpu, enq_flags);
	}
	kick_if_idle(cpu);
	make_room(cpu);
}

/*
 * Queues a task for the first free CPU of its pool, and kicks an idle one. A CPU that
 * goes idle at this moment may have just looked into the DSQ and not count as idle yet.
 * The task's own CPU will look again anyway; if it is not in this pool, a CPU of the pool
 * gets the kick. A task pushed off by one that found no idle CPU does not repeat the
 * search.
 *
 * Without a kick (malformed kfunc BTF, see scx_compat.bpf.h), it first searches for an
 * idle CPU and puts the task into its local DSQ, which wakes it. gthctl's own wake-ups
 * (src/daemon/service.rs) cover a CPU that goes idle between the two. They never reach
 * exclusive CPUs, whose tasks go into an empty local DSQ. A CPU whose local DSQ is never
 * empty would not look at the others: what waits there comes next.
 */
__noinline int enqueue_shared(struct task_struct *p __arg_trusted, const struct plan *plan __arg_nonnull,
			      u64 dsq, u64 key, u64 enq_flags)
{
	s32 cpu;

	if (!can_kick()) {
		cpu = pick_idle_in(p, plan->place.generation, plan->place.mask);
		if (cpu >= 0) {
			occupy(cpu, plan->rank);
			count_path(GTH_PATH_IDLE);
		} else if (plan->place.exclusive) {
			cpu = any_cpu_in(p, plan->place.generation, plan->place.mask);
			if (cpu >= 0 && scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON(cpu)) > 0)
				cpu = NO_CPU;
		}
		if (cpu >= 0) {
			dsq_insert(p, DSQ_LOCAL_ON(cpu), plan->slice, enq_flags);
			return 0;
		}
	}
	dsq_insert_vtime(p, dsq, plan->slice, key, enq_flags);
	if (can_kick() && !plan->none_idle) {
		cpu = pick_idle_in(p, plan->place.generation, plan->place.mask);
		if (cpu >= 0)
			kick_if_idle(cpu);
		else if (plan->cpu != scx_bpf_task_cpu(p))
			kick_if_idle(plan->cpu);
	}
	if (plan->place.exclusive)
		make_room(plan->cpu);
	return 0;
}

/*
 * Puts a priority task in front of something weaker: one whose CPU a real-time task has taken,
 * or one that gth_select_cpu() left to gth_enqueue().
 */
__noinline int enqueue_elsewhere(struct task_struct *p __arg_trusted, const struct plan *plan __arg_nonnull,
				 s32 prev, u64 enq_flags)
{
	s32 cpu = claim_in(p, prev, plan->rank, plan->place.generation, plan->place.mask);

	if (cpu < 0)
		return false;
	count_path(GTH_PATH_PREEMPT);
	dsq_insert(p, DSQ_LOCAL_ON(cpu), plan->slice, enq_flags | ENQ_PREEMPT);
	return true;
}

#endif
