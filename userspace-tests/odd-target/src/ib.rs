// SPDX-License-Identifier: GPL-2.0

//! Carries out the deeds of the InfiniBand CM.

use std::{io, os::fd::RawFd, rc::Rc, time::Instant};

use odd_target::{
    requests::{for_rdma, Deed, Requests},
    rules::{Port, Rules},
};
use srp_target::{
    fabric::{Token, QUEUED},
    reactor::Reactor,
    target::ChannelId,
};
use verbs::{Buffer, Connection, Gsi, Sender};

use crate::say;

/// The sender of a datagram, and the agent that received it.
#[derive(Clone)]
pub(crate) struct Origin {
    agent: usize,
    sender: Rc<Sender>,
}

struct Agent {
    name: String,
    gsi: Gsi,
}

/// The connection manager, on all its devices. A channel has the number of its request.
pub(crate) struct Ib {
    agents: Vec<Agent>,
    pub(crate) requests: Requests<Origin>,
}

impl Ib {
    /// Opens these agents, each with a name and a device, and logs their addresses.
    pub(crate) fn open(agents: &[(String, String)], say: impl Fn(&str)) -> io::Result<Self> {
        let mut all = Vec::new();
        for (name, device) in agents {
            let at = |e: io::Error| io::Error::other(format!("{device}: {e}"));
            let gsi = Gsi::open(device).map_err(at)?;
            let (lid, gid) = gsi.device().port().map_err(at)?;
            let (qpn, gid) = (gsi.qpn(), u128::from_be_bytes(gid));
            say(&format!(
                "at={name} device={device} qpn={qpn} lid={lid} gid={gid:032x}"
            ));
            let name = name.clone();
            all.push(Agent { name, gsi });
        }
        Ok(Self {
            agents: all,
            requests: Requests::default(),
        })
    }

    /// Descriptors that are readable when datagrams may have arrived.
    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.agents.iter().map(|p| p.gsi.fd())
    }

    /// Takes the datagrams that have arrived.
    pub(crate) fn listen(&mut self) -> io::Result<()> {
        for (agent, at) in self.agents.iter_mut().enumerate() {
            for (mad, sender) in at.gsi.take()? {
                let sender = Rc::new(sender);
                let origin = Origin { agent, sender };
                self.requests.heard(&at.name, mad, origin, Instant::now());
            }
        }
        Ok(())
    }

    /// Carries out the pending deeds. Returns whether there were any.
    pub(crate) fn act(
        &mut self,
        reactor: &mut Reactor<Token>,
        rules: &mut Rules<Buffer>,
        begin: Instant,
    ) -> bool {
        let deeds = self.requests.deeds();
        let some = !deeds.is_empty();
        for deed in deeds {
            match deed {
                Deed::Say(what) => say(begin, &what),
                Deed::Send { to, mad } => {
                    let agent = &mut self.agents[to.agent];
                    if let Err(e) = agent.gsi.send(&mad, &to.sender) {
                        say(begin, &format!("FAILED: a datagram: {e}"));
                    }
                }
                Deed::Login { channel, data } => {
                    rules.login(channel, &for_rdma(&data), Port::Commands);
                }
                Deed::Established(channel) => rules.established(channel),
                Deed::Ended(channel) if reactor.has(channel) => reactor.disconnected(channel),
                Deed::Ended(channel) => rules.ended(channel),
            }
        }
        some
    }

    /// Accepts the request of a channel.
    pub(crate) fn accept(
        &mut self,
        reactor: &mut Reactor<Token>,
        channel: ChannelId,
        response: &[u8],
        receives: usize,
        len: usize,
    ) -> io::Result<()> {
        let request = self.requests.request(channel);
        let (request, origin) = request.ok_or(io::ErrorKind::NotFound)?;
        let device = self.agents[origin.agent].gsi.device();
        let sizes = [receives, len, QUEUED * receives];
        let qpn = reactor.join(channel, device, sizes, |domain, buffers| {
            Connection::respond(&request, domain, channel, buffers)
        })?;
        self.requests
            .accepted(channel, qpn, response, Instant::now());
        Ok(())
    }
}
