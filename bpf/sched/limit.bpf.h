/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Limits of CPU time (cpu.max and cpu.max.burst, Documentation/admin-guide/cgroup-v2.rst).
 *
 * What a task runs is deducted from what each limited cgroup above it has left. Slices end at
 * ticks, so a cgroup may overrun its quota; the next period pays for that. Tasks of a cgroup
 * that has nothing left are held back until the next period, see sched/refill.bpf.h.
 */
#ifndef GTH_LIMIT_H
#define GTH_LIMIT_H

#include "sched/group.bpf.h"

struct {
	u32 nr;			/* limited cgroups */
	u32 epoch;		/* counts changes to the set of limited cgroups; 0: none yet */
	u32 top;		/* no place in `of` from here on is taken */
	u32 released;		/* some group's `released` is set */
	u64 due;		/* when the timer runs next; now_ns() */
	u32 of[GTH_MAX_GROUPS];	/* groups that are limited or were; ROOT_GROUP: free */
} limits;

static __always_inline bool any_limit(void)
{
	return *(volatile u32 *)&limits.nr;
}

/* The group or the nearest one above it that has a limit, or NO_GROUP. */
__noinline u32 nearest_limit(u32 index)
{
	u32 epoch = *(volatile u32 *)&limits.epoch, nearest = NO_GROUP, at = index, i;
	struct group *group = group_at(index);

	if (!group)
		return NO_GROUP;
	if (group->limit.epoch == epoch)
		return group->limit.nearest;
	/* Reads the limits only after the epoch. */
	memory_barrier();
	bpf_for(i, 0, MAX_LEVELS) {
		struct group *above = group_at(at);

		if (!above || at == ROOT_GROUP)
			break;
		if (above->limit.quota != NO_QUOTA) {
			nearest = at;
			break;
		}
		at = above->parent;
	}
	group->limit.nearest = nearest;
	group->limit.epoch = epoch;
	return nearest;
}

/* Goes up from a group, itself included, to the nearest one with a limit; NULL if there is none. */
static __always_inline struct group *go_to_limited(u32 *index)
{
	*index = nearest_limit(*index);
	return group_at(*index);
}

/* The nearest group that has used up its quota, from a task's group upwards, or NO_GROUP. */
__noinline u32 throttled_above(u32 index)
{
	u32 i;

	bpf_for(i, 0, MAX_LEVELS) {
		struct group *group = go_to_limited(&index);

		if (!group)
			break;
		if (group->limit.throttled)
			return index;
		index = group->parent;
	}
	return NO_GROUP;
}

/* Whether it was preempted in an RCU read-side critical section: the whole machine waits for that to end. */
static __always_inline bool holds_up_rcu(struct task_struct *p)
{
	return bpf_core_field_exists(p->rcu_read_lock_nesting) &&
	       p->rcu_read_lock_nesting > (int)depth_of_programs(p);
}

/*
 * The bits of task_struct.jobctl (include/linux/sched/jobctl.h) that tell a task to stop: STOP_PENDING,
 * TRAP_STOP, TRAP_NOTIFY, TRAP_FREEZE. Others remain after it has gone on, such as the signal's number.
 */
enum {
	JOBCTL_IS_TO_STOP = 1 << 17 | 1 << 19 | 1 << 20 | 1 << 23,
};

/*
 * A task that has to end, or to stop for a signal, a debugger or the freezer, must run to do so. A
 * killed task on its way to do_exit() has already taken the signal and is not PF_EXITING yet.
 */
static __always_inline bool must_run(struct task_struct *p)
{
	return (p->flags & (PF_EXITING | PF_KTHREAD)) || (p->jobctl & JOBCTL_IS_TO_STOP) || holds_up_rcu(p) ||
	       (p->pending.signal.sig[0] & SIGKILL_BIT) || (p->signal->flags & SIGNAL_GROUP_EXIT);
}

/* For held_by(), where there is a limit. */
__noinline u32 holder_of(struct task_struct *p __arg_trusted, u32 group)
{
	u32 index = throttled_above(group);

	return index == NO_GROUP || must_run(p) ? NO_GROUP : index;
}

/* The group whose limit holds the task back now, or NO_GROUP. */
static __always_inline u32 held_by(struct task_struct *p, const struct task_ctx *tctx)
{
	return any_limit() && !tctx->unlimited ? holder_of(p, tctx->group) : NO_GROUP;
}

static __always_inline bool is_limited(const struct task_ctx *tctx)
{
	return any_limit() && !tctx->unlimited && nearest_limit(tctx->group) != NO_GROUP;
}

static __always_inline void throttle(struct limit *limit)
{
	if (limit->throttled)
		return;
	limit->throttled_at = now_ns();
	/* A barrier: whoever sees the flag sees the time. */
	if (__sync_lock_test_and_set(&limit->throttled, 1))
		return;
	/* A refill before this did not see the flag. One from here on does. */
	if (*(volatile s64 *)&limit->left > 0)
		limit->throttled = false;
}

/* Counts the time since the group was throttled, or since the last count. */
static __always_inline void count_throttled(struct limit *limit, u64 now)
{
	if (!limit->throttled)
		return;
	limit->throttled_ns += now - limit->throttled_at;
	limit->throttled_at = now;
}

static __always_inline void unthrottle(struct limit *limit, u64 now)
{
	count_throttled(limit, now);
	limit->throttled = false;
}

/* Deducts what a task has run from each limit above it. */
__noinline int bill(u32 index, u64 ran)
{
	u32 i;

	bpf_for(i, 0, MAX_LEVELS) {
		struct group *group = go_to_limited(&index);

		if (!group)
			break;
		if (__sync_fetch_and_add(&group->limit.left, -ran) <= (s64)ran)
			throttle(&group->limit);
		index = group->parent;
	}
	return 0;
}

#endif
