// SPDX-License-Identifier: GPL-2.0

//! Requests of the initiator: commands with random buffers, and aborts.

use super::{Kind, Op, Out, State};
use crate::world::{ConnId, Item, World};
use srp_target::proto::{
    cmd::{Cmd, DirectBuf, Direction},
    ids::Lun,
    tmf::{Function, TskMgmt},
};

/// Sends commands for the operations, as credits permit. One credit is kept for an abort.
pub fn submit(world: &mut World, n: usize) {
    if world.initiators[n].state != State::Up {
        return;
    }
    let waiting = |o: &Op| o.tag.is_none();
    let this = &world.initiators[n];
    let list: Vec<_> = this
        .ops
        .iter()
        .filter(|(_, o)| waiting(o))
        .map(|(id, _)| *id)
        .collect();
    for number in list {
        let this = &mut world.initiators[n];
        let free = this
            .mains
            .iter()
            .copied()
            .filter(|c| this.credits[c] > 1)
            .collect::<Vec<_>>();
        if free.is_empty() {
            return;
        }
        let conn = free[world.rng.below(free.len() as u64) as usize];
        send(world, n, number, conn);
    }
}

fn send(world: &mut World, n: usize, number: u64, conn: ConnId) {
    let op = world.initiators[n].ops[&number].clone();
    let (opcode, direction) = match op.kind {
        Kind::Read => (0x88, Direction::FromDevice),
        Kind::Write => (0x8a, Direction::ToDevice),
        Kind::Flush => (0x91, Direction::None),
        Kind::Verify => (0x8f, Direction::None),
        // WRITE SAME or UNMAP.
        Kind::Zero if op.stable => (0x93, Direction::ToDevice),
        Kind::Zero => (0x42, Direction::ToDevice),
    };
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    let count = op.values.len() as u32;
    let data = op.data();
    if opcode == 0x42 {
        cdb[7..9].copy_from_slice(&(data.len() as u16).to_be_bytes());
    } else {
        // FUA, and the UNMAP bit of WRITE SAME.
        let flag = match op.kind {
            Kind::Read | Kind::Write => op.stable,
            Kind::Zero => op.lba % 2 == 0,
            _ => false,
        };
        cdb[1] = if flag { 8 } else { 0 };
        cdb[2..10].copy_from_slice(&op.lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&count.to_be_bytes());
    }
    // Room for the data of a read.
    let bytes = match direction {
        Direction::FromDevice => vec![0; op.values.len() * 512],
        _ => data,
    };

    // Buffers of random length.
    let mut list = Vec::new();
    let mut keys = Vec::new();
    let mut rest = &bytes[..];
    while direction != Direction::None && !rest.is_empty() {
        let whole = list.len() == 3 || world.rng.one_in(2);
        let len = if whole {
            rest.len()
        } else {
            1 + world.rng.below(rest.len() as u64) as usize
        };
        let (part, behind) = rest.split_at(len);
        rest = behind;
        let this = &mut world.initiators[n];
        let key = this.number() as u32;
        let gap = 16 * list.len();
        let mut region = vec![0; gap];
        region.extend_from_slice(part);
        this.regions.insert(key, region);
        list.push(DirectBuf::new(0x1000 + gap as u64, key, len as u32));
        keys.push(key);
    }
    // A table that is not in the message is fetched.
    let in_message = if world.rng.one_in(4) { 1 } else { list.len() };
    let this = &mut world.initiators[n];
    let tag = this.number();
    let cmd = Cmd {
        tag,
        lun: Lun::from_int(0),
        cdb: &cdb,
    };
    let mut iu = [0; 260];
    let len = match list.len() {
        0 => cmd.build(&mut iu),
        1 => cmd.build_direct(&mut iu, direction, &list[0]),
        _ => {
            let key = this.number() as u32;
            let table: Vec<u8> = list
                .iter()
                .flat_map(|d| {
                    let all =
                        u128::from(d.va()) << 64 | u128::from(d.key()) << 32 | u128::from(d.len());
                    all.to_be_bytes()
                })
                .collect();
            let table_buf =
                DirectBuf::new(0x1000 + 16 * list.len() as u64, key, table.len() as u32);
            this.regions
                .insert(key, [vec![0; 16 * list.len()], table].concat());
            keys.push(key);
            cmd.build_indirect(
                &mut iu,
                direction,
                &table_buf,
                bytes.len() as u32,
                &list[..in_message],
            )
        }
    };
    let message = iu[..len.unwrap()].to_vec();
    *this.credits.get_mut(&conn).unwrap() -= 1;
    this.ops.get_mut(&number).unwrap().tag = Some(tag);
    let out = Out {
        op: number,
        conn,
        keys,
        sent: world.now,
        aborted: None,
    };
    this.outs.insert(tag, out);
    world.note(|| {
        let (kind, lba, count) = (op.kind, op.lba, op.values.len());
        let values = if op.writes() { &op.values[..] } else { &[] };
        format!("Initiator({n}): {tag:x} {kind:?} {lba}+{count} {values:x?}")
    });
    world.push(conn, 0, Item::Message(message, None));
}

/// Aborts a command. `again`: the operation is retried.
pub fn abort(world: &mut World, n: usize, tag: u64, again: bool) {
    let this = &mut world.initiators[n];
    let Some(out) = this.outs.get_mut(&tag) else {
        return;
    };
    let conn = out.conn;
    if out.aborted.is_some() || this.credits[&conn] < 1 {
        return;
    }
    out.aborted = Some(again);
    *this.credits.get_mut(&conn).unwrap() -= 1;
    let number = this.number();
    this.aborts.insert(number, (tag, conn));
    let request = TskMgmt {
        tag: number,
        lun: Lun::from_int(0),
        function: Function::AbortTask,
        task_tag: tag,
    };
    let mut iu = [0; 48];
    let len = request.build(&mut iu).unwrap();
    world.note(|| format!("Initiator({n}): abort of {tag:x}, again {again}"));
    world.push(conn, 0, Item::Message(iu[..len].to_vec(), None));
}

pub fn abort_any(world: &mut World, n: usize) {
    let tags: Vec<_> = world.initiators[n].outs.keys().copied().collect();
    if world.initiators[n].up() && !tags.is_empty() {
        let tag = tags[world.rng.below(tags.len() as u64) as usize];
        let again = world.rng.one_in(2);
        abort(world, n, tag, again);
    }
}
