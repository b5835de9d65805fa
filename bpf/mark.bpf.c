/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Marks the tasks that a data plane's functions run for, in maps that the scheduler reads:
 * it finds the mark when the task is next queued, without user space.
 *
 * Attached to each function, with its number, by a perf kprobe: fentry and kprobe.multi
 * hold a reference on the function's module while attached, so nobody could unload it
 * under a running gthctl. An unload only disables a kprobe (kill_kprobe(),
 * kernel/kprobes.c).
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "marks/context.bpf.h"
#include "marks/mark.bpf.h"

char LICENSE[] SEC("license") = "GPL";

SEC("kprobe")
int function_begins(struct pt_regs *ctx)
{
	const struct gth_tables *t = live_tables(tunables.generation);
	struct task_struct *p = bpf_get_current_task_btf();
	u32 function = bpf_get_attach_cookie(ctx); /* its bit in gth_traffic.functions */
	struct gth_marks *m = NULL;
	struct task_ctx *tctx;
	bool is_known;
	u64 now;
	u32 i;

	if (context_of(p) != GTH_CONTEXT_TASK)
		return 0;
	tctx = task_of(p);
	if (!tctx)
		return 0;
	is_known = is_matched(tctx);
	now = bpf_ktime_get_ns();
	bpf_for(i, 0, t->nr_traffic) {
		const struct gth_traffic *traffic = &t->traffic[i & (GTH_MAX_TRAFFIC - 1)];

		if (!(traffic->functions >> (function & (GTH_MAX_FUNCTIONS - 1)) & 1) ||
		    !may_count(tctx, is_known, traffic))
			continue;
		if (!m)
			m = bpf_task_storage_get(&marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!m)
			return 0;
		count_packet(p, traffic, mark_of(m, traffic), function, is_known, now);
	}
	return 0;
}
