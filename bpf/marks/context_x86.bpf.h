/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an x86 CPU is doing for its current task.
 */
#ifndef GTH_CONTEXT_X86_H
#define GTH_CONTEXT_X86_H

#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "marks/bh_enable.bpf.h"

/* arch/x86/include/asm/preempt.h since 6.15; before that in struct pcpu_hot */
extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot pcpu_hot __ksym __weak;

static __always_inline u32 preempt_count(const struct task_struct *current)
{
	if (bpf_ksym_exists(&__preempt_count))
		return *(const int *)bpf_this_cpu_ptr(&__preempt_count);
	if (bpf_ksym_exists(&pcpu_hot))
		return ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
	return 0;
}

/*
 * A task interrupted in the kernel may hold a preemption count, too, and does on its way
 * through the scheduler; a softirq at the end of that interrupt is not the task's. Both
 * run on the CPU's interrupt stack, whose uppermost word is the task's stack pointer
 * (call_on_stack(), arch/x86/include/asm/irq_stack.h). Just above that pointer is the
 * return address: of do_softirq() to __local_bh_enable_ip(), or of the interrupt to its
 * entry code.
 */
extern struct irq_stack *hardirq_stack_ptr __ksym __weak;
extern const bool hardirq_stack_inuse __ksym __weak;

enum {
	FRAME_WORDS = 8,	/* more than do_softirq() keeps there */
};

/* Whether something runs on the CPU's interrupt stack. */
static __always_inline bool is_irq_stack_in_use(void)
{
	if (bpf_ksym_exists(&hardirq_stack_inuse))
		return *(const bool *)bpf_this_cpu_ptr(&hardirq_stack_inuse);
	if (bpf_ksym_exists(&pcpu_hot))
		return ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->hardirq_stack_inuse;
	return false;
}

/*
 * Whether the softirq that runs is the current task's own. ksoftirqd and a task interrupted
 * in user mode do not use the interrupt stack: its content is stale then.
 */
static __always_inline bool is_raised_by_task(void)
{
	u64 caller = bh_enable_at, frame[FRAME_WORDS], sp = 0;
	const void *top = NULL;
	u32 i;

	if (!caller || !is_irq_stack_in_use())
		return false;
	if (bpf_ksym_exists(&hardirq_stack_ptr))
		top = *(void **)bpf_this_cpu_ptr(&hardirq_stack_ptr);
	else if (bpf_ksym_exists(&pcpu_hot))
		top = ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->hardirq_stack_ptr;
	if (bpf_probe_read_kernel(&sp, sizeof(sp), top) || bpf_probe_read_kernel(frame, sizeof(frame), (void *)sp))
		return false;
	for (i = 0; i < FRAME_WORDS; i++) {
		if (frame[i] - caller < BH_ENABLE_SIZE)
			return true;
	}
	return false;
}

/* For a SEC("syscall") program. */
static __always_inline int look_up_stacks(void)
{
	return look_up_bh_enable();
}

#endif
