/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Virtual time, slices, and what the guard of the normal tasks is owed.
 */
#ifndef GTH_CLOCK_H
#define GTH_CLOCK_H

#include "sched/masks.bpf.h"

enum {
	BURST_SLICES = 4,	/* slices without sleep before priority is lost */
	GUARD_RATIO = 20,	/* priority tasks' time to one part of the normal tasks' */
	GUARD_GRACE = 2,	/* times what is owed when only a woken-up task could pay it */
	VTIME_AHEAD_SLICES = 100, /* the lightest weight's charge for one slice */
	ROUND_NS = 1000000000,	/* in which everybody who waits is to have had a turn */
	LONG_NS = 20000000,	/* a slice from which on it is looked whether it fits into a round */
	TURN_NS = 10000000,	/* the longest turn that the guard gives a normal task */
	STALE_NS = 2000000000,	/* a normal task that has waited for so long goes first */
	LOOK_NS = 50000000,	/* how often a CPU looks for one */
	SHORT_NS = 100000,	/* the least that a task goes on with */
	LATE_NS = 4000000,	/* slices end at ticks: so much later at the most */
	LOOK_AT = 16,		/* how many it looks at, from the queue's end on */
	NONE_IDLE_NS = 50000,	/* for so long a search for an idle CPU need not be repeated */
	STREAM_NS = 500000,	/* who ran so recently is woken up by a stream of packets */
	SETTLED_NS = 200000,	/* a turn that a waker's own wake-ups do not end before */
};

static __always_inline u64 turn_ns(void)
{
	return knobs.slice_min_ns < TURN_NS ? knobs.slice_min_ns : TURN_NS;
}

/* How many tasks wait for @cpu of @pool, as its part of those that wait for the pool. */
__noinline u64 waiting_for(u32 pool, s32 cpu)
{
	u64 cpus = live_tables(knobs.generation)->pool_cpus[pool & (GTH_MAX_POOLS - 1)];
	s32 own = scx_bpf_dsq_nr_queued(cpu_dsq(cpu));
	s32 shared = scx_bpf_dsq_nr_queued(pool_dsq(pool));
	s32 prio = scx_bpf_dsq_nr_queued(prio_dsq(pool));
	u64 waiting = (shared > 0 ? shared : 0) + (prio > 0 ? prio : 0);

	return (own > 0 ? own : 0) + (cpus ? waiting / cpus : waiting);
}

/*
 * Moves a pool's clock on by what @cpu's part of those that wait would have got of @ns. How
 * many wait is as of its last tick: to count them takes longer than all else here.
 */
static __always_inline void advance_clock(u32 pool, s32 cpu, u64 ns)
{
	u64 cpus = live_tables(knobs.generation)->pool_cpus[pool & (GTH_MAX_POOLS - 1)];

	__sync_fetch_and_add(&pool_of(pool)->vtime_now, ns / (cpu_of(cpu)->waiting + 1ULL) / (cpus ? cpus : 1));
}

/* At most so long that everybody who waits for @cpu has a turn of this length in a round. */
static __always_inline u64 in_a_round(u64 ns, u32 pool, s32 cpu)
{
	u64 most;

	if (ns <= LONG_NS)
		return ns;
	most = ROUND_NS / (waiting_for(pool, cpu) + 1);
	return ns < most ? ns : most;
}

/*
 * Puts the task on @pool's clock: it keeps its distance when it changes pools,
 * may lag by one slice (a sleeper's credit) and lead by what one slice costs
 * the lightest weight, and less when so many wait that its turn would not come
 * in a round.
 */
static __always_inline void set_clock(struct task_ctx *tctx, u32 pool, s32 cpu)
{
	u64 now = pool_of(pool)->vtime_now;
	u64 lag = knobs.slice_ns;
	u64 lead = VTIME_AHEAD_SLICES * lag;

	if (tctx->pool == NO_POOL)
		tctx->vtime = now;
	else if (tctx->pool != pool)
		tctx->vtime += now - pool_of(tctx->pool)->vtime_now;
	tctx->pool = pool;
	if ((s64)(tctx->vtime - (now - lag)) < 0)
		tctx->vtime = now - lag;
	else if ((s64)(tctx->vtime - now) > (s64)lag) {
		lead = in_a_round(lead, pool, cpu);
		if (lead < lag)
			lead = lag;
		if ((s64)(tctx->vtime - now) > (s64)lead)
			tctx->vtime = now + lead;
	}
}

/* The slice of a normal task: shorter the more tasks waited in its pool at the last tick. */
static __always_inline u64 fair_slice(const struct gth_tables *t, u32 pool)
{
	u64 cpus = t->pool_cpus[pool & (GTH_MAX_POOLS - 1)];
	u32 waiting = pool_of(pool)->waiting;
	u64 slice = knobs.slice_ns;

	if (waiting && cpus)
		slice = slice * cpus / (cpus + waiting);
	return slice < knobs.slice_min_ns ? knobs.slice_min_ns : slice;
}

/* The slice of a task with this rule and rank: the rule's, the default, or a fair one. */
static __always_inline u64 slice_of(const struct gth_tables *t, const struct gth_rule *rule, u32 rank, u32 pool,
				    s32 cpu)
{
	u64 slice;

	if (rule && rule->slice_ns)
		slice = rule->slice_ns;
	else
		slice = is_priority(rank) ? knobs.slice_ns : fair_slice(t, pool);
	return in_a_round(slice, pool, cpu);
}

/*
 * A normal task has run on a CPU that owes normal tasks time. The clock of its pool goes
 * on by what they would have run in the time that they are paid for: who leads by a
 * little must not wait for as long as a little takes at a twentieth of the speed.
 */
__noinline int pay_debt(s32 cpu, u64 ran)
{
	struct cpu_ctx *c = cpu_of(cpu);
	u64 paid = ran * GUARD_RATIO;

	if (paid > c->prio_debt)
		paid = c->prio_debt;
	c->prio_debt -= paid;
	advance_clock(cpu_pool(live_tables(knobs.generation), cpu), cpu, paid);
	return 0;
}

/* Charges what the task ran since the last call, to itself and to its CPU. */
static __always_inline void charge(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	struct cpu_ctx *c = cpu_of(cpu);
	u64 total = p->se.sum_exec_runtime;
	u64 ran = total - tctx->charged_until, ran_vtime;
	u32 weight = tctx->weight ? tctx->weight : p->scx.weight;

	tctx->charged_until = total;
	ran_vtime = ran * 100 / (weight ? weight : 100);
	tctx->vtime += ran_vtime;
	tctx->since_fork += ran_vtime;
	tctx->burst += ran;
	if (is_priority(tctx->rank))
		c->prio_debt += ran;
	else if (c->prio_debt)
		pay_debt(cpu, ran);
}

#endif
