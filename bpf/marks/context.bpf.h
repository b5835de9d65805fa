/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whether a kernel function runs for the CPU's current task, or in a softirq
 * unrelated to it.
 */
#ifndef GTH_CONTEXT_H
#define GTH_CONTEXT_H

#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "trace_intf.h"

/* include/linux/preempt.h */
enum {
	PREEMPT_MASK = 0x000000ff,
	SERVING_SOFTIRQ = 0x00000100,
	HARDIRQ_OFFSET = 0x00010000,
	HARDIRQ_MASK = 0x000f0000,
	NMI_MASK = 0x00f00000,
};

#if defined(__TARGET_ARCH_arm64)
#include "marks/context_arm64.bpf.h"
#else
#include "marks/context_x86.bpf.h"
#endif

/*
 * A breakpoint kprobe is an NMI on x86, which also counts as a hard interrupt
 * (__nmi_enter(), include/linux/hardirq.h).
 *
 * Some of the softirqs that a task runs as its own may have been raised by an interrupt just
 * before. For a kernel thread (RCU's, kswapd) this is to be expected.
 */
static __always_inline enum gth_context context_of(struct task_struct *p)
{
	u32 count = preempt_count(p);
	u32 hardirqs = count & HARDIRQ_MASK;

	if (!p->pid)
		return GTH_CONTEXT_IDLE;
	if (hardirqs > ((count & NMI_MASK) ? HARDIRQ_OFFSET : 0))
		return GTH_CONTEXT_SOFTIRQ;
	if (!(count & SERVING_SOFTIRQ))
		return GTH_CONTEXT_TASK;
	/* A task's own softirqs hold a preemption count (__local_bh_enable_ip(), kernel/softirq.c). */
	if (!(count & PREEMPT_MASK) || (p->flags & PF_KTHREAD) || !is_raised_by_task())
		return GTH_CONTEXT_SOFTIRQ;
	return GTH_CONTEXT_TASK;
}

#endif
