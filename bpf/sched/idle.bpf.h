/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Finding a CPU for a task that wakes up: an idle one, or one that runs
 * something weaker.
 */
#ifndef GTH_IDLE_H
#define GTH_IDLE_H

#include "sched/masks.bpf.h"
#include "sched/waiting.bpf.h"

enum {
	NO_MASK = 0xffff,
	CLAIM_LOOKS = 32,	/* how many CPUs to look at for one to take over */
};

/* Where a task may go. Masks are indices (enum gth_mask). */
struct place {
	u32 generation;		/* whose masks they are */
	u16 mask;		/* the exclusive pool's CPUs, or all normal ones */
	u16 first;		/* the rule's preferred `cpus`, or NO_MASK */
	bool exclusive;
};

static __always_inline bool may_run_on(struct task_struct *p, const struct cpumask *mask, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, mask) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Which CPUs a task may take over, and the best one so far. Masks are indices (enum gth_mask). */
struct candidates {
	u32 generation;
	u32 mask;
	u32 near;		/* those to try first */
	u32 rank;		/* of what runs on `cpu`; the task's own if there is no `cpu` */
	s32 cpu;
	u32 looks;		/* CPUs looked at */
} __attribute__((aligned(64)));

struct candidates candidates[GTH_MAX_CPUS]; /* one for each CPU that decides, like plans */

/* True if the CPU was idle. The caller must use it then: others no longer see it as idle. */
static __always_inline bool take_idle(struct task_struct *p, const struct cpumask *mask, s32 cpu)
{
	return may_run_on(p, mask, cpu) && scx_bpf_test_and_clear_cpu_idle(cpu);
}

static __always_inline u32 llc_of(s32 cpu)
{
	return machine.cpu_llc[cpu & (GTH_MAX_CPUS - 1)];
}

/* Any CPU of the mask that @p may use, or NO_CPU. */
static __always_inline s32 any_cpu_in(struct task_struct *p, u32 generation, u32 index)
{
	const struct cpumask *mask = mask_of(generation, index);
	u32 cpu = mask ? bpf_cpumask_any_and_distribute(mask, p->cpus_ptr) : GTH_MAX_CPUS;

	return cpu < machine.nr_cpus ? (s32)cpu : NO_CPU;
}

/*
 * Whether @p may use the rule's exclusive CPUs. Those of a cpuset are only for the tasks in it: the
 * rule's other tasks may run elsewhere.
 */
static __always_inline bool is_entitled(struct task_struct *p, const struct gth_rule *rule, u32 generation,
					u32 index)
{
	const struct cpumask *mask;

	if (!(rule->flags & GTH_RULE_ALLOCATED))
		return rule->flags & GTH_RULE_EXCLUSIVE;
	mask = mask_of(generation, index);
	return (rule->flags & GTH_RULE_EXCLUSIVE) && mask && bpf_cpumask_subset(p->cpus_ptr, mask);
}

/* Whether no CPU is idle: one look at the kernel's idle mask, if it keeps a single one. */
static __always_inline bool none_is_idle(void)
{
	const struct cpumask *idle;
	bool none;

	if (machine.idle_per_node || !bpf_ksym_exists(scx_bpf_get_idle_cpumask) ||
	    !bpf_ksym_exists(scx_bpf_put_idle_cpumask))
		return false;
	idle = scx_bpf_get_idle_cpumask();
	none = bpf_cpumask_empty(idle);
	scx_bpf_put_idle_cpumask(idle);
	return none;
}

/* An idle CPU of the mask, on the caller's NUMA node if there is one. */
static __always_inline s32 pick_idle_cpu(const struct cpumask *mask, u64 flags)
{
	u32 here = bpf_get_smp_processor_id();

	if (machine.idle_per_node)
		return scx_bpf_pick_idle_cpu_node(mask, machine.cpu_node[here & (GTH_MAX_CPUS - 1)], flags);
	return scx_bpf_pick_idle_cpu(mask, flags);
}

/*
 * An idle CPU of the mask that @p may use, in a wholly idle core if there is
 * one. The caller must use it: others no longer see it as idle.
 */
__noinline s32 pick_idle_in(struct task_struct *p __arg_trusted, u32 generation, u32 index)
{
	const struct cpumask *mask = mask_of(generation, index);
	s32 cpu;

	if (!mask)
		return NO_CPU;
	if (p->nr_cpus_allowed < machine.nr_possible) {
		struct bpf_cpumask *both = scratch_mask();

		if (!both || !bpf_cpumask_and(both, mask, p->cpus_ptr))
			return NO_CPU;
		mask = (const struct cpumask *)both;
	}
	if (machine.smt) {
		cpu = pick_idle_cpu(mask, SCX_ENUM(scx_pick_idle_cpu_flags, SCX_PICK_IDLE_CORE));
		if (cpu >= 0)
			return cpu;
	}
	return pick_idle_cpu(mask, 0);
}

/* The previous CPU if it is idle and in the mask, else any idle one of the mask. */
static __always_inline s32 pick_idle_at(struct task_struct *p, s32 prev, u32 generation, u32 index)
{
	const struct cpumask *mask = mask_of(generation, index);

	if (mask && take_idle(p, mask, prev))
		return prev;
	return pick_idle_in(p, generation, index);
}

/* Our own order: the previous CPU, the others of its core, its LLC, any. */
static __always_inline s32 pick_idle_own(struct task_struct *p, s32 prev, const struct place *w)
{
	const struct cpumask *mask = mask_of(w->generation, w->mask);
	u32 sibling = prev;
	u32 i;
	s32 cpu;

	if (!mask)
		return NO_CPU;
	if (take_idle(p, mask, prev))
		return prev;
	if (machine.smt) {
		bpf_for(i, 0, MAX_THREADS) {
			sibling = machine.cpu_sibling[sibling & (GTH_MAX_CPUS - 1)];
			if (sibling == prev)
				break;
			if (take_idle(p, mask, sibling))
				return sibling;
		}
	}
	if (machine.nr_llcs > 1 && !w->exclusive) {
		cpu = pick_idle_in(p, w->generation, GTH_MASK_LLC + llc_of(prev));
		if (cpu >= 0)
			return cpu;
	}
	return pick_idle_in(p, w->generation, w->mask);
}

/*
 * The kernel's own selection, where it can be limited to the mask. Drops WF_SYNC: with it the
 * kernel may choose the waker's CPU, which is not idle, and the waker may go on. follow_waker()
 * decides about that by measurement.
 */
static __always_inline s32 pick_idle_builtin(struct task_struct *p, s32 prev, u64 wake_flags,
					     const struct place *w)
{
	const struct cpumask *mask;
	bool idle = false;
	s32 cpu;

	wake_flags &= ~(u64)WAKE_SYNC;
	if (!w->exclusive && !live_tables(w->generation)->restricted) {
		cpu = scx_bpf_select_cpu_dfl(p, prev, wake_flags, &idle);
		return idle ? cpu : NO_CPU;
	}
	mask = mask_of(w->generation, w->mask);
	if (!mask)
		return NO_CPU;
	cpu = select_cpu_and(p, prev, wake_flags, mask);
	return cpu != NO_KFUNC ? cpu : pick_idle_at(p, prev, w->generation, w->mask);
}

/* Notes that a task of this rank is on its way to an idle CPU. */
static __always_inline void occupy(s32 cpu, u32 rank)
{
	__sync_val_compare_and_swap(&cpu_of(cpu)->rank, GTH_RANK_IDLE, rank);
}

/* Wakes an idle CPU for what waits in a pool's DSQ, if its first task may run there. */
__noinline int kick_for_head(u64 dsq, u32 generation)
{
	const struct cpumask *mask = mask_of(generation, GTH_MASK_NORMAL);
	struct bpf_cpumask *both = scratch_mask();
	struct task_struct *p;
	s32 cpu;

	if (!mask || !both)
		return false;
	bpf_for_each(scx_dsq, p, dsq, 0) {
		if (!bpf_cpumask_and(both, mask, p->cpus_ptr))
			return false;
		cpu = pick_idle_cpu((const struct cpumask *)both, 0);
		if (cpu >= 0)
			kick_if_idle(cpu);
		return cpu >= 0;
	}
	return false;
}

/* Wakes an idle CPU for a task that waits in the pool, priority tasks first. */
static __always_inline void kick_for_waiting(const struct waiting *waiting, u32 pool)
{
	u32 generation = tunables.generation;

	if (!(waiting->priority && kick_for_head(prio_dsq(pool), generation)) && waiting->shared)
		kick_for_head(pool_dsq(pool), generation);
}

extern const struct rq runqueues __ksym __weak;

/* The CPU's run queue, or NULL if the kernel's BTF lacks the symbol. */
static __always_inline const struct rq *rq_of(s32 cpu)
{
	return bpf_ksym_exists(&runqueues) ? bpf_per_cpu_ptr(&runqueues, cpu) : NULL;
}

/* Whether a task waits in the CPU's local DSQ: what scx_bpf_dsq_nr_queued() says, without a call. */
static __always_inline bool waits_locally(s32 cpu)
{
	const struct rq *rq = rq_of(cpu);

	return rq ? rq->scx.local_dsq.nr : scx_bpf_dsq_nr_queued(DSQ_LOCAL_ON(cpu)) > 0;
}

/*
 * When the kernel began to switch tasks on the CPU, by the clock of now_ns(). now_ns() itself is
 * slow after a dispatch. Not valid where a waking task preempts another one: the kernel does not
 * read the clock for that switch (wakeup_preempt(), kernel/sched/core.c).
 */
static __always_inline u64 switched_at(s32 cpu)
{
	const struct rq *rq = bpf_ksym_exists(scx_bpf_now) ? rq_of(cpu) : NULL;

	return rq ? rq->clock : now_ns();
}

/* Whether the CPU's stopper runs or is about to: the kernel picks it before all other tasks. */
static __always_inline bool stopper_waits(s32 cpu)
{
	const struct rq *rq = rq_of(cpu);

	return rq && rq->stop->on_rq;
}

/*
 * Whether the CPU runs a real-time or deadline task, which none of our tasks preempts. The kernel
 * sends no event when such a task takes an idle CPU. The stopper does not count: it leaves again at
 * once.
 */
__noinline int runs_above_us(s32 cpu)
{
	const struct rq *rq = rq_of(cpu);

	return rq && rq->curr->prio < MAX_RT_PRIO && rq->curr != rq->stop;
}

/* Marks a CPU that ran @there as taken by @rank, unless another CPU was faster. */
static __always_inline bool take_over(struct cpu_ctx *c, u32 there, u32 rank)
{
	if (__sync_val_compare_and_swap(&c->rank, there, rank) != there)
		return false;
	if (there < GTH_RANK_IDLE)
		count(GTH_COUNT_PREEMPTIONS);
	return true;
}

/*
 * Whether the guard protects the normal task that runs there. Clears an expired protection, so that
 * a wake-up reads the clock only while there is one.
 */
static __always_inline bool is_protected(struct cpu_ctx *c)
{
	u64 until = *(volatile u64 *)&c->protected_until;

	if (!until)
		return false;
	if (now_ns() < until)
		return true;
	__sync_val_compare_and_swap(&c->protected_until, until, 0);
	return false;
}

/* Whether the CPU runs something weaker than @rank that may be preempted now; @there is its rank. */
static __always_inline bool is_weaker(s32 cpu, u32 rank, u32 *there)
{
	struct cpu_ctx *c = cpu_of(cpu);

	*there = c->rank;
	return *there > rank && !is_protected(c) && !runs_above_us(cpu);
}

/* Takes over this CPU if it runs something weaker. */
static __always_inline bool claim_cpu(s32 cpu, u32 rank)
{
	u32 there;

	return is_weaker(cpu, rank, &there) && take_over(cpu_of(cpu), there, rank);
}

/* Takes over this CPU of the mask if it runs a normal task. */
static __always_inline bool claim_from_normal(struct task_struct *p, const struct cpumask *mask, s32 cpu, u32 rank)
{
	u32 there;

	return may_run_on(p, mask, cpu) && is_weaker(cpu, rank, &there) && there >= GTH_RANK_NORMAL &&
	       take_over(cpu_of(cpu), there, rank);
}

/*
 * Looks among the CPUs of the mask for one that runs something weaker: a normal task if there is
 * one, else the weakest of the few that it checks. With @preemptible, looks only among the
 * preemptible CPUs. @prev comes first, then those of the mask `near`. True if the CPU that it found
 * runs a normal task.
 */
__noinline int look_among(struct task_struct *p __arg_trusted, s32 prev, bool preemptible,
			  struct candidates *of __arg_nonnull)
{
	struct bpf_cpumask *left = scratch_mask(), *all = preemptible_cpus();
	const struct cpumask *mask = mask_of(of->generation, of->mask);
	const struct cpumask *near = mask_of(of->generation, of->near);
	u32 cpu = prev, there, i;

	if (!left || !all || !mask || !near || !bpf_cpumask_and(left, mask, p->cpus_ptr))
		return false;
	if (preemptible && !bpf_cpumask_and(left, (const struct cpumask *)left, (const struct cpumask *)all))
		return false;
	bpf_for(i, 0, CLAIM_LOOKS) {
		if (i || !bpf_cpumask_test_cpu(cpu, (const struct cpumask *)left))
			cpu = bpf_cpumask_any_and_distribute((const struct cpumask *)left, near);
		if (cpu >= machine.nr_cpus)
			cpu = bpf_cpumask_any_and_distribute((const struct cpumask *)left, mask);
		if (cpu >= machine.nr_cpus)
			return false;
		bpf_cpumask_clear_cpu(cpu, left);
		of->looks++;
		if (!is_weaker(cpu, of->rank, &there))
			continue;
		of->cpu = cpu;
		of->rank = there;
		if (there >= GTH_RANK_NORMAL)
			return true;
	}
	return false;
}

/* For look_among(): nothing has been found yet among the CPUs of the mask. */
static __always_inline struct candidates *begin_look(s32 prev, u32 rank, u32 generation, u32 index)
{
	struct candidates *of = &candidates[bpf_get_smp_processor_id() & (GTH_MAX_CPUS - 1)];

	of->generation = generation;
	of->mask = index;
	of->near = GTH_MASK_LLC + llc_of(prev);
	of->rank = rank;
	of->cpu = NO_CPU;
	of->looks = 0;
	return of;
}

/*
 * Takes over a CPU of the mask that runs something weaker than @rank: @prev if it
 * runs a normal task, else the CPU with the weakest task, preferably in the LLC of
 * @prev. Marks the CPU, so that no two wake-ups choose the same one; the next task
 * that gets the CPU clears the mark (ops.running).
 */
__noinline s32 claim_in(struct task_struct *p __arg_trusted, s32 prev, u32 rank, u32 generation, u32 index)
{
	const struct cpumask *mask = mask_of(generation, index);
	struct candidates *of;

	if (!mask)
		return NO_CPU;
	if (claim_from_normal(p, mask, prev, rank))
		return prev;
	of = begin_look(prev, rank, generation, index);
	if (!look_among(p, prev, true, of) && of->looks < CLAIM_LOOKS)
		look_among(p, prev, false, of);
	count_many(GTH_COUNT_LOOKS, of->looks);
	return of->cpu >= 0 && take_over(cpu_of(of->cpu), of->rank, rank) ? of->cpu : NO_CPU;
}

#endif
