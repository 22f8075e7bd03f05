// SPDX-License-Identifier: GPL-2.0

//! The files of a session in `/sys/class/scsi_host/host<n>/`: those of the C driver, and some more.

use super::scsi::Io;
use crate::{
    scsi::Host,
    srp::{
        channel::Counts,
        connect::{
            Address,
            Service, //
        },
        proto::guid::Guid,
    },
    sysfs::{
        attribute_group,
        Page, //
    }, //
};
use kernel::prelude::*;

/// Options of the login that only the sysfs files need.
pub struct LoginOptions {
    /// Completion vector of the first channel.
    pub comp_vector: u32,
    /// Maximum number of descriptors in a message.
    pub cmd_sg_entries: u8,
    /// Whether a message may contain only a part of its descriptor table. It never does.
    pub allow_ext_sg: bool,
}

attribute_group! {
    /// The files of a host.
    pub static HOST_ATTRIBUTES: Host<Io> {
        id_ext: 0o444, show = |io: &Io, page| line(page, io.id_ext());
        ioc_guid: 0o444, show = |io: &Io, page| line(page, io.ioc_guid());
        service_id: 0o444, show = |io: &Io, page| line(page, Guid(service(io)?.service_id));
        pkey: 0o444, show = show_pkey;
        sgid: 0o444, show = |io: &Io, page| line(page, io.plan().sgid);
        dgid: 0o444, show = |io: &Io, page| line(page, service(io)?.reached());
        orig_dgid: 0o444, show = |io: &Io, page| line(page, service(io)?.dgid);
        req_lim: 0o444, show = |io: &Io, page| line(page, io.least_credits());
        zero_req_lim: 0o444, show = |io: &Io, page| line(page, io.counts().map(Counts::credit_waits).sum::<u64>());
        src: 0o444, show = show_src;
        dest: 0o444, show = show_dest;
        local_ib_port: 0o444, show = |io: &Io, page| line(page, io.port().number());
        local_ib_device: 0o444, show = |io: &Io, page| line(page, io.port().device().name());
        ch_count: 0o444, show = |io: &Io, page| line(page, io.channels());
        requested_ch_count: 0o444, show = |io: &Io, page| line(page, io.requested_channels());
        comp_vector: 0o444, show = |io: &Io, page| line(page, io.options().comp_vector);
        tl_retry_count: 0o444, show = |io: &Io, page| line(page, io.plan().retry_count);
        ack_timeout: 0o444, show = |io: &Io, page| line(page, io.plan().ack_timeout.ok_or(ENOENT)?);
        tos: 0o444, show = |io: &Io, page| line(page, io.plan().tos.ok_or(ENOENT)?);
        answers_from: 0o444, show = show_answers_from;
        answer_channels: 0o444, show = |io: &Io, page| line(page, with_answers(io)?.answer_channels());
        cmd_sg_entries: 0o444, show = |io: &Io, page| line(page, io.options().cmd_sg_entries);
        allow_ext_sg: 0o444, show = |io: &Io, page| line(page, io.options().allow_ext_sg);
        last_error: 0o444, show = show_last_error;
        "statistics" {
            commands: 0o444, show = |io: &Io, page| row(page, io, Counts::commands);
            read_bytes: 0o444, show = |io: &Io, page| row(page, io, Counts::read_bytes);
            write_bytes: 0o444, show = |io: &Io, page| row(page, io, Counts::write_bytes);
            way_none: 0o444, show = |io: &Io, page| row(page, io, Counts::none);
            way_immediate: 0o444, show = |io: &Io, page| row(page, io, Counts::immediate);
            way_static: 0o444, show = |io: &Io, page| row(page, io, Counts::fixed);
            way_dynamic: 0o444, show = |io: &Io, page| row(page, io, Counts::dynamic);
            credit_waits: 0o444, show = |io: &Io, page| row(page, io, Counts::credit_waits);
            busy: 0o444, show = |io: &Io, page| row(page, io, Counts::busy);
            connections_lost: 0o444, show = |io: &Io, page| line(page, &io.statistics().connections_lost);
            login_tries: 0o444, show = |io: &Io, page| line(page, &io.statistics().login_tries);
            aborts: 0o444, show = |io: &Io, page| line(page, &io.statistics().aborts);
            device_resets: 0o444, show = |io: &Io, page| line(page, &io.statistics().device_resets);
            host_resets: 0o444, show = |io: &Io, page| line(page, &io.statistics().host_resets);
            violations: 0o444, show = |io: &Io, page| line(page, &io.statistics().violations);
        }
    }
}

fn line(page: &mut Page<'_>, value: impl core::fmt::Display) -> Result {
    page.emit(format_args!("{value}\n"))
}

/// Writes one number for each channel, as many as the page has room for.
fn row(page: &mut Page<'_>, io: &Io, number: impl Fn(&Counts) -> u64) -> Result {
    // A space, a number below 2^64 and a newline.
    const ROOM: usize = 1 + 20 + 1;
    let mut before = "";
    for counts in io.counts() {
        if page.room() < ROOM {
            break;
        }
        page.emit(fmt!("{before}{}", number(counts)))?;
        before = " ";
    }
    page.emit(fmt!("\n"))
}

fn show_pkey(io: &Io, page: &mut Page<'_>) -> Result {
    page.emit(fmt!("{:#06x}\n", service(io)?.pkey))
}

fn show_src(io: &Io, page: &mut Page<'_>) -> Result {
    page.emit(fmt!("{}\n", address(io)?.bound().ok_or(ENOENT)?))
}

fn show_dest(io: &Io, page: &mut Page<'_>) -> Result {
    page.emit(fmt!("{}\n", address(io)?.dest))
}

fn show_answers_from(io: &Io, page: &mut Page<'_>) -> Result {
    let mut before = "";
    for from in &with_answers(io)?.plan().answers_from {
        page.emit(fmt!("{before}{}", from.destination))?;
        before = " ";
    }
    page.emit(fmt!("\n"))
}

/// Returns `ENOENT` for a session without answer channels.
fn with_answers(io: &Io) -> Result<&Io> {
    match io.plan().answers_from.is_empty() {
        true => Err(ENOENT),
        false => Ok(io),
    }
}

fn show_last_error(io: &Io, page: &mut Page<'_>) -> Result {
    match io.last_error() {
        Some((when, what)) => page.emit(fmt!("{when} {}\n", format_args!("{what}"))),
        None => Ok(()),
    }
}

/// Returns `ENOENT` unless this is an RDMA/CM login; see [`service`].
fn address(io: &Io) -> Result<&Address> {
    io.plan().destination.address().ok_or(ENOENT)
}

/// Returns `ENOENT` for an RDMA/CM login: the files exist, because scripts look for them, but have
/// nothing to show.
fn service(io: &Io) -> Result<&Service> {
    io.plan().destination.service().ok_or(ENOENT)
}
