// SPDX-License-Identifier: GPL-2.0

//! `srpctl discover`.

use crate::{
    error::{Error, Result},
    out::say,
    port::{self, Port},
    sysfs::{self, Sysfs},
};
use std::process::Command;

/// Has ibsrpdm ask each InfiniBand subnet, and says what cannot be asked.
pub fn run(sysfs: &Sysfs) -> Result {
    let ports = Port::all(sysfs);
    if ports.is_empty() {
        return Err(Error::NoModule(
            ", or there is no RDMA port: `modprobe ib_srp`, `rdma link`".into(),
        ));
    }
    for port in &ports {
        if port.link_layer(sysfs).as_deref() == Some("InfiniBand") {
            ask(sysfs, port)?;
        } else {
            say!(
                "{} ({}): nobody can be asked here: SRP has no discovery but that of an InfiniBand subnet. \
                 The target's administrator knows its address and identifiers; LIO: rdma_cm_port, \
                 /sys/module/ib_srpt/parameters/srpt_service_guid",
                port.name(),
                port::interfaces(sysfs, port).into_iter().collect::<Vec<_>>().join(" ")
            );
        }
    }
    Ok(())
}

/// Prints the login strings of all targets that a port's subnet has.
fn ask(sysfs: &Sysfs, port: &Port) -> Result {
    let umad = sysfs
        .entries("/sys/class/infiniband_mad")
        .into_iter()
        .find(|folder| {
            sysfs::text(folder.join("ibdev")).as_ref() == Some(&port.device)
                && sysfs::number(folder.join("port")) == Some(port.number)
        })
        .map(sysfs::name)
        .ok_or_else(|| {
            Error::NoPort(format!("{}: the module ib_umad is not loaded", port.name()))
        })?;
    let out = Command::new("ibsrpdm")
        .args(["-c", "-d", &format!("/dev/infiniband/{umad}")])
        .output()
        .map_err(|e| Error::Program(format!("ibsrpdm (package srptools): {e}")))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        return Err(Error::Program(format!("ibsrpdm: {}", said.trim())));
    }
    let found = String::from_utf8_lossy(&out.stdout);
    say!("{}: {} targets", port.name(), found.lines().count());
    for line in found.lines() {
        say!("  {line}");
    }
    Ok(())
}
