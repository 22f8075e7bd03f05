// SPDX-License-Identifier: GPL-2.0

//! A reactor of a listening target, with its thread.

use std::{
    collections::VecDeque,
    io,
    sync::mpsc::{channel, Receiver, Sender},
    time::Instant,
};

use verbs::{Buffer, Device, Events, Incoming, Trouble};

use super::{act, needs, no_memory, refused, Commands, Token};
use crate::{
    pool::Fatal,
    reactor::{Event, LinkId, Parked, Reactor, ENDING, EVENTS},
    target::{Action, Target},
    wake::{Waker, Woken},
    workers::{execute, Workers},
};

/// What other threads send.
pub(super) enum Mail {
    /// A connection request, whose events this reactor gets.
    Request(Incoming),
    /// An asynchronous event of a device that another reactor has read.
    Trouble(Device, Trouble),
    /// End the sessions, then the thread.
    Stop,
}

/// Sends to a thread.
#[derive(Clone)]
pub(super) struct Inbox {
    sender: Sender<Mail>,
    waker: Waker,
    /// The source of its reactor.
    pub(super) events: Events,
}

impl Inbox {
    pub(super) fn send(&self, mail: Mail) {
        // The thread may have ended.
        let _ = self.sender.send(mail);
        self.waker.wake();
    }
}

/// A reactor. Dropped in field order: writes end before the connections.
pub(super) struct Thread {
    workers: Commands,
    parked: Parked<Action<Buffer>>,
    reactor: Reactor<Token>,
    target: Target<Buffer>,
    mail: Receiver<Mail>,
    /// Requests of `mail` that wait for their turn.
    requests: VecDeque<Incoming>,
    woken: Woken,
    pub(super) others: Vec<Inbox>,
    end: Option<Instant>,
}

impl Thread {
    /// A thread that executes commands in `threads` more.
    pub(super) fn new(
        reactor: Reactor<Token>,
        target: Target<Buffer>,
        (woken, waker): (Woken, Waker),
        threads: usize,
    ) -> io::Result<(Self, Inbox)> {
        let (sender, mail) = channel();
        let events = reactor.events();
        let this = Self {
            workers: Workers::new(threads, execute)?,
            parked: Parked::default(),
            reactor,
            target,
            mail,
            requests: VecDeque::new(),
            woken,
            others: Vec::new(),
            end: None,
        };
        let inbox = Inbox {
            sender,
            waker,
            events,
        };
        Ok((this, inbox))
    }

    /// Runs until [`Mail::Stop`], then until all sessions have ended, at most 5 s.
    pub(super) fn run(mut self) -> io::Result<()> {
        let _fatal = Fatal;
        let mut more = false;
        loop {
            self.target.tell();
            let timeout = match () {
                () if more || !self.requests.is_empty() => 0,
                () if self.reactor.leaving() || self.end.is_some() => 100,
                () => -1,
            };
            let fds = [self.workers.fd(), self.woken.fd()];
            let ready = self.reactor.wait(&fds, timeout)?;
            if ready[1] {
                self.letters();
            }
            // One at a time: of many requests each is a turn.
            if let Some(incoming) = self.requests.pop_front() {
                self.reactor.arrive(incoming);
            }
            let mut turn = EVENTS;
            while turn > 0 {
                let Some(event) = self.reactor.poll()? else {
                    break;
                };
                turn -= 1;
                self.event(event);
                self.act();
            }
            more = turn == 0;
            if ready[0] {
                for (task, done) in self.workers.done() {
                    self.target.executed(task, done);
                    self.act();
                }
            }
            for id in self.reactor.late() {
                self.target.ended(id);
            }
            for id in self.parked.ended(&self.reactor) {
                self.resume(id);
            }
            self.act();
            for (device, trouble) in self.reactor.foreign() {
                for other in &self.others {
                    other.send(Mail::Trouble(device.clone(), trouble.clone()));
                }
            }
            let over = |end| self.target.idle() || Instant::now() > end;
            if self.end.is_some_and(over) {
                return Ok(());
            }
        }
    }

    fn letters(&mut self) {
        self.woken.clear();
        while let Ok(mail) = self.mail.try_recv() {
            match mail {
                Mail::Request(incoming) if self.end.is_none() => self.requests.push_back(incoming),
                // Its drop rejects it.
                Mail::Request(_) => {}
                Mail::Trouble(device, trouble) => self.reactor.hear(&device, &trouble),
                Mail::Stop => {
                    self.end = Some(Instant::now() + ENDING);
                    self.requests.clear();
                    self.target.shutdown();
                }
            }
        }
        self.target.obey();
        self.act();
    }

    fn event(&mut self, event: Event<Token>) {
        match event {
            Event::Login { id, data } => self.target.login(id, &data),
            Event::Refused { id, why } => refused(&mut self.target, id, &why),
            Event::Received { id, buffer, len } => self.target.received(id, buffer, len),
            Event::Done { id, token, buffer } => match (token, buffer) {
                (Token::Fetch(task), Some(buffer)) => self.target.fetched(task, buffer),
                (Token::Fetch(_), None) => {}
                (Token::Answer(task), buffer) => {
                    self.reactor.give(id, buffer);
                    self.target.sent(task);
                }
            },
            Event::Memory { id, registered } => {
                if !registered {
                    no_memory(&mut self.target, self.parked.first(id));
                }
                self.resume(id);
            }
            Event::Connected { .. } => {}
            Event::Ended { id, why } => {
                if let Some(why) = why {
                    tracing::warn!("channel {id}: connection lost: {why}");
                }
                self.target.ended(id);
            }
        }
    }

    fn act(&mut self) {
        loop {
            let actions = self.target.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                let need = needs(&self.target, &action);
                if let Some(action) = self.parked.pass(&mut self.reactor, need, action) {
                    self.carry_out(action);
                }
            }
        }
    }

    fn carry_out(&mut self, action: Action<Buffer>) {
        let (reactor, target) = (&mut self.reactor, &mut self.target);
        act(reactor, target, &self.workers, action, |token| token);
    }

    /// Carries out the actions of a connection that have waited for memory.
    fn resume(&mut self, id: LinkId) {
        while let Some(action) = self.parked.next(&mut self.reactor, id) {
            self.carry_out(action);
        }
    }
}
