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
 * A task's softirqs run within __local_bh_enable_ip() (kernel/softirq.c), which holds a
 * preemption count meanwhile. So may a task that is interrupted in the kernel, and it
 * does on its way through the scheduler; a softirq at the end of that interrupt is not
 * its. Both run on the CPU's interrupt stack, whose uppermost word is the task's stack
 * pointer (call_on_stack(), arch/x86/include/asm/irq_stack.h): next above it returns
 * do_softirq() to __local_bh_enable_ip(), or the interrupt to its entry code.
 */
extern struct irq_stack *hardirq_stack_ptr __ksym __weak;
extern const void __local_bh_enable_ip __ksym;

enum {
	FRAME_WORDS = 8,	/* more than do_softirq() keeps there */
	CALLER_SIZE = 256,	/* more than __local_bh_enable_ip() has */
};

static __always_inline bool is_raised_by_task(void)
{
	u64 caller = (u64)&__local_bh_enable_ip, frame[FRAME_WORDS], sp = 0;
	const void *top = NULL;
	u32 i;

	if (bpf_ksym_exists(&hardirq_stack_ptr))
		top = *(void **)bpf_this_cpu_ptr(&hardirq_stack_ptr);
	else if (bpf_ksym_exists(&pcpu_hot))
		top = ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->hardirq_stack_ptr;
	if (bpf_probe_read_kernel(&sp, sizeof(sp), top) || bpf_probe_read_kernel(frame, sizeof(frame), (void *)sp))
		return false;
	for (i = 0; i < FRAME_WORDS; i++) {
		if (frame[i] - caller < CALLER_SIZE)
			return true;
	}
	return false;
}

/*
 * A kprobe holds a preemption count of its own (include/linux/trace_recursion.h), or
 * is an NMI where it is a breakpoint. ksoftirqd holds none, nor does a task that is
 * interrupted in user mode: their softirqs leave the interrupt stack as it was.
 *
 * Of what a task runs there, something may have been raised by an interrupt just
 * before; of a kernel thread (RCU's, kswapd) that is to be expected.
 */
static __always_inline enum gth_context context_of(struct task_struct *p, bool is_probe)
{
	u32 count = preempt_count();
	u32 held = count & PREEMPT_MASK;

	if (is_probe && !(count & NMI_MASK) && held)
		held--;
	if (!p->pid)
		return GTH_CONTEXT_IDLE;
	if (!(count & SERVING_SOFTIRQ))
		return GTH_CONTEXT_TASK;
	if (!held || (p->flags & PF_KTHREAD) || !is_raised_by_task())
		return GTH_CONTEXT_SOFTIRQ;
	return GTH_CONTEXT_TASK;
}

#endif
