// SPDX-License-Identifier: GPL-2.0

//! Memberships of an adapter's queue pairs in multicast groups.

use super::Qp;
use crate::compat::{
    new_spinlock_irq,
    SpinLockIrq, //
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::Arc, //
};

/// Maximum number of memberships of an adapter's queue pairs, in all groups together.
pub const MAX_MEMBERS: u32 = 1024;

/// A multicast group, identified as in an address handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// GID of the group.
    pub gid: [u8; 16],
    /// LID of the group.
    pub lid: u16,
}

struct Member {
    group: Group,
    qp: Arc<Qp>,
}

/// The memberships of an adapter's queue pairs.
#[pin_data]
pub struct Groups {
    #[pin]
    members: SpinLockIrq<KVVec<Member>>,
}

impl Groups {
    /// Creates an empty set of memberships. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn new() -> Result<impl PinInit<Self>> {
        let members = KVVec::with_capacity(MAX_MEMBERS as usize, GFP_KERNEL)?;
        Ok(pin_init!(Self {
            members <- new_spinlock_irq!(members, "vfab::Groups"),
        }))
    }

    /// Makes a queue pair a member of a group.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is already a member, `ENOMEM` if there are [`MAX_MEMBERS`] memberships.
    pub fn attach(&self, group: Group, qp: &Arc<Qp>) -> Result {
        let mut members = self.members.lock();
        if members.iter().any(|m| m.is(&group, qp)) {
            return Err(EINVAL);
        }
        let member = Member {
            group,
            qp: qp.clone(),
        };
        // The buffer never grows, as this may not sleep.
        members.push_within_capacity(member).map_err(|_| ENOMEM)
    }

    /// Ends a membership. Afterwards the queue pair receives no datagrams of the group.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue pair is not a member.
    pub fn detach(&self, group: Group, qp: &Arc<Qp>) -> Result {
        let mut members = self.members.lock();
        let at = members.iter().position(|m| m.is(&group, qp));
        let was = members.remove(at.ok_or(EINVAL)?);
        drop(members);
        drop(was);
        Ok(())
    }

    /// Calls `with` for each member of a group, with the lock of the memberships held.
    pub fn each(&self, group: &Group, mut with: impl FnMut(&Arc<Qp>)) {
        let members = self.members.lock();
        for member in members.iter().filter(|m| m.group == *group) {
            with(&member.qp);
        }
    }
}

impl Member {
    fn is(&self, group: &Group, qp: &Arc<Qp>) -> bool {
        self.group == *group && Arc::ptr_eq(&self.qp, qp)
    }
}
