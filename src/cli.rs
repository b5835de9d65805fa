//! The command line: clap types only.
//!
//! Man pages and shell completions are generated from these (`tests/generated.rs`).

use std::env;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{
    Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint,
};

use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode};
use crate::base::output::Format;
use crate::base::units::parse_nanoseconds;
use crate::gtp::Module;

/// Where `gthctl run` looks for its config file.
pub const DEFAULT_CONFIG: &str = "/etc/gthctl/config.yaml";

/// What `--version` prints after the name: version, commit, the kernels built for.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    // SAFETY: both return a constant and touch nothing.
    let libbpf =
        unsafe { (libbpf_sys::libbpf_major_version(), libbpf_sys::libbpf_minor_version()) };
    format!(
        "{}\ncommit: {}\nsched_ext: Linux 6.12 to 7.3\nlibbpf: {}.{}",
        env!("CARGO_PKG_VERSION"),
        option_env!("GTHCTL_COMMIT").unwrap_or("unknown"),
        libbpf.0,
        libbpf.1,
    )
});

/// CPU scheduling for network data planes
///
/// gthctl loads a CPU scheduler into the Linux kernel (sched_ext) and tells it,
/// by one policy file, which tasks go first, how long they run and where. When
/// gthctl ends, however it ends, the kernel's default scheduler takes over again.
#[derive(Debug, Parser)]
#[command(name = "gthctl", version = VERSION.as_str(), after_help = EXAMPLES)]
pub struct Cli {
    /// When to use colour; auto means on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,

    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the process's arguments. Help, version and usage errors (exit code
    /// 2) end the process.
    pub fn read() -> Cli {
        let matches = Self::command().color(color_argument()).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|e| e.exit())
    }

    /// True when what is written to `stream` may be coloured.
    pub fn colored(&self, stream: &impl IsTerminal) -> bool {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
                stream.is_terminal() && !set("NO_COLOR") && !dumb
            }
        }
    }
}

/// The value of `--color`, which clap needs before it parses for its own help
/// and errors. A wrong value is left for clap to report.
fn color_argument() -> ColorChoice {
    let args: Vec<String> = env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let apart = args.windows(2).filter(|pair| pair[0] == "--color").map(|pair| pair[1].as_str());
    let joined = args.iter().filter_map(|arg| arg.strip_prefix("--color="));
    let value = apart.chain(joined).last();
    value.and_then(|value| ColorChoice::from_str(value, false).ok()).unwrap_or(ColorChoice::Auto)
}

const EXAMPLES: &str = "\
Examples:
  gthctl run                      schedule as /etc/gthctl/config.yaml says
  gthctl policy apply upf.yaml    make a policy the live one
  gthctl policy explain 4711      why a task is scheduled as it is
  gthctl irq                      where the NICs' interrupts go
  gthctl run --help               all about running the scheduler";

/// The subcommands; those not built yet are not listed.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    /// Look at the live policy, and change it
    ///
    /// These commands ask the running gthctl (`gthctl run`) and need root; `check`
    /// needs neither. A policy that is applied becomes the content of the running
    /// gthctl's policy file.
    #[command(subcommand)]
    Policy(PolicyCommand),
    Trace(TraceArgs),
    Irq(IrqArgs),
}

/// Load the scheduler and run until stopped
///
/// Reads the config file and the policy, loads the scheduler into the kernel and
/// keeps it there until SIGINT or SIGTERM. Every task of the machine is then
/// scheduled by it: fairly, apart from those that the policy names. A bad file
/// is an error and nothing is loaded.
///
/// Both files are followed while it runs: a policy with a new content is in
/// force as soon as the file is closed, and so are the slices of the config
/// file. A file that has become bad is reported and changes nothing. Both must be
/// regular files. A note says when users other than root can change one of them:
/// by its mode or owner, or those of a directory or link on the way to it.
///
/// SIGHUP has both files read again, whether they have changed or not; when the
/// terminal hangs up that gthctl runs on, it ends.
///
/// Interrupts that the policy places are put back when it ends. It waits only
/// briefly then for another gthctl that moves interrupts or an irqbalance that
/// is busy. It says what is left, and `gthctl irq restore` puts that back.
///
/// Needs Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT, and root.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// The config file
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
    pub config: PathBuf,

    /// The policy file, in place of the one that the config file names
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,

    /// Print the scheduler's counters every SECONDS, from 1 up; they are
    /// printed once at the end in any case
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub stats: Option<u64>,

    /// Log more, as `debug: true` in the config file does
    #[arg(long)]
    pub debug: bool,
}

const RUN_EXAMPLES: &str = "\
Examples:
  gthctl run                              as /etc/gthctl/config.yaml says
  gthctl run -c config.yaml --stats 1     counters every second
  gthctl run -c config.yaml -p upf.yaml   another policy for this run";

/// Show which tasks handle GTP packets, and on which CPUs
///
/// Attaches to the functions of a data plane in the kernel and counts, in the kernel,
/// who runs them: the task and CPU, whether for the task or in a softirq that came on
/// top of it, how many packets and bytes, and the time in the function.
///
/// On a terminal a table is kept up to date; otherwise each interval prints one line for
/// each task, CPU and function with packets. Packets and bytes (of the packet as it comes
/// to the function, headers included) are those since the trace began, the rest is of the
/// interval. The time in a function includes what it calls; p50 and p99 are the upper ends
/// of buckets, at most half as much again as the truth.
///
/// A softirq counts for a task when that has raised and run it itself, as a sender through
/// the loopback or a veth device does. What arrives through a NIC is nobody's: it stands
/// under softirq (with the task that was interrupted) or idle, and the NIC's interrupts on
/// that CPU are shown. A task in a PID namespace has both of its ids.
///
/// Functions with BTF are traced by fentry and fexit, others by kprobe and kretprobe. A line
/// on standard error names the functions that are traced and how, a second one those that
/// are not and why; JSON has an object for each. fentry keeps a module from being unloaded
/// meanwhile. A module that is unloaded and loaded again is followed.
#[derive(Debug, Args)]
#[command(after_help = TRACE_EXAMPLES)]
pub struct TraceArgs {
    /// The data plane
    #[arg(value_name = "TARGET", required_unless_present = "functions")]
    pub target: Option<Module>,

    /// Any function of the kernel or a module, in place of a data plane
    #[arg(short, long = "function", value_name = "SYMBOL", conflicts_with = "target")]
    pub functions: Vec<String>,

    /// Also the functions where a packet's time goes: look-up, QoS, route, header
    #[arg(long)]
    pub stages: bool,

    /// Wait until the data plane's module is loaded
    #[arg(long)]
    pub wait: bool,

    /// Only this process or thread
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub pid: Option<u32>,

    /// Only these CPUs, as a list: 0-3,8
    #[arg(long = "cpu", value_name = "CPUS")]
    pub cpus: Option<CpuList>,

    /// How often to show what was counted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: u64,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub duration: Option<u64>,

    /// End after one interval
    #[arg(long)]
    pub once: bool,

    /// Tell of each function how it is traced or why it is not, one a line
    #[arg(short, long)]
    pub verbose: bool,

    /// Single packets with their times in ns, not counts
    #[arg(long)]
    pub events: bool,

    /// Kprobes also where there is BTF; slower, but the module can be unloaded
    #[arg(long)]
    pub kprobe: bool,

    /// Watch silently, for 10 s or --duration, then print a policy for what was seen: rules
    /// for tasks, and irq for NICs whose packets are processed in softirq
    #[arg(long, conflicts_with_all = ["events", "once", "format"])]
    pub suggest: bool,

    /// A table on a terminal, otherwise lines; or JSON, one object a line
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    pub format: Option<TraceFormat>,
}

/// The form of what a trace shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    Table,
    Lines,
    Json,
}

/// A time of at least 10 ms, in nanoseconds.
fn interval(text: &str) -> Result<u64, Error> {
    let ns = parse_nanoseconds(text).filter(|ns| *ns >= 10_000_000);
    let what = "expected a time of at least 10ms, like 500ms or 1s";
    ns.ok_or_else(|| Error::new(ExitCode::Usage, what))
}

const TRACE_EXAMPLES: &str = "\
Examples:
  gthctl trace gtp5g                        live, until Ctrl-C
  gthctl trace gtp5g --stages               where a packet's time goes
  gthctl trace gtp -o json --duration 10s   for another program
  gthctl trace gtp5g --events --cpu 2-3     every packet on these CPUs
  gthctl trace gtp5g --suggest > upf.yaml   a policy for what it saw
  gthctl trace --function udp_sendmsg       any function";

/// See and place the interrupts of NICs
///
/// Softirq work, such as a packet's way from the NIC to a socket, runs on the CPU that the
/// NIC's interrupt comes in on, whatever the scheduler says. These commands show where that
/// is and move it; what was there is saved first and can be restored.
///
/// Without a subcommand it does what `list` does, for all NICs.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = IRQ_EXAMPLES)]
pub struct IrqArgs {
    #[command(subcommand)]
    pub command: Option<IrqCommand>,

    #[command(flatten)]
    pub look: ListViewArgs,
}

const IRQ_EXAMPLES: &str = "\
Examples:
  gthctl irq                                  all NICs
  gthctl irq list n6 --watch                  the NIC under n6, live
  gthctl irq pin enp7s0 --cpus 2-5 --spread   a queue a CPU
  gthctl irq advise n6                        where they had better go
  gthctl irq drift                            whether something has moved them
  gthctl irq restore                          as it was before";

/// The subcommands of `irq`.
#[derive(Debug, Subcommand)]
pub enum IrqCommand {
    List(ListArgs),
    Pin(PinArgs),
    Restore(RestoreArgs),
    Drift(DriftArgs),
    Advise(AdviseArgs),
}

/// Show the interrupts of NICs: where they may go, where they do, how many there are
///
/// For each IRQ: its name in /proc/interrupts, smp_affinity_list and
/// effective_affinity_list, how many interrupts came (with --watch: in a second), the CPU
/// that took the most of them, the RPS and XPS masks of the queue, and whether the kernel
/// manages it, so that it can't be moved. A `?` stands where this kernel doesn't tell
/// that before.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only this device; for a virtual one (macvlan, VLAN, bond, bridge or its veth), the
    /// NICs under it
    #[arg(value_name = "NIC")]
    pub nic: Option<String>,

    #[command(flatten)]
    pub look: ListViewArgs,
}

/// How the list is shown.
#[derive(Debug, Args)]
pub struct ListViewArgs {
    /// Again and again, until Ctrl-C; in JSON, one object a line
    #[arg(short, long)]
    pub watch: bool,

    /// How often, with --watch
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: u64,

    /// End after this time, with --watch
    #[arg(long, value_name = "TIME", value_parser = interval, requires = "watch")]
    pub duration: Option<u64>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Place a NIC's interrupts
///
/// Saves what is there, writes, reads back, and reports what the kernel made of it for
/// each IRQ. When the kernel refuses one, all that this call had changed is put back.
///
/// A virtual device (macvlan, VLAN, bond, bridge or its veth) means the NICs under it. With
/// --spread the queues get one CPU each, those of the NIC's NUMA node first, a receive and
/// a transmit queue with one number the same; without, each IRQ may go to all of the CPUs,
/// and on x86 the kernel picks one of them.
///
/// While irqbalance runs, nothing is changed, as it would move the IRQs again; --ban or
/// --force change that. Nor is what the policy of a running gthctl places: see `irq` in
/// gthctl-policy(5).
#[derive(Debug, Args)]
#[command(after_help = PIN_EXAMPLES)]
pub struct PinArgs {
    /// The network device
    #[arg(value_name = "NIC")]
    pub nic: String,

    /// The CPUs, as a list: 0-3,8
    #[arg(short, long, value_name = "CPUS")]
    pub cpus: String,

    /// A CPU for each queue
    #[arg(long)]
    pub spread: bool,

    /// Only the IRQs of this queue; may be repeated
    #[arg(short, long = "queue", value_name = "N")]
    pub queues: Vec<u32>,

    /// Only this IRQ; may be repeated
    #[arg(long = "irq", value_name = "IRQ")]
    pub irqs: Vec<u32>,

    /// Also the queues' RPS masks: the CPUs of their IRQs, or none
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "match")]
    pub rps: Option<MaskChoice>,

    /// Also the queues' XPS masks: the CPUs of their IRQs, or none
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "match")]
    pub xps: Option<MaskChoice>,

    /// Tell a running irqbalance to leave these IRQs alone: by its socket or, if it
    /// has none, for its next start in its environment file
    #[arg(long, conflicts_with = "force")]
    pub ban: bool,

    /// Place them although irqbalance runs
    #[arg(long)]
    pub force: bool,

    /// Show what would change and change nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// What becomes of RPS or XPS masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MaskChoice {
    /// The CPUs of the queue's IRQ
    Match,
    /// No CPU
    Off,
}

const PIN_EXAMPLES: &str = "\
Examples:
  gthctl irq pin enp7s0 --cpus 11                 all its IRQs to CPU 11
  gthctl irq pin n6 --cpus 2-5 --spread --xps     a queue a CPU, sending too
  gthctl irq pin enp7s0 --cpus 3 --queue 0        one queue
  gthctl irq pin enp7s0 --cpus 11 --ban           irqbalance leaves them there
  gthctl irq pin enp7s0 --cpus 11 --dry-run       look only";

/// Put back what was there before
///
/// Everything that was placed since the machine was started, or that of one NIC, is as it
/// was before the first change; also after a crash. What others had changed in between is
/// told. irqbalance may move the IRQs again, if it was told not to.
///
/// What the policy of a running gthctl places stays until it does no longer.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Only this device's
    #[arg(value_name = "NIC")]
    pub nic: Option<String>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Tell whether something has moved an interrupt away from where it was placed
///
/// Fails (exit code 1) when that is so.
#[derive(Debug, Args)]
pub struct DriftArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Say where a NIC's interrupts had better go
///
/// Looks where its interrupts come in and, when a GTP module is loaded, traces where GTP
/// packets are processed. Softirq work belongs on CPUs of the NIC's NUMA node that no
/// exclusive rule of the live policy has, and that no task which processes GTP packets
/// runs on. Prints the commands; changes nothing.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// The network device
    #[arg(value_name = "NIC")]
    pub nic: String,

    /// How long to look
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = interval)]
    pub duration: u64,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// The subcommands of `policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    Apply(ApplyArgs),
    Check(FileArgs),
    /// Show the rules in force, and how many tasks fall under each
    Show(OutputArgs),
    /// Show what is in force since when, and why the file on disk is not
    Status(OutputArgs),
    Explain(TaskArgs),
    Rollback(RollbackArgs),
}

/// Make a policy the live one
///
/// Checks the policy, shows what it changes, asks, replaces the running gthctl's
/// policy file and returns when the kernel schedules by it. Nothing has changed
/// when that fails.
#[derive(Debug, Args)]
#[command(after_help = APPLY_EXAMPLES)]
pub struct ApplyArgs {
    /// The policy file; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    #[command(flatten)]
    pub change: ChangeArgs,
}

const APPLY_EXAMPLES: &str = "\
Examples:
  gthctl policy apply upf.yaml              look, answer y
  gthctl policy apply upf.yaml --dry-run    look only
  generate | gthctl policy apply - --yes    from a pipe";

/// Check a policy file for this machine
///
/// Reads it as `gthctl run` would and shows its rules. Needs no root and no
/// running gthctl. Which pods a rule means is not looked up.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// The policy file; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Show which rule a task falls under and why
///
/// For every rule and each of its conditions: whether the task meets it, as the
/// kernel's own matching finds.
#[derive(Debug, Args)]
pub struct TaskArgs {
    /// The id of a process (its first thread is meant) or of a thread
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub pid: u32,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Return to the policy that was in force before
///
/// Shows what that changes, asks, and does as `apply` does. Another rollback
/// returns to where this one started. The policy before is known as long as the
/// running gthctl runs.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// How a change is made.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Show what would change and change nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask; needed where standard input or output is no terminal
    #[arg(short, long)]
    pub yes: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// How a report is printed.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// A table, or all facts in JSON or YAML
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: Format,
}
