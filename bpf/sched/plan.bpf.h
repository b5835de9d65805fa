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
 * The decision on a task that is being queued. There is one for each CPU that decides, which has
 * interrupts off. If it were on the stack, each function that gets it would be verified once more
 * for each call (bpf_compute_subprog_arg_access(), kernel/bpf/liveness.c, since Linux 7.0).
 */
struct plan {
	struct place place;
	u16 rank;
	u16 pool;
	s32 cpu;		/* the task's current CPU, or else one of its pool's */
	bool affinity_override;		/* all CPUs of its affinity are exclusive to others */
	bool pinned;		/* it may use one CPU only; set by gth_enqueue(), before make_plan() */
	bool is_new;		/* its match was outdated; likewise */
	bool none_idle;		/* no CPU was idle just now */
	bool last;		/* its CPU goes idle now */
	bool lone_cpu;		/* its pool is exclusive and has no other CPU */
	u64 slice;
	u64 credit;
} __attribute__((aligned(64)));

struct plan plans[GTH_MAX_CPUS];

/* The plan of the CPU that decides. */
static __always_inline struct plan *plan_on(s32 here)
{
	return &plans[here & (GTH_MAX_CPUS - 1)];
}

/* What a task ran by its priority is not a debt that it has to wait out once it has no priority. */
__noinline int forgive(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull, s32 cpu)
{
	u64 now;

	if (tctx->pool == NO_POOL)
		return 0;
	now = clock_for(p, tctx->pool, cpu);
	if ((s64)(tctx->vtime - now) > 0)
		tctx->vtime = now;
	return 0;
}

/*
 * The task's rank now: its rule's, unless it has used up its burst. From then on it
 * shares fairly. Such a task may be the one that wakes up the others, packet by packet:
 * GTH_RANK_EXHAUSTED keeps it from being preempted while another CPU runs something
 * without any priority.
 */
static __always_inline u32 rank_now(struct task_struct *p, struct task_ctx *tctx, const struct gth_rule *rule, s32 cpu)
{
	u64 slice;

	if (!rule || !is_priority(rule->rank)) {
		if (is_priority(tctx->rank))
			forgive(p, tctx, cpu);
		return GTH_RANK_NORMAL;
	}
	slice = rule->slice_ns ? rule->slice_ns : tunables.slice_ns;
	if (tctx->burst < BURST_SLICES * slice)
		return rule->rank;
	if (is_priority(tctx->rank)) {
		count_rarely(GTH_COUNT_DEMOTIONS);
		forgive(p, tctx, cpu);
		tctx->rank = GTH_RANK_EXHAUSTED;
	}
	return GTH_RANK_EXHAUSTED;
}

/* Begins a plan with nothing but what the rule says, for a task on @cpu that may run on all normal CPUs. */
static __always_inline void begin_plan(struct task_struct *p, struct task_ctx *tctx, const struct gth_rule *rule,
				       u32 generation, s32 cpu, struct plan *plan)
{
	plan->place.generation = generation;
	plan->place.mask = GTH_MASK_NORMAL;
	plan->place.first = NO_MASK;
	plan->place.exclusive = false;
	plan->rank = rank_now(p, tctx, rule, cpu);
	plan->credit = rule ? rule->credit_ns : 0;
	plan->cpu = cpu;
	plan->pool = cpu_pool(live_tables(generation), cpu);
	plan->affinity_override = false;
	plan->none_idle = false;
	plan->last = false;
	plan->lone_cpu = false;
}

/* Notes in the task's record what it keeps of its rule. */
static __always_inline void note_rule(struct task_ctx *tctx, const struct gth_rule *rule)
{
	tctx->weight = rule ? rule->weight : 0;
	tctx->row = row_of(rule);
	tctx->unlimited = rule && (rule->flags & GTH_RULE_NO_LIMIT);
}

/*
 * Plans for the rule's CPUs: those that the task prefers, or its exclusive pool. True if it goes
 * into that pool.
 */
static __always_inline bool plan_cpus(struct task_struct *p, const struct gth_rule *rule, u32 index,
				      struct plan *plan)
{
	const struct gth_tables *t = live_tables(plan->place.generation);
	s32 other;
	u32 pool;

	if (!(rule->flags & GTH_RULE_EXCLUSIVE)) {
		plan->place.first = index;
		return false;
	}
	if (!is_entitled(p, rule, plan->place.generation, index))
		return false;
	other = any_cpu_in(p, plan->place.generation, index);
	if (other < 0) {
		count_rarely(GTH_COUNT_RESERVED_MISSED);
		return false;
	}
	pool = cpu_pool(t, other);
	plan->place.mask = index;
	plan->place.exclusive = true;
	plan->lone_cpu = t->pool_cpus[pool & (GTH_MAX_POOLS - 1)] == 1;
	if (plan->pool != pool)
		plan->cpu = other;
	plan->pool = pool;
	return true;
}

/* The task's CPU is exclusive to others: plans another one, or that one after all if it may use no other. */
static __always_inline void plan_elsewhere(struct task_struct *p, struct plan *plan)
{
	s32 other = any_cpu_in(p, plan->place.generation, GTH_MASK_NORMAL);

	if (other < 0) {
		plan->affinity_override = true;
		return;
	}
	plan->cpu = other;
	plan->pool = cpu_pool(live_tables(plan->place.generation), other);
	count_rarely(GTH_COUNT_RESERVED_AVOIDED);
}

__noinline int make_plan(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull,
			 s32 cpu, u64 match, struct plan *plan __arg_nonnull)
{
	const struct gth_rule *rule = rule_in(match);
	u32 generation = rule ? match_generation(match) : tunables.generation;
	bool exclusive = false;

	tctx->need_resched = false;
	begin_plan(p, tctx, rule, generation, cpu, plan);
	note_rule(tctx, rule);
	if (rule && (rule->flags & GTH_RULE_CPUS))
		exclusive = plan_cpus(p, rule, GTH_MASK_RULE + match_rule(match), plan);
	if (!exclusive && pool_is_exclusive(plan->pool))
		plan_elsewhere(p, plan);
	plan->slice = slice_of(live_tables(generation), rule, plan->rank, plan->pool, plan->cpu);
	return 0;
}

#endif
