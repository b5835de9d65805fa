/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The scheduler's state: what user space sets, the records of CPUs and tasks, the
 * counters. sched/shared.bpf.h has what it shares with the programs that mark tasks.
 */
#ifndef GTH_STATE_H
#define GTH_STATE_H

#include "sched/shared.bpf.h"
#include "scx_compat.bpf.h"

/* ---- set by user space ---- */

const volatile struct gth_machine machine;
const volatile struct gth_enums enums;
struct gth_request request SEC(".bss.request");

/* ---- reported to user space ---- */

struct gth_exit exited SEC(".bss.exited");

/* Gets one byte when the scheduler ends, so that user space need not poll. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

/* Gets one byte when a task changes what rules ask about, for the first time since user space looked. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} changes SEC(".maps");

/* Set together with that byte; user space clears it when it looks. */
u32 tasks_changed SEC(".bss.changed");
/* Likewise, for changes of what `cpus: allocated` stands for: cpusets, and the tasks of such rules. */
u32 cpusets_changed SEC(".bss.changed");

/* Makes the descriptor of a ring buffer readable. */
static __always_inline void tell(void *ringbuf)
{
	u8 *byte = bpf_ringbuf_reserve(ringbuf, sizeof(*byte), 0);

	if (!byte)
		return;
	*byte = 1;
	bpf_ringbuf_submit(byte, 0);
}

static __always_inline void tell_of_change(u32 *changed)
{
	if (*(volatile u32 *)changed || __sync_lock_test_and_set(changed, 1))
		return;
	tell(&changes);
}

static __always_inline void tell_of_changes(void)
{
	tell_of_change(&tasks_changed);
}

/* Has its own stack frame, because its callers are also on the call paths to many other functions. */
static __noinline void tell_of_cpusets(void)
{
	tell_of_change(&cpusets_changed);
}

static __always_inline void count_path(enum gth_path path)
{
	struct gth_stats *s = my_stats();

	if (s)
		s->paths[path]++;
}

/* The binary logarithm of a byte. */
static const u8 log2_of_byte[256] = {
	[2 ... 3] = 1, [4 ... 7] = 2, [8 ... 15] = 3, [16 ... 31] = 4, [32 ... 63] = 5, [64 ... 127] = 6, [128 ... 255] = 7,
};

/* The bucket of gth_stats.wakeup_ns for a latency: its binary logarithm. */
__noinline u32 log2_bucket(u64 ns)
{
	if (ns < 1 << 8)
		return log2_of_byte[ns];
	if (ns < 1 << 16)
		return 8 + log2_of_byte[ns >> 8];
	if (ns < 1 << 24)
		return 16 + log2_of_byte[ns >> 16];
	return ns >> 32 ? 31 : 24 + log2_of_byte[ns >> 24];
}

/*
 * A running mean over about eight samples. An outlier (an interrupted virtual
 * machine) counts as 1 ms.
 */
static __always_inline u64 mean_of(u64 mean, u64 sample)
{
	if (sample > 1000000)
		sample = 1000000;
	return mean ? (mean * 7 + sample) / 8 : sample;
}

static __always_inline bool is_priority(u32 rank)
{
	return rank <= GTH_RANK_WEAKEST_PRIO;
}

/* ---- CPUs ---- */

enum {
	MAX_THREADS = 8,	/* CPUs of a core: no core has more */
};

struct cpu_ctx {
	u32 rank;		/* of what runs there, or is about to (enum gth_rank) */
	u32 next_llc;		/* the LLC that balance() looked at last */
	u64 turn_vtime;		/* virtual time of the running task when its turn began */
	u64 confined_vtime;	/* how far the confined tasks that compete for it have got, clock_for() */
	s64 confined_lag;	/* ... and how far they are behind the clock on average, catch_up() */
	u16 confined_pool;	/* ... and the pool whose clock it is; NO_POOL: nothing is known */
	u64 turn_burst;		/* CPU time that task had used by then since it last slept, ns */
	u64 turn_began;		/* when the turn began; now_ns() */
	u64 turn_pace;		/* pace at which that task's virtual time advances, see sched/group.bpf.h */
	s64 load;		/* weights of the tasks counted in here, minus those counted out here */
	struct counted leaving;	/* how a task that went to sleep here still counts, see count_out_later() */
	bool has_victim;	/* a task waits in the local DSQ: preempted here, or handed over */
	bool held;		/* it is not in the preemptible mask, see sched/masks.bpf.h */
	bool overdue;		/* a task with less CPU time waits for the current turn to end */
	bool overtaken;		/* ... or has ended that turn */
	u32 waiting;		/* tasks that waited for it at its last tick, share_of() */
	u64 prio_debt;		/* CPU time of priority tasks beyond their share, ns */
	u64 protected_until;	/* until then the guard protects the normal task that runs */
	u64 looked_at;		/* when it last looked for tasks that waited too long */
	u64 uneven_at;		/* when it last took a task from another LLC that is only a little fuller */
	bool took_stale;	/* when it last looked (looked_at), it took a task that had waited too long */
	bool endless;		/* the running task's slice has no end, see sched/tickless.bpf.h */
	bool gives_way;		/* its task leaves it to a pinned one of the same rank, give_way() */
	bool has_next;		/* a priority task waits in the local DSQ for the turn to end, comes_next() */
	u64 none_idle_at;	/* when a task was sent here because no CPU was idle */
	u32 releasing;		/* 1 while gth_cpu_release() runs, within which gth_enqueue() runs */
	u64 sync_at;		/* of the running task, see struct task_ctx */
	u64 sync_lag;		/* likewise; 0 while no task of ours runs */
	u32 sync_turn;		/* counts hand-offs up to the next one that is measured */
	u64 idle_lag;		/* mean time from a wake-up until the task runs, if the CPU was idle, ns */
	u64 own_came_at;	/* when a task last came into its DSQ, see sched/waiting.bpf.h */
	u64 passed_since;	/* when a task first went in front of those in the local DSQ; 0: none has */
} __attribute__((aligned(64)));

struct cpu_ctx cpus[GTH_MAX_CPUS];

static __always_inline struct cpu_ctx *cpu_of(s32 cpu)
{
	return &cpus[cpu & (GTH_MAX_CPUS - 1)];
}

/* ---- pools: sets of CPUs that share run queues ---- */

struct pool_ctx {
	u64 vtime_now;		/* the furthest virtual time of a task that has begun to run */
	u32 waiting;		/* tasks in its DSQ at the last tick of one of its CPUs */
	s64 load;		/* of its runnable normal tasks, see sched/group.bpf.h */
	u64 priority_came_at;	/* when a task last came into its priority DSQ, see sched/waiting.bpf.h */
} __attribute__((aligned(64)));

struct pool_ctx pools[GTH_MAX_POOLS];

static __always_inline struct pool_ctx *pool_of(u32 pool)
{
	return &pools[pool & (GTH_MAX_POOLS - 1)];
}

/*
 * DSQ ids. A pool has a DSQ in virtual time order and a priority DSQ. Each CPU has
 * one for normal tasks that may run nowhere else.
 */
enum {
	DSQ_POOL = 0x100000,
	DSQ_PRIO = 0x200000,
	DSQ_CPU = 0x300000,
	DSQ_HELD = 0x400000,	/* + a group: the tasks that the group's limit holds back */
};

static __always_inline bool pool_is_exclusive(u32 pool)
{
	return pool >= machine.nr_llcs;
}

static __always_inline u64 pool_dsq(u32 pool)
{
	return DSQ_POOL + pool;
}

static __always_inline u64 prio_dsq(u32 pool)
{
	return DSQ_PRIO + pool;
}

static __always_inline u64 cpu_dsq(s32 cpu)
{
	return DSQ_CPU + (u32)cpu;
}

enum {
	AGE_NS = 20000000,	/* a task that came this much earlier goes before the next stronger rank */
	RANK_BITS = 15,		/* mask of the rank in a key: more than GTH_RANK_WEAKEST_PRIO */
};

/*
 * A priority DSQ is ordered by rank, but no task is passed over for ever: the key is the
 * time from which the task goes before all later ones. Its lowest bits hold the rank.
 */
static __always_inline u64 prio_key(u32 rank)
{
	return ((now_ns() + (u64)rank * AGE_NS) & ~(u64)RANK_BITS) | rank;
}

/* The rank of a task in a priority DSQ: the strongest once it has waited long enough. */
static __always_inline u32 prio_key_rank(u64 key)
{
	if (key == NO_KEY)
		return GTH_RANK_IDLE;
	return (s64)(key - now_ns()) <= 0 ? 0 : key & RANK_BITS;
}

/* ---- policy ---- */

/* Nonzero if there is one. A number, so that the verifier follows one path for several of them. */
static __always_inline u64 any_rule(const struct gth_rules *rules)
{
	return rules->word[0] | rules->word[1];
}

static __always_inline u32 cpu_pool(const struct gth_tables *t, s32 cpu)
{
	return t->cpu_pool[cpu & (GTH_MAX_CPUS - 1)];
}

/* ---- tasks ---- */

enum {
	NO_POOL = 0xffff,
	NO_CPU = -1,
};

/* The id of the newest task (task_ctx.id). */
u64 newest_id;

/*
 * One word, so that a rule is never read with another generation's number. No
 * generation is 0: the word 0 means that the task has to be matched again.
 */
static __always_inline u64 match_word(u32 generation, u16 rule)
{
	return (u64)generation << 32 | rule;
}

static __always_inline u32 match_generation(u64 match)
{
	return match >> 32;
}

static __always_inline u32 match_rule(u64 match)
{
	return (u32)match;
}

/*
 * How much the BPF programs that run now add to the task's count of RCU read-side critical
 * sections: each runs in one (kernel/bpf/trampoline.c). On the current task a count of 1 means
 * nothing, and neither does 2 if one program runs within another. Where programs disable migration,
 * the task counts that in the same way.
 */
static __always_inline u32 depth_of_programs(struct task_struct *p)
{
	return bpf_get_current_task_btf() == p ? 1 + cpu_of(bpf_get_smp_processor_id())->releasing : 0;
}

static __noinline bool is_migration_disabled(struct task_struct *p)
{
	u16 depth = p->migration_disabled;

	return depth && depth > (machine.programs_pin ? depth_of_programs(p) : 0);
}

/* Whether the task cannot leave its CPU now, although its affinity allows it. */
static __always_inline bool is_held(struct task_struct *p)
{
	return p->nr_cpus_allowed > 1 && is_migration_disabled(p);
}

static __always_inline bool is_pinned(struct task_struct *p)
{
	return p->nr_cpus_allowed == 1 || is_migration_disabled(p);
}

static __always_inline bool is_percpu_kthread(struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

/* ---- cgroups ---- */

/* Picks the cpu controller's state from those of all controllers that a cgroup or a task has. */
static __always_inline struct cgroup_subsys_state *cpu_state(struct cgroup_subsys_state *const *subsys)
{
	u32 cpu = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	struct cgroup_subsys_state *css = NULL;

	bpf_probe_read_kernel(&css, sizeof(css), subsys + cpu);
	return css;
}

#endif
