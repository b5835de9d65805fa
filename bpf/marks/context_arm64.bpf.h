/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an arm64 CPU is doing for its current task.
 */
#ifndef GTH_CONTEXT_ARM64_H
#define GTH_CONTEXT_ARM64_H

#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "marks/bh_enable.bpf.h"

/* arch/arm64/include/asm/preempt.h: the upper half says whether to reschedule. */
static __always_inline u32 preempt_count(const struct task_struct *current)
{
	return current->thread_info.preempt_count;
}

/*
 * Softirqs run on the CPU's interrupt stack, which call_on_irq_stack() switches to
 * (arch/arm64/kernel/entry.S). The first function on that stack has its frame record somewhere in
 * its frame, near the end of the stack. From there the frame records lead to do_softirq() and its
 * caller, __local_bh_enable_ip(), or to the interrupt's entry code.
 */
extern u64 *irq_stack_ptr __ksym __weak;	/* arch/arm64/kernel/irq.c */

struct irq_stacks {
	u64 changed_at;		/* the address of call_on_irq_stack(); 0: unknown */
	u64 size;
} irq_stacks SEC(".bss.irq_stacks");

/* AAPCS64, 6.4.6 */
struct frame_record {
	u64 caller;		/* the address of its frame record */
	u64 returns_to;
};

enum {
	STACK_WORDS = 32,	/* more than the first function's frame has */
	MAX_RECORDS = 3,	/* those of call_on_irq_stack(), do_softirq_own_stack() and do_softirq() */
	CHANGE_SIZE = 128,	/* at least the size of call_on_irq_stack() */
	MIN_STACK = 4096,
	MAX_STACK = 1 << 18,
};

/*
 * Whether the address is in the code of @size bytes at @start. A return address may be signed
 * (pointer authentication), so only as many bits as the smallest address space has are compared.
 */
static __always_inline bool is_in_code(u64 address, u64 start, u64 size)
{
	return ((address - start) & ((1ULL << 39) - 1)) < size;
}

/* The frame record of call_on_irq_stack() on the stack that it switched from; 0: not found. */
static __always_inline u64 left_stack(void)
{
	u64 words[STACK_WORDS], changed_at = irq_stacks.changed_at, end;
	u32 i;

	if (!changed_at || !bpf_ksym_exists(&irq_stack_ptr))
		return 0;
	end = *(u64 *)bpf_this_cpu_ptr(&irq_stack_ptr) + irq_stacks.size;
	if (bpf_probe_read_kernel(words, sizeof(words), (void *)(end - sizeof(words))))
		return 0;
	for (i = STACK_WORDS - 1; i > 0; i--) {
		if (is_in_code(words[i], changed_at, CHANGE_SIZE))
			return words[i - 1];
	}
	return 0;
}

/* Whether the softirq that runs is the current task's own. */
static __always_inline bool is_raised_by_task(void)
{
	struct frame_record record = {};
	u32 i;

	if (!bh_enable_at)
		return false;
	record.caller = left_stack();
	for (i = 0; i < MAX_RECORDS && record.caller; i++) {
		if (bpf_probe_read_kernel(&record, sizeof(record), (void *)record.caller))
			return false;
		if (is_in_code(record.returns_to, bh_enable_at, BH_ENABLE_SIZE))
			return true;
	}
	return false;
}

/* A kernel stack ends where an unmapped page begins (CONFIG_VMAP_STACK). */
static __always_inline void look_up_stack_size(void)
{
	const char *stack;
	u64 size, word;

	if (!bpf_ksym_exists(&irq_stack_ptr))
		return;
	stack = *(const char **)bpf_this_cpu_ptr(&irq_stack_ptr);
	for (size = MIN_STACK; size < MAX_STACK; size *= 2) {
		if (bpf_probe_read_kernel(&word, sizeof(word), stack + size))
			break;
	}
	irq_stacks.size = size;
}

/* For a SEC("syscall") program. */
static __always_inline int look_up_stacks(void)
{
	static const char name[] = "call_on_irq_stack";

	look_up_stack_size();
	bpf_kallsyms_lookup_name(name, sizeof(name), 0, &irq_stacks.changed_at);
	return look_up_bh_enable();
}

#endif
