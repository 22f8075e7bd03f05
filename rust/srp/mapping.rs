// SPDX-License-Identifier: GPL-2.0

//! From a SCSI command to the message that carries it.

use super::{
    logic::registration::{
        way,
        Limits,
        Transfer,
        Way, //
    },
    proto::{
        cmd::{
            Cmd,
            DirectBuf,
            Direction,
            IMM_DATA_OFFSET, //
        },
        ids::Lun, //
    },
    slot::Slot, //
};
use crate::{
    rdma::{
        dma::{
            self,
            Message, //
        },
        mr::{
            Register,
            MAX_PER_HANDLE, //
        }, //
    },
    scsi, //
};
use kernel::prelude::*;

/// A command that is ready to be posted.
pub struct Prepared {
    /// The `SRP_CMD`.
    pub message: Message,
    /// The registration of its data, if the target is to reach it.
    pub register: Option<Register>,
}

/// The direction of a command's data, on the wire.
pub fn direction(cmd: &scsi::Command) -> Direction {
    match cmd.direction() {
        _ if cmd.data_len() == 0 => Direction::None,
        scsi::Direction::None => Direction::None,
        scsi::Direction::ToDevice => Direction::ToDevice,
        scsi::Direction::FromDevice => Direction::FromDevice,
    }
}

/// Writes the message for the command that is attached to `slot`, and maps its data if the policy
/// says so.
///
/// Does not sleep.
///
/// # Errors
///
/// `EINVAL` if no command is attached or the message does not fit, otherwise those of
/// [`Handle::map`](crate::rdma::mr::Handle::map). Nothing is mapped then.
pub fn prepare(slot: &mut Slot, tag: u64, limits: Limits) -> Result<Prepared> {
    let Slot { iu, handle, .. } = slot;
    let cmd = handle.get().ok_or(EINVAL)?;
    let len = cmd.data_len();
    let direction = direction(cmd);
    let transfer = match direction {
        Direction::None => Transfer::None,
        Direction::ToDevice => Transfer::Write(len),
        Direction::FromDevice => Transfer::Read(len),
    };
    let lun = Lun(cmd.lun());
    let way = way(transfer, limits);
    if way == Way::Dynamic || way == Way::Static {
        handle.map(match direction {
            Direction::FromDevice => dma::Direction::FromDevice,
            _ => dma::Direction::ToDevice,
        })?;
    }
    let cmd = handle.get().ok_or(EINVAL)?;
    let head = Cmd {
        tag,
        lun,
        cdb: cmd.cdb(),
    };
    let length = match way {
        Way::None => head.build(iu.bytes_mut()),
        Way::Immediate => head
            .build_immediate(iu.bytes_mut(), len as usize)
            .map(|data| {
                let copied = cmd.copy_from_buffer(data);
                // What the list does not have must not be what an earlier message had.
                data.get_mut(copied..).unwrap_or_default().fill(0);
                IMM_DATA_OFFSET + len as usize
            }),
        Way::Dynamic | Way::Static => {
            let mut list = [DirectBuf::default(); MAX_PER_HANDLE];
            let mut count = 0;
            for (place, segment) in list.iter_mut().zip(handle.segments()) {
                *place = DirectBuf::new(segment.addr, segment.key, segment.len);
                count += 1;
            }
            match list.get(..count).unwrap_or_default() {
                [one] => head.build_direct(iu.bytes_mut(), direction, one),
                // The message has the whole table, so there is none in memory to read.
                all => {
                    let table = DirectBuf::new(0, 0, (count * DirectBuf::LEN) as u32);
                    head.build_indirect(iu.bytes_mut(), direction, &table, len, all)
                }
            }
        }
    };
    let message = iu.message(length.map_err(|_| EINVAL)?)?;
    // Last: from here on the memory counts as reachable.
    Ok(Prepared {
        message,
        register: handle.register(),
    })
}
