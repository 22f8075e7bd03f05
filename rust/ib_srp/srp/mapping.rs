// SPDX-License-Identifier: GPL-2.0

//! Builds the message that carries a SCSI command.

use super::{
    logic::data_path::{
        DataPath,
        Thresholds, //
    },
    proto::{
        cmd::{
            Cmd,
            DirectBuf,
            Direction, //
        },
        message_error::BuildError, //
    },
    slot::Slot, //
};
use crate::{
    dma::DataDirection,
    random::random_u32,
    rdma::{
        mr::{
            Segment,
            MAX_PER_HANDLE, //
        },
        qp::{
            LiveQp,
            SendWr, //
        }, //
    },
    scsi, //
};
use kernel::prelude::*;

/// The direction of a command's data, as SRP_CMD states it.
pub fn direction(cmd: &scsi::Command) -> Direction {
    match cmd.direction() {
        _ if cmd.data_len() == 0 => Direction::None,
        DataDirection::ToDevice => Direction::ToDevice,
        DataDirection::FromDevice => Direction::FromDevice,
        DataDirection::None | DataDirection::Bidirectional => Direction::None,
    }
}

/// Whether the slot's piece is cleared before the target writes the data of a read to it. A cleared
/// piece is copied to the command as a whole. If the piece is not cleared, the bytes that the
/// target does not write are data of an earlier read.
///
/// Targets return less than there is room for, and do not always report it. Clearing costs time, so
/// it is omitted for a block read, whose length is known. A block read that fails after a possibly
/// good part is retried, with a cleared piece.
#[inline(always)]
pub fn is_cleared(cmd: &scsi::Command) -> bool {
    !(cmd.is_block_read() && cmd.is_first_try())
}

/// Whether the command is a REPORT LUNS with room for less than one LUN.
///
/// The standard requires room for 16 bytes. The midlayer's scan sends such a command when a target
/// reports a list of nearly 2^32 bytes (`scsi_scan.c:1569-1574`: the sum is truncated to 32 bits).
/// With no room the midlayer then reads through an invalid pointer; with up to 7 bytes it repeats
/// the command endlessly.
fn asks_for_no_lun(cmd: &scsi::Command) -> bool {
    const REPORT_LUNS: u8 = 0xa0;
    const ROOM: u32 = 16;
    cmd.data_len() < ROOM && cmd.cdb().first() == Some(&REPORT_LUNS)
}

/// Chooses the data path of the command that is attached to `slot`, writes its message, and maps
/// the data if the path needs it. Returns the request that the caller must post.
///
/// Does not sleep.
///
/// # Errors
///
/// `EINVAL` if no command is attached, the message does not fit, or it is a REPORT LUNS without
/// room for a LUN; otherwise those of [`Handle::map`](crate::rdma::mr::Handle::map). The caller
/// detaches the command, which undoes a mapping.
#[inline(always)]
pub fn prepare<'a>(
    slot: &mut Slot,
    live: &LiveQp<'a>,
    tag: u64,
    thresholds: Thresholds,
) -> Result<SendWr<'a>> {
    let Slot {
        iu,
        handle,
        bounce,
        lun,
        path: to_path,
        len: to_len,
        ..
    } = slot;
    let cmd = handle.get().ok_or(EINVAL)?;
    let len = cmd.data_len();
    let direction = direction(cmd);
    let path = DataPath::choose(direction, len, thresholds);
    (*to_path, *to_len) = (path, len);
    if path.is_dynamic() {
        let access = match path {
            DataPath::DynamicRead => DataDirection::FromDevice,
            _ => DataDirection::ToDevice,
        };
        let random = u64::from(random_u32());
        handle.map(access, random << 32 | random)?;
    }
    let cmd = handle.get().ok_or(EINVAL)?;
    let head = Cmd {
        tag,
        lun: *lun,
        cdb: cmd.cdb(),
    };
    let length = match path {
        DataPath::None if asks_for_no_lun(cmd) => return Err(EINVAL),
        DataPath::None => head.build(iu.bytes_mut()),
        DataPath::Immediate => {
            let piece = bounce.as_mut().ok_or(EINVAL)?;
            cmd.copy_from_buffer(piece.place(len));
            head.build_immediate(iu.bytes_mut(), len)
        }
        DataPath::Static => {
            let piece = bounce.as_mut().ok_or(EINVAL)?;
            if is_cleared(cmd) {
                if asks_for_no_lun(cmd) {
                    return Err(EINVAL);
                }
                piece.clear(len);
            }
            let piece = piece.expose(len)?;
            let data = DirectBuf::new(piece.addr, piece.key, piece.len);
            head.build_direct(iu.bytes_mut(), direction, &data)
        }
        DataPath::DynamicWrite | DataPath::DynamicRead => match handle.segment() {
            Some(one) => {
                let data = DirectBuf::new(one.addr, one.key, one.len);
                head.build_direct(iu.bytes_mut(), direction, &data)
            }
            None => indirect(&head, iu.bytes_mut(), direction, len, handle.segments()),
        },
    };
    let mut wr = live.send(iu, length.map_err(|_| EINVAL)?)?;
    match (path, bounce) {
        (DataPath::Immediate, Some(piece)) => wr = wr.with(&mut piece.chunk, len as usize)?,
        // Register last: from here on the target counts as able to reach the memory.
        (DataPath::DynamicWrite | DataPath::DynamicRead, _) => wr = wr.register(handle)?,
        _ => {}
    }
    Ok(wr)
}

/// Builds a message with a list of several regions.
#[cold]
#[inline(never)]
fn indirect(
    head: &Cmd<'_>,
    iu: &mut [u8],
    direction: Direction,
    len: u32,
    segments: impl Iterator<Item = Segment>,
) -> Result<usize, BuildError> {
    let mut list = [DirectBuf::default(); MAX_PER_HANDLE];
    let mut count = 0;
    for (place, segment) in list.iter_mut().zip(segments) {
        *place = DirectBuf::new(segment.addr, segment.key, segment.len);
        count += 1;
    }
    // The message contains the whole table, so the target has none to read from memory.
    let table = DirectBuf::new(0, 0, (count * DirectBuf::LEN) as u32);
    let all = list.get(..count).unwrap_or_default();
    head.build_indirect(iu, direction, &table, len, all)
}
