// SPDX-License-Identifier: GPL-2.0

//! Conformance: what the verbs promise, each operation, each refused access, on two adapters of the test's own.

use super::{
    fabric::{
        Fabric,
        PortId, //
    },
    fault::Order,
    hca::{
        Attached,
        Hca, //
    },
    manager,
    qp::net::{
        Net,
        Running, //
    },
};
use crate::{
    bindings,
    rdma::provider::{
        dma::DmaDevice,
        tests::{
            within,
            Completion,
            How,
            Request,
            User,
            ALL,
            DEPTH,
            LOCAL,
            MEMORY,
            PAGES,
            READ,
            USUAL,
            WRITE, //
        },
        wc::Status,
        Registration, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// Ends the test with an error, but in an orderly way.
macro_rules! check {
    ($condition:expr) => {
        if !$condition {
            pr_err!(
                "{}:{}: not true: {}\n",
                file!(),
                line!(),
                stringify!($condition)
            );
            return Err(EINVAL);
        }
    };
}

/// [`check`] that two values are the same.
macro_rules! check_eq {
    ($left:expr, $right:expr) => {
        let (left, right) = (&$left, &$right);
        if left != right {
            pr_err!(
                "{}:{}: {} is {:?}, not {:?}\n",
                file!(),
                line!(),
                stringify!($left),
                left,
                right
            );
            return Err(EINVAL);
        }
    };
}

mod process;

/// Two adapters on a subnet, and a user of each, whose queue pairs are connected.
struct Rig {
    a: User,
    b: User,
    registrations: [Registration<Hca>; 2],
    hcas: [Attached; 2],
    net: Running,
}

/// [`User::new`], or another one of them.
type MakeUser = fn(&Registration<Hca>, bindings::ib_qp_type, u32) -> Result<User>;

const PSN: (u32, u32) = (0xff_fffe, 7);
const FIRST: PortId = PortId { ca: 0, port: 1 };

impl Rig {
    fn of(kind: bindings::ib_qp_type, size: u32) -> Result<Self> {
        Self::made(kind, size, User::new)
    }

    fn made(kind: bindings::ib_qp_type, size: u32, user: MakeUser) -> Result<Self> {
        let net = Net::run(Fabric::new(2, 1)?)?;
        manager::activate(&net.fabric)?;
        let adapter = |n: u8, name: &CStr| -> Result<(Attached, Registration<Hca>)> {
            let dma = DmaDevice::new(c"ib_vfab_test", n.into(), 64)?;
            let hca = Hca::attached(n, 1, true, dma, net.clone())?;
            let guid = Fabric::guid(n);
            let registration = Registration::new(hca.clone(), name, guid, 1, hca.dma())?;
            Ok((hca, registration))
        };
        let (one, first) = adapter(0, c"vfabtest0")?;
        let (two, second) = adapter(1, c"vfabtest1")?;
        Ok(Self {
            a: user(&first, kind, size)?,
            b: user(&second, kind, size)?,
            registrations: [first, second],
            hcas: [one, two],
            net,
        })
    }

    fn with(how: &How) -> Result<Self> {
        let this = Self::of(bindings::ib_qp_type_IB_QPT_RC, 64)?;
        this.connect(how)?;
        Ok(this)
    }

    fn new() -> Result<Self> {
        Self::with(&USUAL)
    }

    fn connect(&self, how: &How) -> Result {
        for (user, dlid, peer, psn) in [
            (&self.a, 2, &self.b, PSN),
            (&self.b, 1, &self.a, (PSN.1, PSN.0)),
        ] {
            user.init(how.access)?;
            user.rtr(dlid, peer.num(), psn.1, how)?;
            user.rts(psn.0, how)?;
        }
        Ok(())
    }

    /// Resets both and connects them again.
    fn again(&mut self, how: &How) -> Result {
        self.a.reset()?;
        self.b.reset()?;
        self.connect(how)
    }

    /// Has the region of `b` be pages 1 to 3 of its memory, without the first 100 bytes, and with these rights.
    fn lend(&mut self, access: u32) -> Result<(u64, u32, usize)> {
        let at = PAGE_SIZE + 100;
        let len = 3 * PAGE_SIZE - 100;
        check_eq!(self.b.describe(&[(at, len)])?, 1);
        let key = self.b.key() & !0xff | 0x5a;
        self.b.post(90, Request::Reg(key, access), &[])?;
        check_eq!(self.b.wait()?.status, Status::SUCCESS);
        Ok((self.b.iova(), key, len))
    }

    fn order(&self, text: &str) -> Result {
        self.hcas[0].faults().order(Order::parse(text)?);
        Ok(())
    }
}

fn pattern(bytes: &mut [u8], seed: usize) {
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = (n * 7 + seed + n / 251) as u8;
    }
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a == b
}

/// A send of `len` bytes arrives, and both sides have their completion.
fn exchange(rig: &mut Rig, id: u64, len: usize) -> Result {
    let (a, b) = (rig.a.lkey(), rig.b.lkey());
    pattern(&mut rig.a.bytes()[..len], id as usize);
    rig.b.recv(id, &[(0, len, b)])?;
    rig.a.post(id, Request::Send, &[(0, len, a)])?;
    check_eq!(rig.a.wait()?.status, Status::SUCCESS);
    let wc = rig.b.wait()?;
    check_eq!(
        (wc.id, wc.status, wc.bytes),
        (id, Status::SUCCESS, len as u32)
    );
    check!(same(&rig.a.bytes()[..len], &rig.b.bytes()[..len]));
    Ok(())
}

fn refused(wc: Completion, status: Status) -> Result {
    check_eq!(wc.status, status);
    Ok(())
}

#[kunit_tests(vfab)]
mod cases {
    use super::*;

    #[test]
    fn sends() -> Result {
        let mut rig = Rig::new()?;
        for (n, len) in [0, 1, 64, 4096, 12345, MEMORY].into_iter().enumerate() {
            exchange(&mut rig, n as u64, len)?;
        }
        // Three pieces to two.
        let (a, b) = (rig.a.lkey(), rig.b.lkey());
        pattern(&mut rig.a.bytes()[..9000], 3);
        rig.b.recv(1, &[(6000, 4001, b), (100, 4999, b)])?;
        let pieces = [(0, 1, a), (1, 5998, a), (5999, 3001, a)];
        rig.a.post(2, Request::SendImm(0x1234_5678), &pieces)?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        let wc = rig.b.wait()?;
        check_eq!((wc.bytes, wc.ex), (9000, 0x1234_5678));
        check!(wc.flags & bindings::ib_wc_flags_IB_WC_WITH_IMM as u32 != 0);
        check_eq!(wc.src_qp, rig.a.num());
        let (head, tail) = (6000, 100);
        for n in 0..9000 {
            let to = if n < 4001 { head + n } else { tail + n - 4001 };
            if rig.a.bytes()[n] != rig.b.bytes()[to] {
                check_eq!(n, usize::MAX);
            }
        }
        Ok(())
    }

    #[test]
    fn interrupts() -> Result {
        let mut rig = Rig::new()?;
        let (a, b) = (rig.a.lkey(), rig.b.lkey());
        let solicited = bindings::ib_send_flags_IB_SEND_SOLICITED as i32;
        check!(!rig.b.arm(false));
        for n in 0..4 {
            rig.b.recv(n, &[(0, 64, b)])?;
        }
        check_eq!(rig.a.send(0, &[Request::Send; 2], &[(0, 64, a)], 0).0, 2);
        within(|| (rig.b.interrupts() > 0).then_some(()))?;
        // Once until it is armed again; an unsignaled request has no completion.
        check_eq!(rig.b.interrupts(), 1);
        check!(rig.a.poll().is_none());
        check!(rig.b.arm(true));
        check_eq!(rig.a.send(0, &[Request::Send], &[(0, 64, a)], 0).0, 1);
        kernel::time::delay::fsleep(Delta::from_millis(20));
        check_eq!(rig.b.interrupts(), 1);
        check_eq!(
            rig.a.send(0, &[Request::Send], &[(0, 64, a)], solicited).0,
            1
        );
        within(|| (rig.b.interrupts() == 2).then_some(()))?;
        for n in 0..4 {
            check_eq!(rig.b.wait()?.id, n);
        }
        exchange(&mut rig, 9, 100)
    }

    #[test]
    fn remote_memory() -> Result {
        let mut rig = Rig::new()?;
        let lkey = rig.a.lkey();
        let (addr, key, len) = rig.lend(ALL)?;
        pattern(&mut rig.a.bytes()[..len], 1);
        rig.a
            .post(1, Request::Write(addr, key), &[(0, len, lkey)])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        let at = PAGE_SIZE + 100;
        let end = at + len;
        let whole: usize = rig.b.bytes()[at..end].iter().map(|b| usize::from(*b)).sum();
        let sent: usize = rig.a.bytes()[..len].iter().map(|b| usize::from(*b)).sum();
        check_eq!(whole, sent);
        check_eq!(rig.b.bytes()[at - 1], 0);
        check_eq!(rig.b.bytes()[end], 0);
        // Back again, to three pieces elsewhere.
        let to = 8 * PAGE_SIZE;
        let pieces = [
            (to, 10, lkey),
            (to + 10, len - 20, lkey),
            (to + len - 10, 10, lkey),
        ];
        rig.a.post(2, Request::Read(addr, key), &pieces)?;
        let wc = rig.a.wait()?;
        check_eq!(wc.status, Status::SUCCESS);
        check_eq!(wc.opcode, bindings::ib_wc_opcode_IB_WC_RDMA_READ);
        for n in 0..len {
            if rig.a.bytes()[n] != rig.a.bytes()[to + n] {
                check_eq!(n, usize::MAX);
            }
        }
        // With a number; and of no bytes, without a valid key.
        let b = rig.b.lkey();
        rig.b.recv(3, &[(0, 8, b)])?;
        rig.a
            .post(4, Request::WriteImm(addr + 5, key, 77), &[(0, 5, lkey)])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        let wc = rig.b.wait()?;
        check_eq!((wc.id, wc.ex, wc.bytes), (3, 77, 5));
        check_eq!(wc.opcode, bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM);
        rig.a.post(5, Request::Write(0, 0), &[])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        Ok(())
    }

    #[test]
    fn pages_in_any_order() -> Result {
        let mut rig = Rig::new()?;
        let lkey = rig.a.lkey();
        // The first ends and the last begins with a page, and they are not neighbours.
        let pieces = [
            (3 * PAGE_SIZE + 1000, PAGE_SIZE - 1000),
            (9 * PAGE_SIZE, PAGE_SIZE),
            (PAGE_SIZE, 500),
        ];
        check_eq!(rig.b.describe(&pieces)?, 3);
        let key = rig.b.key();
        rig.b.post(1, Request::Reg(key, LOCAL | WRITE), &[])?;
        check_eq!(rig.b.wait()?.status, Status::SUCCESS);
        let len = 2 * PAGE_SIZE - 500;
        pattern(&mut rig.a.bytes()[..len], 9);
        rig.a
            .post(2, Request::Write(rig.b.iova(), key), &[(0, len, lkey)])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        let mut n = 0;
        for (at, len) in pieces {
            for m in 0..len {
                if rig.b.bytes()[at + m] != rig.a.bytes()[n + m] {
                    check_eq!((at, m), (0, usize::MAX));
                }
            }
            n += len;
        }
        // A gap in the middle of a page ends what a region can hold.
        check_eq!(rig.b.describe(&[(0, 100), (PAGE_SIZE, 100)])?, 1);
        let too_many: [(usize, usize); 1] = [(0, (PAGES as usize + 1) * PAGE_SIZE)];
        check!(rig.b.describe(&too_many)? < 1);
        Ok(())
    }

    #[test]
    fn access_is_refused() -> Result {
        let mut rig = Rig::new()?;
        let lkey = rig.a.lkey();
        let all_memory = rig.b.lkey();
        let write = |addr, key| Request::Write(addr, key);
        let read = |addr, key| Request::Read(addr, key);
        for case in 0..12 {
            rig.again(&if case == 9 {
                How {
                    access: READ,
                    ..USUAL
                }
            } else if case == 10 {
                How {
                    access: WRITE,
                    ..USUAL
                }
            } else {
                USUAL
            })?;
            let access = match case {
                0 => LOCAL | READ,
                1 => LOCAL | WRITE,
                _ => ALL,
            };
            let (addr, key, len) = rig.lend(access)?;
            let end = addr + len as u64;
            let request = match case {
                0 => write(addr, key),
                1 => read(addr, key),
                2 => write(addr, key ^ 1),
                3 => write(addr, key ^ 0x100),
                4 => read(addr, key.wrapping_add(0x4000_0000)),
                5 => write(end - 31, key),
                6 => write(addr - 1, key),
                7 => read(end, key),
                8 => write(u64::MAX - 3, key),
                9 => write(addr, key),
                10 => read(addr, key),
                _ => write(rig.b.addr(0), all_memory),
            };
            let before: usize = rig.b.bytes().iter().map(|b| usize::from(*b)).sum();
            pattern(&mut rig.a.bytes()[..32], case + 100);
            rig.a.post(1, request, &[(0, 32, lkey)])?;
            refused(rig.a.wait()?, Status::REM_ACCESS_ERR)?;
            let after: usize = rig.b.bytes().iter().map(|b| usize::from(*b)).sum();
            check_eq!(before, after);
            // Both are in error, and the one that was asked is told.
            within(|| (rig.b.queried() == Ok(6)).then_some(()))?;
            check_eq!(rig.a.queried()?, 6);
            let told = 1 << bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR;
            within(|| (rig.b.events() & told != 0).then_some(()))?;
            rig.b.reset()?;
            rig.b.init(ALL)?;
            rig.b.rtr(1, rig.a.num(), 7, &USUAL)?;
            rig.b.rts(7, &USUAL)?;
            rig.b.post(91, Request::Inv(key), &[])?;
            check_eq!(rig.b.wait()?.status, Status::SUCCESS);
        }
        Ok(())
    }

    #[test]
    fn regions() -> Result {
        let mut rig = Rig::new()?;
        let lkey = rig.a.lkey();
        let (addr, key, _) = rig.lend(ALL)?;
        // A key is good as long as it is not invalidated.
        rig.b.post(1, Request::Inv(key), &[])?;
        let wc = rig.b.wait()?;
        check_eq!(wc.opcode, bindings::ib_wc_opcode_IB_WC_LOCAL_INV);
        check_eq!(wc.status, Status::SUCCESS);
        rig.a.post(2, Request::Write(addr, key), &[(0, 8, lkey)])?;
        refused(rig.a.wait()?, Status::REM_ACCESS_ERR)?;
        // What was described since does not count before it is registered.
        rig.again(&USUAL)?;
        let (addr, key, len) = rig.lend(ALL)?;
        check_eq!(rig.b.describe(&[(8 * PAGE_SIZE, 10)])?, 1);
        rig.a
            .post(3, Request::Write(addr, key), &[(0, len, lkey)])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        // The peer's message takes it back.
        let b = rig.b.lkey();
        rig.b.recv(4, &[(0, 8, b)])?;
        rig.a.post(5, Request::SendInv(key), &[(0, 8, lkey)])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        let wc = rig.b.wait()?;
        check!(wc.flags & bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as u32 != 0);
        check_eq!(wc.ex, key);
        for (n, request) in [
            // Not valid any more.
            Request::Inv(key),
            // Of another region.
            Request::Reg(key ^ 0x100, ALL),
            // None.
            Request::Inv(0x7fff_ff00),
        ]
        .into_iter()
        .enumerate()
        {
            rig.b.post(n as u64, request, &[])?;
            refused(rig.b.wait()?, Status::MW_BIND_ERR)?;
            rig.again(&USUAL)?;
        }
        // Valid already.
        rig.b.post(6, Request::Reg(key, ALL), &[])?;
        check_eq!(rig.b.wait()?.status, Status::SUCCESS);
        rig.b.post(7, Request::Reg(key, ALL), &[])?;
        refused(rig.b.wait()?, Status::MW_BIND_ERR)?;
        // A message cannot take back what the receiver does not have.
        rig.again(&USUAL)?;
        rig.b.recv(8, &[(0, 8, b)])?;
        rig.a.post(9, Request::SendInv(key ^ 3), &[(0, 8, lkey)])?;
        refused(rig.a.wait()?, Status::REM_ACCESS_ERR)
    }

    #[test]
    fn own_memory_is_checked() -> Result {
        let mut rig = Rig::new()?;
        let b = rig.b.lkey();
        // A key that is none, to send from.
        rig.b.recv(1, &[(0, 64, b)])?;
        rig.a.post(2, Request::Send, &[(0, 64, 0)])?;
        refused(rig.a.wait()?, Status::LOC_PROT_ERR)?;
        check!(rig.b.poll().is_none());
        // To receive to.
        rig.again(&USUAL)?;
        let a = rig.a.lkey();
        rig.b.recv(1, &[(0, 64, 0x100)])?;
        rig.a.post(2, Request::Send, &[(0, 64, a)])?;
        refused(rig.a.wait()?, Status::REM_OP_ERR)?;
        refused(rig.b.wait()?, Status::LOC_PROT_ERR)?;
        // A region that is only read may not be received to.
        rig.again(&USUAL)?;
        let (_, key, _) = rig.lend(READ)?;
        rig.b.recv(1, &[(PAGE_SIZE + 100, 64, key)])?;
        rig.a.post(2, Request::Send, &[(0, 64, a)])?;
        refused(rig.a.wait()?, Status::REM_OP_ERR)?;
        refused(rig.b.wait()?, Status::LOC_PROT_ERR)?;
        // An address that is no memory.
        rig.again(&USUAL)?;
        rig.b.recv(1, &[(0, 64, b)])?;
        rig.a.post(2, Request::Send, &[(usize::MAX / 4, 64, a)])?;
        refused(rig.a.wait()?, Status::LOC_PROT_ERR)
    }

    #[test]
    fn a_message_is_too_long() -> Result {
        let rig = Rig::new()?;
        let (a, b) = (rig.a.lkey(), rig.b.lkey());
        rig.b.recv(1, &[(0, 63, b)])?;
        rig.b.recv(2, &[(0, 63, b)])?;
        rig.a.post(3, Request::Send, &[(0, 64, a)])?;
        refused(rig.a.wait()?, Status::REM_INV_REQ_ERR)?;
        refused(rig.b.wait()?, Status::LOC_LEN_ERR)?;
        refused(rig.b.wait()?, Status::WR_FLUSH_ERR)
    }

    #[test]
    fn waits_for_a_receive() -> Result {
        let mut rig = Rig::new()?;
        let (a, b) = (rig.a.lkey(), rig.b.lkey());
        rig.a.post(1, Request::Send, &[(0, 64, a)])?;
        rig.a.post(2, Request::Send, &[(0, 64, a)])?;
        kernel::time::delay::fsleep(Delta::from_millis(5));
        check!(rig.a.poll().is_none());
        rig.b.recv(1, &[(0, 64, b)])?;
        rig.b.recv(2, &[(0, 64, b)])?;
        check_eq!(rig.a.wait()?.id, 1);
        check_eq!(rig.a.wait()?.id, 2);
        check_eq!(rig.b.wait()?.id, 1);
        check_eq!(rig.b.wait()?.id, 2);
        // Not for ever.
        let how = How {
            rnr_retries: 2,
            rnr_timer: 12,
            ..USUAL
        };
        rig.again(&how)?;
        let began = Instant::<Monotonic>::now();
        rig.a.post(3, Request::Send, &[(0, 64, a)])?;
        rig.a.post(4, Request::Send, &[(0, 64, a)])?;
        refused(rig.a.wait()?, Status::RNR_RETRY_EXC_ERR)?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        // Twice 0.64 ms.
        check!(began.elapsed() >= Delta::from_micros(1280));
        Ok(())
    }

    #[test]
    fn a_peer_is_not_there() -> Result {
        let mut rig = Rig::new()?;
        let a = rig.a.lkey();
        rig.net.fabric.plug(FIRST, false);
        let began = Instant::<Monotonic>::now();
        rig.a.post(1, Request::Send, &[(0, 64, a)])?;
        refused(rig.a.wait()?, Status::RETRY_EXC_ERR)?;
        // Twice 4.096 us * 2^12.
        check!(began.elapsed() >= Delta::from_millis(32));
        // The cable is back, and the port is active again.
        rig.net.fabric.plug(FIRST, true);
        manager::activate(&rig.net.fabric)?;
        rig.again(&USUAL)?;
        exchange(&mut rig, 2, 64)?;
        // Another number of the first packet is another connection.
        rig.again(&USUAL)?;
        rig.b.reset()?;
        rig.b.init(ALL)?;
        rig.b
            .rtr(1, rig.a.num(), PSN.0.wrapping_add(1) & 0xff_ffff, &USUAL)?;
        rig.a.reset()?;
        rig.a.init(ALL)?;
        rig.a.rtr(2, rig.b.num(), 7, &USUAL)?;
        rig.a.rts(5, &USUAL)?;
        let b = rig.b.lkey();
        rig.b.recv(1, &[(0, 64, b)])?;
        rig.a.post(3, Request::Send, &[(0, 64, a)])?;
        check!(rig.a.wait()?.status != Status::SUCCESS || rig.b.poll().is_none());
        // In error, it says nothing.
        rig.again(&USUAL)?;
        rig.b.fail()?;
        rig.a.post(4, Request::Send, &[(0, 64, a)])?;
        refused(rig.a.wait()?, Status::RETRY_EXC_ERR)
    }

    #[test]
    fn flushes() -> Result {
        let mut rig = Rig::new()?;
        let (a, b) = (rig.a.lkey(), rig.b.lkey());
        for n in 0..3 {
            rig.a.recv(n, &[(0, 64, a)])?;
        }
        // One waits for a receive request.
        for n in 10..13 {
            rig.a.post(n, Request::Send, &[(0, 64, a)])?;
        }
        rig.a.fail()?;
        let mut seen = [false; 16];
        for _ in 0..6 {
            let wc = rig.a.wait()?;
            check_eq!(wc.status, Status::WR_FLUSH_ERR);
            seen[wc.id as usize & 15] = true;
        }
        check_eq!(seen.iter().filter(|s| **s).count(), 6);
        // What is posted then comes back, too.
        rig.a.post(14, Request::Write(0, 0), &[])?;
        rig.a.recv(15, &[(0, 64, a)])?;
        check_eq!(rig.a.wait()?.id, 14);
        check_eq!(rig.a.wait()?.id, 15);
        check!(rig.a.poll().is_none());
        // RESET leaves nothing.
        rig.b.recv(1, &[(0, 64, b)])?;
        rig.b.fail()?;
        rig.b.reset()?;
        check!(rig.b.poll().is_none());
        rig.again(&USUAL)?;
        exchange(&mut rig, 2, 64)
    }

    #[test]
    fn states() -> Result {
        let rig = Rig::of(bindings::ib_qp_type_IB_QPT_RC, 64)?;
        let lkey = rig.a.lkey();
        check_eq!(rig.a.recv(1, &[(0, 8, lkey)]), Err(EINVAL));
        check_eq!(rig.a.post(1, Request::Send, &[]), Err(EINVAL));
        check_eq!(rig.a.state(bindings::ib_qp_state_IB_QPS_RTS), Err(EINVAL));
        check_eq!(rig.a.state(bindings::ib_qp_state_IB_QPS_INIT), Err(EINVAL));
        rig.a.init(ALL)?;
        check_eq!(rig.a.post(1, Request::Send, &[]), Err(EINVAL));
        rig.a.recv(1, &[(0, 8, lkey)])?;
        check_eq!(rig.a.state(bindings::ib_qp_state_IB_QPS_RTR), Err(EINVAL));
        rig.a.rtr(2, rig.b.num(), 0, &USUAL)?;
        check_eq!(rig.a.post(1, Request::Send, &[]), Err(EINVAL));
        rig.a.rts(0, &USUAL)?;
        check_eq!(rig.a.queried()?, 3);
        check_eq!(rig.a.init(ALL), Err(EINVAL));
        // Too many pieces.
        let pieces = [(0, 1, lkey); 4];
        check_eq!(rig.a.post(1, Request::Send, &pieces), Err(EINVAL));
        check_eq!(rig.a.recv(1, &pieces), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn queues_are_full() -> Result {
        let rig = Rig::new()?;
        let (a, b) = (rig.a.lkey(), rig.b.lkey());
        for n in 0..u64::from(DEPTH) {
            rig.b.recv(n, &[(0, 64, b)])?;
        }
        check_eq!(rig.b.recv(99, &[(0, 64, b)]), Err(ENOMEM));
        for n in 0..u64::from(DEPTH) {
            rig.a.post(n, Request::Send, &[(0, 64, a)])?;
        }
        // All are done, but nobody has polled.
        check_eq!(rig.a.post(99, Request::Send, &[(0, 64, a)]), Err(ENOMEM));
        check_eq!(rig.b.recv(99, &[(0, 64, b)]), Err(ENOMEM));
        check_eq!(rig.a.wait()?.id, 0);
        check_eq!(rig.b.wait()?.id, 0);
        rig.b.recv(99, &[(0, 64, b)])?;
        rig.a.post(99, Request::Send, &[(0, 64, a)])?;
        // A chain is taken up to where it does not fit.
        while rig.a.poll().is_some() {}
        check!(rig.a.send(0, &[Request::Write(0, 0); 8], &[], 0).1.is_ok());
        let (taken, result) = rig.a.send(0, &[Request::Write(0, 0); 2], &[], 0);
        check_eq!((taken, result), (0, Err(ENOMEM)));
        Ok(())
    }

    #[test]
    fn too_many_completions() -> Result {
        let mut rig = Rig::of(bindings::ib_qp_type_IB_QPT_RC, 4)?;
        rig.connect(&USUAL)?;
        let requests = [Request::Write(0, 0); 6];
        let signaled = bindings::ib_send_flags_IB_SEND_SIGNALED as i32;
        check_eq!(rig.a.send(0, &requests, &[], signaled).0, 6);
        within(|| rig.a.cq_event().then_some(()))?;
        check_eq!(rig.a.queried()?, 6);
        rig.a.drained()?;
        exchange_after(&mut rig)
    }

    fn exchange_after(rig: &mut Rig) -> Result {
        rig.again(&USUAL)?;
        exchange(rig, 1, 64)
    }

    #[test]
    fn datagrams() -> Result {
        let mut rig = Rig::of(bindings::ib_qp_type_IB_QPT_UD, 64)?;
        rig.a.datagrams(0x11)?;
        rig.b.datagrams(0x22)?;
        let b = rig.b.lkey();
        rig.b.recv(1, &[(0, 4096 + 40, b)])?;
        pattern(&mut rig.a.bytes()[..4096], 5);
        let to = rig.b.num();
        // A wrong key, a wrong place: sent, and gone.
        rig.a.datagram(2, to, 0x23, 0, 64)?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        rig.a.datagram(7, to, 0x22, 0, 64)?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        check!(rig.b.poll().is_none());
        rig.a.datagram(2, to, 0x22, 0, 4096)?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        let wc = rig.b.wait()?;
        check_eq!((wc.id, wc.bytes, wc.src_qp), (1, 4136, rig.a.num()));
        for n in 0..4096 {
            if rig.a.bytes()[n] != rig.b.bytes()[40 + n] {
                check_eq!(n, usize::MAX);
            }
        }
        // Without a receive request it is gone.
        rig.a.datagram(2, to, 0x22, 0, 64)?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        check!(rig.b.poll().is_none());
        // One is too long; what follows is flushed.
        rig.a.datagram(2, to, 0x22, 0, 4097)?;
        refused(rig.a.wait()?, Status::LOC_LEN_ERR)?;
        rig.a.datagram(2, to, 0x22, 0, 64)?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)
    }

    #[test]
    fn faults() -> Result {
        let mut rig = Rig::new()?;
        let a = rig.a.lkey();
        let nop = Request::Write(0, 0);
        rig.order("error 2 retries send")?;
        rig.a.post(1, nop, &[])?;
        rig.a.post(2, nop, &[])?;
        rig.a.post(3, nop, &[])?;
        check_eq!(rig.a.wait()?.status, Status::SUCCESS);
        refused(rig.a.wait()?, Status::RETRY_EXC_ERR)?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        rig.again(&USUAL)?;
        rig.order("swallow 1")?;
        rig.a.post(1, nop, &[])?;
        rig.a.post(2, nop, &[])?;
        check_eq!(rig.a.wait()?.id, 2);
        rig.order("double 1")?;
        rig.a.post(3, nop, &[])?;
        check_eq!(rig.a.wait()?.id, 3);
        check_eq!(rig.a.wait()?.id, 3);
        rig.order("delay 1 30")?;
        let began = Instant::<Monotonic>::now();
        rig.a.post(4, nop, &[])?;
        rig.a.post(5, nop, &[])?;
        check!(rig.a.poll().is_none());
        check_eq!(rig.a.wait()?.id, 4);
        check!(began.elapsed() >= Delta::from_millis(30));
        check_eq!(rig.a.wait()?.id, 5);
        rig.order("post 3")?;
        check_eq!(rig.a.send(6, &[nop; 4], &[], 0), (2, Err(ENOMEM)));
        // A lost request, and a lost acknowledgement: both are repeated, and arrive once.
        for text in ["loss 1", "ack 1"] {
            rig.order(text)?;
            let began = Instant::<Monotonic>::now();
            exchange(&mut rig, 7, 64)?;
            check!(began.elapsed() >= Delta::from_millis(16));
            check!(rig.b.poll().is_none());
        }
        rig.order("post-recv 1")?;
        check_eq!(rig.a.recv(1, &[(0, 8, a)]), Err(ENOMEM));
        rig.order("hang 1 20")?;
        let began = Instant::<Monotonic>::now();
        rig.a.fail()?;
        check!(began.elapsed() >= Delta::from_millis(20));
        rig.again(&USUAL)?;
        check_eq!(rig.a.describe(&[(0, 64)])?, 1);
        rig.order("register 1")?;
        rig.a.post(8, Request::Reg(rig.a.key(), ALL), &[])?;
        refused(rig.a.wait()?, Status::MW_BIND_ERR)?;
        rig.again(&USUAL)?;
        rig.order("death 1")?;
        rig.a.post(9, nop, &[])?;
        refused(rig.a.wait()?, Status::WR_FLUSH_ERR)?;
        let told = 1 << bindings::ib_event_type_IB_EVENT_QP_FATAL;
        within(|| (rig.a.events() & told != 0).then_some(()))?;
        // Each was counted once, and nothing else.
        check_eq!(rig.hcas[0].faults().happened(), [1; 11]);
        check_eq!(rig.hcas[1].faults().happened(), [0; 11]);
        for bad in [
            "",
            "error",
            "error 1",
            "error 1 none",
            "swallow 0",
            "lose 1",
            "swallow 1 x",
        ] {
            check_eq!(Order::parse(bad), Err(EINVAL));
        }
        Ok(())
    }

    #[test]
    fn a_subnet_is_managed() -> Result {
        let rig = Rig::of(bindings::ib_qp_type_IB_QPT_RC, 4)?;
        check_eq!(rig.registrations.len(), 2);
        let fabric = &rig.net.fabric;
        let lids: [Option<u16>; 2] =
            [0, 1].map(|ca| fabric.look(PortId { ca, port: 1 }, |p| p.lid()));
        check_eq!(lids, [Some(1), Some(2)]);
        let other = PortId { ca: 1, port: 1 };
        check_eq!(fabric.route(FIRST, 2), Some(other));
        check_eq!(fabric.route(FIRST, 1), Some(FIRST));
        check_eq!(fabric.route(FIRST, 3), None);
        let before = fabric.generation();
        fabric.plug(other, false);
        check!(fabric.generation() != before);
        check_eq!(fabric.route(FIRST, 2), None);
        Ok(())
    }
}
