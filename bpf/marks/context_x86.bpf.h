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
 * A task that is interrupted in the kernel may hold a preemption count, too, and always does
 * while it goes through the scheduler. A softirq at the end of that interrupt is not the
 * task's own. Both kinds of softirqs run on the CPU's interrupt stack, whose uppermost word is
 * the task's stack pointer (call_on_stack(), arch/x86/include/asm/irq_stack.h). Just above the
 * location that it points to is the return address: that of do_softirq(), into
 * __local_bh_enable_ip(), or that of the interrupt handler, into the entry code.
 */
extern struct irq_stack *hardirq_stack_ptr __ksym __weak;
extern const bool hardirq_stack_inuse __ksym __weak;

/* Whether something runs on the CPU's interrupt stack. */
static __always_inline bool is_irq_stack_in_use(void)
{
	if (bpf_ksym_exists(&hardirq_stack_inuse))
		return *(const bool *)bpf_this_cpu_ptr(&hardirq_stack_inuse);
	if (bpf_ksym_exists(&pcpu_hot))
		return ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->hardirq_stack_inuse;
	return false;
}

static __always_inline bool is_in_bh_enable(u64 address)
{
	return address - bh_enable_at < BH_ENABLE_SIZE;
}

/*
 * Whether the softirq that runs is the current task's own. ksoftirqd and a task interrupted
 * in user mode do not use the interrupt stack, so its content is stale then. The words of the stack are
 * read as if they were saved registers, with one load each: bpf_probe_read_kernel() takes 70 more
 * instructions.
 */
static __always_inline bool is_raised_by_task(void)
{
	const struct pt_regs *frame;
	const void *top = NULL;

	if (!bh_enable_at || !is_irq_stack_in_use())
		return false;
	if (bpf_ksym_exists(&hardirq_stack_ptr))
		top = *(void **)bpf_this_cpu_ptr(&hardirq_stack_ptr);
	else if (bpf_ksym_exists(&pcpu_hot))
		top = ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->hardirq_stack_ptr;
	frame = (const void *)bpf_core_cast(top, struct pt_regs)->r15;
	frame = bpf_core_cast(frame, struct pt_regs);
	/* do_softirq() saves fewer words there than are checked here. In Debian's kernels it saves one. */
	return is_in_bh_enable(frame->r14) || is_in_bh_enable(frame->r15) || is_in_bh_enable(frame->r13) ||
	       is_in_bh_enable(frame->r12) || is_in_bh_enable(frame->bp) || is_in_bh_enable(frame->bx) ||
	       is_in_bh_enable(frame->r11) || is_in_bh_enable(frame->r10);
}

/* For a SEC("syscall") program. */
static __always_inline int look_up_stacks(void)
{
	return look_up_bh_enable();
}

#endif
