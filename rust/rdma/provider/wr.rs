// SPDX-License-Identifier: GPL-2.0

//! Posted work requests.
//!
//! They are valid until the call that posts them returns.

use super::{
    attr::Address,
    object, //
};
use crate::{
    bindings,
    errno::EOPNOTSUPP, //
};
use core::{
    marker::PhantomData,
    mem::offset_of,
    slice, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A piece of memory: `struct ib_sge`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sge {
    addr: u64,
    len: u32,
    key: u32,
}

const _: () = {
    assert!(size_of::<Sge>() == size_of::<bindings::ib_sge>());
    assert!(offset_of!(Sge, len) == offset_of!(bindings::ib_sge, length));
    assert!(offset_of!(Sge, key) == offset_of!(bindings::ib_sge, lkey));
};

impl Sge {
    /// A piece by its parts.
    #[inline]
    pub fn new(addr: u64, key: u32, len: u32) -> Self {
        Self { addr, len, key }
    }

    /// The address: of DMA with the key for all memory, else of the region.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Bytes.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.len
    }
}

/// # Safety
///
/// There are `count` pieces at `list`, which live for `'a`.
#[inline]
unsafe fn pieces<'a>(list: *const bindings::ib_sge, count: i32) -> Result<&'a [Sge]> {
    let count = usize::try_from(count).map_err(|_| EINVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: By this function's contract; an `Sge` is laid out as what it wraps.
    Ok(unsafe { slice::from_raw_parts(list.cast(), count) })
}

/// A request of a send queue of a device with such regions.
pub struct SendWr<'a, M> {
    raw: &'a bindings::ib_send_wr,
    _region: PhantomData<M>,
}

impl<M> Clone for SendWr<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for SendWr<'_, M> {}

/// What a request is to do.
pub enum Work<'a, M> {
    /// A message.
    Send,
    /// A message, and a number.
    SendWithImm(u32),
    /// A message that invalidates a key of the peer's.
    SendWithInv(u32),
    /// To the peer's memory, with its address and key.
    Write(u64, u32),
    /// To the peer's memory, and a number.
    WriteWithImm(u64, u32, u32),
    /// From the peer's memory, with its address and key.
    Read(u64, u32),
    /// A region gets a key and rights, and its first byte this address.
    RegMr(&'a Arc<M>, u32, u32, u64),
    /// A key is not valid any more.
    LocalInv(u32),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Default)]
pub struct Datagram {
    /// The port, and the way to it.
    pub address: Address,
    /// The queue pair.
    pub qp: u32,
    /// The key that it must have.
    pub qkey: u32,
    /// The partition, as an index of the sender's table.
    pub pkey_index: u16,
}

/// There is to be a completion.
// CAST: A bit.
pub const SIGNALED: u32 = bindings::ib_send_flags_IB_SEND_SIGNALED as u32;
/// The receiver is to be interrupted.
// CAST: A bit.
pub const SOLICITED: u32 = bindings::ib_send_flags_IB_SEND_SOLICITED as u32;
/// The data is to be taken while the request is posted.
// CAST: A bit.
pub const INLINE: u32 = bindings::ib_send_flags_IB_SEND_INLINE as u32;

impl<'a, M> SendWr<'a, M> {
    /// # Safety
    ///
    /// The request, and all that follow it, are valid for `'a`, as the verbs have it.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *const bindings::ib_send_wr) -> Option<Self> {
        // SAFETY: By this function's contract.
        unsafe { raw.as_ref() }.map(|raw| Self {
            raw,
            _region: PhantomData,
        })
    }

    pub(super) fn as_raw(&self) -> *const bindings::ib_send_wr {
        self.raw
    }

    /// The next of the chain.
    #[inline]
    pub fn next(&self) -> Option<Self> {
        // SAFETY: The chain is valid for `'a`.
        unsafe { Self::from_raw(self.raw.next) }
    }

    /// The number that its completion has.
    #[inline]
    pub fn id(&self) -> u64 {
        // SAFETY: The union holds a number or a pointer, which is one here.
        unsafe { *(&raw const self.raw.__bindgen_anon_1).cast::<u64>() }
    }

    /// Flags: [`SIGNALED`] and so on.
    #[inline]
    pub fn flags(&self) -> u32 {
        // CAST: A set of bits.
        self.raw.send_flags as u32
    }

    /// The memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` if their number is negative.
    #[inline]
    pub fn sges(&self) -> Result<&'a [Sge]> {
        // SAFETY: A valid request has as many as it says.
        unsafe { pieces(self.raw.sg_list, self.raw.num_sge) }
    }

    fn ex(&self) -> u32 {
        // SAFETY: The union holds one of two numbers of this size.
        unsafe { *(&raw const self.raw.ex).cast::<u32>() }
    }

    fn remote(&self) -> (u64, u32) {
        let wr: *const bindings::ib_rdma_wr = (&raw const *self.raw).cast();
        // SAFETY: It is the first field of this, as only requests of this kind are asked.
        let wr = unsafe { &*wr };
        (wr.remote_addr, wr.rkey)
    }

    /// What it is to do.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if that is nothing known.
    #[inline]
    pub fn work(&self) -> Result<Work<'a, M>> {
        Ok(match self.raw.opcode {
            bindings::ib_wr_opcode_IB_WR_SEND => Work::Send,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => Work::SendWithImm(self.ex()),
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => Work::SendWithInv(self.ex()),
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE => {
                let (addr, key) = self.remote();
                Work::Write(addr, key)
            }
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM => {
                let (addr, key) = self.remote();
                Work::WriteWithImm(addr, key, self.ex())
            }
            bindings::ib_wr_opcode_IB_WR_RDMA_READ => {
                let (addr, key) = self.remote();
                Work::Read(addr, key)
            }
            bindings::ib_wr_opcode_IB_WR_LOCAL_INV => Work::LocalInv(self.ex()),
            bindings::ib_wr_opcode_IB_WR_REG_MR => {
                let wr: *const bindings::ib_reg_wr = (&raw const *self.raw).cast();
                // SAFETY: It is the first field of this.
                let wr = unsafe { &*wr };
                // SAFETY: The region is valid until its registration has completed, and one of this device.
                let mr = unsafe { object::mr::<M>(wr.mr) }.ok_or(EINVAL)?;
                // SAFETY: As above; it is not null.
                let iova = unsafe { (*wr.mr).iova };
                // CAST: A set of bits.
                Work::RegMr(mr, wr.key, wr.access as u32, iova)
            }
            _ => return Err(EOPNOTSUPP),
        })
    }

    /// Where it goes. Only asked of a request for a queue pair of datagrams.
    ///
    /// # Errors
    ///
    /// `EINVAL` without an address handle.
    pub fn datagram(&self, datagrams: &Datagrams) -> Result<Datagram> {
        let Datagrams(()) = datagrams;
        let wr: *const bindings::ib_ud_wr = (&raw const *self.raw).cast();
        // SAFETY: It is the first field of this, as the queue pair has no other requests.
        let wr = unsafe { &*wr };
        if wr.ah.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The handle is valid, and one of this device.
        let address = unsafe { object::address(wr.ah) };
        Ok(Datagram {
            address,
            qp: wr.remote_qpn,
            qkey: wr.remote_qkey,
            pkey_index: wr.pkey_index,
        })
    }
}

/// Says that a queue pair is one of datagrams: UD, GSI or SMI.
pub struct Datagrams(pub(super) ());

/// A request of a receive queue.
#[derive(Clone, Copy)]
pub struct RecvWr<'a>(&'a bindings::ib_recv_wr);

impl<'a> RecvWr<'a> {
    /// # Safety
    ///
    /// The request, and all that follow it, are valid for `'a`, as the verbs have it.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *const bindings::ib_recv_wr) -> Option<Self> {
        // SAFETY: By this function's contract.
        unsafe { raw.as_ref() }.map(Self)
    }

    pub(super) fn as_raw(&self) -> *const bindings::ib_recv_wr {
        self.0
    }

    /// The next of the chain.
    #[inline]
    pub fn next(&self) -> Option<Self> {
        // SAFETY: The chain is valid for `'a`.
        unsafe { Self::from_raw(self.0.next) }
    }

    /// The number that its completion has.
    #[inline]
    pub fn id(&self) -> u64 {
        // SAFETY: The union holds a number or a pointer, which is one here.
        unsafe { *(&raw const self.0.__bindgen_anon_1).cast::<u64>() }
    }

    /// The memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` if their number is negative.
    #[inline]
    pub fn sges(&self) -> Result<&'a [Sge]> {
        // SAFETY: A valid request has as many as it says.
        unsafe { pieces(self.0.sg_list, self.0.num_sge) }
    }
}
