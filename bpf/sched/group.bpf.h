/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shares of CPU time between cgroups (cpu.weight).
 *
 * All tasks of a pool wait in one DSQ, in the order of their virtual time. A cgroup gets its
 * share by the pace at which the virtual time of its tasks advances. At each level of the
 * hierarchy, a cgroup competes with its siblings and with the tasks of its parent, as under
 * the kernel's own scheduler: a task of nice 0 counts as much as a cgroup of weight 100. The
 * product over the levels is the share of the cgroup, and its tasks divide that. A pace is
 * relative to the share that the task would have without cgroups, so it is the task's weight
 * while only one cgroup has tasks that run.
 *
 * Only normal tasks that are runnable count. Priority tasks run before these whatever the
 * weights are, as real-time tasks do.
 */
#ifndef GTH_GROUP_H
#define GTH_GROUP_H

#include "sched/state.bpf.h"

#define NO_QUOTA (~0ULL) /* RUNTIME_INF, kernel/sched/sched.h */

enum {
	ROOT_GROUP = 0,
	NO_GROUP = 0xffffffff,
	DEFAULT_WEIGHT = 100,
	IDLE_WEIGHT = 1,	/* weight of a cgroup with cpu.idle; the kernel's own scheduler uses 0.3 */
	MAX_LEVELS = 32,	/* levels of cgroups that have a record, including the root */
	COUNT_BITS = 24,	/* of group.load */
	VTIME_AHEAD_SLICES = 100, /* the lightest weight's charge for one slice */
	PACE_BITS = 16,		/* a pace of weight << PACE_BITS is that of a task without cgroups */
	SHARE_NS = 1000000,	/* a tick renews a share that is older than this */
	MAX_SHARE_NS = 20000000, /* ... a switch renews one older than this: ticks seldom see its tasks */
	MAX_SUMMED = 64,	/* up to this many CPUs are added up for each share; for more, see TOTAL_NS */
	TOTAL_NS = 10000000,
};

/* cpu.max, see sched/limit.bpf.h. */
struct limit {
	u64 quota;		/* CPU time in each period, ns; NO_QUOTA: no limit */
	u64 period;		/* ns */
	u64 burst;		/* unused time that a later period may have in addition, ns */
	s64 left;		/* in this period, ns; negative: the next one pays for it */
	s64 at_start;		/* what was left at the start of this period */
	u64 period_end;		/* now_ns() */
	u32 nearest;		/* this group or the nearest one above that has a limit, or NO_GROUP */
	u32 epoch;		/* the limits.epoch for which `nearest` holds */
	u32 throttled;		/* it has used up its quota */
	u32 released;		/* tasks that were held back may run */
	u32 listed;		/* it has a place in limits.of */
	u64 throttled_at;	/* now_ns() */
	u64 throttled_ns;	/* like throttled_usec in cpu.stat, but also counts while it lasts */
	u64 nr_periods;		/* ended periods in which it ran; as in cpu.stat */
	u64 nr_throttled;	/* those in which it used up its quota */
};

/*
 * A cgroup with the cpu controller. `load` is one word, so that each change of it shows
 * whether the group became active or idle: the number of the group's counted tasks and
 * active children in the lower COUNT_BITS, the sum of their weights above.
 */
struct group {
	struct bpf_spin_lock lock;	/* of `applied` */
	u32 parent;
	u32 weight;		/* cpu.weight, 1..10000 */
	u32 applied;		/* its part of its parent's load: its weight while it is active */
	bool used;		/* a cgroup has this record */
	u64 id;			/* that cgroup's */
	u64 load;
	u64 share;		/* the pace of a task of weight 1 */
	u64 share_at;		/* when that was computed; now_ns() */
	s64 debt;		/* virtual time that tasks were ahead when they ended, ns */
	struct limit limit;
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GTH_MAX_GROUPS);
	__type(key, u32);
	__type(value, struct group);
} groups SEC(".maps");

/* The record of each cgroup, by its id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GTH_MAX_GROUPS);
	__type(key, u64);
	__type(value, u32);
} group_indices SEC(".maps");

/* The sum of the weights of all counted tasks. A large machine adds them up only now and then. */
struct {
	u64 load;
	u64 at;			/* now_ns() */
} machine_total;

static __always_inline struct group *group_at(u32 index)
{
	return bpf_map_lookup_elem(&groups, &index);
}

/*
 * Cgroups below /user.slice/user-UID.slice belong to a user, who may make any number of them. Those
 * of all users together get no more than MAX_OF_USERS records, so that some remain for all other
 * cgroups. A user's further cgroups count as part of the user's slice.
 */
enum {
	USERS_LEVEL = 2,
	MAX_OF_USERS = GTH_MAX_GROUPS / 2,
};

u32 nr_of_users;

static __always_inline bool is_of_user(struct cgroup *cgrp)
{
	char name[12];

	if (cgrp->level <= USERS_LEVEL)
		return false;
	bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(cgrp, ancestors[1], kn, name));
	return !bpf_strncmp(name, sizeof(name), "user.slice");
}

/* The index of the record that a cgroup's tasks count in: its own, that of one above it (add_group()), or the root's. */
static __always_inline u32 group_of(struct cgroup *cgrp)
{
	u64 id = BPF_CORE_READ(cgrp, kn, id);
	u32 *index = bpf_map_lookup_elem(&group_indices, &id);

	if (!index && BPF_CORE_READ(cgrp, level) > USERS_LEVEL) { /* a user's cgroup beyond MAX_OF_USERS */
		id = BPF_CORE_READ(cgrp, ancestors[USERS_LEVEL], kn, id);
		index = bpf_map_lookup_elem(&group_indices, &id);
	}
	return index ? *index : ROOT_GROUP;
}

/* The index of a cgroup's own record; the root's if it has none. */
static __always_inline u32 own_group_of(struct cgroup *cgrp)
{
	u32 index = group_of(cgrp);
	struct group *group = group_at(index);

	return group && group->id == BPF_CORE_READ(cgrp, kn, id) ? index : ROOT_GROUP;
}

static __always_inline u64 weights_in(u64 load)
{
	return load >> COUNT_BITS;
}

static __always_inline bool is_active(u64 load)
{
	return load & ((1ULL << COUNT_BITS) - 1);
}

/*
 * Brings a group's part of its parent's load up to date, and so on upwards. Each level
 * decides under its lock by the load at that moment, so the last of several callers gets it
 * right.
 */
__noinline int settle_group(u32 index)
{
	struct group *group, *parent;
	u32 i, above, was, is;
	u64 delta, before;

	bpf_for(i, 0, MAX_LEVELS) {
		group = group_at(index);
		if (!group || index == ROOT_GROUP)
			break;
		above = group->parent;
		parent = group_at(above);
		if (!parent)
			break;
		bpf_spin_lock(&group->lock);
		was = group->applied;
		is = is_active(group->load) ? group->weight : 0;
		group->applied = is;
		delta = ((u64)is << COUNT_BITS) - ((u64)was << COUNT_BITS) + !!is - !!was;
		before = __sync_fetch_and_add(&parent->load, delta);
		bpf_spin_unlock(&group->lock);
		if (is_active(before) == is_active(before + delta))
			break;
		index = above;
	}
	return 0;
}

/* Adds to a group's load, or takes away from it. */
static __always_inline void change_load(u32 index, u64 delta)
{
	struct group *group = group_at(index);
	u64 before;

	if (!group)
		return;
	before = __sync_fetch_and_add(&group->load, delta);
	if (index != ROOT_GROUP && is_active(before) != is_active(before + delta))
		settle_group(index);
}

static __always_inline u32 weight_of(const struct task_struct *p, const struct task_ctx *tctx)
{
	u32 weight = tctx->weight ? tctx->weight : p->scx.weight;

	return weight ? weight : DEFAULT_WEIGHT;
}

/* The weights of all counted tasks. A task may be counted in on one CPU and out on another. */
static __always_inline u64 total_load(u64 now)
{
	bool summed = machine.nr_cpus <= MAX_SUMMED;
	s64 sum = 0;
	u32 i;

	if (!summed && now - machine_total.at < TOTAL_NS)
		return machine_total.load;
	machine_total.at = now;
	bpf_for(i, 0, machine.nr_cpus)
		sum += cpu_of(i)->load;
	machine_total.load = sum > 0 ? sum : 0;
	return machine_total.load;
}

/*
 * Keeps track of which pool a task is a load of, and how much: its weight among all
 * runnable tasks, but no more than what one CPU can do. The LLCs are balanced by these
 * loads.
 */
static __always_inline void change_pool_load(struct counted *counted, u32 pool, u32 load)
{
	if (counted->load == load && counted->pool == pool)
		return;
	if (counted->load)
		__sync_fetch_and_add(&pool_of(counted->pool)->load, -(u64)counted->load);
	counted->load = load;
	counted->pool = pool;
	if (load)
		__sync_fetch_and_add(&pool_of(pool)->load, load);
}

static __always_inline void note_pool(struct task_ctx *tctx, u32 pool)
{
	u64 most, load;

	if (machine.nr_llcs < 2)
		return;
	most = machine_total.load / machine.nr_online;
	load = tctx->pace ? tctx->pace >> PACE_BITS : tctx->counted.weight;
	if (load > most && most)
		load = most;
	change_pool_load(&tctx->counted, pool, load ? load : 1);
}

__noinline int count_out(struct counted *counted __arg_nonnull)
{
	u32 weight = counted->weight;

	if (!weight)
		return 0;
	counted->weight = 0;
	change_pool_load(counted, 0, 0);
	cpu_of(bpf_get_smp_processor_id())->load -= weight;
	change_load(counted->group, -(((u64)weight << COUNT_BITS) + 1));
	return 0;
}

/* From now on the task counts, in this pool and with its current weight. Its rq is locked. */
__noinline int count_in(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull, u32 pool)
{
	u32 weight = weight_of(p, tctx);

	if (tctx->counted.weight && tctx->counted.weight != weight)
		count_out(&tctx->counted);
	if (!tctx->counted.weight) {
		tctx->counted.weight = weight;
		tctx->counted.group = tctx->group;
		cpu_of(bpf_get_smp_processor_id())->load += weight;
		change_load(tctx->group, ((u64)weight << COUNT_BITS) + 1);
	}
	note_pool(tctx, pool);
	return 0;
}

/* The task that went to sleep on the CPU counts no longer. */
static __always_inline void end_leaving(struct cpu_ctx *c)
{
	if (c->leaving.weight)
		count_out(&c->leaving);
}

/*
 * The task goes to sleep. It still counts until the CPU looks for another task, or until the next
 * task's turn ends: one that was just woken up here takes its place (count_running()). Counting one
 * in and the other out would take longer.
 */
static __always_inline void count_out_later(struct task_ctx *tctx, struct cpu_ctx *c)
{
	end_leaving(c);
	c->leaving = tctx->counted;
	tctx->counted.weight = 0;
	tctx->counted.load = 0;
}

/*
 * A normal task begins to run. It takes the place of the one that went to sleep here if both count
 * the same.
 */
static __always_inline void count_running(struct task_struct *p, struct task_ctx *tctx, struct cpu_ctx *c, s32 cpu)
{
	if (!tctx->counted.weight && c->leaving.weight == weight_of(p, tctx) && c->leaving.group == tctx->group) {
		tctx->counted = c->leaving;
		c->leaving.weight = 0;
		if (machine.nr_llcs < 2)
			return;
	}
	count_in(p, tctx, cpu_pool(live_tables(tunables.generation), cpu));
}

/* The lead that the lightest weight has after one slice: no task may have more. */
static __always_inline u64 most_ahead(void)
{
	return VTIME_AHEAD_SLICES * tunables.slice_ns;
}

/*
 * A task of the group ended with this lead. The group's debt grows by no more than the lead that
 * one task may have, and only while it is below that lead.
 */
static __always_inline void owe(u32 index, s64 lead)
{
	struct group *group = group_at(index);

	if (group && lead > 0 && group->debt < (s64)most_ahead())
		__sync_fetch_and_add(&group->debt, lead < (s64)most_ahead() ? lead : (s64)most_ahead());
}

/* A new task takes over what its group owes. */
static __always_inline u64 take_over_debt(u32 index)
{
	struct group *group = group_at(index);
	s64 debt = group ? group->debt : 0;

	if (debt <= 0 || __sync_val_compare_and_swap(&group->debt, debt, 0) != debt)
		return 0;
	return debt;
}

/* Computes a group's share. */
__noinline int renew_share(u32 index)
{
	struct group *group = group_at(index), *parent;
	u64 now = now_ns(), share, own, among;
	u32 i;

	if (!group)
		return 0;
	group->share_at = now;
	own = weights_in(group->load);
	share = own ? (total_load(now) << PACE_BITS) / own : 1ULL << PACE_BITS;
	bpf_for(i, 0, MAX_LEVELS) {
		struct group *at = group_at(index);

		if (!at || index == ROOT_GROUP)
			break;
		index = at->parent;
		parent = group_at(index);
		if (!parent)
			break;
		among = weights_in(parent->load);
		if (among > at->weight)
			share = share * at->weight / among;
	}
	group->share = share ? share : 1;
	return 0;
}

/* Called at a tick that sees a task of the group: computing a share at every switch would take too long. */
static __always_inline void keep_share(u32 index)
{
	struct group *group = group_at(index);

	if (group && now_ns() - group->share_at > SHARE_NS)
		renew_share(index);
}

/*
 * The task's pace: the greater it is, the less its virtual time advances. The share's age is taken
 * at the start of the turn: reading the clock takes longer than the rest of the function.
 */
static __always_inline u64 pace_of(struct task_struct *p, const struct task_ctx *tctx)
{
	struct group *group = is_priority(tctx->rank) ? NULL : group_at(tctx->group);

	if (!group)
		return (u64)weight_of(p, tctx) << PACE_BITS;
	if ((s64)(tctx->running_at - group->share_at) > MAX_SHARE_NS)
		renew_share(tctx->group);
	return weight_of(p, tctx) * group->share;
}

static __always_inline u64 virtual_time(u64 ran, u64 pace)
{
	return (ran * DEFAULT_WEIGHT << PACE_BITS) / (pace ? pace : (u64)DEFAULT_WEIGHT << PACE_BITS);
}

/* ---- cgroups come and go ---- */

/* Set when no record was left for a cgroup. */
u32 too_many_groups SEC(".bss.groups");

/* The row of pod_stats of each cgroup's tasks; 0: none. A new cgroup has its parent's. */
u16 pod_rows[GTH_MAX_GROUPS] SEC(".bss.pods");

struct group_name {
	char text[GTH_GROUP_NAME_LEN];
};

/* The directory of each cgroup, by which user space finds those of pods (src/sched/pod_rows.rs). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GTH_MAX_GROUPS); /* one if pods are not counted */
	__type(key, u32);
	__type(value, struct group_name);
} group_names SEC(".maps");

static __always_inline void note_for_pods(u32 index, u32 parent, struct cgroup *cgrp)
{
	struct group_name *name = bpf_map_lookup_elem(&group_names, &index);

	if (!machine.count_pods || !name)
		return;
	bpf_probe_read_kernel_str(name->text, sizeof(name->text), BPF_CORE_READ(cgrp, kn, name));
	pod_rows[index & (GTH_MAX_GROUPS - 1)] = pod_rows[parent & (GTH_MAX_GROUPS - 1)];
}

/* Where the next search for a free record starts. */
u32 next_group;

/* A record that no cgroup uses. Tasks that end may count in a removed cgroup's record for a moment. */
static __always_inline u32 free_group(void)
{
	u32 i;

	bpf_for(i, 0, GTH_MAX_GROUPS) {
		u32 index = (next_group + i) & (GTH_MAX_GROUPS - 1);
		struct group *group = group_at(index);

		if (group && index != ROOT_GROUP && !group->used && !is_active(group->load)) {
			next_group = index + 1;
			return index;
		}
	}
	return ROOT_GROUP;
}

/* The task group of a cgroup: the cgroup's cpu controller state is its first member. */
static __always_inline struct task_group *task_group_of(struct cgroup *cgrp)
{
	return (struct task_group *)cpu_state(&cgrp->subsys[0]);
}

/*
 * The weight by which the kernel decides whether to call ops.cgroup_set_weight(). cpu.idle leaves
 * it unchanged (scx_group_set_idle(), kernel/sched/ext/ext.c).
 */
static __always_inline u32 told_weight(struct cgroup *cgrp)
{
	struct task_group *group = task_group_of(cgrp);

	return group && bpf_core_field_exists(group->scx.weight) ? BPF_CORE_READ(group, scx.weight) : DEFAULT_WEIGHT;
}

static __always_inline bool is_idle_group(struct cgroup *cgrp)
{
	struct task_group *group = task_group_of(cgrp);

	return group && bpf_core_field_exists(group->idle) && BPF_CORE_READ(group, idle) > 0;
}

/* Makes user space end the scheduler. */
static __always_inline s32 refuse_group(void)
{
	too_many_groups = true;
	tell(&events);
	return 0;
}

/* The record may have been another cgroup's, which is not active any more: `load` and `applied` are 0. */
static __always_inline void begin_group(struct group *group, struct cgroup *cgrp, u32 parent, u32 weight)
{
	group->id = BPF_CORE_READ(cgrp, kn, id);
	group->parent = parent;
	group->weight = weight;
	group->share_at = 0;
	group->debt = 0;
	group->limit.quota = NO_QUOTA;
	group->limit.epoch = 0;
	group->limit.throttled_ns = 0;
	group->limit.nr_throttled = 0;
	group->limit.nr_periods = 0;
	group->used = true;
}

/*
 * The kernel's cgroup lock serializes the callers. A cgroup at level MAX_LEVELS or deeper counts as
 * part of the nearest one above it that has a record, because nothing else looks at more levels
 * than that.
 */
static __always_inline s32 add_group(struct cgroup *cgrp, u32 weight)
{
	u32 level = cgrp->level, above = ROOT_GROUP, index;
	u64 id = BPF_CORE_READ(cgrp, kn, id);
	bool shared = level >= MAX_LEVELS, of_user = is_of_user(cgrp);
	struct group *group;

	if (of_user && nr_of_users >= MAX_OF_USERS)
		return 0;
	if (level)
		above = group_of(BPF_CORE_READ(cgrp, ancestors[level - 1]));
	index = shared ? above : level ? free_group() : ROOT_GROUP;
	group = group_at(index);
	if (!group)
		return -22; /* EINVAL */
	if ((level && index == ROOT_GROUP) || bpf_map_update_elem(&group_indices, &id, &index, 0))
		return refuse_group();
	nr_of_users += of_user;
	if (shared)
		return 0;
	begin_group(group, cgrp, above, weight);
	note_for_pods(index, above, cgrp);
	return 0;
}

static __always_inline void drop_group(struct cgroup *cgrp)
{
	struct group *group = group_at(own_group_of(cgrp));
	u64 id = BPF_CORE_READ(cgrp, kn, id);

	if (group && group->id == id)
		group->used = false;
	if (!bpf_map_delete_elem(&group_indices, &id) && is_of_user(cgrp))
		nr_of_users--;
}

static __always_inline void set_group_weight(struct cgroup *cgrp, u32 weight)
{
	u32 index = own_group_of(cgrp);
	struct group *group = group_at(index);

	if (!group || index == ROOT_GROUP || !weight)
		return;
	group->weight = weight;
	settle_group(index);
}

#endif
