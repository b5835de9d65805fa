//! The scheduler in the kernel: load, attach, feed, watch, unload.
//!
//! The BPF program (bpf/sched.bpf.c) makes every decision about a task; this code feeds
//! it tables and watches it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::ops::Add;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{
    AsRawLibbpf, Link, MapCore, MapFlags, OpenObject, ProgramInput, ProgramMut, RingBuffer,
    RingBufferBuilder, libbpf_sys,
};
use nix::unistd::{SysconfVar, sysconf};

use super::activity::{self, Activity};
use super::counter_rows;
use super::exit::Ended;
use super::groups;
use super::hooks::Hooks;
use super::kernel_types::KernelTypes;
use super::layout::{Limits, MaskIndex};
use super::limited::{self, Limited};
use super::policy_tables::{self, Ids};
use super::rule_stats::{self, RuleRow};
use super::stats::Stats;
use super::traffic::{self, Mark, Traced};
use super::verdict::{self, Verdict};
use super::watchdog;
use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode, Result};
use crate::kernel::isolation::isolates_domains;
use crate::kernel::libbpf_log;
use crate::kernel::release;
use crate::kernel::sched_ext;
use crate::kernel::skeletons::scheduler::types::{
    gth_activity, gth_machine, gth_ops_flag, gth_request, gth_tables, gth_tunables, sched_ext_ops,
};
use crate::kernel::skeletons::scheduler::{OpenSchedSkel, SchedSkel, SchedSkelBuilder};
use crate::kernel::topology::Topology;
use crate::policy::compile::Compiled;

/// The scheduler's settings from the config file; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub slice_ns: u64,
    pub slice_min_ns: u64,
    pub builtin_idle: bool,
    /// Whether to count what the tasks of pods do.
    pub count_pods: bool,
    pub debug: bool,
    /// [`kernel::hotplug_seq`] before the topology was read. If a CPU comes or goes in
    /// between, the kernel ends the scheduler and gthctl reloads it.
    pub hotplug_seq: u64,
}

/// The rules of a policy, compared with those of the live one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    New,
    /// The same rules in the same order. What they refer to may have changed.
    Same,
}

/// A loaded scheduler. Dropping it unloads it from the kernel.
pub struct Scheduler<'obj> {
    skel: SchedSkel<'obj>,
    ops: Option<Link>,
    hooks: Hooks,
    report: Link,
    rematch: Link,
    marks: Link,
    changes: RingBuffer<'static>,
    /// The numbers of the live policy.
    ids: Ids,
    /// How often the kernel had skipped a hook at the last check.
    skipped: u64,
    kernel: KernelTypes<'static>,
    malformed: Vec<&'static str>,
    nr_llcs: usize,
}

impl<'obj> Scheduler<'obj> {
    /// Loads the BPF program with `policy` and puts every task on the machine under it.
    /// `object` is only storage.
    ///
    /// Fails with [`ExitCode::KernelUnsupported`] when the kernel refuses the program;
    /// the message holds the last output of libbpf or the verifier.
    pub fn load(
        object: &'obj mut MaybeUninit<OpenObject>,
        settings: &Settings,
        topology: &Topology,
        policy: &Compiled,
    ) -> Result<Self> {
        let kernel = KernelTypes::read()?;
        libbpf_log::capture(settings.debug);
        let mut open = SchedSkelBuilder::default().open(object).map_err(refused)?;
        configure(&mut open, settings, topology, &kernel)?;
        let mut skel = open.load().map_err(refused)?;
        run_program(&skel.progs.look_up_kernel)?;
        let nr_llcs = topology.nr_llcs();
        let ids = Ids::default().next(policy);
        install(&mut skel, policy, &ids, nr_llcs, 1, 1)?;
        skel.tunables().generation = 1;
        let mut scheduler = Self::attach(skel, policy, ids, kernel, nr_llcs)?;
        scheduler.skel.request().generation = 1;
        run_program(&scheduler.skel.progs.go_live)?;
        Ok(scheduler)
    }

    /// Attaches the loaded program: its hooks, its iterators, then the scheduler.
    fn attach(
        mut skel: SchedSkel<'obj>,
        policy: &Compiled,
        ids: Ids,
        kernel: KernelTypes<'static>,
        nr_llcs: usize,
    ) -> Result<Self> {
        let hooks = Hooks::attach(&mut skel.progs, policy, kernel.needs_limit_hook())?;
        let report = skel.progs.report_task.attach().map_err(refused)?;
        let rematch = skel.progs.rematch_task.attach().map_err(refused)?;
        let marks = skel.progs.report_mark.attach().map_err(refused)?;
        let mut changes = RingBufferBuilder::new();
        changes.add(&skel.maps.changes, |_| 0).map_err(refused)?;
        let changes = changes.build().map_err(refused)?;
        let ops = skel.maps.gthctl_ops.attach_struct_ops().map_err(not_taken)?;
        Ok(Self {
            skel,
            ops: Some(ops),
            hooks,
            report,
            rematch,
            marks,
            changes,
            ids,
            skipped: 0,
            malformed: kernel.malformed_kfuncs(),
            kernel,
            nr_llcs,
        })
    }

    /// The kfuncs that the program avoids because their BTF is malformed; usually none.
    pub fn malformed_kfuncs(&self) -> &[&'static str] {
        &self.malformed
    }

    /// What the kernel lacks for the weights and limits of cgroups, as a sentence.
    pub fn lacks_for_cgroups(&self) -> Option<&'static str> {
        self.kernel.lacks_for_cgroups()
    }

    /// Whether the BPF program can wake an idle CPU by itself.
    pub fn can_kick(&self) -> bool {
        self.kernel.can_kick()
    }

    /// Whether the kernel has an ext server for each CPU.
    pub fn has_ext_servers(&self) -> bool {
        self.kernel.has_ext_servers()
    }

    /// Makes `policy` the live one, in one step for every task. CPUs that become or were exclusive
    /// act on it at once, the others when they next switch tasks or at their next tick.
    ///
    /// Finds out anew which tasks are children of a rule's tasks, unless the rules are [`Rules::Same`].
    pub fn set_policy(&mut self, policy: &Compiled, rules: Rules) -> Result<()> {
        let generation = self.generation().wrapping_add(1).max(1);
        let lineage = self.lineage(rules).unwrap_or(generation);
        let ids = self.ids.next(policy);
        // The live policy does not use these marks.
        let data = self.skel.maps.bss_marked_data.as_mut().expect("the program has .bss.marked");
        self.ids.traffic.new_marks(&ids.traffic).for_each(|mark| data.marked_tasks[mark] = 0);
        install(&mut self.skel, policy, &ids, self.nr_llcs, generation, lineage)?;
        self.hooks.extend(&mut self.skel.progs, policy)?;
        self.skel.request().generation = generation;
        run_program(&self.skel.progs.go_live)?;
        self.hooks.reduce(policy);
        self.ids = ids;
        self.wait_for_readers()?;
        run_program(&self.skel.progs.go_live)
    }

    /// How the live policy's rules apply to every thread, or to one.
    pub fn verdicts(&mut self, tid: Option<u32>) -> Result<Vec<Verdict>> {
        let tables = self.generation() & 1;
        self.report(tables, tid)
    }

    /// How the rules of `policy` would apply to every thread.
    pub fn try_policy(&mut self, policy: &Compiled, rules: Rules) -> Result<Vec<Verdict>> {
        let (ids, nr_llcs) = (self.ids.next(policy), self.nr_llcs);
        let lineage = self.lineage(rules).unwrap_or(0);
        let trial = &mut self.tables()[policy_tables::TRIAL as usize];
        policy_tables::write(policy, &ids, nr_llcs, 0, trial);
        trial.lineage = lineage;
        self.report(policy_tables::TRIAL, None)
    }

    fn tables(&mut self) -> &mut [gth_tables] {
        let data = self.skel.maps.bss_tables_data.as_mut().expect("the program has .bss.tables");
        &mut data.tables
    }

    /// The lineage number of the live policy, which keeps what is known about tasks' parents, if
    /// `rules` are the same.
    fn lineage(&mut self, rules: Rules) -> Option<u32> {
        let live = self.generation() as usize & 1;
        (rules == Rules::Same).then(|| self.tables()[live].lineage)
    }

    fn report(&mut self, tables: u32, tid: Option<u32>) -> Result<Vec<Verdict>> {
        let request = self.skel.request();
        request.tables = tables;
        request.tid = tid.unwrap_or(0);
        verdict::read(&self.report)
    }

    /// What the live policy's traffic conditions know about every thread, or one. Ends expired
    /// marks.
    pub fn marks(&mut self, tid: Option<u32>) -> Result<Vec<Mark>> {
        self.skel.request().tid = tid.unwrap_or(0);
        Ok(traffic::read(&verdict::run(&self.marks)?, &self.ids.traffic))
    }

    /// Whether any task is marked.
    pub fn has_marked(&self) -> bool {
        let data = self.skel.maps.bss_marked_data.as_ref().expect("the program has .bss.marked");
        data.marked_tasks.iter().any(|&tasks| tasks != 0)
    }

    /// The functions that the live policy wants traced, with their numbers.
    pub fn traced(&self) -> &BTreeMap<Traced, u32> {
        &self.ids.traffic.functions
    }

    /// The UDP ports that the live policy asks about, each once, in order.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.ids.traffic.ports().collect()
    }

    /// One of the scheduler's maps, for a program that shares it.
    pub fn map(&self, name: &OsStr) -> Option<BorrowedFd<'_>> {
        let map = self.skel.object().maps().find(|map| map.name() == name)?;
        // SAFETY: the map is open for as long as the skeleton lives.
        Some(unsafe { BorrowedFd::borrow_raw(map.as_fd().as_raw_fd()) })
    }

    /// A descriptor that becomes readable when a task changes what rules ask about, for
    /// the first time since [`Scheduler::has_missed_changes`] was called.
    pub fn changes(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open for as long as the ring buffer lives.
        unsafe { BorrowedFd::borrow_raw(self.changes.epoll_fd()) }
    }

    /// Drains that descriptor; true if it was readable.
    pub fn take_changes(&self) -> bool {
        self.changes.consume_raw() > 0
    }

    /// Whether the kernel has skipped a program that notices task changes since the last
    /// call. It does so on a CPU where a task was preempted in that program
    /// (`recursion_misses` in `struct bpf_prog_info`).
    pub fn has_missed_changes(&mut self) -> Result<bool> {
        let progs = &self.skel.progs;
        let hooks = [
            &progs.gth_task_rename,
            &progs.gth_cgroup_attach,
            &progs.gth_commit_creds,
            &progs.gth_switch_namespaces,
        ];
        // Cleared before the check, so that any later change is reported.
        let data = self.skel.maps.bss_changed_data.as_mut().expect("it has .bss.changed");
        // SAFETY: an aligned u32 that lives as long as the skeleton; the kernel writes it too.
        unsafe { AtomicU32::from_ptr(&raw mut data.tasks_changed) }.store(0, Ordering::SeqCst);
        let skipped = hooks.iter().map(|hook| recursion_misses(hook)).sum::<Result<u64>>()?;
        Ok(skipped != std::mem::replace(&mut self.skipped, skipped))
    }

    /// Whether anything has happened since [`Scheduler::forget_cpuset_changes`] that may change
    /// which cpusets the tasks of rules with allocated CPUs are in, or which CPUs these cpusets have.
    pub fn cpusets_changed(&mut self) -> bool {
        self.cpusets_flag().load(Ordering::SeqCst) != 0
    }

    /// From now on, [`Scheduler::changes`] reports such a change again. Has to be called before the
    /// cpusets are read, so that no change is missed.
    pub fn forget_cpuset_changes(&mut self) {
        self.cpusets_flag().store(0, Ordering::SeqCst);
    }

    fn cpusets_flag(&mut self) -> &AtomicU32 {
        let data = self.skel.maps.bss_changed_data.as_mut().expect("it has .bss.changed");
        // SAFETY: an aligned u32 that lives as long as the skeleton; the kernel writes it too.
        unsafe { AtomicU32::from_ptr(&raw mut data.cpusets_changed) }
    }

    /// The CPUs whose ext server (kernel/sched/ext.c) has stopped although they have sched_ext tasks.
    /// Fails if the kernel has no such servers.
    pub fn stopped_servers(&mut self) -> Result<Vec<u32>> {
        run_program(&self.skel.progs.get_stopped_servers)?;
        let words = (0..).step_by(64).zip(self.skel.request().cpus);
        let cpus = |(first, word): (u32, u64)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| first + bit)
        };
        Ok(words.flat_map(cpus).collect())
    }

    /// Makes the scheduler match every task again, when the task is next queued or woken up, or at
    /// a tick.
    pub fn rematch(&self) -> Result<()> {
        verdict::run(&self.rematch).map(drop)
    }

    /// Whether the kernel's tables and CPU masks hold exactly what `policy` says.
    pub fn holds(&mut self, policy: &Compiled) -> Result<bool> {
        let generation = self.generation();
        for (&index, cpus) in &policy.masks {
            self.skel.request().mask = MaskIndex::of_generation(index, generation);
            run_program(&self.skel.progs.get_mask)?;
            if self.skel.request().cpus != mask_words(cpus) {
                return Ok(false);
            }
        }
        let data = self.skel.maps.bss_tables_data.as_ref().expect("the program has .bss.tables");
        let live = &data.tables[generation as usize & 1];
        Ok(policy_tables::hold(policy, &self.ids, self.nr_llcs, generation, live))
    }

    /// Sets the slices, in nanoseconds, for tasks queued from now on.
    pub fn set_slices(&mut self, slice_ns: u64, slice_min_ns: u64) {
        let tunables = self.skel.tunables();
        tunables.slice_ns = slice_ns;
        tunables.slice_min_ns = slice_min_ns;
    }

    /// The number of the live policy, from 1.
    pub fn generation(&self) -> u32 {
        let data = self.skel.maps.data_tunables_data.as_ref();
        data.expect("the program has .data.tunables").tunables.generation
    }

    /// Waits until every BPF program running now has ended (bpf/sched/drain.bpf.h).
    fn wait_for_readers(&self) -> Result<()> {
        let maps = &self.skel.maps;
        let inner = maps.grace_period_inner.as_fd().as_raw_fd();
        let failed = |e| Error::failure(format!("waiting for an RCU grace period: {e}"));
        let key = 0u32.to_ne_bytes();
        maps.grace_period.update(&key, &inner.to_ne_bytes(), MapFlags::ANY).map_err(failed)
    }

    /// The counters since loading.
    pub fn stats(&self) -> Result<Stats> {
        let values = self
            .skel
            .maps
            .stats
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| Error::failure(format!("reading the counters: {e}")))?;
        Ok(Stats::sum(&values.unwrap_or_default()))
    }

    /// The counters of the rule with this name, or of the tasks without one.
    pub fn rule_row(&self, rule: Option<&str>) -> Result<RuleRow> {
        let row = rule.map_or(counter_rows::NONE, |rule| self.ids.rows.of(rule));
        rule_stats::read(&self.skel.maps.rule_stats, row)
    }

    /// The paths of all cgroups with the cpu controller, by the scheduler's numbers; none unless the
    /// scheduler counts what pods do.
    pub fn cgroups(&self) -> Result<BTreeMap<u32, String>> {
        let maps = &self.skel.maps;
        groups::paths(&maps.group_indices, &maps.groups, &maps.group_names)
    }

    /// From now on, the tasks of this cgroup count in this row, as do those of new cgroups inside it.
    pub fn set_pod_row(&mut self, group: u32, row: u16) {
        let data = self.skel.maps.bss_pods_data.as_mut().expect("the program has .bss.pods");
        data.pod_rows[group as usize] = row;
    }

    /// What the tasks that count in this row did.
    pub fn pod_activity(&self, row: u16) -> Result<Activity> {
        // SAFETY: the map's value is a gth_activity, all integers.
        let cpus = unsafe { activity::read_row::<gth_activity>(&self.skel.maps.pod_stats, row) }?;
        Ok(cpus.iter().map(Activity::of).fold(Activity::default(), Activity::add))
    }

    /// Sets this row to zero.
    pub fn clear_pod(&self, row: u16) -> Result<()> {
        activity::clear_row::<gth_activity>(&self.skel.maps.pod_stats, row)
    }

    /// The cgroups whose CPU time is limited.
    pub fn limited_cgroups(&self) -> Result<Vec<Limited>> {
        let limits = &self.skel.maps.bss_data.as_ref().expect("the program has .bss").limits;
        let listed = &limits.of[..limits.of.len().min(limits.top as usize)];
        limited::read(&self.skel.maps.groups, listed)
    }

    /// A descriptor that becomes readable when the kernel ends the scheduler.
    pub fn event(&self) -> Result<OwnedFd> {
        let events = self.skel.maps.events.as_fd();
        events.try_clone_to_owned().map_err(|e| Error::failure(format!("the events' map: {e}")))
    }

    /// Fails if there are more cgroups than the scheduler can keep shares and limits for.
    pub fn check_cgroups(&self) -> Result<()> {
        let data = self.skel.maps.bss_groups_data.as_ref().expect("the program has .bss.groups");
        if data.too_many_groups == 0 {
            return Ok(());
        }
        let most = Limits::GROUPS - 1;
        Err(Error::failure(format!("more than {most} cgroups have the cpu controller"))
            .help("their weights and limits hold again: the kernel's own scheduler is in charge"))
    }

    /// Why the kernel ended the scheduler; `None` while it runs.
    pub fn ended(&self) -> Option<Ended> {
        let data = self.skel.maps.bss_exited_data.as_ref().expect("the program has .bss.exited");
        Ended::read(&data.exited, &self.kernel, self.ops.is_none())
    }

    /// Unloads the scheduler from the kernel and waits until that is done.
    pub fn unload(&mut self) -> Option<Ended> {
        let before = self.ended();
        // Closing the link returns once the kernel's default scheduler is in charge.
        self.ops = None;
        before.or_else(|| self.ended())
    }
}

/// Sets what the program must know before it is loaded.
fn configure(
    open: &mut OpenSchedSkel<'_>,
    settings: &Settings,
    topology: &Topology,
    kernel: &KernelTypes<'_>,
) -> Result<()> {
    let machine = &mut open.maps.rodata_data.as_mut().expect("the program has .rodata").machine;
    describe_machine(topology, settings, machine)?;
    let per_node = gth_ops_flag::GTH_OPS_BUILTIN_IDLE_PER_NODE;
    let idle_per_node =
        topology.numa() && kernel.has_ops_flag("SCX_OPS_BUILTIN_IDLE_PER_NODE", per_node);
    machine.idle_per_node = idle_per_node.into();
    machine.programs_pin = kernel.programs_disable_migration(&release::running()).into();
    machine.count_pods = settings.count_pods.into();
    if !settings.count_pods {
        open.maps.pod_stats.set_max_entries(1).map_err(refused)?;
        open.maps.group_names.set_max_entries(1).map_err(refused)?;
    }
    let tunables =
        &mut open.maps.data_tunables_data.as_mut().expect("it has .data.tunables").tunables;
    tunables.slice_ns = settings.slice_ns;
    tunables.slice_min_ns = settings.slice_min_ns;
    let ops = open.struct_ops.gthctl_ops_mut();
    ops.timeout_ms = watchdog::time().as_millis() as u32;
    ops.hotplug_seq = settings.hotplug_seq;
    let flag = gth_ops_flag::GTH_OPS_ENQ_MIGRATION_DISABLED;
    if kernel.has_ops_flag("SCX_OPS_ENQ_MIGRATION_DISABLED", flag) {
        ops.flags |= u64::from(flag.0);
    }
    if idle_per_node {
        ops.flags |= u64::from(per_node.0);
    }
    adapt_cgroup_ops(ops, kernel);
    choose_dispatch(open, kernel.can_kick());
    open.progs.gth_limit_set.set_autoload(kernel.needs_limit_hook());
    open.progs.get_stopped_servers.set_autoload(kernel.has_ext_servers());
    Ok(())
}

/// Chooses the `ops.dispatch()`. The one that matches tasks is for programs that cannot kick a CPU.
fn choose_dispatch(open: &mut OpenSchedSkel<'_>, can_kick: bool) {
    let (with, without) = (&mut open.progs.gth_dispatch, &mut open.progs.gth_dispatch_without_kick);
    with.set_autoload(can_kick);
    without.set_autoload(!can_kick);
    let chosen = if can_kick { with } else { without };
    open.struct_ops.gthctl_ops_mut().dispatch = chosen.as_libbpf_object().as_ptr();
}

/// Leaves out the callbacks for cgroups that the kernel lacks: all of them without
/// CONFIG_EXT_GROUP_SCHED.
fn adapt_cgroup_ops(ops: &mut sched_ext_ops, kernel: &KernelTypes<'_>) {
    let callbacks = [
        ("cgroup_init", &mut ops.cgroup_init),
        ("cgroup_exit", &mut ops.cgroup_exit),
        ("cgroup_move", &mut ops.cgroup_move),
        ("cgroup_set_weight", &mut ops.cgroup_set_weight),
        ("cgroup_set_idle", &mut ops.cgroup_set_idle),
        ("cgroup_set_bandwidth", &mut ops.cgroup_set_bandwidth),
    ];
    for (name, callback) in callbacks {
        if !kernel.has_op(name) {
            *callback = ptr::null_mut();
        }
    }
}

/// Writes `policy` into the tables and masks of `generation`, with the lineage number of its rules.
fn install(
    skel: &mut SchedSkel<'_>,
    policy: &Compiled,
    ids: &Ids,
    nr_llcs: usize,
    generation: u32,
    lineage: u32,
) -> Result<()> {
    // No CPU reads the previous generation in these tables any more, and no task is queued by it:
    // set_policy() made sure of that.
    for (&index, cpus) in &policy.masks {
        let request = skel.request();
        request.mask = MaskIndex::of_generation(index, generation);
        request.cpus = mask_words(cpus);
        run_program(&skel.progs.set_mask)?;
    }
    for &row in ids.rows.added() {
        rule_stats::clear(&skel.maps.rule_stats, row)?;
    }
    let data = skel.maps.bss_tables_data.as_mut().expect("the program has .bss.tables");
    let tables = &mut data.tables[generation as usize & 1];
    policy_tables::write(policy, ids, nr_llcs, generation, tables);
    tables.lineage = lineage;
    Ok(())
}

fn mask_words(cpus: &CpuList) -> [u64; Limits::CPUS / 64] {
    let mut words = [0; Limits::CPUS / 64];
    for cpu in cpus.iter() {
        words[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    words
}

fn describe_machine(
    topology: &Topology,
    settings: &Settings,
    machine: &mut gth_machine,
) -> Result<()> {
    if topology.nr_cpus() > Limits::CPUS || topology.nr_llcs() > Limits::LLCS {
        let (cpus, llcs) = (Limits::CPUS, Limits::LLCS);
        return Err(Error::failure(format!("more than {cpus} CPUs or {llcs} last-level caches")));
    }
    let user_hz = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as u64;
    machine.nr_cpus = topology.nr_cpus() as u32;
    machine.nr_possible = topology.possible.len() as u32;
    machine.nr_online = topology.online.len() as u32;
    machine.nr_llcs = topology.nr_llcs() as u32;
    machine.smt = topology.smt().into();
    machine.builtin_idle = settings.builtin_idle.into();
    machine.cpu_llc[..topology.llc.len()].copy_from_slice(&topology.llc);
    machine.cpu_sibling[..topology.sibling.len()].copy_from_slice(&topology.sibling);
    machine.cpu_node[..topology.node.len()].copy_from_slice(&topology.node);
    for (llc, node) in (0..topology.nr_llcs() as u16).zip(&mut machine.llc_node) {
        *node = topology.node_of_llc(llc);
    }
    machine.any_tickless = (!topology.tickless.is_empty()).into();
    machine.tickless = mask_words(&topology.tickless);
    machine.tick_ns = 1_000_000_000 / user_hz;
    // Long before the watchdog would count it as a stall.
    machine.most_held_ns = watchdog::time().as_nanos() as u64 / 3;
    Ok(())
}

/// Runs a SEC("syscall") program on `request`; fails when it returns an error.
fn run_program(program: &ProgramMut<'_>) -> Result<()> {
    let name = program.name().to_string_lossy().into_owned();
    let failed = |why: String| Error::failure(format!("BPF program {name}: {why}"));
    let output = program.test_run(ProgramInput::default()).map_err(|e| failed(e.to_string()))?;
    match output.return_value as i32 {
        0 => Ok(()),
        code => Err(failed(std::io::Error::from_raw_os_error(-code).to_string())),
    }
}

/// How often the kernel skipped the program because it was already running.
fn recursion_misses(program: &ProgramMut<'_>) -> Result<u64> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `size` bytes to `info`, all integers.
    let result =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &mut size) };
    match result {
        0 => Ok(info.recursion_misses),
        code => Err(Error::failure(format!(
            "the state of a BPF program: {}",
            std::io::Error::from_raw_os_error(-code)
        ))),
    }
}

impl SchedSkel<'_> {
    fn tunables(&mut self) -> &mut gth_tunables {
        &mut self.maps.data_tunables_data.as_mut().expect("the program has .data.tunables").tunables
    }

    fn request(&mut self) -> &mut gth_request {
        &mut self.maps.bss_request_data.as_mut().expect("the program has .bss.request").request
    }
}

/// The error when the kernel has verified the programs but does not take the scheduler.
fn not_taken(e: libbpf_rs::Error) -> Error {
    // Another scheduler may have been loaded while the kernel verified this one.
    if let Err(other) = sched_ext::check_sched_ext(Path::new(sched_ext::SCHED_EXT))
        && other.code == ExitCode::OtherScheduler
    {
        return other;
    }
    let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    refused(e).help(match isolates_domains(&command_line) {
        true => "boot without isolcpus=: with it, the kernel loads no sched_ext scheduler",
        false => "gthctl doctor looks for what is in the way",
    })
}

pub(super) fn refused(e: libbpf_rs::Error) -> Error {
    libbpf_log::refused("scheduler", &e).help("run with --debug for the whole log")
}
