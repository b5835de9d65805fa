/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Marks of tasks that process packets. bpf/mark.bpf.c begins and prolongs a task's own
 * marks, in that task; whoever finds one over ends it.
 *
 * Times are of bpf_ktime_get_ns(): now_ns() is another clock.
 */
#ifndef GTH_MARK_H
#define GTH_MARK_H

#include "shared.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gth_marks);
} marks SEC(".maps");

/*
 * How many tasks have each mark. Only touched on behalf of a gate of the live policy:
 * user space sets to 0 what no gate of the live policy counts in.
 */
u32 marked_tasks[GTH_NR_MARKS] SEC(".bss.marked");

static __always_inline u32 *marked_tasks_of(const struct gth_gate *gate)
{
	return &marked_tasks[gate->mark & (GTH_NR_MARKS - 1)];
}

static __always_inline struct gth_mark *mark_of(struct gth_marks *m, const struct gth_gate *gate)
{
	return &m->of[gate->mark & (GTH_NR_MARKS - 1)];
}

/* The end of the mark's time as it was read: one that has been prolonged since goes on. */
static __always_inline void end_mark(const struct gth_gate *gate, struct gth_mark *mark, u64 until)
{
	struct gth_stats *s = my_stats();

	if (__sync_val_compare_and_swap(&mark->until, until, 0) != until)
		return;
	__sync_fetch_and_sub(marked_tasks_of(gate), 1);
	if (s) /* by an iterator, too, which may be interrupted here */
		__sync_fetch_and_add(&s->counters[GTH_COUNT_MARKS_ENDED], 1);
}

#endif
