/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom a marked task hands its packets on to: whoever waits for them is woken up by it
 * with WF_SYNC (sock_def_readable(), net/core/sock.c; pipes), which says that the waker
 * is about to sleep.
 */
#ifndef GTH_WOKEN_H
#define GTH_WOKEN_H

#include "mark.h"

/* Counts a packet for @p, which the current task wakes up. */
static __noinline void count_handed_on(struct task_struct *p, const struct gth_tables *t)
{
	struct gth_marks *waker, *m = NULL;
	u64 now;
	u32 i;

	waker = bpf_task_storage_get(&marks, bpf_get_current_task_btf(), NULL, 0);
	if (!waker)
		return;
	now = bpf_ktime_get_ns();
	bpf_for(i, 0, t->nr_gates) {
		const struct gth_gate *gate = &t->gates[i & (GTH_MAX_GATES - 1)];
		struct gth_mark *mark = mark_of(waker, gate);

		/* Who handles packets itself; it goes no further from there. */
		if (!gate->woken || mark->gate != gate->id || mark->function == GTH_BY_WAKEUP || mark->until <= now)
			continue;
		if (!m)
			m = bpf_task_storage_get(&marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!m)
			return;
		count_packet(p, gate, mark_of(m, gate), GTH_BY_WAKEUP, now);
	}
}

static __always_inline void note_handed_on(struct task_struct *p, u64 wake_flags)
{
	const struct gth_tables *t = live_tables(knobs.generation);

	if (t->nr_gates && (wake_flags & WAKE_SYNC) && !(p->flags & PF_KTHREAD))
		count_handed_on(p, t);
}

#endif
