// SPDX-License-Identifier: GPL-2.0

//! The attacks on the target.

use std::time::Duration;

use srp_target::{
    proto::{
        cmd::{DirectBuf, Direction},
        login_iu::{LoginReqRdma, MultiChannel},
    },
    reactor::LinkId,
    target::MAX_IT_IU_LEN,
};

use crate::peer::{none, Fault, Peer, IU_LEN, MEMORY};

/// One kind of attack.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Runs the attack; returns a summary.
    pub(crate) run: fn(&mut Peer) -> Result<String, Fault>,
    /// Whether the attack ends by itself. Other attacks run only on request, until the process is
    /// killed.
    pub(crate) ends: bool,
}

const fn case(name: &'static str, run: fn(&mut Peer) -> Result<String, Fault>) -> Case {
    Case {
        name,
        run,
        ends: true,
    }
}

pub(crate) const CASES: &[Case] = &[
    case("logins", logins),
    case("messages", messages),
    case("oversize", oversize),
    case("keys", keys),
    case("reach", reach),
    case("half", half),
    case("vanish", vanish),
    case("deaf", deaf),
    case("hundred", hundred),
    case("hoard", hoard),
    Case {
        name: "endless",
        run: endless,
        ends: false,
    },
];

/// Invalid private data. All logins are rejected.
fn logins(peer: &mut Peer) -> Result<String, Fault> {
    let good = peer.requested();
    let good = LoginReqRdma::new(&good).as_bytes().to_vec();
    let with = |at: usize, bytes: &[u8]| {
        let mut data = good.clone();
        data[at..at + bytes.len()].copy_from_slice(bytes);
        data
    };
    let mut all = vec![
        ("nothing", Vec::new()),
        ("a byte", good[..1].to_vec()),
        ("half of it", good[..40].to_vec()),
        ("another opcode", with(11, &[0x80])),
        ("a format", with(8, &[0xff, 0xff])),
        ("flags", with(10, &[2])),
        ("more flags", with(10, &[3])),
        ("no messages", with(12, &[0; 4])),
        ("short messages", with(12, &[0, 0, 0, 63])),
        ("long messages", with(12, &[0, 2, 0, 1])),
        ("huge messages", with(12, &[0xff; 4])),
        ("another target", with(32, &[0xff; 16])),
    ];
    for _ in 0..30 {
        let noise: Vec<u8> = (0..56).map(|_| peer.random() as u8).collect();
        all.push(("noise", noise));
    }
    let count = all.len();
    for (what, data) in all {
        if peer.connect(&data, 2)?.is_some() {
            return Err(format!("{what} was let in: {data:02x?}"));
        }
    }
    Ok(format!("{count} refused"))
}

/// Sends a message that ends the session, with a logout.
fn violates(peer: &mut Peer, link: LinkId, message: &[u8]) -> Result<(), Fault> {
    peer.send(link, message)?;
    let told = peer.ends(link, true);
    told.map_err(|e| format!("{e}, after {message:02x?}"))
}

/// Sends protocol violations, which end the session, with a logout.
fn messages(peer: &mut Peer) -> Result<String, Fault> {
    let link = peer.login()?;
    let memory = peer.memory(link)?;
    peer.reactor.close(link);
    let block = DirectBuf::new(memory.va(), memory.key(), 512);
    let good = peer.transfer(true, 1, &block);
    let with = |at: usize, byte: u8| {
        let mut message = good.clone();
        message[at] = byte;
        message
    };
    let mut all = Vec::new();
    for code in [0, 4, 0x40, 0x80, 0xc0, 0xc1, 0xff] {
        all.push(with(0, code));
    }
    for len in [1, 16, 47, 63] {
        all.push(good[..len].to_vec());
    }
    // Formats: an unsupported one, immediate data that the login did not request, a missing list.
    for format in [0x40, 0xf0, 0x30, 0x20, 0x03] {
        all.push(with(5, format));
    }
    all.push(with(31, 0xfc));
    // Tables: half a descriptor, a huge one, and a wrong total.
    let tables = [(17, 512), (0xffff_fff0, 512), (16, 513)];
    let count = all.len() + tables.len();
    for message in all {
        let link = peer.login()?;
        violates(peer, link, &message)?;
    }
    for (len, total) in tables {
        let link = peer.login()?;
        // The target reads the table, with the key of this connection.
        let memory = peer.memory(link)?;
        let table = DirectBuf::new(memory.va(), memory.key(), len);
        let message = peer.with_table(&table, total);
        violates(peer, link, &message)?;
    }
    // More requests than credits, all at once. The target may be fast enough to serve them all.
    let link = peer.login()?;
    for _ in 0..2000 {
        let ready = peer.command(&[0; 6], Direction::None, &none());
        peer.send(link, &ready)?;
    }
    peer.pass(Duration::from_millis(500))?;
    peer.reactor.close(link);
    Ok(format!("{count} sessions ended"))
}

/// Sends messages longer than the login requested.
fn oversize(peer: &mut Peer) -> Result<String, Fault> {
    for len in [IU_LEN as usize + 1, 4096, 65536] {
        let link = peer.login()?;
        peer.send(link, &vec![2; len])?;
        peer.ends(link, false)?;
    }
    Ok("3 sessions ended".into())
}

/// Uses data buffers in memory that does not exist.
fn keys(peer: &mut Peer) -> Result<String, Fault> {
    let mut count = 0;
    let away = u64::from(MEMORY) - 256;
    for write in [true, false] {
        for (more, key) in [(0, 1), (0, 0x0101_0101), (away, 0), (u64::MAX / 2, 0)] {
            let link = peer.login()?;
            let memory = peer.memory(link)?;
            let va = memory.va().wrapping_add(more);
            let place = DirectBuf::new(va, memory.key() ^ key, 4096);
            let command = peer.transfer(write, 8, &place);
            peer.send(link, &command)?;
            peer.ends(link, false)
                .map_err(|e| format!("{e}: {place:?}"))?;
            count += 1;
        }
    }
    let link = peer.login()?;
    let memory = peer.memory(link)?;
    let table = DirectBuf::new(memory.va(), !memory.key(), 16);
    let command = peer.with_table(&table, 512);
    peer.send(link, &command)?;
    peer.ends(link, false)?;
    Ok(format!("{} sessions ended", count + 1))
}

/// RDMA WRITE to memory that the target has not granted. READ is not tested: the target accepts
/// none, so the local device would not start it.
fn reach(peer: &mut Peer) -> Result<String, Fault> {
    for n in 0..24u32 {
        let link = peer.login()?;
        let memory = peer.memory(link)?;
        // Keys that are allocated consecutively, and others.
        let key = match n % 4 {
            0 => memory.key().wrapping_sub(n << 8),
            1 => n << 8 | peer.random() as u32 & 0xff,
            2 => n,
            _ => peer.random() as u32,
        };
        let va = match n % 2 {
            0 => memory.va(),
            _ => peer.random() & !4095,
        };
        // On a device shared with the target the key could be that of the local arena.
        let key = if key == memory.key() { !key } else { key };
        peer.reach(link, va, key)?;
        peer.ends(link, false)?;
    }
    Ok("24 sessions ended".into())
}

/// Closes connections before they are established, and immediately afterwards.
fn half(peer: &mut Peer) -> Result<String, Fault> {
    for n in 0..30u64 {
        let link = peer.begin()?;
        peer.pass(Duration::from_millis(n % 10))?;
        peer.reactor.close(link);
    }
    for _ in 0..20 {
        let what = peer.requested();
        if let Some(link) = peer.try_login(&what)? {
            peer.reactor.close(link);
        }
    }
    Ok("50 gone".into())
}

/// Sends READs and WRITEs, almost as many as there are credits.
fn load(peer: &mut Peer) -> Result<u64, Fault> {
    let link = peer.login()?;
    let memory = peer.memory(link)?;
    for n in 0..60 {
        let command = peer.transfer(n % 2 == 0, 2048, &memory);
        peer.send(link, &command)?;
    }
    Ok(link)
}

/// Closes connections while their data moves.
fn vanish(peer: &mut Peer) -> Result<String, Fault> {
    for _ in 0..20 {
        let link = load(peer)?;
        let time = peer.random() % 100;
        peer.pass(Duration::from_millis(time))?;
        peer.reactor.close(link);
    }
    Ok("20 sessions gone".into())
}

/// Like `vanish`, but until this process is killed.
fn endless(peer: &mut Peer) -> Result<String, Fault> {
    println!("begins");
    loop {
        let links: Result<Vec<_>, _> = (0..4).map(|_| load(peer)).collect();
        peer.pass(Duration::from_secs(1))?;
        for link in links? {
            peer.reactor.close(link);
        }
    }
}

/// Takes no responses: the target must not queue them without limit.
fn deaf(peer: &mut Peer) -> Result<String, Fault> {
    let what = peer.requested();
    let data = LoginReqRdma::new(&what);
    let link = peer.connect(data.as_bytes(), 1)?;
    let link = link.ok_or_else(|| peer.refused("a good login"))?;
    for sent in (0..100_000).step_by(16) {
        for _ in 0..16 {
            let ready = peer.command(&[0; 6], Direction::None, &none());
            if peer.send(link, &ready).is_err() {
                return Ok(format!("ended after {sent} commands"));
            }
        }
        // Drop the other events.
        if ended(peer, link)? {
            return Ok(format!("ended after {sent} commands"));
        }
    }
    Err("it goes on forever".into())
}

fn ended(peer: &mut Peer, link: u64) -> Result<bool, Fault> {
    let mut waits = 0;
    while waits < 3 {
        let event = peer.reactor.poll().map_err(|e| e.to_string())?;
        match event {
            Some(srp_target::reactor::Event::Ended { id, .. }) if id == link => return Ok(true),
            Some(_) => {}
            None => {
                let fds = peer.reactor.fds();
                verbs::os::wait(&fds, 10).map_err(|e| e.to_string())?;
                waits += 1;
            }
        }
    }
    Ok(false)
}

/// A hundred sessions at once, all of which work, and one initiator with more channels than
/// permitted.
fn hundred(peer: &mut Peer) -> Result<String, Fault> {
    let mut links = Vec::new();
    for _ in 0..100 {
        links.push(peer.login()?);
    }
    for link in &links {
        let memory = peer.memory(*link)?;
        let command = peer.transfer(false, 8, &DirectBuf::new(memory.va(), memory.key(), 4096));
        peer.send(*link, &command)?;
        match peer.answer(*link)? {
            0 => {}
            status => return Err(format!("status {status:#x}")),
        }
    }
    let mut what = peer.requested();
    what.multichannel = MultiChannel::Multi;
    let mut channels = 0;
    while let Some(link) = peer.try_login(&what)? {
        links.push(link);
        channels += 1;
        if channels > 64 {
            return Err("a session has as many channels as it likes".into());
        }
    }
    // A third violates the protocol; another third is closed at once.
    for (n, link) in links.into_iter().enumerate() {
        if n % 3 == 0 {
            // The session may have ended through another channel.
            let _ = peer.send(link, &[0xff; 64]);
        }
        if n % 3 != 1 {
            peer.pass(Duration::from_millis(1))?;
        }
        peer.reactor.close(link);
    }
    Ok(format!("100 sessions, and one with {channels} channels"))
}

/// Logins with the longest messages, which need much memory. Some are rejected, but other
/// initiators are served.
fn hoard(peer: &mut Peer) -> Result<String, Fault> {
    let (mut links, mut refused) = (Vec::new(), 0);
    for _ in 0..100 {
        let mut what = peer.requested();
        what.max_it_iu_len = MAX_IT_IU_LEN;
        match peer.try_login(&what)? {
            Some(link) => links.push(link),
            None => refused += 1,
        }
    }
    if refused == 0 || links.is_empty() {
        return Err(format!("{refused} of 100 refused"));
    }
    peer.honest()?;
    for link in &links {
        peer.reactor.close(*link);
    }
    Ok(format!("{refused} of 100 refused"))
}
