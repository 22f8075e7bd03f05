// SPDX-License-Identifier: GPL-2.0

//! The debugfs files by which a test controls an adapter.

use super::{
    fabric::{
        Fabric,
        PortId, //
    },
    fault::{
        bad_status,
        Order,
        NAMES, //
    },
    gmp,
    hca::Hca,
    manager,
};
use crate::provider::{
    attr::{
        Kind,
        State, //
    },
    event,
    Provider, //
};
use core::{
    fmt,
    str::{
        from_utf8,
        SplitAsciiWhitespace, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::UserSliceReader, //
};

/// Longest line, in bytes.
const LINE: usize = 128;

/// Reads a line that a user writes.
///
/// # Errors
///
/// `EINVAL` if the line is too long or not UTF-8.
pub fn line(reader: &mut UserSliceReader, with: impl FnOnce(&str) -> Result) -> Result {
    let mut bytes = [0; LINE];
    let len = reader.len();
    let bytes = bytes.get_mut(..len).ok_or(EINVAL)?;
    reader.read_slice(bytes)?;
    with(from_utf8(bytes).map_err(|_| EINVAL)?)
}

/// Parses the next word as a number, which may be hexadecimal.
fn number(words: &mut SplitAsciiWhitespace<'_>) -> Result<u64> {
    let word = words.next().ok_or(EINVAL)?;
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    }
    .map_err(|_| EINVAL)
}

/// Parses the next word as a number that fits into `T`.
fn small<T: TryFrom<u64>>(words: &mut SplitAsciiWhitespace<'_>) -> Result<T> {
    T::try_from(number(words)?).map_err(|_| EINVAL)
}

/// Arms a fault; see [`Order::parse`].
///
/// # Errors
///
/// `EINVAL`
pub fn set_fault(hca: &Arc<Hca>, reader: &mut UserSliceReader) -> Result {
    line(reader, |text| {
        hca.faults().order(Order::parse(text)?);
        Ok(())
    })
}

/// Shows how often each fault has happened.
///
/// # Errors
///
/// The error of the formatter.
pub fn show_faults(hca: &Arc<Hca>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (name, count) in NAMES.iter().zip(hca.faults().happened()) {
        writeln!(f, "{name} {count}")?;
    }
    Ok(())
}

/// Shows the numbers of management datagrams of each kind that queue pair 1 of each port has sent
/// and received.
///
/// # Errors
///
/// The error of the formatter.
pub fn show_mads(hca: &Arc<Hca>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for end in hca.ends() {
        for (kind, name) in gmp::NAMES.iter().enumerate() {
            let (sent, received) = (end.sent.of(kind), end.received.of(kind));
            writeln!(f, "{} {name} {sent} {received}", end.id.port)?;
        }
    }
    Ok(())
}

/// Shows the number of registrations, and the total number of pages or pieces in them.
///
/// # Errors
///
/// The error of the formatter.
pub fn show_regions(hca: &Arc<Hca>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (registered, parts) = hca.registered();
    writeln!(f, "registered {registered}")?;
    writeln!(f, "parts {parts}")
}

/// Shows the ports of an adapter.
///
/// # Errors
///
/// The error of the formatter.
pub fn show_ports(hca: &Arc<Hca>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for id in hca.ids() {
        let Ok(attr) = hca.port_attr(id.port.into()) else {
            continue;
        };
        writeln!(
            f,
            "{} state {} physical {} lid {} sm_lid {} at {}",
            id.port,
            attr.state,
            attr.phys_state,
            attr.lid,
            attr.sm_lid,
            hca.net().fabric.switch_port(id)
        )?;
    }
    Ok(())
}

/// Shows the connected queue pairs of an adapter.
///
/// # Errors
///
/// The error of the formatter.
pub fn show_queue_pairs(hca: &Arc<Hca>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut result = Ok(());
    hca.qps().each(|qp| {
        let attr = qp.attr();
        let to = attr.address;
        if qp.kind() == Kind::Rc && attr.state as u32 >= State::Rtr as u32 && result.is_ok() {
            result = writeln!(
                f,
                "{} to {} lid {} state {} sl {} mtu {} timeout {} retries {} rnr_retries {} \
                 rnr_timer {} reads {}",
                qp.num,
                attr.dest_qp_num,
                to.dlid,
                attr.state as u32,
                to.sl,
                attr.path_mtu,
                attr.timeout,
                attr.retry_cnt,
                attr.rnr_retry,
                attr.min_rnr_timer,
                attr.max_dest_rd_atomic
            );
        }
    });
    result
}

/// Executes `PORT WHAT [VALUE]...`: `down`, `up` and `move N` (the cable, to port N of the switch);
/// as a subnet manager, `lid N`, `sm LID`, `prefix N`, `pkey INDEX KEY` and `reregister`; `fatal`;
/// `die NUMBER [STATUS]` (a queue pair, with this status of its next receive request); `cm NUMBER`
/// (the queue pair that is the port's connection manager; 0 for the kernel's).
///
/// # Errors
///
/// `EINVAL` if the line is malformed, `ENOENT` if there is no such queue pair, `EBUSY` if port N
/// has a cable, `EIO` if the port refuses.
pub fn set_port(hca: &Arc<Hca>, reader: &mut UserSliceReader) -> Result {
    line(reader, |text| {
        let mut words = text.split_ascii_whitespace();
        let id = PortId {
            ca: hca.number(),
            port: small(&mut words)?,
        };
        let fabric: &Fabric = &hca.net().fabric;
        if hca.ids().all(|own| own != id) {
            return Err(EINVAL);
        }
        match words.next().ok_or(EINVAL)? {
            "down" => fabric.plug(id, false),
            "up" => {
                fabric.plug(id, true);
                if hca.is_static() {
                    manager::activate(fabric)?;
                }
            }
            "move" => {
                fabric.move_to(id, small(&mut words)?)?;
                if hca.is_static() {
                    manager::activate(fabric)?;
                }
            }
            "lid" => manager::set_lid(fabric, id, small(&mut words)?)?,
            "sm" => manager::set_sm(fabric, id, small(&mut words)?)?,
            "prefix" => manager::set_prefix(fabric, id, number(&mut words)?)?,
            "pkey" => manager::set_pkey(fabric, id, small(&mut words)?, small(&mut words)?)?,
            "reregister" => manager::reregister(fabric, id)?,
            "fatal" => hca
                .target()
                .dispatch(event::Kind::DEVICE_FATAL, id.port.into()),
            "die" => {
                let qp = hca.qps().get(small(&mut words)?).ok_or(ENOENT)?;
                match words.next() {
                    Some(name) if !qp.end_receive(bad_status(name)?) => return Err(EINVAL),
                    Some(_) => {}
                    None => qp.die(),
                }
            }
            "cm" => hca.end(id.port.into())?.set_manager(small(&mut words)?),
            _ => return Err(EINVAL),
        }
        hca.net().attend();
        Ok(())
    })
}
