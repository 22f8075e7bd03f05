// SPDX-License-Identifier: GPL-2.0

//! The login: address, route, connection, SRP login, channel by channel.
//!
//! The first channel is alone, since it tells the target to end older channels of ours. The others
//! go through the steps together, and those that fail are left out. All of it ends within ten
//! seconds, or with a signal.

use super::{
    channel::{
        Channel,
        Connection, //
    },
    error::LoginFailure,
    events::{
        Events,
        Response, //
    },
    geometry::Geometry,
    logic::session::{
        LOGIN_TIMEOUT_MS,
        RESOLVE_TIMEOUT_MS, //
    },
    proto::{
        cm_rej::CmRej,
        ids::{
            Gid,
            PortId, //
        },
        login::{
            Granted,
            LoginReqRdma,
            LoginRsp,
            MultiChannel,
            Requested, //
        }, //
    },
    session::Session, //
};
use crate::{
    errno,
    net::{
        Namespace,
        SocketAddr, //
    },
    rdma::{
        cm::{
            ConnectParam,
            Id, //
        },
        pd::Pd, //
    },
    sys, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// RDMA reads of the target that we answer at a time, if the device can.
const RESPONDER_RESOURCES: u8 = 16;
/// The peer has always a receive posted for what it granted, so this is for ever.
const RNR_RETRY_COUNT: u8 = 7;
/// How often a waiting login looks whether the session has ended.
const SLICE_MS: u32 = 100;

/// Where to log in, and as whom.
pub struct Plan {
    /// The caller's network namespace.
    pub net: ARef<Namespace>,
    /// Our address, if it matters.
    pub src: Option<SocketAddr>,
    /// The target's address.
    pub dest: SocketAddr,
    /// GID of our port.
    pub sgid: Gid,
    /// Our port identifier.
    pub initiator: PortId,
    /// The target's port identifier.
    pub target: PortId,
    /// Retries of the transport.
    pub retry_count: u8,
}

/// The end of all waiting.
struct Deadline(Instant<Monotonic>);

impl Deadline {
    fn left(&self) -> u32 {
        let gone = u32::try_from(self.0.elapsed().as_millis()).unwrap_or(u32::MAX);
        LOGIN_TIMEOUT_MS.saturating_sub(gone)
    }
}

/// A channel of which the address is being resolved, or the route.
struct Resolving {
    index: u16,
    events: Arc<Events>,
    id: Arc<Id<Events>>,
}

/// A channel that waits for the answer to its login request.
struct Connecting {
    events: Arc<Events>,
    connection: Arc<Connection>,
    requested: Requested,
}

/// A login on its way.
pub struct Login<'a> {
    session: &'a Arc<Session>,
    geometry: &'a Geometry,
    plan: &'a Plan,
    pd: Arc<Pd>,
    deadline: Deadline,
}

impl<'a> Login<'a> {
    /// Starts the clock. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn new(
        session: &'a Arc<Session>,
        geometry: &'a Geometry,
        plan: &'a Plan,
    ) -> Result<Self, LoginFailure> {
        let pd = session
            .port()
            .device()
            .hold()
            .and_then(Pd::new)
            .map_err(|e| LoginFailure::Step("protection domain", e))?;
        Ok(Self {
            session,
            geometry,
            plan,
            pd,
            deadline: Deadline(Instant::now()),
        })
    }

    /// Connects the channels and returns them with what the target granted to each. Sleeps.
    ///
    /// # Errors
    ///
    /// If the first channel fails, or the session ends, or a signal comes.
    pub fn run(&self) -> Result<KVec<(Arc<Connection>, Granted)>, LoginFailure> {
        let no_memory = |_| LoginFailure::Step("channel list", ENOMEM);
        let mut channels =
            KVec::with_capacity(self.geometry.channels as usize, GFP_KERNEL).map_err(no_memory)?;

        let first = self.resolve(0)?;
        self.wait(&first.events, "address")?;
        self.route(&first)?;
        self.wait(&first.events, "route")?;
        let first = self.connect(first, MultiChannel::Single)?;
        channels
            .push(self.accept(first)?, GFP_KERNEL)
            .map_err(no_memory)?;

        // CAST: At most `MAX_CHANNELS`.
        let others = 1..self.geometry.channels.min(u32::from(u16::MAX)) as u16;
        let mut lost = None;
        // Each step is begun for all before any is waited for.
        let mut all: KVec<Resolving> = KVec::new();
        for index in others.clone() {
            self.keep(&mut all, self.resolve(index), &mut lost)?;
        }
        let mut ready = KVec::new();
        for channel in all {
            let step = self
                .wait(&channel.events, "address")
                .and_then(|_| self.route(&channel))
                .map(|()| channel);
            self.keep(&mut ready, step, &mut lost)?;
        }
        let mut asked = KVec::new();
        for channel in ready {
            let step = self
                .wait(&channel.events, "route")
                .and_then(|_| self.connect(channel, MultiChannel::Multi));
            self.keep(&mut asked, step, &mut lost)?;
        }
        for channel in asked {
            let step = self.accept(channel);
            self.keep(&mut channels, step, &mut lost)?;
        }
        if let Some(why) = lost {
            pr_warn!(
                "{}: {} of {} channels: {}\n",
                format_args!("{}", self.session.name()),
                channels.len(),
                self.geometry.channels,
                format_args!("{why}")
            );
        }
        Ok(channels)
    }

    /// Keeps a further channel that made a step. One that failed is dropped; what ends the whole
    /// login is passed on.
    fn keep<T>(
        &self,
        list: &mut KVec<T>,
        step: Result<T, LoginFailure>,
        lost: &mut Option<LoginFailure>,
    ) -> Result<(), LoginFailure> {
        match step {
            Ok(channel) => list
                .push(channel, GFP_KERNEL)
                .map_err(|_| LoginFailure::Step("channel list", ENOMEM)),
            Err(why @ (LoginFailure::Signal | LoginFailure::Removed)) => Err(why),
            Err(why) => {
                *lost = Some(why);
                Ok(())
            }
        }
    }

    fn resolve(&self, index: u16) -> Result<Resolving, LoginFailure> {
        let step = |what| move |e| LoginFailure::Step(what, e);
        let events = Events::new(self.session.clone()).map_err(step("connection identifier"))?;
        let id = Id::new(&self.plan.net, events.clone()).map_err(step("connection identifier"))?;
        id.resolve_addr(self.plan.src.as_ref(), &self.plan.dest, RESOLVE_TIMEOUT_MS)
            .map_err(step("address"))?;
        Ok(Resolving { index, events, id })
    }

    fn route(&self, channel: &Resolving) -> Result<(), LoginFailure> {
        let port = self.session.port();
        if !channel.id.is_on(port.device(), port.number()) {
            return Err(LoginFailure::OtherPort);
        }
        channel
            .id
            .resolve_route(RESOLVE_TIMEOUT_MS)
            .map_err(|e| LoginFailure::Step("route", e))
    }

    fn connect(
        &self,
        channel: Resolving,
        multichannel: MultiChannel,
    ) -> Result<Connecting, LoginFailure> {
        let geometry = self.geometry;
        let connection =
            Channel::connect(self.session, geometry, channel.index, &self.pd, &channel.id)
                .map_err(|e| LoginFailure::Step("queue pair", e))?;
        let requested = Requested {
            tag: sys::random_u64(),
            max_it_iu_len: geometry.it_iu_len,
            descriptors: geometry.descriptors,
            immediate: geometry.immediate,
            multichannel,
            initiator: self.plan.initiator,
            target: self.plan.target,
        };
        let request = LoginReqRdma::new(&requested);
        channel
            .id
            .connect(&ConnectParam {
                private_data: request.as_bytes(),
                responder_resources: geometry.device.max_qp_rd_atom.min(RESPONDER_RESOURCES),
                retry_count: self.plan.retry_count,
                rnr_retry_count: RNR_RETRY_COUNT,
            })
            .map_err(|e| match e {
                // An iWARP device opens the TCP connection in this call; it may take the time of
                // TCP's own retries, but a signal ends it.
                EINTR | ERESTARTSYS => LoginFailure::Signal,
                errno::ECONNREFUSED | errno::ECONNRESET | errno::EHOSTUNREACH | ETIMEDOUT => {
                    LoginFailure::CmReject(CmRej::from_status(e.to_errno()))
                }
                e => LoginFailure::Step("connect request", e),
            })?;
        Ok(Connecting {
            events: channel.events,
            connection,
            requested,
        })
    }

    /// Waits for the login response and opens the channel.
    fn accept(&self, channel: Connecting) -> Result<(Arc<Connection>, Granted), LoginFailure> {
        let response = self.wait(&channel.events, "login response")?;
        let bytes = response.as_ref().map_or(&[][..], Response::bytes);
        let granted = LoginRsp::parse(bytes)
            .map_err(LoginFailure::Answer)?
            .check(&channel.requested)
            .map_err(LoginFailure::Response)?;
        channel
            .events
            .go_live()
            .map_err(|_| LoginFailure::Disconnected)?;
        channel.connection.handler().open(&granted);
        Ok((channel.connection, granted))
    }

    /// Waits for the end of a step.
    fn wait(&self, events: &Events, what: &'static str) -> Result<Option<Response>, LoginFailure> {
        loop {
            let left = self.deadline.left();
            if self.session.is_lost() || self.session.is_ending() {
                return Err(LoginFailure::Removed);
            }
            match events.wait(left.min(SLICE_MS)) {
                Err(_) => return Err(LoginFailure::Signal),
                Ok(Some(outcome)) => return outcome,
                Ok(None) if left == 0 => return Err(LoginFailure::Timeout(what)),
                Ok(None) => {}
            }
        }
    }
}
