//! Single packets from the BPF ring buffer.

use std::cell::RefCell;
use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use serde::Serialize;

use super::attach::Tracer;
use super::counts::Context;
use crate::base::error::{Error, Result};
use crate::gtp::{Direction, Function};
use crate::kernel::comm;
use crate::kernel::skeletons::tracer::types::gth_trace_event;

/// One packet entering a function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub comm: String,
    pub tid: u32,
    pub tgid: u32,
    /// The same in the task's own PID namespace.
    pub tid_inside: u32,
    pub tgid_inside: u32,
    pub cpu: u32,
    pub context: Context,
    pub function: String,
    pub direction: Direction,
    pub bytes: u32,
}

/// The ring buffer's reading end.
pub struct Events {
    ring: RingBuffer<'static>,
    read: Rc<RefCell<Vec<gth_trace_event>>>,
}

impl Events {
    pub fn new(tracer: &Tracer) -> Result<Self> {
        let failed = |e| Error::failure(format!("the ring buffer: {e}"));
        let read = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&read);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            if bytes.len() >= size_of::<gth_trace_event>() {
                // SAFETY: long enough, all integers, and read unaligned.
                let event = unsafe { bytes.as_ptr().cast::<gth_trace_event>().read_unaligned() };
                into.borrow_mut().push(event);
            }
            0
        };
        builder.add(&tracer.events, take).map_err(failed)?;
        Ok(Self { ring: builder.build().map_err(failed)?, read })
    }

    /// Readable when there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        let fd: RawFd = self.ring.epoll_fd();
        // SAFETY: the ring buffer's descriptor stays open as long as `self`.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The events since the last call, in order per CPU.
    pub fn take(&mut self, functions: &[Function]) -> Result<Vec<Event>> {
        let failed = |e| Error::failure(format!("reading the ring buffer: {e}"));
        self.ring.consume().map_err(failed)?;
        Ok(self.read.borrow_mut().drain(..).map(|event| convert(&event, functions)).collect())
    }
}

fn convert(event: &gth_trace_event, functions: &[Function]) -> Event {
    let function = &functions[event.key.function as usize];
    Event {
        at_ns: event.at_ns,
        comm: comm::text(&event.comm),
        tid: event.key.tid,
        tgid: event.key.tgid,
        tid_inside: event.tid_inside,
        tgid_inside: event.tgid_inside,
        cpu: event.cpu,
        context: Context::of(event.key.context),
        function: function.symbol.clone(),
        direction: function.direction,
        bytes: event.bytes,
    }
}
