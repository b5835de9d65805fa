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
	struct task_struct *p = bpf_get_current_task_btf();
	u32 function = bpf_get_attach_cookie(ctx); /* its bit in gth_traffic.functions */

	if (context_of(p) == GTH_CONTEXT_TASK)
		count_in_conditions(p, 1ULL << (function & (GTH_MAX_FUNCTIONS - 1)), 0, function);
	return 0;
}
