// SPDX-License-Identifier: GPL-2.0

//! Conformance tests on two adapters: the guarantees of the verbs, each operation, each refused
//! access.

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
    personality::{
        Personality,
        DEFAULT, //
    },
    qp::net::{
        Net,
        Running, //
    },
};
use crate::{
    bindings,
    check::{
        check,
        check_eq, //
    },
    provider::{
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

mod cables;
mod groups;
mod messages;
mod personalities;
mod pieces;
mod process;
mod queues;
mod regions;

/// Two adapters on a subnet, with one user each. The users' queue pairs can be connected.
struct Testbed {
    a: User,
    b: User,
    registrations: [Registration<Hca>; 2],
    hcas: [Attached; 2],
    net: Running,
}

/// [`User::new`], or another constructor.
type MakeUser = fn(&Registration<Hca>, bindings::ib_qp_type, u32) -> Result<User>;

const PSN: (u32, u32) = (0xff_fffe, 7);
const FIRST: PortId = PortId { ca: 0, port: 1 };

impl Testbed {
    fn of(kind: bindings::ib_qp_type, size: u32) -> Result<Self> {
        Self::made(kind, size, User::new)
    }

    fn made(kind: bindings::ib_qp_type, size: u32, user: MakeUser) -> Result<Self> {
        Self::like(&DEFAULT, 2, kind, size, user)
    }

    /// Uses adapters of this personality. A bit of `gaps` permits regions of pieces regardless of
    /// the personality.
    fn like(
        personality: &'static Personality,
        gaps: u8,
        kind: bindings::ib_qp_type,
        size: u32,
        user: MakeUser,
    ) -> Result<Self> {
        let net = Net::run(Fabric::new(2, 1)?)?;
        manager::activate(&net.fabric)?;
        let adapter = |n: u8, name: &CStr| -> Result<(Attached, Registration<Hca>)> {
            let dma = DmaDevice::new(c"ib_vfab_test", n.into(), 64)?;
            let hca = Hca::attached(
                n,
                1,
                true,
                gaps & 1 << n != 0,
                personality,
                dma,
                net.clone(),
            )?;
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

    /// Resets both queue pairs and connects them again.
    fn again(&mut self, how: &How) -> Result {
        self.a.reset()?;
        self.b.reset()?;
        self.connect(how)
    }

    /// Registers pages 1 to 3 of the memory of `b`, except for the first 100 bytes, with these
    /// rights.
    fn lend(&mut self, access: u32) -> Result<(u64, u32, usize)> {
        self.lend_these(access, &[(PAGE_SIZE + 100, 3 * PAGE_SIZE - 100)])
    }

    /// Registers these pieces (offset and length) of the memory of `b`. Returns address, key and
    /// length.
    fn lend_these(&mut self, access: u32, pieces: &[(usize, usize)]) -> Result<(u64, u32, usize)> {
        check_eq!(self.b.describe(pieces)?, pieces.len() as i32);
        let len = pieces.iter().map(|(_, len)| len).sum();
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

/// Sends `len` bytes, and checks the data and the completions of both sides.
fn exchange(testbed: &mut Testbed, id: u64, len: usize) -> Result {
    let (a, b) = (testbed.a.lkey(), testbed.b.lkey());
    pattern(&mut testbed.a.bytes()[..len], id as usize);
    testbed.b.recv(id, &[(0, len, b)])?;
    testbed.a.post(id, Request::Send, &[(0, len, a)])?;
    check_eq!(testbed.a.wait()?.status, Status::SUCCESS);
    let wc = testbed.b.wait()?;
    check_eq!(
        (wc.id, wc.status, wc.bytes),
        (id, Status::SUCCESS, len as u32)
    );
    check!(same(&testbed.a.bytes()[..len], &testbed.b.bytes()[..len]));
    Ok(())
}

fn refused(wc: Completion, status: Status) -> Result {
    check_eq!(wc.status, status);
    Ok(())
}
