// SPDX-License-Identifier: GPL-2.0

//! Connections to the target under test.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use seeded::Rng;
use srp_target::{
    proto::{
        cmd::{Cmd, DirectBuf, Direction},
        ids::{Lun, PortId},
        login_iu::{LoginReqRdma, MultiChannel, Requested},
        opcode,
    },
    reactor::{Event, LinkId, Reactor},
};
use verbs::{Arena, Op, Piece};

/// A fault that a case finds.
pub(crate) type Fault = String;

/// Length of the memory that the target may access, in bytes.
pub(crate) const MEMORY: u32 = 1 << 20;
/// The unit under test.
const UNIT: u64 = 1;
/// Maximum request length of a usual login, in bytes.
pub(crate) const IU_LEN: u32 = 256;
/// Number of receive buffers.
const RECEIVES: usize = 256;
/// Timeout of each wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// One or many initiators.
pub(crate) struct Peer {
    pub(crate) reactor: Reactor<()>,
    pub(crate) to: SocketAddr,
    target: PortId,
    initiators: u64,
    tags: u64,
    random: Rng,
    /// Why the last connection was refused.
    why: String,
}

fn fault(e: io::Error) -> Fault {
    e.to_string()
}

/// The CDB of a READ (10) or WRITE (10).
fn cdb10(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let (l, b) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [opcode, 0, l[0], l[1], l[2], l[3], 0, b[0], b[1], 0]
}

impl Peer {
    pub(crate) fn new(to: SocketAddr, target: PortId) -> io::Result<Self> {
        let mut reactor = Reactor::calling()?;
        reactor.share(Arena::new(MEMORY as usize)?);
        Ok(Self {
            reactor,
            to,
            target,
            initiators: u64::from(std::process::id()) << 32,
            tags: 0,
            random: Rng(0),
            why: String::new(),
        })
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random.next()
    }

    pub(crate) fn tag(&mut self) -> u64 {
        self.tags += 1;
        self.tags
    }

    /// A valid login of a new initiator.
    pub(crate) fn requested(&mut self) -> Requested {
        self.initiators += 1;
        Requested {
            tag: self.tag(),
            max_it_iu_len: IU_LEN,
            descriptors: 12,
            immediate: 0,
            multichannel: MultiChannel::Single,
            initiator: PortId::new(
                srp_target::proto::guid::IoClass::Rev16a,
                self.initiators,
                0xbad,
            ),
            target: self.target,
        }
    }

    /// Polls until `found` returns a result for an event, or the timeout expires.
    pub(crate) fn until<R>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&mut Reactor<()>, Event<()>) -> Option<R>,
    ) -> Result<R, Fault> {
        let end = Instant::now() + PATIENCE;
        loop {
            while let Some(event) = self.reactor.poll().map_err(fault)? {
                if let Some(found) = found(&mut self.reactor, event) {
                    return Ok(found);
                }
            }
            if Instant::now() > end {
                return Err(format!("waited in vain for {what}"));
            }
            verbs::os::wait(&self.reactor.fds(), 100).map_err(fault)?;
        }
    }

    /// Handles events for this time and reposts receive buffers.
    pub(crate) fn pass(&mut self, time: Duration) -> Result<(), Fault> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            while let Some(event) = self.reactor.poll().map_err(fault)? {
                if let Event::Received { id, buffer, .. } = event {
                    let _ = self.reactor.receive(id, buffer);
                }
            }
            verbs::os::wait(&self.reactor.fds(), 5).map_err(fault)?;
        }
        Ok(())
    }

    /// Connects with this private data and number of receive buffers; `None` if the target rejects.
    pub(crate) fn connect(
        &mut self,
        data: &[u8],
        receives: usize,
    ) -> Result<Option<LinkId>, Fault> {
        let link = self.reactor.connect(self.to, data, receives, 128);
        let link = link.map_err(fault)?;
        let found = self.until("a connection or its refusal", |_, event| match event {
            Event::Connected { id } if id == link => Some(Ok(id)),
            Event::Ended { id, why } if id == link => Some(Err(why.unwrap_or_default())),
            _ => None,
        });
        let found = found.map(|found| found.map_err(|why| self.why = why).ok());
        // siw loses the wakeup for a message that arrives before its peer has completed the
        // handshake.
        std::thread::sleep(Duration::from_millis(20));
        found
    }

    /// The fault that this is refused, which [`Peer::connect`] has just tried.
    pub(crate) fn refused(&self, what: &str) -> Fault {
        format!("{what} was refused: {}", self.why)
    }

    /// Starts a connection without waiting for it.
    pub(crate) fn begin(&mut self) -> Result<LinkId, Fault> {
        let data = self.requested();
        let data = LoginReqRdma::new(&data);
        let link = self.reactor.connect(self.to, data.as_bytes(), 4, 128);
        link.map_err(fault)
    }

    /// Logs in; `None` if the target rejects.
    pub(crate) fn try_login(&mut self, what: &Requested) -> Result<Option<LinkId>, Fault> {
        self.connect(LoginReqRdma::new(what).as_bytes(), RECEIVES)
    }

    /// Logs in as a new initiator and clears the unit attention. A reject is an error.
    pub(crate) fn login(&mut self) -> Result<LinkId, Fault> {
        let what = self.requested();
        let link = self.try_login(&what)?;
        let link = link.ok_or_else(|| self.refused("a good login"))?;
        let ready = self.command(&[0; 6], Direction::None, &none());
        self.send(link, &ready)?;
        self.answer(link)?;
        Ok(link)
    }

    /// Builds a command to the unit, with one data buffer.
    pub(crate) fn command(
        &mut self,
        cdb: &[u8],
        direction: Direction,
        place: &DirectBuf,
    ) -> Vec<u8> {
        let mut iu = vec![0; IU_LEN as usize];
        let (tag, lun) = (self.tag(), Lun::from_int(UNIT));
        let cmd = Cmd { tag, lun, cdb };
        let built = match direction {
            Direction::None => cmd.build(&mut iu),
            _ => cmd.build_direct(&mut iu, direction, place),
        };
        // `IU_LEN` is sufficient for every command here.
        iu.truncate(built.unwrap_or(0));
        iu
    }

    /// Builds a READ (10) of blocks into a buffer, or a WRITE (10) from it.
    pub(crate) fn transfer(&mut self, write: bool, blocks: u16, place: &DirectBuf) -> Vec<u8> {
        let lba = self.random() as u32 % 1024;
        let (opcode, direction) = match write {
            true => (0x2a, Direction::ToDevice),
            false => (0x28, Direction::FromDevice),
        };
        self.command(&cdb10(opcode, lba, blocks), direction, place)
    }

    /// Builds a write with a one-entry table that is not in the message.
    pub(crate) fn with_table(&mut self, table: &DirectBuf, total: u32) -> Vec<u8> {
        let mut iu = self.transfer(true, 1, &none());
        // Indirect format without descriptors in the message. The total length follows the table
        // descriptor.
        iu[5] = 0x20;
        iu.truncate(48);
        iu.extend_from_slice(&table.va().to_be_bytes());
        iu.extend_from_slice(&table.key().to_be_bytes());
        iu.extend_from_slice(&table.len().to_be_bytes());
        iu.extend_from_slice(&total.to_be_bytes());
        iu
    }

    pub(crate) fn send(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), Fault> {
        self.reactor.send(link, None, bytes).map_err(fault)
    }

    /// Waits for the next response and returns its SCSI status.
    pub(crate) fn answer(&mut self, link: LinkId) -> Result<u8, Fault> {
        let got = self.until("an answer", |reactor, event| match event {
            Event::Received { id, buffer, len } if id == link => {
                let rsp = buffer[..len].to_vec();
                let _ = reactor.receive(id, buffer);
                Some(Ok(rsp))
            }
            Event::Ended { id, why } if id == link => Some(Err(why)),
            _ => None,
        })?;
        let rsp = got.map_err(|why| format!("the connection ended: {why:?}"))?;
        match rsp.first() {
            Some(&opcode::RSP) if rsp.len() >= 36 => Ok(rsp[19]),
            _ => Err(format!("no response: {rsp:02x?}")),
        }
    }

    /// Waits until the target ends a connection; if `told`, with an `SRP_T_LOGOUT` for an invalid
    /// message.
    pub(crate) fn ends(&mut self, link: LinkId, told: bool) -> Result<(), Fault> {
        let mut logout = None;
        self.until("the end of a connection", |reactor, event| match event {
            Event::Received { id, buffer, len } if id == link => {
                if buffer[0] == opcode::T_LOGOUT && len >= 8 {
                    logout = Some(buffer[7]);
                }
                let _ = reactor.receive(id, buffer);
                None
            }
            // Ignore the write completion: with iWARP it only means that the data is sent.
            Event::Ended { id, .. } if id == link => Some(()),
            _ => None,
        })?;
        if told && logout != Some(2) {
            return Err(format!("the last word is {logout:?}"));
        }
        Ok(())
    }

    /// Waits until two connections have ended, in any order.
    pub(crate) fn end_of_both(&mut self, one: LinkId, other: LinkId) -> Result<(), Fault> {
        let mut left = vec![one, other];
        self.until("the end of two connections", |reactor, event| match event {
            Event::Received { id, buffer, .. } => {
                let _ = reactor.receive(id, buffer);
                None
            }
            Event::Ended { id, .. } => {
                left.retain(|link| *link != id);
                left.is_empty().then_some(())
            }
            _ => None,
        })
    }

    /// Starts an RDMA WRITE to target memory.
    pub(crate) fn reach(&mut self, link: LinkId, va: u64, key: u32) -> Result<(), Fault> {
        let buffer = self.reactor.take(link, 4096).map_err(fault)?;
        let piece = Piece { va, key, len: 4096 };
        let queued = self
            .reactor
            .queue(link, Some(()), Op::Write, buffer, vec![piece]);
        queued.map_err(fault)
    }

    /// The memory that the target may access through a connection.
    pub(crate) fn memory(&mut self, link: LinkId) -> Result<DirectBuf, Fault> {
        if self.reactor.arena(link).is_none() {
            self.reactor.offer(link, ()).map_err(fault)?;
            let done = |reactor: &mut Reactor<()>, event| match event {
                Event::Received { id, buffer, .. } => {
                    let _ = reactor.receive(id, buffer);
                    None
                }
                Event::Done { id, .. } if id == link => Some(Ok(())),
                Event::Ended { id, why } if id == link => Some(Err(why)),
                _ => None,
            };
            let offered = self.until("the registration of memory", done)?;
            offered.map_err(|why| format!("the connection ended: {why:?}"))?;
        }
        let (va, key) = self.reactor.arena(link).ok_or("no memory")?;
        Ok(DirectBuf::new(va, key, MEMORY))
    }

    /// Runs an honest session: writes and reads a block.
    pub(crate) fn honest(&mut self) -> Result<(), Fault> {
        let link = self.login()?;
        let memory = self.memory(link)?;
        let block = DirectBuf::new(memory.va(), memory.key(), 512);
        for write in [true, false] {
            let command = self.transfer(write, 1, &block);
            self.send(link, &command)?;
            match self.answer(link)? {
                0 => {}
                status => return Err(format!("status {status:#x}")),
            }
        }
        self.reactor.close(link);
        Ok(())
    }
}

/// An empty buffer.
pub(crate) fn none() -> DirectBuf {
    DirectBuf::new(0, 0, 0)
}
