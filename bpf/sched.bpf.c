/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gthctl's sched_ext scheduler.
 *
 * A task that wakes up goes straight onto an idle CPU. If there is none, a
 * priority task preempts something weaker, and a normal task goes into its
 * pool's DSQ in virtual time order. A pool is an LLC's CPUs, or the exclusive
 * CPUs of a rule. When a CPU has nothing to run it takes, in this order: a
 * waiting priority task, the earliest normal task of its own or its pool's
 * DSQ, one of another LLC, the task it just ran.
 *
 * Two mechanisms keep priority tasks from starving the rest, each with its own
 * test in tests/vm/suite. First, a priority task that runs BURST_SLICES slices
 * without sleeping shares the CPU fairly until it sleeps, unless it is processing
 * packets. Second, a CPU that has given priority tasks GUARD_RATIO times as much
 * time as normal tasks gives the normal tasks a turn. A priority task that keeps
 * running pays for that turn; one that was just woken up goes first until twice
 * as much is owed.
 *
 * Every SEC() program is in this file. The other code is in sched/ and marks/, by topic.
 *
 * vmlinux_min.h      the kernel's types
 * scx_compat.bpf.h   one name for each kfunc
 * intf.h             shared with user space
 * sched/shared       shared with mark.bpf.c
 * sched/state        CPU, pool and task records
 * sched/waiting      tasks that wait in the DSQs
 * sched/masks        CPU masks
 * sched/paths        the names and paths that rules ask about
 * sched/match        which rule a task falls under
 * sched/ask          making the running task choose its CPU anew
 * sched/tally        counters of each rule's tasks
 * sched/group        shares of CPU time between cgroups
 * sched/limit, refill
 *                    limits of CPU time of cgroups
 * sched/clock        virtual time and slices
 * sched/plan         how a rule applies to a task
 * sched/idle         finding a CPU
 * sched/wakeup, queue, dispatch, turn, life
 *                    a task's path: woken up, queued, taken by a CPU, on it and off it
 * sched/tickless     CPUs without a tick
 * sched/drain        tasks that wait when a policy changes
 * marks/mark         tasks that process packets
 * marks/context      in whose context a packet is processed
 * marks/woken        tasks that marked tasks wake up
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "intf.h"
#include "scx_compat.bpf.h"
#include "sched/wakeup.bpf.h"
#include "sched/queue.bpf.h"
#include "sched/dispatch.bpf.h"
#include "sched/turn.bpf.h"
#include "sched/life.bpf.h"
#include "sched/drain.bpf.h"
#include "sched/refill.bpf.h"
#include "sched/server.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* ---- wake-up ---- */

SEC("struct_ops/select_cpu")
s32 BPF_PROG(gth_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	struct task_ctx *tctx = task_of(p);
	s32 here = bpf_get_smp_processor_id();
	struct plan *plan = plan_on(here);
	enum gth_path path;
	u64 match;
	s32 cpu;

	if (!tctx)
		return prev;
	tctx->woken = true;
	note_handed_on(p, tctx, wake_flags & WAKE_SYNC);
	match = *(volatile u64 *)&tctx->match;
	if (!is_current(tctx, match)) {
		if (live_tables(tunables.generation)->nr_rules)
			return prev; /* gth_enqueue() matches it */
		match = 0;
	}
	make_plan(p, tctx, prev, match, plan);
	if (held_by(p, tctx) != NO_GROUP)
		return prev; /* gth_enqueue() holds it back */
	if (is_priority(plan->rank) && (wake_flags & WAKE_SYNC))
		note_work();
	if (is_priority(plan->rank) || !kernel_notes_queueing(p))
		note_wakeup_time(tctx);

	cpu = choose_cpu(p, tctx, plan, prev, wake_flags, here, &path);
	if (cpu < 0)
		return plan->cpu; /* gth_enqueue() queues it */
	tctx->rank = plan->rank;
	set_clock(p, tctx, plan->rank, plan->pool, cpu);
	count_path(path);
	dsq_insert(p, DSQ_LOCAL, plan->slice, flags_of(path));
	return cpu;
}

/* ---- queueing ---- */

SEC("struct_ops/enqueue")
void BPF_PROG(gth_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *tctx = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct plan *plan = plan_on(bpf_get_smp_processor_id());
	enum gth_path path;
	u64 match;
	u32 holder;
	s32 to;

	if (!tctx) {
		dsq_insert(p, DSQ_LOCAL, tunables.slice_ns, enq_flags);
		return;
	}
	plan->pinned = is_pinned(p);
	if (plan->pinned) /* gth_select_cpu() was not called */
		note_handed_on(p, tctx, enq_flags & ENQ_WAKEUP);
	match = *(volatile u64 *)&tctx->match;
	plan->is_new = !is_current(tctx, match);
	charge_kept(p, tctx, cpu);
	if (plan->is_new)
		match = match_anew(p, tctx);
	make_plan(p, tctx, cpu, match, plan);
	if (plan->pinned && is_priority(plan->rank) && (enq_flags & ENQ_WAKEUP))
		note_work(); /* the kernel passes no WF_SYNC here */
	note_queueing(tctx, enq_flags);
	tctx->rank = plan->rank;
	plan->last = enq_flags & ENQ_LAST;
	plan->none_idle = !plan->last && !(enq_flags & ENQ_WAKEUP) && !plan->place.exclusive &&
			  tctx->queued_at - cpu_of(cpu)->none_idle_at < NONE_IDLE_NS;
	if (plan->pinned) /* it waits for this CPU, no matter which CPUs its rule gives it */
		plan->pool = cpu_pool(live_tables(plan->place.generation), cpu);
	/* With affinity_override it may wait in virtual time order, see wait_for_cpu(). */
	set_clock(p, tctx, plan->affinity_override ? GTH_RANK_NORMAL : plan->rank, plan->pool, cpu);
	holder = held_by(p, tctx);
	if (holder != NO_GROUP) {
		hold_back(p, tctx, holder, plan->slice);
		return;
	}
	if (is_priority(plan->rank)) {
		if (tctx->counted.weight)
			count_out(&tctx->counted);
	} else if (!is_percpu_kthread(p)) {
		count_in(p, tctx, plan->pool);
	}

	if (plan->affinity_override)
		count_rarely(is_percpu_kthread(p) ? GTH_COUNT_RESERVED_KTHREAD : GTH_COUNT_RESERVED_PINNED);
	to = local_cpu(p, tctx, plan, cpu, enq_flags, &path);
	if (to >= 0)
		go_to(p, plan, to, path, enq_flags);
	else
		wait_for_cpu(p, tctx, plan, cpu, enq_flags);
}

/* ---- a CPU needs something to run ---- */

static __always_inline void dispatch(s32 cpu, struct task_struct *prev, bool match)
{
	u32 pool = cpu_pool(live_tables(tunables.generation), cpu);
	struct cpu_ctx *c = cpu_of(cpu);
	struct last last = {.rank = GTH_RANK_IDLE};
	bool guarded;

	end_leaving(c);
	if (*(volatile u32 *)&limits.released)
		release_some();
	look_at_last(prev, cpu, match, &last);
	if (last.rank != GTH_RANK_IDLE && (c->endless ? take_beside_endless(pool, cpu) : becomes_endless(&last, cpu)))
		return;
	guarded = owes_a_turn(last.rank, pool, cpu);
	if (now_ns() - c->looked_at >= LOOK_NS && look_for_stale(cpu, pool))
		return;
	if (!guarded && (take_priority(&last, pool, cpu) || balance(cpu, pool)))
		return;
	if (take_earliest(&last, c, pool, cpu, guarded))
		return;
	if (guarded && take_waiting_priority(pool))
		return;
	if (last.rank != GTH_RANK_IDLE)
		keep(&last, cpu);
	else if (!steal(pool))
		go_idle(cpu, c);
}

SEC("struct_ops/dispatch")
void BPF_PROG(gth_dispatch, s32 cpu, struct task_struct *prev)
{
	dispatch(cpu, prev, false);
}

/*
 * For kernels without a kick. A task that has changed is matched at once: if it were queued again,
 * nothing would wake this CPU for it (goes_on_here()). This is a program of its own because the
 * verifier takes long to verify the matching of rules.
 */
SEC("struct_ops/dispatch")
void BPF_PROG(gth_dispatch_without_kick, s32 cpu, struct task_struct *prev)
{
	dispatch(cpu, prev, true);
}

/* ---- on and off the CPU ---- */

SEC("struct_ops/running")
void BPF_PROG(gth_running, struct task_struct *p)
{
	struct task_ctx *tctx = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = cpu_of(cpu);
	struct pool_ctx *pool;
	bool was_kept;

	if (!tctx)
		return;
	set_rank(cpu, c, tctx->rank);
	was_kept = charge_kept(p, tctx, cpu);
	if (!was_kept) {
		tctx->charged_until = p->se.sum_exec_runtime;
		tctx->turn_began = tctx->charged_until;
		tctx->turn_slice = p->scx.slice;
	}
	tctx->running_at = c->overdue && !c->overtaken && !is_priority(tctx->rank) ? switched_at(cpu) : now_ns();
	tctx->held_since = 0;
	c->sync_at = tctx->sync_at;
	c->sync_lag = tctx->sync_lag;
	c->overdue = false;
	c->overtaken = false;
	c->gives_way = false;
	c->has_next = false;
	c->turn_vtime = tctx->vtime;
	c->turn_burst = tctx->burst;
	c->turn_began = tctx->running_at;
	c->turn_pace = tctx->pace;
	if (!is_priority(tctx->rank) && !is_percpu_kthread(p))
		count_running(p, tctx, c, cpu);
	if (was_kept) {
		c->has_victim = false;
		end_victims_turn(tctx, cpu);
	}
	if (tctx->woken) {
		tctx->wakeup_lag = since_wakeup(p, tctx);
		tctx->was_woken = true;
		tctx->woken_at = 0;
		if (tctx->idle_woken)
			c->idle_lag = mean_of(c->idle_lag, tctx->wakeup_lag);
	}
	count_arrival(tctx, cpu);
	tctx->woken = false;
	tctx->idle_woken = false;
	c->endless = may_be_endless(p, tctx, cpu);
	if (c->endless)
		task_set_slice(p, ENDLESS);
	if (tctx->need_resched) /* the timer found another task here */
		ask_soon();
	if (held_by(p, tctx) != NO_GROUP) { /* it was already queued, or has waited too long */
		task_set_slice(p, 0);
		kick_preempt(cpu);
	}
	if (is_priority(tctx->rank) || tctx->pool == NO_POOL)
		return;
	pool = pool_of(tctx->pool);
	if ((s64)(tctx->vtime - pool->vtime_now) > 0)
		pool->vtime_now = tctx->vtime;
}

SEC("struct_ops/stopping")
void BPF_PROG(gth_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *tctx = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = cpu_of(cpu);

	if (!tctx)
		return;
	tctx->sync_at = c->sync_at;
	c->sync_lag = 0;
	if (runnable && keep_place(p, tctx, cpu))
		return;
	charge(p, tctx, cpu, runnable ? end_of_turn(p, tctx, c) : GTH_TURN_SLEPT);
	if (runnable)
		return;
	settle(p, tctx, cpu);
	count_out_later(tctx, c);
	tctx->burst = 0;
	if (tctx->sync_at > SYNC_UNTIMED)
		tctx->sync_lag = mean_of(tctx->sync_lag, now_ns() - tctx->sync_at);
	tctx->sync_at = 0;
}

/*
 * A priority task waits in a DSQ if it found no CPU to take over, or if its
 * waker broke its promise to sleep. A tick ends this wait at the latest. A tick
 * also ends the turn of
 * - a task that has to be matched against a newer policy,
 * - a task that was asked to leave and could not,
 * - a task if another one waits for its turn to end (is_overdue()),
 * - a task with an endless slice while something waits for the CPU,
 * - any task while there are waiting tasks that their limits no longer hold back.
 *
 * A task may also have been queued while a CPU that had already looked into the DSQ went idle.
 * A tick of any other CPU finds it.
 */
SEC("struct_ops/tick")
void BPF_PROG(gth_tick, struct task_struct *p)
{
	struct task_ctx *tctx = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u32 pool = cpu_pool(live_tables(tunables.generation), cpu);
	struct cpu_ctx *c = cpu_of(cpu);
	struct waiting waiting;

	if (!tctx)
		return;
	waiting = count_waiting(pool, cpu);
	pool_of(pool)->waiting = waiting.shared;
	c->waiting = share_of(&waiting, pool);
	renew_notes(&waiting, pool, cpu);
	note_confined(p, tctx, &waiting, pool, cpu);
	if (is_priority(c->rank)) {
		if (!c->held)
			set_held(cpu, true);
		if (cpu == bpf_get_smp_processor_id()) /* not for a CPU without a tick: sched_tick_remote() */
			requeue_victim(c);
	}
	keep_share(tctx->group);
	if (c->endless || is_limited(tctx))
		charge(p, tctx, cpu, GTH_TURN_GOES_ON);
	if (tctx->need_resched || !is_matched(tctx) || held_by(p, tctx) != NO_GROUP || is_overdue(c)) {
		c->overdue = false;
		task_set_slice(p, 0);
		return;
	}
	if ((waiting.priority && prio_key_rank(prio_head_key(pool, cpu)) < c->rank && !is_protected(c)) ||
	    (c->endless && (waiting.own || waiting.shared || waiting.priority || waits_locally(cpu))) ||
	    *(volatile u32 *)&limits.released)
		task_set_slice(p, 0);
	if (can_kick() && !pool_is_exclusive(pool))
		kick_for_waiting(&waiting, pool);
}

/*
 * A real-time task has taken the CPU: the task it displaced and the tasks in the local
 * DSQ are enqueued again. This is not done for the stopper, which leaves again at once.
 */
SEC("struct_ops/cpu_release")
void BPF_PROG(gth_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	struct cpu_ctx *c = cpu_of(cpu);

	end_leaving(c);
	if (!bpf_ksym_exists(scx_bpf_reenqueue_local) ||
	    args->reason == SCX_ENUM(scx_cpu_preempt_reason, SCX_CPU_PREEMPT_STOP))
		return;
	c->releasing = 1;
	scx_bpf_reenqueue_local();
	c->releasing = 0;
}

/* ---- life cycle ---- */

SEC("struct_ops.s/init_task")
s32 BPF_PROG(gth_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *tctx = bpf_task_storage_get(&task_ctxs, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!tctx)
		return -12; /* ENOMEM */
	tctx->pool = NO_POOL;
	tctx->cpu = NO_CPU;
	tctx->rank = GTH_RANK_NORMAL;
	tctx->id = __sync_fetch_and_add(&newest_id, 1) + 1;
	if (bpf_core_field_exists(args->cgroup) && args->cgroup)
		tctx->group = group_of(args->cgroup);
	if (args->fork)
		inherit(p, tctx);
	BPF_CORE_READ_STR_INTO(&tctx->comm, p, comm);
	return 0;
}

/* The task comes under this scheduler. */
SEC("struct_ops/enable")
void BPF_PROG(gth_enable, struct task_struct *p)
{
	struct task_ctx *tctx = task_of(p);

	if (tctx)
		tctx->waited = waited_ns(p);
}

/* The task leaves this scheduler: for a scheduling policy other than SCHED_OTHER, or for good. */
SEC("struct_ops/disable")
void BPF_PROG(gth_disable, struct task_struct *p)
{
	struct task_ctx *tctx = task_of(p);

	if (!tctx)
		return;
	count_out(&tctx->counted);
	tctx->woken = false;
	tctx->woken_at = 0;
	tctx->held_since = 0;
	tctx->kept = false;
}

/*
 * A task gets another affinity, perhaps because of another cpuset. This may be any task: as a result, the
 * cpuset of a rule's tasks may now be theirs alone, or no longer be.
 */
SEC("struct_ops/set_cpumask")
void BPF_PROG(gth_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	if (live_tables(tunables.generation)->allocated && !is_migration_disabled(p))
		tell_of_cpusets();
}

/* A task that exits frees its place among the marked tasks. */
SEC("struct_ops/exit_task")
void BPF_PROG(gth_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	const struct gth_tables *t = live_tables(tunables.generation);
	struct task_ctx *tctx = task_of(p);
	struct gth_marks *m;
	u32 i;

	if (tctx)
		note_allocated(*(volatile u64 *)&tctx->match);
	if (!t->nr_traffic)
		return;
	m = bpf_task_storage_get(&marks, p, NULL, 0);
	if (!m)
		return;
	bpf_for(i, 0, t->nr_traffic) {
		const struct gth_traffic *traffic = &t->traffic[i & (GTH_MAX_TRAFFIC - 1)];
		struct gth_mark *mark = mark_of(m, traffic);
		u64 until = *(volatile u64 *)&mark->until;

		if (mark->condition == traffic->id && until)
			end_mark(traffic, mark, until);
	}
}

/* ---- cgroups ---- */

SEC("struct_ops.s/cgroup_init")
s32 BPF_PROG(gth_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	s32 err = add_group(cgrp, is_idle_group(cgrp) ? IDLE_WEIGHT : args->weight);
	u32 index = own_group_of(cgrp);

	if (err || index == ROOT_GROUP)
		return err;
	err = scx_bpf_create_dsq(held_dsq(index), -1); /* cgroup_set_bandwidth() cannot: it may not sleep */
	if (err)
		return err;
	if (bpf_core_field_exists(args->bw_quota_us))
		set_limit_us(index, args->bw_period_us, args->bw_quota_us, args->bw_burst_us);
	else
		read_limit(index, cgrp);
	return 0;
}

SEC("struct_ops.s/cgroup_exit")
void BPF_PROG(gth_cgroup_exit, struct cgroup *cgrp)
{
	u32 index = own_group_of(cgrp);
	struct group *group = group_at(index);

	if (live_tables(tunables.generation)->allocated)
		tell_of_cpusets();
	if (group && index != ROOT_GROUP) {
		drop_limit(index, group);
		scx_bpf_destroy_dsq(held_dsq(index));
	}
	drop_group(cgrp);
}

SEC("struct_ops/cgroup_move")
void BPF_PROG(gth_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct task_ctx *tctx = task_of(p);

	if (!tctx)
		return;
	count_out(&tctx->counted);
	tctx->group = group_of(to);
}

SEC("struct_ops/cgroup_set_weight")
void BPF_PROG(gth_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	set_group_weight(cgrp, weight);
}

/*
 * A write to cpu.idle, even one that does not change it: systemd writes 0 before each weight. The kernel
 * reports that weight only if it differs from the last one that it reported.
 */
SEC("struct_ops/cgroup_set_idle")
void BPF_PROG(gth_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	set_group_weight(cgrp, idle ? IDLE_WEIGHT : told_weight(cgrp));
}

SEC("struct_ops/cgroup_set_bandwidth")
void BPF_PROG(gth_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	set_limit_us(own_group_of(cgrp), period_us, quota_us, burst_us);
}

/* For kernels without ops.cgroup_set_bandwidth(): a limit was written to a file. Times in ns. */
SEC("fexit/tg_set_cfs_bandwidth")
int BPF_PROG(gth_limit_set, struct task_group *group, u64 period, u64 quota, u64 burst, int err)
{
	if (!err)
		set_limit(own_group_of(BPF_CORE_READ(group, css.cgroup)), period, quota, burst);
	return 0;
}

SEC("struct_ops.s/init")
s32 BPF_PROG(gth_init)
{
	s32 node, err;
	u32 i;

	err = create_masks();
	if (err)
		return err;
	init_refill();
	bpf_for(i, 0, machine.nr_cpus) {
		cpu_of(i)->rank = GTH_RANK_NORMAL;
		init_ask(i);
		err = scx_bpf_create_dsq(cpu_dsq(i), machine.cpu_node[i & (GTH_MAX_CPUS - 1)]);
		if (err)
			return err;
	}
	bpf_for(i, 0, machine.nr_llcs + 2 * GTH_MAX_RESERVED) {
		node = pool_is_exclusive(i) ? -1 : machine.llc_node[i & (GTH_MAX_LLCS - 1)];
		err = scx_bpf_create_dsq(pool_dsq(i), node);
		if (err)
			return err;
		err = scx_bpf_create_dsq(prio_dsq(i), node);
		if (err)
			return err;
	}
	return 0;
}

SEC("struct_ops.s/exit")
void BPF_PROG(gth_exit, struct scx_exit_info *ei)
{
	u32 len = ei->bt_len;

	bpf_probe_read_kernel_str(exited.reason, sizeof(exited.reason), ei->reason);
	bpf_probe_read_kernel_str(exited.msg, sizeof(exited.msg), ei->msg);
	if (len > GTH_BT_LEN)
		len = GTH_BT_LEN;
	bpf_probe_read_kernel(exited.bt, len * sizeof(exited.bt[0]), ei->bt);
	exited.bt_len = len;
	exited.exit_code = ei->exit_code;
	exited.kind = ei->kind;
	tell(&events);
}

/* ---- changes of what rules ask about ---- */

/*
 * prctl(PR_SET_NAME), a write to /proc/PID/comm, or exec. Runs before the
 * kernel stores the name (fs/exec.c, __set_task_comm()), so the new name comes
 * from the event. Renaming a process leader changes what its threads match.
 */
SEC("tp_btf/task_rename")
int BPF_PROG(gth_task_rename, struct task_struct *p, const char *new_comm)
{
	struct task_ctx *tctx = task_of(p);
	struct task_struct *thread;

	if (!tctx)
		return 0;
	bpf_probe_read_kernel_str(tctx->comm, sizeof(tctx->comm), new_comm);
	match_again(p);
	if (p->pid == p->tgid) {
		bpf_for_each(task, thread, p, BPF_TASK_ITER_PROC_THREADS) {
			if (thread != p)
				match_again(thread);
		}
	}
	tell_of_changes();
	return 0;
}

/* A write to cgroup.procs or cgroup.threads. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(gth_cgroup_attach, struct cgroup *to, const char *path, struct task_struct *p, bool whole_process)
{
	struct task_struct *thread;

	match_again(p);
	if (whole_process) {
		bpf_for_each(task, thread, p, BPF_TASK_ITER_PROC_THREADS)
			match_again(thread);
	}
	tell_of_changes();
	return 0;
}

/* setuid(2) and the like; also the last step of an exec that a rule may ask about. */
SEC("fexit/commit_creds")
int BPF_PROG(gth_commit_creds)
{
	match_again(bpf_get_current_task_btf());
	tell_of_changes();
	return 0;
}

/* setns(2), unshare(2). */
SEC("fexit/switch_task_namespaces")
int BPF_PROG(gth_switch_namespaces)
{
	match_again(bpf_get_current_task_btf());
	tell_of_changes();
	return 0;
}

/* ---- for user space ---- */

/* Matches every task, or request.tid, against one of the tables; changes nothing. */
SEC("iter/task")
int report_task(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct task_ctx *tctx;
	struct scratch *s;
	struct gth_verdict *v;

	if (!p || (request.tid && p->pid != request.tid))
		return 0;
	tctx = task_of(p);
	s = scratch_of(SCRATCH_ITER);
	if (!tctx || !s)
		return 0;
	match_task(p, request.tables, request.tables == GTH_TABLES_TRIAL ? 0 : tunables.generation, SCRATCH_ITER);
	conclude(request.tables, SCRATCH_ITER);
	v = &s->verdict;
	v->tid = p->pid;
	v->tgid = p->tgid;
	v->in_force = match_rule(tctx->match);
	v->generation = match_generation(tctx->match);
	v->group = tctx->group;
	__builtin_memcpy(v->comm, tctx->comm, GTH_COMM_LEN);
	bpf_seq_write(ctx->meta->seq, v, sizeof(*v));
	return 0;
}

/* Reports what the live policy's conditions know about each task, or request.tid; ends expired marks. */
SEC("iter/task")
int report_mark(struct bpf_iter__task *ctx)
{
	const struct gth_tables *t = live_tables(tunables.generation);
	struct task_struct *p = ctx->task;
	struct gth_mark_report report = {};
	struct gth_marks *m;
	u64 now, until;
	u32 i;

	if (!p || (request.tid && p->pid != request.tid))
		return 0;
	m = bpf_task_storage_get(&marks, p, NULL, 0);
	if (!m)
		return 0;
	now = marks_now();
	bpf_for(i, 0, t->nr_traffic) {
		const struct gth_traffic *traffic = &t->traffic[i & (GTH_MAX_TRAFFIC - 1)];
		struct gth_mark *mark = mark_of(m, traffic);

		if (mark->condition != traffic->id)
			continue;
		until = *(volatile u64 *)&mark->until;
		if (until && until <= now)
			end_mark(traffic, mark, until);
		report.tid = p->pid;
		report.tgid = p->tgid;
		bpf_probe_read_kernel_str(report.comm, sizeof(report.comm), p->comm);
		report.mark = *mark;
		bpf_seq_write(ctx->meta->seq, &report, sizeof(report));
	}
	return 0;
}

/*
 * Makes the scheduler match every task again, by its current name. Used when the kernel has skipped
 * one of the programs above (src/sched/scheduler.rs, has_missed_changes()).
 */
SEC("iter/task")
int rematch_task(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct task_ctx *tctx = p ? task_of(p) : NULL;

	if (!tctx)
		return 0;
	bpf_probe_read_kernel_str(tctx->comm, sizeof(tctx->comm), p->comm);
	match_again(p);
	return 0;
}

/* Replaces a mask as requested. */
SEC("syscall")
int set_mask(void *ctx)
{
	struct bpf_cpumask *mask;
	struct mask_slot *slot;
	u32 index = request.mask;
	u32 cpu;

	slot = bpf_map_lookup_elem(&masks, &index);
	if (!slot)
		return -22; /* EINVAL */
	mask = bpf_cpumask_create();
	if (!mask)
		return -12; /* ENOMEM */
	bpf_for(cpu, 0, machine.nr_cpus) {
		if ((request.cpus[(cpu / 64) & (GTH_CPU_WORDS - 1)] >> (cpu % 64)) & 1)
			bpf_cpumask_set_cpu(cpu, mask);
	}
	put_mask(slot, mask);
	return 0;
}

static __always_inline void clear_answer(void)
{
	u32 word;

	bpf_for(word, 0, GTH_CPU_WORDS)
		request.cpus[word & (GTH_CPU_WORDS - 1)] = 0;
}

static __always_inline void answer_with(u32 cpu)
{
	request.cpus[(cpu / 64) & (GTH_CPU_WORDS - 1)] |= 1ULL << (cpu % 64);
}

/* Reads a mask back, as the scheduler sees it. */
SEC("syscall")
int get_mask(void *ctx)
{
	struct mask_slot *slot;
	const struct cpumask *mask;
	u32 index = request.mask;
	u32 cpu;

	slot = bpf_map_lookup_elem(&masks, &index);
	if (!slot)
		return -22; /* EINVAL */
	clear_answer();
	bpf_rcu_read_lock();
	mask = (const struct cpumask *)slot->mask;
	if (mask) {
		bpf_for(cpu, 0, machine.nr_cpus) {
			if (bpf_cpumask_test_cpu(cpu, mask))
				answer_with(cpu);
		}
	}
	bpf_rcu_read_unlock();
	return 0;
}

/*
 * Finds the CPUs whose ext server has stopped although there are tasks of this scheduler
 * (sched/server.bpf.h). Loaded only on kernels with such servers.
 */
SEC("syscall")
int get_stopped_servers(void *ctx)
{
	u32 cpu;

	clear_answer();
	bpf_for(cpu, 0, machine.nr_cpus) {
		if (server_has_stopped(cpu))
			answer_with(cpu);
	}
	return 0;
}

/*
 * Makes request.generation the live one for waiting and running tasks. This is a single
 * program because its caller may wait long for its next turn. When run again, it moves the
 * tasks that were queued in the meantime.
 */
SEC("syscall")
int go_live(void *ctx)
{
	u32 old;

	bpf_preempt_disable();
	old = tunables.generation;
	/* A barrier: any code that sees the generation also sees its tables. */
	__sync_lock_test_and_set(&tunables.generation, request.generation);
	drain_all();
	kick_changed(old, request.generation);
	bpf_preempt_enable();
	return 0;
}

/* Run once, before mark.bpf.c is attached or a policy has `woken`. */
SEC("syscall")
int look_up_kernel(void *ctx)
{
	look_up_stacks();
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops gthctl_ops = {
	.select_cpu = (void *)gth_select_cpu,
	.enqueue = (void *)gth_enqueue,
	.dispatch = (void *)gth_dispatch,
	.running = (void *)gth_running,
	.stopping = (void *)gth_stopping,
	.tick = (void *)gth_tick,
	.cpu_release = (void *)gth_cpu_release,
	.init_task = (void *)gth_init_task,
	.exit_task = (void *)gth_exit_task,
	.enable = (void *)gth_enable,
	.disable = (void *)gth_disable,
	.set_cpumask = (void *)gth_set_cpumask,
	.cgroup_init = (void *)gth_cgroup_init,
	.cgroup_exit = (void *)gth_cgroup_exit,
	.cgroup_move = (void *)gth_cgroup_move,
	.cgroup_set_weight = (void *)gth_cgroup_set_weight,
	.cgroup_set_idle = (void *)gth_cgroup_set_idle,
	.cgroup_set_bandwidth = (void *)gth_cgroup_set_bandwidth,
	.init = (void *)gth_init,
	.exit = (void *)gth_exit,
	.flags = GTH_OPS_ENQ_LAST | GTH_OPS_ENQ_EXITING,
	.timeout_ms = 30000, /* SCX_WATCHDOG_MAX_TIMEOUT, the kernel's limit */
	.name = "gthctl",
};
