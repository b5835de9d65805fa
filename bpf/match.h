/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which rule of the policy a task falls under. The answer is kept in the task's
 * record with the generation it was found under; a newer generation, a rename
 * or a fork makes it be found again, at the task's next wake-up or queueing.
 */
#ifndef GTH_MATCH_H
#define GTH_MATCH_H

#include "state.h"

static __always_inline void add_accepted(const struct gth_tables *t, u32 state, struct gth_rules *hit)
{
	u32 i = state & (GTH_MAX_STATES - 1);

	hit->word[0] |= t->accept[i].word[0];
	hit->word[1] |= t->accept[i].word[1];
}

/*
 * Adds to @hit the rules whose command_regex is found in @comm: at most 16
 * steps for each DFA, whatever the number of rules.
 */
static __noinline void match_comm(u32 generation, const char *comm, struct gth_rules *hit)
{
	const struct gth_tables *t = live_tables(generation);
	u32 d, i;

	bpf_for(d, 0, t->nr_dfas) {
		const struct gth_dfa *dfa = &t->dfas[d & (GTH_MAX_DFAS - 1)];
		u32 state = dfa->start;

		bpf_for(i, 0, GTH_COMM_LEN) {
			u8 byte = comm[i & (GTH_COMM_LEN - 1)];
			/* A comm always ends in NUL (include/linux/sched.h). */
			u32 class = byte ? dfa->class[byte] : dfa->stride - 1;
			u32 next = dfa->trans_base + state * dfa->stride + class;

			state = t->trans[next & (GTH_MAX_TRANS - 1)];
			add_accepted(t, dfa->state_base + state, hit);
			if (!byte)
				break;
		}
	}
}

/* The same process or thread that had the rule's pid when the policy was read. */
static __always_inline bool pid_matches(const struct gth_rule *rule, struct task_struct *p)
{
	u64 start;

	if (p->pid == rule->pid)
		start = p->start_boottime;
	else if (p->tgid == rule->pid)
		start = BPF_CORE_READ(p, group_leader, start_boottime);
	else
		return false;
	return start / machine.tick_ns == rule->start_ticks;
}

/* The first rule whose conditions all hold, or NO_RULE. @leader may be @comm. */
static __noinline u16 find_rule(u32 generation, struct task_struct *p, const char *comm, const char *leader)
{
	const struct gth_tables *t = live_tables(generation);
	struct gth_rules hit = {};
	u32 i;

	if (!t->nr_rules)
		return NO_RULE;
	match_comm(generation, comm, &hit);
	if (leader != comm)
		match_comm(generation, leader, &hit);
	bpf_for(i, 0, t->nr_rules) {
		const struct gth_rule *rule = &t->rules[i & (GTH_MAX_RULES - 1)];
		u32 word = (i / 64) & (GTH_RULE_WORDS - 1);

		if ((rule->flags & GTH_RULE_COMM) && !((hit.word[word] >> (i % 64)) & 1))
			continue;
		if ((rule->flags & GTH_RULE_PID) && !pid_matches(rule, p))
			continue;
		return i;
	}
	return NO_RULE;
}

static __always_inline void match_as(struct task_struct *p, struct task_ctx *tctx,
				     const char *comm, const char *leader)
{
	u32 generation = knobs.generation;

	tctx->match = match_word(generation, find_rule(generation, p, comm, leader));
	count(GTH_COUNT_MATCHED);
}

/* Global, like other functions that take this keyword: verified once, not for each caller's state. */
__noinline int match_now(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull)
{
	char comm[GTH_COMM_LEN] = {};
	char leader[GTH_COMM_LEN] = {};

	BPF_CORE_READ_STR_INTO(&comm, p, comm);
	BPF_CORE_READ_STR_INTO(&leader, p, group_leader, comm);
	match_as(p, tctx, comm, leader);
	return 0;
}

/* The task's rule under the live generation, or NULL. */
static __always_inline const struct gth_rule *rule_of(struct task_struct *p, struct task_ctx *tctx)
{
	u64 match;
	u32 rule;

	if (match_generation(tctx->match) != knobs.generation)
		match_now(p, tctx);
	match = tctx->match;
	rule = match_rule(match);
	if (rule >= GTH_MAX_RULES)
		return NULL;
	/* The compiler knows the bound now and would leave out the one that the verifier sees. */
	barrier_var(rule);
	return &live_tables(match_generation(match))->rules[rule & (GTH_MAX_RULES - 1)];
}

int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, unsigned int flags) __ksym;
struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym;
void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym;

/*
 * prctl(PR_SET_NAME), a write to /proc/PID/comm, or exec. Runs before the name
 * is stored (fs/exec.c, __set_task_comm()), so the new one is taken from the
 * event. A renamed process leader changes what its threads match.
 */
SEC("tp_btf/task_rename")
int BPF_PROG(gth_task_rename, struct task_struct *p, const char *new_comm)
{
	struct task_ctx *tctx = task_of(p);
	char comm[GTH_COMM_LEN] = {};
	char other[GTH_COMM_LEN] = {};
	struct task_struct *thread;

	bpf_probe_read_kernel_str(comm, sizeof(comm), new_comm);
	if (p->pid != p->tgid) {
		BPF_CORE_READ_STR_INTO(&other, p, group_leader, comm);
		if (tctx)
			match_as(p, tctx, comm, other);
		return 0;
	}
	if (tctx)
		match_as(p, tctx, comm, comm);
	bpf_for_each(task, thread, p, BPF_TASK_ITER_PROC_THREADS) {
		tctx = thread == p ? NULL : task_of(thread);
		if (!tctx)
			continue;
		BPF_CORE_READ_STR_INTO(&other, thread, comm);
		match_as(thread, tctx, other, comm);
	}
	return 0;
}

#endif
