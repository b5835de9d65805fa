/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The state shared with bpf/mark.bpf.c, which gets the scheduler's maps of the same
 * names (src/daemon/marker.rs).
 */
#ifndef GTH_SHARED_H
#define GTH_SHARED_H

#include "intf.h"
#include <bpf/bpf_helpers.h>

/* ---- policy ---- */

struct gth_tunables tunables SEC(".data.tunables");
struct gth_tables tables[GTH_NR_TABLES] SEC(".bss.tables");

static __always_inline const struct gth_tables *live_tables(u32 generation)
{
	return &tables[generation & 1];
}

/* ---- counters ---- */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gth_stats);
} stats SEC(".maps");

static __always_inline struct gth_stats *my_stats(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&stats, &zero);
}

static __always_inline void count_many(enum gth_counter counter, u64 many)
{
	struct gth_stats *s = my_stats();

	if (s)
		s->counters[counter] += many;
}

static __always_inline void count(enum gth_counter counter)
{
	count_many(counter, 1);
}

/* Like count(), for rarely taken paths: a call is shorter than the inlined code, so programs load sooner. */
__noinline int count_rarely(u32 counter)
{
	if (counter < GTH_NR_COUNTERS)
		count(counter);
	return 0;
}

/* ---- tasks ---- */

/* How a runnable normal task counts, see sched/group.bpf.h. */
struct counted {
	u32 weight;		/* in its group; 0: it does not count */
	u32 group;
	u32 load;		/* its part of a pool's load; 0: none */
	u16 pool;		/* ... and which pool's */
};

struct task_ctx {
	u64 match;		/* rule and policy generation in one word, match_word() */
	u64 vtime;
	u16 pool;		/* whose clock `vtime` follows */
	u8 rank;		/* when it was last queued (enum gth_rank) */
	bool idle_woken;	/* it was sent to an idle CPU */
	bool unlimited;		/* the limits of its cgroups do not apply to it */
	bool need_resched;	/* it has to choose its CPU anew and has not done so yet */
	u16 row;		/* of its rule's counters, see sched/tally.bpf.h */
	s32 cpu;		/* the CPU that it last began to run on; NO_CPU: none */
	bool woken;		/* it was woken up and has not run since */
	bool was_woken;		/* it was woken up before the turn that count_turn() has yet to count */
	u64 woken_at;		/* when it was woken up, now_ns(); 0: the kernel knows, see since_wakeup() */
	u64 wakeup_lag;		/* how long it waited after the wake-up, ns */
	u64 waited;		/* its wait for CPUs (waited_ns()) that is already counted, ns */
	u64 charged_until;	/* se.sum_exec_runtime up to which it is charged */
	u64 burst;		/* CPU time since it last slept, or handed on or processed a packet
				 * as a priority task */
	u64 queued_at;		/* when it was queued last; now_ns() */
	u64 held_since;		/* when a limit first held it back, if it has not run since; now_ns() */
	u64 turn_began;		/* its se.sum_exec_runtime when it last came onto a CPU */
	u64 turn_slice;		/* CPU time that it may use from then on, ns */
	bool kept;		/* it was preempted and waits at the head of its CPU's local DSQ */
	u64 id;			/* never reused */
	u64 heir_id;		/* id of the task it forked last; 0: none */
	s32 heir;		/* that task's pid */
	s64 since_fork;		/* virtual time charged since that fork, beyond what that task took over */
	u64 running_at;		/* when it began to run or was last charged; now_ns() */
	u64 sync_at;		/* when it first woke up a normal task with WF_SYNC since it slept;
				 * 0: it did not; while it runs, see its CPU */
	u64 sync_lag;		/* mean time from such a wake-up to its sleep, ns */
	u32 weight;		/* its rule's; 0: its own */
	u32 group;		/* its cgroup's record, see sched/group.bpf.h */
	struct counted counted;
	u64 pace;		/* at which its virtual time advanced last; 0: it has not run */
	u32 changes;		/* counts changes of what rules ask about */
	u64 marked_until;	/* earliest end of the marks that it was matched by; 0: none */
	struct gth_rules by_traffic;	/* rules that hold for it except for their traffic condition */
	u32 lineage;		/* of `inherited`, see struct gth_tables */
	struct gth_rules inherited;	/* rules it falls under as a child */
	struct gth_rules passed_on;	/* rules its children fall under */
	char comm[GTH_COMM_LEN];	/* its name, kept by task_rename */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

static __always_inline struct task_ctx *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, NULL, 0);
}

/* Whether the task's record holds the live policy's match. */
static __always_inline bool is_matched(const struct task_ctx *tctx)
{
	return *(volatile u64 *)&tctx->match >> 32 == tunables.generation;
}

/*
 * A memory barrier: for other CPUs, what precedes it in a program happens before what follows it.
 * Every atomic exchange is such a barrier. On arm64, an atomic addition whose result is not used is
 * not: the kernel compiles it to STADD (arch/arm64/net/bpf_jit_comp.c).
 */
static __always_inline void memory_barrier(void)
{
	u32 word = 0;

	__sync_lock_test_and_set(&word, 1);
}

/* Drops the task's match: what it was matched by has changed. */
static __always_inline void forget_match(struct task_ctx *tctx)
{
	memory_barrier();
	__sync_fetch_and_add(&tctx->changes, 1);
	__sync_lock_test_and_set(&tctx->match, 0);
}

/* Gives a priority task at work a new burst, as after a sleep. The guard still bounds it. */
static __always_inline void renew_burst(struct task_ctx *tctx)
{
	if (tctx->burst && tctx->rank <= GTH_RANK_EXHAUSTED)
		tctx->burst = 0;
}

#endif
