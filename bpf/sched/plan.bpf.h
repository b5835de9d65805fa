/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a rule does with a task that is being queued.
 */
#ifndef GTH_PLAN_H
#define GTH_PLAN_H

#include "sched/clock.bpf.h"
#include "sched/match.bpf.h"
#include "sched/idle.bpf.h"

/*
 * The decision on a task that is being queued. One for each CPU that decides, which has
 * interrupts off. On the stack, each function that gets it would be verified once more for each
 * call (bpf_compute_subprog_arg_access(), kernel/bpf/liveness.c, since Linux 7.0).
 */
struct plan {
	struct place place;
	u16 rank;
	u16 pool;
	s32 cpu;		/* its current one, or else one of its pool's */
	bool affinity_override;		/* all CPUs of its affinity are exclusive to others */
	bool none_idle;		/* no CPU was idle just now */
	bool last;		/* its CPU goes idle now */
	bool lone_cpu;		/* its pool is exclusive and has no other CPU */
	u64 slice;
	u64 credit;
} __attribute__((aligned(64)));

struct plan plans[GTH_MAX_CPUS];

/* Of the CPU that decides. */
static __always_inline struct plan *plan_on(s32 here)
{
	return &plans[here & (GTH_MAX_CPUS - 1)];
}

/*
 * The task's rank now: its rule's, unless it has used up its burst. From then on it
 * shares fairly; what it ran by its priority is no debt to wait out. It may wake up the
 * others, packet by packet: its rank keeps it from being pushed aside while another CPU
 * runs something without any priority.
 */
static __always_inline u32 rank_now(struct task_ctx *tctx, const struct gth_rule *rule)
{
	u64 slice;

	if (!rule || !is_priority(rule->rank))
		return GTH_RANK_NORMAL;
	slice = rule->slice_ns ? rule->slice_ns : tunables.slice_ns;
	if (tctx->burst < BURST_SLICES * slice)
		return rule->rank;
	if (is_priority(tctx->rank)) {
		count(GTH_COUNT_DEMOTIONS);
		if (tctx->pool != NO_POOL)
			tctx->vtime = pool_of(tctx->pool)->vtime_now;
		tctx->rank = GTH_RANK_EXHAUSTED;
	}
	return GTH_RANK_EXHAUSTED;
}

__noinline int make_plan(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull,
			 s32 cpu, u64 match, struct plan *plan __arg_nonnull)
{
	const struct gth_rule *rule;
	const struct gth_tables *t;
	u32 generation;
	s32 other;

	tctx->need_resched = false;
	rule = rule_in(match);
	generation = rule ? match_generation(match) : tunables.generation;
	t = live_tables(generation);
	plan->place.generation = generation;
	plan->place.mask = GTH_MASK_NORMAL;
	plan->place.first = NO_MASK;
	plan->place.exclusive = false;
	plan->rank = rank_now(tctx, rule);
	plan->credit = rule ? rule->credit_ns : 0;
	tctx->weight = rule ? rule->weight : 0;
	tctx->row = row_of(rule);
	tctx->unlimited = rule && (rule->flags & GTH_RULE_NO_LIMIT);
	plan->cpu = cpu;
	plan->pool = cpu_pool(t, cpu);
	plan->affinity_override = false;
	plan->none_idle = false;
	plan->last = false;
	plan->lone_cpu = false;

	if (rule && (rule->flags & GTH_RULE_CPUS)) {
		u32 index = GTH_MASK_RULE + match_rule(match);

		if (!(rule->flags & GTH_RULE_EXCLUSIVE)) {
			plan->place.first = index;
		} else if (is_entitled(p, rule, generation, index)) {
			other = any_cpu_in(p, generation, index);
			if (other >= 0) {
				u32 pool = cpu_pool(t, other);

				plan->place.mask = index;
				plan->place.exclusive = true;
				plan->lone_cpu = t->pool_cpus[pool & (GTH_MAX_POOLS - 1)] == 1;
				if (plan->pool != pool)
					plan->cpu = other;
				plan->pool = pool;
				goto slice;
			}
			count(GTH_COUNT_RESERVED_MISSED);
		}
	}
	if (pool_is_exclusive(plan->pool)) {
		other = any_cpu_in(p, generation, GTH_MASK_NORMAL);
		if (other >= 0) {
			plan->cpu = other;
			plan->pool = cpu_pool(t, other);
			count(GTH_COUNT_RESERVED_AVOIDED);
		} else {
			plan->affinity_override = true;
		}
	}
slice:
	plan->slice = slice_of(t, rule, plan->rank, plan->pool, plan->cpu);
	return 0;
}

#endif
