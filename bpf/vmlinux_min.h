/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernel types that gthctl uses.
 *
 * preserve_access_index makes libbpf take every offset from the running
 * kernel's BTF, so a struct here needs only the members that gthctl reads, in
 * any order. Names and meanings: include/linux/sched.h,
 * include/linux/sched/ext.h and kernel/sched/ext.c (kernel/sched/ext/ since
 * 7.1).
 */
#ifndef GTH_KERNEL_H
#define GTH_KERNEL_H

/* For <bpf/bpf_tracing.h>: x86's registers have the kernel's names. */
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum {
	BPF_RB_NO_WAKEUP = 1 << 0,
	BPF_RB_FORCE_WAKEUP = 1 << 1,
};

enum {
	BPF_RB_AVAIL_DATA = 0,
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_PERCPU_HASH = 10,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

struct bpf_spin_lock {
	__u32 val;
};

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

/* include/linux/socket.h */
enum {
	AF_INET = 2,
	AF_INET6 = 10,
	MSG_PEEK = 0x2,
	MSG_ERRQUEUE = 0x2000,
};

/* include/uapi/linux/time.h */
enum {
	CLOCK_MONOTONIC = 1,
};

/* include/linux/sched.h */
enum {
	PF_EXITING = 0x00000004,
	PF_KTHREAD = 0x00200000,
	SIGKILL_BIT = 1 << 8,	/* of a sigset_t */
	SIGNAL_GROUP_EXIT = 1 << 2,	/* of signal_struct.flags; include/linux/sched/signal.h */
};

/* kernel/bpf/task_iter.c: the threads of one process */
enum {
	BPF_TASK_ITER_ALL_PROCS = 0,
	BPF_TASK_ITER_ALL_THREADS,
	BPF_TASK_ITER_PROC_THREADS,
};

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

/* Read through bpf_core_enum_value(), as those below. */
enum scx_cpu_preempt_reason {
	SCX_CPU_PREEMPT_STOP = 2,
};

/* include/linux/sched/prio.h: lower values are real-time, deadline or stop. */
enum {
	MAX_RT_PRIO = 100,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cpumask {
	unsigned long bits[1];
};

struct bpf_cpumask {
	struct cpumask cpumask;
};

struct qstr {
	u32 len;
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct user_namespace {
	int level;
};

struct mnt_namespace {
	struct user_namespace *user_ns;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	struct mnt_namespace *mnt_ns;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	struct path f_path;
};

struct mm_struct {
	struct file *exe_file;
};

struct kernfs_node {
	u64 id;
	const char *name;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *ancestors[];
};

struct cfs_bandwidth {
	__s64 period;
	u64 quota;
	u64 burst;
};

struct scx_task_group {
	u32 weight;
};

struct task_group {
	struct cgroup_subsys_state css;
	int idle;
	struct scx_task_group scx;
	struct cfs_bandwidth cfs_bandwidth;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

typedef struct {
	u32 val;
} kuid_t;

struct cred {
	kuid_t euid;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

struct nsproxy {
	struct net *net_ns;
};

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[];
};

struct signal_struct {
	unsigned int flags;
	struct pid *pids[4];
};

struct rtnl_link_ops {
	const char *kind;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	const struct rtnl_link_ops *rtnl_link_ops;
	int ifindex;
	possible_net_t nd_net;
};

struct xdp_rxq_info {
	struct net_device *dev;
};

struct xdp_buff {
	struct xdp_rxq_info *rxq;
};

/* Read through bpf_core_enum_value(). */
enum skb_drop_reason {
	SKB_DROP_REASON_NOT_SPECIFIED = 2,
	SKB_DROP_REASON_PACKET_SOCK_ERROR = 3,
};

struct sk_buff {
	struct net_device *dev;
	__s64 tstamp;
	unsigned int len;
	unsigned int data_len;
	int skb_iif;
	__be16 protocol;
	u16 transport_header;
	u16 network_header;
	unsigned char *head;
	unsigned char *data;
};

struct sock_common {
	unsigned short skc_num;
	unsigned short skc_family;
};

struct sock {
	struct sock_common __sk_common;
};

/* x86 */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10;
	unsigned long ax;
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long cx;
};

/* arm64 */
struct user_pt_regs {
	u64 regs[31];
};

/* arm64 */
struct thread_info {
	u64 preempt_count;
};

/* x86 */
struct pcpu_hot {
	int preempt_count;
	void *hardirq_stack_ptr;
	bool hardirq_stack_inuse;
};

/* x86 */
struct irq_stack {
	char stack[1];
};

struct sched_entity {
	u64 sum_exec_runtime;
	u64 nr_migrations;
};

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_queued;
};

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
};

typedef struct {
	unsigned long sig[1];
} sigset_t;

struct sigpending {
	sigset_t signal;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	unsigned long jobctl;
	struct sigpending pending;
	int rcu_read_lock_nesting;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	unsigned short migration_disabled;
	int prio;
	unsigned int on_rq; /* a byte in newer kernels, which loading allows for in an unsigned one */
	struct sched_entity se;
	struct sched_ext_entity scx;
	struct sched_info sched_info;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	u64 start_boottime;
	char comm[16];
	struct mm_struct *mm;
	const struct cred *real_cred;
	struct nsproxy *nsproxy;
	struct css_set *cgroups;
	struct pid *thread_pid;
	struct signal_struct *signal;
};

/* include/linux/sched.h */
struct sched_dl_entity {
	unsigned int dl_server_active : 1;
};

/* kernel/sched/sched.h */
struct scx_dispatch_q {
	u32 nr;
};

struct scx_rq {
	struct scx_dispatch_q local_dsq;
	u32 nr_running;
};

struct rq {
	struct scx_rq scx;
	struct sched_dl_entity ext_server;
	struct task_struct *curr;
	struct task_struct *stop;
	u64 clock;
};

struct scx_cpu_release_args {
	enum scx_cpu_preempt_reason reason;
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	unsigned long *bt;
	u32 bt_len;
	char *msg;
};

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};

struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us;
	u64 bw_quota_us;
	u64 bw_burst_us;
};

struct scx_exit_task_args {
	bool cancelled;
};

#pragma clang attribute pop

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* Iterators live on the BPF stack: their sizes are part of the interface. */
struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	u64 __opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_task {
	u64 __opaque[3];
} __attribute__((aligned(8)));

/*
 * Values that a kernel may renumber: always read through
 * bpf_core_enum_value(), which gives the running kernel's.
 */
enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
};

enum pid_type {
	PIDTYPE_TGID = 1,
};

enum scx_ent_flags {
	SCX_TASK_QUEUED = 1 << 0,
};

enum scx_dsq_id_flags {
	SCX_DSQ_LOCAL = 0x8000000000000002LLU,
	SCX_DSQ_LOCAL_ON = 0xC000000000000000LLU,
};

enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1LLU << 0,
	SCX_ENQ_HEAD = 1LLU << 4,
	SCX_ENQ_PREEMPT = 1LLU << 32,
	SCX_ENQ_REENQ = 1LLU << 40,
	SCX_ENQ_LAST = 1LLU << 41,
};

enum scx_wake_flags {
	SCX_WAKE_SYNC = 0x10,
};

enum scx_dsq_iter_flags {
	SCX_DSQ_ITER_REV = 1 << 16,
};

enum scx_kick_flags {
	SCX_KICK_IDLE = 1 << 0,
	SCX_KICK_PREEMPT = 1 << 1,
};

enum scx_pick_idle_cpu_flags {
	SCX_PICK_IDLE_CORE = 1 << 0,
};

/*
 * ops.flags, set before loading and so before relocation; user space checks
 * these against the kernel's BTF (src/sched/kernel_types.rs).
 */
enum gth_ops_flag {
	GTH_OPS_ENQ_LAST = 1 << 1,
	GTH_OPS_ENQ_EXITING = 1 << 2,
	GTH_OPS_ENQ_MIGRATION_DISABLED = 1 << 4, /* since 6.14 */
	GTH_OPS_BUILTIN_IDLE_PER_NODE = 1 << 6, /* since 6.15 */
};

/* The members gthctl fills; libbpf finds each by name in the kernel's. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_idle)(struct cgroup *cgrp, bool idle);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *ei);
	u64 flags;
	u32 timeout_ms;
	u64 hotplug_seq;
	char name[128];
};

#endif
