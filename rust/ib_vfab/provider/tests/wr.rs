// SPDX-License-Identifier: GPL-2.0

//! Send requests.

use crate::bindings;

#[derive(Clone, Copy)]
pub(crate) enum Request {
    Send,
    SendImm(u32),
    SendInv(u32),
    Write(u64, u32),
    WriteImm(u64, u32, u32),
    Read(u64, u32),
    Reg(u32, u32),
    Inv(u32),
}

/// Storage for any request.
#[derive(Default)]
#[repr(C)]
pub(super) struct Wr {
    rdma: bindings::ib_rdma_wr,
    _reg: bindings::ib_reg_wr,
}

impl Wr {
    pub(super) fn raw(&mut self) -> &mut bindings::ib_send_wr {
        &mut self.rdma.wr
    }

    pub(super) fn fill(&mut self, request: Request, mr: *mut bindings::ib_mr) {
        let (opcode, ex) = match request {
            Request::Send => (bindings::ib_wr_opcode_IB_WR_SEND, 0),
            Request::SendImm(imm) => (bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM, imm),
            Request::SendInv(key) => (bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV, key),
            Request::Write(addr, key) => {
                (self.rdma.remote_addr, self.rdma.rkey) = (addr, key);
                (bindings::ib_wr_opcode_IB_WR_RDMA_WRITE, 0)
            }
            Request::WriteImm(addr, key, imm) => {
                (self.rdma.remote_addr, self.rdma.rkey) = (addr, key);
                (bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM, imm)
            }
            Request::Read(addr, key) => {
                (self.rdma.remote_addr, self.rdma.rkey) = (addr, key);
                (bindings::ib_wr_opcode_IB_WR_RDMA_READ, 0)
            }
            Request::Reg(key, access) => {
                // A registration overlays `rdma`, as both start with the `ib_send_wr`.
                let reg: *mut bindings::ib_reg_wr = (&raw mut *self).cast();
                // SAFETY: `Wr` has room for an `ib_reg_wr`, as it has one.
                let reg = unsafe { &mut *reg };
                reg.mr = mr;
                reg.key = key;
                reg.access = access as i32;
                (bindings::ib_wr_opcode_IB_WR_REG_MR, 0)
            }
            Request::Inv(key) => (bindings::ib_wr_opcode_IB_WR_LOCAL_INV, key),
        };
        let raw = self.raw();
        raw.opcode = opcode;
        let place = (&raw mut raw.ex).cast::<u32>();
        // SAFETY: The union has room for a `u32`.
        unsafe { place.write(ex) };
    }
}
