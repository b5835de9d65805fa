/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For whom a function of the kernel runs: the task that the CPU is on, or a softirq
 * that has nothing to do with it.
 */
#ifndef GTH_CONTEXT_H
#define GTH_CONTEXT_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "trace.h"

/* include/linux/preempt.h */
enum {
	PREEMPT_MASK = 0x000000ff,
	SERVING_SOFTIRQ = 0x00000100,
	NMI_MASK = 0x00f00000,
};

/* arch/x86/include/asm/preempt.h since 6.15; before that in struct pcpu_hot */
extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot pcpu_hot __ksym __weak;

static __always_inline u32 preempt_count(void)
{
	if (bpf_ksym_exists(&__preempt_count))
		return *(const int *)bpf_this_cpu_ptr(&__preempt_count);
	if (bpf_ksym_exists(&pcpu_hot))
		return ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
	return 0;
}

/*
 * A softirq runs at the end of whatever interrupt came, on top of a task that may
 * have nothing to do with it, or within __local_bh_enable_ip() (kernel/softirq.c) of
 * the task that raised it, which holds a preemption count meanwhile. A task that was
 * interrupted in user mode is none of the latter: its registers are not a syscall's.
 * Of what a task runs there, something may have been raised by an interrupt just
 * before; of a kernel thread (RCU's, kswapd) that is to be expected.
 *
 * A kprobe holds a preemption count of its own (include/linux/trace_recursion.h), or
 * is an NMI where it is a breakpoint.
 */
static __always_inline enum gth_context context_of(struct task_struct *p, bool is_probe)
{
	u32 count = preempt_count();
	u32 held = count & PREEMPT_MASK;
	struct pt_regs *regs;

	if (is_probe && !(count & NMI_MASK) && held)
		held--;
	if (!p->pid)
		return GTH_CONTEXT_IDLE;
	if (!(count & SERVING_SOFTIRQ))
		return GTH_CONTEXT_TASK;
	if (!held || (p->flags & PF_KTHREAD))
		return GTH_CONTEXT_SOFTIRQ;
	regs = (struct pt_regs *)bpf_task_pt_regs(p);
	return (s64)BPF_CORE_READ(regs, orig_ax) < 0 ? GTH_CONTEXT_SOFTIRQ : GTH_CONTEXT_TASK;
}

#endif
