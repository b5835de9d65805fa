//! The kernel's trace of its events (Documentation/trace/ftrace.rst, events.rst).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const DIRECTORY: &str = "/sys/kernel/tracing";
/// All CPUs read the same time stamp counter, which in virtual time counts nanoseconds.
const CLOCK: &str = "x86-tsc";
const KIB_PER_CPU: &str = "16384";
const EVENTS: [&str; 14] = [
    "sched/sched_waking",
    "sched/sched_wakeup",
    "sched/sched_switch",
    "sched/sched_migrate_task",
    "ipi/ipi_send_cpu",
    "ipi/ipi_send_cpumask",
    "irq_vectors/reschedule_entry",
    "irq_vectors/call_function_single_entry",
    "irq_vectors/irq_work_entry",
    "irq_vectors/local_timer_entry",
    "net/net_dev_queue",
    "net/netif_rx",
    "net/netif_receive_skb",
    "irq/softirq_entry",
];
/// Entry and return of a kernel function (Documentation/trace/fprobetrace.rst).
const CALL: &str = "call_";
const RETURN: &str = "return_";

/// Records events until dropped.
pub struct Tracing;

impl Tracing {
    /// Also records calls of `functions`.
    pub fn start(functions: &[String]) -> Result<Self> {
        let tracing = Self;
        write("tracing_on", "0")?;
        write("trace_clock", CLOCK)?;
        write("buffer_size_kb", KIB_PER_CPU)?;
        for name in functions {
            add("dynamic_events", &format!("f:testbed/{CALL}{name} {name}"))?;
            add("dynamic_events", &format!("f:testbed/{RETURN}{name} {name}%return"))?;
            write(&format!("events/testbed/{CALL}{name}/enable"), "1")?;
            write(&format!("events/testbed/{RETURN}{name}/enable"), "1")?;
        }
        for event in EVENTS {
            write(&format!("events/{event}/enable"), "1")?;
        }
        write("trace", "")?;
        write("tracing_on", "1")?;
        Ok(tracing)
    }

    /// The recorded events, in order of time.
    pub fn end(self) -> Result<Vec<Event>> {
        write("tracing_on", "0")?;
        let path = Path::new(DIRECTORY).join("trace");
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&text).lines().filter_map(Event::parse).collect())
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = write("tracing_on", "0");
        let _ = write("events/enable", "0");
        let _ = write("dynamic_events", "");
        let _ = write("trace", "");
    }
}

fn write(file: &str, text: &str) -> Result<()> {
    let path = Path::new(DIRECTORY).join(file);
    fs::write(&path, text).with_context(|| format!("cannot write {text:?} to {}", path.display()))
}

fn add(file: &str, line: &str) -> Result<()> {
    let path = Path::new(DIRECTORY).join(file);
    let mut file = fs::OpenOptions::new().append(true).open(&path)?;
    std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes())
        .with_context(|| format!("cannot add {line:?} to {}", path.display()))
}

/// A line of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub ns: u64,
    pub cpu: usize,
    /// The task that the CPU was running.
    pub task: String,
    pub name: String,
    fields: String,
}

impl Event {
    /// Parses a line such as
    /// `  bash-147     [001] d..2.   4758648064: ipi_send_cpu: cpu=0 callback=0x0`.
    fn parse(line: &str) -> Option<Self> {
        let (head, event) = line.split_once(": ")?;
        let (name, fields) = event.split_once(": ")?;
        let (head, ns) = head.trim().rsplit_once(char::is_whitespace)?;
        let (head, cpu) = head.rsplit_once('[')?;
        let (cpu, _flags) = cpu.split_once(']')?;
        let (task, _pid) = head.trim().rsplit_once('-')?;
        Some(Self {
            ns: ns.parse().ok()?,
            cpu: cpu.parse().ok()?,
            task: task.to_owned(),
            name: name.to_owned(),
            fields: fields.to_owned(),
        })
    }

    /// The value of NAME=VALUE, up to the next space; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        let value = |word: &'_ str| -> Option<usize> { word.strip_prefix(name)?.find('=') };
        let mut words = self.fields.split_whitespace();
        words.find(|word| value(word) == Some(0)).map_or("", |word| &word[name.len() + 1..])
    }

    /// True if it is `name` and its `field` has this value.
    pub fn is(&self, name: &str, field: &str, value: &str) -> bool {
        self.name == name && self.field(field) == value
    }

    /// The event in a few words.
    pub fn text(&self) -> String {
        let field = |name| self.field(name);
        let number = |name| field(name).trim_start_matches('0').parse().unwrap_or(0_usize);
        let device = field("dev");
        match self.name.as_str() {
            "sched_waking" => format!("wakes {}", field("comm")),
            "sched_wakeup" => format!("{} waits on CPU {}", field("comm"), number("target_cpu")),
            "sched_switch" => format!("switch to {}", field("next_comm")),
            "sched_migrate_task" => {
                let (from, to) = (number("orig_cpu"), number("dest_cpu"));
                format!("{} moves {from} > {to}", field("comm"))
            }
            "ipi_send_cpu" => format!("IPI to CPU {}", field("cpu")),
            "ipi_send_cpumask" => format!("IPI to CPUs {}", field("cpumask")),
            "reschedule_entry" => "IPI comes: reschedule".into(),
            "call_function_single_entry" => "IPI comes: call".into(),
            "irq_work_entry" => "interrupt: irq work".into(),
            "local_timer_entry" => "interrupt: timer".into(),
            "net_dev_queue" => format!("sends on {device}"),
            "netif_rx" => format!("queues from {device}"),
            "netif_receive_skb" => format!("receives from {device}"),
            "softirq_entry" => format!("softirq {}", field("[action").trim_end_matches(']')),
            other => match (other.strip_prefix(CALL), other.strip_prefix(RETURN)) {
                (Some(function), _) => format!("{function} {{"),
                (_, Some(function)) => format!("}} {function}"),
                _ => other.to_owned(),
            },
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The event in a line of the trace.
    pub fn event(line: &str) -> Event {
        Event::parse(line).unwrap_or_else(|| panic!("no event: {line}"))
    }

    #[test]
    fn lines_of_events_only() {
        assert_eq!(Event::parse("#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION"), None);
        assert_eq!(Event::parse("# tracer: nop"), None);
        let switch = event(
            "  stress-ng-cpu-151     [001] d..2.   4758651777: sched_switch: prev_comm=swapper/0 \
             prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=nr-gnb next_pid=151 next_prio=120",
        );
        assert_eq!((switch.ns, switch.cpu, switch.task.as_str()), (4758651777, 1, "stress-ng-cpu"));
        assert!(switch.is("sched_switch", "next_comm", "nr-gnb"));
        assert!(!switch.is("sched_switch", "comm", "nr-gnb"));
        assert_eq!(switch.text(), "switch to nr-gnb");
    }

    #[test]
    fn events_in_words() {
        let text =
            |event: &str| self::event(&format!(" kworker/0:1-7 [000] d..2. 12: {event}")).text();
        assert_eq!(
            text("sched_migrate_task: comm=a pid=1 prio=9 orig_cpu=0 dest_cpu=11"),
            "a moves 0 > 11"
        );
        assert_eq!(text("sched_wakeup: comm=a pid=1 prio=9 target_cpu=001"), "a waits on CPU 1");
        assert_eq!(text("softirq_entry: vec=3 [action=NET_RX]"), "softirq NET_RX");
        assert_eq!(
            text("call_enqueue_task_scx: (enqueue_task_scx+0x4/0x130)"),
            "enqueue_task_scx {"
        );
        assert_eq!(text("return_enqueue_task_scx: (a <- b)"), "} enqueue_task_scx");
    }
}
