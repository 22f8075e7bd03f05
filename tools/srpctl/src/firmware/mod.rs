// SPDX-License-Identifier: GPL-2.0

//! `srpctl firmware` and `srpctl connect --firmware`: the logins that the firmware has made to boot
//! from an SRP disk.

mod table;

use crate::{
    boot,
    cli::{Connect, List},
    connect::{self, elsewhere},
    disk::Disk,
    error::{Error, Result},
    list,
    out::{say, tell},
    port::{self, Port},
    rescan::await_probes,
    session::Session,
    sysfs::{self, Sysfs},
    target::Target,
};
use serde::Serialize;
use std::{fs, io::ErrorKind};
use table::{Table, SIGNATURE};

/// The tables of ACPI. Only root reads them.
pub const FOLDER: &str = "/sys/firmware/acpi/tables";

/// A login of the firmware, as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    /// Name of the table in sysfs.
    table: String,
    source_gid: String,
    /// RDMA device and number of the port that has this GID now.
    port: Option<String>,
    dgid: String,
    pkey: String,
    service_id: String,
    id_ext: String,
    ioc_guid: String,
    initiator_ext: String,
    initiator_guid: String,
    lun: u64,
    /// The command that makes this login.
    login: String,
    /// SCSI host of the session with this target.
    session: Option<String>,
    /// Name of the disk with this LUN.
    disk: Option<String>,
}

/// Returns the names of the tables: `sBFT`, or `sBFT1`, `sBFT2` if there are several.
pub fn names(sysfs: &Sysfs) -> Vec<String> {
    let mut names: Vec<String> = sysfs.entries(FOLDER).iter().map(sysfs::name).collect();
    names.retain(|name| {
        let number = name.strip_prefix(SIGNATURE);
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    names
}

/// Returns the identifiers of the targets of all valid tables, as `srpctl targets` writes them.
pub fn keys(sysfs: &Sysfs) -> Vec<String> {
    let tables = names(sysfs)
        .into_iter()
        .filter_map(|name| read(sysfs, &name).ok());
    tables
        .filter_map(|table| boot::key(&table.target()).ok())
        .collect()
}

/// Reads the table `name`.
fn read(sysfs: &Sysfs, name: &str) -> Result<Table> {
    let path = sysfs.path(FOLDER).join(name);
    let bytes = fs::read(&path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::NotFound(format!("there is no {}", path.display())),
        _ => Error::io(&path, e),
    })?;
    Table::parse(&bytes)
        .map_err(|(field, why)| Error::Program(format!("{}: {field}: {why}", path.display())))
}

/// Returns the names of all tables; an error if there is none.
fn some(sysfs: &Sysfs) -> Result<Vec<String>> {
    let names = names(sysfs);
    match names.is_empty() {
        true => Err(Error::NotFound(format!(
            "there is no {FOLDER}/{SIGNATURE}: no firmware with UEFI (iPXE) has booted this \
             machine from an SRP disk"
        ))),
        false => Ok(names),
    }
}

/// Returns the port that the firmware has used, if it is there.
fn port(sysfs: &Sysfs, target: &Target) -> Option<Port> {
    port::choose(sysfs, target).ok()
}

/// Returns the session that leads to the target of the firmware through its port.
fn session(sysfs: &Sysfs, target: &Target, port: &Port) -> Option<Session> {
    let is_there = |one: &Session| elsewhere(sysfs, one, target).is_ok_and(|other| other.is_none());
    let found = Session::to(sysfs, target, port).ok()?;
    let mut session = found.into_iter().find(is_there)?;
    let disks = Disk::all(sysfs, &[session.host]).remove(&session.host);
    session.disks = disks.unwrap_or_default();
    Some(session)
}

/// The method of addressing in the first level of a LUN, as the midlayer numbers it: a target may
/// give flat numbers, the firmware peripheral ones (SAM-5, 4.7.7).
const METHOD: u64 = 0xc000;

/// Returns the name of the disk that the firmware has booted from.
fn disk(table: &Table, session: &Session) -> Option<String> {
    let is_it = |disk: &&Disk| disk.lun & !METHOD == table.lun & !METHOD;
    let disk = session.disks.iter().find(is_it)?;
    Some(disk.by_path.clone().unwrap_or_else(|| disk.device()))
}

/// Prints each login of the firmware.
pub fn run(sysfs: &Sysfs, args: &List) -> Result {
    let mut shown = Vec::new();
    let mut result = Ok(());
    for name in some(sysfs)? {
        match read(sysfs, &name) {
            Ok(table) => shown.push(show(sysfs, name, &table)),
            Err(error) => result = error.after(result),
        }
    }
    if args.json {
        list::json(&shown)?;
    } else {
        for one in &shown {
            say!("{}", text(one));
        }
    }
    result
}

fn show(sysfs: &Sysfs, name: String, table: &Table) -> Shown {
    let target = table.target();
    let port = port(sysfs, &target);
    let session = port.as_ref().and_then(|port| session(sysfs, &target, port));
    let options = target.options.iter();
    let mut login = String::new();
    for (name, value) in options {
        login += &format!(" --{} {value}", name.replace('_', "-"));
    }
    if let Some(port) = &port {
        login += &format!(" --device {} --port {}", port.device, port.number);
    }
    Shown {
        table: name,
        source_gid: table.source_gid.to_string(),
        port: port.map(|port| port.name()),
        dgid: table.dgid.to_string(),
        pkey: format!("0x{:04x}", table.pkey),
        service_id: format!("{:#018x}", table.service_id),
        id_ext: table.id_ext.to_string(),
        ioc_guid: table.ioc_guid.to_string(),
        initiator_ext: table.initiator_ext.to_string(),
        initiator_guid: table.initiator_guid.to_string(),
        lun: table.lun,
        login: format!("srpctl connect{login}"),
        session: session.as_ref().map(Session::name),
        disk: session.and_then(|session| disk(table, &session)),
    }
}

fn text(shown: &Shown) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    format!(
        "{}: LUN {} through the port with GID {}\n  {}\n  port     {}\n  session  {}\n  \
         disk     {}",
        shown.table,
        shown.lun,
        shown.source_gid,
        shown.login,
        or_none(&shown.port),
        or_none(&shown.session),
        or_none(&shown.disk)
    )
}

/// Logs in as the table `name` says, or as each one if the name is empty. Returns the last error,
/// and prints the others.
pub fn log_in(sysfs: &Sysfs, args: &Connect, name: &str) -> Result {
    let names = match name {
        "" => some(sysfs)?,
        name if names(sysfs).iter().any(|known| known == name) => vec![name.to_string()],
        name => return Err(Error::NotFound(format!("there is no {FOLDER}/{name}"))),
    };
    if let (Some(_), [first, _, ..]) = (&args.save, &names[..]) {
        let why = format!(
            "--save: choose one of {}, as --firmware={first}",
            names.join(", ")
        );
        return Err(Error::Usage(why));
    }
    let mut result = Ok(());
    for name in names {
        if let Err(error) = log_in_by(sysfs, args, &name) {
            result = error.of(name).after(result);
        }
    }
    result
}

fn log_in_by(sysfs: &Sysfs, args: &Connect, name: &str) -> Result {
    let table = read(sysfs, name)?;
    if let Some(why) = table.other_initiator() {
        tell!("{name}: {why}");
    }
    let mut session = connect::log_in_to(sysfs, args, &table.target().with(args)?)?;
    await_probes(sysfs, session.host);
    let disks = Disk::all(sysfs, &[session.host]).remove(&session.host);
    session.disks = disks.unwrap_or_default();
    match disk(&table, &session) {
        Some(disk) => say!("  the firmware has booted from {disk}"),
        None => {
            return Err(Error::NotFound(format!(
                "{} has no disk with LUN {}, which the firmware has booted from",
                session.name(),
                table.lun
            )))
        }
    }
    Ok(())
}

/// The state of a login by a table of the firmware.
pub enum State {
    /// The table cannot be used.
    Wrong(Error),
    /// No port has its GID.
    NoPort(String),
    /// There is no session.
    None,
    /// The session, and its disk with the LUN of the table.
    Session(Box<Session>, Option<String>),
}

/// Returns what the login of the table `name` is now, and what to say about its initiator.
pub fn state(sysfs: &Sysfs, name: &str) -> (State, Option<String>) {
    let table = match read(sysfs, name) {
        Ok(table) => table,
        Err(error) => return (State::Wrong(error), None),
    };
    let target = table.target();
    let state = match port(sysfs, &target) {
        None => State::NoPort(table.source_gid.to_string()),
        Some(port) => match session(sysfs, &target, &port) {
            None => State::None,
            Some(session) => {
                let disk = disk(&table, &session);
                State::Session(Box::new(session), disk)
            }
        },
    };
    (state, table.other_initiator())
}

#[cfg(test)]
pub mod tests;
