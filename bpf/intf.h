/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Definitions shared by BPF and user space: limits, table layouts, counters.
 *
 * Every struct here is the type of a global variable of sched.bpf.c, so the
 * skeleton generator writes the Rust side from this file's BTF: there is no
 * second definition to keep in step. Limits and ids reach Rust the same way,
 * as enumerators of enum gth_limit and the enums below.
 *
 * Times are nanoseconds unless a name says otherwise.
 */
#ifndef GTH_INTF_H
#define GTH_INTF_H

#include "vmlinux_min.h"

enum gth_limit {
	GTH_MAX_CPUS = 1024,		/* power of two: used as an index mask */
	GTH_CPU_WORDS = GTH_MAX_CPUS / 64,
	GTH_MAX_LLCS = 256,
	GTH_MAX_RESERVED = 128,		/* exclusive pools of a policy: at most one per rule */
	GTH_MAX_POOLS = GTH_MAX_LLCS + 2 * GTH_MAX_RESERVED,
	GTH_MAX_RULES = 128,
	/* Rows of counters: for the rules of this and the previous policy, and for tasks without a rule. */
	GTH_RULE_ROWS = 2 * GTH_MAX_RULES + 1,
	GTH_MAX_GROUPS = 1 << 14,	/* cgroups with the cpu controller; a power of two */
	GTH_GROUP_NAME_LEN = 128,	/* a longer name is cut; the kubelet's have up to 72 characters */
	GTH_POD_ROWS = 1 << 9,		/* rows of counters for pods; row 0 is unused */
	GTH_NO_RULE = 0xffff,
	GTH_TABLES_TRIAL = 2,		/* index of the tables that are never live */
	GTH_NR_TABLES,
	GTH_RULE_WORDS = GTH_MAX_RULES / 64,
	GTH_MAX_DFAS = 64,
	GTH_MAX_TRANS = 1 << 19,	/* transitions of all DFAs */
	GTH_MAX_STATES = 1 << 15,	/* states of all DFAs */
	GTH_COMM_LEN = 16,		/* TASK_COMM_LEN, include/linux/sched.h */
	GTH_NAME_LEN = 256,		/* NAME_MAX + 1, include/uapi/linux/limits.h */
	GTH_PATH_LEN = 1024,		/* a longer path matches nothing */
	GTH_MAX_DEPTH = 64,		/* directories and mounts in a path */
	GTH_MAX_TRAFFIC = 8,		/* distinct traffic conditions of a policy */
	GTH_NR_MARKS = 2 * GTH_MAX_TRAFFIC,	/* ... and of the previous policy */
	GTH_MAX_FUNCTIONS = 64,		/* functions traced for these conditions, also for two policies */
	GTH_BY_WAKEUP,			/* instead of a function: woken up by a marked task */
	GTH_BY_UDP_RECVMSG,		/* this and the three below: socket functions (bpf/mark_udp.bpf.c) */
	GTH_BY_UDPV6_RECVMSG,
	GTH_BY_UDP_SENDMSG,
	GTH_BY_UDPV6_SENDMSG,
	GTH_MAX_LINEAGE = 16,		/* generations of parents that include_children looks back at */
	GTH_HIST_BUCKETS = 32,
	GTH_BT_LEN = 64,		/* SCX_EXIT_BT_LEN, kernel/sched/ext.c */
	GTH_REASON_LEN = 128,
	GTH_MSG_LEN = 1024,		/* SCX_EXIT_MSG_LEN */
};

/*
 * A rank orders what runs. 0..9 come from a policy's priority and preempt
 * strictly weaker tasks (a greater number); the rest cannot preempt.
 */
enum gth_rank {
	GTH_RANK_WEAKEST_PRIO = 9,
	GTH_RANK_EXHAUSTED = 32,		/* a priority task that has used up its burst */
	GTH_RANK_NORMAL = 64,
	GTH_RANK_IDLE = 128,
};

enum gth_rule_flag {
	GTH_RULE_CPUS = 1 << 0,		/* its CPU mask is set */
	GTH_RULE_EXCLUSIVE = 1 << 1,	/* ... and belongs to the pool alone */
	GTH_RULE_NO_LIMIT = 1 << 2,	/* its tasks are exempt from the limits of their cgroups */
	GTH_RULE_ALLOCATED = 1 << 3,	/* the CPUs of its tasks' cpusets are exclusive */
};

/* The kinds of conditions that a rule may have. Those before GTH_NR_PATTERNS are patterns. */
enum gth_condition {
	GTH_COND_COMM,			/* command_regex: the task's or its leader's comm */
	GTH_COND_THREAD,		/* threads: its own comm */
	GTH_COND_CGROUP,		/* this and the next three: the path of its cgroup */
	GTH_COND_UNIT,
	GTH_COND_CONTAINER,
	GTH_COND_POD,
	GTH_COND_EXE,			/* the path of its executable */
	GTH_NR_PATTERNS,
	GTH_COND_PID = GTH_NR_PATTERNS,
	GTH_COND_USER,
	GTH_COND_NETNS,
	GTH_COND_GTP,			/* it processes packets, according to its marks */
	GTH_NR_CONDS,
};

/*
 * Indices into the CPU masks; each parity of the generation has its own set,
 * GTH_NR_MASKS apart.
 */
enum gth_mask {
	GTH_MASK_NORMAL,			/* every CPU that is not exclusive */
	GTH_MASK_LLC,				/* + LLC: the same, within that LLC */
	GTH_MASK_RULE = GTH_MASK_LLC + GTH_MAX_LLCS,	/* + rule: the rule's CPUs */
	GTH_NR_MASKS = GTH_MASK_RULE + GTH_MAX_RULES,
};

/* One rule of the policy, in the form that the scheduler uses. */
struct gth_rule {
	u64 slice_ns;			/* execution_time; 0: the default slice */
	u64 credit_ns;			/* virtual time given to priorities 10..20 */
	u64 start_ticks;		/* start time of pid, in clock ticks since boot */
	u32 pid;			/* thread-group or thread id */
	u32 uid;			/* effective user */
	u32 netns;			/* inode number of the network namespace */
	u32 weight;			/* 1..10000; 0: the task's own */
	u16 rank;			/* enum gth_rank */
	u16 flags;			/* enum gth_rule_flag */
	u16 row;			/* index of its counters, gth_rule_stats */
	u16 unused;
};

/*
 * A dense DFA over the bytes of a text. The next state of s on byte b is
 * trans[trans_base + s * stride + class[b]]; the end of the text is class
 * stride - 1.
 */
struct gth_dfa {
	u32 trans_base;
	u32 state_base;			/* index of its first state in gth_tables.accept */
	u16 start;
	u16 stride;
	u8 class[256];
};

/* A set of rules, one bit each. */
struct gth_rules {
	u64 word[GTH_RULE_WORDS];
};

/*
 * A traffic condition: a task that has handled min_packets within a second is marked
 * for a time. While it is marked, the rules with this condition hold for it.
 */
struct gth_traffic {
	u32 id;				/* never reused: its earlier marks still count */
	u32 mark;			/* its index in a task's marks */
	u32 min_packets;
	u32 max_tasks;
	u32 woken;			/* also marks tasks that marked tasks wake up to hand packets on */
	u32 port;			/* datagrams of UDP sockets with this local port count; 0: none */
	u64 hold_ns;
	u64 functions;			/* the functions whose calls count, one bit each */
	struct gth_rules rules;
};

/* What a condition knows about a task. */
struct gth_mark {
	u32 condition;			/* its id; another condition's mark counts as none */
	u32 in_window;			/* packets since the window began */
	u64 window_began;
	u64 until;			/* when the mark ends; 0: the task is not marked */
	u64 since;
	u64 packets;			/* since the mark began, plus the window that led to it */
	u32 function;			/* where its packets were seen: a function's number or GTH_BY_... */
	u32 due;			/* enough packets: the next match decides (settle_marks()) */
};

struct gth_marks {
	struct gth_mark of[GTH_NR_MARKS];
};

/*
 * One generation of the policy. The parity of the generation number says which
 * of the first two tables is live. User space writes a new policy to the other
 * one, and a single store makes it live. The third is for trying out policies.
 */
struct gth_tables {
	u32 nr_rules;
	u32 restricted;			/* there are exclusive CPUs */
	u32 nr_traffic;
	u32 allocated;			/* some rule is GTH_RULE_ALLOCATED */
	/* The first generation with these rules: what it found out about parents still holds; 0: none. */
	u32 lineage;
	u32 dfa_at[GTH_NR_PATTERNS + 1];	/* the DFAs of kind k: from dfa_at[k] up to dfa_at[k + 1] */
	struct gth_rules all;
	struct gth_rules has[GTH_NR_CONDS];	/* the rules with each condition */
	struct gth_rules children;	/* the rules that include children */
	struct gth_rule rules[GTH_MAX_RULES];
	struct gth_traffic traffic[GTH_MAX_TRAFFIC];
	struct gth_dfa dfas[GTH_MAX_DFAS];
	/*
	 * Below nr_llcs: the pool of that LLC; from there on: an exclusive pool. The
	 * exclusive pools of odd generations come GTH_MAX_RESERVED after those of even
	 * ones, to tell apart tasks that still wait in a pool of the previous policy
	 * (sched/drain.bpf.h).
	 */
	u16 cpu_pool[GTH_MAX_CPUS];
	u16 pool_cpus[GTH_MAX_POOLS];	/* number of CPUs in each pool */
	struct gth_rules accept[GTH_MAX_STATES];
	u16 trans[GTH_MAX_TRANS];
};

/* Set once, before loading. */
struct gth_machine {
	u32 nr_cpus;			/* one past the highest possible CPU id */
	u32 nr_possible;		/* number of possible CPUs */
	u32 nr_online;			/* online CPUs; the kernel ends the scheduler if this changes */
	u32 nr_llcs;
	u32 smt;			/* some core has more than one CPU */
	u32 builtin_idle;
	u32 idle_per_node;		/* the kernel keeps a mask of idle CPUs for each NUMA node */
	u32 count_pods;			/* pods have counters */
	u16 cpu_llc[GTH_MAX_CPUS];
	__s16 cpu_node[GTH_MAX_CPUS];	/* NUMA node; -1: none */
	__s16 llc_node[GTH_MAX_LLCS];	/* the NUMA node of the LLC's first CPU; -1: none */
	u16 cpu_sibling[GTH_MAX_CPUS];	/* next CPU of the same core, in a ring */
	u32 programs_pin;		/* BPF programs disable migration for the task on which they run */
	u32 any_tickless;		/* `tickless` has at least one CPU */
	u64 tickless[GTH_CPU_WORDS];	/* CPUs that need no tick (nohz_full), one bit each */
	u64 tick_ns;			/* 1e9 / USER_HZ, the unit of start_ticks */
	u64 most_held_ns;		/* a task held back by a limit runs for a moment after this time */
};

/* May change while the scheduler runs. */
struct gth_tunables {
	u64 slice_ns;			/* slice_ns_default */
	u64 slice_min_ns;		/* slice_ns_min */
	u32 generation;			/* of the policy; parity picks gth_tables */
};

/* How a task got to a CPU. */
enum gth_path {
	GTH_PATH_IDLE,			/* woken straight onto an idle CPU */
	GTH_PATH_HANDED_OVER,		/* waited for its waker, which was about to sleep */
	GTH_PATH_PREEMPT,		/* priority: preempted a weaker task */
	GTH_PATH_PRIORITY,		/* priority: waited in the priority DSQ, or came next on its only CPU */
	GTH_PATH_SHARED,		/* in virtual time order, from the pool's DSQ */
	GTH_PATH_PINNED,		/* in virtual time order, from the CPU's own DSQ */
	GTH_PATH_STOLEN,		/* from another LLC's DSQ */
	GTH_PATH_OVERTAKEN,		/* woken up, preempted a normal task with more CPU time */
	GTH_PATH_KTHREAD,		/* per-CPU kthread, local DSQ */
	GTH_PATH_KEPT,			/* kept its CPU for another slice */
	GTH_NR_PATHS,
};

enum gth_counter {
	GTH_COUNT_PRIO_WAKEUPS,		/* wake-ups of priority tasks that then ran */
	GTH_COUNT_PREEMPTIONS,		/* weaker tasks pushed off a CPU */
	GTH_COUNT_LOOKS,		/* CPUs looked at to find one with a weaker task */
	GTH_COUNT_DEMOTIONS,		/* priority tasks sent to fair sharing */
	GTH_COUNT_GUARDED,		/* turns that the guard gave to normal tasks */
	GTH_COUNT_MATCHED,		/* task records (re)matched against the rules */
	GTH_COUNT_RESERVED_AVOIDED,	/* kept off an exclusive CPU */
	GTH_COUNT_RESERVED_KTHREAD,	/* allowed on one: per-CPU kthread */
	GTH_COUNT_RESERVED_PINNED,	/* allowed on one: its affinity has no other CPU */
	GTH_COUNT_RESERVED_MISSED,	/* matched, but its affinity excludes the rule's CPUs */
	GTH_COUNT_MARKED,		/* tasks marked for their traffic */
	GTH_COUNT_MARKS_ENDED,
	GTH_COUNT_MARKS_REFUSED,	/* not marked: max_tasks already are; counted once per window */
	GTH_NR_COUNTERS,
};

/* How a task's turn on a CPU ended, or that it goes on. */
enum gth_turn_end {
	GTH_TURN_GOES_ON,
	GTH_TURN_SLEPT,
	GTH_TURN_EXPIRED,		/* its slice has ended, or it has yielded */
	GTH_TURN_PREEMPTED,
	GTH_NR_TURN_ENDS,		/* power of two: used as an index mask */
};

/* How far a task has moved from the CPU that it ran on last. */
enum gth_migration {
	GTH_MIGRATION_CPU,		/* to another CPU: every migration */
	GTH_MIGRATION_CORE,		/* ... of another core */
	GTH_MIGRATION_LLC,		/* ... of another last-level cache */
	GTH_MIGRATION_NODE,		/* ... of another NUMA node */
	GTH_NR_MIGRATIONS,
};

/* What some tasks did on one CPU. */
struct gth_activity {
	u64 run_ns;
	u64 wait_ns;			/* time runnable but not running; 0 if the kernel does not count it */
	u64 turns[GTH_NR_TURN_ENDS];
	u64 migrations[GTH_NR_MIGRATIONS];
};

/* Counters of a rule's tasks on one CPU. Row 0 is for tasks without a rule. */
struct gth_rule_stats {
	struct gth_activity did;
	/* latencies of all wake-ups, until the task runs; buckets as in gth_stats */
	u64 wakeup_sum_ns;
	u64 wakeup_ns[GTH_HIST_BUCKETS];
};

/* Counters of one CPU. */
struct gth_stats {
	u64 paths[GTH_NR_PATHS];
	u64 counters[GTH_NR_COUNTERS];
	/* priority wake-ups; bucket b counts latencies of [2^b, 2^(b+1)) ns */
	u64 wakeup_ns[GTH_HIST_BUCKETS];
	u64 wakeup_sum_ns;
};

/* Why the kernel ended the scheduler: a copy of struct scx_exit_info. */
struct gth_exit {
	s32 kind;			/* enum scx_exit_kind; 0: still running */
	u32 bt_len;
	s64 exit_code;
	u64 bt[GTH_BT_LEN];
	char reason[GTH_REASON_LEN];
	char msg[GTH_MSG_LEN];
};

/* How a policy's rules apply to a task: one record of the report_task iterator. */
struct gth_verdict {
	u32 tid;
	u32 tgid;
	u32 rule;			/* the first that holds; GTH_NO_RULE: none */
	u32 in_force;			/* the rule that the task is scheduled by now; GTH_NO_RULE: none */
	u32 generation;			/* ... and that rule's generation */
	u32 group;			/* its cgroup's index in groups */
	char comm[GTH_COMM_LEN];
	struct gth_rules hits[GTH_NR_CONDS];	/* per kind: the rules whose condition of that kind holds */
	struct gth_rules holds;		/* the rules whose conditions all hold */
	struct gth_rules inherited;	/* the rules that it falls under as a child */
};

/* A task that a condition knows about: one record of the report_mark iterator. */
struct gth_mark_report {
	u32 tid;
	u32 tgid;
	char comm[GTH_COMM_LEN];
	struct gth_mark mark;
};

/* The traffic that has passed through a data plane in one direction. */
struct gth_passed {
	u64 packets;
	u64 bytes;
	u64 time_ns;			/* time spent in a module; 0: not measured */
	u64 began_ns;			/* start of the call in progress on this CPU; 0: none is measured */
};

enum gth_passed_key {
	/* mark.bpf.c's cookie: a function's number, and starting at these bits: */
	GTH_COOKIE_PACKET = 32,		/* which argument is the packet: 0 or 1 */
	GTH_COOKIE_WAY = 40,		/* the row in the map `passed`; GTH_NO_WAY: no packet enters there */
	GTH_NR_WAYS = 4,		/* two directions of two modules */
	GTH_NO_WAY = 0xff,
	/* mark_udp.bpf.c's key: a port, plus this flag for sent datagrams */
	GTH_PASSED_SENT = 1 << 16,
};

/* Only for its BTF: it makes the skeleton generator write out these enums. */
struct gth_enums {
	enum gth_limit limit;
	enum gth_rank rank;
	enum gth_rule_flag rule_flag;
	enum gth_condition condition;
	enum gth_mask mask;
	enum gth_path path;
	enum gth_counter counter;
	enum gth_turn_end turn_end;
	enum gth_migration migration;
	enum gth_ops_flag ops_flag;
	struct gth_activity activity;
	struct gth_rule_stats rule_stats;
	struct gth_verdict verdict;
	struct gth_mark_report mark_report;
	struct gth_passed passed;
	enum gth_passed_key passed_key;
};

/*
 * The arguments of a SEC("syscall") program or an iterator. User space fills them in
 * and then runs it.
 */
struct gth_request {
	u32 mask;			/* set_mask, get_mask: enum gth_mask, + GTH_NR_MASKS for odd generations */
	u32 generation;			/* go_live */
	u32 tables;			/* report_task: index of the tables to match against */
	u32 moved;			/* set by go_live if it has moved a task to another DSQ */
	u32 tid;			/* report_task, report_mark: only this thread; 0: all */
	u64 cpus[GTH_CPU_WORDS];	/* set_mask, get_mask: one bit per CPU */
};

#endif
