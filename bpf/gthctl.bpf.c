/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gthctl's sched_ext scheduler.
 *
 * A task that wakes up goes straight onto an idle CPU. If there is none, a
 * priority task goes in front of something weaker, and a normal task into its
 * pool's DSQ in the order of virtual time. A pool is an LLC's CPUs, or the
 * CPUs a rule has to itself. When a CPU has nothing to run it takes, in this
 * order: a waiting priority task, the earliest normal task of its own or its
 * pool's DSQ, one of another LLC, the task it just ran.
 *
 * Two things keep priority from starving the rest, each with a test of its own
 * in tests/vm/suite: a priority task that runs BURST_SLICES slices without
 * sleeping shares fairly until it sleeps, and a CPU that has given priority
 * tasks GUARD_RATIO times what normal tasks got gives those a turn. Who runs on
 * pays for that; a priority task that was woken up goes first until twice as
 * much is owed.
 *
 * kernel.h   the kernel's types            state.h  CPU, pool and task records
 * compat.h   one name for each kfunc       match.h  which rule a task falls under
 * intf.h     shared with user space        paths.h  the names and paths that rules ask for
 * masks.h    CPU masks                     idle.h   finding a CPU
 * ask.h      making the running task choose its CPU anew
 * shared.h   what mark.bpf.c has, too      mark.h   tasks that process packets
 * woken.h    whom those wake up            drain.h  what waits when a policy changes
 * tickless.h CPUs without a tick
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "intf.h"
#include "compat.h"
#include "state.h"
#include "masks.h"
#include "paths.h"
#include "match.h"
#include "woken.h"
#include "idle.h"
#include "tickless.h"
#include "drain.h"

char LICENSE[] SEC("license") = "GPL";

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

/* What is to happen to a task that is being queued. Small: it is on the longest stack. */
struct plan {
	struct place place;
	u16 rank;
	u16 pool;
	s32 cpu;		/* where it is, or one of its pool's CPUs instead */
	bool let_in;		/* it may only run on CPUs that are exclusive to others */
	bool none_idle;		/* no CPU was idle just now */
	u64 slice;
	u64 credit;
};

/* The turn that the guard gives a normal task. */
static __always_inline u64 turn_ns(void)
{
	return knobs.slice_min_ns < TURN_NS ? knobs.slice_min_ns : TURN_NS;
}

/* ---- virtual time ---- */

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

/* ---- what a rule makes of a task ---- */

/*
 * The task's rank now: its rule's, unless it has used up its burst. From then on it
 * shares fairly; what it ran by right of its priority is no debt that it has to wait for.
 * It may be the one that wakes up the others, packet by packet: its rank keeps it from
 * being pushed aside while another CPU runs something that has no priority at all.
 */
static __always_inline u32 rank_now(struct task_ctx *tctx, const struct gth_rule *rule)
{
	u64 slice;

	if (!rule || !is_priority(rule->rank))
		return GTH_RANK_NORMAL;
	slice = rule->slice_ns ? rule->slice_ns : knobs.slice_ns;
	if (tctx->burst < BURST_SLICES * slice)
		return rule->rank;
	if (is_priority(tctx->rank)) {
		count(GTH_COUNT_DEMOTIONS);
		if (tctx->pool != NO_POOL)
			tctx->vtime = pool_of(tctx->pool)->vtime_now;
		tctx->rank = GTH_RANK_SPENT;
	}
	return GTH_RANK_SPENT;
}

__noinline int make_plan(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull,
			 s32 cpu, struct plan *plan __arg_nonnull)
{
	const struct gth_rule *rule;
	const struct gth_tables *t;
	u32 generation;
	s32 other;
	u64 match;

	tctx->asked = false;
	match = match_of(p, tctx);
	rule = rule_in(match);
	generation = rule ? match_generation(match) : knobs.generation;
	t = live_tables(generation);
	plan->place.generation = generation;
	plan->place.mask = GTH_MASK_NORMAL;
	plan->place.first = NO_MASK;
	plan->place.exclusive = false;
	plan->rank = rank_now(tctx, rule);
	plan->credit = rule ? rule->credit_ns : 0;
	tctx->weight = rule ? rule->weight : 0;
	plan->cpu = cpu;
	plan->pool = cpu_pool(t, cpu);
	plan->let_in = false;

	if (rule && (rule->flags & GTH_RULE_CPUS)) {
		u32 index = GTH_MASK_RULE + match_rule(match);

		if (!(rule->flags & GTH_RULE_EXCLUSIVE)) {
			plan->place.first = index;
		} else {
			other = any_cpu_in(p, generation, index);
			if (other >= 0) {
				plan->place.mask = index;
				plan->place.exclusive = true;
				if (plan->pool != rule->pool)
					plan->cpu = other;
				plan->pool = rule->pool;
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
			plan->let_in = true;
		}
	}
slice:
	plan->slice = slice_of(t, rule, plan->rank, plan->pool, plan->cpu);
	return 0;
}

/* ---- wake-up ---- */

static __always_inline void note_priority_wakeup(struct task_ctx *tctx, u32 rank)
{
	if (!is_priority(rank) || tctx->woken_at)
		return;
	tctx->woken_at = now_ns();
	count(GTH_COUNT_PRIO_WAKEUPS);
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

/*
 * True when the fastest way for @p to a CPU is to wait for its waker to leave
 * this one. WF_SYNC promises that the waker sleeps soon; whether it does, and
 * whether that is sooner than the interrupt of another CPU takes effect, is
 * measured: how long this waker took the last times, how long the switch from a
 * waker to whom it woke up took here, and how long wake-ups took on this CPU that came
 * from others. In a stream of packets the switch does not count: throughput suffers more
 * from the two switches on another CPU.
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
	if (waker->sync_at) /* it has not slept since: it takes at least this long */
		waker->sync_lag = mean_of(waker->sync_lag, now - waker->sync_at);
	waker->sync_at = now;
	lag = waker->sync_lag;
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
	if (cpu_of(here)->rank > GTH_RANK_SPENT && mask && may_run_on(p, mask, here) &&
	    llc_of(here) == llc_of(prev) && claim_cpu(here, plan->rank))
		return here;
	return claim_in(p, prev, plan->rank, generation, plan->place.mask);
}

/*
 * A normal task that wakes up goes in front of one that is further in virtual time by more
 * than the shortest slice, and that has run for as long without sleeping: tasks that wake
 * each other up for short work wait for one another. Marks the CPU as its own, so that no
 * other goes in front of it in turn.
 *
 * With @sync, of a waker that passes something on, a turn that has just begun goes on until
 * the next tick: who sends many messages is not switched out for each of them.
 */
__noinline int overtakes(struct task_ctx *tctx __arg_nonnull, const struct plan *plan __arg_nonnull, s32 cpu,
			 bool sync)
{
	struct cpu_ctx *c = cpu_of(cpu);
	u64 now = now_ns(), ran, there;

	if (c->rank != GTH_RANK_NORMAL || cpu_pool(live_tables(plan->place.generation), cpu) != plan->pool)
		return false;
	ran = now - c->turn_began;
	if (c->turn_burst + ran < knobs.slice_min_ns)
		return false;
	there = c->turn_vtime + ran * 100 / (c->turn_weight ? c->turn_weight : 100);
	if ((s64)(there - (tctx->vtime - plan->credit)) <= (s64)knobs.slice_min_ns)
		return false;
	if (sync && ran < SETTLED_NS) {
		c->overdue = true;
		return false;
	}
	c->turn_vtime = tctx->vtime;
	c->turn_began = now;
	c->turn_burst = 0;
	count_path(GTH_PATH_OVERTAKEN);
	return true;
}

/* The CPU whose task a normal one that wakes up overtakes: its previous one, or the waker's. */
__noinline s32 overtake(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull,
			const struct plan *plan __arg_nonnull, s32 here, bool sync)
{
	const struct cpumask *mask = mask_of(plan->place.generation, plan->place.mask);

	if (!mask || plan->let_in)
		return NO_CPU;
	set_clock(tctx, plan->pool, plan->cpu);
	if (may_run_on(p, mask, plan->cpu) && overtakes(tctx, plan, plan->cpu, sync))
		return plan->cpu;
	if (here != plan->cpu && may_run_on(p, mask, here) && overtakes(tctx, plan, here, sync))
		return here;
	return NO_CPU;
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(gth_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	struct task_ctx *tctx = task_of(p);
	s32 here = bpf_get_smp_processor_id();
	struct plan plan = {};
	s32 cpu;

	if (!tctx)
		return prev;
	note_handed_on(p, wake_flags & WAKE_SYNC);
	make_plan(p, tctx, prev, &plan);
	note_priority_wakeup(tctx, plan.rank);

	cpu = pick_idle(p, &plan, prev, wake_flags);
	if (cpu >= 0) {
		tctx->rank = plan.rank;
		occupy(cpu, plan.rank);
		set_clock(tctx, plan.pool, cpu);
		count_path(GTH_PATH_IDLE);
		dsq_insert(p, DSQ_LOCAL, plan.slice, 0);
		return cpu;
	}
	if (!is_priority(plan.rank)) {
		cpu = overtake(p, tctx, &plan, here, wake_flags & WAKE_SYNC);
		if (cpu < 0)
			return plan.cpu;
		tctx->rank = plan.rank;
		dsq_insert(p, DSQ_LOCAL, plan.slice, ENQ_PREEMPT);
		return cpu;
	}
	if (follow_waker(p, tctx, &plan, here, wake_flags)) {
		tctx->rank = plan.rank;
		tctx->follows = true;
		set_clock(tctx, plan.pool, here);
		dsq_insert_vtime(p, prio_dsq(plan.pool), plan.slice, prio_key(plan.rank), 0);
		return here;
	}
	cpu = claim(p, &plan, plan.cpu, here);
	if (cpu < 0)
		return plan.cpu;
	tctx->rank = plan.rank;
	tctx->interrupts = cpu != here;
	if (!plan.place.exclusive && p->nr_cpus_allowed >= machine.nr_possible)
		cpu_of(cpu)->none_idle_at = tctx->woken_at;
	set_clock(tctx, plan.pool, cpu);
	count_path(GTH_PATH_PREEMPT);
	dsq_insert(p, DSQ_LOCAL, plan.slice, ENQ_PREEMPT);
	return cpu;
}

/* ---- queueing ---- */

/* Queues a normal task for one CPU. */
static __always_inline void enqueue_on(struct task_struct *p, struct task_ctx *tctx,
				       const struct plan *plan, s32 cpu, u64 enq_flags)
{
	dsq_insert_vtime(p, cpu_dsq(cpu), plan->slice, tctx->vtime - plan->credit, enq_flags);
}

/* Puts a task that may run on one CPU only onto that CPU. */
static __always_inline void enqueue_pinned(struct task_struct *p, struct task_ctx *tctx,
					   const struct plan *plan, s32 cpu, u64 enq_flags)
{
	if (plan->let_in)
		count(GTH_COUNT_RESERVED_PINNED);
	if (is_priority(plan->rank)) {
		if (claim_cpu(cpu, plan->rank)) {
			count_path(GTH_PATH_PREEMPT);
			dsq_insert(p, DSQ_LOCAL, plan->slice, enq_flags | ENQ_PREEMPT);
			return;
		}
		dsq_insert_vtime(p, prio_dsq(plan->pool), plan->slice, prio_key(plan->rank), enq_flags);
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
 * Queues a task for whichever CPU of its pool comes first. An idle one is kicked.
 * A CPU that goes idle at this moment may have looked into the DSQ just before and
 * not count as idle yet: the CPU the task is on will look again in any case, unless
 * it is not of this pool, in which case one that is gets the kick. Who has just made room
 * for a task that found no idle CPU does not search again for the same reason.
 *
 * Where there is no kick (malformed kfunc BTF, see compat.h), an idle CPU is
 * looked for first and gets the task into its local DSQ, which wakes it. What
 * goes idle between the two is found by gthctl's own wake-ups (src/service.rs);
 * these never come to exclusive CPUs, whose tasks go into an empty local DSQ. A CPU whose
 * local DSQ is never empty would not look at the others: what waits there comes next.
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

/* A priority task whose CPU a real-time task has taken goes in front of something weaker elsewhere. */
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

SEC("struct_ops/enqueue")
void BPF_PROG(gth_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *tctx = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct plan plan = {};
	bool pinned;

	if (!tctx) {
		dsq_insert(p, DSQ_LOCAL, knobs.slice_ns, enq_flags);
		return;
	}
	pinned = is_pinned(p);
	if (pinned) /* gth_select_cpu() was not asked */
		note_handed_on(p, enq_flags & ENQ_WAKEUP);
	make_plan(p, tctx, cpu, &plan);
	if (enq_flags & ENQ_WAKEUP)
		note_priority_wakeup(tctx, plan.rank);
	tctx->rank = plan.rank;
	tctx->queued_at = now_ns();
	tctx->kept = false;
	plan.none_idle = !(enq_flags & ENQ_WAKEUP) && !plan.place.exclusive &&
			 tctx->queued_at - cpu_of(cpu)->none_idle_at < NONE_IDLE_NS;
	if (pinned) /* whatever CPUs its rule gives it, it waits for this one */
		plan.pool = cpu_pool(live_tables(plan.place.generation), cpu);
	set_clock(tctx, plan.pool, cpu);

	if ((enq_flags & ENQ_WAKEUP) && pinned && !is_priority(plan.rank) && overtakes(tctx, &plan, cpu, false)) {
		dsq_insert(p, DSQ_LOCAL, plan.slice, enq_flags | ENQ_PREEMPT);
	} else if (is_percpu_kthread(p) && !is_priority(plan.rank)) {
		if (plan.let_in)
			count(GTH_COUNT_RESERVED_KTHREAD);
		count_path(GTH_PATH_KTHREAD);
		dsq_insert(p, DSQ_LOCAL, plan.slice, enq_flags | (is_tickless(cpu) ? ENQ_PREEMPT : 0));
	} else if (pinned) {
		enqueue_pinned(p, tctx, &plan, cpu, enq_flags);
	} else if (plan.let_in) {
		count(GTH_COUNT_RESERVED_PINNED);
		enqueue_on(p, tctx, &plan, cpu, enq_flags);
		make_room(cpu);
	} else if ((enq_flags & ENQ_REENQ) && is_priority(plan.rank) && enqueue_elsewhere(p, &plan, cpu, enq_flags)) {
		return;
	} else if (is_priority(plan.rank)) {
		enqueue_shared(p, &plan, prio_dsq(plan.pool), prio_key(plan.rank), enq_flags);
	} else {
		enqueue_shared(p, &plan, pool_dsq(plan.pool), tctx->vtime - plan.credit, enq_flags);
	}
}

/* ---- a CPU needs something to run ---- */

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

SEC("struct_ops/dispatch")
void BPF_PROG(gth_dispatch, s32 cpu, struct task_struct *prev)
{
	const struct gth_tables *t = live_tables(knobs.generation);
	u32 pool = cpu_pool(t, cpu);
	struct cpu_ctx *c = cpu_of(cpu);
	const struct gth_rule *rule = NULL;
	struct task_ctx *tctx = NULL;
	u32 rank = GTH_RANK_IDLE;
	u64 first = 0, shared_key = 0, pinned_key = 0;
	u64 match, turn = GUARD_RATIO * turn_ns();
	bool pinned_first, guarded, asked, stays, held, shared, pinned;

	if (prev && (prev->scx.flags & SCX_ENUM(scx_ent_flags, SCX_TASK_QUEUED))) {
		tctx = task_of(prev);
		if (tctx) {
			charge(prev, tctx, cpu);
			tctx->running_at = now_ns();
			asked = tctx->asked;
			tctx->asked = false;
			match = match_of(prev, tctx);
			rule = rule_in(match);
			stays = may_stay(prev, match, cpu);
			held = is_held(prev);
			if (held && (asked || !stays))
				tctx->asked = true;
			if (stays || held)
				rank = rank_now(tctx, rule);
		}
	}
	if (c->endless && rank != GTH_RANK_IDLE) {
		if (take(prio_dsq(pool), GTH_PATH_PRIORITY) || take(cpu_dsq(cpu), GTH_PATH_PINNED) ||
		    take(pool_dsq(pool), GTH_PATH_SHARED))
			return;
		if (!pool_is_exclusive(pool)) /* a new policy: it is queued anew */
			return;
	}
	guarded = c->prio_debt > (is_priority(rank) ? turn : GUARD_GRACE * turn);
	if (guarded && !head_key(pool_dsq(pool), cpu, &shared_key) && !head_key(cpu_dsq(cpu), cpu, &pinned_key)) {
		c->prio_debt = 0; /* nobody to pay it to */
		guarded = false;
	}

	if (look_for_stale(c, cpu, pool))
		return;

	/* The shortest way for a priority task, which may have been woken up just now. */
	if (!guarded) {
		if (is_priority(rank)) {
			if (!head_key(prio_dsq(pool), cpu, &first) || prio_key_rank(first) > rank ||
			    !take(prio_dsq(pool), GTH_PATH_PRIORITY))
				keep(prev, tctx, c, rule, rank, pool, cpu);
			return;
		}
		if (take(prio_dsq(pool), GTH_PATH_PRIORITY))
			return;
	}

	if (!guarded && balance(cpu, pool))
		return;

	/* The earliest of: the CPU's own DSQ, the pool's, the task that ran last. */
	shared = head_key(pool_dsq(pool), cpu, &shared_key);
	pinned = head_key(cpu_dsq(cpu), cpu, &pinned_key);
	if (!shared && !pinned)
		c->prio_debt = 0;
	pinned_first = pinned && (!shared || (s64)(pinned_key - shared_key) <= 0);
	first = pinned_first ? pinned_key : shared_key;
	if (rank != GTH_RANK_IDLE && !guarded && (pinned || shared)) {
		set_clock(tctx, pool, cpu);
		if ((s64)(tctx->vtime - (rule ? rule->credit_ns : 0) - first) < 0) {
			keep(prev, tctx, c, rule, rank, pool, cpu);
			return;
		}
	}
	if ((pinned_first && take(cpu_dsq(cpu), GTH_PATH_PINNED)) ||
	    (shared && take(pool_dsq(pool), GTH_PATH_SHARED)) ||
	    (pinned && !pinned_first && take(cpu_dsq(cpu), GTH_PATH_PINNED))) {
		if (guarded) {
			count(GTH_COUNT_GUARDED);
			c->protected_until = now_ns() + turn_ns();
		}
		return;
	}
	if (guarded && take(prio_dsq(pool), GTH_PATH_PRIORITY))
		return;
	if (rank == GTH_RANK_IDLE && steal(pool))
		return;
	if (rank != GTH_RANK_IDLE)
		keep(prev, tctx, c, rule, rank, pool, cpu);
	else
		set_rank(cpu, c, GTH_RANK_IDLE);
}

/* ---- on and off the CPU ---- */

/*
 * A task that a stronger one preempts keeps its CPU. ops.stopping gives it the rest of its slice
 * back, so the kernel puts it at the head of the local DSQ (put_prev_task_scx(),
 * kernel/sched/ext) and does not queue it anew. It goes on without a dispatch when the
 * stronger task sleeps. The tick queues it anew when the stronger task does not. The guard gives
 * its turns at a dispatch, so no task keeps its place while one is due.
 */
static __always_inline void keep_place(struct task_struct *p, struct task_ctx *tctx, struct cpu_ctx *c)
{
	u64 used = tctx->charged_until - tctx->turn_began, left = SHORT_NS;

	if (!can_empty_local_dsq() || c->rank >= tctx->rank || p->scx.slice || tctx->asked ||
	    c->prio_debt > GUARD_RATIO * turn_ns() || used > tctx->turn_slice + LATE_NS ||
	    scx_bpf_dsq_nr_queued(DSQ_LOCAL) > 1) /* others than who goes on now */
		return;
	if (used + SHORT_NS < tctx->turn_slice)
		left = tctx->turn_slice - used;
	c->has_victim = true;
	tctx->kept = true;
	task_set_slice(p, left);
}

/* Whoever waits in a DSQ goes before the victim when it is stronger, or clearly earlier by virtual time. */
__noinline int end_victims_turn(const struct task_ctx *tctx __arg_nonnull, s32 cpu)
{
	u32 pool = cpu_pool(live_tables(knobs.generation), cpu);
	u64 key, vtime = tctx->vtime - knobs.slice_min_ns;

	if (head_key(prio_dsq(pool), cpu, &key) && prio_key_rank(key) < tctx->rank)
		kick_preempt(cpu);
	else if (is_priority(tctx->rank))
		return 0;
	else if ((head_key(pool_dsq(pool), cpu, &key) && (s64)(key - vtime) < 0) ||
		 (head_key(cpu_dsq(cpu), cpu, &key) && (s64)(key - vtime) < 0))
		kick_preempt(cpu);
	return 0;
}

SEC("struct_ops/running")
void BPF_PROG(gth_running, struct task_struct *p)
{
	struct task_ctx *tctx = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = cpu_of(cpu);
	struct pool_ctx *pool;
	struct gth_stats *s;
	bool was_kept;
	u64 lag;

	if (!tctx)
		return;
	set_rank(cpu, c, tctx->rank);
	tctx->charged_until = p->se.sum_exec_runtime;
	was_kept = tctx->kept;
	tctx->kept = false;
	if (!was_kept) {
		tctx->turn_began = tctx->charged_until;
		tctx->turn_slice = p->scx.slice;
	}
	tctx->running_at = now_ns();
	c->overdue = false;
	c->turn_vtime = tctx->vtime;
	c->turn_burst = tctx->burst;
	c->turn_began = tctx->running_at;
	c->turn_weight = tctx->weight ? tctx->weight : p->scx.weight;
	if (was_kept) {
		c->has_victim = false;
		end_victims_turn(tctx, cpu);
	}
	if (tctx->woken_at) {
		lag = tctx->running_at - tctx->woken_at;
		tctx->woken_at = 0;
		s = my_stats();
		if (s)
			s->wakeup_ns[log2_bucket(lag)]++;
		if (tctx->interrupts)
			c->interrupt_lag = mean_of(c->interrupt_lag, lag);
		else if (tctx->follows)
			c->handover_lag = mean_of(c->handover_lag, tctx->running_at - c->slept_at);
	}
	tctx->interrupts = false;
	tctx->follows = false;
	c->endless = is_tickless(cpu) && !tctx->marked_until && is_lonely(cpu, tctx->pool);
	if (c->endless)
		task_set_slice(p, ENDLESS);
	if (is_priority(tctx->rank) || tctx->pool == NO_POOL)
		return;
	pool = pool_of(tctx->pool);
	if ((s64)(tctx->vtime - pool->vtime_now) > 0)
		pool->vtime_now = tctx->vtime;
}

/* What a task was charged between its last fork and its end is for that child to pay. */
static __always_inline bool pass_on_debt(struct task_ctx *tctx)
{
	struct task_struct *heir;
	struct task_ctx *to;
	bool passed = false;

	if (!tctx->heir_id)
		return false;
	heir = bpf_task_from_pid(tctx->heir);
	if (!heir)
		return false;
	to = task_of(heir);
	if (to && to->id == tctx->heir_id) {
		if (tctx->since_fork > 0)
			to->vtime += tctx->since_fork;
		tctx->since_fork = 0;
		passed = true;
	}
	bpf_task_release(heir);
	return passed;
}

/*
 * Nobody gets rid of what it has run by ending: its child goes on with it, and without one
 * the turn moves the pool's clock on for all that wait, twice: what they run themselves
 * meanwhile does not.
 */
static __always_inline void settle(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	u64 total = p->se.sum_exec_runtime;

	if (!(p->flags & PF_EXITING) || is_priority(tctx->rank) || tctx->pool == NO_POOL)
		return;
	if (!pass_on_debt(tctx))
		advance_clock(tctx->pool, cpu, 2 * (total - tctx->turn_began));
	tctx->turn_began = total;
}

SEC("struct_ops/stopping")
void BPF_PROG(gth_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *tctx = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);

	if (!tctx)
		return;
	charge(p, tctx, cpu);
	if (runnable) {
		keep_place(p, tctx, cpu_of(cpu));
		return;
	}
	settle(p, tctx, cpu);
	tctx->burst = 0;
	if (tctx->sync_at) {
		u64 now = now_ns();

		cpu_of(cpu)->slept_at = now;
		tctx->sync_lag = mean_of(tctx->sync_lag, now - tctx->sync_at);
		tctx->sync_at = 0;
	}
}

/*
 * A priority task that waits in a DSQ has found no CPU to take over, or its
 * waker has not kept its promise to sleep. At the latest a tick ends that, as
 * it ends the turn of a task that was asked to leave and could not, and one that
 * had just begun when a task was woken up that has had less.
 *
 * A task may also have been queued just as a CPU went idle, which had looked into the DSQ
 * before: any tick of another CPU finds it.
 */
SEC("struct_ops/tick")
void BPF_PROG(gth_tick, struct task_struct *p)
{
	struct task_ctx *tctx = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u32 pool = cpu_pool(live_tables(knobs.generation), cpu);
	struct cpu_ctx *c = cpu_of(cpu);
	s32 waiting = scx_bpf_dsq_nr_queued(pool_dsq(pool));
	u64 key;

	pool_of(pool)->waiting = waiting > 0 ? waiting : 0;
	c->waiting = waiting_for(pool, cpu);
	if (is_priority(c->rank)) {
		if (!c->held)
			set_held(cpu, true);
		if (c->has_victim && can_empty_local_dsq()) {
			c->has_victim = false;
			scx_bpf_reenqueue_local___v2___new();
		}
	}
	if ((tctx && tctx->asked) || c->overdue) {
		c->overdue = false;
		task_set_slice(p, 0);
		return;
	}
	if (head_key(prio_dsq(pool), cpu, &key) && prio_key_rank(key) < c->rank && now_ns() >= c->protected_until)
		task_set_slice(p, 0);
	if (can_kick() && !pool_is_exclusive(pool) && !kick_for_head(prio_dsq(pool), knobs.generation))
		kick_for_head(pool_dsq(pool), knobs.generation);
}

/*
 * A real-time task has taken the CPU: what it keeps from running, and what waits right
 * behind it, is enqueued anew. The stopper is gone again at once.
 */
SEC("struct_ops/cpu_release")
void BPF_PROG(gth_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	struct cpu_ctx *c = cpu_of(cpu);

	if (!bpf_ksym_exists(scx_bpf_reenqueue_local) ||
	    args->reason == SCX_ENUM(scx_cpu_preempt_reason, SCX_CPU_PREEMPT_STOP))
		return;
	c->releasing = 1;
	scx_bpf_reenqueue_local();
	c->releasing = 0;
}

/* ---- life cycle ---- */

/*
 * A new task goes on with its parent's burst, as forking is no sleep, and with its clock,
 * if that is not behind: a chain of tasks that fork and end gets one task's share.
 */
static __always_inline void inherit(struct task_struct *p, struct task_ctx *tctx)
{
	struct task_ctx *parent = task_of(bpf_get_current_task_btf());
	u64 ran, now;

	if (!parent)
		return;
	ran = *(volatile u64 *)&parent->running_at;
	ran = now_ns() - ran;
	/* A parent of another class has not been charged for long. */
	if (ran > knobs.slice_ns)
		ran = knobs.slice_ns;
	tctx->burst = parent->burst + ran;
	if (parent->pool == NO_POOL || is_priority(parent->rank))
		return;
	ran = ran * 100 / (parent->weight ? parent->weight : 100);
	now = pool_of(parent->pool)->vtime_now;
	tctx->pool = parent->pool;
	tctx->vtime = parent->vtime + ran;
	if ((s64)(tctx->vtime - now) < 0)
		tctx->vtime = now;
	parent->heir = p->pid;
	parent->heir_id = tctx->id;
	parent->since_fork = -(s64)ran;
}

SEC("struct_ops.s/init_task")
s32 BPF_PROG(gth_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *tctx = bpf_task_storage_get(&task_ctxs, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!tctx)
		return -12; /* ENOMEM */
	tctx->pool = NO_POOL;
	tctx->rank = GTH_RANK_NORMAL;
	tctx->id = __sync_fetch_and_add(&newest_id, 1) + 1;
	if (args->fork)
		inherit(p, tctx);
	BPF_CORE_READ_STR_INTO(&tctx->comm, p, comm);
	return 0;
}

/* A task that is gone leaves its place among the marked ones to others. */
SEC("struct_ops/exit_task")
void BPF_PROG(gth_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	const struct gth_tables *t = live_tables(knobs.generation);
	struct gth_marks *m;
	u32 i;

	if (!t->nr_gates)
		return;
	m = bpf_task_storage_get(&marks, p, NULL, 0);
	if (!m)
		return;
	bpf_for(i, 0, t->nr_gates) {
		const struct gth_gate *gate = &t->gates[i & (GTH_MAX_GATES - 1)];
		struct gth_mark *mark = mark_of(m, gate);
		u64 until = *(volatile u64 *)&mark->until;

		if (mark->gate == gate->id && until)
			end_mark(gate, mark, until);
	}
}

SEC("struct_ops.s/init")
s32 BPF_PROG(gth_init)
{
	u32 i;
	s32 err;

	err = create_masks();
	if (err)
		return err;
	bpf_for(i, 0, machine.nr_cpus) {
		cpu_of(i)->rank = GTH_RANK_NORMAL;
		init_ask(i);
		err = scx_bpf_create_dsq(cpu_dsq(i), -1);
		if (err)
			return err;
	}
	bpf_for(i, 0, machine.nr_llcs + 2 * GTH_MAX_RESERVED) {
		err = scx_bpf_create_dsq(pool_dsq(i), -1);
		if (err)
			return err;
		if (i && !pool_is_exclusive(i))
			continue; /* the LLC pools share the first one's */
		err = scx_bpf_create_dsq(prio_dsq(i), -1);
		if (err)
			return err;
	}
	return 0;
}

SEC("struct_ops.s/exit")
void BPF_PROG(gth_exit, struct scx_exit_info *ei)
{
	u32 len = ei->bt_len;

	bpf_probe_read_kernel_str(exited.reason, sizeof(exited.reason), ei->reason);
	bpf_probe_read_kernel_str(exited.msg, sizeof(exited.msg), ei->msg);
	if (len > GTH_BT_LEN)
		len = GTH_BT_LEN;
	bpf_probe_read_kernel(exited.bt, len * sizeof(exited.bt[0]), ei->bt);
	exited.bt_len = len;
	exited.exit_code = ei->exit_code;
	exited.kind = ei->kind;
	tell(&events);
}

/* To be run once, before mark.bpf.c is attached to anything or a policy has `woken`. */
SEC("syscall")
int look_up_kernel(void *ctx)
{
	look_up_bh_enable();
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops gthctl_ops = {
	.select_cpu = (void *)gth_select_cpu,
	.enqueue = (void *)gth_enqueue,
	.dispatch = (void *)gth_dispatch,
	.running = (void *)gth_running,
	.stopping = (void *)gth_stopping,
	.tick = (void *)gth_tick,
	.cpu_release = (void *)gth_cpu_release,
	.init_task = (void *)gth_init_task,
	.exit_task = (void *)gth_exit_task,
	.init = (void *)gth_init,
	.exit = (void *)gth_exit,
	.flags = GTH_OPS_ENQ_LAST | GTH_OPS_ENQ_EXITING,
	.timeout_ms = 30000, /* SCX_WATCHDOG_MAX_TIMEOUT, the kernel's limit */
	.name = "gthctl",
};
