// SPDX-License-Identifier: GPL-2.0

//! Work completions.

use crate::bindings;
use core::ptr;

/// The outcome of a request: `enum ib_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(bindings::ib_wc_status);

macro_rules! statuses {
    ($($name:ident = $raw:ident, $text:literal;)*) => {
        #[allow(missing_docs)]
        impl Status {
            $(pub const $name: Self = Self(bindings::$raw);)*

            /// The status with this name; the names follow `ib_wc_status_msg()`.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = ib_wc_status_IB_WC_SUCCESS, "success";
    LOC_LEN_ERR = ib_wc_status_IB_WC_LOC_LEN_ERR, "local-length";
    LOC_QP_OP_ERR = ib_wc_status_IB_WC_LOC_QP_OP_ERR, "local-operation";
    LOC_PROT_ERR = ib_wc_status_IB_WC_LOC_PROT_ERR, "local-protection";
    WR_FLUSH_ERR = ib_wc_status_IB_WC_WR_FLUSH_ERR, "flushed";
    MW_BIND_ERR = ib_wc_status_IB_WC_MW_BIND_ERR, "bind";
    BAD_RESP_ERR = ib_wc_status_IB_WC_BAD_RESP_ERR, "bad-response";
    LOC_ACCESS_ERR = ib_wc_status_IB_WC_LOC_ACCESS_ERR, "local-access";
    REM_INV_REQ_ERR = ib_wc_status_IB_WC_REM_INV_REQ_ERR, "remote-invalid-request";
    REM_ACCESS_ERR = ib_wc_status_IB_WC_REM_ACCESS_ERR, "remote-access";
    REM_OP_ERR = ib_wc_status_IB_WC_REM_OP_ERR, "remote-operation";
    RETRY_EXC_ERR = ib_wc_status_IB_WC_RETRY_EXC_ERR, "retries";
    RNR_RETRY_EXC_ERR = ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR, "rnr-retries";
    REM_ABORT_ERR = ib_wc_status_IB_WC_REM_ABORT_ERR, "remote-abort";
    FATAL_ERR = ib_wc_status_IB_WC_FATAL_ERR, "fatal";
    RESP_TIMEOUT_ERR = ib_wc_status_IB_WC_RESP_TIMEOUT_ERR, "response-timeout";
    GENERAL_ERR = ib_wc_status_IB_WC_GENERAL_ERR, "general";
}

/// The completed operation: `enum ib_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opcode(bindings::ib_wc_opcode);

#[allow(missing_docs)]
impl Opcode {
    pub const SEND: Self = Self(bindings::ib_wc_opcode_IB_WC_SEND);
    pub const RDMA_WRITE: Self = Self(bindings::ib_wc_opcode_IB_WC_RDMA_WRITE);
    pub const RDMA_READ: Self = Self(bindings::ib_wc_opcode_IB_WC_RDMA_READ);
    pub const LOCAL_INV: Self = Self(bindings::ib_wc_opcode_IB_WC_LOCAL_INV);
    pub const REG_MR: Self = Self(bindings::ib_wc_opcode_IB_WC_REG_MR);
    pub const RECV: Self = Self(bindings::ib_wc_opcode_IB_WC_RECV);
    pub const RECV_RDMA_WITH_IMM: Self = Self(bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM);
}

/// The queue pair that a completion names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QpName(pub(super) *mut bindings::ib_qp);

// SAFETY: The pointer only identifies the queue pair, and is never dereferenced.
unsafe impl Send for QpName {}
// SAFETY: The pointer only identifies the queue pair, and is never dereferenced.
unsafe impl Sync for QpName {}

/// A work completion: `struct ib_wc`.
#[repr(transparent)]
pub struct Wc(bindings::ib_wc);

// SAFETY: Its pointer to a queue pair is only a name.
unsafe impl Send for Wc {}

impl Wc {
    /// The completion of request `id`.
    #[inline]
    pub fn new(id: u64, qp: QpName, opcode: Opcode, status: Status) -> Self {
        let mut wc = bindings::ib_wc {
            status: status.0,
            opcode: opcode.0,
            qp: qp.0,
            ..Default::default()
        };
        let place = (&raw mut wc.__bindgen_anon_1).cast::<u64>();
        // SAFETY: The union has room for a `u64`.
        unsafe { place.write(id) };
        Self(wc)
    }

    /// Returns a copy.
    #[inline]
    pub fn copy(&self) -> Self {
        // SAFETY: A `Wc` is plain data that owns nothing.
        unsafe { ptr::read(self) }
    }

    /// A zeroed completion.
    pub fn empty() -> Self {
        Self(Default::default())
    }

    /// The queue pair.
    pub fn qp(&self) -> QpName {
        QpName(self.0.qp)
    }

    /// The status.
    pub fn status(&self) -> Status {
        Status(self.0.status)
    }

    /// Replaces the status.
    pub fn set_status(&mut self, status: Status) {
        self.0.status = status.0;
    }

    /// Adds the length of the received data.
    #[inline]
    pub fn bytes(mut self, n: u32) -> Self {
        self.0.byte_len = n;
        self
    }

    /// Adds immediate data, in network byte order.
    #[inline]
    pub fn imm(mut self, imm: u32) -> Self {
        self.0.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM as i32;
        let place = (&raw mut self.0.ex).cast::<u32>();
        // SAFETY: The union has room for a `u32`.
        unsafe { place.write(imm) };
        self
    }

    /// Adds the key that the message invalidated.
    #[inline]
    pub fn invalidated(mut self, key: u32) -> Self {
        self.0.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as i32;
        let place = (&raw mut self.0.ex).cast::<u32>();
        // SAFETY: The union has room for a `u32`.
        unsafe { place.write(key) };
        self
    }

    /// Adds the source of a datagram.
    pub fn from(mut self, from: Source) -> Self {
        self.0.src_qp = from.qp;
        self.0.slid = u32::from(from.lid);
        self.0.sl = from.sl;
        self.0.pkey_index = from.pkey_index;
        self.0.port_num = from.port;
        if from.grh {
            self.0.wc_flags |= bindings::ib_wc_flags_IB_WC_GRH as i32;
        }
        self
    }
}

/// The source of a datagram.
#[derive(Clone, Copy, Default)]
pub struct Source {
    /// The queue pair.
    pub qp: u32,
    /// The LID of the port.
    pub lid: u16,
    /// The service level.
    pub sl: u8,
    /// Index of the P_Key in the receiver's table.
    pub pkey_index: u16,
    /// The port that received the datagram.
    pub port: u32,
    /// Whether the datagram has a global route header.
    pub grh: bool,
}

/// Room for polled completions.
pub struct Room<'a>(pub(super) &'a mut [Wc]);

impl Room<'_> {
    /// Number of completions that fit.
    #[inline]
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// Stores a completion at an index.
    #[inline]
    pub fn put(&mut self, at: usize, wc: &Wc) {
        if let Some(place) = self.0.get_mut(at) {
            *place = wc.copy();
        }
    }
}

impl Status {
    /// The number in `enum ib_wc_status`.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The status with this number.
    pub fn numbered(number: u32) -> Self {
        Self(number)
    }
}
