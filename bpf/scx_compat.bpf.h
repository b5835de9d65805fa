/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One name for each kfunc whose name or signature differs between kernels
 * (6.12 to 7.3). Loading selects the variant: a weak ksym that the kernel
 * lacks, or has with another prototype, resolves to 0 and the verifier drops
 * the branch.
 *
 * A local name ending in ___something stands for the kernel's name without
 * that ending.
 *
 * Kernels whose kfunc BTF is malformed (Debian trixie-backports' 7.1 and 7.2)
 * keep a `struct bpf_prog_aux *` parameter in the prototypes of
 * scx_bpf_dsq_insert___v2, scx_bpf_task_set_slice, scx_bpf_kick_cpu and a few
 * more. Their prototypes do not match those below, so they count as absent and
 * the older form is used; scx_bpf_kick_cpu has no older form, see
 * local_cpu_without_kick().
 */
#ifndef GTH_COMPAT_H
#define GTH_COMPAT_H

#include "vmlinux_min.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define SCX_ENUM(type, value) bpf_core_enum_value(enum type, value)
#define DSQ_LOCAL SCX_ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL)
#define DSQ_LOCAL_ON(cpu) (SCX_ENUM(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | (u32)(cpu))
#define WAKE_SYNC SCX_ENUM(scx_wake_flags, SCX_WAKE_SYNC)
#define ENQ_WAKEUP SCX_ENUM(scx_enq_flags, SCX_ENQ_WAKEUP)
#define ENQ_HEAD SCX_ENUM(scx_enq_flags, SCX_ENQ_HEAD)
#define ENQ_PREEMPT SCX_ENUM(scx_enq_flags, SCX_ENQ_PREEMPT)
#define ENQ_REENQ SCX_ENUM(scx_enq_flags, SCX_ENQ_REENQ)
#define ENQ_LAST SCX_ENUM(scx_enq_flags, SCX_ENQ_LAST)

/* The same in every kernel since 6.12. */
s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
void scx_bpf_destroy_dsq(u64 dsq_id) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
bool scx_bpf_task_running(const struct task_struct *p) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
void bpf_cpumask_release(struct bpf_cpumask *cpumask) __ksym;
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *cpumask) __ksym;
void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *cpumask) __ksym;
void bpf_cpumask_setall(struct bpf_cpumask *cpumask) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
bool bpf_cpumask_subset(const struct cpumask *a, const struct cpumask *b) __ksym;
bool bpf_cpumask_and(struct bpf_cpumask *dst, const struct cpumask *a, const struct cpumask *b) __ksym;
bool bpf_cpumask_empty(const struct cpumask *mask) __ksym;
u32 bpf_cpumask_any_and_distribute(const struct cpumask *a, const struct cpumask *b) __ksym;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;
void bpf_preempt_disable(void) __ksym;
void bpf_preempt_enable(void) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, unsigned int flags) __ksym;
struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym;
void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym;

/* Since 6.15, with SCX_OPS_BUILTIN_IDLE_PER_NODE instead of scx_bpf_pick_idle_cpu. */
s32 scx_bpf_pick_idle_cpu_node(const struct cpumask *cpus_allowed, int node, u64 flags) __ksym __weak;

/* scx_bpf_now: since 6.14; a cached clock, cheaper than the helper. */
u64 scx_bpf_now(void) __ksym __weak;

static __always_inline u64 now_ns(void)
{
	return bpf_ksym_exists(scx_bpf_now) ? scx_bpf_now() : bpf_ktime_get_ns();
}

/*
 * The same in every kernel, but may be absent where the BTF is malformed. Calling them is an error with
 * SCX_OPS_BUILTIN_IDLE_PER_NODE.
 */
const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym __weak;
void scx_bpf_put_idle_cpumask(const struct cpumask *cpumask) __ksym __weak;

/* The same in every kernel, but absent where the BTF is malformed. */
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym __weak;

static __always_inline bool can_kick(void)
{
	return bpf_ksym_exists(scx_bpf_kick_cpu);
}

static __always_inline void kick_if_idle(s32 cpu)
{
	if (can_kick())
		scx_bpf_kick_cpu(cpu, SCX_ENUM(scx_kick_flags, SCX_KICK_IDLE));
}

static __always_inline void kick_preempt(s32 cpu)
{
	if (can_kick())
		scx_bpf_kick_cpu(cpu, SCX_ENUM(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* FIFO insertion: scx_bpf_dispatch in 6.12, scx_bpf_dsq_insert since 6.13, ___v2 since 6.19. */
bool scx_bpf_dsq_insert___v2___new(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;

static __always_inline void dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___new))
		scx_bpf_dsq_insert___v2___new(p, dsq_id, slice, enq_flags);
	else if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, dsq_id, slice, enq_flags);
	else
		scx_bpf_dispatch(p, dsq_id, slice, enq_flags);
}

/* Insertion by virtual time: likewise, with an argument struct since 6.19. */
struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym __weak;

static __always_inline void dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags)
{
	if (bpf_ksym_exists(__scx_bpf_dsq_insert_vtime)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = dsq_id,
			.slice = slice,
			.vtime = vtime,
			.enq_flags = enq_flags,
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime)) {
		scx_bpf_dsq_insert_vtime(p, dsq_id, slice, vtime, enq_flags);
	} else {
		scx_bpf_dispatch_vtime(p, dsq_id, slice, vtime, enq_flags);
	}
}

/* scx_bpf_consume in 6.12, scx_bpf_dsq_move_to_local since 6.13, with enq_flags since 7.1. */
bool scx_bpf_dsq_move_to_local___v2___new(u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym __weak;
bool scx_bpf_consume(u64 dsq_id) __ksym __weak;

static __always_inline bool dsq_move_to_local(u64 dsq_id)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___new))
		return scx_bpf_dsq_move_to_local___v2___new(dsq_id, 0);
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(dsq_id);
	return scx_bpf_consume(dsq_id);
}

/*
 * From one DSQ to another, in an iteration: scx_bpf_dispatch[_vtime]_from_dsq in 6.12,
 * scx_bpf_dsq_move[_vtime] since 6.13.
 */
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
				     u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;

/* The iterator that bpf_for_each() declares (bpf_helpers.h). */
#define THIS_ITERATION (&___it)

static __always_inline bool dsq_move_to(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move))
		return scx_bpf_dsq_move(it, p, dsq_id, 0);
	return scx_bpf_dispatch_from_dsq(it, p, dsq_id, 0);
}

static __always_inline void dsq_move_to_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
					      u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_vtime)) {
		scx_bpf_dsq_move_set_vtime(it, vtime);
		scx_bpf_dsq_move_vtime(it, p, dsq_id, 0);
	} else {
		scx_bpf_dispatch_from_dsq_set_vtime(it, vtime);
		scx_bpf_dispatch_vtime_from_dsq(it, p, dsq_id, 0);
	}
}

/* Only for ops.cpu_release: enqueues all tasks in the local DSQ of the caller's CPU again. */
u32 scx_bpf_reenqueue_local(void) __ksym __weak;

/* The same since 6.19, callable from anywhere. */
void scx_bpf_reenqueue_local___v2___new(void) __ksym __weak;

static __always_inline bool can_empty_local_dsq(void)
{
	return bpf_ksym_exists(scx_bpf_reenqueue_local___v2___new);
}

/* Since 6.19, without a lock; before that the iterator, which takes the DSQ's lock. */
struct task_struct *scx_bpf_dsq_peek(u64 dsq_id) __ksym __weak;

enum {
	LOOK_PAST = 32,	/* how many tasks that may not run here to check at most */
};

#define NO_KEY (1ULL << 63)	/* virtual times and now_ns() never come near it */

/*
 * The value from which a loop over a DSQ counts up. The verifier does not know this value, so a further
 * iteration is no new state to it. With a constant, it would verify the loop once for each count.
 */
static volatile u32 unknown_zero;

/*
 * The virtual time of a DSQ's first task that may run on @cpu, or NO_KEY. After LOOK_PAST
 * tasks, the time of the last one: later tasks are not earlier in virtual time, and taking
 * one shows whether any may run here.
 */
__noinline u64 head_key(u64 dsq, s32 cpu)
{
	struct task_struct *p;
	u32 looks = unknown_zero;

	if (bpf_ksym_exists(scx_bpf_dsq_peek)) {
		p = scx_bpf_dsq_peek(dsq);
		if (!p)
			return NO_KEY;
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return p->scx.dsq_vtime;
	} else if (scx_bpf_dsq_nr_queued(dsq) <= 0) {
		return NO_KEY;
	}
	bpf_for_each(scx_dsq, p, dsq, 0) {
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) || ++looks >= LOOK_PAST)
			return p->scx.dsq_vtime;
	}
	return NO_KEY;
}

/* The built-in idle selection inside a mask: since 6.17, with an argument struct since 6.19. */
struct scx_bpf_select_cpu_and_args {
	s32 prev_cpu;
	u64 wake_flags;
	u64 flags;
};

s32 __scx_bpf_select_cpu_and(struct task_struct *p, const struct cpumask *cpus_allowed,
			     struct scx_bpf_select_cpu_and_args *args) __ksym __weak;
s32 scx_bpf_select_cpu_and(struct task_struct *p, s32 prev_cpu, u64 wake_flags,
			   const struct cpumask *cpus_allowed, u64 flags) __ksym __weak;

enum {
	NO_KFUNC = -1000,	/* not an errno */
};

/* A CPU, a negative error if none is idle, or NO_KFUNC. */
static __always_inline s32 select_cpu_and(struct task_struct *p, s32 prev_cpu, u64 wake_flags,
					  const struct cpumask *mask)
{
	if (bpf_ksym_exists(__scx_bpf_select_cpu_and)) {
		struct scx_bpf_select_cpu_and_args args = {
			.prev_cpu = prev_cpu,
			.wake_flags = wake_flags,
		};

		return __scx_bpf_select_cpu_and(p, mask, &args);
	}
	if (bpf_ksym_exists(scx_bpf_select_cpu_and))
		return scx_bpf_select_cpu_and(p, prev_cpu, wake_flags, mask, 0);
	return NO_KFUNC;
}

/* A store to p->scx.slice before 6.19, a kfunc since. */
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;

static __always_inline void task_set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

#endif
