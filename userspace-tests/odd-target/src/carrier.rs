// SPDX-License-Identifier: GPL-2.0

//! Carries out the steps of the rules on RDMA devices.

use std::{
    io,
    net::SocketAddr,
    os::fd::RawFd,
    sync::Arc,
    time::{Duration, Instant},
};

use odd_target::{
    orders::Order,
    rules::{Port, Rules, Step},
};
use srp_target::{
    fabric::{act, refused, Commands, Front, Token},
    reactor::{pieces, Event, Reactor, EVENTS},
    scsi::Unit,
    target::{Action, ChannelId, TaskId, Work},
    workers::{execute, Workers},
};
use verbs::{Buffer, Op};

use crate::{ib::Ib, say};

/// The error of work requests of a connection that has ended.
const FLUSHED: &str = "Work Request Flushed Error";
/// Interval of the checks of credits and closing connections, in milliseconds.
const TICK: i32 = 100;

/// The rules as seen by [`act`].
struct Behind(Rules<Buffer>);

impl Front for Behind {
    fn no_resources(&mut self, channel: ChannelId) {
        self.0.no_resources(channel);
    }

    fn ended(&mut self, channel: ChannelId) {
        self.0.ended(channel);
    }

    fn no_memory(&mut self, task: TaskId, work: Option<Work<Buffer>>) {
        self.0.no_memory(task, work.and_then(|w| w.out));
    }

    fn channel(&self, task: TaskId) -> Option<ChannelId> {
        self.0.channel(task)
    }
}

/// A target on RDMA devices. Dropped in field order.
pub(crate) struct Carrier {
    workers: Commands,
    reactor: Reactor<Token>,
    rules: Behind,
    /// The connection manager, unless it is RDMA/CM.
    ib: Option<Ib>,
    begin: Instant,
}

impl Carrier {
    fn new(begin: Instant, units: Vec<Arc<Unit>>, ib: Option<Ib>) -> io::Result<Self> {
        Ok(Self {
            // One thread executes the commands in their order.
            workers: Workers::new(1, execute)?,
            reactor: Reactor::calling()?,
            rules: Behind(Rules::new([0xaa; 16], units)),
            ib,
            begin,
        })
    }

    /// Listens with RDMA/CM.
    pub(crate) fn rdma(
        begin: Instant,
        units: Vec<Arc<Unit>>,
        commands: SocketAddr,
        answers: SocketAddr,
    ) -> io::Result<Self> {
        let mut this = Self::new(begin, units, None)?;
        this.reactor.listen(commands)?;
        this.reactor.listen(answers)?;
        Ok(this)
    }

    /// Listens with the InfiniBand CM.
    pub(crate) fn ib(
        begin: Instant,
        units: Vec<Arc<Unit>>,
        agents: &[(String, String)],
    ) -> io::Result<Self> {
        let ib = Ib::open(agents, |what| say(begin, what))?;
        Self::new(begin, units, Some(ib))
    }

    /// Descriptors that are readable when there is work.
    pub(crate) fn fds(&self) -> Vec<RawFd> {
        let mut fds = self.reactor.fds();
        fds.push(self.workers.fd());
        fds.extend(self.ib.iter().flat_map(Ib::fds));
        fds
    }

    /// Does pending work. Returns the time until the next work in milliseconds, or -1.
    pub(crate) fn turn(&mut self) -> io::Result<i32> {
        let mut left = EVENTS;
        while left > 0 {
            let Some(event) = self.reactor.poll()? else {
                break;
            };
            left -= 1;
            self.event(event);
            self.act();
        }
        for (task, done) in self.workers.done() {
            self.rules.0.executed(task, done);
            self.act();
        }
        for id in self.reactor.late() {
            self.ended(id);
        }
        let grants = self.rules.0.tick(Instant::now());
        self.act();
        let due = self.attend()?;
        Ok(match () {
            () if left == 0 => 0,
            () if due.is_some() || grants || self.reactor.leaving() => {
                let ms = due.map_or(TICK, |d| d.as_millis() as i32 + 1);
                ms.min(TICK)
            }
            () => -1,
        })
    }

    fn event(&mut self, event: Event<Token>) {
        let rules = &mut self.rules.0;
        match event {
            Event::Login { id, data } => {
                let port = match self.reactor.listener(id) {
                    Some(1) => Port::Answers,
                    _ => Port::Commands,
                };
                rules.login(id, &data, port);
            }
            Event::Refused { id, why } => refused(&mut self.rules, id, &why),
            Event::Connected { id } => rules.established(id),
            Event::Received { id, buffer, len } => rules.received(id, buffer, len),
            Event::Done { id, token, buffer } => match (token, buffer) {
                (Token::Fetch(task), Some(buffer)) => rules.fetched(task, buffer),
                (Token::Fetch(_), None) => {}
                (Token::Answer(task), buffer) => {
                    self.reactor.give(id, buffer);
                    rules.sent(task);
                }
            },
            Event::Memory { .. } => {}
            Event::Ended { id, why } => {
                if let Some(why) = why.filter(|why| why != FLUSHED) {
                    let number = rules.number(id).unwrap_or_default();
                    say(self.begin, &format!("error channel={number}: {why}"));
                }
                self.ended(id);
            }
        }
    }

    /// A connection has ended.
    fn ended(&mut self, id: ChannelId) {
        if let Some(ib) = &mut self.ib {
            ib.requests.closed(id);
        }
        self.rules.0.ended(id);
    }

    /// Does the work of the InfiniBand CM. Returns the time until the next work.
    fn attend(&mut self) -> io::Result<Option<Duration>> {
        let Some(ib) = &mut self.ib else {
            return Ok(None);
        };
        ib.listen()?;
        let due = ib.requests.attend(Instant::now());
        self.act();
        Ok(due.map(|due| due.saturating_duration_since(Instant::now())))
    }

    /// Carries out all pending steps of the rules and deeds of the connection manager.
    fn act(&mut self) {
        loop {
            let steps = self.rules.0.steps();
            let idle = steps.is_empty();
            for step in steps {
                self.step(step);
            }
            let manager = match &mut self.ib {
                Some(ib) => ib.act(&mut self.reactor, &mut self.rules.0, self.begin),
                None => false,
            };
            if idle && !manager {
                return;
            }
        }
    }

    fn step(&mut self, step: Step<Buffer>) {
        match (step, &mut self.ib) {
            (Step::Act(Action::Say(what)), _) => say(self.begin, &what),
            (
                Step::Act(Action::Accept {
                    channel,
                    response,
                    receives,
                    len,
                }),
                Some(ib),
            ) => {
                if let Err(e) = ib.accept(&mut self.reactor, channel, &response, receives, len) {
                    say(self.begin, &format!("FAILED: a connection: {e}"));
                    self.ended(channel);
                }
            }
            (Step::Act(Action::Reject { channel, response }), Some(ib)) => {
                ib.requests.refused(channel, &response);
            }
            (Step::Act(Action::Leave { channel, message }), Some(ib)) => {
                ib.requests.disconnect(channel);
                if self.reactor.leave(channel, message.as_deref()).is_err() {
                    self.ended(channel);
                }
            }
            (
                Step::Act(Action::Answer {
                    channel,
                    task,
                    data: Some((buffer, descriptors)),
                    message,
                }),
                _,
            ) => {
                // The rules may choose another connection than that of the buffer.
                let data = match self.reactor.adopt(channel, buffer) {
                    Ok(own) => Some((own, descriptors)),
                    Err(e) => return self.failed(channel, &e),
                };
                self.deed(Action::Answer {
                    channel,
                    task,
                    data,
                    message,
                });
            }
            (Step::Act(action), _) => self.deed(action),
            (
                Step::Answer {
                    channel,
                    data,
                    descriptors,
                    message,
                },
                _,
            ) => {
                if let Err(e) = self.answer(channel, &data, pieces(&descriptors), &message) {
                    self.failed(channel, &e);
                }
            }
        }
    }

    fn deed(&mut self, action: Action<Buffer>) {
        let (reactor, rules) = (&mut self.reactor, &mut self.rules);
        act(reactor, rules, &self.workers, action, |t| t);
    }

    fn failed(&self, channel: ChannelId, e: &io::Error) {
        let what = format!("cannot send on channel {channel}: {e}");
        say(self.begin, &what);
    }

    fn answer(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        pieces: Vec<verbs::Piece>,
        message: &[u8],
    ) -> io::Result<()> {
        let mut buffer = self.reactor.take(channel, data.len())?;
        buffer[..data.len()].copy_from_slice(data);
        self.reactor
            .queue(channel, None, Op::Write, buffer, pieces)?;
        self.reactor.send(channel, None, message)
    }

    /// Carries out an order. Returns false if it cannot.
    pub(crate) fn told(&mut self, order: Order) -> bool {
        let done = match (order, &mut self.ib) {
            (Order::Requests { count, steps }, Some(ib)) => {
                ib.requests.script(count, steps);
                true
            }
            (Order::ForgetRequests, Some(ib)) => {
                ib.requests.forget();
                true
            }
            (order, _) => self.rules.0.told(order),
        };
        self.act();
        done
    }
}
