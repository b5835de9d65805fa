/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Marks the tasks that a data plane's functions are seen to run for, in the maps that
 * the scheduler reads: it finds the mark when the task is next queued, without user space.
 *
 * Attached to each function, with its number, by a kprobe of perf: fentry and
 * kprobe.multi hold a reference on the function's module for as long as they are
 * attached, and nobody could unload it under a running gthctl. A kprobe is only put out
 * of action by that (kill_kprobe(), kernel/kprobes.c).
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "context.h"
#include "mark.h"

char LICENSE[] SEC("license") = "GPL";

enum {
	WINDOW_NS = 1000000000,	/* what packets are counted in: min_packets are a second's */
};

/* Has the scheduler match the task again: match_again() without what may not be called here. */
static __always_inline void match_me_again(struct task_struct *p)
{
	struct task_ctx *tctx = task_of(p);

	if (!tctx)
		return;
	__sync_fetch_and_add(&tctx->changes, 1);
	tctx->match = 0;
	tctx->asked = true;
}

/* Counts the task in, unless there are as many as may be. */
static __always_inline bool may_begin(const struct gth_gate *gate)
{
	u32 *tasks = marked_tasks_of(gate);

	if (*(volatile u32 *)tasks < gate->max_tasks) {
		if (__sync_fetch_and_add(tasks, 1) < gate->max_tasks)
			return true;
		__sync_fetch_and_sub(tasks, 1);
	}
	return false;
}

/* Nobody but the task itself begins its marks: at most one of these runs for a mark. */
static __always_inline void count_packet(struct task_struct *p, const struct gth_gate *gate, struct gth_mark *mark,
					 u32 function, u64 now)
{
	if (mark->gate != gate->id) {
		__builtin_memset(mark, 0, sizeof(*mark));
		mark->gate = gate->id;
	}
	if (!mark->in_window || now - mark->window_began >= WINDOW_NS) {
		mark->window_began = now;
		mark->in_window = 0;
	}
	mark->in_window++;
	mark->packets++;
	if (mark->in_window < gate->min_packets)
		return;
	if (mark->until && __sync_lock_test_and_set(&mark->until, now + gate->hold_ns))
		return;
	/* Not marked, or no longer at this moment. */
	mark->until = 0;
	if (!may_begin(gate)) {
		if (mark->in_window == gate->min_packets)
			count(GTH_COUNT_MARKS_REFUSED);
		return;
	}
	mark->since = now;
	mark->packets = mark->in_window;
	mark->function = function;
	__sync_lock_test_and_set(&mark->until, now + gate->hold_ns);
	count(GTH_COUNT_MARKED);
	match_me_again(p);
}

SEC("kprobe")
int function_begins(struct pt_regs *ctx)
{
	const struct gth_tables *t = live_tables(knobs.generation);
	struct task_struct *p = bpf_get_current_task_btf();
	u32 function = bpf_get_attach_cookie(ctx); /* its bit in gth_gate.functions */
	struct gth_marks *m;
	u64 now;
	u32 i;

	if (context_of(p, true) != GTH_CONTEXT_TASK)
		return 0;
	m = bpf_task_storage_get(&marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!m)
		return 0;
	now = bpf_ktime_get_ns();
	bpf_for(i, 0, t->nr_gates) {
		const struct gth_gate *gate = &t->gates[i & (GTH_MAX_GATES - 1)];

		if (gate->functions >> (function & (GTH_MAX_FUNCTIONS - 1)) & 1)
			count_packet(p, gate, mark_of(m, gate), function, now);
	}
	return 0;
}
