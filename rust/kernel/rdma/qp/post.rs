// SPDX-License-Identifier: GPL-2.0

//! Posting work requests: chains on the stack, one doorbell each.

use super::{
    cqe::Cqe,
    done::Receive,
    posted_memory::PostedMemory,
    Handler,
    Qp,
    RECEIVE_BATCH, //
};
use crate::{
    bindings,
    dma::ScatterList,
    errno::ENOTCONN,
    rdma::{
        dma::{
            Chunk,
            SharedChunk, //
        },
        mr::{
            Bound,
            Exposed,
            Handle,
            Region,
            Register,
            MAX_PER_HANDLE, //
        },
        wr::{
            invalidation,
            posted,
            request,
            set_receive_cookie, //
        }, //
    }, //
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Acquire,
        rcu, //
    }, //
};

/// Storage for the work requests of one registration.
type Registrations = [MaybeUninit<bindings::ib_reg_wr>; MAX_PER_HANDLE];
const REGISTRATIONS: Registrations = [const { MaybeUninit::uninit() }; MAX_PER_HANDLE];

/// A connected queue pair, to post on until the end of an RCU read-side section, which holds off
/// the teardown. Requests built with it belong to this connection and end with the section.
///
/// # Examples
///
/// A message of 48 bytes, after the registration of its memory; then the invalidation.
///
/// ```
/// use ib_srp::{
///     dma::ScatterList,
///     rdma::{
///         dma::Chunk,
///         mr::Handle,
///         qp::{Handler, Qp},
///     },
/// };
/// use kernel::{prelude::*, sync::rcu};
///
/// fn send<H: Handler, T: ScatterList>(
///     qp: &Qp<H>,
///     message: &mut Chunk,
///     handle: &mut Handle<T>,
/// ) -> Result {
///     message.bytes_mut()[..48].fill(1);
///     let section = rcu::read_lock();
///     let wr = qp.live(&section)?.send(message, 48)?.register(handle)?;
///     wr.post(false)
/// }
///
/// fn answered<H: Handler, T: ScatterList>(qp: &Qp<H>, handle: &mut Handle<T>) -> Result {
///     let section = rcu::read_lock();
///     match qp.live(&section)?.invalidation(handle)? {
///         // `Handler::invalidated` follows.
///         Some(invalidation) => invalidation.post(),
///         None => Ok(()),
///     }
/// }
/// ```
///
/// # Invariants
///
/// Until the section ends, the queue pair is valid, and the regions of `memory`, `fixed` included,
/// are neither deregistered nor replaced.
#[derive(Clone, Copy)]
pub struct LiveQp<'a> {
    qp: NonNull<bindings::ib_qp>,
    memory: &'a PostedMemory,
    section: PhantomData<&'a rcu::Guard>,
}

impl<H: Handler> Qp<H> {
    /// Returns the queue pair for this read-side section. Any context.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the queue pair is not connected.
    #[inline(always)]
    pub fn live<'a>(&'a self, _section: &'a rcu::Guard) -> Result<LiveQp<'a>> {
        let qp = NonNull::new(self.qp.load(Acquire)).ok_or(ENOTCONN)?;
        // INVARIANT: By the invariant of `Qp` the queue pair is destroyed a grace period after `qp`
        // is cleared. Regions are deregistered or replaced only after that, and before the next
        // queue pair is stored with `Release`.
        Ok(LiveQp {
            qp,
            memory: &self.memory,
            section: PhantomData,
        })
    }

    /// Posts up to [`RECEIVE_BATCH`] receives with one doorbell.
    pub(super) fn post_receives(&self, list: &[*const Cqe<Receive>]) -> Result {
        let mut sges = [const { MaybeUninit::<bindings::ib_sge>::uninit() }; RECEIVE_BATCH];
        let mut chain = [const { MaybeUninit::<bindings::ib_recv_wr>::uninit() }; RECEIVE_BATCH];
        let mut first: *mut bindings::ib_recv_wr = null_mut();
        for ((receive, sge), place) in list.iter().zip(&mut sges).zip(&mut chain).rev() {
            // SAFETY: The list names elements of `reach.receives`, which does not change.
            let receive = unsafe { &**receive };
            let Receive(chunk) = &receive.owner;
            // CAST: A chunk is at most 64 KiB.
            let sge = sge.write(self.memory.sge((chunk.addr(), chunk.size() as u32)));
            let mut wr = bindings::ib_recv_wr {
                next: first,
                sg_list: sge,
                num_sge: 1,
                ..Default::default()
            };
            set_receive_cookie(&mut wr, receive.as_raw());
            first = place.write(wr);
        }
        if first.is_null() {
            return Ok(());
        }
        let section = rcu::read_lock();
        let live = self.live(&section)?;
        let mut bad = core::ptr::null();
        // SAFETY: By the invariant of `LiveQp` the queue pair is valid; the receives and their
        // memory live as long as this object, which drains before it is dropped.
        posted(unsafe { bindings::srp_helper_ib_post_recv(live.qp.as_ptr(), first, &mut bad) })
    }
}

impl<'a> LiveQp<'a> {
    /// Returns the regions of the queue pair.
    #[inline(always)]
    fn bound(&self) -> Bound<'a> {
        // INVARIANT: By the type invariant no region is replaced until the section ends.
        Bound {
            regions: &self.memory.regions,
        }
    }

    /// Builds a message of the first `len` bytes of `chunk`, synced for the device.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the chunk is not of the queue pair's message pool, `EMSGSIZE` if it is shorter
    /// than `len`.
    #[inline(always)]
    pub fn send(&self, chunk: &mut Chunk, len: usize) -> Result<SendWr<'a>> {
        if !chunk.is_of(&self.memory.messages) {
            return Err(EINVAL);
        }
        // INVARIANT: The chunk is from the message pool of `memory`.
        Ok(SendWr {
            live: *self,
            message: chunk.part(len)?,
            data: None,
            register: None,
        })
    }

    /// Posts the registration of the [`FixedMr`](crate::rdma::mr::FixedMr), if there is one. Must
    /// be called before a message with its key is posted.
    ///
    /// # Errors
    ///
    /// The error of the device driver.
    pub fn register_fixed(&self) -> Result {
        let Some(fixed) = &self.memory.fixed else {
            return Ok(());
        };
        let (mr, key, access) = fixed.registration(self.bound());
        let wr = request(
            bindings::ib_wr_opcode_IB_WR_REG_MR,
            0,
            self.memory.sent.as_raw(), //
        );
        let wr = bindings::ib_reg_wr {
            wr,
            mr,
            key,
            access,
        };
        self.post(&wr.wr)
    }

    /// Posts the registration of a handle without a message. `EINVAL` if the handle is not mapped.
    #[cfg(SRP_BENCH)]
    pub fn register<T: ScatterList>(&self, handle: &mut Handle<T>) -> Result {
        let register = handle.register(self.bound())?.ok_or(EINVAL)?;
        let mut chain = REGISTRATIONS;
        let first = self.registrations(&mut chain, &register, core::ptr::null());
        self.post(first)?;
        self.registered(register.regions)
    }

    /// Writes the first `len` bytes of `chunk` to memory of the peer, as a target does.
    /// [`Handler::control_sent`] follows.
    #[cfg(SRP_KUNIT)]
    pub(crate) fn write(&self, chunk: &mut Chunk, len: usize, addr: u64, rkey: u32) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
        let mut sge = self.message(chunk, len)?;
        let wr = self.signaled(opcode, &mut sge);
        let wr = bindings::ib_rdma_wr {
            wr,
            remote_addr: addr,
            rkey,
        };
        self.post(&wr.wr)
    }

    /// Sends the first `len` bytes of `chunk` and has the peer's device invalidate `rkey`.
    /// [`Handler::control_sent`] follows.
    #[cfg(SRP_KUNIT)]
    pub(crate) fn send_invalidating(&self, chunk: &mut Chunk, len: usize, rkey: u32) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV;
        let mut sge = self.message(chunk, len)?;
        let mut wr = self.signaled(opcode, &mut sge);
        wr.ex = invalidation(rkey, core::ptr::null()).ex;
        self.post(&wr)
    }

    #[cfg(SRP_KUNIT)]
    fn message(&self, chunk: &mut Chunk, len: usize) -> Result<bindings::ib_sge> {
        match chunk.is_of(&self.memory.messages) {
            true => Ok(self.memory.sge(chunk.part(len)?)),
            false => Err(EINVAL),
        }
    }

    #[cfg(SRP_KUNIT)]
    fn signaled(
        &self,
        opcode: bindings::ib_wr_opcode,
        sge: &mut bindings::ib_sge,
    ) -> bindings::ib_send_wr {
        let flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        let mut wr = request(opcode, flags, self.memory.control_sent.as_raw());
        wr.sg_list = sge;
        wr.num_sge = 1;
        wr
    }

    /// Returns the invalidation of all regions of `handle` that the peer may reach, once per
    /// registration, or `None` if the peer can reach nothing. The memory is reachable until the
    /// invalidation is posted and has completed.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the handle's regions are not the queue pair's, `EBUSY` if there was an
    /// invalidation since the registration.
    #[inline(always)]
    pub fn invalidation<T: ScatterList>(
        &self,
        handle: &mut Handle<T>,
    ) -> Result<Option<Invalidation<'a>>> {
        let Some(regions) = handle.invalidation(self.bound())? else {
            return Ok(None);
        };
        Ok(Some(Invalidation {
            live: *self,
            regions,
        }))
    }

    /// Notes that the registration of these regions is posted. Posts a pending invalidation.
    ///
    /// # Errors
    ///
    /// As for [`Invalidation::post`].
    #[inline(always)]
    fn registered(self, regions: Exposed<'a>) -> Result {
        if regions.posted() {
            return self.invalidate_late(regions);
        }
        Ok(())
    }

    /// Takes the regions by value: with a reference, the compiler builds each message in memory.
    #[cold]
    #[inline(never)]
    fn invalidate_late(self, regions: Exposed<'a>) -> Result {
        self.invalidate(&regions)
    }

    /// Posts the invalidation of regions after their registration.
    #[inline(always)]
    fn invalidate(&self, regions: &Exposed<'a>) -> Result {
        let cqe = self
            .memory
            .invalidates
            .get(regions.handle())
            .ok_or(EINVAL)?;
        // The chain is built from last to first.
        let mut last = invalidation(regions.first().key(self.bound()), cqe.as_raw());
        last.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        let mut chain = [const { MaybeUninit::<bindings::ib_send_wr>::uninit() }; MAX_PER_HANDLE];
        let mut first: *const bindings::ib_send_wr = &last;
        for (place, region) in chain.iter_mut().zip(regions.others()) {
            let mut wr = invalidation(region.key(self.bound()), self.memory.sent.as_raw());
            wr.next = first.cast_mut();
            first = place.write(wr);
        }
        self.post(first)
    }

    /// Builds the requests of a registration in `chain`, followed by `last`. Returns the first.
    #[inline(always)]
    fn registrations(
        &self,
        chain: &mut Registrations,
        register: &Register<'a>,
        last: *const bindings::ib_send_wr,
    ) -> *const bindings::ib_send_wr {
        let [place, places @ ..] = chain;
        let regions = &register.regions;
        let mut first = self.registration(place, regions.first(), register.access, last);
        // Each request is prepended; the order of the registrations does not matter.
        for (place, region) in places.iter_mut().zip(regions.others()) {
            first = self.registration(place, region, register.access, first);
        }
        first
    }

    #[inline(always)]
    fn registration(
        &self,
        place: &mut MaybeUninit<bindings::ib_reg_wr>,
        region: &Region,
        access: i32,
        next: *const bindings::ib_send_wr,
    ) -> *const bindings::ib_send_wr {
        let mut wr = request(
            bindings::ib_wr_opcode_IB_WR_REG_MR,
            0,
            self.memory.sent.as_raw(), //
        );
        wr.next = next.cast_mut();
        let wr = place.write(bindings::ib_reg_wr {
            wr,
            mr: region.mr(self.bound()),
            key: region.key(self.bound()),
            access,
        });
        &wr.wr
    }

    /// Posts a chain that uses only completion entries, pools and regions of `memory`.
    #[inline(always)]
    fn post(&self, first: *const bindings::ib_send_wr) -> Result {
        let mut bad = core::ptr::null();
        // SAFETY: By the type invariant the queue pair is valid. The completions and memory of the
        // chain live as long as the `Qp`, which drains before it is dropped; its regions stay until
        // the section ends.
        posted(unsafe { bindings::srp_helper_ib_post_send(self.qp.as_ptr(), first, &mut bad) })
    }
}

/// A message for one connection, with the registration that is posted before it.
///
/// # Invariants
///
/// `message` and `data` are memory of pools of `live.memory`, and `register` has only regions of
/// it.
#[must_use]
pub struct SendWr<'a> {
    live: LiveQp<'a>,
    message: (u64, u32),
    data: Option<(u64, u32)>,
    register: Option<Register<'a>>,
}

impl<'a> SendWr<'a> {
    /// Appends the first `len` bytes of `chunk`, synced for the device.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the chunk is not of the queue pair's data pool, `EMSGSIZE` if it is shorter than
    /// `len`.
    #[inline(always)]
    pub fn with(mut self, chunk: &mut SharedChunk, len: usize) -> Result<Self> {
        let chunk = chunk.as_chunk();
        let pool = self.live.memory.data.as_ref();
        if !pool.is_some_and(|pool| chunk.is_of(pool)) {
            return Err(EINVAL);
        }
        // INVARIANT: The chunk is from the data pool of `memory`.
        self.data = Some(chunk.part(len)?);
        Ok(self)
    }

    /// Adds the registration of `handle`, if it is mapped, to be posted before the message.
    ///
    /// From now on the memory counts as reachable, until the invalidation has completed or all
    /// queue pairs of the domain are in error and drained.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the handle has other regions than the queue pair, `EBUSY` if its memory counts
    /// as reachable.
    #[inline(always)]
    pub fn register<T: ScatterList>(mut self, handle: &mut Handle<T>) -> Result<Self> {
        // INVARIANT: The regions are those of `live`.
        self.register = handle.register(self.live.bound())?;
        Ok(self)
    }

    /// Posts the message with one doorbell. Does not sleep.
    ///
    /// Without `signaled`, success is not reported and only a later completion frees the entry in
    /// the send queue.
    ///
    /// # Errors
    ///
    /// The error of the device driver, also for an invalidation that waited for this post. After an
    /// error the registration may have been posted; its memory counts as reachable.
    #[inline(always)]
    pub fn post(self, signaled: bool) -> Result {
        let memory = self.live.memory;
        self.post_for(signaled, memory.sent.as_raw())
    }

    /// Posts the message. [`Handler::control_sent`] reports that its memory is free again.
    ///
    /// # Errors
    ///
    /// As for [`Self::post`].
    pub fn post_control(self) -> Result {
        let memory = self.live.memory;
        self.post_for(true, memory.control_sent.as_raw())
    }

    /// Posts the message. [`Handler::last_sent`] reports that it was sent.
    ///
    /// # Errors
    ///
    /// As for [`Self::post`].
    pub fn post_last(self) -> Result {
        let memory = self.live.memory;
        self.post_for(true, memory.last_sent.as_raw())
    }

    #[inline(always)]
    fn post_for(self, signaled: bool, cqe: *const bindings::ib_cqe) -> Result {
        let memory = self.live.memory;
        let mut sges = [
            memory.sge(self.message),
            bindings::ib_sge::default(), //
        ];
        let mut count = 1;
        if let Some(data) = self.data {
            sges[1] = memory.sge(data);
            count = 2;
        }
        let flags = if signaled {
            bindings::ib_send_flags_IB_SEND_SIGNALED
        } else {
            0
        };
        let mut send = request(bindings::ib_wr_opcode_IB_WR_SEND, flags, cqe);
        send.sg_list = sges.as_mut_ptr();
        send.num_sge = count;

        let mut chain = REGISTRATIONS;
        let mut first: *const bindings::ib_send_wr = &send;
        if let Some(register) = &self.register {
            first = self.live.registrations(&mut chain, register, first);
        }
        // By the type invariant the chain uses only pools and regions of `memory`.
        self.live.post(first)?;
        match self.register {
            Some(register) => self.live.registered(register.regions),
            None => Ok(()),
        }
    }
}

/// The invalidation of a handle's regions that a peer may reach, for the connection of their
/// registration. If it is dropped, the memory stays reachable until the connection ends.
///
/// # Invariants
///
/// The regions are those of `live.memory`. There is at most one invalidation per registration.
#[must_use]
pub struct Invalidation<'a> {
    live: LiveQp<'a>,
    regions: Exposed<'a>,
}

impl Invalidation<'_> {
    /// Posts the invalidation, or leaves it to the poster of the registration, if that post has not
    /// returned yet. [`Handler::invalidated`] follows. Does not sleep.
    ///
    /// A registration that is never posted, or fails to post, is not invalidated before the end
    /// of the connection.
    ///
    /// # Errors
    ///
    /// The error of the device driver; `EINVAL` if the queue pair was created for fewer handles.
    #[inline(always)]
    pub fn post(self) -> Result {
        if self.regions.invalidate() {
            return self.live.invalidate(&self.regions);
        }
        Ok(())
    }
}
