/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a CPU runs next.
 */
#ifndef GTH_DISPATCH_H
#define GTH_DISPATCH_H

#include "sched/plan.bpf.h"
#include "sched/tickless.bpf.h"

/* Does the policy let a task with this match word go on here? */
__noinline int may_stay(struct task_struct *p __arg_trusted, u64 match, s32 cpu)
{
	const struct gth_rule *rule = rule_in(match);
	u32 generation = rule ? match_generation(match) : tunables.generation;
	u32 pool = cpu_pool(live_tables(generation), cpu);

	u32 index = GTH_MASK_RULE + match_rule(match);

	if (rule && is_entitled(p, rule, generation, index)) {
		const struct cpumask *mask = mask_of(generation, index);

		if (mask && bpf_cpumask_test_cpu(cpu, mask))
			return true;
		if (any_cpu_in(p, generation, index) >= 0)
			return false;
	}
	return !pool_is_exclusive(pool) || any_cpu_in(p, generation, GTH_MASK_NORMAL) < 0;
}

/* The task that ran last on a CPU that looks for the next one. */
struct last {
	struct task_struct *p;
	struct task_ctx *tctx;
	u64 match;
	u32 rank;		/* GTH_RANK_IDLE: none, or it may not go on */
};

/*
 * The rank with which @p would go on under this match word, or GTH_RANK_IDLE: then
 * gth_enqueue() holds it back or matches it. A task that was asked to choose its CPU anew
 * does so now.
 */
__noinline u32 rank_of_last(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull, s32 cpu,
			    u64 match)
{
	bool need_resched, stays, held;

	charge(p, tctx, cpu, GTH_TURN_GOES_ON);
	tctx->running_at = now_ns();
	if (!is_current(tctx, match) || held_by(p, tctx) != NO_GROUP)
		return GTH_RANK_IDLE;
	need_resched = tctx->need_resched;
	tctx->need_resched = false;
	stays = may_stay(p, match, cpu);
	held = is_held(p);
	if (held && (need_resched || !stays))
		tctx->need_resched = true;
	return stays || held ? rank_now(p, tctx, rule_in(match), cpu) : GTH_RANK_IDLE;
}

/* Looks at the task that ran last. With @match, first matches it if its match is outdated. */
static __always_inline void look_at_last(struct task_struct *prev, s32 cpu, bool match, struct last *last)
{
	if (!prev || !(prev->scx.flags & SCX_ENUM(scx_ent_flags, SCX_TASK_QUEUED)))
		return;
	last->p = prev;
	last->tctx = task_of(prev);
	if (!last->tctx)
		return;
	last->match = *(volatile u64 *)&last->tctx->match;
	if (match && !is_current(last->tctx, last->match))
		last->match = match_anew(prev, last->tctx);
	last->rank = rank_of_last(prev, last->tctx, cpu, last->match);
}

__noinline int go_on(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull, u64 match, u32 rank,
		     s32 cpu)
{
	const struct gth_tables *t = live_tables(tunables.generation);
	struct cpu_ctx *c = cpu_of(cpu);
	const struct gth_rule *rule = rule_in(match);
	u64 slice = c->endless ? ENDLESS : slice_of(t, rule, rank, cpu_pool(t, cpu), cpu);

	tctx->rank = rank;
	tctx->row = row_of(rule);
	set_rank(cpu, c, rank);
	count_path(GTH_PATH_KEPT);
	tctx->turn_slice = tctx->charged_until - tctx->turn_began + slice;
	task_set_slice(p, slice);
	return 0;
}

/* The task that ran last goes on. */
static __always_inline void keep(const struct last *last, s32 cpu)
{
	if (last->p && last->tctx) /* the verifier asks */
		go_on(last->p, last->tctx, last->match, last->rank, cpu);
}

static __always_inline bool take(u64 dsq, enum gth_path path)
{
	if (!dsq_move_to_local(dsq))
		return false;
	count_path(path);
	return true;
}

/* Like take(), for rarely taken paths: a call is shorter, so ops.dispatch() loads sooner. */
__noinline int take_rarely(u64 dsq, u32 path)
{
	return path < GTH_NR_PATHS && take(dsq, path);
}

/* Takes a priority task that waits in the pool. */
static __always_inline bool take_waiting_priority(u32 pool)
{
	u64 *came_at = &pool_of(pool)->priority_came_at;

	if (!may_have_tasks(came_at))
		return false;
	if (take(prio_dsq(pool), GTH_PATH_PRIORITY))
		return true;
	note_none(came_at, prio_dsq(pool));
	return false;
}

/* The load of the first task in a pool's DSQ that may run on @cpu; 0: there is none. */
__noinline u32 head_load(u64 dsq, s32 cpu)
{
	struct task_struct *p;
	u32 looks = unknown_zero;

	bpf_for_each(scx_dsq, p, dsq, 0) {
		struct task_ctx *tctx = task_of(p);

		if (tctx && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return tctx->counted.load ? tctx->counted.load : 1;
		if (++looks >= LOOK_AT)
			break;
	}
	return 0;
}

/*
 * Balances the LLCs: takes a priority task that waits in another one, or a normal
 * task if that LLC would still have more load per CPU than this one afterwards.
 * Looks at one other LLC per call, so the cost does not grow with their number.
 */
__noinline int balance(s32 cpu, u32 pool)
{
	const struct gth_tables *t = live_tables(tunables.generation);
	struct cpu_ctx *c = cpu_of(cpu);
	u32 other = c->next_llc;
	s64 here, there, cpus_here, cpus_there, load;

	if (machine.nr_llcs < 2 || pool_is_exclusive(pool))
		return false;
	if (++other >= machine.nr_llcs)
		other = 0;
	c->next_llc = other;
	if (other == pool)
		return false;
	if (scx_bpf_dsq_nr_queued(prio_dsq(other)) > 0 && take_rarely(prio_dsq(other), GTH_PATH_STOLEN))
		return true;
	here = pool_of(pool)->load;
	there = pool_of(other)->load;
	cpus_here = t->pool_cpus[pool & (GTH_MAX_POOLS - 1)];
	cpus_there = t->pool_cpus[other & (GTH_MAX_POOLS - 1)];
	if (there * cpus_here <= here * cpus_there || scx_bpf_dsq_nr_queued(pool_dsq(other)) <= 0)
		return false;
	load = head_load(pool_dsq(other), cpu);
	if (!load)
		return false;
	if ((there - load) * cpus_here <= (here + load) * cpus_there) {
		/*
		 * No single task would even it out: from time to time one goes to the emptier LLC
		 * all the same.
		 */
		if (now_ns() - c->uneven_at < UNEVEN_NS || (there * cpus_here - here * cpus_there) * 16 < there * cpus_here)
			return false;
		c->uneven_at = now_ns();
	}
	return take_rarely(pool_dsq(other), GTH_PATH_STOLEN);
}

/* Takes a task from any other LLC: this CPU would otherwise be idle. */
__noinline int steal(u32 pool)
{
	u32 i;

	if (machine.nr_llcs < 2 || pool_is_exclusive(pool))
		return false;
	bpf_for(i, 1, machine.nr_llcs) {
		u32 other = pool + i;

		if (other >= machine.nr_llcs)
			other -= machine.nr_llcs;
		if ((scx_bpf_dsq_nr_queued(prio_dsq(other)) > 0 && take_rarely(prio_dsq(other), GTH_PATH_STOLEN)) ||
		    (scx_bpf_dsq_nr_queued(pool_dsq(other)) > 0 && take_rarely(pool_dsq(other), GTH_PATH_STOLEN)))
			return true;
	}
	return false;
}

/*
 * Takes a task that has waited too long. The tasks at a queue's end have the longest lead.
 * That lead may have been short when they were queued, but many more tasks may have come
 * since.
 */
__noinline int take_stale(u64 dsq, s32 cpu)
{
	u64 now = now_ns();
	struct task_struct *p;
	u32 looks = unknown_zero;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return false;
	bpf_for_each(scx_dsq, p, dsq, SCX_ENUM(scx_dsq_iter_flags, SCX_DSQ_ITER_REV)) {
		struct task_ctx *tctx = task_of(p);

		if (tctx && (s64)(now - tctx->queued_at) > STALE_NS && bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
		    dsq_move_to(THIS_ITERATION, p, DSQ_LOCAL)) {
			count_path(GTH_PATH_SHARED);
			return true;
		}
		if (++looks >= LOOK_AT)
			break;
	}
	return false;
}

/*
 * Takes such a task at most every other time, so that queue order holds for the rest. Also looks
 * into one other LLC: real-time tasks may occupy all CPUs there that a waiting task may use, and
 * balance() goes by the load. Called when LOOK_NS have passed since the last look.
 */
__noinline int look_for_stale(s32 cpu, u32 pool)
{
	bool far = machine.nr_llcs > 1 && !pool_is_exclusive(pool);
	struct cpu_ctx *c = cpu_of(cpu);

	c->looked_at = now_ns();
	c->took_stale = !c->took_stale && (take_stale(pool_dsq(pool), cpu) || take_stale(cpu_dsq(cpu), cpu) ||
					  (far && take_stale(pool_dsq(c->next_llc), cpu)));
	return c->took_stale;
}

/*
 * Takes a task that waited while another one had the CPU without a tick. Also true if a new policy
 * wants the other one queued anew.
 */
static __always_inline bool take_beside_endless(u32 pool, s32 cpu)
{
	return take_rarely(prio_dsq(pool), GTH_PATH_PRIORITY) || take_rarely(cpu_dsq(cpu), GTH_PATH_PINNED) ||
	       take_rarely(pool_dsq(pool), GTH_PATH_SHARED) || !pool_is_exclusive(pool);
}

static __always_inline void go_idle(s32 cpu, struct cpu_ctx *c)
{
	set_rank(cpu, c, GTH_RANK_IDLE);
	forget_confined(c);
}

/*
 * Whether the last task needs no tick any more, because the tasks that waited when it began are
 * gone. The kernel looks at the slice only when a task begins to run (set_next_task_scx()). So the
 * caller dispatches nothing, and the kernel queues this task anew (ENQ_LAST).
 */
static __always_inline bool becomes_endless(const struct last *last, s32 cpu)
{
	return last->p && last->tctx && may_be_endless(last->p, last->tctx, cpu);
}

/* Does the guard owe a normal task that waits here a turn? */
__noinline int owes_a_turn(u32 rank, u32 pool, s32 cpu)
{
	u64 turn = GUARD_RATIO * turn_ns();
	struct cpu_ctx *c = cpu_of(cpu);

	if (c->prio_debt <= (is_priority(rank) ? turn : GUARD_GRACE * turn))
		return false;
	if (head_key(pool_dsq(pool), cpu) != NO_KEY || head_key(cpu_dsq(cpu), cpu) != NO_KEY)
		return true;
	c->prio_debt = 0; /* no task to pay it to */
	return false;
}

/* The fast path for a priority task, perhaps just woken up. True: it has the CPU. */
static __always_inline bool take_priority(const struct last *last, u32 pool, s32 cpu)
{
	if (!is_priority(last->rank))
		return take_waiting_priority(pool);
	if (prio_key_rank(prio_head_key(pool, cpu)) > last->rank || !take(prio_dsq(pool), GTH_PATH_PRIORITY))
		keep(last, cpu);
	return true;
}

/* The earlier of two keys: of the first task in the CPU's own DSQ, and of the first one in the pool's. */
static __always_inline u64 first_key(u64 own_key, u64 shared_key)
{
	return own_key == NO_KEY || is_earlier(shared_key, own_key) ? shared_key : own_key;
}

/*
 * Takes the task with that key, or the first one of the other DSQ if another CPU has taken it
 * meanwhile. At least one of the DSQs has a task.
 */
__noinline int take_first(u64 own_key, u64 shared_key, u32 pool, s32 cpu)
{
	bool own = own_key != NO_KEY, shared = shared_key != NO_KEY;
	bool own_first = own && first_key(own_key, shared_key) == own_key;

	if (take(own_first ? cpu_dsq(cpu) : pool_dsq(pool), own_first ? GTH_PATH_PINNED : GTH_PATH_SHARED))
		return true;
	if (own_first)
		return shared && take_rarely(pool_dsq(pool), GTH_PATH_SHARED);
	return own && take_rarely(cpu_dsq(cpu), GTH_PATH_PINNED);
}

/* The key with which a normal task of this match word would wait in the pool. */
__noinline u64 key_of(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull, u64 match, u32 pool,
		      s32 cpu)
{
	const struct gth_rule *rule = rule_in(match);

	set_clock(p, tctx, GTH_RANK_NORMAL, pool, cpu);
	return tctx->vtime - (rule ? rule->credit_ns : 0);
}

/* Whether the task that ran last, a normal one, is earlier than one with this key. */
static __always_inline bool last_is_earlier(const struct last *last, u64 key, u32 pool, s32 cpu)
{
	return last->p && last->tctx && last->rank != GTH_RANK_IDLE &&
	       is_earlier(key_of(last->p, last->tctx, last->match, pool, cpu), key);
}

/*
 * Picks the earliest of the CPU's own DSQ, the pool's, and the task that ran last. True: one of
 * them has the CPU.
 */
static __always_inline bool take_earliest(const struct last *last, struct cpu_ctx *c, u32 pool, s32 cpu,
					  bool guarded)
{
	u64 own_key = own_head_key(cpu), shared_key;

	if (own_key == NO_KEY && last->rank == GTH_RANK_IDLE) { /* nothing to compare the pool's first task with */
		if (!take(pool_dsq(pool), GTH_PATH_SHARED)) {
			c->prio_debt = 0;
			return false;
		}
	} else {
		shared_key = head_key(pool_dsq(pool), cpu);
		if (own_key == NO_KEY && shared_key == NO_KEY) {
			c->prio_debt = 0;
			return false;
		}
		if (!guarded && last_is_earlier(last, first_key(own_key, shared_key), pool, cpu)) {
			keep(last, cpu);
			return true;
		}
		if (!take_first(own_key, shared_key, pool, cpu))
			return false;
	}
	if (guarded) {
		count_rarely(GTH_COUNT_GUARDED);
		c->protected_until = now_ns() + turn_ns();
	}
	return true;
}

#endif
