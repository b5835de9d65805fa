/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tasks of cgroups that have used up their limit, and the periods after which they run again.
 *
 * They wait in a DSQ of their cgroup. One timer refills all cgroups at the ends of their
 * periods. A CPU that looks for a task then moves those that were held back to where they would
 * wait without a limit.
 *
 * The kernel's watchdog counts a task that is held back as runnable. So each runs for a moment
 * when it has waited machine.most_held_ns: gth_running() ends its turn at once.
 */
#ifndef GTH_REFILL_H
#define GTH_REFILL_H

#include "sched/drain.bpf.h"
#include "sched/limit.bpf.h"

enum {
	MAX_RELEASED = 32,		/* how many tasks one CPU moves at a time */
	MAX_LEFT = 256,			/* how many tasks that must go on waiting it looks at meanwhile */
	MIN_REFILL_NS = 1000000,	/* shortest time between two runs of the timer */
	MAX_REFILL_NS = 1000000000,
	EARLY_NS = 100000,		/* a period may end this much early */
};

struct refill_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct refill_timer);
} refill_timers SEC(".maps");

static __always_inline u64 held_dsq(u32 index)
{
	return DSQ_HELD + (u64)index;
}

/* ---- held back ---- */

/*
 * Held-back tasks wait in the order in which they came, so that each gets its turn. A task keeps
 * its slice for that turn. A task whose affinity or nice value changes is queued anew, but the
 * kernel's watchdog does not start its count again (ops_dequeue(), kernel/sched/ext/ext.c).
 */
static __always_inline void hold_back(struct task_struct *p, struct task_ctx *tctx, u32 index, u64 slice)
{
	count_out(&tctx->counted);
	if (!tctx->held_since)
		tctx->held_since = tctx->queued_at;
	dsq_insert_vtime(p, held_dsq(index), slice, tctx->held_since, 0);
}

/*
 * Whether a task in the DSQ of its throttled group runs anyway: it has waited long, or must run
 * (must_run()).
 */
__noinline int runs_anyway(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tctx = task_of(p);

	return !tctx || must_run(p) || now_ns() - tctx->held_since >= machine.most_held_ns;
}

/* Where a task that is no longer held back waits. */
struct released {
	u64 dsq;
	u64 key;
	u64 credit;	/* of the task's rule */
	s32 kick;	/* the CPU to wake up for it, if idle */
	s32 room;	/* the CPU to make room on, if it is tickless; or NO_CPU */
} __attribute__((aligned(64)));

struct released released[GTH_MAX_CPUS]; /* one for each CPU that decides, like plans */

/*
 * A task that may use its rule's exclusive CPUs waits for those, any other one where home_of()
 * says. Without a kick every task does the latter, because nothing would wake up the exclusive
 * CPUs.
 */
static __always_inline struct home home_after_release(struct task_struct *p, struct task_ctx *tctx,
						      struct released *to)
{
	u64 match = *(volatile u64 *)&tctx->match;
	const struct gth_rule *rule = is_current(tctx, match) ? rule_in(match) : NULL;
	u32 generation = rule ? match_generation(match) : tunables.generation;
	u32 index = GTH_MASK_RULE + match_rule(match);
	s32 cpu = NO_CPU;

	to->credit = rule ? rule->credit_ns : 0;
	if (rule && can_kick() && is_entitled(p, rule, generation, index))
		cpu = any_cpu_in(p, generation, index);
	if (cpu < 0)
		return home_of(p, tunables.generation, false);
	to->room = cpu;
	to->kick = pick_idle_in(p, generation, index);
	return (struct home){ .pool = cpu_pool(live_tables(generation), cpu), .cpu = NO_CPU };
}

/* Chooses the DSQ and the key as wait_for_cpu() does. */
__noinline int waiting_place(struct task_struct *p __arg_trusted, struct released *to __arg_nonnull)
{
	struct task_ctx *tctx = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct home home;

	*to = (struct released){ .dsq = cpu_dsq(cpu), .kick = cpu, .room = NO_CPU };
	if (!tctx) {
		note_arrival(&cpu_of(cpu)->own_came_at);
		return 0;
	}
	home = home_after_release(p, tctx, to);
	if (home.cpu >= 0) /* which is exclusive to others */
		to->room = cpu;
	/* It begins to wait for a CPU now. */
	tctx->queued_at = now_ns();
	/* The task is behind because it was held back, not because of others on its CPU. */
	set_clock(p, tctx, tctx->rank, home.pool, cpu);
	to->key = tctx->vtime - to->credit;
	if (is_priority(tctx->rank) && (home.cpu < 0 || is_pinned(p))) {
		note_arrival(&pool_of(home.pool)->priority_came_at);
		to->key = prio_key(tctx->rank);
		to->dsq = prio_dsq(home.pool);
	} else if (home.cpu < 0 && !is_pinned(p)) {
		to->dsq = pool_dsq(home.pool);
	} else {
		note_arrival(&cpu_of(cpu)->own_came_at);
	}
	return 0;
}

/* Moves at most MAX_RELEASED tasks back. Returns whether there may be more of them. */
__noinline int release_from(u32 index, bool throttled)
{
	struct released *to = &released[bpf_get_smp_processor_id() & (GTH_MAX_CPUS - 1)];
	struct task_struct *p;
	u32 moved = unknown_zero, left = unknown_zero;

	bpf_for_each(scx_dsq, p, held_dsq(index), 0) {
		if (moved >= MAX_RELEASED || left >= MAX_LEFT)
			break;
		if (throttled && !runs_anyway(p)) {
			left++;
			continue;
		}
		moved++;
		waiting_place(p, to);
		dsq_move_to_vtime(THIS_ITERATION, p, to->dsq, to->key);
		if (to->kick >= 0)
			kick_if_idle(to->kick);
		if (to->room >= 0)
			make_room(to->room);
	}
	return !left && moved >= MAX_RELEASED;
}

/* Makes the next CPU that looks for a task move those of the group. */
static __always_inline void release(struct limit *limit)
{
	limit->released = true;
	__sync_lock_test_and_set(&limits.released, 1);
}

/* Moves tasks that may run again to where they wait for a CPU. */
__noinline int release_some(void)
{
	u32 top = limits.top, i;

	/* A barrier: a group released after this sets it again. */
	__sync_lock_test_and_set(&limits.released, 0);
	bpf_for(i, 0, top) {
		u32 index = limits.of[i & (GTH_MAX_GROUPS - 1)];
		struct group *group = group_at(index);

		if (index == ROOT_GROUP || !group || !group->limit.released)
			continue;
		group->limit.released = false;
		if (release_from(index, group->limit.throttled)) {
			release(&group->limit);
			break;
		}
	}
	return 0;
}

/* ---- refilled ---- */

/* Begins a group's next period if it is time; returns when that ends. */
__noinline u64 refill_group(u32 index, u64 now)
{
	struct group *group = group_at(index);
	struct limit *limit;
	u64 periods, most;

	if (!group)
		return now + MAX_REFILL_NS;
	limit = &group->limit;
	if (limit->quota == NO_QUOTA || !limit->period)
		return now + MAX_REFILL_NS;
	if ((s64)(limit->period_end - now) > EARLY_NS)
		return limit->period_end;
	periods = now > limit->period_end ? (now - limit->period_end) / limit->period + 1 : 1;
	most = limit->quota + limit->burst;
	if (limit->left < limit->at_start) {
		limit->nr_periods++;
		limit->nr_throttled += limit->throttled;
	}
	if (__sync_fetch_and_add(&limit->left, limit->quota * periods) + limit->quota * periods > most &&
	    (s64)limit->left > (s64)most)
		limit->left = most;
	limit->at_start = limit->left;
	limit->period_end += limit->period * periods;
	if (limit->left > 0)
		unthrottle(limit, now);
	else
		count_throttled(limit, now);
	return limit->period_end;
}

/*
 * Wakes up an idle CPU: a CPU that looks for a task releases those that may run. It may be an
 * exclusive one, for which they wait while all others are busy.
 */
static __always_inline void wake_one(void)
{
	const struct cpumask *mask;
	s32 cpu;

	bpf_rcu_read_lock();
	mask = mask_of(tunables.generation, GTH_MASK_NORMAL);
	cpu = mask ? pick_idle_cpu(mask, 0) : NO_CPU;
	if (cpu < 0) {
		mask = (const struct cpumask *)preemptible_cpus();
		cpu = mask ? pick_idle_cpu(mask, 0) : NO_CPU;
	}
	bpf_rcu_read_unlock();
	if (cpu >= 0)
		kick_if_idle(cpu);
}

/* Sets the timer to run after @ns. */
static __always_inline void refill_in(struct refill_timer *timer, u64 now, u64 ns)
{
	limits.due = now + ns;
	bpf_timer_start(&timer->timer, ns, 0);
}

static int refill(void *map, u32 *key, struct refill_timer *timer)
{
	u64 now = now_ns(), next = now + MAX_REFILL_NS;
	u32 i;

	bpf_for(i, 0, limits.top) {
		u32 index = limits.of[i & (GTH_MAX_GROUPS - 1)];
		struct group *group = group_at(index);
		u64 end;

		if (index == ROOT_GROUP || !group)
			continue;
		end = refill_group(index, now);
		if (end < next)
			next = end;
		if (scx_bpf_dsq_nr_queued(held_dsq(index)) > 0)
			release(&group->limit);
	}
	if (limits.released)
		wake_one();
	if (limits.top)
		refill_in(timer, now, next > now + MIN_REFILL_NS ? next - now : MIN_REFILL_NS);
	return 0;
}

static __always_inline struct refill_timer *refill_timer(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&refill_timers, &zero);
}

/* Called once, by ops.init, before the kernel reports any cgroup. The first limit starts the timer. */
static __always_inline void init_refill(void)
{
	struct refill_timer *timer = refill_timer();

	if (!timer)
		return;
	bpf_timer_init(&timer->timer, &refill_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&timer->timer, refill);
}

/* ---- set ---- */

/* Several CPUs may set limits at the same time. */
static __noinline void raise_top(u32 top)
{
	u32 i;

	bpf_for(i, 0, GTH_MAX_CPUS) {
		u32 was = *(volatile u32 *)&limits.top;

		if (was >= top || __sync_val_compare_and_swap(&limits.top, was, top) == was)
			return;
	}
}

/* Gives a group its place in limits.of. */
static __always_inline void list_limit(u32 index, struct limit *limit)
{
	u32 i;

	if (limit->listed)
		return;
	bpf_for(i, 0, GTH_MAX_GROUPS) {
		u32 *place = &limits.of[i & (GTH_MAX_GROUPS - 1)];

		if (*place != ROOT_GROUP || __sync_val_compare_and_swap(place, ROOT_GROUP, index) != ROOT_GROUP)
			continue;
		limit->listed = true;
		raise_top(i + 1);
		return;
	}
}

/* Called when the set of limited cgroups has changed: each looks anew for the nearest one above it. */
static __always_inline void next_epoch(void)
{
	memory_barrier();
	__sync_fetch_and_add(&limits.epoch, 1);
}

/* Never puts off a run that is due sooner: whoever sets limits again and again would put it off for ever. */
static __always_inline void refill_soon(struct refill_timer *timer, u64 now)
{
	s64 left = limits.due - now;

	if (left > MIN_REFILL_NS || left < -(s64)MAX_REFILL_NS)
		refill_in(timer, now, MIN_REFILL_NS);
}

/* Sets a group's limit, which applies to its tasks at once. */
__noinline int set_limit(u32 index, u64 period, u64 quota, u64 burst)
{
	struct refill_timer *timer = refill_timer();
	struct group *group = group_at(index);
	u64 now = now_ns(), was;
	struct limit *limit;

	if (!group || index == ROOT_GROUP || !timer)
		return 0;
	limit = &group->limit;
	was = limit->quota;
	if (quota == NO_QUOTA && was == NO_QUOTA)
		return 0;
	list_limit(index, limit);
	limit->period = period ? period : 1;
	limit->burst = burst;
	limit->quota = quota;
	if (limit->quota != NO_QUOTA) {
		limit->left = limit->quota;
		limit->at_start = limit->quota;
		limit->period_end = (now / limit->period + 1) * limit->period;
	}
	unthrottle(limit, now);
	release(limit);
	next_epoch(); /* before any_limit() says that there is one */
	if (was == NO_QUOTA)
		__sync_fetch_and_add(&limits.nr, 1);
	else if (limit->quota == NO_QUOTA)
		__sync_fetch_and_add(&limits.nr, -1);
	refill_soon(timer, now);
	return 0;
}

/*
 * The same with times in us, as the kernel passes them to ops.cgroup_init() and
 * ops.cgroup_set_bandwidth().
 */
static __always_inline void set_limit_us(u32 index, u64 period, u64 quota, u64 burst)
{
	set_limit(index, period * 1000, quota == NO_QUOTA ? NO_QUOTA : quota * 1000, burst * 1000);
}

/* Reads a limit from the kernel's own scheduler: kernels before 6.17 do not report it. */
static __always_inline void read_limit(u32 index, struct cgroup *cgrp)
{
	struct task_group *group = task_group_of(cgrp);

	if (group && bpf_core_field_exists(group->cfs_bandwidth))
		set_limit(index, BPF_CORE_READ(group, cfs_bandwidth.period), BPF_CORE_READ(group, cfs_bandwidth.quota),
			  BPF_CORE_READ(group, cfs_bandwidth.burst));
}

/* The cgroup is gone, so none of its tasks waits. */
static __always_inline void drop_limit(u32 index, struct group *group)
{
	u32 i;

	if (!group->limit.listed)
		return;
	if (group->limit.quota != NO_QUOTA)
		__sync_fetch_and_add(&limits.nr, -1);
	group->limit.quota = NO_QUOTA;
	group->limit.listed = false;
	group->limit.throttled = false;
	bpf_for(i, 0, limits.top) {
		if (limits.of[i & (GTH_MAX_GROUPS - 1)] == index)
			limits.of[i & (GTH_MAX_GROUPS - 1)] = ROOT_GROUP;
	}
	next_epoch();
}

#endif
