// SPDX-License-Identifier: GPL-2.0

//! Encoding of messages.

use super::{
    Broken, Exec, Extent, Message, Role, Scope, Status, Transfer, Zero, DESCRIPTORS, EXTENTS,
    EXTENT_LEN, LEN, MAX_LEN,
};
use srp_target::proto::cmd::DirectBuf;

mod opcode {
    pub(super) const ATTACH: u8 = 1;
    pub(super) const ATTACHED: u8 = 2;
    pub(super) const JOIN: u8 = 3;
    pub(super) const JOINED: u8 = 4;
    pub(super) const LEFT: u8 = 5;
    pub(super) const EXEC: u8 = 6;
    pub(super) const DONE: u8 = 7;
    pub(super) const CANCEL: u8 = 8;
    pub(super) const CANCELLED: u8 = 9;
    pub(super) const FENCE: u8 = 10;
    pub(super) const FENCED: u8 = 11;
    pub(super) const GET: u8 = 12;
    pub(super) const PUT: u8 = 13;
    pub(super) const OPEN: u8 = 14;
    pub(super) const FLUSH: u8 = 15;
    pub(super) const ALIVE: u8 = 16;
    pub(super) const GRANT: u8 = 17;
    pub(super) const ZERO: u8 = 18;
}

/// Bits of byte 1 of EXEC, GET, PUT and ZERO.
const WRITE: u8 = 1;
const ANSWER: u8 = 2;
const STABLE: u8 = 4;
const ZERO: u8 = 8;
const UNMAP: u8 = 16;
const DIRECT: u8 = 32;

const STATUSES: [Status; 8] = [
    Status::Good,
    Status::Answered,
    Status::Lost,
    Status::Stale,
    Status::Invalid,
    Status::ReadError,
    Status::WriteError,
    Status::Full,
];

fn status(code: u8) -> Result<Status, Broken> {
    STATUSES
        .get(usize::from(code))
        .copied()
        .ok_or(Broken::Byte(1))
}

fn scope(code: u8) -> Result<Scope, Broken> {
    let all = [Scope::Session, Scope::Member, Scope::All];
    let found = all.into_iter().find(|s| *s as u8 == code);
    found.ok_or(Broken::Byte(1))
}

/// Writes fields at fixed offsets.
struct Out(Vec<u8>);

impl Out {
    fn new(opcode: u8, small: u8) -> Self {
        let mut bytes = vec![0; LEN];
        bytes[0] = opcode;
        bytes[1] = small;
        Self(bytes)
    }

    fn put<const N: usize>(mut self, at: usize, bytes: [u8; N]) -> Self {
        self.0[at..at + N].copy_from_slice(&bytes);
        self
    }

    fn number(self, n: u32) -> Self {
        self.put(4, n.to_be_bytes())
    }

    fn id(self, n: u64) -> Self {
        self.put(8, n.to_be_bytes())
    }

    fn epoch(self, n: u64) -> Self {
        self.put(16, n.to_be_bytes())
    }
}

/// Reads fields at fixed offsets, and checks that all other bytes are zero.
struct In<'a> {
    bytes: &'a [u8],
    /// Whether each byte has been read.
    read: [bool; MAX_LEN],
}

impl In<'_> {
    /// Reads `N` bytes at `at`. The caller has checked the length.
    fn take<const N: usize>(&mut self, at: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[at..at + N]);
        self.read[at..at + N].fill(true);
        field
    }

    fn u32(&mut self, at: usize) -> u32 {
        u32::from_be_bytes(self.take(at))
    }

    fn u64(&mut self, at: usize) -> u64 {
        u64::from_be_bytes(self.take(at))
    }

    fn small(&mut self) -> u8 {
        self.take::<1>(1)[0]
    }

    fn number(&mut self) -> u32 {
        self.u32(4)
    }

    fn id(&mut self) -> u64 {
        self.u64(8)
    }

    fn epoch(&mut self) -> u64 {
        self.u64(16)
    }

    fn rest(&self) -> Result<(), Broken> {
        let mut all = self.bytes.iter().zip(self.read);
        match all.position(|(byte, read)| !read && *byte != 0) {
            Some(at) => Err(Broken::Byte(at)),
            None => Ok(()),
        }
    }
}

fn transfer(opcode: u8, t: &Transfer, how: Option<Zero>) -> Out {
    Out::new(opcode, zero_bits(how) | if t.stable { STABLE } else { 0 })
        .number(t.object)
        .id(t.id)
        .put(24, t.at.to_be_bytes())
        .put(32, t.blocks.to_be_bytes())
        .put(36, t.key.to_be_bytes())
        .put(40, t.va.to_be_bytes())
}

fn zero_bits(zero: Option<Zero>) -> u8 {
    match zero {
        None => 0,
        Some(Zero::Write) => ZERO,
        Some(Zero::Unmap) => ZERO | UNMAP,
    }
}

fn zero(flags: u8) -> Result<Option<Zero>, Broken> {
    match flags & (ZERO | UNMAP) {
        0 => Ok(None),
        ZERO => Ok(Some(Zero::Write)),
        UNMAP => Err(Broken::Byte(1)),
        _ => Ok(Some(Zero::Unmap)),
    }
}

fn fence(opcode: u8, scope: Scope, member: u32, epoch: u64) -> Out {
    Out::new(opcode, scope as u8).number(member).epoch(epoch)
}

impl Message {
    /// Encodes the message.
    ///
    /// # Panics
    ///
    /// Panics if the lists of an EXEC are too long.
    pub fn build(&self) -> Vec<u8> {
        let out = match self {
            Self::Attach {
                role,
                member,
                epoch,
            } => Out::new(opcode::ATTACH, *role as u8)
                .number(*member)
                .epoch(*epoch),
            Self::Attached {
                status,
                number,
                epoch,
                boot,
            } => Out::new(opcode::ATTACHED, *status as u8)
                .number(*number)
                .epoch(*epoch)
                .put(24, boot.to_be_bytes()),
            Self::Join { id, initiator } => Out::new(opcode::JOIN, 0).id(*id).put(24, *initiator),
            Self::Joined {
                status,
                id,
                session,
            } => Out::new(opcode::JOINED, *status as u8)
                .id(*id)
                .epoch(*session),
            Self::Left {
                status,
                id,
                session,
            } => Out::new(opcode::LEFT, *status as u8)
                .id(*id)
                .epoch(*session),
            Self::Exec(exec) => return exec.build(),
            Self::Done { status, id, value } => Out::new(opcode::DONE, *status as u8)
                .id(*id)
                .put(24, value.to_be_bytes()),
            Self::Cancel { id } => Out::new(opcode::CANCEL, 0).id(*id),
            Self::Cancelled { id } => Out::new(opcode::CANCELLED, 0).id(*id),
            Self::Fence {
                scope,
                member,
                epoch,
            } => fence(opcode::FENCE, *scope, *member, *epoch),
            Self::Fenced {
                scope,
                member,
                epoch,
            } => fence(opcode::FENCED, *scope, *member, *epoch),
            Self::Get(t) => transfer(opcode::GET, t, None),
            Self::Put(t) => transfer(opcode::PUT, t, None),
            Self::Zero(t, how) => transfer(opcode::ZERO, t, Some(*how)),
            Self::Open { id, object } => Out::new(opcode::OPEN, 0).number(*object).id(*id),
            Self::Flush { id, object } => Out::new(opcode::FLUSH, 0).number(*object).id(*id),
            Self::Alive => Out::new(opcode::ALIVE, 0),
            Self::Grant { count } => Out::new(opcode::GRANT, 0).number(*count),
        };
        out.0
    }

    /// Returns whether a message is for the connection, or says of which role it is.
    pub fn is_of_link(bytes: &[u8]) -> bool {
        let codes = [opcode::GRANT, opcode::ATTACH, opcode::ATTACHED];
        bytes.first().is_some_and(|code| codes.contains(code))
    }

    /// Parses a complete message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Broken> {
        let len = Broken::Len(bytes.len());
        if bytes.len() < LEN || bytes.len() > MAX_LEN {
            return Err(len);
        }
        let code = bytes[0];
        if code != opcode::EXEC && bytes.len() != LEN {
            return Err(len);
        }
        let mut r = In {
            bytes,
            read: [false; MAX_LEN],
        };
        r.read[0] = true;
        let message = match code {
            opcode::ATTACH => Self::Attach {
                role: match r.small() {
                    1 => Role::Se,
                    2 => Role::Ce,
                    _ => return Err(Broken::Byte(1)),
                },
                member: r.number(),
                epoch: r.epoch(),
            },
            opcode::ATTACHED => Self::Attached {
                status: status(r.small())?,
                number: r.number(),
                epoch: r.epoch(),
                boot: r.u64(24),
            },
            opcode::JOIN => Self::Join {
                id: r.id(),
                initiator: r.take(24),
            },
            opcode::JOINED => Self::Joined {
                status: status(r.small())?,
                id: r.id(),
                session: r.epoch(),
            },
            opcode::LEFT => Self::Left {
                status: status(r.small())?,
                id: r.id(),
                session: r.epoch(),
            },
            opcode::EXEC => Self::Exec(Exec::parse(&mut r)?),
            opcode::DONE => Self::Done {
                status: status(r.small())?,
                id: r.id(),
                value: r.u64(24),
            },
            opcode::CANCEL => Self::Cancel { id: r.id() },
            opcode::CANCELLED => Self::Cancelled { id: r.id() },
            opcode::FENCE => Self::Fence {
                scope: scope(r.small())?,
                member: r.number(),
                epoch: r.epoch(),
            },
            opcode::FENCED => Self::Fenced {
                scope: scope(r.small())?,
                member: r.number(),
                epoch: r.epoch(),
            },
            opcode::GET => Self::Get(Transfer::parse(&mut r, false)?.0),
            opcode::PUT => Self::Put(Transfer::parse(&mut r, false)?.0),
            opcode::ZERO => match Transfer::parse(&mut r, true)? {
                (transfer, Some(how)) => Self::Zero(transfer, how),
                (_, None) => return Err(Broken::Byte(1)),
            },
            opcode::OPEN => Self::Open {
                object: r.number(),
                id: r.id(),
            },
            opcode::FLUSH => Self::Flush {
                object: r.number(),
                id: r.id(),
            },
            opcode::ALIVE => Self::Alive,
            opcode::GRANT => match r.number() {
                0 => return Err(Broken::Byte(4)),
                count => Self::Grant { count },
            },
            other => return Err(Broken::Opcode(other)),
        };
        r.rest()?;
        Ok(message)
    }
}

impl Transfer {
    fn parse(r: &mut In<'_>, zeros: bool) -> Result<(Self, Option<Zero>), Broken> {
        let flags = r.small();
        let how = zero(flags)?;
        if flags & !(STABLE | ZERO | UNMAP) != 0 || how.is_some() != zeros {
            return Err(Broken::Byte(1));
        }
        // Without a transfer the address and the rkey are zero.
        let (va, key) = if zeros {
            (0, 0)
        } else {
            (r.u64(40), r.u32(36))
        };
        let this = Self {
            id: r.id(),
            object: r.number(),
            at: r.u64(24),
            blocks: r.u32(32),
            stable: flags & STABLE != 0,
            va,
            key,
        };
        if this.blocks == 0 {
            return Err(Broken::Byte(32));
        }
        Ok((this, how))
    }
}

impl Exec {
    fn build(&self) -> Vec<u8> {
        let (extents, descriptors) = (self.extents.len(), self.descriptors.len());
        assert!((1..=EXTENTS).contains(&extents) && descriptors <= DESCRIPTORS);
        let bit = |set, bit| if set { bit } else { 0 };
        let flags = bit(self.write, WRITE)
            | bit(self.answer, ANSWER)
            | bit(self.stable, STABLE)
            | bit(self.direct, DIRECT)
            | zero_bits(self.zero);
        let mut bytes = Out::new(opcode::EXEC, flags)
            .put(2, [extents as u8, descriptors as u8])
            .id(self.id)
            .epoch(self.session)
            .put(24, self.tag.to_be_bytes())
            .put(32, self.room.to_be_bytes())
            .put(36, self.credits.to_be_bytes())
            .0;
        for e in &self.extents {
            bytes.extend_from_slice(&e.store.to_be_bytes());
            bytes.extend_from_slice(&e.object.to_be_bytes());
            bytes.extend_from_slice(&e.at.to_be_bytes());
            bytes.extend_from_slice(&e.epoch.to_be_bytes());
            bytes.extend_from_slice(&e.blocks.to_be_bytes());
            bytes.extend_from_slice(&[0; 4]);
        }
        for p in &self.descriptors {
            bytes.extend_from_slice(&p.va().to_be_bytes());
            bytes.extend_from_slice(&p.key().to_be_bytes());
            bytes.extend_from_slice(&p.len().to_be_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(LEN), 0);
        bytes
    }

    fn parse(r: &mut In<'_>) -> Result<Self, Broken> {
        let flags = r.small();
        let [extents, descriptors] = r.take(2).map(usize::from);
        let zero = zero(flags)?;
        let all = WRITE | ANSWER | STABLE | ZERO | UNMAP | DIRECT;
        let zeros = zero.is_some() && flags & (WRITE | ANSWER) != WRITE;
        if flags & !all != 0 || zeros || flags & (ANSWER | DIRECT) == DIRECT {
            return Err(Broken::Byte(1));
        }
        if !(1..=EXTENTS).contains(&extents) {
            return Err(Broken::Byte(2));
        }
        if descriptors > DESCRIPTORS || zero.is_some() && descriptors > 0 {
            return Err(Broken::Byte(3));
        }
        let behind = LEN + extents * EXTENT_LEN;
        let end = behind + descriptors * DirectBuf::LEN;
        if r.bytes.len() != end.next_multiple_of(LEN) {
            return Err(Broken::Len(r.bytes.len()));
        }
        let mut this = Self {
            id: r.id(),
            session: r.epoch(),
            write: flags & WRITE != 0,
            answer: flags & ANSWER != 0,
            stable: flags & STABLE != 0,
            direct: flags & DIRECT != 0,
            zero,
            tag: r.u64(24),
            room: r.u32(32),
            credits: i32::from_be_bytes(r.take(36)),
            extents: Vec::new(),
            descriptors: Vec::new(),
        };
        for at in (LEN..behind).step_by(EXTENT_LEN) {
            this.extents.push(Extent {
                store: r.u32(at),
                object: r.u32(at + 4),
                at: r.u64(at + 8),
                epoch: r.u64(at + 16),
                blocks: r.u32(at + 24),
            });
            if this.extents.last().is_some_and(|e| e.blocks == 0) {
                return Err(Broken::Byte(at + 24));
            }
        }
        for at in (behind..end).step_by(DirectBuf::LEN) {
            let (va, key, len) = (r.u64(at), r.u32(at + 8), r.u32(at + 12));
            this.descriptors.push(DirectBuf::new(va, key, len));
        }
        Ok(this)
    }
}
