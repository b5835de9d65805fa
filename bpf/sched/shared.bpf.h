/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The state that the scheduler has in common with bpf/mark.bpf.c, which is given the
 * scheduler's maps of the same names (src/daemon/marker.rs).
 */
#ifndef GTH_SHARED_H
#define GTH_SHARED_H

#include "intf.h"
#include <bpf/bpf_helpers.h>

/* ---- policy ---- */

struct gth_knobs knobs SEC(".data.knobs");
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

static __always_inline void count(enum gth_counter counter)
{
	struct gth_stats *s = my_stats();

	if (s)
		s->counters[counter]++;
}

/* ---- tasks ---- */

struct task_ctx {
	u64 match;		/* rule and policy generation in one word, match_word() */
	u64 vtime;
	u16 pool;		/* whose clock `vtime` follows */
	u8 rank;		/* with which it was last queued (enum gth_rank) */
	bool interrupts;	/* it was sent to another CPU than the waker's */
	bool follows;		/* it waits for its waker to sleep */
	bool asked;		/* to choose its CPU anew, and has not done it yet */
	u64 woken_at;		/* of a priority task that has not run since; else 0 */
	u64 charged_until;	/* se.sum_exec_runtime up to which its time is charged */
	u64 burst;		/* CPU time since it last slept */
	u64 queued_at;		/* when it was queued last; now_ns() */
	u64 turn_began;		/* its se.sum_exec_runtime when it last came onto a CPU */
	u64 turn_slice;		/* the CPU time that it has from then on, ns */
	bool kept;		/* preempted, it waits at the head of its CPU's local DSQ */
	u64 id;			/* no other task's ever */
	u64 heir_id;		/* of the task that it forked last; 0: it has forked none */
	s32 heir;		/* that one's pid */
	s64 since_fork;		/* virtual time that it was charged since then, beyond what that one took over */
	u64 running_at;		/* since when it has run, or was charged last; now_ns() */
	u64 sync_at;		/* of its last WF_SYNC wake-up of another, if it has not slept since */
	u64 sync_lag;		/* mean time from such a wake-up to its sleep, ns */
	u32 weight;		/* its rule's; 0: its own */
	u32 changes;		/* of what rules ask about; counts up */
	u64 marked_until;	/* it was matched by a mark, which ends then at the earliest; else 0 */
	struct gth_rules by_traffic;	/* rules that hold for it but for their traffic condition */
	u32 lineage_generation;	/* for which `inherited` was found */
	struct gth_rules inherited;	/* rules it falls under as somebody's child */
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

/* Its record says what the live policy makes of it. */
static __always_inline bool is_matched(const struct task_ctx *tctx)
{
	return *(volatile u64 *)&tctx->match >> 32 == knobs.generation;
}

/* What the task was matched by has changed. */
static __always_inline void forget_match(struct task_ctx *tctx)
{
	__sync_fetch_and_add(&tctx->changes, 1);
	tctx->match = 0;
}

#endif
