/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The tasks that a marked task hands its packets on to. The marked task wakes up a task that
 * waits for them with WF_SYNC (sock_def_readable(), net/core/sock.c; pipes), which says that the
 * waker is about to sleep. A softirq that interrupts a marked task does not hand on that task's
 * packets.
 */
#ifndef GTH_WOKEN_H
#define GTH_WOKEN_H

#include "marks/context.bpf.h"
#include "marks/mark.bpf.h"

/* Whether what this CPU does now is the current task's own work. */
__noinline int is_task_at_work(void)
{
	return context_of(bpf_get_current_task_btf()) == GTH_CONTEXT_TASK;
}

/*
 * Whether the current task hands on packets that the condition counts. Only a task that handles packets
 * itself and has the condition's mark does. The context is checked last because this takes longest.
 */
static __always_inline bool hands_on(struct gth_marks *waker, const struct gth_traffic *traffic)
{
	const struct gth_mark *mark = mark_of(waker, traffic);

	return traffic->woken && mark->condition == traffic->id && mark->function != GTH_BY_WAKEUP &&
	       mark->until > marks_now() && is_task_at_work();
}

/* Counts a packet for @p in condition @number if the current task, whose marks are @waker, hands it on. */
__noinline int count_handed_on_in(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull,
				  struct gth_marks *waker __arg_nonnull, u32 number)
{
	const struct gth_tables *t = live_tables(tunables.generation);
	const struct gth_traffic *traffic = &t->traffic[number & (GTH_MAX_TRAFFIC - 1)];
	struct packet packet = {.p = p, .by = GTH_BY_WAKEUP};

	if (hands_on(waker, traffic) && know_task(&packet, tctx))
		count_packet(&packet, traffic);
	return 0;
}

/* Counts a packet for @p, which the current task wakes up. */
__noinline int count_handed_on(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull)
{
	u32 i, nr = live_tables(tunables.generation)->nr_traffic;
	struct gth_marks *waker;

	waker = bpf_task_storage_get(&marks, bpf_get_current_task_btf(), NULL, 0);
	if (!waker)
		return 0;
	count_handed_on_in(p, tctx, waker, 0);
	if (nr < 2)
		return 0;
	bpf_for(i, 1, nr)
		count_handed_on_in(p, tctx, waker, i);
	return 0;
}

/*
 * @sync: the waker says that it is about to sleep. For a task that may run on only one CPU,
 * the kernel selects no CPU and passes no such flag, so each wake-up counts.
 */
static __always_inline void note_handed_on(struct task_struct *p, struct task_ctx *tctx, bool sync)
{
	if (live_tables(tunables.generation)->nr_traffic && sync && !(p->flags & PF_KTHREAD))
		count_handed_on(p, tctx);
}

#endif
