/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The texts that a policy's patterns match against: a task's names and paths,
 * written into a scratch buffer.
 */
#ifndef GTH_PATHS_H
#define GTH_PATHS_H

#include "sched/state.bpf.h"

/*
 * The buffer for matching a task. Each CPU has one for the scheduler, which uses
 * it with interrupts off, and one for user space's iterator, which may be
 * interrupted.
 */
struct scratch {
	struct task_struct *task;	/* only an address: for BPF_CORE_READ */
	u32 uid;			/* these two: read_ids() */
	u32 netns;
	char comm[GTH_COMM_LEN];
	char leader_comm[GTH_COMM_LEN];	/* empty in a process's first thread */
	char text[GTH_PATH_LEN + GTH_NAME_LEN];	/* the last name may begin at GTH_PATH_LEN - 1 */
	u32 from;			/* the part of `text` that match_text() looks at */
	u32 to;
	char name[GTH_NAME_LEN];
	u32 start;			/* where the path in `text` begins; 0: none */
	struct gth_rules marked;	/* the rules whose traffic condition holds */
	u64 marked_until;		/* ... and when the first of those marks ends; 0: none does */
	struct gth_rules by_traffic;	/* the rules that hold except for that condition */
	struct gth_verdict verdict;
};

enum {
	SCRATCH_SCHED,
	SCRATCH_ITER,
	NR_SCRATCHES,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NR_SCRATCHES);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline struct scratch *scratch_of(u32 slot)
{
	return bpf_map_lookup_elem(&scratches, &slot);
}

static __always_inline char char_at(const struct scratch *s, u32 i)
{
	return s->text[i & (GTH_PATH_LEN - 1)];
}

/* Writes a comm to the beginning of the text; returns its end. */
static __always_inline u32 comm_text(struct scratch *s, const char *comm)
{
	long len = bpf_probe_read_kernel_str(s->text, GTH_COMM_LEN, comm);

	return len > 0 ? len - 1 : 0;
}

/*
 * Puts "/" and the first @len bytes of @name in front of the path, which ends at
 * GTH_PATH_LEN; false if there is no room. `start` is in memory, where the
 * verifier does not track its values through a loop.
 */
static __always_inline bool prepend(struct scratch *s, const void *name, u32 len)
{
	u32 start = s->start;

	s->start = 0;
	if (start > GTH_PATH_LEN || len >= GTH_NAME_LEN || len + 1 >= start)
		return false;
	start -= len + 1;
	s->start = start;
	/* The compiler knows the bounds here and would drop the checks that the verifier needs. */
	barrier_var(start);
	barrier_var(len);
	s->text[start & (GTH_PATH_LEN - 1)] = '/';
	start++;
	barrier_var(start);
	bpf_probe_read_kernel(&s->text[start & (GTH_PATH_LEN - 1)], len & (GTH_NAME_LEN - 1), name);
	return true;
}

/*
 * Writes the path of the task's cgroup, up to GTH_PATH_LEN; returns where it begins,
 * 0: none. The path is the one in the unified hierarchy (cgroups(7)), or, if that is
 * not in use, in the cpu controller's. Like every global function, this one is
 * verified once.
 */
__noinline u32 cgroup_path(u32 slot)
{
	struct scratch *s = scratch_of(slot);
	struct cgroup *leaf, *cgrp;
	struct task_struct *p;
	const char *name;
	u32 level, i;
	long len;

	if (!s)
		return 0;
	p = s->task;
	s->start = GTH_PATH_LEN;
	leaf = BPF_CORE_READ(p, cgroups, dfl_cgrp);
	level = BPF_CORE_READ(leaf, level);
	if (!level && bpf_core_enum_value_exists(enum cgroup_subsys_id, cpu_cgrp_id)) {
		struct css_set *set = BPF_CORE_READ(p, cgroups);
		struct cgroup_subsys_state *css = cpu_state(&set->subsys[0]);

		leaf = BPF_CORE_READ(css, cgroup);
		level = BPF_CORE_READ(leaf, level);
	}
	if (level > GTH_MAX_DEPTH)
		return 0;
	bpf_for(i, 0, level) {
		cgrp = NULL;
		bpf_probe_read_kernel(&cgrp, sizeof(cgrp), &leaf->ancestors[0] + (level - i));
		name = BPF_CORE_READ(cgrp, kn, name);
		len = bpf_probe_read_kernel_str(s->name, sizeof(s->name), name);
		if (len <= 1)
			return 0;
		if (!prepend(s, s->name, len - 1))
			return 0;
	}
	if (!level)
		prepend(s, s->name, 0); /* the root's path is "/" */
	return s->start;
}

/*
 * Whether only root can have put the mount where it is: it is mounted in a mount namespace of the
 * initial user namespace. In their own user namespaces, all users may mount anything anywhere
 * (user_namespaces(7)). An unmounted mount has no namespace. The kernel's internal mounts have an
 * error pointer (MNT_NS_INTERNAL), which is not dereferenced.
 */
static __always_inline bool mounted_by_root(struct mount *mount)
{
	struct user_namespace *owner = BPF_CORE_READ(mount, mnt_ns, user_ns);

	return owner && !BPF_CORE_READ(owner, level);
}

/*
 * Likewise writes the path of the task's executable, in the mount namespace where it is mounted
 * (fs/d_path.c does the same under locks that BPF cannot take). There is none where users can
 * mount.
 */
__noinline u32 exe_path(u32 slot)
{
	struct scratch *s = scratch_of(slot);
	struct task_struct *p;
	struct dentry *dentry;
	struct mount *mount;
	struct file *file;
	u32 i;

	if (!s)
		return 0;
	p = s->task;
	s->start = GTH_PATH_LEN;
	file = BPF_CORE_READ(p, mm, exe_file);
	dentry = BPF_CORE_READ(file, f_path.dentry);
	mount = (void *)BPF_CORE_READ(file, f_path.mnt) - bpf_core_field_offset(struct mount, mnt);

	/* A kernel thread may borrow an address space. */
	if (!file || (BPF_CORE_READ(p, flags) & PF_KTHREAD) || !mounted_by_root(mount))
		return 0;
	bpf_for(i, 0, GTH_MAX_DEPTH) {
		struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
		struct dentry *root = BPF_CORE_READ(mount, mnt.mnt_root);
		struct mount *above;

		if (dentry == root) {
			above = BPF_CORE_READ(mount, mnt_parent);
			if (above == mount || !above)
				return s->start;
			dentry = BPF_CORE_READ(mount, mnt_mountpoint);
			mount = above;
			continue;
		}
		if (dentry == parent)
			return 0; /* not below the mount any more: it was moved out of it */
		if (!prepend(s, BPF_CORE_READ(dentry, d_name.name), BPF_CORE_READ(dentry, d_name.len)))
			return 0;
		dentry = parent;
	}
	return 0;
}

#endif
