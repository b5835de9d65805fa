/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where a waking task goes: an idle CPU, its waker's, or in front of something weaker.
 */
#ifndef GTH_WAKEUP_H
#define GTH_WAKEUP_H

#include "sched/plan.bpf.h"
#include "marks/woken.bpf.h"

static __always_inline void note_wakeup_time(struct task_ctx *tctx)
{
	if (!tctx->woken_at)
		tctx->woken_at = now_ns();
}

/*
 * The current task wakes up a priority task and says that it hands something on (WF_SYNC). If it is
 * a priority task itself, it is at work. What a softirq on top of a task hands on is not the task's.
 */
__noinline int note_work(void)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct task_ctx *waker = task_of(current);

	if (waker && waker->burst && context_of(current) == GTH_CONTEXT_TASK)
		renew_burst(waker);
	return 0;
}

__noinline s32 pick_idle(struct task_struct *p __arg_trusted, const struct plan *plan __arg_nonnull,
			 s32 prev, u64 wake_flags)
{
	s32 cpu;

	if (plan->place.first != NO_MASK) {
		cpu = pick_idle_at(p, prev, plan->place.generation, plan->place.first);
		if (cpu >= 0)
			return cpu;
	}
	if (machine.builtin_idle)
		return pick_idle_builtin(p, prev, wake_flags, &plan->place);
	return pick_idle_own(p, plan->cpu, &plan->place);
}

/* The mean time from such a wake-up by this task as now to its sleep, ns; 0: not known. */
static __always_inline u64 sync_lag_of(struct task_ctx *waker, u64 now)
{
	if (waker->sync_at) /* not slept since: it takes at least this long */
		waker->sync_lag = mean_of(waker->sync_lag, now - waker->sync_at);
	waker->sync_at = now;
	return waker->sync_lag;
}

/*
 * True if a normal task that is handed something gets a CPU soonest where its waker leaves one: the
 * waker sleeps sooner than an idle CPU comes to run a task. Both are measured. Nobody else waits
 * there. A tick ends the turn of a waker that goes on after all.
 */
__noinline int follow_normal(struct task_struct *p __arg_trusted, const struct plan *plan __arg_nonnull, s32 here)
{
	struct task_ctx *waker = task_of(bpf_get_current_task_btf());
	u32 index = plan->place.first != NO_MASK ? plan->place.first : plan->place.mask;
	const struct cpumask *mask = mask_of(plan->place.generation, index);
	struct cpu_ctx *c = cpu_of(here);
	bool awake;
	u64 lag;

	if (!waker)
		return false;
	awake = waker->sync_at; /* since the last time that it handed something over */
	lag = sync_lag_of(waker, now_ns());
	if (awake || !lag || lag >= cpu_of(plan->cpu)->idle_lag || c->endless || c->rank != GTH_RANK_NORMAL ||
	    !can_empty_local_dsq() || llc_of(here) != llc_of(plan->cpu) || !mask || !may_run_on(p, mask, here) ||
	    scx_bpf_dsq_nr_queued(DSQ_LOCAL) || scx_bpf_dsq_nr_queued(pool_dsq(plan->pool)) > 0)
		return false;
	c->overdue = true;
	c->has_victim = true;
	return true;
}

/*
 * True if the fastest way for @p to a CPU is to wait for its waker to leave this one.
 * WF_SYNC promises that the waker sleeps soon. Whether it does, and sooner than an
 * interrupt takes effect on another CPU, is measured: how long this waker took the last
 * times, how long the switch from a waker to its wakee took here, and how long wake-ups
 * from other CPUs took on this one. In a stream of packets the switch does not count:
 * the two switches on another CPU cost more throughput.
 */
static __always_inline bool follow_waker(struct task_struct *p, const struct task_ctx *tctx,
					 const struct plan *plan, s32 here, u64 wake_flags)
{
	struct cpu_ctx *c = cpu_of(here);
	struct task_ctx *waker;
	const struct cpumask *mask;
	u64 now, lag;

	if (!(wake_flags & WAKE_SYNC))
		return false;
	waker = task_of(bpf_get_current_task_btf());
	if (!waker || !is_priority(waker->rank))
		return false;
	now = now_ns();
	lag = sync_lag_of(waker, now);
	if (now - tctx->running_at > STREAM_NS)
		lag += c->handover_lag;
	if (lag >= c->interrupt_lag)
		return false;
	mask = mask_of(plan->place.generation, plan->place.mask);
	return mask && may_run_on(p, mask, here);
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

	if (plan->place.first != NO_MASK) {
		cpu = claim_in(p, prev, plan->rank, generation, plan->place.first);
		if (cpu >= 0)
			return cpu;
	}
	mask = mask_of(generation, plan->place.mask);
	if (cpu_of(here)->rank > GTH_RANK_EXHAUSTED && mask && may_run_on(p, mask, here) &&
	    llc_of(here) == llc_of(prev) && claim_cpu(here, plan->rank))
		return here;
	return claim_in(p, prev, plan->rank, generation, plan->place.mask);
}

/*
 * A waking normal task goes in front of one that is ahead in virtual time by more than the
 * shortest slice, and has run as long without sleeping: tasks that wake each other up for
 * short work wait for one another. Marks the CPU as its own, so that no other goes in
 * front of it in turn.
 *
 * With @sync, from a waker that passes something on, a turn that has just begun lasts until
 * the next tick: a sender of many messages is not switched out for each one.
 */
__noinline int overtakes(struct task_ctx *tctx __arg_nonnull, const struct plan *plan __arg_nonnull, s32 cpu,
			 bool sync)
{
	struct cpu_ctx *c = cpu_of(cpu);
	u64 now = now_ns(), ran, there;

	if (c->rank != GTH_RANK_NORMAL || cpu_pool(live_tables(plan->place.generation), cpu) != plan->pool)
		return false;
	ran = now - c->turn_began;
	if (c->turn_burst + ran < tunables.slice_min_ns)
		return false;
	there = c->turn_vtime + virtual_time(ran, c->turn_pace);
	if ((s64)(there - (tctx->vtime - plan->credit)) <= (s64)tunables.slice_min_ns)
		return false;
	if (sync && ran < SETTLED_NS) {
		c->overdue = true;
		return false;
	}
	c->turn_vtime = tctx->vtime;
	c->turn_began = now;
	c->turn_burst = 0;
	c->overtaken = true;
	count_path(GTH_PATH_OVERTAKEN);
	return true;
}

/* The CPU whose task a normal one that wakes up overtakes: its previous one, or the waker's. */
__noinline s32 overtake(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull,
			const struct plan *plan __arg_nonnull, s32 here, bool sync)
{
	const struct cpumask *mask = mask_of(plan->place.generation, plan->place.mask);

	if (!mask || plan->affinity_override)
		return NO_CPU;
	set_clock(tctx, plan->pool, plan->cpu);
	if (may_run_on(p, mask, plan->cpu) && overtakes(tctx, plan, plan->cpu, sync))
		return plan->cpu;
	if (here != plan->cpu && may_run_on(p, mask, here) && overtakes(tctx, plan, here, sync))
		return here;
	return NO_CPU;
}

#endif
