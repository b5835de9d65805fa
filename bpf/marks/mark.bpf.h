/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Marks of tasks that process packets. bpf/mark.bpf.c and bpf/mark_udp.bpf.c begin and prolong
 * the marks of the task that they run on. The scheduler does so for the tasks that this one wakes up
 * (marks/woken.bpf.h). Any code that finds an expired mark ends it.
 *
 * Times are from marks_now(); now_ns() is a different clock.
 */
#ifndef GTH_MARK_H
#define GTH_MARK_H

#include "marks/jiffy_clock.bpf.h"
#include "sched/shared.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gth_marks);
} marks SEC(".maps");

/*
 * How many tasks have each mark. Only conditions of the live policy change it. User space resets the
 * entries that no live condition uses to 0.
 */
u32 marked_tasks[GTH_NR_MARKS] SEC(".bss.marked");

static __always_inline u32 *marked_tasks_of(const struct gth_traffic *traffic)
{
	return &marked_tasks[traffic->mark & (GTH_NR_MARKS - 1)];
}

static __always_inline struct gth_mark *mark_of(struct gth_marks *m, const struct gth_traffic *traffic)
{
	return &m->of[traffic->mark & (GTH_NR_MARKS - 1)];
}

/* Ends a mark whose end was read as @until, unless it has been prolonged since. */
static __always_inline void end_mark(const struct gth_traffic *traffic, struct gth_mark *mark, u64 until)
{
	struct gth_stats *s = my_stats();

	if (__sync_val_compare_and_swap(&mark->until, until, 0) != until)
		return;
	__sync_fetch_and_sub(marked_tasks_of(traffic), 1);
	if (s) /* atomic: an iterator may be interrupted here */
		__sync_fetch_and_add(&s->counters[GTH_COUNT_MARKS_ENDED], 1);
}

enum {
	WINDOW_NS = 1000000000,	/* the window for counting packets: min_packets is per second */
};

/* Makes the scheduler match the task again: match_again() without the calls that a kprobe may not make. */
static __always_inline void match_when_queued(struct task_struct *p)
{
	struct task_ctx *tctx = task_of(p);

	if (!tctx)
		return;
	forget_match(tctx);
	tctx->need_resched = true;
}

/* Counts the task as marked, unless the limit is reached. */
static __always_inline bool may_begin(const struct gth_traffic *traffic)
{
	u32 *tasks = marked_tasks_of(traffic);

	if (*(volatile u32 *)tasks < traffic->max_tasks) {
		if (__sync_fetch_and_add(tasks, 1) < traffic->max_tasks)
			return true;
		__sync_fetch_and_sub(tasks, 1);
	}
	return false;
}

/* Marks the task, unless the limit of marked tasks is reached. */
static __always_inline void begin_mark(const struct gth_traffic *traffic, struct gth_mark *mark, u64 now)
{
	if (!may_begin(traffic)) {
		if (mark->in_window == traffic->min_packets)
			count_rarely(GTH_COUNT_MARKS_REFUSED);
		return;
	}
	mark->since = now;
	mark->packets = mark->in_window;
	__sync_lock_test_and_set(&mark->until, now + traffic->hold_ns);
	count_rarely(GTH_COUNT_MARKED);
}

static __always_inline bool rules_meet(const struct gth_rules *a, const struct gth_rules *b)
{
	return (a->word[0] & b->word[0]) | (a->word[1] & b->word[1]);
}

/* A packet, and what is known so far about the task that it belongs to. */
struct packet {
	struct task_struct *p;
	u64 functions;		/* one of these was called for it ... */
	u32 port;		/* ... or it is a datagram of this port */
	u32 by;			/* where it was seen */
	struct task_ctx *tctx;	/* NULL: no condition has needed it yet */
	struct gth_marks *m;
	bool is_known;
	u64 now;
};

/* Reads the task's record. Returns whether there is one. */
static __always_inline bool know_task(struct packet *packet, struct task_ctx *tctx)
{
	if (!tctx)
		return false;
	packet->tctx = tctx;
	packet->is_known = is_matched(tctx);
	packet->now = marks_now();
	return true;
}

/*
 * If the task's record is up to date, the task is marked at once, provided that one of the condition's
 * rules would hold for it when marked. If none would, the task is neither marked nor counted. If the
 * record is not up to date, the next match decides. Only the task itself begins its marks or, while it
 * does not run, its waker or its match: at most one of these runs for a mark.
 */
static __always_inline void count_at(struct gth_mark *mark, const struct gth_traffic *traffic,
				     const struct packet *packet)
{
	u64 now = packet->now;

	if (mark->condition != traffic->id) {
		__builtin_memset(mark, 0, sizeof(*mark));
		mark->condition = traffic->id;
	}
	if (!mark->in_window || now - mark->window_began >= WINDOW_NS) {
		mark->window_began = now;
		mark->in_window = 0;
	}
	mark->in_window++;
	mark->packets++;
	if (mark->in_window < traffic->min_packets)
		return;
	if (mark->function == GTH_BY_WAKEUP)
		mark->function = packet->by;
	if (mark->until && __sync_lock_test_and_set(&mark->until, now + traffic->hold_ns))
		return;
	/* It was not marked, or is no longer. */
	mark->until = 0;
	mark->function = packet->by;
	if (packet->is_known)
		begin_mark(traffic, mark, now);
	else
		mark->due = true;
	if (mark->until || mark->due)
		match_when_queued(packet->p);
}

/* Whether a task's packets count: not if none of the condition's rules would hold for it when marked. */
static __always_inline bool may_count(const struct task_ctx *tctx, bool is_known,
				      const struct gth_traffic *traffic)
{
	return !is_known || rules_meet(&tctx->by_traffic, &traffic->rules);
}

/* Counts the packet in the condition. Returns the task's mark for it; NULL: the packet does not count. */
static __always_inline struct gth_mark *count_packet(struct packet *packet, const struct gth_traffic *traffic)
{
	struct gth_mark *mark;

	if (!may_count(packet->tctx, packet->is_known, traffic))
		return NULL;
	if (!packet->m)
		packet->m = bpf_task_storage_get(&marks, packet->p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!packet->m)
		return NULL;
	mark = mark_of(packet->m, traffic);
	count_at(mark, traffic, packet);
	return mark;
}

/* Counts the packet in the condition if the condition asks about it. Returns whether it does. */
static __always_inline bool count_in_condition(struct packet *packet, const struct gth_traffic *traffic)
{
	struct gth_mark *mark;

	if (!(traffic->functions & packet->functions) && !(packet->port && traffic->port == packet->port))
		return false;
	if (!packet->tctx && !know_task(packet, task_of(packet->p)))
		return true;
	mark = count_packet(packet, traffic);
	if (mark && mark->until)
		renew_burst(packet->tctx);
	return true;
}

/*
 * Counts the packet in each condition but the first. This is a separate function because most policies
 * have only one condition: a loop takes 80 instructions for each packet, and the registers for it would be
 * saved even where there is no loop.
 */
static __noinline bool count_in_others(struct task_struct *p, u64 functions, u32 port, u32 by)
{
	struct packet packet = {.p = p, .functions = functions, .port = port, .by = by};
	const struct gth_tables *t = live_tables(tunables.generation);
	u32 i, nr = t->nr_traffic;
	bool asks = false;

	bpf_for(i, 1, nr) {
		if (count_in_condition(&packet, &t->traffic[i & (GTH_MAX_TRAFFIC - 1)]))
			asks = true;
	}
	return asks;
}

/* Counts the packet in each condition that asks about it. Returns whether one does. */
static __always_inline bool count_in_conditions(struct packet *packet)
{
	const struct gth_tables *t = live_tables(tunables.generation);
	u32 nr = t->nr_traffic;
	bool asks;

	asks = nr && count_in_condition(packet, &t->traffic[0]);
	if (nr < 2)
		return asks;
	return count_in_others(packet->p, packet->functions, packet->port, packet->by) || asks;
}

#endif
