// SPDX-License-Identifier: GPL-2.0

//! `srpctl target-info`.

use crate::{
    error::{Error, Result},
    list,
    out::say,
    port::{self, Port},
    sysfs::{self, Sysfs},
};
use clap::Args;
use serde::Serialize;
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

const LIO: &str = "/sys/kernel/config/target/srpt";
const SCST: &str = "/sys/kernel/scst_tgt/targets/ib_srpt";
const PARAMETERS: &str = "/sys/module/ib_srpt/parameters";

/// `srpctl target-info`.
#[derive(Debug, Args)]
pub struct TargetInfo {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// A port of the SRP target of this machine.
#[derive(Debug, Serialize)]
struct TargetPort {
    /// `LIO` or `SCST`.
    target: &'static str,
    /// The folder that configures it.
    folder: String,
    /// RDMA device and port number, as `mlx5_0/1`.
    port: Option<String>,
    /// Whether it accepts logins.
    enabled: bool,
    /// Number of logical units.
    luns: usize,
    /// The initiators that may log in; with SCST any initiator may if there is none.
    initiators: Vec<String>,
    /// The commands that log in, for an initiator; none while the port is disabled.
    logins: Vec<String>,
    /// The settings without which a login fails, or a session has no disks.
    missing: Vec<Missing>,
}

/// A missing setting of a target port.
#[derive(Debug, Eq, PartialEq, Serialize)]
struct Missing {
    what: String,
    /// The command that adds it. The words in capitals are for the administrator to replace.
    command: String,
}

/// Identifiers of a target.
struct Identity {
    id_ext: String,
    ioc_guid: String,
    /// Options of a login by the InfiniBand connection manager.
    ib: [(&'static str, String); 3],
}

/// An RDMA port and its GID 0, as 32 hexadecimal digits.
struct Rdma {
    port: Port,
    gid: String,
}

/// Returns the addresses of some network interfaces.
type Addresses<'a> = &'a dyn Fn(&BTreeSet<String>) -> Vec<IpAddr>;

/// Prints the command that logs in, for each port of the target.
pub fn run(sysfs: &Sysfs, args: &TargetInfo) -> Result {
    let found = find(sysfs, &port::addresses)?;
    if args.json {
        return list::json(&found);
    }
    for port in &found {
        say!("{}", text(port).trim_end());
    }
    Ok(())
}

fn find(sysfs: &Sysfs, addresses: Addresses) -> Result<Vec<TargetPort>> {
    let ports = rdma_ports(sysfs);
    let mut found = Vec::new();
    for name in folders(sysfs, LIO) {
        if name != "discovery_auth" {
            found.push(lio(sysfs, &name, &ports, addresses));
        }
    }
    for name in folders(sysfs, SCST) {
        found.push(scst(sysfs, &name, &ports, addresses));
    }
    if found.is_empty() {
        return Err(Error::NotFound(match ports.first() {
            None => {
                "this machine has no RDMA port; `rdma link add rxe0 type rxe netdev INTERFACE` \
                     makes one of a network interface"
                    .into()
            }
            Some(Rdma { port, gid }) => format!(
                "this machine has no SRP target; \
                 `modprobe ib_srpt && mkdir -p {LIO}/0x{gid}/0x{gid}` makes {} a port of one, \
                 and the script lio-example a whole target",
                port.name()
            ),
        }));
    }
    Ok(found)
}

fn text(port: &TargetPort) -> String {
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut text = format!(
        "{}: {}, {}, {}, {}\n",
        port.port.as_deref().unwrap_or(&port.folder),
        port.target,
        if port.enabled { "enabled" } else { "disabled" },
        plural(port.luns, "LUN"),
        match (port.initiators.len(), port.target) {
            (0, "SCST") => "any initiator".into(),
            (n, _) => plural(n, "initiator"),
        }
    );
    for login in &port.logins {
        text += &format!("  {login}\n");
    }
    for Missing { what, command } in &port.missing {
        text += &format!("  missing: {what}\n    {command}\n");
    }
    text
}

/// Returns the names of the folders in a folder.
fn folders(sysfs: &Sysfs, folder: &str) -> Vec<String> {
    let entries = sysfs.entries(folder).into_iter();
    entries.filter(|e| e.is_dir()).map(sysfs::name).collect()
}

/// Returns the names of the logical units in a folder of LIO.
fn luns(sysfs: &Sysfs, folder: &str) -> Vec<String> {
    let mut names = folders(sysfs, folder);
    names.retain(|name| name.starts_with("lun_"));
    names
}

fn is_one(sysfs: &Sysfs, file: &str) -> bool {
    sysfs::number::<u32>(sysfs.path(file)) == Some(1)
}

fn rdma_ports(sysfs: &Sysfs) -> Vec<Rdma> {
    let mut found = Vec::new();
    let devices = sysfs.entries("/sys/class/infiniband").into_iter();
    for device in devices.map(sysfs::name) {
        for folder in sysfs.entries(format!("/sys/class/infiniband/{device}/ports")) {
            let gid = sysfs::text(folder.join("gids/0")).map(|gid| gid.replace(':', ""));
            let number = sysfs::name(&folder).parse().ok();
            if let (Some(gid), Some(number)) = (gid, number) {
                let port = Port {
                    folder,
                    device: device.clone(),
                    number,
                };
                found.push(Rdma { port, gid });
            }
        }
    }
    found
}

/// LIO names a target port by GID 0 of the RDMA port, or by the second half of it in groups.
fn is_named(rdma: &Rdma, name: &str) -> bool {
    match name.strip_prefix("0x") {
        Some(gid) => rdma.gid == gid,
        None => rdma.gid.get(16..) == Some(name.replace(':', "").as_str()),
    }
}

impl TargetPort {
    fn new(target: &'static str, folder: String, rdma: Option<&Rdma>, enabled: bool) -> Self {
        let mut port = Self {
            target,
            folder,
            port: rdma.map(|rdma| rdma.port.name()),
            enabled,
            luns: 0,
            initiators: Vec::new(),
            logins: Vec::new(),
            missing: Vec::new(),
        };
        if rdma.is_none() {
            port.lacks("an RDMA port with this GID", "rdma link");
        }
        port
    }

    fn lacks(&mut self, what: impl Into<String>, command: impl Into<String>) {
        self.missing.push(Missing {
            what: what.into(),
            command: command.into(),
        });
    }

    /// Adds the logins by RDMA/CM at `cm_port`, and on InfiniBand the one by its connection
    /// manager. `listen` is the command that makes the target listen on RDMA/CM.
    fn add_logins(
        &mut self,
        sysfs: &Sysfs,
        rdma: &Rdma,
        identity: &Identity,
        cm_port: u16,
        listen: &str,
        addresses: Addresses,
    ) {
        let is_ib = rdma.port.link_layer(sysfs).as_deref() == Some("InfiniBand");
        let interfaces = port::interfaces(sysfs, &rdma.port);
        let addresses = addresses(&interfaces);
        let target = format!(
            "--id-ext {} --ioc-guid {}",
            identity.id_ext, identity.ioc_guid
        );
        let mut logins = Vec::new();
        if cm_port != 0 {
            logins.extend(addresses.iter().map(|address| {
                let dest = SocketAddr::new(*address, cm_port);
                format!("srpctl connect --dest {dest} {target}")
            }));
        }
        if is_ib {
            let options = identity
                .ib
                .iter()
                .map(|(name, value)| format!(" --{name} {value}"));
            let options: String = options.collect();
            logins.push(format!("srpctl connect{options} {target}"));
        } else {
            if cm_port == 0 {
                self.lacks("a port number for RDMA/CM, which this link needs", listen);
            }
            if addresses.is_empty() {
                let interface = interfaces.iter().next().map_or("INTERFACE", |name| name);
                let add = format!("ip addr add ADDRESS/PREFIX dev {interface}");
                self.lacks("an address of the port", add);
            }
        }
        if self.enabled {
            self.logins.extend(logins);
        }
    }
}

fn lio(sysfs: &Sysfs, name: &str, ports: &[Rdma], addresses: Addresses) -> TargetPort {
    let folder = format!("{LIO}/{name}");
    let mut groups = folders(sysfs, &folder);
    groups.retain(|group| sysfs.path(format!("{folder}/{group}/enable")).exists());
    let enabled = groups
        .iter()
        .any(|group| is_one(sysfs, &format!("{folder}/{group}/enable")));
    let rdma = ports.iter().find(|rdma| is_named(rdma, name));
    let mut port = TargetPort::new("LIO", folder.clone(), rdma, enabled);
    let Some(first) = groups.first().map(|group| format!("{folder}/{group}")) else {
        port.lacks("a target portal group", format!("mkdir {folder}/{name}"));
        return port;
    };
    if let Some(rdma) = rdma {
        let guid = sysfs::text(sysfs.path(format!("{PARAMETERS}/srpt_service_guid")));
        let guid = guid
            .unwrap_or_default()
            .trim_start_matches("0x")
            .to_string();
        let pkey = sysfs::text(rdma.port.folder.join("pkeys/0")).unwrap_or_default();
        let identity = Identity {
            ib: [
                ("dgid", rdma.gid.clone()),
                ("pkey", pkey.trim_start_matches("0x").into()),
                ("service-id", guid.clone()),
            ],
            id_ext: guid.clone(),
            ioc_guid: guid,
        };
        let file = format!("{LIO}/discovery_auth/rdma_cm_port");
        let cm_port = sysfs::number(sysfs.path(&file)).unwrap_or(0);
        let listen = format!("echo 5555 >{file}");
        port.add_logins(sysfs, rdma, &identity, cm_port, &listen, addresses);
    }
    for group in groups.iter().map(|group| format!("{folder}/{group}")) {
        let of_group = luns(sysfs, &format!("{group}/lun"));
        for initiator in folders(sysfs, &format!("{group}/acls")) {
            let acl = format!("{group}/acls/{initiator}");
            if let (true, Some(lun)) = (luns(sysfs, &acl).is_empty(), of_group.first()) {
                let map = format!("mkdir {acl}/{lun} && ln -s {group}/lun/{lun} {acl}/{lun}");
                port.lacks(format!("a LUN of the initiator {initiator}"), map);
            }
            port.initiators.push(initiator);
        }
        port.luns += of_group.len();
    }
    if port.luns == 0 {
        let core = "/sys/kernel/config/target/core";
        let mut back_ends = folders(sysfs, core).into_iter().flat_map(|kind| {
            let of_kind = folders(sysfs, &format!("{core}/{kind}")).into_iter();
            of_kind.map(move |name| format!("{kind}/{name}"))
        });
        let back_end = back_ends.find(|name| is_one(sysfs, &format!("{core}/{name}/enable")));
        let back_end = back_end.unwrap_or("BACKSTORE/NAME".into());
        let lun = format!("{first}/lun/lun_0");
        let map = format!("mkdir {lun} && ln -s {core}/{back_end} {lun}");
        port.lacks("a LUN", map);
    }
    if port.initiators.is_empty() {
        let what = match name.starts_with("0x") {
            true => "0x0000000000000000 and the second half of the initiator's GID",
            false => "the address that the initiator logs in from",
        };
        port.lacks(
            format!("an initiator; ACL is {what}"),
            format!("mkdir {first}/acls/ACL"),
        );
    }
    if !enabled {
        port.lacks(
            "permission to log in; the port is disabled",
            format!("echo 1 >{first}/enable"),
        );
    }
    port
}

fn scst(sysfs: &Sysfs, name: &str, ports: &[Rdma], addresses: Addresses) -> TargetPort {
    let folder = format!("{SCST}/{name}");
    let enabled = is_one(sysfs, &format!("{folder}/enabled"));
    let info = sysfs::text(sysfs.path(format!("{folder}/login_info"))).unwrap_or_default();
    let lines: Vec<&str> = info.lines().collect();
    let value = |line: &str, key: &str| -> String {
        let mut pairs = line.split(',').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(name, _)| *name == key);
        found
            .map(|(_, value)| value.to_string())
            .unwrap_or_default()
    };
    let rdma_of = |line: &str| ports.iter().find(|rdma| rdma.gid == value(line, "dgid"));
    let first = lines.first().and_then(|line| rdma_of(line));
    let mut port = TargetPort::new("SCST", folder.clone(), first, enabled);
    let cm_port = sysfs::number(sysfs.path(format!("{PARAMETERS}/rdma_cm_port"))).unwrap_or(0);
    let listen = "modprobe -r ib_srpt && modprobe ib_srpt rdma_cm_port=5555";
    for line in &lines {
        if let Some(rdma) = rdma_of(line) {
            let identity = Identity {
                id_ext: value(line, "tid_ext"),
                ioc_guid: value(line, "ioc_guid"),
                ib: [
                    ("dgid", rdma.gid.clone()),
                    ("pkey", value(line, "pkey")),
                    ("service-id", value(line, "service_id")),
                ],
            };
            port.add_logins(sysfs, rdma, &identity, cm_port, listen, addresses);
        }
    }
    port.luns = folders(sysfs, &format!("{folder}/luns")).len();
    let groups = format!("{folder}/ini_groups");
    for group in folders(sysfs, &groups) {
        let group = format!("{groups}/{group}");
        port.luns += folders(sysfs, &format!("{group}/luns")).len();
        // Each initiator has a file.
        let names = sysfs.entries(format!("{group}/initiators")).into_iter();
        let names = names.map(sysfs::name);
        port.initiators.extend(names.filter(|name| name != "mgmt"));
    }
    if port.luns == 0 {
        port.lacks("a LUN", format!("echo 'add DEVICE 0' >{folder}/luns/mgmt"));
    }
    if !enabled {
        port.lacks(
            "permission to log in; the port is disabled",
            format!("echo 1 >{folder}/enabled"),
        );
    }
    port
}

#[cfg(test)]
mod tests;
