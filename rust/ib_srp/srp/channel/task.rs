// SPDX-License-Identifier: GPL-2.0

//! Task management: one request at a time on each channel.

use super::{
    control::TASK,
    Connection, //
};
use crate::{
    errno::ENOTCONN,
    random::random_u64,
    srp::{
        logic::{
            credit::RESERVE_TSK_MGMT,
            exchange::{
                self,
                Exchange,
                Phase, //
            },
            tag::Tag,
            time::TSK_MGMT_TIMEOUT_MS, //
        },
        proto::{
            ids::Lun,
            message::build_short,
            opcode,
            tmf::{
                Function,
                TmfStatus,
                TskMgmt, //
            }, //
        }, //
    },
    trace::trace, //
};
use kernel::{
    prelude::*,
    sync::rcu, //
};

impl Connection {
    /// Sends a task management request and waits for the response, at most 5 s, after at most 5 s
    /// for an earlier request. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no credit is left or an earlier request has no response, `ENOTCONN` if the
    /// connection is lost before or during the wait, `ETIMEDOUT` without a response.
    pub(super) fn manage_task(
        &self,
        function: Function,
        lun: Lun,
        task_tag: u64,
    ) -> Result<TmfStatus> {
        let mut tag = 0;
        let result = self.exchange(function, lun, task_tag, &mut tag);
        trace!(task_done(
            self.host(),
            self.index,
            tag,
            result.map_or_else(|e| e.to_errno(), |status| i32::from(exchange::code(status))),
        ));
        result
    }

    /// As [`Self::manage_task`]. Sets `sent` to the tag of the request, if one was sent.
    fn exchange(
        &self,
        function: Function,
        lun: Lun,
        task_tag: u64,
        sent: &mut u64,
    ) -> Result<TmfStatus> {
        let mut before = Exchange::default();
        let free = self.wait_task(|now| {
            before = now;
            matches!(now.phase(), Phase::Idle | Phase::Abandoned)
        })?;
        if !free || before.phase() == Phase::Abandoned {
            return Err(EBUSY);
        }
        // CAST: Any 32 bits will do, except those of the last request.
        let mut generation = random_u64() as u32;
        if generation == before.generation() {
            generation = generation.wrapping_add(1);
        }
        let waiting = Exchange::new(Phase::Waiting, generation);
        let tag = Tag::tsk_mgmt(generation, self.index, TASK)
            .ok_or(EINVAL)?
            .to_wire();
        let request = TskMgmt {
            tag,
            lun,
            function,
            task_tag,
        };
        {
            let posting = rcu::read_lock();
            if self.status.state().is_lost() {
                return Err(ENOTCONN);
            }
            let credit = self.send_control(
                &posting,
                &self.task,
                (before, waiting),
                Some(RESERVE_TSK_MGMT),
                |iu| request.build(iu),
                |wr| {
                    *sent = tag;
                    trace!(task(
                        self.host(),
                        self.index,
                        tag,
                        function as u8,
                        super::trace::lun(lun),
                        task_tag,
                    ));
                    wr.post(true)
                },
            )?;
            if !credit {
                return Err(EBUSY);
            }
        }
        let changed = self.wait_task(|now| now != waiting)?;
        if !changed
            && self
                .task
                .transition(waiting, waiting.with_phase(Phase::Abandoned))
        {
            return Err(ETIMEDOUT);
        }
        let now = self.task.word();
        // No response: the connection was lost, and there may be a new one already.
        let status = now.response(generation).ok_or(ENOTCONN)?;
        self.task.transition(now, now.with_phase(Phase::Idle));
        self.wake_task();
        Ok(status)
    }

    /// Sends a logout on an open channel, unless a request is in flight. No request can follow the
    /// logout.
    pub fn begin_log_out(&self) {
        self.logged_out.reinit();
        let posting = rcu::read_lock();
        let (now, last) = (self.task.word(), Exchange::new(Phase::Abandoned, 0));
        let may_send = self.is_open() && !self.status.state().is_lost();
        let sent = may_send
            && now.phase() == Phase::Idle
            && self.send_control(
                &posting,
                &self.task,
                (now, last),
                Some(RESERVE_TSK_MGMT),
                |iu| build_short(iu, opcode::I_LOGOUT, random_u64()),
                |wr| wr.post_last(),
            ) == Ok(true);
        if !sent {
            self.logged_out.complete_all();
        }
    }

    /// Waits until the state of task management satisfies `done`, at most 5 s. Returns whether it
    /// does. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection is lost before or during the wait.
    fn wait_task(&self, mut done: impl FnMut(Exchange) -> bool) -> Result<bool> {
        let mut lost = false;
        let result = self.task_changed.wait_timeout(TSK_MGMT_TIMEOUT_MS, || {
            lost = self.status.state().is_lost();
            lost || done(self.task.word())
        });
        if lost {
            return Err(ENOTCONN);
        }
        Ok(result.is_ok())
    }

    /// Wakes the waiters for a change of task management: its state, or a lost connection.
    pub fn wake_task(&self) {
        self.task_changed.wake_all();
    }
}
