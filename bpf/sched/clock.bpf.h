/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Virtual time, slices, and the debt to normal tasks that the guard collects.
 */
#ifndef GTH_CLOCK_H
#define GTH_CLOCK_H

#include "sched/limit.bpf.h"
#include "sched/masks.bpf.h"
#include "sched/tally.bpf.h"
#include "sched/waiting.bpf.h"

enum {
	BURST_SLICES = 4,	/* slices without sleep before a task loses its priority */
	GUARD_RATIO = 20,	/* priority tasks' time per unit of normal tasks' time */
	GUARD_GRACE = 2,	/* factor on the debt that a just woken-up task may run up */
	ROUND_NS = 1000000000,	/* every waiting task gets a turn within this time */
	LONG_NS = 20000000,	/* slices longer than this are checked against the round */
	TURN_NS = 10000000,	/* the longest turn that the guard gives a normal task */
	STALE_NS = 2000000000,	/* a normal task that has waited this long goes first */
	UNEVEN_NS = 100000000,	/* how often a CPU takes a task from an LLC that is only a little fuller */
	LOOK_NS = 50000000,	/* how often a CPU looks for a task that has waited STALE_NS */
	SHORT_NS = 100000,	/* the shortest slice that a task goes on with */
	PASSED_NS = 1000000,	/* how long priority tasks may pass a task in a CPU's local DSQ */
	LATE_NS = 4000000,	/* slices end at ticks, at most this late */
	LOOK_AT = 16,		/* how many tasks of a DSQ a CPU looks at */
	NONE_IDLE_NS = 50000,	/* how long a failed search for an idle CPU counts */
	SETTLED_NS = 200000,	/* a waker's own wake-ups do not end its turn before this age */
	CATCH_UP_NS = 16000000,	/* a confined task this far behind is charged twice what it runs,
				 * see catch_up() */
	MOST_BEHIND_NS = 1000000000,	/* how far a confined task may lag its pool's clock, plus one slice */
};

static __always_inline u64 turn_ns(void)
{
	return tunables.slice_min_ns < TURN_NS ? tunables.slice_min_ns : TURN_NS;
}

/*
 * Advances a pool's clock by @cpu's share of what each waiting task would have got of
 * @ns. Uses the number of tasks that waited at the last tick: counting them takes longer
 * than the rest of the function.
 */
static __always_inline void advance_clock(u32 pool, s32 cpu, u64 ns)
{
	u64 cpus = live_tables(tunables.generation)->pool_cpus[pool & (GTH_MAX_POOLS - 1)];

	__sync_fetch_and_add(&pool_of(pool)->vtime_now, ns / (cpu_of(cpu)->waiting + 1ULL) / (cpus ? cpus : 1));
}

/* Returns @ns, limited so that every task that waits for @cpu gets a turn of that length within a round. */
static __always_inline u64 in_a_round(u64 ns, u32 pool, s32 cpu)
{
	u64 most;

	if (ns <= LONG_NS)
		return ns;
	most = ROUND_NS / (waiting_for(pool, cpu) + 1);
	return ns < most ? ns : most;
}

/*
 * Whether the task may use only some CPUs. If more tasks wait for those than for others, the pool's
 * clock leaves the task behind, with all its competitors.
 */
static __always_inline bool is_confined(const struct task_struct *p)
{
	return p->nr_cpus_allowed < machine.nr_possible;
}

/*
 * The virtual time that the task's competitors on @cpu have reached. For a confined task it may be
 * behind @pool's clock.
 */
static __always_inline u64 clock_for(const struct task_struct *p, u32 pool, s32 cpu)
{
	const struct cpu_ctx *c = cpu_of(cpu);
	u64 now = pool_of(pool)->vtime_now;
	s64 behind = now - c->confined_vtime;

	if (!is_confined(p) || c->confined_pool != pool || c->rank == GTH_RANK_IDLE || behind <= 0)
		return now;
	return now - (behind < MOST_BEHIND_NS ? behind : MOST_BEHIND_NS);
}

static __always_inline void forget_confined(struct cpu_ctx *c)
{
	c->confined_pool = NO_POOL;
}

/*
 * Called at a tick. Notes how far the confined tasks that compete for @cpu have got, and how far
 * behind they are on average. Leaves out a task that has just woken up, which may lag behind the
 * others, and one on another pool's clock: a task taken from another LLC may still be on that LLC's
 * clock.
 */
static __always_inline void note_confined(const struct task_struct *p, const struct task_ctx *tctx,
					  const struct waiting *waiting, u32 pool, s32 cpu)
{
	struct cpu_ctx *c = cpu_of(cpu);
	s64 lag = pool_of(pool)->vtime_now - tctx->vtime;
	bool confined = is_confined(p);

	if (confined && tctx->pool == pool && !tctx->was_woken && !is_priority(tctx->rank)) {
		if (c->confined_pool != pool)
			c->confined_lag = lag;
		c->confined_lag += (lag - c->confined_lag) >> 2;
		c->confined_vtime = tctx->vtime;
		c->confined_pool = pool;
	} else if (!waiting->own && (!confined || !waiting->shared)) {
		forget_confined(c);
	}
}

/*
 * Charges more to confined tasks that the pool's clock has left behind, in proportion to what each
 * ran and to how far behind all competitors for @cpu are. This way they keep up with the clock and
 * still share the time by their weights. A task's own distance would differ from turn to turn, most
 * for the tasks whose virtual time advances fast. Returns what to charge beyond @ran_vtime.
 */
__noinline u64 catch_up(const struct task_ctx *tctx __arg_nonnull, s32 cpu, u64 ran_vtime)
{
	struct cpu_ctx *c = cpu_of(cpu);
	s64 behind = c->confined_lag - (s64)tunables.slice_ns;

	if (c->confined_pool != tctx->pool || behind <= 0)
		return 0;
	if (behind > MOST_BEHIND_NS)
		behind = MOST_BEHIND_NS;
	return ran_vtime * ((u64)behind * 64 / CATCH_UP_NS) / 64;
}

/* For set_clock(): the task lags or leads by more than one slice, which may be too much. */
__noinline int bound_distance(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull, u32 pool,
			      s32 cpu)
{
	u64 now = pool_of(pool)->vtime_now;
	u64 lag = tunables.slice_ns, lead;

	if ((s64)(tctx->vtime - now) < 0) {
		now = clock_for(p, pool, cpu);
		if ((s64)(tctx->vtime - (now - lag)) < 0)
			tctx->vtime = now - lag;
		return 0;
	}
	lead = in_a_round(most_ahead(), pool, cpu);
	if (lead < lag)
		lead = lag;
	if ((s64)(tctx->vtime - now) > (s64)lead)
		tctx->vtime = now + lead;
	return 0;
}

/*
 * Puts the task on @pool's clock. A task that changes pools keeps its distance from the
 * clock. It may lag by one slice (a sleeper's credit) and lead by what one slice costs
 * the lightest weight. The lead is smaller when so many tasks wait that its turn would
 * not come within a round. There is no such limit for a priority task: it waits in
 * another order, and it always leads, because the clock does not advance by what it runs.
 */
static __always_inline void set_clock(struct task_struct *p, struct task_ctx *tctx, u32 rank, u32 pool, s32 cpu)
{
	u64 now = pool_of(pool)->vtime_now;
	u64 lag = tunables.slice_ns;

	if (tctx->pool == NO_POOL)
		tctx->vtime = now;
	else if (tctx->pool != pool)
		tctx->vtime += now - pool_of(tctx->pool)->vtime_now;
	tctx->pool = pool;
	if (!is_priority(rank) && tctx->vtime - now + lag > 2 * lag) /* more than a slice away */
		bound_distance(p, tctx, pool, cpu);
}

/* The slice of a normal task: the more tasks waited in its pool at the last tick, the shorter it is. */
static __always_inline u64 fair_slice(const struct gth_tables *t, u32 pool)
{
	u64 cpus = t->pool_cpus[pool & (GTH_MAX_POOLS - 1)];
	u32 waiting = pool_of(pool)->waiting;
	u64 slice = tunables.slice_ns;

	if (waiting && cpus)
		slice = slice * cpus / (cpus + waiting);
	return slice < tunables.slice_min_ns ? tunables.slice_min_ns : slice;
}

/* The slice of a task with this rule and rank: the rule's, the default, or a fair one. */
static __always_inline u64 slice_of(const struct gth_tables *t, const struct gth_rule *rule, u32 rank, u32 pool,
				    s32 cpu)
{
	u64 slice;

	if (rule && rule->slice_ns)
		slice = rule->slice_ns;
	else
		slice = is_priority(rank) ? tunables.slice_ns : fair_slice(t, pool);
	return in_a_round(slice, pool, cpu);
}

/*
 * Called when a normal task has run on a CPU that owes normal tasks time. Advances the
 * clock of the CPU's pool by what they would have run in the time that they are paid for.
 * Otherwise a task with a small lead would have to wait it out at a twentieth of the
 * speed.
 */
__noinline int pay_debt(s32 cpu, u64 ran)
{
	struct cpu_ctx *c = cpu_of(cpu);
	u64 paid = ran * GUARD_RATIO;

	if (paid > c->prio_debt)
		paid = c->prio_debt;
	c->prio_debt -= paid;
	advance_clock(cpu_pool(live_tables(tunables.generation), cpu), cpu, paid);
	return 0;
}

/* Charges the task and its CPU for its run time since the last call. @end: enum gth_turn_end. */
__noinline int charge(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull, s32 cpu, u32 end)
{
	struct cpu_ctx *c = cpu_of(cpu);
	u64 total = p->se.sum_exec_runtime;
	u64 ran = total - tctx->charged_until, ran_vtime;

	tctx->charged_until = total;
	count_turn(p, tctx, ran, end);
	if (any_limit() && !tctx->unlimited)
		bill(tctx->group, ran);
	tctx->pace = pace_of(p, tctx);
	ran_vtime = virtual_time(ran, tctx->pace);
	tctx->vtime += ran_vtime;
	tctx->since_fork += ran_vtime;
	tctx->burst += ran;
	if (is_priority(tctx->rank)) {
		c->prio_debt += ran;
		return 0;
	}
	if (is_confined(p))
		tctx->vtime += catch_up(tctx, cpu, ran_vtime);
	if (c->prio_debt)
		pay_debt(cpu, ran);
	return 0;
}

#endif
