/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the tasks of each rule do: how long they run and wait, how their turns on a CPU begin and
 * end. A row of these counters belongs to a rule for as long as the rule's name is in the policy
 * (src/sched/counter_rows.rs). On request, the same is counted for each pod. Counters are per CPU,
 * so that no CPU waits for another one.
 */
#ifndef GTH_TALLY_H
#define GTH_TALLY_H

#include "sched/group.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GTH_RULE_ROWS);
	__type(key, u32);
	__type(value, struct gth_rule_stats);
} rule_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GTH_POD_ROWS); /* one if pods are not counted */
	__type(key, u32);
	__type(value, struct gth_activity);
} pod_stats SEC(".maps");

static __always_inline struct gth_activity *pod_stats_of(const struct task_ctx *tctx)
{
	u32 row = machine.count_pods ? pod_rows[tctx->group & (GTH_MAX_GROUPS - 1)] : 0;

	return row ? bpf_map_lookup_elem(&pod_stats, &row) : NULL;
}

static __always_inline struct gth_rule_stats *rule_stats_of(const struct task_ctx *tctx)
{
	u32 row = tctx->row;

	return bpf_map_lookup_elem(&rule_stats, &row);
}

/* How long the task has waited for CPUs, ns: the kernel's own count. */
static __always_inline u64 waited_ns(struct task_struct *p)
{
	return bpf_core_field_exists(p->sched_info.run_delay) ? p->sched_info.run_delay : 0;
}

static __always_inline void add_turn(struct gth_activity *did, u64 ran, u64 waited, u32 end)
{
	did->run_ns += ran;
	did->wait_ns += waited;
	did->turns[end]++;
}

static __always_inline bool is_same_core(u32 cpu, u32 other)
{
	u32 i, sibling = cpu;

	if (!machine.smt)
		return false;
	bpf_for(i, 0, MAX_THREADS) {
		sibling = machine.cpu_sibling[sibling & (GTH_MAX_CPUS - 1)];
		if (sibling == other || sibling == cpu)
			break;
	}
	return sibling == other;
}

static __always_inline void add_migration(struct gth_activity *did, u32 from, u32 to)
{
	did->migrations[GTH_MIGRATION_CPU]++;
	if (!is_same_core(from, to))
		did->migrations[GTH_MIGRATION_CORE]++;
	if (machine.cpu_llc[from] != machine.cpu_llc[to])
		did->migrations[GTH_MIGRATION_LLC]++;
	if (machine.cpu_node[from] != machine.cpu_node[to])
		did->migrations[GTH_MIGRATION_NODE]++;
}

/* The task came to a CPU other than its last. */
static __noinline void count_migration(const struct task_ctx *tctx, struct gth_rule_stats *rule, u32 from, u32 to)
{
	struct gth_activity *pod = pod_stats_of(tctx);

	from &= GTH_MAX_CPUS - 1;
	to &= GTH_MAX_CPUS - 1;
	add_migration(&rule->did, from, to);
	if (pod)
		add_migration(pod, from, to);
}

/*
 * Whether the kernel notes when it queues a task, by the clock of now_ns(). It notes the time anew
 * when the task is moved to another CPU's queue. For a task that goes straight onto an idle CPU the
 * kernel's note is enough: gth_select_cpu() need not read the clock.
 */
static __always_inline bool kernel_notes_queueing(struct task_struct *p)
{
	return bpf_ksym_exists(scx_bpf_now) && bpf_core_field_exists(p->sched_info.last_queued);
}

/* The time from the wake-up of a task until it runs. The clocks of two CPUs may differ a little. */
static __always_inline u64 since_wakeup(struct task_struct *p, const struct task_ctx *tctx)
{
	u64 from = tctx->woken_at;
	s64 lag;

	if (!from && kernel_notes_queueing(p))
		from = p->sched_info.last_queued;
	lag = from ? tctx->running_at - from : 0;
	return lag > 0 ? lag : 0;
}

static __always_inline void count_wakeup(struct gth_rule_stats *s, u64 lag, bool priority)
{
	struct gth_stats *all = priority ? my_stats() : NULL;
	u32 bucket = log2_bucket(lag);

	/* The compiler knows that it is below 32; the verifier does not. */
	barrier_var(bucket);
	bucket &= GTH_HIST_BUCKETS - 1;
	s->wakeup_ns[bucket]++;
	s->wakeup_sum_ns += lag;
	if (!all)
		return;
	all->wakeup_ns[bucket]++;
	all->wakeup_sum_ns += lag;
	all->counters[GTH_COUNT_PRIO_WAKEUPS]++;
}

/* The task begins to run on @cpu. */
static __always_inline void count_arrival(struct task_ctx *tctx, s32 cpu)
{
	struct gth_rule_stats *s;
	s32 from = tctx->cpu;

	if (from == cpu)
		return;
	tctx->cpu = cpu;
	s = from == NO_CPU ? NULL : rule_stats_of(tctx);
	if (s)
		count_migration(tctx, s, from, cpu);
}

/*
 * The task has run for @ran more, and perhaps its turn has ended. The wake-up that led to the turn
 * is counted here, too, where nothing waits for it.
 */
static __always_inline void count_turn(struct task_struct *p, struct task_ctx *tctx, u64 ran, u32 end)
{
	struct gth_rule_stats *rule = rule_stats_of(tctx);
	struct gth_activity *pod = pod_stats_of(tctx);
	u64 waited = waited_ns(p), more = waited - tctx->waited;

	end &= GTH_NR_TURN_ENDS - 1;
	tctx->waited = waited;
	if (rule) {
		add_turn(&rule->did, ran, more, end);
		if (tctx->was_woken)
			count_wakeup(rule, tctx->wakeup_lag, is_priority(tctx->rank));
	}
	tctx->was_woken = false;
	if (pod)
		add_turn(pod, ran, more, end);
}

#endif
