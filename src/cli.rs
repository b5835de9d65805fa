//! The command line: clap types only.
//!
//! Man pages and shell completions are generated from these (`tests/generated.rs`).

use std::env;
use std::io::IsTerminal;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{
    Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint,
};

use crate::base::cpulist::CpuList;
use crate::base::error::{Error, ExitCode};
use crate::base::output::Format;
use crate::base::units::parse_nanoseconds;
use crate::doctor::features;
use crate::gtp::Module;
use crate::kernel::sched_ext::KERNELS;
use crate::metrics::http_server::Address;
use crate::metrics::text::Compat;
use crate::trace::traced::TraceTarget;

/// Where `gthctl run` looks for its config file, which need not exist.
pub const DEFAULT_CONFIG: &str = "/etc/gthctl/config.yaml";

/// Where `gthctl policy init` writes.
pub const DEFAULT_POLICY: &str = "/etc/gthctl/policy.yaml";

/// What `--version` prints after the name: version, commit, the kernels built for.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    // SAFETY: both return a constant and touch nothing.
    let libbpf =
        unsafe { (libbpf_sys::libbpf_major_version(), libbpf_sys::libbpf_minor_version()) };
    let [oldest, newest] = KERNELS.map(|(major, minor)| format!("{major}.{minor}"));
    format!(
        "{}\ncommit: {}\nsched_ext: Linux {oldest} to {newest}\nlibbpf: {}.{}",
        env!("CARGO_PKG_VERSION"),
        option_env!("GTHCTL_COMMIT").unwrap_or("unknown"),
        libbpf.0,
        libbpf.1,
    )
});

/// CPU scheduling for network data planes
///
/// gthctl loads a CPU scheduler into the Linux kernel (sched_ext). One policy file says which tasks
/// go first, how long they run and where. However gthctl ends, the kernel's default scheduler takes
/// over again.
#[derive(Debug, Parser)]
#[command(name = "gthctl", version = VERSION.as_str(), after_help = EXAMPLES)]
pub struct Cli {
    /// When to use colour; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,

    /// Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and
    /// sentences wrap
    #[arg(long, global = true)]
    pub wide: bool,

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

    /// Whether output to `stream` may be coloured.
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

/// The value of `--color`. Clap needs it before parsing, for its own help and errors; it reports a
/// wrong value itself.
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

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    /// Show and change the live policy
    ///
    /// These commands talk to the running gthctl (`gthctl run`) and need root; `check` needs
    /// neither, and `init` no running one. Applying a policy replaces the running gthctl's policy
    /// file.
    #[command(subcommand)]
    Policy(PolicyCommand),
    Status(StatusArgs),
    Doctor(DoctorArgs),
    Metrics(MetricsArgs),
    Top(TopArgs),
    Test(TestArgs),
    Trace(TraceArgs),
    Irq(IrqArgs),
}

/// Load the scheduler and run until stopped
///
/// Reads the config file and the policy, loads the scheduler into the kernel and keeps it there
/// until SIGINT or SIGTERM. It schedules every task of the machine: fairly, except those that the
/// policy names. A bad file is an error; nothing is loaded. Without a config file every setting has
/// its default, and there is no policy.
///
/// It follows both files while it runs: a new policy is in force as soon as its file is closed, and
/// so are the slices of the config file, even if that file did not exist at the start. If a file
/// becomes invalid, gthctl reports it and keeps the settings from before. The kernel sends no event when a directory farther up is
/// renamed or mounted over, or when another machine writes over NFS: that takes up to 30 s.
/// Both must be regular files. A note warns if users other than root can change one of them, by its
/// mode or owner or those of a directory or link on its path.
///
/// SIGHUP rereads both files, changed or not. gthctl ends when its terminal hangs up.
///
/// sched_ext's tools, such as scxtop, get its counters at /var/run/scx/root/stats. A note says if another
/// program serves that socket.
///
/// gthctl tells a service manager, such as systemd, when the kernel schedules by the policy, what is in
/// force, and why a file is not (sd_notify(3)).
///
/// When it ends, it puts back the interrupts that the policy placed. It waits only briefly for
/// another gthctl that moves interrupts or for a busy irqbalance. It reports what is left; `gthctl
/// irq restore` puts that back.
///
/// Needs Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT, and CAP_BPF and CAP_PERFMON, which root has.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// The config file [default: /etc/gthctl/config.yaml, if it exists]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// The policy file, instead of the one in the config file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,

    /// Print the scheduler's counters every SECONDS (1 or more); they are always printed once at
    /// the end
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub stats: Option<u64>,

    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics; with a port alone, for this
    /// machine only (127.0.0.1). They are neither encrypted nor protected: see gthctl-metrics(1)
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    pub metrics: Option<Address>,

    /// Also measure how long GTP packets take in a kernel module, for rules with `gtp`: a second
    /// probe at each packet
    #[arg(long)]
    pub gtp_time: bool,

    /// Also count what the tasks of each pod of this Kubernetes node do, for the metrics: run and
    /// waiting time, preemptions, migrations and switches
    #[arg(long)]
    pub pod_counters: bool,

    /// Also serve the metrics of pods by the names of another program; implies --pod-counters
    #[arg(long, value_name = "PROGRAM", requires = "metrics")]
    pub metrics_compat: Option<Compat>,

    /// Log more, as `debug: true` in the config file does
    #[arg(long)]
    pub debug: bool,
}

const RUN_EXAMPLES: &str = "\
Examples:
  gthctl run                              as /etc/gthctl/config.yaml says
  gthctl run -c config.yaml --stats 1     counters every second
  gthctl run -c config.yaml -p upf.yaml   another policy for this run
  gthctl run --metrics 9464               metrics at http://127.0.0.1:9464/metrics";

/// Show on one screen whether gthctl does its work
///
/// A line each, with OK, note, warning or error, for: the scheduler, the policy and its files, rules
/// under which no task falls, cgroups that were held back, packets, the NICs' interrupts, irqbalance,
/// Gthulhu's API, Kubernetes, what the kernel lacks, the last error, and how the run before this one
/// ended. While no gthctl runs, the last line says why the last one ended.
///
/// Needs root. Fails if no answer comes within 3 s. The exit code is 0 without errors and warnings, 12
/// with warnings, 1 with errors, and 10 if no gthctl runs.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusArgs {
    /// Print one line, and fail unless the scheduler is loaded and the kernel schedules by the
    /// policy in force. A rejected file is no failure: the policy before it stays in force
    #[arg(long, conflicts_with = "format")]
    pub ready: bool,

    /// Wait at most SECONDS (without a value: 60) until the kernel schedules by the policy, then go on
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "60", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait: Option<u64>,

    #[command(flatten)]
    pub output: OutputArgs,
}

const STATUS_EXAMPLES: &str = "\
Examples:
  gthctl status                     one screen
  gthctl status --ready             as a probe, such as Kubernetes' exec
  gthctl status --ready --wait=30   in a script, after the start of the service
  gthctl status -o json             for another program";

/// Check the machine before anything is loaded
///
/// Looks at the kernel and the options it was built with, its BTF, other schedulers, capabilities,
/// lockdown, cgroups, isolated CPUs, real-time tasks, GTP modules, irqbalance and the queues of NICs.
/// With --config also at that file, at the policy that it names, and whether the servers that these
/// ask for answer. Each finding is OK, a note, a warning or an error, with how to fix it.
///
/// Changes nothing. Needs no root: one line names what this user may not read.
///
/// Fails (exit code 1) if a finding is an error: then `gthctl run` does not work.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct DoctorArgs {
    /// Also check this config file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// Also write what the machine has to a file for node-feature-discovery, which makes it labels
    /// of the Kubernetes node, such as gthctl.sched_ext=true. Without a value: into
    /// /etc/kubernetes/node-feature-discovery/features.d/gthctl
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
        default_missing_value = features::FILE, value_hint = ValueHint::FilePath)]
    pub nfd: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  sudo gthctl doctor                    everything that can be read
  gthctl doctor -c config.yaml -o json  with a config file, for another program
  gthctl doctor --nfd                   for node-feature-discovery";

/// Print the running gthctl's metrics for Prometheus
///
/// Prints them once, in Prometheus' text format: the policy's generation, changes and rejections, the
/// tasks under each rule, the scheduler's counters, the wake-up latency of priority tasks as a
/// histogram, what the limits of cgroups hold back, and the state of placed interrupts. For each rule:
/// the wake-up latency of its tasks, their run and waiting time, preemptions, migrations and switches;
/// the label rule is empty for tasks without one. For each data plane that a rule with `gtp` asks
/// about: GTP packets and bytes by direction, and with `gthctl run --gtp-time` the time that packets
/// take in a kernel module. With `gthctl run --pod-counters` for each pod: its threads, and the same
/// counters as for a rule, except the wake-up latency. A pod is counted from the first time that the
/// metrics are read after it started; at most 511 are. Names begin with gthctl_, times are in seconds.
/// Nothing is counted per task. Counters start from zero when gthctl loads its scheduler;
/// gthctl_scheduler_start_time_seconds says when that was. The policy's changes and rejections, and
/// interrupts placed again, are counted from gthctl's start.
///
/// With --file it replaces a file at once, for the textfile collector of Prometheus' node exporter.
/// If no gthctl runs, it fails and leaves the file as it is; the collector exports the file's age.
///
/// `gthctl run --metrics` serves the same over HTTP, without encryption and without a password: every
/// user of this machine can read the names of rules, paths of cgroups, and pods. This command needs
/// root. It fails if no answer comes within 5 s.
#[derive(Debug, Args)]
#[command(after_help = METRICS_EXAMPLES)]
pub struct MetricsArgs {
    /// Also print the metrics of pods by the names of another program, if the running gthctl counts
    /// what pods do (`gthctl run --pod-counters`)
    #[arg(long, value_name = "PROGRAM")]
    pub metrics_compat: Option<Compat>,

    /// Replace FILE instead of printing; it must not be a symbolic link
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
}

const METRICS_EXAMPLES: &str = "\
Examples:
  gthctl metrics                                            on standard output
  gthctl metrics --file /var/lib/prometheus/node-exporter/gthctl.prom
  gthctl run --metrics 9464                                 over HTTP, from this machine only";

/// Show live what the scheduler does
///
/// A full screen with four views. CPUs: what is in force, and how each CPU spends its time: on tasks
/// under rules with priority (prio), on gthctl's other tasks (normal), on real-time tasks and the
/// kernel's own (rt), on interrupts, or idle; and the GTP packets that come, where a rule with gtp asks
/// about them. Rules: what the tasks of each rule do together, and their wake-up latency: upper bounds
/// for half, for 99 in a hundred, and for all of the wake-ups. Tasks: the run time, the
/// time waited for a CPU, switches and preemptions of each. Limits, interrupts: cgroups that have used
/// up their cpu.max, and what is not in its place. Sparklines show the last minutes. The key h lists
/// all keys, q quits.
///
/// It follows the running gthctl, and waits for it while there is none. Its counters, and which tasks
/// are under rules, come through its control socket. The tasks' own times come from /proc. run and wait
/// are parts of one CPU's time. A task of no rule is not listed. Needs root.
///
/// On a dumb terminal it prints the text of --once again and again, until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = TOP_EXAMPLES)]
pub struct TopArgs {
    /// How often to look, in seconds (0.1 to 3600)
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = delay)]
    pub delay: f64,

    /// Print the tables after one delay, and end
    #[arg(long)]
    pub once: bool,

    /// Print this after one delay, and end
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    pub format: Option<Format>,
}

/// A number of seconds between two looks.
fn delay(text: &str) -> Result<f64, Error> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    let what = "expected a number of seconds from 0.1 to 3600";
    seconds.ok_or_else(|| Error::new(ExitCode::Usage, what))
}

const TOP_EXAMPLES: &str = "\
Examples:
  sudo gthctl top           live, until q
  gthctl top -d 5           every five seconds
  gthctl top --once         as text
  gthctl top -o json -d 10  the next ten seconds, for another program";

/// Show which tasks handle GTP packets, and on which CPUs
///
/// Attaches to a data plane's functions in the kernel and counts, in the kernel, who runs them: the
/// task and CPU, whether in the task's own context or in a softirq that interrupted it, packets and
/// bytes, and the time in the function.
///
/// On a terminal it updates a table; otherwise it prints, each interval, one line for each task,
/// CPU and function with packets. Packets and bytes (of the packet as the function gets it, headers
/// included) count from the start of the trace, all else covers the interval. The time in a
/// function includes its callees; p50 and p99 are upper bounds of buckets, at most 50% too high. If
/// no call ended in the interval, they are those of the whole trace.
///
/// A softirq is attributed to the task that raised it and ran it itself, as a sender through the
/// loopback or a veth device does. Packets from a NIC belong to no task: they are listed under softirq (with the
/// interrupted task) or idle, with the NIC's interrupts on that CPU. A task in a PID namespace is
/// shown with both ids.
///
/// A data plane in user space, such as Open5GS's or OAI's UPF or a gNB, has a UDP port open:
/// udp:2152 traces who receives (in) and sends (out) datagrams on that local port, in every network
/// namespace. A call counts when it has handed datagrams over; one for several datagrams at once
/// (UDP_GRO, UDP_SEGMENT) counts once. Bytes are those of the datagrams' contents, and no times are
/// taken: a receiver waits within the function. For each socket with the port in the network
/// namespace of some process, the trace shows the memory that its receive queue takes and how many
/// datagrams were dropped, mostly because the queue was full. What a module such as gtp5g takes from
/// its socket (UDP_ENCAP) never comes there.
///
/// A user plane in XDP, such as eUPF, runs for no task: xdp:eth0 traces the XDP program at that
/// network device, of gthctl's network namespace. For each CPU it shows the program's runs, their
/// time and verdicts, and the NIC interrupts that the CPU takes, the device's own first. The program
/// needs BTF (clang -g), and the trace CAP_SYS_ADMIN. A program that replaces it is traced within
/// 200 ms. Options that need tasks or functions, such as --pid, --stages or --suggest, cannot be
/// combined with it.
///
/// Functions with BTF are traced by fentry and fexit, others by kprobe and kretprobe. One line on
/// standard error names the traced functions and how, a second one the others and why; JSON has an
/// object for each. While fentry is attached, the module cannot be unloaded. The trace follows a
/// module that is unloaded and loaded again.
///
/// --drops counts packets that end in the data plane, at its network devices or on their way to the
/// GTP-U port, with the kernel's reason where it gives one. Some reasons cannot be told apart; the
/// words say so. --latency measures from the kernel's timestamp of the received packet to the end
/// of the function by which the packet entered the data plane. -o table shows the plots. Of these
/// options, only --drops goes with udp:PORT, for what is dropped on the way to that port.
#[derive(Debug, Args)]
#[command(after_help = TRACE_EXAMPLES)]
pub struct TraceArgs {
    /// The data plane
    #[arg(value_name = "TARGET", required_unless_present = "functions", value_parser = TargetParser)]
    pub target: Option<TraceTarget>,

    /// Any function of the kernel or a module, instead of a data plane
    #[arg(short, long = "function", value_name = "SYMBOL", conflicts_with = "target")]
    pub functions: Vec<String>,

    /// Also trace the functions where a packet's time goes: look-up, QoS, route, header
    #[arg(long)]
    pub stages: bool,

    /// Wait until the data plane's module is loaded, or the device has an XDP program
    #[arg(long)]
    pub wait: bool,

    /// Only this process or thread
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub pid: Option<u32>,

    /// Only these CPUs, as a list: 0-3,8
    #[arg(long = "cpu", value_name = "CPUS")]
    pub cpus: Option<CpuList>,

    /// How often to show the counts
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: u64,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub duration: Option<u64>,

    /// End after one interval
    #[arg(long)]
    pub once: bool,

    /// Print for each function how it is traced or why not, one per line
    #[arg(short, long)]
    pub verbose: bool,

    /// Print single packets with their times in ns, not counts
    #[arg(long, conflicts_with_all = ["drops", "latency", "histogram", "by"])]
    pub events: bool,

    /// Also show the packets that are dropped, by direction, reason and place in the kernel
    #[arg(long)]
    pub drops: bool,

    /// Also show how long packets take from their arrival at this host to the end of the data
    /// plane, as a plot
    #[arg(long)]
    pub latency: bool,

    /// Also plot the time in each function
    #[arg(long)]
    pub histogram: bool,

    /// Also show the packets, bytes and drops of each tunnel (GTP data planes only), the busiest first
    #[arg(long, value_name = "WHAT", requires = "target")]
    pub by: Option<TraceBy>,

    /// Use kprobes even with BTF; slower, but the module can be unloaded
    #[arg(long)]
    pub kprobe: bool,

    /// Watch silently, for 10 s or --duration, then print a policy for what it saw: rules for
    /// tasks, and irq for NICs whose packets are processed in softirq
    #[arg(long, conflicts_with_all = ["events", "drops", "latency", "histogram", "by", "once", "format"])]
    pub suggest: bool,

    /// By default a table on a terminal, otherwise lines; JSON has one object per line
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    pub format: Option<TraceFormat>,
}

/// Completes the modules, the usual port, and a device.
#[derive(Clone)]
struct TargetParser;

impl TypedValueParser for TargetParser {
    type Value = TraceTarget;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<TraceTarget, clap::Error> {
        str::parse::<TraceTarget>.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let modules = Module::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let help = "The programs that have this UDP port open; any port will do";
        let port = PossibleValue::new("udp:2152").help(help);
        let help = "The XDP program at this network device; any device will do";
        let device = PossibleValue::new("xdp:eth0").help(help);
        Some(Box::new(modules.chain([port, device])))
    }
}

/// What a trace counts packets by, beside tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceBy {
    /// Tunnel end point identifier
    Teid,
}

/// The output format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    Table,
    Lines,
    Json,
}

/// A time of at least 10 ms, in nanoseconds.
fn interval(text: &str) -> Result<u64, Error> {
    time_within(text, 10_000_000..=u64::MAX, "expected a time of at least 10ms, like 500ms or 1s")
}

const TRACE_EXAMPLES: &str = "\
Examples:
  gthctl trace gtp5g                        live, until Ctrl-C
  gthctl trace gtp5g --stages               where a packet's time goes
  gthctl trace gtp5g --drops                why packets are dropped
  gthctl trace gtp5g --by teid -o table     which tunnels have most packets
  gthctl trace gtp --latency -o table       how long packets take, as a plot
  gthctl trace gtp -o json --duration 10s   for another program
  gthctl trace gtp5g --events --cpu 2-3     every packet on these CPUs
  gthctl trace gtp5g --suggest > upf.yaml   a policy for what it saw
  gthctl trace udp:2152                     a user plane in user space
  gthctl trace xdp:eth0                     a user plane in XDP
  gthctl trace --function udp_sendmsg       any function";

/// Measure round trips to a user plane, idle and under load
///
/// Sends GTP-U echo requests (3GPP TS 29.281, 7.2.1) to ADDRESS and takes the times until the answers
/// reach this machine, by the kernel's clock of their arrival. Each row of the table takes --duration,
/// and a second more if answers are missing.
///
/// With --load, threads that spin make every CPU of this machine busy for all rows but the first: do not
/// use it where others need the CPUs. With --policy, gthctl loads its scheduler with that policy for one more
/// row, and unloads it again; that needs root, and no other gthctl run. Otherwise the rows show the
/// scheduler that is in the kernel.
///
/// Nothing is sent to any other address. gtp5g and user planes in user space answer echo requests; the
/// kernel's gtp driver does so only on sockets that it made itself.
#[derive(Debug, Args)]
#[command(after_help = TEST_EXAMPLES)]
pub struct TestArgs {
    /// The IP address of the user plane, or of another GTP-U peer behind it
    pub address: IpAddr,

    /// Its UDP port
    #[arg(long, value_name = "PORT", default_value_t = 2152, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// How long each row takes, 60s at most
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = row_time)]
    pub duration: u64,

    /// The time from one probe to the next, from 1ms to 1s
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = probe_interval)]
    pub interval: u64,

    /// Also measure with THREADS spinning threads for each CPU, 16 at most; without a value: 2
    #[arg(long, value_name = "THREADS", num_args = 0..=1, require_equals = true,
        default_missing_value = "2", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub load: Option<u32>,

    /// Also measure while gthctl schedules by this policy
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// The time of a row, in nanoseconds.
fn row_time(text: &str) -> Result<u64, Error> {
    time_within(text, 100_000_000..=60_000_000_000, "expected a time from 100ms to 60s, like 5s")
}

/// The time between two probes, in nanoseconds.
fn probe_interval(text: &str) -> Result<u64, Error> {
    time_within(text, 1_000_000..=1_000_000_000, "expected a time from 1ms to 1s, like 10ms")
}

fn time_within(text: &str, range: RangeInclusive<u64>, what: &str) -> Result<u64, Error> {
    let ns = parse_nanoseconds(text).filter(|ns| range.contains(ns));
    ns.ok_or_else(|| Error::new(ExitCode::Usage, what))
}

const TEST_EXAMPLES: &str = "\
Examples:
  gthctl test 10.100.0.2                                 as the machine is
  gthctl test 10.100.0.2 --load                          idle, and with every CPU busy
  sudo gthctl test 10.100.0.2 --load --policy upf.yaml   and what a policy changes";

/// See and place the interrupts of NICs
///
/// Softirq work, such as a packet's path from the NIC to a socket, runs on the CPU that takes the
/// NIC's interrupt, whatever the scheduler says. These commands show that CPU and move the
/// interrupt. They save the old setting first and can restore it.
///
/// Without a subcommand: `list` for all NICs.
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
  gthctl irq pin enp7s0 --cpus 2-5 --spread   one queue per CPU
  gthctl irq advise n6                        where they should go
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

/// Show the interrupts of NICs: where they may go, where they do go, how many come
///
/// For each IRQ: its name in /proc/interrupts, smp_affinity_list and effective_affinity_list, the
/// number of interrupts (with --watch: per second), the CPU that took most of them, the RPS and XPS
/// masks of the queue, and whether the kernel manages it, so that it can't be moved. A `?` means
/// that this kernel shows it only when a move is tried.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only this device, or the PCI function with this address; for a virtual one (macvlan, VLAN,
    /// bond, bridge or its veth): the NICs under it
    #[arg(value_name = "NIC")]
    pub nic: Option<String>,

    #[command(flatten)]
    pub look: ListViewArgs,
}

/// How the list is shown.
#[derive(Debug, Args)]
pub struct ListViewArgs {
    /// Repeat until Ctrl-C; JSON has one object per line
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
/// Saves the old settings, writes the new ones, reads them back, and reports for each IRQ what the
/// kernel made of it. If the kernel refuses one, it puts back everything this call changed.
///
/// A virtual device (macvlan, VLAN, bond, bridge or its veth) stands for the NICs under it. With
/// --spread each queue gets one CPU, those of the NIC's NUMA node first; a receive and a transmit
/// queue of the same number share one. Without it each IRQ may go to all of the CPUs, and on x86
/// the kernel picks one.
///
/// While irqbalance is running, it changes nothing, because irqbalance would move the IRQs again.
/// --ban and --force override this. It never changes what the policy of a running gthctl places:
/// see `irq` in gthctl-policy(5).
#[derive(Debug, Args)]
#[command(after_help = PIN_EXAMPLES)]
pub struct PinArgs {
    /// The network device
    #[arg(value_name = "NIC")]
    pub nic: String,

    /// The CPUs, as a list: 0-3,8
    #[arg(short, long, value_name = "CPUS")]
    pub cpus: String,

    /// One CPU for each queue
    #[arg(long)]
    pub spread: bool,

    /// Only the IRQs of this queue; may be repeated
    #[arg(short, long = "queue", value_name = "N")]
    pub queues: Vec<u32>,

    /// Only this IRQ; may be repeated
    #[arg(long = "irq", value_name = "IRQ")]
    pub irqs: Vec<u32>,

    /// Also the queues' RPS masks: the CPUs of their IRQs (also without a value), or none
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "match")]
    pub rps: Option<MaskChoice>,

    /// Also the queues' XPS masks: the CPUs of their IRQs (also without a value), or none
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "match")]
    pub xps: Option<MaskChoice>,

    /// Tell a running irqbalance by its socket to leave these IRQs alone
    #[arg(long, conflicts_with = "force")]
    pub ban: bool,

    /// Place them even if irqbalance is running
    #[arg(long)]
    pub force: bool,

    /// Show what would change and change nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// What to set RPS or XPS masks to.
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
  gthctl irq pin n6 --cpus 2-5 --spread --xps     one queue per CPU, sending too
  gthctl irq pin enp7s0 --cpus 3 --queue 0        one queue
  gthctl irq pin enp7s0 --cpus 11 --ban           irqbalance leaves them there
  gthctl irq pin enp7s0 --cpus 11 --dry-run       look only";

/// Put interrupts back where they were
///
/// Returns all that gthctl placed since boot, or that of one NIC, to its state before the first
/// change; also after a crash. It reports what others changed in between. If irqbalance was told
/// to leave the IRQs alone, it may move them again. An IRQ does not return to CPUs that irqbalance's
/// configuration has banned since.
///
/// What the policy of a running gthctl places stays until the policy drops it.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Only this device's
    #[arg(value_name = "NIC")]
    pub nic: Option<String>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Check whether each interrupt is still where it was placed
///
/// Fails (exit code 1) if something has moved one, if one is gone (its NIC is down or removed), if its
/// number now belongs to another device, or if a change has not ended.
#[derive(Debug, Args)]
pub struct DriftArgs {
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Suggest where a NIC's interrupts should go
///
/// Watches where its interrupts come in and, if a GTP module is loaded, traces where GTP packets
/// are processed. Softirq work belongs on CPUs of the NIC's NUMA node that no exclusive rule of the
/// live policy owns and no task that processes GTP packets runs on. Prints the commands; changes
/// nothing.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// The network device
    #[arg(value_name = "NIC")]
    pub nic: String,

    /// How long to watch
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
    /// Show what would change if a policy became the live one
    ///
    /// The same as `apply --dry-run` shows: rules that are new, gone, changed or moved, how many
    /// tasks each has, exclusive CPUs, interrupts. Changes nothing, and needs no policy file to
    /// replace. The exit code is 0 if nothing would change, and 11 if something would.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(FileArgs),
    Show(ShowArgs),
    /// Show what is in force, since when, and why the file on disk is not
    Status(OutputArgs),
    Explain(TaskArgs),
    Rollback(RollbackArgs),
    Init(InitArgs),
}

/// Make a policy the live one
///
/// Checks the policy, shows what it changes, asks, replaces the running gthctl's policy file and
/// returns once the kernel schedules by it. If that fails, nothing has changed.
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

const DIFF_EXAMPLES: &str = "\
Examples:
  gthctl policy diff upf.yaml           what apply would change
  gthctl policy diff upf.yaml -o json   for another program
  generate | gthctl policy diff -       is the live policy up to date?";

/// Check a policy file for this machine
///
/// Reads it as `gthctl run` would and shows its rules. Needs no root and no running gthctl. It does
/// not look up which pods a rule means.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// The policy file; - for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Show the rules in force, and how many tasks fall under each
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub struct ShowArgs {
    /// Show the tasks instead: a row for each thread under a rule, with its pod and the generation
    /// by which the kernel schedules it. After a change, a thread takes the new one when it next
    /// runs
    #[arg(long)]
    pub tasks: bool,

    /// Draw for each rule, and for the tasks without one, how long wake-ups took until the task ran
    #[arg(long, conflicts_with = "tasks")]
    pub plot: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  gthctl policy show                   the rules
  gthctl policy show --tasks           which tasks each rule has
  gthctl policy show --plot            how fast its tasks get a CPU
  gthctl policy show --tasks -o json   for another program";

/// Show which rule a task falls under and why
///
/// For each condition of every rule: whether the task meets it, by the kernel's own matching.
#[derive(Debug, Args)]
pub struct TaskArgs {
    /// The id of a process (meaning its first thread) or of a thread
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub pid: u32,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Return to the policy that was in force before
///
/// Shows what that changes, asks, and applies it as `apply` does. A second rollback undoes the
/// first. The running gthctl remembers the previous policy until it ends.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// Write a first policy for this machine
///
/// Finds the user plane: a GTP module in the kernel, programs that have the GTP-U port (UDP 2152)
/// open or the name of a known UPF, the NICs. Writes a rule for each program and one for the
/// module's packets, and as comments what else is possible. Where nothing is found, everything is
/// a comment. Puts nothing into force, unless FILE is what a running gthctl follows.
#[derive(Debug, Args)]
#[command(after_help = INIT_EXAMPLES)]
pub struct InitArgs {
    /// Where to write it; - for standard output
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_POLICY, value_hint = ValueHint::FilePath)]
    pub output: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
}

const INIT_EXAMPLES: &str = "\
Examples:
  gthctl policy init                 into /etc/gthctl/policy.yaml
  gthctl policy init -o -            look only
  gthctl policy init -o upf.yaml && gthctl policy apply upf.yaml";

/// How a change is made.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Show what would change and change nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask; needed if standard input or output is no terminal
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
