/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a CPU runs next.
 */
#ifndef GTH_DISPATCH_H
#define GTH_DISPATCH_H

#include "sched/plan.bpf.h"
#include "sched/tickless.bpf.h"

/* May a task with this match word go on here, as far as the policy is concerned? */
__noinline int may_stay(struct task_struct *p __arg_trusted, u64 match, s32 cpu)
{
	const struct gth_rule *rule = rule_in(match);
	u32 generation = rule ? match_generation(match) : knobs.generation;
	u32 pool = cpu_pool(live_tables(generation), cpu);

	if (rule && (rule->flags & GTH_RULE_EXCLUSIVE)) {
		if (pool == rule->pool)
			return true;
		if (any_cpu_in(p, generation, GTH_MASK_RULE + match_rule(match)) >= 0)
			return false;
	}
	return !pool_is_exclusive(pool) || any_cpu_in(p, generation, GTH_MASK_NORMAL) < 0;
}

static __always_inline void keep(struct task_struct *p, struct task_ctx *tctx, struct cpu_ctx *c,
				 const struct gth_rule *rule, u32 rank, u32 pool, s32 cpu)
{
	u64 slice = c->endless ? ENDLESS : slice_of(live_tables(knobs.generation), rule, rank, pool, cpu);

	tctx->rank = rank;
	set_rank(cpu, c, rank);
	count_path(GTH_PATH_KEPT);
	tctx->turn_slice = tctx->charged_until - tctx->turn_began + slice;
	task_set_slice(p, slice);
}

static __always_inline bool take(u64 dsq, enum gth_path path)
{
	if (!dsq_move_to_local(dsq))
		return false;
	count_path(path);
	return true;
}

/*
 * Evens out the LLCs: takes a task from another one that would still have more
 * waiting for each CPU than this one afterwards. Looks at one other LLC a call,
 * so the cost does not grow with their number.
 */
__noinline int balance(s32 cpu, u32 pool)
{
	const struct gth_tables *t = live_tables(knobs.generation);
	struct cpu_ctx *c = cpu_of(cpu);
	u32 other = c->next_llc;
	s64 here, there;

	if (machine.nr_llcs < 2 || pool_is_exclusive(pool))
		return false;
	if (++other >= machine.nr_llcs)
		other = 0;
	c->next_llc = other;
	if (other == pool)
		return false;
	here = scx_bpf_dsq_nr_queued(pool_dsq(pool));
	there = scx_bpf_dsq_nr_queued(pool_dsq(other));
	if ((there - 1) * t->pool_cpus[pool & (GTH_MAX_POOLS - 1)] <=
	    (here + 1) * t->pool_cpus[other & (GTH_MAX_POOLS - 1)])
		return false;
	return take(pool_dsq(other), GTH_PATH_STOLEN);
}

/* Takes a task from any other LLC that has one: this CPU would be idle. */
__noinline int steal(u32 pool)
{
	u32 i;

	if (pool_is_exclusive(pool))
		return false;
	bpf_for(i, 1, machine.nr_llcs) {
		u32 other = pool + i;

		if (other >= machine.nr_llcs)
			other -= machine.nr_llcs;
		if (scx_bpf_dsq_nr_queued(pool_dsq(other)) > 0 && take(pool_dsq(other), GTH_PATH_STOLEN))
			return true;
	}
	return false;
}

/*
 * Takes a task that has waited for too long: those at the end of a queue are the ones with
 * the longest lead, which may have been short when they were queued, for many more may
 * have come since.
 */
__noinline int take_stale(u64 dsq, s32 cpu)
{
	u64 now = now_ns();
	struct task_struct *p;
	u32 left = LOOK_AT;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return false;
	bpf_for_each(scx_dsq, p, dsq, SCX_ENUM(scx_dsq_iter_flags, SCX_DSQ_ITER_REV)) {
		struct task_ctx *tctx = task_of(p);

		if (tctx && (s64)(now - tctx->queued_at) > STALE_NS && bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
		    dsq_move_to(THIS_ITERATION, p, DSQ_LOCAL)) {
			count_path(GTH_PATH_SHARED);
			return true;
		}
		if (!--left)
			break;
	}
	return false;
}

/* Every other time at most, so that the order of the queues holds for the rest. */
static __always_inline bool look_for_stale(struct cpu_ctx *c, s32 cpu, u32 pool)
{
	u64 now = now_ns();

	if (now - c->looked_at < LOOK_NS)
		return false;
	c->looked_at = now;
	c->took_stale = !c->took_stale && (take_stale(pool_dsq(pool), cpu) || take_stale(cpu_dsq(cpu), cpu));
	return c->took_stale;
}

#endif
