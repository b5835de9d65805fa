//! Where the time of a round trip goes: the kernel's events between a probe and its reply.

use std::fmt::Write;

use anyhow::{Context, Result};

use crate::load::{Amount, Load};
use crate::programs::{self, Counting, Program};
use crate::scheduler::Engaged;
use crate::stats::median;
use crate::trace::{Event, Tracing};
use crate::{boost, ping, plane, rtt};

/// How much to trace of each row.
pub struct Plan {
    /// Restarts of the data plane's processes.
    pub restarts: usize,
    /// Probes of each restart: this many without tracing, then this many with it. After the last
    /// restart, this many more while the runs of BPF programs are counted.
    pub probes: usize,
    pub interval_ms: u32,
    /// The load that stress-ng makes.
    pub amount: Amount,
    /// Kernel functions whose calls are shown as well.
    pub functions: Vec<String>,
}

/// The name of a stage, and whether an event begins it.
type Stage = (&'static str, fn(&Event) -> bool);

/// The stages of a round trip, in order; it begins with the first.
const STAGES: [Stage; 10] = [
    ("ping sends the probe", |event| event.is("net_dev_queue", "dev", plane::TUN)),
    ("nr-gnb is woken", |event| event.is("sched_waking", "comm", "nr-gnb")),
    ("nr-gnb runs", |event| event.is("sched_switch", "next_comm", "nr-gnb")),
    ("nr-gnb sends on n3", |event| event.is("net_dev_queue", "dev", "n3")),
    ("the UPF sends on n6", |event| event.is("net_dev_queue", "dev", "n6")),
    ("the UPF has the reply", |event| event.is("net_dev_queue", "dev", "gtp0")),
    ("n3 has the reply", |event| event.is("netif_receive_skb", "dev", "n3")),
    ("the UE has the reply", |event| event.is("netif_receive_skb", "dev", plane::TUN)),
    ("ping is woken", |event| event.is("sched_waking", "comm", "ping")),
    ("ping runs", |event| event.is("sched_switch", "next_comm", "ping")),
];
/// The time that ping reports ends here: the kernel stamps the packet.
const END: usize = 7;

/// The events of one round trip, from the first stage to the last.
#[derive(Debug)]
struct Trip {
    events: Vec<Event>,
    /// When it reached each stage, in ns since the first.
    stages: [u64; STAGES.len()],
}

impl Trip {
    /// All round trips in a trace that reached the last stage.
    fn all(events: &[Event]) -> Vec<Self> {
        let begins = (0..events.len()).filter(|&i| STAGES[0].1(&events[i]));
        begins.filter_map(|begin| Self::first(&events[begin..])).collect()
    }

    /// The round trip that begins with the first event.
    fn first(events: &[Event]) -> Option<Self> {
        let mut at = 0;
        let mut stages = [0; STAGES.len()];
        for (ns, (_, is_stage)) in stages.iter_mut().zip(&STAGES).skip(1) {
            at += 1 + events[at + 1..].iter().position(is_stage)?;
            *ns = events[at].ns - events[0].ns;
        }
        let is_next = |event: &Event| STAGES[0].1(event);
        let events = events[..=at].to_vec();
        (!events[1..].iter().any(is_next)).then_some(Self { events, stages })
    }

    fn rtt(&self) -> u64 {
        self.stages[END]
    }

    fn count(&self, names: &[&str]) -> usize {
        let in_time = |event: &&Event| event.ns <= self.events[0].ns + self.rtt();
        let is_named = |event: &&Event| names.contains(&event.name.as_str());
        self.events.iter().filter(in_time).filter(is_named).count()
    }

    /// A line for each event.
    fn lines(&self) -> Vec<String> {
        let mut before = self.events[0].ns;
        let line = |event: &Event| {
            let (ns, more) = (event.ns - self.events[0].ns, event.ns - before);
            before = event.ns;
            let task: String = event.task.chars().take(14).collect();
            format!("{ns:>7} {more:>6}  {} {task:<14} {}", event.cpu, event.text())
        };
        self.events.iter().map(line).collect()
    }
}

/// One row's round trips.
#[derive(Default)]
pub struct Profile {
    name: String,
    trips: Vec<Trip>,
    /// ping's result without tracing, in ms: a mean for each restart.
    untraced: Vec<f64>,
    /// The BPF programs that ran during `counted` probes, for any task.
    programs: Vec<Program>,
    counted: usize,
}

/// Traces all rows.
pub fn measure(rows: &[rtt::Row], plan: &Plan) -> Result<Vec<Profile>> {
    boost::only_this_process().context("cannot become a real-time task")?;
    rows.iter().map(|row| measure_row(row, plan).context(row.name.clone())).collect()
}

fn measure_row(row: &rtt::Row, plan: &Plan) -> Result<Profile> {
    let mut profile = Profile { name: row.name.clone(), ..Profile::default() };
    for restart in 0..plan.restarts {
        eprintln!("testbed: {}, restart {} of {}", row.name, restart + 1, plan.restarts);
        plane::restart(restart)?;
        let engaged = Engaged::new(&row.scheduler)?;
        let load = row.load.then(|| Load::start(plan.amount)).transpose()?;
        let (replies, _) = ping::measure(plan.probes, plan.interval_ms, &engaged)?;
        profile.untraced.push(replies.rtt_ms.iter().sum::<f64>() / replies.rtt_ms.len() as f64);
        let tracing = Tracing::start(&plan.functions)?;
        ping::run(plan.probes, plan.interval_ms, &engaged)?;
        profile.trips.extend(Trip::all(&tracing.end()?));
        if restart + 1 == plan.restarts {
            let (counting, before) = (Counting::start()?, programs::all());
            ping::run(plan.probes, plan.interval_ms, &engaged)?;
            (profile.programs, profile.counted) = (programs::since(&before), plan.probes);
            drop(counting);
        }
        load.map(Load::stop).transpose()?;
        engaged.end()?;
    }
    Ok(profile)
}

impl Profile {
    fn mean(&self, of: impl Fn(&Trip) -> f64) -> f64 {
        self.trips.iter().map(of).sum::<f64>() / self.trips.len().max(1) as f64
    }

    /// The round trip whose time is closest to the median.
    fn typical(&self) -> Option<&Trip> {
        let times: Vec<f64> = self.trips.iter().map(|trip| trip.rtt() as f64).collect();
        let middle = median(&times)?;
        self.trips.iter().min_by_key(|trip| (trip.rtt() as f64 - middle).abs() as u64)
    }

    fn untraced(&self) -> String {
        let least = self.untraced.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.untraced.iter().copied().fold(0.0, f64::max);
        let mean = self.untraced.iter().sum::<f64>() / self.untraced.len().max(1) as f64;
        format!("{mean:.4} ({least:.4} to {most:.4})")
    }
}

/// What to count in a round trip, and the events that count.
const COUNTS: [(&str, &[&str]); 5] = [
    ("wake-ups", &["sched_waking"]),
    ("switches", &["sched_switch"]),
    ("migrations", &["sched_migrate_task"]),
    ("IPIs sent", &["ipi_send_cpu", "ipi_send_cpumask"]),
    ("timer interrupts", &["local_timer_entry"]),
];

/// The means of all round trips, side by side.
pub fn table(profiles: &[Profile]) -> String {
    let mut table = String::new();
    let mut row = |name: &str, value: &dyn Fn(&Profile) -> String| {
        let values: Vec<String> = profiles.iter().map(value).collect();
        let _ = writeln!(table, "| {name} | {} |", values.join(" | "));
    };
    row("means, ns", &|profile| profile.name.clone());
    row("---", &|_| "---:".into());
    for (stage, (name, _)) in STAGES.iter().enumerate().skip(1) {
        row(name, &|profile| {
            let since = |trip: &Trip| (trip.stages[stage] - trip.stages[stage - 1]) as f64;
            let at = profile.mean(|trip| trip.stages[stage] as f64);
            format!("+{:.0} = {at:.0}", profile.mean(since))
        });
    }
    for (name, events) in COUNTS {
        row(name, &|profile| format!("{:.2}", profile.mean(|trip| trip.count(events) as f64)));
    }
    row("round trips", &|profile| profile.trips.len().to_string());
    row("RTT without tracing, ms (restarts)", &Profile::untraced);
    table
}

/// The BPF programs of each row: runs per probe, and ns per run.
pub fn bpf(profiles: &[Profile]) -> String {
    let columns: Vec<Vec<String>> = profiles
        .iter()
        .map(|profile| {
            let head = [profile.name.clone(), "runs a probe   ns a run  BPF program".into()];
            let line = |program: &Program| {
                let runs = program.runs as f64 / profile.counted.max(1) as f64;
                let ns = program.ns as f64 / program.runs.max(1) as f64;
                format!("{runs:>12.1} {ns:>10.0}  {}", program.name)
            };
            head.into_iter().chain(profile.programs.iter().map(line)).collect()
        })
        .collect();
    beside(&columns)
}

/// For each row, a round trip close to its median, side by side.
pub fn sequences(profiles: &[Profile]) -> String {
    let columns: Vec<Vec<String>> = profiles
        .iter()
        .map(|profile| {
            let head = [profile.name.clone(), "     ns    +ns CPU task           event".into()];
            head.into_iter().chain(profile.typical().map(Trip::lines).unwrap_or_default()).collect()
        })
        .collect();
    beside(&columns)
}

fn beside(columns: &[Vec<String>]) -> String {
    let width = |column: &Vec<String>| column.iter().map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let mut text = String::new();
    for line in 0..columns.iter().map(Vec::len).max().unwrap_or(0) {
        let cells = columns.iter().zip(&widths).map(|(column, &width)| {
            let cell = column.get(line).map_or("", String::as_str);
            format!("{cell:<width$}")
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "{}", cells.join(" | ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::event;

    fn trace(begin: u64, events: &[&str]) -> Vec<Event> {
        let line = |(i, text): (usize, &&str)| {
            event(&format!(" ping-1 [000] d..2. {}: {text}", begin + 10 * i as u64))
        };
        events.iter().enumerate().map(line).collect()
    }

    const TRIP: [&str; 11] = [
        "net_dev_queue: dev=uesimtun0 len=84",
        "sched_waking: comm=nr-gnb pid=7",
        "ipi_send_cpu: cpu=1",
        "sched_switch: prev_comm=ping ==> next_comm=nr-gnb",
        "net_dev_queue: dev=n3 len=84",
        "net_dev_queue: dev=n6 len=84",
        "net_dev_queue: dev=gtp0 len=84",
        "netif_receive_skb: dev=n3 len=84",
        "netif_receive_skb: dev=uesimtun0 len=84",
        "sched_waking: comm=ping pid=8",
        "sched_switch: prev_comm=nr-gnb ==> next_comm=ping",
    ];

    #[test]
    fn whole_round_trips_only() {
        let mut events = trace(0, &["sched_waking: comm=nr-gnb pid=7"]);
        events.extend(trace(100, &TRIP));
        // A lost trip, and one that the end of the trace cuts off.
        events.extend(trace(1000, &TRIP[..5]));
        events.extend(trace(2000, &TRIP));
        events.extend(trace(3000, &TRIP[..9]));
        let trips = Trip::all(&events);
        assert_eq!(trips.iter().map(|trip| trip.events[0].ns).collect::<Vec<_>>(), [100, 2000]);
        assert_eq!(trips[0].stages, [0, 10, 30, 40, 50, 60, 70, 80, 90, 100]);
        assert_eq!(trips[0].rtt(), 80);
        // ping's wake-up comes after the reply.
        assert_eq!(trips[0].count(&["sched_waking"]), 1);
    }

    #[test]
    fn columns_of_unlike_length() {
        let column = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
        let columns = [column(&["a", "bcd"]), column(&["e"])];
        assert_eq!(beside(&columns), "a   | e\nbcd |\n");
    }
}
