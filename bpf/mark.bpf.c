/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Marks the tasks that a data plane's functions run for, in maps shared with the scheduler. The
 * scheduler sees the mark when it next queues the task, without user space. Also counts the packets
 * that enter.
 *
 * Attached to each function by a perf kprobe, with the function's number in the cookie. fentry and
 * kprobe.multi hold a reference on the function's module while attached, so the module could
 * not be unloaded while gthctl runs. Unloading a module only disables a kprobe (kill_kprobe(),
 * kernel/kprobes.c).
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "marks/context.bpf.h"
#include "marks/mark.bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GTH_NR_WAYS);
	__type(key, u32);
	__type(value, struct gth_passed);
} passed SEC(".maps");

/* Whether function_ends() is attached as well. */
const volatile bool measures_time SEC(".rodata.measures");

/* NULL if packets do not enter by this function. */
static __always_inline struct gth_passed *passed_by(u64 cookie)
{
	u32 way = cookie >> GTH_COOKIE_WAY;

	return bpf_map_lookup_elem(&passed, &way);
}

/* Counts in every context: a packet from a NIC belongs to no task. */
static __always_inline void count_passed(const struct pt_regs *ctx, u64 cookie, struct gth_passed *sum)
{
	bool is_second = cookie >> GTH_COOKIE_PACKET & 1;
	u64 first = PT_REGS_PARM1(ctx), second = PT_REGS_PARM2(ctx);
	const void *skb;

	/* Otherwise the compiler loads from a computed offset, which Linux before 7.2 rejects. */
	barrier_var(first);
	barrier_var(second);
	skb = (const void *)(is_second ? second : first);
	sum->packets++;
	sum->bytes += bpf_core_cast(skb, struct sk_buff)->len;
}

SEC("kprobe")
int function_begins(struct pt_regs *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 cookie = bpf_get_attach_cookie(ctx);
	u32 function = cookie; /* its bit in gth_traffic.functions */
	struct gth_passed *sum = passed_by(cookie);

	if (sum)
		count_passed(ctx, cookie, sum);
	if (context_of(p) == GTH_CONTEXT_TASK) {
		struct packet packet = {
			.p = p,
			.functions = 1ULL << (function & (GTH_MAX_FUNCTIONS - 1)),
			.by = function,
		};

		count_in_conditions(&packet);
	}
	if (measures_time && sum)
		sum->began_ns = bpf_ktime_get_ns();
	return 0;
}

/* Runs on the CPU where the call began: a data plane runs with softirqs disabled, or in one. */
SEC("kretprobe")
int function_ends(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct gth_passed *sum = passed_by(bpf_get_attach_cookie(ctx));

	if (!sum || !sum->began_ns)
		return 0;
	sum->time_ns += now - sum->began_ns;
	sum->began_ns = 0;
	return 0;
}
