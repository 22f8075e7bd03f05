// SPDX-License-Identifier: GPL-2.0

//! The attacks on the port of a CE or an RS, where initiators with a session log in. Each may end
//! its own connection and its own session, and nothing else.

use std::net::SocketAddr;

use srp_target::{
    proto::{
        ids::PortId,
        login_iu::{LoginReqRdma, MultiChannel, Requested},
        opcode,
    },
    reactor::LinkId,
};

use crate::peer::{Fault, Peer};

/// A CE or an RS under attack.
pub(crate) struct Answers {
    pub(crate) peer: Peer,
    pub(crate) to: SocketAddr,
    /// Whether the port takes roles with a key, too.
    pub(crate) roles: bool,
    pub(crate) se: SocketAddr,
    /// An initiator that may log in and has no session.
    pub(crate) listed: PortId,
    /// An initiator with a session and an answer channel.
    pub(crate) victim: PortId,
}

type Case = (&'static str, fn(&mut Answers) -> Result<String, Fault>);

const CASES: &[Case] = &[
    ("roles and others", Answers::strangers),
    ("malformed logins", Answers::logins),
    ("an initiator with a session", Answers::twice),
    ("messages on an answer channel", Answers::messages),
    ("memory", Answers::memory),
];

impl Answers {
    /// Runs all cases. Prints a line for each.
    pub(crate) fn run(mut self) -> Result<(), Fault> {
        for (name, case) in CASES {
            let said = case(&mut self).map_err(|e| format!("{name}: {e}"))?;
            // The port still takes others.
            let session = self.session();
            let (main, answers) = session.map_err(|e| format!("after {name}: {e}"))?;
            self.peer.reactor.close(answers);
            self.peer.reactor.close(main);
            println!("{name}: {said}");
        }
        println!("ended");
        Ok(())
    }

    fn login(&mut self, initiator: PortId) -> Requested {
        let mut login = self.peer.requested();
        login.initiator = initiator;
        login.multichannel = MultiChannel::Multi;
        login
    }

    /// A session without an answer channel.
    fn main(&mut self) -> Result<LinkId, Fault> {
        let mut login = self.login(self.listed);
        login.multichannel = MultiChannel::Single;
        self.peer.to = self.se;
        let main = self.peer.try_login(&login)?;
        self.peer.to = self.to;
        main.ok_or_else(|| "the SE refuses a good login".into())
    }

    /// A session with an answer channel.
    fn session(&mut self) -> Result<(LinkId, LinkId), Fault> {
        let main = self.main()?;
        let login = self.login(self.listed);
        let answers = self.peer.try_login(&login)?;
        let answers = answers.ok_or_else(|| self.peer.refused("a good login"))?;
        Ok((main, answers))
    }

    /// Connects with this private data, which has to be refused.
    fn refused(&mut self, data: &[u8]) -> Result<(), Fault> {
        match self.peer.connect(data, 4)? {
            None => Ok(()),
            Some(_) => Err(format!("{data:02x?} was let in")),
        }
    }

    fn strangers(&mut self) -> Result<String, Fault> {
        let all: [&[u8]; 7] = [
            wss::fabric::PRIVATE,
            wss::fabric::KEYED,
            xorset::fabric::PRIVATE,
            xorset::fabric::KEYED,
            b"",
            b"x",
            &[0xff; 56],
        ];
        let of_roles = |data: &&&[u8]| self.roles && **data == wss::fabric::KEYED.as_slice();
        let all: Vec<_> = all.iter().filter(|data| !of_roles(data)).collect();
        for data in &all {
            self.refused(data)?;
        }
        Ok(format!("{} refused", all.len()))
    }

    fn logins(&mut self) -> Result<String, Fault> {
        let good = self.login(self.listed);
        // Without a session: also the one that may log in.
        let unknown = self.peer.requested().initiator;
        let strangers = [self.listed, unknown, PortId([0; 16]), PortId([0xff; 16])];
        for initiator in strangers {
            let login = Requested { initiator, ..good };
            self.refused(LoginReqRdma::new(&login).as_bytes())?;
        }
        let main = self.main()?;
        let mut all = Vec::new();
        all.push(Requested {
            multichannel: MultiChannel::Single,
            ..good
        });
        all.push(Requested {
            target: PortId([7; 16]),
            ..good
        });
        for max_it_iu_len in [0, 1, 63, 1 << 20, u32::MAX] {
            all.push(Requested {
                max_it_iu_len,
                ..good
            });
        }
        let mut all: Vec<_> = all
            .iter()
            .map(|r| LoginReqRdma::new(r).as_bytes().to_vec())
            .collect();
        let bytes = LoginReqRdma::new(&good).as_bytes().to_vec();
        // The transport pads private data with zeros, so the cut takes a byte that is not 0.
        all.extend([16, 32, 47].map(|len| bytes[..len].to_vec()));
        // The opcode, the formats of buffers, the number of channels.
        for (at, byte) in [(11, 2), (8, 0xff), (9, 0xff), (10, 0xff)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            all.push(bytes);
        }
        for data in &all {
            self.refused(data)?;
        }
        // The session is as it was.
        if self.peer.try_login(&good)?.is_none() {
            return Err(self.peer.refused("a good login"));
        }
        self.peer.reactor.close(main);
        Ok(format!("{} refused", strangers.len() + all.len()))
    }

    /// Logs in as another initiator, which has an answer channel.
    fn twice(&mut self) -> Result<String, Fault> {
        for _ in 0..8 {
            let login = self.login(self.victim);
            if self.peer.try_login(&login)?.is_some() {
                return Err("a second answer channel of a session".into());
            }
        }
        Ok("8 refused".into())
    }

    fn messages(&mut self) -> Result<String, Fault> {
        let mut all = vec![b"x".to_vec(), vec![0; 48], vec![0xff; 64], vec![0; 8]];
        for code in [opcode::CMD, opcode::TSK_MGMT, opcode::RSP, opcode::T_LOGOUT] {
            let mut bytes = vec![0; 64];
            bytes[0] = code;
            all.push(bytes);
        }
        // Longer than the receive buffers.
        all.push(vec![opcode::CMD; 4096]);
        for bytes in &all {
            let (main, answers) = self.session()?;
            self.peer.send(answers, bytes)?;
            let end = self.peer.end_of_both(main, answers);
            end.map_err(|e| format!("{e}, after {} bytes {:02x?}", bytes.len(), &bytes[..1]))?;
        }
        Ok(format!("{} ended, with their sessions", all.len()))
    }

    /// RDMA to the memory of the role. The key of a connection is valid on no other one.
    fn memory(&mut self) -> Result<String, Fault> {
        let keys = [0, 1, u32::MAX, self.peer.random() as u32];
        for key in keys {
            let (main, answers) = self.session()?;
            self.peer.reach(answers, 0x1000, key)?;
            self.peer.end_of_both(main, answers)?;
        }
        Ok(format!("{} ended, with their sessions", keys.len()))
    }
}
