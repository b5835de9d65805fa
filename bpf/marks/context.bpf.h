/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For whom a kernel function runs: the CPU's current task, or a softirq unrelated
 * to it.
 */
#ifndef GTH_CONTEXT_H
#define GTH_CONTEXT_H

#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "trace_intf.h"

/* include/linux/preempt.h */
enum {
	SERVING_SOFTIRQ = 0x00000100,
	HARDIRQ_OFFSET = 0x00010000,
	HARDIRQ_MASK = 0x000f0000,
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
 * preemption count meanwhile. A task interrupted in the kernel may hold one, too, and
 * does on its way through the scheduler; a softirq at the end of that interrupt is not
 * the task's. Both run on the CPU's interrupt stack, whose uppermost word is the task's
 * stack pointer (call_on_stack(), arch/x86/include/asm/irq_stack.h). Just above that
 * pointer is the return address: of do_softirq() to __local_bh_enable_ip(), or of the
 * interrupt to its entry code.
 */
extern struct irq_stack *hardirq_stack_ptr __ksym __weak;
extern const bool hardirq_stack_inuse __ksym __weak;

/*
 * The address of __local_bh_enable_ip(); 0: the kernel hides it (kptr_restrict). Not a libbpf
 * extern: libbpf would read all of /proc/kallsyms for it, half the loading time.
 */
u64 bh_enable_at SEC(".bss.kernel");

/* For a SEC("syscall") program: only those may look it up. */
static __always_inline int look_up_bh_enable(void)
{
	static const char name[] = "__local_bh_enable_ip";

	return bpf_kallsyms_lookup_name(name, sizeof(name), 0, &bh_enable_at);
}

enum {
	FRAME_WORDS = 8,	/* more than do_softirq() keeps there */
	CALLER_SIZE = 256,	/* larger than __local_bh_enable_ip() */
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

static __always_inline bool is_raised_by_task(void)
{
	u64 caller = bh_enable_at, frame[FRAME_WORDS], sp = 0;
	const void *top = NULL;
	u32 i;

	if (!caller)
		return false;
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
 * ksoftirqd and a task interrupted in user mode do not use the interrupt stack: its
 * content is stale then. A breakpoint kprobe is an NMI, which also counts as a hard
 * interrupt (__nmi_enter(), include/linux/hardirq.h).
 *
 * An interrupt just before may have raised part of what a task runs there; with a kernel
 * thread (RCU's, kswapd) this is to be expected.
 */
static __always_inline enum gth_context context_of(struct task_struct *p)
{
	u32 count = preempt_count();
	u32 hardirqs = count & HARDIRQ_MASK;

	if (!p->pid)
		return GTH_CONTEXT_IDLE;
	if (hardirqs > ((count & NMI_MASK) ? HARDIRQ_OFFSET : 0))
		return GTH_CONTEXT_SOFTIRQ;
	if (!(count & SERVING_SOFTIRQ))
		return GTH_CONTEXT_TASK;
	if (!is_irq_stack_in_use() || (p->flags & PF_KTHREAD) || !is_raised_by_task())
		return GTH_CONTEXT_SOFTIRQ;
	return GTH_CONTEXT_TASK;
}

#endif
