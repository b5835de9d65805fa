/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Measures how the choice of a CPU at a wake-up depends on the number of CPUs. It runs the scheduler's
 * own code (bpf/sched) many times on records and masks of CPUs that need not exist. The kernel must
 * have as many possible CPUs, or its masks do not hold them. Its masks of idle CPUs are the real ones
 * and need a sched_ext scheduler to be loaded meanwhile; CPUs that do not exist are never idle.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "intf.h"
#include "scx_compat.bpf.h"
#include "sched/wakeup.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* What user space asks for, and the answer. */
struct gth_wakeups {
	u32 calls;
	u32 rank;		/* of the task that wakes up */
	u32 generation;		/* selects the masks: even ones lack the CPUs that exist */
	u32 ticked;		/* priority tasks have run for a tick on the CPUs that run them */
	u32 turn;		/* counts up, to give each wake-up another previous CPU */
	u32 chosen;		/* wake-ups that got a CPU */
	u64 ns;			/* the time that all of them took */
	u8 ranks[GTH_MAX_CPUS];	/* the rank of what runs on each CPU */
};

struct gth_wakeups wakeups SEC(".bss.wakeups");

enum {
	REAL_CPUS = 2,	/* CPUs that exist: one runs this, the other one is idle */
};

static __always_inline s32 add_mask(u32 index, u32 first, u32 end)
{
	struct mask_slot *slot = bpf_map_lookup_elem(&masks, &index);
	struct bpf_cpumask *mask;
	u32 cpu;

	if (!slot)
		return -22; /* EINVAL */
	mask = bpf_cpumask_create();
	if (!mask)
		return -12; /* ENOMEM */
	bpf_for(cpu, first, end)
		bpf_cpumask_set_cpu(cpu, mask);
	put_mask(slot, mask);
	return 0;
}

/* The masks of all CPUs and of each LLC, for both parities of the generation. */
SEC("syscall")
int make_masks(void *ctx)
{
	u32 per_llc = machine.nr_cpus / machine.nr_llcs;
	s32 err = create_masks();
	u32 odd, llc;

	bpf_for(odd, 0, 2) {
		u32 first = odd * GTH_NR_MASKS;
		u32 least = odd ? 0 : REAL_CPUS;

		err = err ?: add_mask(first + GTH_MASK_NORMAL, least, machine.nr_cpus);
		bpf_for(llc, 0, machine.nr_llcs) {
			u32 begin = llc ? llc * per_llc : least;

			err = err ?: add_mask(first + GTH_MASK_LLC + llc, begin, (llc + 1) * per_llc);
		}
	}
	return err;
}

/* Makes the other CPU look for work: it finds none and counts as idle again. */
SEC("syscall")
int kick(void *ctx)
{
	scx_bpf_kick_cpu(1 - bpf_get_smp_processor_id(), 0);
	return 0;
}

/* Sets what runs on a CPU to what user space says. */
static __always_inline void occupy_anew(u32 cpu)
{
	cpu_of(cpu)->rank = wakeups.ranks[cpu & (GTH_MAX_CPUS - 1)];
}

__noinline int occupy_all(void)
{
	u32 cpu;

	bpf_for(cpu, 0, machine.nr_cpus) {
		occupy_anew(cpu);
		set_held(cpu, wakeups.ticked && is_priority(cpu_of(cpu)->rank));
	}
	return 0;
}

/* The CPU for a task that was on @prev, or NO_CPU, chosen as in gth_select_cpu(). */
__noinline s32 cpu_for(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull, s32 prev)
{
	const struct gth_tables *t = live_tables(wakeups.generation);
	s32 here = bpf_get_smp_processor_id();
	struct plan plan = {
		.place = {
			.generation = wakeups.generation,
			.mask = GTH_MASK_NORMAL,
			.first = NO_MASK,
		},
		.rank = wakeups.rank,
		.pool = cpu_pool(t, prev),
		.cpu = prev,
	};
	s32 cpu = pick_idle(p, &plan, prev, 0);

	if (cpu >= 0)
		return cpu;
	if (!is_priority(plan.rank))
		return overtake(p, tctx, &plan, here, false);
	return claim(p, &plan, prev, here);
}

/* The previous CPU is neither in the first LLC, the caller's, nor in the last one. */
static __always_inline s32 next_prev(void)
{
	u32 per_llc = machine.nr_cpus / machine.nr_llcs;

	return per_llc + wakeups.turn++ * 5 % (machine.nr_cpus - 2 * per_llc);
}

SEC("fentry/bpf_fentry_test1")
int BPF_PROG(wake_up)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *tctx = bpf_task_storage_get(&task_ctxs, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 begin;
	u32 i;

	if (!tctx)
		return 0;
	occupy_all();
	wakeups.chosen = 0;
	begin = bpf_ktime_get_ns();
	bpf_for(i, 0, wakeups.calls) {
		s32 cpu = cpu_for(p, tctx, next_prev());

		if (cpu < 0)
			continue;
		wakeups.chosen++;
		occupy_anew(cpu);
	}
	wakeups.ns = bpf_ktime_get_ns() - begin;
	return 0;
}
