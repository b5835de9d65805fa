/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where a waking task goes: an idle CPU, its waker's, or in front of something weaker.
 */
#ifndef GTH_WAKEUP_H
#define GTH_WAKEUP_H

#include "sched/plan.bpf.h"
#include "sched/tickless.bpf.h"
#include "marks/woken.bpf.h"

static __always_inline void note_wakeup_time(struct task_ctx *tctx)
{
	if (!tctx->woken_at)
		tctx->woken_at = now_ns();
}

/*
 * Called when the current task wakes up a priority task and says that it hands something on
 * (WF_SYNC). If the current task is a priority task itself, it is at work. What a softirq on top of
 * a task hands on is not the task's.
 */
__noinline int note_work(void)
{
	struct task_ctx *waker = task_of(bpf_get_current_task_btf());

	if (waker && waker->burst && is_task_at_work())
		renew_burst(waker);
	return 0;
}

/* For a task whose CPUs are all exclusive to others: an idle one of them, the previous one if possible. */
static __always_inline s32 pick_idle_of_others(struct task_struct *p, s32 prev)
{
	return take_idle(p, p->cpus_ptr, prev) ? prev : pick_idle_cpu(p->cpus_ptr, 0);
}

__noinline s32 pick_idle(struct task_struct *p __arg_trusted, const struct plan *plan __arg_nonnull,
			 s32 prev, u64 wake_flags)
{
	s32 cpu;

	if (plan->lone_cpu)
		return scx_bpf_test_and_clear_cpu_idle(plan->cpu) ? plan->cpu : NO_CPU;
	if (is_priority(plan->rank) && none_is_idle())
		return NO_CPU;
	if (plan->affinity_override)
		return pick_idle_of_others(p, prev);
	if (plan->place.first != NO_MASK) {
		cpu = pick_idle_at(p, prev, plan->place.generation, plan->place.first);
		if (cpu >= 0)
			return cpu;
	}
	if (machine.builtin_idle)
		return pick_idle_builtin(p, prev, wake_flags, &plan->place);
	return pick_idle_own(p, plan->cpu, &plan->place);
}

/*
 * Whether a normal task can wait in @cpu's local DSQ for the end of the turn there. No other task waits
 * there, and none waited for the CPU or the pool at the last tick: counting those takes longer than the
 * rest of the function. Two tasks that hand on to each other would never leave the local DSQ empty, so
 * the CPU would look into no other.
 */
static __always_inline bool may_wait_on(struct task_struct *p, const struct plan *plan, s32 cpu)
{
	u32 index = plan->place.first != NO_MASK ? plan->place.first : plan->place.mask;
	const struct cpumask *mask = mask_of(plan->place.generation, index);
	const struct cpu_ctx *c = cpu_of(cpu);

	return can_empty_local_dsq() && !c->endless && c->rank == GTH_RANK_NORMAL &&
	       llc_of(cpu) == llc_of(plan->cpu) && mask && may_run_on(p, mask, cpu) &&
	       !pool_of(plan->pool)->waiting && !c->waiting && !waits_locally(cpu);
}

enum {
	SYNC_TURNS = 7,		/* one in this many hand-offs is measured; odd, so that each of two
				 * tasks has its turn */
	SYNC_UNTIMED = 1,	/* cpu_ctx.sync_at of hand-offs that are not measured */
};

/* The waker hands something on. Reading the clock takes longer than the rest of follow_waker(). */
static __always_inline void note_hand_off(struct cpu_ctx *c, struct task_ctx *tctx)
{
	if (c->sync_lag && ++c->sync_turn < SYNC_TURNS) {
		c->sync_at = SYNC_UNTIMED;
		return;
	}
	c->sync_turn = 0;
	c->sync_at = now_ns();
	tctx->woken_at = c->sync_at;
}

/*
 * True if a normal task that is handed something gets a CPU soonest by following its waker: the
 * waker sleeps sooner than an idle CPU gets to run a task. Both times are measured from here,
 * because the kernel notes only later that it queues the task. A tick ends the turn of a waker that
 * goes on after all.
 */
static __always_inline bool follow_waker(struct task_struct *p, struct task_ctx *tctx, const struct plan *plan,
					 s32 here)
{
	struct cpu_ctx *c = cpu_of(here);

	if (c->sync_at) /* the waker has not slept since it last handed something over */
		return false;
	note_hand_off(c, tctx);
	if (!c->sync_lag || c->sync_lag >= cpu_of(plan->cpu)->idle_lag || !may_wait_on(p, plan, here))
		return false;
	c->overdue = true;
	c->has_victim = true;
	return true;
}

/*
 * A CPU for a priority task, taken from something weaker: the waker's, which
 * needs no interrupt and has the data in its cache; else the task's previous
 * one, else any of its pool.
 */
__noinline s32 claim(struct task_struct *p __arg_trusted, const struct plan *plan __arg_nonnull,
		     s32 prev, s32 here)
{
	u32 generation = plan->place.generation;
	const struct cpumask *mask;
	s32 cpu;

	if (plan->lone_cpu)
		return claim_cpu(plan->cpu, plan->rank) ? plan->cpu : NO_CPU;
	if (plan->place.first != NO_MASK) {
		cpu = claim_in(p, prev, plan->rank, generation, plan->place.first);
		if (cpu >= 0)
			return cpu;
	}
	mask = mask_of(generation, plan->place.mask);
	if (!mask)
		return NO_CPU;
	if (cpu_of(here)->rank > GTH_RANK_EXHAUSTED && may_run_on(p, mask, here) &&
	    llc_of(here) == llc_of(prev) && claim_cpu(here, plan->rank))
		return here;
	if (claim_from_normal(p, mask, prev, plan->rank)) /* the usual case, without what follows */
		return prev;
	return claim_in(p, prev, plan->rank, generation, plan->place.mask);
}

/*
 * Whether a priority task may go before what waits in a local DSQ: kthreads of that CPU, or a task that
 * was preempted there. Those wait PASSED_NS at most for the tasks that pass them.
 */
static __always_inline bool may_pass(struct cpu_ctx *c, s32 cpu)
{
	if (!waits_locally(cpu)) {
		c->passed_since = 0;
		return true;
	}
	if (c->has_next)
		return false;
	if (!c->passed_since)
		c->passed_since = now_ns();
	return now_ns() - c->passed_since < PASSED_NS;
}

/*
 * True if a priority task comes next on the only CPU it may use: one of its own rank runs there, and no
 * other priority task waits. It waits in the local DSQ, so the switch takes no dispatch. A tick queues
 * it anew, in its turn with others. A CPU without a tick needs a kick after the task is queued, so no
 * task waits there in this way.
 */
static __always_inline bool comes_next(const struct plan *plan)
{
	struct cpu_ctx *c = cpu_of(plan->cpu);

	if (!plan->lone_cpu || !can_empty_local_dsq() || is_tickless(plan->cpu) || c->rank != plan->rank ||
	    priority_waits(plan->pool) || !may_pass(c, plan->cpu))
		return false;
	c->has_victim = true;
	c->has_next = true;
	return true;
}

/*
 * Whether a waking normal task goes in front of the one on @cpu. That one must be ahead in virtual
 * time by more than the shortest slice, and must have run for as long without sleeping: tasks that
 * wake each other up for short work wait for one another. Marks the CPU as the waking task's own,
 * so that no other goes in front of it in turn.
 *
 * A task that has waited may be farther behind than a sleeper may lag (set_clock()). Its turn
 * counts as no farther behind. Otherwise a task that hardly runs would wait for such a turn.
 *
 * If a real-time task has taken the CPU, the CPU's record is still that of the task before it. What
 * goes into the local DSQ would then wait until the real-time task sleeps.
 *
 * With @sync, from a waker that passes something on, a turn that has just begun lasts until the
 * next tick: a sender of many messages is not switched out for each one.
 */
__noinline int overtakes(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull,
			 const struct plan *plan __arg_nonnull, s32 cpu, bool sync)
{
	struct cpu_ctx *c = cpu_of(cpu);
	u64 now = now_ns(), ran, there, least;

	if (c->rank != GTH_RANK_NORMAL || cpu_pool(live_tables(plan->place.generation), cpu) != plan->pool)
		return false;
	ran = now - c->turn_began;
	if (c->turn_burst + ran < tunables.slice_min_ns)
		return false;
	least = clock_for(p, plan->pool, cpu) - tunables.slice_ns + tunables.slice_min_ns;
	there = (s64)(c->turn_vtime - least) < 0 ? least : c->turn_vtime;
	there += virtual_time(ran, c->turn_pace);
	if ((s64)(there - (tctx->vtime - plan->credit)) <= (s64)tunables.slice_min_ns || runs_above_us(cpu))
		return false;
	if (sync && ran < SETTLED_NS) {
		c->overdue = true;
		return false;
	}
	c->turn_vtime = tctx->vtime;
	c->turn_began = now;
	c->turn_burst = 0;
	c->overtaken = true;
	return true;
}

/*
 * Whether the task on @cpu may have handed something to the one that wakes up there. The kernel
 * does not call ops.select_cpu() for a task that has only one CPU, so it passes no WF_SYNC for it.
 */
static __always_inline bool may_hand_on(s32 cpu)
{
	return cpu == bpf_get_smp_processor_id() && is_task_at_work();
}

/* The CPU whose task a waking normal task overtakes: the waking task's previous CPU, or the waker's. */
__noinline s32 overtake(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull,
			const struct plan *plan __arg_nonnull, s32 here, bool sync)
{
	const struct cpumask *mask = mask_of(plan->place.generation, plan->place.mask);

	if (!mask || plan->affinity_override)
		return NO_CPU;
	set_clock(p, tctx, plan->rank, plan->pool, plan->cpu);
	if (may_run_on(p, mask, plan->cpu) && overtakes(p, tctx, plan, plan->cpu, sync))
		return plan->cpu;
	if (here != plan->cpu && may_run_on(p, mask, here) && overtakes(p, tctx, plan, here, sync))
		return here;
	return NO_CPU;
}

/* The CPU whose local DSQ a waking task goes into, and why; NO_CPU: it has to be queued. */
static __always_inline s32 choose_cpu(struct task_struct *p, struct task_ctx *tctx, const struct plan *plan,
				      s32 prev, u64 wake_flags, s32 here, enum gth_path *path)
{
	bool sync = wake_flags & WAKE_SYNC;
	s32 cpu;

	*path = GTH_PATH_HANDED_OVER;
	if (!is_priority(plan->rank) && sync && follow_waker(p, tctx, plan, here))
		return here;
	*path = GTH_PATH_IDLE;
	cpu = pick_idle(p, plan, prev, wake_flags);
	if (cpu >= 0) {
		tctx->idle_woken = !sync || tctx->woken_at; /* from the same moment as a waker's sync_lag */
		occupy(cpu, plan->rank);
		return cpu;
	}
	*path = GTH_PATH_OVERTAKEN;
	if (!is_priority(plan->rank))
		return overtake(p, tctx, plan, here, sync);
	*path = GTH_PATH_PREEMPT;
	cpu = claim(p, plan, plan->cpu, here);
	if (cpu >= 0) {
		if (!plan->place.exclusive && p->nr_cpus_allowed >= machine.nr_possible)
			cpu_of(cpu)->none_idle_at = tctx->woken_at;
		return cpu;
	}
	*path = GTH_PATH_PRIORITY;
	return comes_next(plan) ? plan->cpu : NO_CPU;
}

static __always_inline bool preempts(enum gth_path path)
{
	return path == GTH_PATH_PREEMPT || path == GTH_PATH_OVERTAKEN;
}

/* How a waking task goes into a local DSQ. */
static __always_inline u64 flags_of(enum gth_path path)
{
	if (preempts(path))
		return ENQ_PREEMPT;
	return path == GTH_PATH_PRIORITY ? ENQ_HEAD : 0;
}

#endif
