/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CPU masks in the kernel's form (struct bpf_cpumask), one set for each
 * parity of the policy generation. User space writes them through set_mask;
 * the scheduler reads them under RCU.
 */
#ifndef GTH_MASKS_H
#define GTH_MASKS_H

#include "sched/state.bpf.h"

struct mask_slot {
	struct bpf_cpumask __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * GTH_NR_MASKS);
	__type(key, u32);
	__type(value, struct mask_slot);
} masks SEC(".maps");

/* For the intersection of a mask with a task's affinity. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct mask_slot);
} scratch SEC(".maps");

static __always_inline const struct cpumask *mask_of(u32 generation, u32 mask)
{
	u32 index = (generation & 1) * GTH_NR_MASKS + mask;
	struct mask_slot *slot = bpf_map_lookup_elem(&masks, &index);

	return slot ? (const struct cpumask *)slot->mask : NULL;
}

/*
 * The CPUs that priority tasks try to take over first: all but those that ran a priority task
 * at their last tick and still do. Only cpu_ctx.rank says which rank runs on a CPU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct mask_slot);
} preemptible SEC(".maps");

static __always_inline struct bpf_cpumask *preemptible_cpus(void)
{
	u32 zero = 0;
	struct mask_slot *slot = bpf_map_lookup_elem(&preemptible, &zero);

	return slot ? slot->mask : NULL;
}

__noinline int set_held(s32 cpu, bool held)
{
	struct bpf_cpumask *mask = preemptible_cpus();

	if (!mask)
		return 0;
	if (held)
		bpf_cpumask_clear_cpu(cpu, mask);
	else
		bpf_cpumask_set_cpu(cpu, mask);
	cpu_of(cpu)->held = held;
	return 0;
}

/* Notes that @cpu, the caller's, runs something of @rank from now on. */
static __always_inline void set_rank(s32 cpu, struct cpu_ctx *c, u32 rank)
{
	c->rank = rank;
	if (c->held && !is_priority(rank))
		set_held(cpu, false);
}

/* Callers have interrupts off, so nothing else on the CPU can touch it. */
static __always_inline struct bpf_cpumask *scratch_mask(void)
{
	u32 zero = 0;
	struct mask_slot *slot = bpf_map_lookup_elem(&scratch, &zero);

	return slot ? slot->mask : NULL;
}

/* Replaces a slot's mask; RCU waits for readers of the old one. */
static __always_inline void put_mask(struct mask_slot *slot, struct bpf_cpumask *mask)
{
	struct bpf_cpumask *old = bpf_kptr_xchg(&slot->mask, mask);

	if (old)
		bpf_cpumask_release(old);
}

static __always_inline s32 fill_slot(struct mask_slot *slot, bool full)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();

	if (!mask)
		return -12; /* ENOMEM */
	if (full)
		bpf_cpumask_setall(mask);
	put_mask(slot, mask);
	return 0;
}

/*
 * Creates one scratch mask per CPU, and the mask of preemptible CPUs, which at first has all CPUs.
 * Called once, by ops.init.
 */
static __always_inline s32 create_masks(void)
{
	struct mask_slot *slot;
	u32 zero = 0;
	u32 cpu;

	slot = bpf_map_lookup_elem(&preemptible, &zero);
	if (slot && fill_slot(slot, true))
		return -12; /* ENOMEM */
	bpf_for(cpu, 0, machine.nr_cpus) {
		slot = bpf_map_lookup_percpu_elem(&scratch, &zero, cpu);
		/* An id without a possible CPU has no scratch mask. */
		if (slot && fill_slot(slot, false))
			return -12;
	}
	return 0;
}

#endif
