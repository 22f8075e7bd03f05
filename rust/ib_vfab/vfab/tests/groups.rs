// SPDX-License-Identifier: GPL-2.0

//! Multicast: the receivers of a datagram, and members that join and leave.

use super::*;
use crate::vfab::{
    mad::{
        attribute,
        Smp,
        DATA_LEN,
        SET, //
    },
    qp::groups::MAX_MEMBERS,
};
use core::ops::Deref;
use kernel::{
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    },
    time::delay::fsleep,
    workqueue, //
};

/// Destination queue pair number of a datagram to a group.
const ALL_OF_THEM: u32 = 0xff_ffff;
const LID: u16 = 0xc003;
const QKEY: u32 = 0xb1b;
const SECOND: PortId = PortId { ca: 1, port: 1 };

const fn gid(last: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[0] = 0xff;
    gid[1] = 0x12;
    gid[15] = last;
    gid
}

/// A testbed with datagram queue pairs, and two more users of its adapters. The users are dropped
/// first.
struct Groups {
    c: User,
    d: User,
    testbed: Testbed,
}

impl Deref for Groups {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.testbed
    }
}

impl Groups {
    /// All users send and receive. The switch copies the group's datagrams to `ports`, a bit for
    /// each.
    fn new(ports: u16) -> Result<Self> {
        let kind = bindings::ib_qp_type_IB_QPT_UD;
        let testbed = Testbed::of(kind, 64)?;
        let this = Self {
            c: User::new(&testbed.registrations[0], kind, 64)?,
            d: User::new(&testbed.registrations[1], kind, 64)?,
            testbed,
        };
        for user in this.users() {
            user.datagrams(QKEY)?;
        }
        forward(&this.net.fabric, ports)?;
        Ok(this)
    }

    fn users(&self) -> [&User; 4] {
        [&self.testbed.a, &self.testbed.b, &self.c, &self.d]
    }

    /// Makes all users members, each with a receive request.
    fn join(&self) -> Result {
        for user in self.users() {
            user.attach(gid(1), LID)?;
            user.recv(1, &[(PAGE_SIZE, 4096 + 40, user.lkey())])?;
        }
        Ok(())
    }

    /// Sends a datagram from `a` to the group.
    fn tell(&self) -> Result {
        self.testbed
            .a
            .datagram_to(Some(gid(1)), LID, ALL_OF_THEM, QKEY, 100)?;
        check_eq!(self.testbed.a.wait()?.status, Status::SUCCESS);
        Ok(())
    }

    /// Returns which of `a` to `d` received the datagram.
    fn got(&self) -> [bool; 4] {
        self.users().map(|user| user.poll().is_some())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // `ib_core` does not destroy a queue pair that is a member.
        for user in self.users() {
            for n in 1..3 {
                let _ = user.detach(gid(n), LID);
            }
        }
    }
}

/// Makes the switch copy the group's datagrams to these ports.
fn forward(fabric: &Fabric, ports: u16) -> Result {
    let mut table = [0; DATA_LEN];
    table[6..8].copy_from_slice(&ports.to_be_bytes());
    let mut mad = manager::request(SET, attribute::MCAST_FORWARD_TABLE, 0, &table);
    fabric.manage_switch(&mut mad);
    check_eq!(Smp::of(&mad).status.get(), 0);
    Ok(())
}

const BOTH: u16 = 1 << 1 | 1 << 2;

#[kunit_tests(vfab_groups)]
mod cases {
    use super::*;

    #[test]
    fn all_but_the_sender() -> Result {
        let mut all = Groups::new(BOTH)?;
        all.join()?;
        pattern(&mut all.testbed.a.bytes()[..4096], 3);
        let from = all.a.num();
        all.a
            .datagram_to(Some(gid(1)), LID, ALL_OF_THEM, QKEY, 4096)?;
        check_eq!(all.a.wait()?.status, Status::SUCCESS);
        check!(all.a.poll().is_none());
        let mut header = [0; 40];
        header[..4].copy_from_slice(&0x6001_2345u32.to_be_bytes());
        header[4..8].copy_from_slice(&[0x10, 0, 0x1b, 9]);
        header[8..10].copy_from_slice(&[0xfe, 0x80]);
        header[16..24].copy_from_slice(&(Fabric::guid(0) + 1).to_be_bytes());
        header[24..].copy_from_slice(&gid(1));
        let Groups { c, d, testbed } = &mut all;
        for user in [&mut testbed.b, c, d] {
            let wc = user.wait()?;
            check_eq!((wc.status, wc.bytes), (Status::SUCCESS, 4136));
            check_eq!(wc.src_qp, from);
            check!(wc.flags & bindings::ib_wc_flags_IB_WC_GRH as u32 != 0);
            check!(user.poll().is_none());
            check!(same(&user.bytes()[PAGE_SIZE..][..40], &header));
            check!(same(
                &user.bytes()[PAGE_SIZE + 40..][..4096],
                &testbed.a.bytes()[..4096]
            ));
        }
        // A sender need not be a member. Only a member without a receive request loses the
        // datagram.
        all.a.detach(gid(1), LID)?;
        all.c.recv(2, &[(0, 200, all.c.lkey())])?;
        all.tell()?;
        check_eq!(all.got(), [false, false, true, false]);
        Ok(())
    }

    #[test]
    fn others_do_not_get_it() -> Result {
        let all = Groups::new(BOTH)?;
        all.join()?;
        let none = [false; 4];
        for (gid, lid, qp, qkey) in [
            // A wrong Q_Key, another GID, another LID, a single destination, no header.
            (Some(gid(1)), LID, ALL_OF_THEM, QKEY + 1),
            (Some(gid(2)), LID, ALL_OF_THEM, QKEY),
            (Some(gid(1)), LID + 1, ALL_OF_THEM, QKEY),
            (Some(gid(1)), LID, all.b.num(), QKEY),
            (None, LID, ALL_OF_THEM, QKEY),
            // The GID of a group, and the LID of a port.
            (Some(gid(1)), 2, ALL_OF_THEM, QKEY),
        ] {
            all.a.datagram_to(gid, lid, qp, qkey, 100)?;
            check_eq!(all.a.wait()?.status, Status::SUCCESS);
            check_eq!(all.got(), none);
        }
        // A member has left for another group.
        all.d.detach(gid(1), LID)?;
        all.d.attach(gid(2), LID)?;
        all.tell()?;
        check_eq!(all.got(), [false, true, true, false]);
        Ok(())
    }

    #[test]
    fn partitions_and_ports() -> Result {
        let all = Groups::new(BOTH)?;
        let fabric = &all.net.fabric;
        all.join()?;
        // Both are limited members of a partition; then the second is in another partition.
        for (ours, theirs) in [(0x7fff, 0x7fff), (0xffff, 0x8123)] {
            manager::set_pkey(fabric, FIRST, 0, ours)?;
            manager::set_pkey(fabric, SECOND, 0, theirs)?;
            all.tell()?;
            check_eq!(all.got(), [false, false, ours == 0xffff, false]);
        }
        manager::set_pkey(fabric, SECOND, 0, 0x7fff)?;
        all.tell()?;
        check_eq!(all.got(), [false, true, false, true]);
        // A datagram that the switch does not or cannot copy reaches the sender's own port only.
        for broken in [false, true] {
            for user in [&all.b, &all.c, &all.d] {
                user.recv(2, &[(0, 200, user.lkey())])?;
            }
            forward(fabric, if broken { BOTH } else { 1 << 1 })?;
            if broken {
                fabric.plug(SECOND, false);
            }
            all.tell()?;
            check_eq!(all.got(), [false, false, true, false]);
        }
        fabric.plug(FIRST, false);
        all.c.recv(3, &[(0, 200, all.c.lkey())])?;
        all.tell()?;
        check_eq!(all.got(), [false; 4]);
        Ok(())
    }

    #[test]
    fn memberships() -> Result {
        let all = Groups::new(BOTH)?;
        all.a.attach(gid(1), LID)?;
        check_eq!(all.a.attach(gid(1), LID), Err(EINVAL));
        check_eq!(all.a.detach(gid(2), LID), Err(EINVAL));
        check_eq!(all.a.detach(gid(1), LID + 1), Err(EINVAL));
        check_eq!(all.c.detach(gid(1), LID), Err(EINVAL));
        all.a.detach(gid(1), LID)?;
        check_eq!(all.a.detach(gid(1), LID), Err(EINVAL));
        // A membership that ends frees its slot.
        for n in 0..2 * MAX_MEMBERS {
            all.a.attach(gid(1), LID + (n & 7) as u16)?;
            all.a.detach(gid(1), LID + (n & 7) as u16)?;
        }
        for _ in 0..2 {
            for n in 0..MAX_MEMBERS {
                all.a.attach(gid(n as u8), 0xc000 + (n >> 8) as u16)?;
            }
            check_eq!(all.c.attach(gid(1), LID), Err(ENOMEM));
            // The other adapter has its own slots.
            all.b.attach(gid(1), LID)?;
            all.b.detach(gid(1), LID)?;
            for n in 0..MAX_MEMBERS {
                all.a.detach(gid(n as u8), 0xc000 + (n >> 8) as u16)?;
            }
        }
        drop(all);
        check_eq!(Testbed::new()?.a.attach(gid(1), LID), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn leaving_under_traffic() -> Result {
        let all = Groups::new(BOTH)?;
        let sender = User::new(&all.registrations[0], bindings::ib_qp_type_IB_QPT_UD, 64)?;
        sender.datagrams(QKEY)?;
        // 1: the sender must stop; 2: it has stopped.
        let state = Arc::new(Atomic::<u32>::new(0), GFP_KERNEL)?;
        let told = state.clone();
        workqueue::system_unbound().try_spawn(GFP_KERNEL, move || {
            while told.load(Acquire) == 0 {
                let _ = sender.datagram_to(Some(gid(1)), LID, ALL_OF_THEM, QKEY, 64);
                while sender.poll().is_some() {}
                fsleep(Delta::from_micros(5));
            }
            drop(sender);
            told.store(2, Release);
        })?;
        let result = come_and_go(&all);
        state.store(1, Release);
        within(|| (state.load(Acquire) == 2).then_some(()))?;
        result
    }

    fn come_and_go(all: &Groups) -> Result {
        for round in 0..100 {
            for user in [&all.b, &all.c] {
                while user.recv(round, &[(0, 200, user.lkey())]).is_ok() {}
                user.attach(gid(1), LID)?;
            }
            for user in [&all.b, &all.c] {
                check_eq!(user.wait()?.status, Status::SUCCESS);
                user.detach(gid(1), LID)?;
                while user.poll().is_some() {}
                user.recv(round, &[(0, 200, user.lkey())])?;
                fsleep(Delta::from_micros(100));
                check!(user.poll().is_none());
            }
        }
        Ok(())
    }
}
