// SPDX-License-Identifier: GPL-2.0

//! Posted work requests.
//!
//! The requests are valid until the call that posts them returns.

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

/// A scatter/gather entry: `struct ib_sge`.
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
    /// Creates an entry.
    #[inline]
    pub fn new(addr: u64, key: u32, len: u32) -> Self {
        Self { addr, len, key }
    }

    /// The address: a DMA address with the key of all memory, otherwise an address in the region.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The length in bytes.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.len
    }
}

/// # Safety
///
/// `list` has `count` entries, which live for `'a`.
#[inline]
unsafe fn pieces<'a>(list: *const bindings::ib_sge, count: i32) -> Result<&'a [Sge]> {
    let count = usize::try_from(count).map_err(|_| EINVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: `list` has `count` entries; an `Sge` has the layout of `struct ib_sge`.
    Ok(unsafe { slice::from_raw_parts(list.cast(), count) })
}

/// A send request of a device with regions `M`.
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

/// The operation of a request.
pub enum Work<'a, M> {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendWithImm(u32),
    /// SEND with invalidate: a key of the peer.
    SendWithInv(u32),
    /// RDMA WRITE: address and rkey of the peer's memory.
    Write(u64, u32),
    /// RDMA WRITE with immediate: address, rkey, immediate data.
    WriteWithImm(u64, u32, u32),
    /// RDMA READ: address and rkey of the peer's memory.
    Read(u64, u32),
    /// REG_MR: the region, its key, its rights, and the address of its first byte.
    RegMr(&'a Arc<M>, u32, u32, u64),
    /// LOCAL_INV: the key to invalidate.
    LocalInv(u32),
}

/// The destination of a datagram.
#[derive(Clone, Copy, Default)]
pub struct Datagram {
    /// The path to the port.
    pub address: Address,
    /// The queue pair.
    pub qp: u32,
    /// The Q_Key of that queue pair.
    pub qkey: u32,
    /// Index of the P_Key in the sender's table.
    pub pkey_index: u16,
}

/// Request a completion.
// CAST: A bit.
pub const SIGNALED: u32 = bindings::ib_send_flags_IB_SEND_SIGNALED as u32;
/// Request an interrupt at the receiver.
// CAST: A bit.
pub const SOLICITED: u32 = bindings::ib_send_flags_IB_SEND_SOLICITED as u32;
/// Copy the data while posting.
// CAST: A bit.
pub const INLINE: u32 = bindings::ib_send_flags_IB_SEND_INLINE as u32;

impl<'a, M> SendWr<'a, M> {
    /// # Safety
    ///
    /// `raw` is null, or the request and all that follow it are valid for `'a`, as the verbs
    /// require.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *const bindings::ib_send_wr) -> Option<Self> {
        // SAFETY: `raw` is null or valid for `'a`.
        unsafe { raw.as_ref() }.map(|raw| Self {
            raw,
            _region: PhantomData,
        })
    }

    pub(super) fn as_raw(&self) -> *const bindings::ib_send_wr {
        self.raw
    }

    /// The next request of the chain.
    #[inline]
    pub fn next(&self) -> Option<Self> {
        // SAFETY: The chain is valid for `'a`.
        unsafe { Self::from_raw(self.raw.next) }
    }

    /// The ID for the completion of this request.
    #[inline]
    pub fn id(&self) -> u64 {
        // SAFETY: The union holds a number or a pointer, read as a number.
        unsafe { *(&raw const self.raw.__bindgen_anon_1).cast::<u64>() }
    }

    /// Flags: [`SIGNALED`] and so on.
    #[inline]
    pub fn flags(&self) -> u32 {
        // CAST: A set of bits.
        self.raw.send_flags as u32
    }

    /// The scatter/gather entries.
    ///
    /// # Errors
    ///
    /// `EINVAL` if their count is negative.
    #[inline]
    pub fn sges(&self) -> Result<&'a [Sge]> {
        // SAFETY: `sg_list` of a valid request has `num_sge` entries.
        unsafe { pieces(self.raw.sg_list, self.raw.num_sge) }
    }

    fn ex(&self) -> u32 {
        // SAFETY: The union holds one of two numbers of this size.
        unsafe { *(&raw const self.raw.ex).cast::<u32>() }
    }

    fn remote(&self) -> (u64, u32) {
        let wr: *const bindings::ib_rdma_wr = (&raw const *self.raw).cast();
        // SAFETY: Only called for RDMA requests, which are the first field of an `ib_rdma_wr`.
        let wr = unsafe { &*wr };
        (wr.remote_addr, wr.rkey)
    }

    /// The operation.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the operation is unknown.
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
                // SAFETY: A REG_MR request is the first field of an `ib_reg_wr`.
                let wr = unsafe { &*wr };
                // SAFETY: The region is valid until its registration has completed, and belongs to
                // this device.
                let mr = unsafe { object::mr::<M>(wr.mr) }.ok_or(EINVAL)?;
                // SAFETY: The region is valid, and `wr.mr` is not null.
                let iova = unsafe { (*wr.mr).iova };
                // CAST: A set of bits.
                Work::RegMr(mr, wr.key, wr.access as u32, iova)
            }
            _ => return Err(EOPNOTSUPP),
        })
    }

    /// The destination, for a queue pair of datagrams.
    ///
    /// # Errors
    ///
    /// `EINVAL` without an address handle.
    pub fn datagram(&self, datagrams: &Datagrams) -> Result<Datagram> {
        let Datagrams(()) = datagrams;
        let wr: *const bindings::ib_ud_wr = (&raw const *self.raw).cast();
        // SAFETY: Each request on a queue pair of datagrams is the first field of an `ib_ud_wr`.
        let wr = unsafe { &*wr };
        if wr.ah.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The handle is valid, and belongs to this device.
        let address = unsafe { object::address(wr.ah) };
        Ok(Datagram {
            address,
            qp: wr.remote_qpn,
            qkey: wr.remote_qkey,
            pkey_index: wr.pkey_index,
        })
    }
}

/// Proof that a queue pair carries datagrams: its type is UD, GSI or SMI.
pub struct Datagrams(pub(super) ());

/// A receive request.
#[derive(Clone, Copy)]
pub struct RecvWr<'a>(&'a bindings::ib_recv_wr);

impl<'a> RecvWr<'a> {
    /// # Safety
    ///
    /// `raw` is null, or the request and all that follow it are valid for `'a`, as the verbs
    /// require.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *const bindings::ib_recv_wr) -> Option<Self> {
        // SAFETY: `raw` is null or valid for `'a`.
        unsafe { raw.as_ref() }.map(Self)
    }

    pub(super) fn as_raw(&self) -> *const bindings::ib_recv_wr {
        self.0
    }

    /// The next request of the chain.
    #[inline]
    pub fn next(&self) -> Option<Self> {
        // SAFETY: The chain is valid for `'a`.
        unsafe { Self::from_raw(self.0.next) }
    }

    /// The ID for the completion of this request.
    #[inline]
    pub fn id(&self) -> u64 {
        // SAFETY: The union holds a number or a pointer, read as a number.
        unsafe { *(&raw const self.0.__bindgen_anon_1).cast::<u64>() }
    }

    /// The scatter/gather entries.
    ///
    /// # Errors
    ///
    /// `EINVAL` if their count is negative.
    #[inline]
    pub fn sges(&self) -> Result<&'a [Sge]> {
        // SAFETY: `sg_list` of a valid request has `num_sge` entries.
        unsafe { pieces(self.0.sg_list, self.0.num_sge) }
    }
}
