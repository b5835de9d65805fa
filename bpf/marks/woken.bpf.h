/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The tasks that a marked task hands its packets on to. It wakes up a task that waits
 * for them with WF_SYNC (sock_def_readable(), net/core/sock.c; pipes), which says that
 * the waker is about to sleep. A softirq on top of a marked task hands on none of that
 * task's packets.
 */
#ifndef GTH_WOKEN_H
#define GTH_WOKEN_H

#include "marks/context.bpf.h"
#include "marks/mark.bpf.h"

/* Counts a packet for @p, which the current task wakes up. */
__noinline int count_handed_on(struct task_struct *p __arg_trusted)
{
	const struct gth_tables *t = live_tables(tunables.generation);
	struct task_struct *current = bpf_get_current_task_btf();
	struct gth_marks *waker, *m = NULL;
	struct task_ctx *tctx = task_of(p);
	bool is_known;
	u64 now;
	u32 i;

	waker = bpf_task_storage_get(&marks, current, NULL, 0);
	if (!waker || !tctx || context_of(current) != GTH_CONTEXT_TASK)
		return 0;
	is_known = is_matched(tctx);
	now = bpf_ktime_get_ns();
	bpf_for(i, 0, t->nr_traffic) {
		const struct gth_traffic *traffic = &t->traffic[i & (GTH_MAX_TRAFFIC - 1)];
		struct gth_mark *mark = mark_of(waker, traffic);

		/* Only a task that handles packets itself hands them on. */
		if (!traffic->woken || mark->condition != traffic->id || mark->function == GTH_BY_WAKEUP ||
		    mark->until <= now)
			continue;
		if (!may_count(tctx, is_known, traffic))
			continue;
		if (!m)
			m = bpf_task_storage_get(&marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!m)
			return 0;
		count_packet(p, traffic, mark_of(m, traffic), GTH_BY_WAKEUP, is_known, now);
	}
	return 0;
}

/*
 * @sync: the waker says that it is about to sleep. For a task that may run on one CPU
 * only, the kernel selects no CPU and passes no such flag: there each wake-up counts.
 */
static __always_inline void note_handed_on(struct task_struct *p, bool sync)
{
	if (live_tables(tunables.generation)->nr_traffic && sync && !(p->flags & PF_KTHREAD))
		count_handed_on(p);
}

#endif
