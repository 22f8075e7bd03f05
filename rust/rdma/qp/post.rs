// SPDX-License-Identifier: GPL-2.0

//! Posting work requests: chains on the stack, one doorbell each.

use super::{
    Handler,
    Qp,
    Receive,
    RECEIVE_BATCH, //
};
use crate::{
    bindings,
    errno::ENOTCONN,
    rdma::{
        dma::Message,
        mr::{
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
    ptr::null_mut, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Acquire,
        rcu, //
    }, //
};

/// Places for the requests of one registration.
type Registrations = [MaybeUninit<bindings::ib_reg_wr>; MAX_PER_HANDLE];
const REGISTRATIONS: Registrations = [const { MaybeUninit::uninit() }; MAX_PER_HANDLE];

/// The queue pair of a [`Qp`] in an RCU read-side section. Requests are built from regions only with this, as
/// those may be replaced where there is no queue pair.
///
/// # Invariants
///
/// Until the section ends the queue pair is valid, and so are the regions that the [`Qp`] names.
pub(in crate::rdma) struct Live<'a> {
    qp: *mut bindings::ib_qp,
    section: PhantomData<&'a rcu::Guard>,
}

impl<H: Handler> Qp<H> {
    /// Posts the registration of the bounce memory, if there is any: before a message that names it.
    ///
    /// # Errors
    ///
    /// What the device driver says.
    pub fn post_bounce(&self) -> Result {
        let Some(bounce) = &self.bounce else {
            return Ok(());
        };
        let section = rcu::read_lock();
        let live = self.live(&section)?;
        let Some((mr, key, access)) = bounce.registration(&live) else {
            return Ok(());
        };
        let wr = request(bindings::ib_wr_opcode_IB_WR_REG_MR, 0, &self.send_cqe);
        let wr = bindings::ib_reg_wr {
            wr,
            mr,
            key,
            access,
        };
        self.post_chain(&live, &wr.wr)
    }

    /// Posts `message`, after the registration that it refers to, with one doorbell.
    ///
    /// Does not sleep. Without `signaled` a success is not reported and the place in the send queue
    /// is only recycled by a later completion.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the message or the registration is of another queue pair, otherwise what the
    /// device driver says; a registration may have been posted then, and counts as reachable.
    #[inline]
    pub fn post_send(
        &self,
        register: Option<Register>,
        message: Message,
        signaled: bool,
    ) -> Result {
        self.post_within(&rcu::read_lock(), register, message, signaled)
    }

    /// As [`Self::post_send`], in a read-side section of the caller.
    #[inline(always)]
    pub fn post_within(
        &self,
        section: &rcu::Guard,
        register: Option<Register>,
        message: Message,
        signaled: bool,
    ) -> Result {
        self.post(section, register, message, signaled, &self.send_cqe)
    }

    /// Posts `message` and reports by [`Handler::control_sent`] that its memory is free again.
    ///
    /// # Errors
    ///
    /// As for [`Self::post_send`].
    pub fn post_control(&self, message: Message) -> Result {
        self.post(&rcu::read_lock(), None, message, true, &self.control_cqe)
    }

    /// Posts `message` and reports by [`Handler::last_sent`] that it has been sent.
    ///
    /// # Errors
    ///
    /// As for [`Self::post_send`].
    pub fn post_last(&self, message: Message) -> Result {
        self.post(&rcu::read_lock(), None, message, true, &self.last_cqe)
    }

    #[inline(always)]
    fn post(
        &self,
        section: &rcu::Guard,
        register: Option<Register>,
        message: Message,
        signaled: bool,
        cqe: &bindings::ib_cqe,
    ) -> Result {
        if message.pool != self.messages.id() {
            return Err(EINVAL);
        }
        let sge = |addr, length| bindings::ib_sge {
            addr,
            length,
            lkey: self.lkey,
        };
        let mut sges = [
            sge(message.addr, message.len),
            bindings::ib_sge::default(), //
        ];
        let mut count = 1;
        if let Some(part) = &message.part {
            if part.pool != self.bounce_id {
                return Err(EINVAL);
            }
            sges[1] = sge(part.addr, part.len);
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

        let live = self.live(section)?;
        let mut chain = REGISTRATIONS;
        let mut first: *const bindings::ib_send_wr = &send;
        if let Some(register) = register {
            first = self.registrations(&live, &mut chain, &register, first)?;
        }
        // The chain ends with `send`; it names only what this object has.
        self.post_chain(&live, first)
    }

    /// The requests that make a registration, in `chain`, with `last` after them; the first one.
    #[inline(always)]
    fn registrations(
        &self,
        live: &Live<'_>,
        chain: &mut Registrations,
        register: &Register,
        last: *const bindings::ib_send_wr,
    ) -> Result<*const bindings::ib_send_wr> {
        let (region, others) = self.regions.of_register(register)?;
        let [place, places @ ..] = chain;
        let mut first = self.registration(live, place, region, register.access, last);
        // Their order does not matter.
        for (place, region) in places.iter_mut().zip(others) {
            first = self.registration(live, place, region, register.access, first);
        }
        Ok(first)
    }

    #[inline(always)]
    fn registration(
        &self,
        live: &Live<'_>,
        place: &mut MaybeUninit<bindings::ib_reg_wr>,
        region: &Region,
        access: i32,
        next: *const bindings::ib_send_wr,
    ) -> *const bindings::ib_send_wr {
        let mut wr = request(bindings::ib_wr_opcode_IB_WR_REG_MR, 0, &self.send_cqe);
        wr.next = next.cast_mut();
        let wr = place.write(bindings::ib_reg_wr {
            wr,
            mr: region.mr(live),
            key: region.key(live),
            access,
        });
        &wr.wr
    }

    /// Posts a registration alone.
    #[cfg(SRP_BENCH)]
    pub fn post_register(&self, register: Register) -> Result {
        let section = rcu::read_lock();
        let live = self.live(&section)?;
        let mut chain = REGISTRATIONS;
        let first = self.registrations(&live, &mut chain, &register, core::ptr::null())?;
        self.post_chain(&live, first)
    }

    /// Posts the invalidation of all regions of `handle` that the peer may reach; the last one
    /// reports by [`Handler::invalidated`]. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// What the device driver says.
    #[inline(always)]
    pub fn post_invalidate(&self, handle: usize) -> Result<bool> {
        let cqe = self.invalidate_cqes.get(handle).ok_or(EINVAL)?;
        let section = rcu::read_lock();
        let live = self.live(&section)?;
        let Some((region, others)) = self.regions.reachable_of(handle) else {
            return Ok(false);
        };
        // Built from the last to the first.
        let mut last = invalidation(&live, region, cqe);
        last.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        let mut chain = [const { MaybeUninit::<bindings::ib_send_wr>::uninit() }; MAX_PER_HANDLE];
        let mut first: *const bindings::ib_send_wr = &last;
        for (place, region) in chain.iter_mut().zip(others) {
            let mut wr = invalidation(&live, region, &self.send_cqe);
            wr.next = first.cast_mut();
            first = place.write(wr);
        }
        self.post_chain(&live, first)?;
        Ok(true)
    }

    /// Posts a chain whose completions, memory and regions are those of this object.
    #[inline(always)]
    fn post_chain(&self, live: &Live<'_>, first: *const bindings::ib_send_wr) -> Result {
        let mut bad = core::ptr::null();
        // SAFETY: By the invariant of `Live` the queue pair is valid. What the chain names lives as long
        // as this object, which drains before it goes, or are regions that `live` keeps until they are
        // posted.
        posted(unsafe { bindings::srp_helper_ib_post_send(live.qp, first, &mut bad) })
    }

    /// The queue pair in this read-side section.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if there is none.
    #[inline(always)]
    fn live<'a>(&self, _section: &'a rcu::Guard) -> Result<Live<'a>> {
        let qp = self.qp.load(Acquire);
        if qp.is_null() {
            return Err(ENOTCONN);
        }
        // INVARIANT: By the type invariant of `Qp` it is destroyed a grace period after it was cleared, and
        // regions are replaced only after that and before the next one is stored, with `Release`.
        Ok(Live {
            qp,
            section: PhantomData,
        })
    }

    /// Posts up to [`RECEIVE_BATCH`] receives with one doorbell.
    pub(super) fn post_receives(&self, list: &[*const Receive]) -> Result {
        let mut sges = [const { MaybeUninit::<bindings::ib_sge>::uninit() }; RECEIVE_BATCH];
        let mut chain = [const { MaybeUninit::<bindings::ib_recv_wr>::uninit() }; RECEIVE_BATCH];
        let mut first: *mut bindings::ib_recv_wr = null_mut();
        for ((receive, sge), place) in list.iter().zip(&mut sges).zip(&mut chain).rev() {
            // SAFETY: The list names elements of `self.receives`, which does not change.
            let receive = unsafe { &**receive };
            let sge = sge.write(bindings::ib_sge {
                addr: receive.chunk.addr(),
                length: receive.chunk.size() as u32,
                lkey: self.lkey,
            });
            let mut wr = bindings::ib_recv_wr {
                next: first,
                sg_list: sge,
                num_sge: 1,
                ..Default::default()
            };
            set_receive_cookie(&mut wr, &receive.cqe);
            first = place.write(wr);
        }
        if first.is_null() {
            return Ok(());
        }
        let section = rcu::read_lock();
        let live = self.live(&section)?;
        let mut bad = core::ptr::null();
        // SAFETY: By the invariant of `Live` the queue pair is valid; the receives and their memory live
        // as long as this object, which drains before it goes.
        posted(unsafe { bindings::srp_helper_ib_post_recv(live.qp, first, &mut bad) })
    }
}
