// SPDX-License-Identifier: GPL-2.0

//! Does on RDMA devices what a [`Target`] wants to be done.

use std::{
    collections::HashMap,
    io,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use verbs::{
    Buffer, CmEvent, Completion, Connection, Device, Events, Incoming, Key, Listener, Op, Piece,
};

use crate::{
    proto::cmd::DirectBuf,
    target::{Action, ChannelId, Target, TaskId, Work},
    workers::Workers,
};

/// A connection that is to end has so long for it.
const LEAVING: Duration = Duration::from_secs(1);
/// Most memory for messages and data of one device, in bytes.
const MEMORY: usize = 512 << 20;

/// What a completion is for.
#[derive(Clone, Copy)]
enum Token {
    Data,
    Fetch(TaskId),
    Answer(Option<TaskId>),
    Logout,
}

struct Link {
    connection: Connection,
    device: usize,
    tokens: HashMap<u64, Token>,
    next: u64,
    until: Option<Instant>,
}

impl Link {
    fn queue(
        &mut self,
        token: Token,
        op: Op,
        buffer: Buffer,
        pieces: Vec<Piece>,
    ) -> io::Result<()> {
        self.tokens.insert(self.next, token);
        self.next += 1;
        self.connection.queue(self.next - 1, op, buffer, pieces)
    }

    fn send(&mut self, token: Token, mut buffer: Buffer, message: &[u8]) -> io::Result<()> {
        buffer[..message.len()].copy_from_slice(message);
        let len = message.len() as u32;
        self.queue(token, Op::Send, buffer, vec![Piece { va: 0, key: 0, len }])
    }
}

/// A device with memory that is free.
struct Host {
    device: Device,
    free: HashMap<usize, Vec<Buffer>>,
}

impl Host {
    /// A buffer of at least `len` bytes.
    fn take(&mut self, len: usize) -> io::Result<Buffer> {
        let size = len.next_power_of_two().max(4096);
        if let Some(buffer) = self.free.get_mut(&size).and_then(Vec::pop) {
            return Ok(buffer);
        }
        if self.device.registered() + size > MEMORY {
            self.free.clear();
        }
        if self.device.registered() + size > MEMORY {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let mut one = self.device.buffers(1, size)?;
        one.pop().ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn give(&mut self, buffer: Buffer) {
        self.free.entry(buffer.len()).or_default().push(buffer);
    }
}

fn pieces(list: &[DirectBuf]) -> Vec<Piece> {
    let piece = |d: &DirectBuf| Piece {
        va: d.va(),
        key: d.key(),
        len: d.len(),
    };
    list.iter().map(piece).collect()
}

/// A target that listens.
pub struct Fabric {
    // Dropped in this order: connections before the devices, the listener and the events.
    links: HashMap<ChannelId, Link>,
    waiting: HashMap<ChannelId, Incoming>,
    names: HashMap<Key, ChannelId>,
    next: ChannelId,
    target: Target<Buffer>,
    workers: Workers<Buffer>,
    hosts: Vec<Host>,
    devices: Vec<Device>,
    _listener: Listener,
    events: Events,
}

impl Fabric {
    /// Listens at an address and TCP port. Errors are those of the system.
    pub fn new(
        target: Target<Buffer>,
        address: &str,
        port: &str,
        threads: usize,
    ) -> io::Result<Self> {
        let events = Events::new()?;
        Ok(Self {
            links: HashMap::new(),
            waiting: HashMap::new(),
            names: HashMap::new(),
            next: 1,
            target,
            workers: Workers::new(threads)?,
            hosts: Vec::new(),
            devices: Vec::new(),
            _listener: Listener::new(&events, address, port)?,
            events,
        })
    }

    /// Works until `stop` can be read, and then until all sessions have ended, but 5 s at most.
    pub fn run(&mut self, stop: &impl AsRawFd) -> io::Result<()> {
        let mut end = None;
        loop {
            let mut fds = vec![stop.as_raw_fd(), self.events.fd(), self.workers.fd()];
            fds.extend(self.devices.iter().map(Device::fd));
            // Once it is told to stop, the descriptor stays readable.
            let watched = if end.is_some() { 1.. } else { 0.. };
            let timeout = if self.links.values().any(|l| l.until.is_some()) || end.is_some() {
                100
            } else {
                -1
            };
            let ready = verbs::os::wait(&fds[watched], timeout)?;
            if end.is_none() && ready.first() == Some(&true) {
                end = Some(Instant::now() + 5 * LEAVING);
                self.target.shutdown();
            }
            self.cm_events()?;
            self.completions();
            for (task, done) in self.workers.done() {
                self.target.executed(task, done);
                self.act();
            }
            self.act();
            self.late();
            if end.is_some_and(|end| self.target.idle() || Instant::now() > end) {
                return Ok(());
            }
        }
    }

    fn cm_events(&mut self) -> io::Result<()> {
        while let Some(event) = self.events.next()? {
            match event {
                CmEvent::Request(incoming) => {
                    let id = self.next;
                    self.next += 1;
                    self.names.insert(incoming.key(), id);
                    let data = incoming.data().to_vec();
                    self.waiting.insert(id, incoming);
                    self.target.login(id, &data);
                }
                CmEvent::Established(_) => {}
                CmEvent::Ended(key) => {
                    if let Some(&id) = self.names.get(&key) {
                        // What came before the end counts.
                        self.drain(id);
                        if let Some(link) = self.links.get_mut(&id) {
                            link.connection.disconnect();
                        }
                        self.close(id);
                    }
                }
            }
            self.act();
        }
        Ok(())
    }

    fn completions(&mut self) {
        let tokens: Vec<_> = self
            .devices
            .iter()
            .flat_map(|d| std::iter::from_fn(|| d.wakeup()))
            .collect();
        for id in tokens {
            self.drain(id);
        }
    }

    fn drain(&mut self, id: ChannelId) {
        while let Some(link) = self.links.get_mut(&id) {
            let Some(completion) = link.connection.poll() else {
                return;
            };
            match completion {
                Completion::Received { buffer, len } => self.target.received(id, buffer, len),
                Completion::Done { token, buffer } => {
                    let token = link.tokens.remove(&token);
                    self.done(id, token, buffer);
                }
                Completion::Failed(why) => {
                    println!("channel {id}: connection lost: {why}");
                    self.close(id);
                }
            }
            self.act();
        }
    }

    fn done(&mut self, id: ChannelId, token: Option<Token>, buffer: Buffer) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if let Some(Token::Fetch(task)) = token {
            return self.target.fetched(task, buffer);
        }
        if let Some(host) = self.hosts.get_mut(link.device) {
            host.give(buffer);
        }
        match token {
            Some(Token::Answer(Some(task))) => self.target.sent(task),
            Some(Token::Logout) => link.connection.disconnect(),
            _ => {}
        }
    }

    /// The connection is no more.
    fn close(&mut self, id: ChannelId) {
        self.names.retain(|_, name| *name != id);
        self.links.remove(&id);
        self.waiting.remove(&id);
        self.target.ended(id);
    }

    /// Connections that do not end in time are ended without the other side.
    fn late(&mut self) {
        let now = Instant::now();
        let late = |l: &Link| l.until.is_some_and(|until| now > until);
        let over: Vec<_> = self
            .links
            .iter()
            .filter(|(_, l)| late(l))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.close(id);
            self.act();
        }
    }

    fn act(&mut self) {
        loop {
            let actions = self.target.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.action(action);
            }
        }
    }

    fn action(&mut self, action: Action<Buffer>) {
        match action {
            Action::Say(what) => println!("{what}"),
            // Its units are here.
            Action::Dispatch { task, .. } => self.target.no_memory(task, None),
            Action::Cancel { .. } | Action::Gone { .. } => {}
            Action::Accept {
                channel,
                response,
                receives,
                len,
            } => self.accept(channel, &response, receives, len),
            Action::Reject { channel, response } => {
                self.names.retain(|_, name| *name != channel);
                if let Some(Err(e)) = self.waiting.remove(&channel).map(|i| i.reject(&response)) {
                    println!("channel {channel}: cannot refuse it: {e}");
                }
            }
            Action::Execute { task, work } => self.execute(task, work),
            Action::Receive { channel, buffer } => {
                self.with(channel, |link, _| link.connection.receive(buffer));
            }
            Action::Free { channel, buffer } => {
                self.with(channel, |_, host| {
                    host.give(buffer);
                    Ok(())
                });
            }
            Action::Fetch {
                channel,
                task,
                from,
            } => self.fetch(channel, task, &from),
            Action::Answer {
                channel,
                task,
                data,
                message,
            } => {
                self.with(channel, |link, host| {
                    if let Some((buffer, places)) = data {
                        link.queue(Token::Data, Op::Write, buffer, pieces(&places))?;
                    }
                    link.send(Token::Answer(task), host.take(message.len())?, &message)
                });
            }
            Action::Leave { channel, message } => self.leave(channel, message),
        }
    }

    /// Does something with a connection, which ends if that fails.
    fn with(&mut self, id: ChannelId, what: impl FnOnce(&mut Link, &mut Host) -> io::Result<()>) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let Some(host) = self.hosts.get_mut(link.device) else {
            return;
        };
        if let Err(e) = what(link, host) {
            println!("channel {id}: {e}");
            self.close(id);
        }
    }

    fn accept(&mut self, id: ChannelId, response: &[u8], receives: usize, len: usize) {
        let Some(incoming) = self.waiting.get(&id) else {
            return self.target.ended(id);
        };
        let made = incoming.device(&mut self.devices).and_then(|device| {
            if device.registered() + receives * len > MEMORY {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            Ok((device.buffers(receives, len)?, device))
        });
        for device in &self.devices[self.hosts.len()..] {
            self.hosts.push(Host {
                device: device.clone(),
                free: HashMap::new(),
            });
        }
        let (buffers, device) = match made {
            Ok(made) => made,
            Err(e) => {
                println!("channel {id}: cannot accept it: {e}");
                return self.target.no_resources(id);
            }
        };
        let Some(incoming) = self.waiting.remove(&id) else {
            return;
        };
        let fd = device.fd();
        let index = self.devices.iter().position(|d| d.fd() == fd);
        match Connection::accept(incoming, &device, id, buffers, response) {
            Ok(connection) => {
                let link = Link {
                    connection,
                    device: index.unwrap_or(0),
                    tokens: HashMap::new(),
                    next: 0,
                    until: None,
                };
                self.links.insert(id, link);
            }
            Err(e) => {
                println!("channel {id}: cannot accept it: {e}");
                self.close(id);
            }
        }
    }

    fn fetch(&mut self, id: ChannelId, task: TaskId, from: &[DirectBuf]) {
        let len: usize = from.iter().map(|d| d.len() as usize).sum();
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let memory = self.hosts.get_mut(link.device).map(|host| host.take(len));
        let Some(Ok(buffer)) = memory else {
            return self.target.no_memory(task, None);
        };
        self.with(id, |link, _| {
            link.queue(Token::Fetch(task), Op::Read, buffer, pieces(from))
        });
    }

    fn execute(&mut self, task: TaskId, work: Work<Buffer>) {
        let mut into = None;
        if work.into > 0 {
            // The data goes out through the same channel.
            let id = self.target.channel(task);
            let link = id.and_then(|id| self.links.get(&id));
            let host = link.and_then(|link| self.hosts.get_mut(link.device));
            match host.map(|host| host.take(work.into)) {
                Some(Ok(buffer)) => into = Some(buffer),
                _ => return self.target.no_memory(task, work.out),
            }
        }
        self.workers.execute(task, work, into);
    }

    fn leave(&mut self, id: ChannelId, message: Option<Vec<u8>>) {
        if self.waiting.contains_key(&id) {
            return self.close(id);
        }
        self.with(id, |link, host| {
            link.until = Some(Instant::now() + LEAVING);
            match message {
                Some(message) => link.send(Token::Logout, host.take(message.len())?, &message),
                None => {
                    link.connection.disconnect();
                    Ok(())
                }
            }
        });
    }
}
