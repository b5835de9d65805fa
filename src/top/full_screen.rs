//! The full screen from start to end: samples come from a thread of their own, so that keys have
//! an effect even if the running gthctl is slow to answer.

use std::io::{IsTerminal, Stdout, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signalfd::SignalFd;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal::is_raw_mode_enabled;

use super::drawing::{self, Look};
use super::keys::{Choice, Page, Wish};
use super::sample::{Sample, Source};
use super::trends::Model;
use crate::base::error::{Error, ExitCode, Result};
use crate::base::signals;
use crate::daemon::report_tables;

/// How soon the second sample follows, so that there are rates at once.
const FIRST: Duration = Duration::from_millis(300);

/// What the sampling thread has found.
enum News {
    Sample(Box<Result<Sample>>),
    Explained { tid: u32, text: String },
}

/// Shows the screen until the user quits or a signal ends it.
pub fn run(source: &Source, interval: Duration, look: Look) -> Result<()> {
    if !(stdin().is_terminal() && stdout().is_terminal()) {
        let what = "gthctl top needs a terminal for its keys and its screen";
        return Err(Error::new(ExitCode::Usage, what).help("use --once, or -o json"));
    }
    let signals = signals::catch_signals()?;
    let sampler = Sampler::start(source.clone(), interval)?;
    let mut screen = Screen::open()?;
    let (mut choice, mut model) = (Choice::default(), Model::default());
    loop {
        screen.draw(&choice, &model, look)?;
        if wait(&signals, &sampler.wake)? {
            return Ok(());
        }
        sampler.take(&mut choice, &mut model)?;
        if press_all(&mut choice, &model, &sampler)? {
            return Ok(());
        }
    }
}

/// The terminal while the screen uses it. The terminal is restored however this ends: when this is
/// dropped, and before the message of a panic.
pub struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    /// Takes the terminal.
    pub fn open() -> Result<Self> {
        let terminal = ratatui::try_init();
        Ok(Self(terminal.map_err(|e| Error::because_of("the terminal", e))?))
    }

    fn draw(&mut self, choice: &Choice, model: &Model, look: Look) -> Result<()> {
        let drawn = self.0.draw(|frame| drawing::draw(frame, choice, model, look));
        drawn.map(drop).map_err(|e| Error::because_of("the terminal", e))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A panic has restored the terminal already. Doing so again would move the cursor over the
        // message.
        if is_raw_mode_enabled().is_ok_and(|is_raw| is_raw) {
            let _ = self.0.show_cursor();
            // A terminal that has hung up needs no restoring.
            let _ = ratatui::try_restore();
        }
    }
}

/// Waits for a key, a new size, or news; true if the screen must end.
fn wait(signals: &SignalFd, wake: &EventFd) -> Result<bool> {
    let stdin = stdin();
    let mut fds =
        [stdin.as_fd(), wake.as_fd(), signals.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) => {}
        // The size of the terminal has changed.
        Err(Errno::EINTR) => return Ok(false),
        Err(e) => return Err(Error::because_of("poll", e)),
    }
    let has = |fd: &PollFd<'_>, flags| fd.revents().is_some_and(|events| events.intersects(flags));
    Ok(has(&fds[2], PollFlags::POLLIN) || has(&fds[0], PollFlags::POLLHUP | PollFlags::POLLERR))
}

/// Acts on all keys that are pending; true if one quits.
fn press_all(choice: &mut Choice, model: &Model, sampler: &Sampler) -> Result<bool> {
    let failed = |e| Error::because_of("the terminal", e);
    while event::poll(Duration::ZERO).map_err(failed)? {
        let Event::Key(key) = event::read().map_err(failed)? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match choice.press(key, model) {
            Wish::Nothing => {}
            Wish::Quit => return Ok(true),
            Wish::Explain(tid) => {
                let _ = sampler.wishes.send(tid);
            }
        }
    }
    Ok(false)
}

/// The sampling thread. It ends when this is dropped.
struct Sampler {
    news: Receiver<News>,
    /// Threads to explain.
    wishes: Sender<u32>,
    /// Readable when there is news.
    wake: Arc<EventFd>,
}

impl Sampler {
    fn start(source: Source, interval: Duration) -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_flags(flags).map_err(|e| Error::because_of("eventfd", e))?;
        let wake = Arc::new(wake);
        let (sender, news) = channel();
        let (wishes, asked) = channel();
        let teller = Teller { sender, bell: Bell(Arc::clone(&wake)) };
        let thread = move || sample(&source, interval, &asked, &teller);
        signals::spawn("sampler", thread).map_err(|e| Error::because_of("a thread", e))?;
        Ok(Self { news, wishes, wake })
    }

    /// Takes the news. Fails if no more will come, or if no sample can succeed.
    fn take(&self, choice: &mut Choice, model: &mut Model) -> Result<()> {
        let _ = self.wake.read();
        loop {
            match self.news.try_recv() {
                Ok(News::Sample(sample)) => {
                    let sample = (*sample)?;
                    match &sample.gthctl {
                        Err(e) if e.code == ExitCode::Permission => return Err(e.clone()),
                        _ => model.add(sample),
                    }
                }
                Ok(News::Explained { tid, text }) => match &mut choice.page {
                    Page::Explain { tid: asked, text: page } if *asked == tid => *page = Some(text),
                    _ => {}
                },
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    return Err(Error::failure("the thread that takes samples has ended"));
                }
            }
        }
    }
}

/// The sampling thread's end of the channel. When it is dropped, even by a panic, the screen wakes
/// up and finds that no more news will come, because the sender is dropped before the bell.
struct Teller {
    sender: Sender<News>,
    bell: Bell,
}

impl Teller {
    /// False if nobody listens any more.
    fn tell(&self, news: News) -> bool {
        let told = self.sender.send(news).is_ok();
        self.bell.ring();
        told
    }
}

struct Bell(Arc<EventFd>);

impl Bell {
    fn ring(&self) {
        // This fails only if the bell is ringing already.
        let _ = self.0.write(1);
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.ring();
    }
}

/// Takes a sample each `interval`, and explains threads in between.
fn sample(source: &Source, interval: Duration, asked: &Receiver<u32>, teller: &Teller) {
    let mut pause = FIRST.min(interval);
    loop {
        let next = Instant::now() + pause;
        if !teller.tell(News::Sample(Box::new(source.sample()))) {
            return;
        }
        loop {
            match asked.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(tid) => {
                    let explained = source.explain(tid);
                    let text = explained.map(|explained| report_tables::explanation(&explained));
                    let text = text.unwrap_or_else(|e| e.to_string());
                    if !teller.tell(News::Explained { tid, text }) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        pause = interval;
    }
}
