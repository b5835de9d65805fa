/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * When a policy comes into force, tasks still wait where the old one queued them. There may
 * be no CPU for them any more: their exclusive CPUs may belong to no rule now, or the CPUs of
 * their affinity to other rules. go_live() moves each such task at once. A program that still
 * knew the old policy may queue more tasks just after that. go_live() runs again and finds
 * these once all such programs have ended and before the old policy's tables are reused
 * (src/sched/scheduler.rs, set_policy()).
 */
#ifndef GTH_DRAIN_H
#define GTH_DRAIN_H

#include "sched/waiting.bpf.h"
#include "sched/idle.bpf.h"
#include "sched/tickless.bpf.h"

/* Where a task should wait: a pool's DSQ, or a CPU. */
struct home {
	u32 pool;
	s32 cpu;	/* NO_CPU: the pool */
};

/*
 * The task stays in the pool of its CPU, unless that is exclusive now and was not when
 * the task was queued. Then it goes to any normal CPU that its affinity allows, or else
 * right onto its own CPU.
 */
static __always_inline struct home home_of(struct task_struct *p, u32 generation, bool was_exclusive)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct home home = { .pool = cpu_pool(live_tables(generation), cpu), .cpu = NO_CPU };
	s32 other = NO_CPU;

	if (was_exclusive || !pool_is_exclusive(home.pool))
		return home;
	if (!is_migration_disabled(p))
		other = any_cpu_in(p, generation, GTH_MASK_NORMAL);
	/*
	 * Computes the address of the tables again: once it is on the stack, the verifier forgets
	 * its bounds.
	 */
	barrier_var(generation);
	if (other >= 0)
		home.pool = cpu_pool(live_tables(generation), other);
	else
		home.cpu = cpu;
	return home;
}

/* Puts a task on another pool's clock, as set_clock() does; returns its new key. */
static __always_inline u64 change_clock(struct task_struct *p, u32 pool)
{
	struct task_ctx *tctx = task_of(p);
	u64 distance = 0;

	if (tctx && tctx->pool != NO_POOL && tctx->pool != pool) {
		distance = pool_of(pool)->vtime_now - pool_of(tctx->pool)->vtime_now;
		tctx->vtime += distance;
		tctx->pool = pool;
	}
	return p->scx.dsq_vtime + distance;
}

/* Where go_live() moves a task. In memory, where the verifier does not tell the ways there apart. */
struct {
	u64 dsq;
	u64 key;
	s32 cpu;	/* its local DSQ; NO_CPU: `dsq` */
} drained;

/* Fills in `drained` for a task that waits in one of a pool's DSQs. */
static __noinline void find_place(struct task_struct *p, u32 pool, bool is_prio)
{
	struct home home = home_of(p, tunables.generation, pool_is_exclusive(pool));

	drained.cpu = home.cpu;
	drained.dsq = is_prio ? prio_dsq(home.pool) : pool_dsq(home.pool);
	drained.key = p->scx.dsq_vtime;
	if (home.cpu >= 0 || home.pool == pool)
		return;
	if (is_prio)
		note_arrival(&pool_of(home.pool)->priority_came_at);
	else
		drained.key = change_clock(p, home.pool);
}

/*
 * Moves the tasks of one of a pool's DSQs to where the live policy wants them. Notes if one
 * went into another DSQ, which an idle CPU may have to look into.
 */
static __noinline void drain_pool(u32 pool, bool is_prio)
{
	u64 dsq = is_prio ? prio_dsq(pool) : pool_dsq(pool);
	struct task_struct *p;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, dsq, 0) {
		find_place(p, pool, is_prio);
		if (drained.cpu >= 0) {
			dsq_move_to(THIS_ITERATION, p, DSQ_LOCAL_ON(drained.cpu));
		} else if (drained.dsq != dsq) {
			dsq_move_to_vtime(THIS_ITERATION, p, drained.dsq, drained.key);
			request.moved = true;
		}
	}
	bpf_rcu_read_unlock();
}

/* A task that waits for one CPU stays there, on the clock of the CPU's current pool. */
static __noinline void drain_cpu(s32 cpu)
{
	u32 pool = cpu_pool(live_tables(tunables.generation), cpu);
	u64 dsq = cpu_dsq(cpu);
	struct task_struct *p;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, dsq, 0) {
		u64 key = change_clock(p, pool);

		if (key != p->scx.dsq_vtime)
			dsq_move_to_vtime(THIS_ITERATION, p, dsq, key);
	}
	bpf_rcu_read_unlock();
}

/* Whether the pool is an exclusive one of the live policy, whose CPUs look into it. */
static __always_inline bool is_live_exclusive(u32 pool)
{
	u32 first = machine.nr_llcs + (tunables.generation & 1) * GTH_MAX_RESERVED;

	return pool >= first && pool < first + GTH_MAX_RESERVED;
}

static __always_inline void drain_all(void)
{
	u32 i;

	request.moved = false;
	bpf_for(i, 0, 2 * (machine.nr_llcs + 2 * GTH_MAX_RESERVED)) {
		if (!is_live_exclusive(i / 2))
			drain_pool(i / 2, i % 2);
	}
	bpf_for(i, 0, machine.nr_cpus) {
		drain_cpu(i);
		if (request.moved)
			kick_if_idle(i);
	}
}

/*
 * Makes CPUs that become exclusive, CPUs that were exclusive, and CPUs without a tick choose anew
 * what they run. The others do so at their next tick.
 */
static __always_inline void kick_changed(u32 old, u32 generation)
{
	u32 i;

	bpf_for(i, 0, machine.nr_cpus) {
		if (is_tickless(i) || cpu_pool(live_tables(old), i) != cpu_pool(live_tables(generation), i))
			kick_preempt(i);
	}
}

/*
 * An update of a map of maps returns after an RCU grace period, when every BPF program
 * that ran before has ended (maybe_wait_bpf_programs(), kernel/bpf/syscall.c). Unlike
 * membarrier(2) it works with nohz_full.
 */
struct grace_period {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} grace_period_inner SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct grace_period);
} grace_period SEC(".maps") = { .values = { &grace_period_inner } };

#endif
