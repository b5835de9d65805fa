//! `gthctl policy`.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Read, Write, stdin, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use nix::unistd::geteuid;

use crate::advice::first_policy;
use crate::advice::user_plane::UserPlane;
use crate::base::atomic_file::Replacement;
use crate::base::error::{Error, ExitCode, Result};
use crate::base::escape;
use crate::base::excerpt;
use crate::base::log;
use crate::base::output::{self, Format};
use crate::base::ownership;
use crate::base::yaml::{MAX_BYTES, Source};
use crate::cli::{
    ApplyArgs, ChangeArgs, FileArgs, InitArgs, OutputArgs, PolicyCommand, RollbackArgs, ShowArgs,
    TaskArgs,
};
use crate::daemon::config::Config;
use crate::daemon::control::client::{self, puzzled};
use crate::daemon::control::{Proposal, Reply, Request, SOCKET};
use crate::daemon::live::{self, PolicyContext};
use crate::daemon::report_tables;
use crate::daemon::reports::{Applied, Plan};
use crate::irq::host::Host;
use crate::kernel::topology::{self, Topology};

/// Runs one of the subcommands. An exit code other than success is an answer, not an error.
/// `colored` says whether errors are coloured.
pub fn run(command: &PolicyCommand, colored: bool) -> Result<ExitCode> {
    match command {
        PolicyCommand::Apply(args) => apply(args),
        PolicyCommand::Check(args) => return check(args, colored),
        PolicyCommand::Diff(args) => return diff(args),
        PolicyCommand::Show(args) => show(args),
        PolicyCommand::Status(args) => status(args),
        PolicyCommand::Explain(args) => explain(args),
        PolicyCommand::Rollback(args) => rollback(args),
        PolicyCommand::Init(args) => init(args),
    }
    .map(|()| ExitCode::Success)
}

fn apply(args: &ApplyArgs) -> Result<()> {
    change(proposal(&args.file)?, &args.change)
}

fn rollback(args: &RollbackArgs) -> Result<()> {
    change(Proposal::Previous, &args.change)
}

/// Shows the changes, asks, and makes the policy live.
fn change(proposal: Proposal, args: &ChangeArgs) -> Result<()> {
    let format = args.output.format;
    let Reply::Plan(plan) = ask(&Request::Plan(proposal.clone()))? else { return Err(puzzled()) };
    if args.dry_run {
        return print_plan(format, &plan);
    }
    if format == Format::Table {
        print_plan(format, &plan)?;
    }
    if !args.yes {
        confirm(&proposal, format, &plan)?;
    }
    let begin = Instant::now();
    let request = Request::Apply { proposal, generation: plan.generation };
    let Reply::Applied(applied) = ask(&request)? else { return Err(puzzled()) };
    let whole_ms = begin.elapsed().as_secs_f64() * 1e3;
    match format {
        Format::Table => output::put(&in_force(&applied, whole_ms)),
        _ => output::print(format, &Done { plan, applied }, |_| String::new()),
    }
}

/// Shows what a policy would change. There need not be a file to replace.
fn diff(args: &FileArgs) -> Result<ExitCode> {
    let request = Request::Diff(proposal(&args.file)?);
    let Reply::Plan(plan) = ask(&request)? else { return Err(puzzled()) };
    print_plan(args.output.format, &plan)?;
    Ok(if plan.is_empty() { ExitCode::Success } else { ExitCode::Differs })
}

fn print_plan(format: Format, plan: &Plan) -> Result<()> {
    log::notes(&plan.notes);
    output::print(format, plan, report_tables::plan)
}

/// What `apply -o json` prints.
#[derive(serde::Serialize)]
struct Done {
    #[serde(flatten)]
    applied: Applied,
    plan: Plan,
}

fn in_force(applied: &Applied, whole_ms: f64) -> String {
    format!(
        "generation {} is in force after {whole_ms:.1} ms ({:.1} ms of them in the running \
         gthctl); {} is replaced\n",
        applied.generation,
        applied.took_ms,
        applied.policy_file.display()
    )
}

/// Asks on the terminal. Any answer but yes is an error, and so is the lack of a terminal. In the table
/// format, the plan has been shown already. In other formats, standard output is for another program, so
/// all of this goes to standard error.
fn confirm(proposal: &Proposal, format: Format, plan: &Plan) -> Result<()> {
    let typed = |path: &Path| path == Path::new(STDIN);
    let piped = matches!(proposal, Proposal::Text { path, .. } if typed(path));
    if piped || !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(Error::new(ExitCode::Usage, "there is no terminal to ask on; nothing changed")
            .help("use --yes to apply without asking, or --dry-run to only look"));
    }
    const QUESTION: &str = "Make this the live policy? [y/N] ";
    match format {
        Format::Table => output::put(QUESTION)?,
        _ => {
            log::notes(&plan.notes);
            eprint!("{}\n{QUESTION}", escape::lines(&report_tables::plan(plan)));
        }
    }
    let mut answer = String::new();
    let _ = stdin().read_line(&mut answer);
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Error::failure("not applied; nothing changed")),
    }
}

fn check(args: &FileArgs, colored: bool) -> Result<ExitCode> {
    let text = read(&args.file)?;
    let topology = Topology::read(Path::new(topology::SYSFS))?;
    let context = PolicyContext::of_file(&topology, Config::default().slice_ns_default, &[]);
    let mut shown = match live::check(named(&args.file), text.clone(), &context) {
        Ok(shown) => shown,
        Err(mistakes) => return Ok(show_mistakes(&mistakes, &text, colored)),
    };
    if args.file != Path::new("-") {
        shown.notes.extend(ownership::note(&args.file));
    }
    log::notes(&shown.notes);
    output::print(args.output.format, &shown, report_tables::rules)?;
    Ok(ExitCode::Success)
}

/// Prints each mistake, and the line of the policy's `text` that it is in.
fn show_mistakes(mistakes: &Error, text: &str, colored: bool) -> ExitCode {
    for mistake in mistakes.all() {
        log::report(mistake, colored);
        if let Some(excerpt) = mistake.at.as_ref().and_then(|at| excerpt::of(text, at)) {
            log::more(excerpt);
        }
    }
    mistakes.code
}

fn show(args: &ShowArgs) -> Result<()> {
    if args.tasks {
        let Reply::Tasks(tasks) = ask(&Request::Tasks)? else { return Err(puzzled()) };
        return output::print(args.output.format, &tasks, report_tables::tasks);
    }
    if args.plot {
        let Reply::Metrics(metrics) = ask(&Request::Metrics)? else { return Err(puzzled()) };
        let wakeups = metrics.rule_counters;
        return output::print(args.output.format, &wakeups, |all| report_tables::wakeups(all));
    }
    let Reply::Show(shown) = ask(&Request::Show)? else { return Err(puzzled()) };
    output::print(args.output.format, &shown, report_tables::rules)
}

fn status(args: &OutputArgs) -> Result<()> {
    let Reply::Status(status) = ask(&Request::Status)? else { return Err(puzzled()) };
    output::print(args.format, &*status, report_tables::status)
}

fn explain(args: &TaskArgs) -> Result<()> {
    let reply = ask(&Request::Explain { tid: args.pid })?;
    let Reply::Explain(explanation) = reply else { return Err(puzzled()) };
    output::print(args.output.format, &explanation, report_tables::explanation)
}

fn init(args: &InitArgs) -> Result<()> {
    let text = first_policy::text(&UserPlane::find(&Host::this())?);
    if !geteuid().is_root() {
        log::note("only root sees who has the GTP-U port open");
    }
    let file = &args.output;
    if file == Path::new("-") {
        return output::put(&text);
    }
    write_new(file, &text, args.force)?;
    let file = file.display();
    output::put(&format!(
        "{file} is written. Look at it, then: gthctl policy apply {file}, or gthctl run -p {file}\n"
    ))
}

/// Writes the file, and creates its directory if that is missing. Replaces an existing file only if
/// `force` is set, and never a symbolic link: any user may have put one into a directory such as /tmp.
fn write_new(file: &Path, text: &str, force: bool) -> Result<()> {
    let failed = |e| Error::because_of(file.display(), e);
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    if force {
        let note = Replacement::prepare_without_links(file, text)?.commit()?;
        log::notes(note.as_slice());
        return Ok(());
    }
    let new = OpenOptions::new().write(true).create_new(true).mode(0o644).open(file);
    match new.and_then(|mut new| new.write_all(text.as_bytes())) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let what = format!("{}: exists already; nothing is written", file.display());
            Err(Error::failure(what).help("replace it with --force, or name another with --output"))
        }
        done => done.map_err(failed),
    }
}

fn ask(request: &Request) -> Result<Reply> {
    client::ask(Path::new(SOCKET), request)
}

/// The content of `file` as a proposed policy.
fn proposal(file: &Path) -> Result<Proposal> {
    Ok(Proposal::Text { path: named(file).to_owned(), text: read(file)? })
}

/// The name of standard input in messages.
const STDIN: &str = "<stdin>";

fn named(file: &Path) -> &Path {
    if file == Path::new("-") { Path::new(STDIN) } else { file }
}

fn read(file: &Path) -> Result<String> {
    if file != Path::new("-") {
        return Source::new(file).read_stream("policy file");
    }
    let mut bytes = Vec::new();
    let read = stdin().take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|e| Error::failure(format!("{STDIN}: {e}")))?;
    Source::new(named(file)).text(bytes, "policy")
}
