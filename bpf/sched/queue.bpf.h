/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where a task goes for which gth_select_cpu() found no CPU: into a local DSQ after all, or into
 * one in which it waits.
 */
#ifndef GTH_QUEUE_H
#define GTH_QUEUE_H

#include "sched/wakeup.bpf.h"

static __always_inline void note_queueing(struct task_ctx *tctx, u64 enq_flags)
{
	if (!(enq_flags & ENQ_WAKEUP)) {
		tctx->queued_at = now_ns();
		return;
	}
	tctx->woken = true;
	note_wakeup_time(tctx);
	tctx->queued_at = tctx->woken_at;
}

/* Queues anew the task that waits in this CPU's local DSQ. */
static __always_inline void requeue_victim(struct cpu_ctx *c)
{
	if (!c->has_victim || !can_empty_local_dsq())
		return;
	c->has_victim = false;
	scx_bpf_reenqueue_local___v2___new();
}

/*
 * Called when a priority task has come into its DSQ. The kernel calls ops.dispatch() only when the
 * local DSQ is empty. So a task that was preempted here gives up its place, and no other task keeps
 * one.
 */
static __always_inline void give_up_place(const struct plan *plan)
{
	s32 here = bpf_get_smp_processor_id();

	if (is_priority(cpu_of(here)->rank) &&
	    cpu_pool(live_tables(plan->place.generation), here) == plan->pool)
		requeue_victim(cpu_of(here));
}

/*
 * This CPU's stopper has moved the CPU's task elsewhere (migration_cpu_stop(),
 * kernel/sched/core.c). No callback reports that, so the CPU still has the task's rank.
 */
static __always_inline void forget_moved(void)
{
	s32 here = bpf_get_smp_processor_id();
	const struct rq *rq = rq_of(here);

	if (rq && rq->curr == rq->stop)
		set_rank(here, cpu_of(here), GTH_RANK_NORMAL);
}

/* Whether the task on @cpu may run on another CPU that runs something weaker than @plan's task. */
static __always_inline bool has_other_cpu(struct task_struct *there, const struct plan *plan, s32 cpu)
{
	struct candidates *of = begin_look(cpu, plan->rank, plan->place.generation, plan->place.mask);

	if (is_pinned(there))
		return false;
	look_among(there, cpu, true, of);
	count_many(GTH_COUNT_LOOKS, of->looks);
	return of->cpu >= 0;
}

/*
 * Whether the task on @cpu leaves it to @plan's task, which is of the same rank and may run nowhere
 * else. gth_enqueue() then finds the other CPU for the task that leaves. SCHED_FIFO does the same
 * (check_preempt_equal_prio(), kernel/sched/rt.c).
 */
__noinline int give_way(const struct plan *plan __arg_nonnull, s32 cpu, u64 enq_flags)
{
	const struct rq *rq = rq_of(cpu);
	struct cpu_ctx *c = cpu_of(cpu);
	struct task_struct *there;
	struct task_ctx *tctx;

	if (!rq || c->rank != plan->rank || c->gives_way || plan->lone_cpu || plan->affinity_override)
		return false;
	there = bpf_task_from_pid(rq->curr->pid);
	if (!there)
		return false;
	if (!(enq_flags & ENQ_WAKEUP))
		forget_moved();
	tctx = task_of(there);
	c->gives_way = tctx && tctx->rank == plan->rank && has_other_cpu(there, plan, cpu);
	bpf_task_release(there);
	if (c->gives_way)
		count_rarely(GTH_COUNT_PREEMPTIONS);
	return c->gives_way;
}

/* For a task that may run on one CPU only: gth_select_cpu() was not called. */
static __always_inline s32 local_cpu_pinned(struct task_struct *p, const struct plan *plan, s32 cpu,
					    u64 enq_flags, enum gth_path *path)
{
	if (is_priority(plan->rank)) {
		*path = GTH_PATH_PREEMPT;
		return claim_cpu(cpu, plan->rank) || give_way(plan, cpu, enq_flags) ? cpu : NO_CPU;
	}
	/*
	 * Two of them whose slices end would never leave the local DSQ empty: the CPU would look
	 * into no other DSQ.
	 */
	if (is_percpu_kthread(p) && ((enq_flags & ENQ_WAKEUP) || !waits_locally(cpu))) {
		*path = GTH_PATH_KTHREAD;
		return cpu;
	}
	*path = GTH_PATH_IDLE;
	if (!scx_bpf_test_and_clear_cpu_idle(cpu))
		return NO_CPU;
	occupy(cpu, plan->rank);
	return cpu;
}

/*
 * Without a kick (malformed kfunc BTF, see scx_compat.bpf.h) a task goes into an idle CPU's local
 * DSQ, which wakes that CPU. gthctl's own wake-ups (src/daemon/service.rs) cover a CPU that goes
 * idle between the search and the queueing. They never reach exclusive CPUs, so a task for those
 * goes into an empty local DSQ. A CPU whose local DSQ is never empty would not look into the
 * others: what waits locally comes next.
 */
static __always_inline s32 local_cpu_without_kick(struct task_struct *p, const struct plan *plan,
						  enum gth_path *path)
{
	s32 cpu = pick_idle_in(p, plan->place.generation, plan->place.mask);

	*path = GTH_PATH_IDLE;
	if (cpu >= 0) {
		occupy(cpu, plan->rank);
		return cpu;
	}
	if (!plan->place.exclusive)
		return NO_CPU;
	*path = is_priority(plan->rank) ? GTH_PATH_PRIORITY : GTH_PATH_SHARED;
	cpu = any_cpu_in(p, plan->place.generation, plan->place.mask);
	return cpu >= 0 && waits_locally(cpu) ? NO_CPU : cpu;
}

/*
 * Whether a task that was asked to choose its CPU anew may stay on @cpu. The CPU has found nothing
 * else to run, and goes idle unless the task goes on there.
 */
static __always_inline bool goes_on_here(const struct plan *plan, s32 cpu)
{
	const struct cpumask *preferred;

	if (!plan->last || plan->cpu != cpu || !can_kick())
		return false;
	if (plan->place.first == NO_MASK)
		return true;
	preferred = mask_of(plan->place.generation, plan->place.first);
	return preferred && bpf_cpumask_test_cpu(cpu, preferred);
}

/*
 * The CPU whose local DSQ a task goes into, and why; NO_CPU: it has to wait. A priority task goes in front
 * of something weaker if a real-time task has taken its CPU, if it has given way, or if gth_select_cpu()
 * left it to gth_enqueue().
 */
static __always_inline s32 local_cpu(struct task_struct *p, struct task_ctx *tctx, const struct plan *plan,
				     s32 cpu, u64 enq_flags, enum gth_path *path)
{
	s32 other;

	*path = GTH_PATH_KEPT;
	if (goes_on_here(plan, cpu))
		return cpu;
	*path = GTH_PATH_OVERTAKEN;
	if (!is_priority(plan->rank) && (enq_flags & ENQ_WAKEUP) && (plan->pinned || plan->is_new) &&
	    overtakes(p, tctx, plan, cpu, plan->pinned && may_hand_on(cpu)))
		return cpu;
	if (plan->pinned)
		return local_cpu_pinned(p, plan, cpu, enq_flags, path);
	if (plan->affinity_override) {
		*path = GTH_PATH_IDLE;
		other = pick_idle_of_others(p, cpu);
		if (other >= 0)
			occupy(other, plan->rank);
		return other;
	}
	*path = GTH_PATH_PREEMPT;
	if (is_priority(plan->rank) && (plan->is_new || (enq_flags & ENQ_REENQ) ||
					(cpu_of(cpu)->gives_way && !(enq_flags & ENQ_WAKEUP)))) {
		other = claim_in(p, cpu, plan->rank, plan->place.generation, plan->place.mask);
		if (other >= 0)
			return other;
	}
	return can_kick() ? NO_CPU : local_cpu_without_kick(p, plan, path);
}

/* Puts a task into the local DSQ of a CPU; a normal kthread goes in front where no tick would end the turn. */
static __always_inline void go_to(struct task_struct *p, const struct plan *plan, s32 cpu, enum gth_path path,
				  u64 enq_flags)
{
	count_path(path);
	if (preempts(path) || (path == GTH_PATH_KTHREAD && is_tickless(cpu)))
		enq_flags |= ENQ_PREEMPT;
	dsq_insert(p, DSQ_LOCAL_ON(cpu), plan->slice, enq_flags);
	if (path == GTH_PATH_KEPT)
		kick_if_idle(cpu); /* the CPU looks into no DSQ any more */
	else if (preempts(path) && !can_empty_local_dsq() && cpu != scx_bpf_task_cpu(p))
		kick_preempt(cpu); /* 6.12 loses the flag when it moves the task to another CPU */
}

/*
 * Kicks an idle CPU for a task that waits for the first free one of its pool. A CPU that goes idle
 * at this moment may have just looked into the DSQ and not count as idle yet. The task's own CPU
 * will look again anyway, unless it goes idle after this task. If that CPU is not in this pool, a
 * CPU of the pool gets the kick. A task preempted by one that found no idle CPU does not repeat the
 * search.
 */
__noinline int kick_for(struct task_struct *p __arg_trusted, const struct plan *plan __arg_nonnull)
{
	s32 cpu;

	if (can_kick() && !plan->none_idle) {
		cpu = pick_idle_in(p, plan->place.generation, plan->place.mask);
		if (cpu >= 0)
			kick_if_idle(cpu);
		else if (plan->last || plan->cpu != scx_bpf_task_cpu(p))
			kick_if_idle(plan->cpu);
	}
	if (plan->place.exclusive)
		make_room_for(p, plan->cpu);
	return 0;
}

/* Queues a task for a CPU of its pool, or for @cpu if it may use no other. */
static __always_inline void wait_for_cpu(struct task_struct *p, struct task_ctx *tctx, const struct plan *plan,
					 s32 cpu, u64 enq_flags)
{
	bool by_priority = is_priority(plan->rank) && (plan->pinned || !plan->affinity_override);
	bool one_cpu = plan->pinned || plan->affinity_override;
	u64 dsq = one_cpu ? cpu_dsq(cpu) : pool_dsq(plan->pool);
	u64 key = tctx->vtime - plan->credit;

	if (by_priority) {
		dsq = prio_dsq(plan->pool);
		key = prio_key(plan->rank);
		note_arrival(&pool_of(plan->pool)->priority_came_at);
	} else if (one_cpu) {
		note_arrival(&cpu_of(cpu)->own_came_at);
	}
	dsq_insert_vtime(p, dsq, plan->slice, key, enq_flags);
	if (by_priority)
		give_up_place(plan);
	if (one_cpu) {
		kick_if_idle(cpu);
		make_room_for(p, cpu);
	} else {
		kick_for(p, plan);
	}
}

#endif
