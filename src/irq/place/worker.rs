//! Placing interrupts in a separate thread. Another gthctl may hold the lock, or irqbalance
//! may be busy, for half a minute. Nothing else waits for that.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::keep::Keeper;
use super::kept::Kept;
use super::wanted::{Absent, Placement};
use crate::base::error::{Error, Result};
use crate::base::log;
use crate::base::signals;
use crate::irq::host::Host;

/// The longest wait for the thread to end. Each step of its end has a shorter deadline, so this is
/// for a kernel that does not return from a write.
const END: Duration = Duration::from_secs(10);

/// Keeps placements until dropped; then it puts everything back.
///
/// The descriptor is readable when [`Worker::done`] has something.
pub struct Worker {
    host: Host,
    orders: Option<Sender<Order>>,
    done: Receiver<Done>,
    wake: Arc<EventFd>,
    kept: Arc<Mutex<Kept>>,
    last: Ticket,
}

/// The number of an order.
pub type Ticket = u64;

/// What became of an order.
pub struct Done {
    pub ticket: Ticket,
    /// If it was refused, its placements are kept and retried.
    pub is_kept: bool,
    /// Notes for the user, or why the order was refused.
    pub result: Result<Vec<String>>,
}

struct Order {
    ticket: Ticket,
    placements: Vec<Placement>,
    /// True for [`Keeper::keep`], false for [`Keeper::set`].
    is_kept: bool,
}

/// The thread's side.
struct Desk {
    keeper: Keeper,
    orders: Receiver<Order>,
    wake: Arc<EventFd>,
    kept: Arc<Mutex<Kept>>,
    /// Dropped last: the end of this channel tells [`Worker`] that all is done.
    done: Sender<Done>,
}

impl Worker {
    /// A worker that places nothing yet.
    ///
    /// Fails when the process has no descriptor or thread left.
    pub fn start(host: Host) -> Result<Self> {
        let failed = |e: std::io::Error| Error::failure(format!("placing interrupts: {e}"));
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_flags(flags).map_err(|e| failed(e.into()))?);
        let kept: Arc<Mutex<Kept>> = Arc::default();
        let (orders, taken) = channel();
        let (told, done) = channel();
        let mut desk = Desk {
            keeper: Keeper::new(host.clone()),
            orders: taken,
            done: told,
            wake: Arc::clone(&wake),
            kept: Arc::clone(&kept),
        };
        signals::spawn("gthctl-irq", move || desk.work()).map_err(failed)?;
        Ok(Self { host, orders: Some(orders), done, wake, kept, last: 0 })
    }

    /// Orders [`Keeper::set`].
    pub fn set(&mut self, placements: &[Placement]) -> Ticket {
        self.order(placements, false)
    }

    /// Orders [`Keeper::keep`].
    pub fn keep(&mut self, placements: &[Placement]) -> Ticket {
        self.order(placements, true)
    }

    fn order(&mut self, placements: &[Placement], is_kept: bool) -> Ticket {
        self.last += 1;
        if let Some(orders) = &self.orders {
            let placements = placements.to_vec();
            let _ = orders.send(Order { ticket: self.last, placements, is_kept });
        }
        self.last
    }

    /// The results of orders since the last call. The thread skips an order when another one
    /// follows before it begins, unless that other one is refused.
    pub fn done(&mut self) -> Vec<Done> {
        let _ = self.wake.read();
        self.done.try_iter().collect()
    }

    /// What is kept now.
    pub fn kept(&self) -> Kept {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins to put everything back. The thread carries out no more orders.
    pub fn end(&mut self) {
        self.host.hurry.begin();
        // The thread ends when the channel closes.
        self.orders = None;
    }

    pub fn host(&self) -> &Host {
        &self.host
    }
}

impl AsFd for Worker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
        loop {
            match self.done.recv_timeout(END) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    log::error(
                        "the interrupts are not put back yet; \
                         `gthctl irq restore` puts them back",
                    );
                    return;
                }
            }
        }
    }
}

impl Desk {
    fn work(&mut self) {
        loop {
            let look_in = self.keeper.look();
            self.show();
            let order = match look_in {
                Some(time) => self.orders.recv_timeout(time),
                None => self.orders.recv().map_err(RecvTimeoutError::from),
            };
            match order {
                Ok(order) => self.carry_out_last(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        log::notes(&self.keeper.end());
    }

    /// Carries out the last of the pending orders. If that one is refused, nothing has changed, so
    /// a skipped order to keep placements is carried out instead.
    fn carry_out_last(&mut self, order: Order) {
        let (mut last, mut kept) = (order, None);
        for next in self.orders.try_iter() {
            let skipped = std::mem::replace(&mut last, next);
            if skipped.is_kept {
                kept = Some(skipped);
            }
        }
        let is_kept = last.is_kept;
        if !self.carry_out(last)
            && !is_kept
            && let Some(kept) = kept
        {
            self.carry_out(kept);
        }
    }

    /// False if it was refused.
    fn carry_out(&mut self, Order { ticket, placements, is_kept }: Order) -> bool {
        let result = match is_kept {
            true => self.keeper.keep(&placements),
            false => self.keeper.set(&placements, Absent::Refuse),
        };
        self.show();
        let is_done = result.is_ok();
        let _ = self.done.send(Done { ticket, is_kept, result });
        let _ = self.wake.write(1);
        is_done
    }

    fn show(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = self.keeper.kept().clone();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::irq::place::saved::lock;
    use crate::irq::tree::{Tree, affinity, on};

    fn wait_for(worker: &mut Worker) -> Done {
        loop {
            if let Some(done) = worker.done().pop() {
                return done;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn placed_refused_and_put_back() {
        let tree = Tree::with_this_process();
        let mut worker = Worker::start(tree.host()).unwrap();
        let ticket = worker.set(&[on("eth0", "2")]);
        let done = wait_for(&mut worker);
        assert_eq!((done.ticket, done.result.unwrap()), (ticket, vec![]));
        assert_eq!(affinity(&tree, 38), "2");
        assert_eq!(worker.kept().report(worker.host()).unwrap().in_place, 5);
        worker.set(&[on("eth0", "9")]);
        assert!(wait_for(&mut worker).result.is_err());
        assert_eq!(worker.kept().report(worker.host()).unwrap().in_place, 5);
        drop(worker);
        assert_eq!(affinity(&tree, 38), "0-3");
    }

    #[test]
    fn nobody_waits_for_the_lock() {
        let tree = Tree::with_this_process();
        let mut worker = Worker::start(tree.host()).unwrap();
        worker.set(&[on("eth0", "2")]);
        wait_for(&mut worker).result.unwrap();
        let held = lock(&tree.host()).unwrap();
        worker.set(&[on("eth0", "1")]);
        let last = worker.set(&[on("eth0", "3")]);
        assert!(worker.done().is_empty());
        std::thread::sleep(Duration::from_millis(100));
        drop(held);
        // The one in between may have been skipped.
        while wait_for(&mut worker).ticket != last {}
        assert_eq!(affinity(&tree, 38), "3");

        // Dropping the worker does not wait long either. What it does not put back stays saved.
        let _held = lock(&tree.host()).unwrap();
        worker.set(&[on("eth0", "1")]);
        std::thread::sleep(Duration::from_millis(100));
        let kept = Arc::clone(&worker.kept);
        drop(worker);
        assert_eq!(Arc::strong_count(&kept), 1, "the thread has not ended");
        assert_eq!(affinity(&tree, 38), "3");
        drop(_held);
        let pid = std::process::id();
        std::fs::remove_file(tree.path(&format!("proc/{pid}/stat"))).unwrap();
        assert_eq!(crate::irq::place::restore::restore(&tree.host(), None).unwrap().failed(), 0);
        assert_eq!(affinity(&tree, 38), "0-3");
    }

    #[test]
    fn what_was_to_be_kept_stays_due_when_the_next_is_refused() {
        let tree = Tree::with_this_process();
        let mut worker = Worker::start(tree.host()).unwrap();
        let held = lock(&tree.host()).unwrap();
        let first = worker.set(&[on("eth0", "1")]);
        std::thread::sleep(Duration::from_millis(100));
        let kept = worker.keep(&[on("eth0", "2")]);
        let refused = worker.set(&[on("eth0", "9")]);
        drop(held);
        let mut done = Vec::new();
        let begin = Instant::now();
        while done.last() != Some(&(kept, true)) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{done:?}");
            done.extend(worker.done().iter().map(|done| (done.ticket, done.result.is_ok())));
            std::thread::sleep(Duration::from_millis(1));
        }
        // The first one is skipped, too, if the thread has not begun it.
        done.retain(|(ticket, _)| *ticket != first);
        assert_eq!(done, [(refused, false), (kept, true)]);
        assert_eq!(affinity(&tree, 38), "2");
    }

    #[test]
    fn what_cannot_be_placed_is_tried_again() {
        let tree = Tree::with_this_process();
        let kept = tree.path("proc/irq/was");
        let file = tree.path("proc/irq/38/smp_affinity_list");
        std::fs::rename(&file, &kept).unwrap();
        std::fs::create_dir(&file).unwrap();
        let mut worker = Worker::start(tree.host()).unwrap();
        worker.keep(&[on("eth0", "2")]);
        let e = wait_for(&mut worker).result.unwrap_err().to_string();
        let waiting = worker.kept().report(worker.host()).unwrap().waiting;
        assert_eq!(waiting, [e]);
        std::fs::remove_dir(&file).unwrap();
        std::fs::rename(&kept, &file).unwrap();
        let begin = Instant::now();
        while affinity(&tree, 38) != "2" {
            assert!(begin.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
