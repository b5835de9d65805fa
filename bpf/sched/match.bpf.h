/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which rule of the policy a task falls under. The task's record keeps the answer with its
 * generation. The task is matched again after a newer generation, the end of a mark
 * (marks/mark.bpf.h), or a change of what rules ask about (an exec, another name, user, cgroup or
 * network namespace, a mark): when it is next queued, or when its turn is over. A running task
 * has to choose its CPU anew at once; after a newer generation, at its CPU's next tick.
 */
#ifndef GTH_MATCH_H
#define GTH_MATCH_H

#include "sched/paths.bpf.h"
#include "sched/ask.bpf.h"
#include "marks/mark.bpf.h"

static __always_inline struct gth_tables *tables_at(u32 index)
{
	if (index >= GTH_TABLES_TRIAL)
		return &tables[GTH_TABLES_TRIAL];
	/* As in rule_in(). */
	barrier_var(index);
	return &tables[index & 1];
}

static __always_inline void add_rules(struct gth_rules *to, const struct gth_rules *rules)
{
	to->word[0] |= rules->word[0];
	to->word[1] |= rules->word[1];
}

/* One step of an automaton: adds the rules that it accepts after it to the hits, and returns its new state. */
static __always_inline u32 step(const struct gth_tables *t, const struct gth_dfa *dfa, u32 state, u32 class,
				struct gth_rules *hits)
{
	state = t->trans[(dfa->trans_base + state * dfa->stride + class) & (GTH_MAX_TRANS - 1)];
	add_rules(hits, &t->accept[(dfa->state_base + state) & (GTH_MAX_STATES - 1)]);
	return state;
}

/* For match_text(): one automaton, which stands for some of the patterns. */
__noinline int match_patterns(u32 index, u32 slot, u32 kind, u32 number)
{
	const struct gth_tables *t = tables_at(index);
	const struct gth_dfa *dfa = &t->dfas[number & (GTH_MAX_DFAS - 1)];
	struct scratch *s = scratch_of(slot);
	u32 state = dfa->start, i;
	struct gth_rules *hits;

	if (!s || kind >= GTH_NR_PATTERNS)
		return 0;
	hits = &s->verdict.hits[kind];
	bpf_for(i, s->from, s->to)
		state = step(t, dfa, state, dfa->class[(u8)char_at(s, i)], hits);
	step(t, dfa, state, dfa->stride - 1, hits); /* the end of the text */
	return 0;
}

/* Adds to the hits the rules whose pattern of this kind is found in the text. */
__noinline int match_text(u32 index, u32 slot, u32 kind, u32 start, u32 end)
{
	const struct gth_tables *t = tables_at(index);
	struct scratch *s = scratch_of(slot);
	u32 d;

	if (!s || kind >= GTH_NR_PATTERNS)
		return 0;
	s->from = start;
	s->to = end;
	bpf_for(d, t->dfa_at[kind], t->dfa_at[kind + 1])
		match_patterns(index, slot, kind, d);
	return 0;
}

/* Whether it is the process or thread that had the rule's pid when the policy was read. */
static __always_inline bool pid_matches(const struct gth_rule *rule, struct task_struct *p)
{
	u32 pid = BPF_CORE_READ(p, pid);
	u64 start;

	if (pid == rule->pid)
		start = BPF_CORE_READ(p, start_boottime);
	else if (BPF_CORE_READ(p, tgid) == rule->pid)
		start = BPF_CORE_READ(p, group_leader, start_boottime);
	else
		return false;
	return start / machine.tick_ns == rule->start_ticks;
}

/*
 * Reads the task's user and network namespace. Has its own stack frame, because its callers are in
 * the longest call chain.
 */
static __noinline void read_ids(struct scratch *s)
{
	struct task_struct *p = s->task;

	s->uid = BPF_CORE_READ(p, real_cred, euid.val);
	s->netns = BPF_CORE_READ(p, nsproxy, net_ns, ns.inum);
}

/* Numeric conditions of one rule. */
__noinline int match_numbers_of(u32 index, u32 slot, u32 number)
{
	const struct gth_tables *t = tables_at(index);
	const struct gth_rule *rule = &t->rules[number & (GTH_MAX_RULES - 1)];
	u32 word = (number / 64) & (GTH_RULE_WORDS - 1);
	u64 bit = 1ULL << (number % 64);
	struct scratch *s = scratch_of(slot);
	struct gth_rules *hits;

	if (!s)
		return 0;
	hits = s->verdict.hits;
	if ((t->has[GTH_COND_PID].word[word] & bit) && pid_matches(rule, s->task))
		hits[GTH_COND_PID].word[word] |= bit;
	if (s->uid == rule->uid)
		hits[GTH_COND_USER].word[word] |= bit;
	if (s->netns && s->netns == rule->netns)
		hits[GTH_COND_NETNS].word[word] |= bit;
	return 0;
}

/* Numeric conditions, rule by rule. */
__noinline int match_numbers(u32 index, u32 slot)
{
	u32 i;

	bpf_for(i, 0, tables_at(index)->nr_rules)
		match_numbers_of(index, slot, i);
	return 0;
}

/* A task's name, from its record: a rename reaches the record before task_struct. */
static __always_inline void name_of(struct task_struct *p, char *comm)
{
	struct task_ctx *tctx = task_of(p);

	bpf_probe_read_kernel(comm, GTH_COMM_LEN, tctx ? (void *)tctx->comm : (void *)p->comm);
}

/* Notes the rules that hold by one of the task's marks, or ends this mark if it has expired. */
__noinline int read_mark(u32 index, u32 slot, u32 number, struct gth_marks *m __arg_nonnull)
{
	const struct gth_traffic *traffic = &tables_at(index)->traffic[number & (GTH_MAX_TRAFFIC - 1)];
	struct gth_mark *mark = mark_of(m, traffic);
	u64 until = *(volatile u64 *)&mark->until;
	struct scratch *s = scratch_of(slot);

	if (!s || mark->condition != traffic->id || !until)
		return 0;
	if (until <= marks_now()) {
		end_mark(traffic, mark, until);
		return 0;
	}
	add_rules(&s->marked, &traffic->rules);
	if (!s->marked_until || until < s->marked_until)
		s->marked_until = until;
	return 0;
}

/* Makes @p the task that match_conditions() looks at. */
__noinline int look_at(struct task_struct *p __arg_trusted, u32 index, u32 slot)
{
	const struct gth_tables *t = tables_at(index);
	struct task_struct *leader = p->group_leader;
	struct scratch *s = scratch_of(slot);
	struct gth_marks *m;
	u32 i;

	if (!s)
		return 0;
	s->task = p;
	name_of(p, s->comm);
	s->leader_comm[0] = 0;
	if (leader && leader != p)
		name_of(leader, s->leader_comm);
	__builtin_memset(&s->marked, 0, sizeof(s->marked));
	s->marked_until = 0;
	if (!t->nr_traffic)
		return 0;
	m = bpf_task_storage_get(&marks, p, NULL, 0);
	if (!m)
		return 0;
	bpf_for(i, 0, t->nr_traffic)
		read_mark(index, slot, i, m);
	return 0;
}

/*
 * Decides on one of the task's marks. A mark that the task's packets asked for begins if all other
 * conditions of one of its rules hold. A mark ends if they hold for none of its rules any more: its
 * place is for others. Only for the task's own match, not for a report or a trial.
 */
__noinline int settle_mark(u32 index, u32 slot, u32 number, struct gth_marks *m __arg_nonnull)
{
	const struct gth_traffic *traffic = &tables_at(index)->traffic[number & (GTH_MAX_TRAFFIC - 1)];
	struct gth_mark *mark = mark_of(m, traffic);
	u64 until = *(volatile u64 *)&mark->until;
	struct scratch *s = scratch_of(slot);
	bool due = mark->due;

	if (!s || mark->condition != traffic->id || !(due || until))
		return 0;
	mark->due = false;
	if (!rules_meet(&s->by_traffic, &traffic->rules)) {
		if (until)
			end_mark(traffic, mark, until);
		return 0;
	}
	if (!due)
		return 0;
	begin_mark(traffic, mark, marks_now());
	if (!mark->until)
		return 0;
	add_rules(&s->marked, &traffic->rules);
	if (!s->marked_until || mark->until < s->marked_until)
		s->marked_until = mark->until;
	return 0;
}

/* Decides on all of the task's marks. */
__noinline int settle_marks(struct task_struct *p __arg_trusted, u32 index, u32 slot)
{
	struct gth_marks *m = bpf_task_storage_get(&marks, p, NULL, 0);
	u32 i;

	if (!m)
		return 0;
	bpf_for(i, 0, tables_at(index)->nr_traffic)
		settle_mark(index, slot, i, m);
	return 0;
}

/* Takes the task's marks into account: the last of the conditions. */
static __always_inline void hold_by_marks(const struct gth_tables *t, struct scratch *s)
{
	struct gth_rules *holds = &s->verdict.holds;

	s->verdict.hits[GTH_COND_GTP] = s->marked;
	holds->word[0] &= s->marked.word[0] | ~t->has[GTH_COND_GTP].word[0];
	holds->word[1] &= s->marked.word[1] | ~t->has[GTH_COND_GTP].word[1];
}

/*
 * Fills in hits and holds of the scratch's verdict for the task, without its marks:
 * hold_by_marks() comes after it.
 */
__noinline int match_conditions(u32 index, u32 slot)
{
	const struct gth_tables *t = tables_at(index);
	struct scratch *s = scratch_of(slot);
	struct gth_verdict *v;
	u32 start, end, i;

	if (!s)
		return 0;
	v = &s->verdict;
	__builtin_memset(v->hits, 0, sizeof(v->hits));
	if (any_rule(&t->has[GTH_COND_COMM]) | any_rule(&t->has[GTH_COND_THREAD])) {
		end = comm_text(s, s->comm);
		match_text(index, slot, GTH_COND_COMM, 0, end);
		match_text(index, slot, GTH_COND_THREAD, 0, end);
		if (s->leader_comm[0])
			match_text(index, slot, GTH_COND_COMM, 0, comm_text(s, s->leader_comm));
	}
	if (any_rule(&t->has[GTH_COND_CGROUP]) | any_rule(&t->has[GTH_COND_UNIT]) |
	    any_rule(&t->has[GTH_COND_CONTAINER]) | any_rule(&t->has[GTH_COND_POD])) {
		start = cgroup_path(slot);
		if (start) {
			bpf_for(i, GTH_COND_CGROUP, GTH_COND_POD + 1)
				match_text(index, slot, i, start, GTH_PATH_LEN);
		}
	}
	if (any_rule(&t->has[GTH_COND_EXE])) {
		start = exe_path(slot);
		if (start)
			match_text(index, slot, GTH_COND_EXE, start, GTH_PATH_LEN);
	}
	if (any_rule(&t->has[GTH_COND_PID]) | any_rule(&t->has[GTH_COND_USER]) |
	    any_rule(&t->has[GTH_COND_NETNS])) {
		read_ids(s);
		match_numbers(index, slot);
	}

	v->holds = t->all;
	bpf_for(i, 0, GTH_COND_GTP) {
		u32 cond = i < GTH_COND_GTP ? i : 0;

		v->holds.word[0] &= v->hits[cond].word[0] | ~t->has[cond].word[0];
		v->holds.word[1] &= v->hits[cond].word[1] | ~t->has[cond].word[1];
	}
	s->by_traffic.word[0] = v->holds.word[0] & t->has[GTH_COND_GTP].word[0];
	s->by_traffic.word[1] = v->holds.word[1] & t->has[GTH_COND_GTP].word[1];
	return 0;
}

/*
 * Adds the rules that a parent's children fall under: those that the parent meets or itself inherits. Returns
 * whether these are all: then there is no need to look at the parent's own parents.
 */
__noinline int add_lineage(struct task_struct *parent __arg_trusted, u32 index, u32 generation, u32 slot)
{
	const struct gth_tables *t = tables_at(index);
	struct task_ctx *tctx = task_of(parent);
	struct scratch *s = scratch_of(slot);
	struct gth_rules *found;
	bool known;

	if (!s)
		return true;
	found = &s->verdict.inherited;
	known = tctx && t->lineage && tctx->lineage == t->lineage;
	if (known && generation && match_generation(tctx->match) == generation) {
		add_rules(found, &tctx->passed_on);
		return true;
	}
	look_at(parent, index, slot);
	match_conditions(index, slot);
	hold_by_marks(t, s);
	found->word[0] |= s->verdict.holds.word[0] & t->children.word[0];
	found->word[1] |= s->verdict.holds.word[1] & t->children.word[1];
	if (known)
		add_rules(found, &tctx->inherited);
	return known;
}

/*
 * Adds the rules that a task falls under as a child. Looks back to the first ancestor already matched
 * under this generation.
 */
__noinline int find_lineage(struct task_struct *p __arg_trusted, u32 index, u32 generation, u32 slot)
{
	struct task_struct *parent = p;
	u32 i;

	bpf_for(i, 0, GTH_MAX_LINEAGE) {
		parent = parent->real_parent;
		if (!parent || !parent->pid || add_lineage(parent, index, generation, slot))
			break;
	}
	return 0;
}

static __always_inline u32 first_rule(const struct gth_verdict *v)
{
	u64 low = v->holds.word[0] | v->inherited.word[0];
	u64 high = v->holds.word[1] | v->inherited.word[1];

	if (low)
		return __builtin_ctzll(low);
	return high ? 64 + __builtin_ctzll(high) : GTH_NO_RULE;
}

/*
 * The record that says what the task falls under as a child: its own, or that of its process's first thread. A
 * new thread has none yet, and its process's parents may have ended. NULL: neither is of @lineage.
 */
static __always_inline struct task_ctx *known_lineage(struct task_struct *p, u32 lineage)
{
	struct task_ctx *tctx = task_of(p);

	if (!lineage)
		return NULL;
	if (tctx && tctx->lineage == lineage)
		return tctx;
	tctx = task_of(p->group_leader);
	return tctx && tctx->lineage == lineage ? tctx : NULL;
}

/*
 * Matches a task against the tables at @index, into a scratch's verdict, except for its marks:
 * conclude() comes after it. Uses the lineage in the task's record if it belongs to the tables' rules;
 * match_now() keeps it there, so that it outlives the parents. @generation: that of the tables; 0: they
 * are not live.
 *
 * Global, like the other functions that are __noinline but not static: the verifier
 * checks it once, not for each caller's state. From gth_enqueue() to match_patterns() there are
 * 8 frames: Linux 6.12 allows no more (MAX_CALL_FRAMES, include/linux/bpf_verifier.h).
 */
__noinline int match_task(struct task_struct *p __arg_trusted, u32 index, u32 generation, u32 slot)
{
	struct scratch *s = scratch_of(slot);
	struct gth_tables *t = tables_at(index);
	struct task_ctx *known;

	if (!s)
		return 0;
	s->verdict.inherited = (struct gth_rules){};
	if (any_rule(&t->children)) {
		known = known_lineage(p, t->lineage);
		if (known)
			s->verdict.inherited = known->inherited;
		else
			find_lineage(p, index, generation, slot);
	}
	look_at(p, index, slot);
	match_conditions(index, slot);
	return 0;
}

/* Takes the task's marks into account, and names its rule. */
__noinline int conclude(u32 index, u32 slot)
{
	struct scratch *s = scratch_of(slot);

	if (!s)
		return 0;
	hold_by_marks(tables_at(index), s);
	s->verdict.rule = first_rule(&s->verdict);
	return 0;
}

/* The rule that a match word names, or NULL. */
static __always_inline const struct gth_rule *rule_in(u64 match)
{
	u32 rule = match_rule(match);

	if (!match_generation(match) || rule >= GTH_MAX_RULES)
		return NULL;
	/* The compiler knows the bound here and would drop the check that the verifier needs. */
	barrier_var(rule);
	return &live_tables(match_generation(match))->rules[rule & (GTH_MAX_RULES - 1)];
}

/* Row of the rule's counters, see sched/tally.bpf.h. */
static __always_inline u16 row_of(const struct gth_rule *rule)
{
	return rule ? rule->row : 0;
}

/*
 * Called when a task of a rule with allocated CPUs comes, changes or goes: it may be in another
 * cpuset than the rule's other tasks.
 */
static __always_inline void note_allocated(u64 match)
{
	const struct gth_rule *rule = rule_in(match);

	if (rule && (rule->flags & GTH_RULE_ALLOCATED))
		tell_of_cpusets();
}

/* Finds the task's rule under the live generation and stores it in its record. */
__noinline int match_now(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull)
{
	u32 generation = tunables.generation, index = generation & 1;
	const struct gth_rules *children = &live_tables(generation)->children;
	u32 changes = *(volatile u32 *)&tctx->changes;
	struct scratch *s;
	struct gth_verdict *v;

	/* Reads the task only after its count of changes. */
	memory_barrier();
	match_task(p, index, generation, SCRATCH_SCHED);
	if (live_tables(generation)->nr_traffic)
		settle_marks(p, index, SCRATCH_SCHED);
	conclude(index, SCRATCH_SCHED);
	s = scratch_of(SCRATCH_SCHED);
	if (!s)
		return 0;
	v = &s->verdict;
	tctx->inherited = v->inherited;
	tctx->passed_on.word[0] = v->inherited.word[0] | (v->holds.word[0] & children->word[0]);
	tctx->passed_on.word[1] = v->inherited.word[1] | (v->holds.word[1] & children->word[1]);
	tctx->lineage = live_tables(generation)->lineage;
	tctx->marked_until = s->marked_until;
	tctx->by_traffic = s->by_traffic;
	count_rarely(GTH_COUNT_MATCHED);
	/*
	 * Another CPU may have changed the task since. The exchange is a barrier, so this CPU or
	 * that one sees it.
	 */
	__sync_lock_test_and_set(&tctx->match, match_word(generation, v->rule));
	if (*(volatile u32 *)&tctx->changes != changes)
		tctx->match = 0;
	note_allocated(match_word(generation, v->rule));
	return 0;
}

/* Whether this match word of the task's record is what the live policy makes of it. */
static __always_inline bool is_current(const struct task_ctx *tctx, u64 match)
{
	return match_generation(match) == tunables.generation &&
	       !(tctx->marked_until && tctx->marked_until <= marks_now());
}

/*
 * Matches the task, and returns its match word under the live generation, or 0, which names no
 * rule, if what rules ask about has changed meanwhile. The word is read once per decision, so that
 * one policy's rule never meets another's tables.
 */
static __always_inline u64 match_anew(struct task_struct *p, struct task_ctx *tctx)
{
	match_now(p, tctx);
	return *(volatile u64 *)&tctx->match;
}

/*
 * ---- what changes a task's rule ----
 *
 * On a CPU where a task was preempted in one of these programs, the kernel skips that program
 * for other tasks (src/sched/scheduler.rs, has_missed_changes()). So each program tells user
 * space at its end, when all skips in the meantime are counted.
 */

/*
 * Has the task matched again when it is next queued or woken up. A running task has
 * to choose its CPU anew at once. If it is in a BPF program at that moment, or was
 * queued just before, it may go on running where it no longer should: the next tick
 * asks it again (gth_tick).
 */
__noinline int match_again(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tctx = task_of(p);

	if (!tctx)
		return 0;
	note_allocated(*(volatile u64 *)&tctx->match);
	forget_match(tctx);
	if (!live_tables(tunables.generation)->nr_rules)
		return 0;
	tctx->need_resched = true;
	if (p == bpf_get_current_task_btf())
		ask_soon();
	else if (scx_bpf_task_running(p) && !is_migration_disabled(p))
		kick_preempt(scx_bpf_task_cpu(p));
	return 0;
}

#endif
