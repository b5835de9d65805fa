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

/*
 * Counts the packet in the condition if the waker has its mark. Only a task that handles packets itself hands
 * them on.
 */
static __always_inline void hand_on_in(struct packet *packet, struct gth_marks *waker,
				       const struct gth_traffic *traffic)
{
	struct gth_mark *mark = mark_of(waker, traffic);

	if (!traffic->woken || mark->condition != traffic->id || mark->function == GTH_BY_WAKEUP ||
	    mark->until <= packet->now)
		return;
	count_packet(packet, traffic);
}

/* Counts a packet for @p, which the current task wakes up. */
__noinline int count_handed_on(struct task_struct *p __arg_trusted)
{
	const struct gth_tables *t = live_tables(tunables.generation);
	struct task_struct *current = bpf_get_current_task_btf();
	struct packet packet = {.p = p, .by = GTH_BY_WAKEUP};
	struct gth_marks *waker;
	u32 i, nr = t->nr_traffic;

	waker = bpf_task_storage_get(&marks, current, NULL, 0);
	if (!waker || context_of(current) != GTH_CONTEXT_TASK || !know_task(&packet))
		return 0;
	hand_on_in(&packet, waker, &t->traffic[0]);
	if (nr < 2)
		return 0;
	bpf_for(i, 1, nr)
		hand_on_in(&packet, waker, &t->traffic[i & (GTH_MAX_TRAFFIC - 1)]);
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
