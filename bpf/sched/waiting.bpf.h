/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What waits in the DSQs. Looking up a DSQ by its id takes about 200 instructions. So there
 * is a note of each DSQ that most CPUs find empty.
 */
#ifndef GTH_WAITING_H
#define GTH_WAITING_H

#include "sched/state.bpf.h"

/* How many tasks wait where a CPU looks for them. */
struct waiting {
	u32 own;		/* in its own DSQ */
	u32 shared;		/* in its pool's */
	u32 priority;		/* in its pool's priority DSQ */
};

static __always_inline u32 nr_queued(u64 dsq)
{
	s32 nr = scx_bpf_dsq_nr_queued(dsq);

	return nr > 0 ? nr : 0;
}

static __always_inline struct waiting count_waiting(u32 pool, s32 cpu)
{
	return (struct waiting){
		.own = nr_queued(cpu_dsq(cpu)),
		.shared = nr_queued(pool_dsq(pool)),
		.priority = nr_queued(prio_dsq(pool)),
	};
}

/* How many of them wait for the CPU, including its share of those that wait for the pool. */
static __always_inline u64 share_of(const struct waiting *waiting, u32 pool)
{
	u64 cpus = live_tables(tunables.generation)->pool_cpus[pool & (GTH_MAX_POOLS - 1)];
	u64 in_pool = waiting->shared + waiting->priority;

	return waiting->own + (cpus ? in_pool / cpus : in_pool);
}

/* How many tasks wait for @cpu. */
__noinline u64 waiting_for(u32 pool, s32 cpu)
{
	struct waiting waiting = count_waiting(pool, cpu);

	return share_of(&waiting, pool);
}

enum {
	/*
	 * The kernel queues a task after ops.enqueue() has returned, with interrupts off, long
	 * before this time has passed.
	 */
	ARRIVAL_NS = 1000000000,
};

/*
 * A task comes into the DSQ that this note is for. The note is the time of the latest arrival; 0:
 * the DSQ is empty.
 */
static __always_inline void note_arrival(u64 *came_at)
{
	*(volatile u64 *)came_at = now_ns() | 1;
}

static __always_inline bool may_have_tasks(const u64 *came_at)
{
	return *(const volatile u64 *)came_at;
}

/* Called when no task was found there. The clocks of two CPUs may differ a little. */
__noinline int note_none(u64 *came_at __arg_nonnull, u64 dsq)
{
	u64 latest = *(volatile u64 *)came_at;

	if ((s64)(now_ns() - latest) > ARRIVAL_NS && scx_bpf_dsq_nr_queued(dsq) <= 0)
		__sync_val_compare_and_swap(came_at, latest, 0);
	return 0;
}

/* Like head_key(), but looks at the DSQ's note first. */
static __always_inline u64 head_key_of(u64 *came_at, u64 dsq, s32 cpu)
{
	u64 key;

	if (!may_have_tasks(came_at))
		return NO_KEY;
	key = head_key(dsq, cpu);
	if (key == NO_KEY)
		note_none(came_at, dsq);
	return key;
}

/* The head key of the priority tasks that wait in the pool. */
static __always_inline u64 prio_head_key(u32 pool, s32 cpu)
{
	return head_key_of(&pool_of(pool)->priority_came_at, prio_dsq(pool), cpu);
}

/* The head key of the tasks that wait for this CPU alone. */
static __always_inline u64 own_head_key(s32 cpu)
{
	return head_key_of(&cpu_of(cpu)->own_came_at, cpu_dsq(cpu), cpu);
}

/* Whether the first task of a DSQ, which has this key, is earlier than @vtime. */
static __always_inline bool is_earlier(u64 key, u64 vtime)
{
	return key != NO_KEY && (s64)(key - vtime) < 0;
}

static __always_inline bool priority_waits(u32 pool)
{
	return may_have_tasks(&pool_of(pool)->priority_came_at) && nr_queued(prio_dsq(pool));
}

/* Called at a tick. Restores a note that was lost because its CPU stood still for ARRIVAL_NS. */
static __always_inline void renew_notes(const struct waiting *waiting, u32 pool, s32 cpu)
{
	if (waiting->priority && !may_have_tasks(&pool_of(pool)->priority_came_at))
		note_arrival(&pool_of(pool)->priority_came_at);
	if (waiting->own && !may_have_tasks(&cpu_of(cpu)->own_came_at))
		note_arrival(&cpu_of(cpu)->own_came_at);
}

#endif
