// SPDX-License-Identifier: GPL-2.0

//! A model of a queue pair and its device, which is a thread of the test.
//!
//! Everything that precedes a doorbell precedes the later actions of the device: completions and
//! their callbacks. In hardware the barriers of the doorbell and of the completion queue ensure
//! this; in a software device, locks do.

#[path = "../../../../../rust/kernel/rdma/qp/handler.rs"]
mod handler;
#[path = "../../../../../rust/kernel/rdma/qp/poll.rs"]
mod poll;
#[path = "../../../../../rust/kernel/rdma/qp/sizes.rs"]
mod sizes;

pub use handler::{Failure, Handler};
pub use sizes::{Memory, Sizes};

use super::{
    dma::{Chunk, SharedChunk},
    mr::{Bound, Exposed, Handle, Regions, Register},
    pd::Pd,
    wc::Flags,
};
use crate::{bindings, dma::ScatterList, errno::ENOTCONN};
use core::{cell::RefCell, marker::PhantomData, ops::Deref};
use kernel::{
    prelude::*,
    sync::{rcu, Arc},
};
use loom::sync::atomic::{AtomicUsize, Ordering};
use poll::PolledCq;
use std::collections::VecDeque;

pub const RECEIVE_BATCH: usize = 8;

#[derive(Clone, Copy, Debug)]
pub struct QpEvent(u32);

impl core::fmt::Display for QpEvent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "event {}", self.0)
    }
}

/// A work request.
pub enum Request {
    /// A message, and the regions that it registers. The peer may access their memory from now on.
    Send(Vec<u8>, Vec<*mut bindings::ib_mr>),
    /// The invalidation of a handle. The peer may access its memory until then.
    Invalidate(usize, *mut bindings::ib_mr),
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    /// The regions whose memory the peer may access.
    registered: Vec<*mut bindings::ib_mr>,
    connected: bool,
    error: bool,
    busy: bool,
    /// The grace period after which no section finds the queue pair.
    retired: Option<usize>,
    destroyed: bool,
}

/// The context in which completions are polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollContext {
    Interrupt,
    Direct,
}

pub struct Qp<H: Handler> {
    handler: H,
    regions: Arc<Regions>,
    pd: Arc<Pd>,
    sizes: Sizes,
    polled: PolledCq,
    /// Operations on this atomic order the accesses to `queue`, except for [`Self::is_over`].
    bell: AtomicUsize,
    queue: RefCell<Queue>,
}

// SAFETY: Loom runs all threads of an execution on one OS thread.
unsafe impl<H: Handler> Send for Qp<H> {}
// SAFETY: Loom runs all threads of an execution on one OS thread.
unsafe impl<H: Handler> Sync for Qp<H> {}

impl<H: Handler> Qp<H> {
    pub fn new(pd: &Arc<Pd>, sizes: Sizes, memory: Memory, handler: H) -> Result<Arc<Self>> {
        let polled = PolledCq::new().make()?;
        if sizes.context == PollContext::Direct {
            polled.set(Box::into_raw(Box::new(bindings::ib_cq::new())));
        }
        let this = Self {
            handler,
            regions: memory.regions,
            pd: pd.clone(),
            sizes,
            polled,
            bell: AtomicUsize::new(0),
            queue: RefCell::default(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    fn at<R>(&self, order: Ordering, f: impl FnOnce(&mut Queue) -> R) -> R {
        self.bell.fetch_add(1, order);
        f(&mut self.queue.borrow_mut())
    }

    /// As in the driver.
    pub fn renew_regions(&self) -> Result {
        self.regions.bind()?;
        self.regions.unbind();
        Ok(())
    }

    /// As in the driver, without a link.
    pub fn create(&self) -> Result {
        self.regions.bind()?;
        if let Err(e) = self.pd.begin() {
            self.regions.unbind();
            return Err(e);
        }
        self.at(Ordering::AcqRel, |queue| {
            *queue = Queue {
                connected: true,
                ..Queue::default()
            }
        });
        Ok(())
    }

    pub fn live<'a>(&'a self, _: &'a rcu::Guard) -> Result<LiveQp<'a>> {
        if !self.at(Ordering::Acquire, |queue| queue.connected) {
            return Err(ENOTCONN);
        }
        Ok(LiveQp {
            post: self,
            regions: &self.regions,
            section: PhantomData,
        })
    }

    pub fn hang_up(&self) {}

    /// After this function returns, no request completes and no callback runs.
    pub fn shutdown(&self) {
        if !self.at(Ordering::AcqRel, |queue| {
            queue.requests.clear();
            !std::mem::replace(&mut queue.error, true) && queue.connected
        }) {
            return;
        }
        while self.at(Ordering::Acquire, |queue| queue.busy) {
            loom::thread::yield_now();
        }
        for mr in self.at(Ordering::Acquire, |queue| {
            std::mem::take(&mut queue.registered)
        }) {
            // SAFETY: A region lives as long as the queue pair.
            unsafe { bindings::remote_write(mr) };
        }
        // As in the driver.
        self.regions.set_dead();
        self.pd.drained();
    }

    /// As in the driver.
    pub fn retire(&self) {
        if self.at(Ordering::AcqRel, |queue| {
            std::mem::take(&mut queue.connected)
        }) {
            let period = rcu::begin();
            self.at(Ordering::AcqRel, |queue| queue.retired = Some(period));
        }
    }

    /// As in the driver.
    pub fn destroy(&self) {
        self.retire();
        if let Some(period) = self.at(Ordering::AcqRel, |queue| queue.retired.take()) {
            rcu::wait(period);
            self.at(Ordering::AcqRel, |queue| queue.destroyed = true);
            self.regions.unbind();
        }
    }

    pub fn finish(&self) {
        self.destroy();
    }

    /// Takes the next request as the device does. [`Self::completed`] must follow.
    pub fn take(&self) -> Option<Request> {
        self.at(Ordering::Acquire, |queue| {
            let request = queue.requests.pop_front();
            queue.busy = request.is_some();
            request
        })
    }

    /// Handles the return of the taken request's callback.
    pub fn completed(&self) {
        self.at(Ordering::Release, |queue| queue.busy = false);
    }

    /// Whether the device is in error or drained.
    pub fn is_over(&self) -> bool {
        self.queue.borrow().error
    }

    /// Executes a request as a device would, and a target that writes the data of each command and
    /// then responds.
    pub fn carry_out(&self, request: Request) {
        match request {
            Request::Send(message, regions) => {
                self.reach(regions);
                H::received(self, &response(&message, 1), Flags(0));
            }
            Request::Invalidate(handle, mr) => {
                // SAFETY: A region lives as long as the queue pair.
                unsafe { bindings::remote_write(mr) };
                self.at(Ordering::Acquire, |queue| {
                    queue.registered.retain(|&other| other != mr)
                });
                self.regions.invalidated(handle);
                H::invalidated(self, handle);
            }
        }
    }

    /// Executes a command as a device would, and a target that does not respond.
    pub fn carry_out_only(&self, request: Request) {
        if let Request::Send(_, regions) = request {
            self.reach(regions);
        }
    }

    fn reach(&self, regions: Vec<*mut bindings::ib_mr>) {
        for mr in regions {
            self.at(Ordering::Acquire, |queue| queue.registered.push(mr));
            // SAFETY: A region lives as long as the queue pair.
            unsafe { bindings::remote_write(mr) };
        }
    }

    /// The queue pair's regions.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }
}

/// Builds a successful response to a command or task management request, which grants `credits`.
pub fn response(message: &[u8], credits: u32) -> Vec<u8> {
    const TSK_MGMT: u8 = 1;
    let mut rsp = vec![0; 36];
    rsp[0] = 0xc1;
    if message[0] == TSK_MGMT {
        // The response contains response data with the code 0.
        rsp[18] = 1;
        rsp[35] = 4;
        rsp.extend([0; 4]);
    }
    rsp[4..8].copy_from_slice(&credits.to_be_bytes());
    rsp[8..16].copy_from_slice(&message[8..16]);
    rsp
}

impl<H: Handler> Deref for Qp<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.handler
    }
}

/// A queue for requests.
trait Post {
    fn post(&self, request: Request);
    /// Posts nothing.
    fn look(&self);
}

impl<H: Handler> Post for Qp<H> {
    fn look(&self) {
        let destroyed = self.at(Ordering::Acquire, |queue| queue.destroyed);
        assert!(!destroyed, "a queue pair that is gone is posted on");
    }

    fn post(&self, request: Request) {
        self.at(Ordering::Release, |queue| {
            assert!(!queue.destroyed, "a queue pair that is gone is posted on");
            // Later posts are flushed.
            if !queue.error {
                queue.requests.push_back(request);
            }
        });
    }
}

#[derive(Clone, Copy)]
pub struct LiveQp<'a> {
    post: &'a dyn Post,
    regions: &'a Regions,
    section: PhantomData<&'a rcu::Guard>,
}

impl<'a> LiveQp<'a> {
    pub fn register_fixed(&self) -> Result {
        self.post.look();
        Ok(())
    }

    pub fn send(&self, chunk: &mut Chunk, len: usize) -> Result<SendWr<'a>> {
        Ok(SendWr {
            live: *self,
            message: chunk.bytes_mut()[..len].to_vec(),
            register: None,
        })
    }

    /// As in the driver.
    pub fn invalidation<T: ScatterList>(
        &self,
        handle: &mut Handle<T>,
    ) -> Result<Option<Invalidation<'a>>> {
        let regions = handle.invalidation(self.bound())?;
        Ok(regions.map(|regions| Invalidation {
            live: *self,
            regions,
        }))
    }

    fn bound(&self) -> Bound<'a> {
        Bound {
            regions: self.regions,
        }
    }

    fn invalidate(&self, regions: &Exposed<'a>) {
        let mr = regions.first().mr(self.bound());
        self.post.post(Request::Invalidate(regions.handle(), mr));
    }
}

/// As in the driver.
#[must_use]
pub struct Invalidation<'a> {
    live: LiveQp<'a>,
    regions: Exposed<'a>,
}

impl Invalidation<'_> {
    pub fn post(self) -> Result {
        if self.regions.invalidate() {
            self.live.invalidate(&self.regions);
        }
        Ok(())
    }
}

#[must_use]
pub struct SendWr<'a> {
    live: LiveQp<'a>,
    message: Vec<u8>,
    register: Option<Register<'a>>,
}

impl SendWr<'_> {
    pub fn with(self, _: &mut SharedChunk, _: usize) -> Result<Self> {
        Ok(self)
    }

    pub fn register<T: ScatterList>(mut self, handle: &mut Handle<T>) -> Result<Self> {
        self.register = handle.register(self.live.bound())?;
        Ok(self)
    }

    pub fn post(self, _signaled: bool) -> Result {
        let register = self.register.as_ref();
        let regions = register.map(|r| r.regions.first().mr(self.live.bound()));
        let request = Request::Send(self.message, regions.into_iter().collect());
        self.live.post.post(request);
        if let Some(register) = register {
            if register.regions.posted() {
                self.live.invalidate(&register.regions);
            }
        }
        Ok(())
    }

    pub fn post_control(self) -> Result {
        self.post(true)
    }

    pub fn post_last(self) -> Result {
        self.post(true)
    }
}
