// SPDX-License-Identifier: GPL-2.0

//! `srpctl discover`.

use crate::{
    error::{Error, Result},
    out::say,
    port::{self, Port},
    sysfs::{self, Sysfs},
};
use std::process::Command;

/// Runs ibsrpdm on each InfiniBand port, and reports the ports without discovery.
pub fn run(sysfs: &Sysfs) -> Result {
    ask_all(sysfs, ibsrpdm)
}

/// Queries each InfiniBand port with `ask`, which gets the port's file in `/dev/infiniband` and
/// returns a login string per line. If a query fails, the other ports are still queried.
fn ask_all(sysfs: &Sysfs, ask: impl Fn(&str) -> Result<String>) -> Result {
    let ports = Port::all(sysfs);
    if ports.is_empty() {
        return Err(Error::NoModule(
            ", or there is no RDMA port: `modprobe ib_srp`, `rdma link`".into(),
        ));
    }
    let (mut asked, mut failed) = (false, Vec::new());
    for port in &ports {
        if port.link_layer(sysfs).as_deref() == Some("InfiniBand") {
            match umad(sysfs, port).and_then(|file| ask(&file)) {
                Ok(found) => {
                    asked = true;
                    say!("{}: {} targets", port.name(), found.lines().count());
                    for line in found.lines() {
                        say!("  {line}");
                    }
                }
                Err(why) => {
                    eprintln!("srpctl: {}: no discovery: {why}", port.name());
                    failed.push(port.name());
                }
            }
        } else {
            say!(
                "{} ({}): no discovery: SRP has it only on InfiniBand. \
                 Ask the target's administrator for its address and identifiers; \
                 LIO: rdma_cm_port, /sys/module/ib_srpt/parameters/srpt_service_guid",
                port.name(),
                port::interfaces(sysfs, port)
                    .into_iter()
                    .collect::<Vec<_>>()
                    .join(" ")
            );
        }
    }
    if asked || failed.is_empty() {
        return Ok(());
    }
    Err(Error::Program(format!(
        "no subnet could be queried: {}",
        failed.join(", ")
    )))
}

/// Returns the port's umad file in `/dev/infiniband`.
fn umad(sysfs: &Sysfs, port: &Port) -> Result<String> {
    // Without a subnet manager, ibsrpdm would wait for a reply that never comes.
    if port.subnet_manager(sysfs).is_none() {
        return Err(Error::NoPort(
            "the port has no subnet manager; check the cable and `sminfo`".into(),
        ));
    }
    sysfs
        .entries("/sys/class/infiniband_mad")
        .into_iter()
        .find(|folder| {
            sysfs::text(folder.join("ibdev")).as_ref() == Some(&port.device)
                && sysfs::number(folder.join("port")) == Some(port.number)
        })
        .map(|folder| format!("/dev/infiniband/{}", sysfs::name(folder)))
        .ok_or_else(|| Error::NoPort("the module ib_umad is not loaded".into()))
}

fn ibsrpdm(file: &str) -> Result<String> {
    let out = Command::new("ibsrpdm")
        .args(["-c", "-d", file])
        .output()
        .map_err(|e| Error::Program(format!("ibsrpdm (package srptools): {e}")))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        return Err(Error::Program(format!("ibsrpdm: {}", said.trim())));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, fs, path::Path};

    fn file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("folder")).expect("folder");
        fs::write(path, text).expect("file");
    }

    /// Creates a port, and its umad device if `umad`.
    fn port(root: &Path, n: u32, layer: &str, sm_lid: &str, umad: bool) {
        let (device, srp) = (
            format!("ib{n}"),
            format!("sys/class/infiniband_srp/srp-ib{n}-1"),
        );
        file(root, &format!("{srp}/add_target"), "");
        file(root, &format!("{srp}/ibdev"), &device);
        file(root, &format!("{srp}/port"), "1");
        let of_port = format!("sys/class/infiniband/{device}/ports/1");
        file(root, &format!("{of_port}/link_layer"), layer);
        file(root, &format!("{of_port}/sm_lid"), sm_lid);
        if umad {
            let mad = format!("sys/class/infiniband_mad/umad{n}");
            file(root, &format!("{mad}/ibdev"), &device);
            file(root, &format!("{mad}/port"), "1");
        }
    }

    /// Returns the result and the queried files. Queries of the files in `refuses` fail.
    fn ask(root: &Path, refuses: &[&str]) -> (Result, Vec<String>) {
        let asked = RefCell::new(Vec::new());
        let result = ask_all(&Sysfs::below(root), |file| {
            asked.borrow_mut().push(file.to_string());
            match refuses.contains(&file) {
                true => Err(Error::Program("no answer".into())),
                false => Ok("id_ext=1\nid_ext=2\n".into()),
            }
        });
        (result, asked.into_inner())
    }

    #[test]
    fn a_port_that_cannot_be_asked_is_left_out() {
        let root = tempfile::tempdir().expect("folder");
        let root = root.path();
        port(root, 0, "InfiniBand", "0x0\n", true);
        port(root, 1, "InfiniBand", "0x1\n", false);
        port(root, 2, "InfiniBand", "0x1\n", true);
        port(root, 3, "InfiniBand", "0x1\n", true);
        port(root, 4, "Ethernet", "0x0\n", true);
        let both = ["/dev/infiniband/umad2", "/dev/infiniband/umad3"];
        for refuses in [&[][..], &both[..1], &both[1..]] {
            let (result, asked) = ask(root, refuses);
            assert!(result.is_ok(), "{refuses:?}");
            assert_eq!(asked, both);
        }
        let (result, asked) = ask(root, &both);
        let why = result.expect_err("no subnet was queried");
        assert_eq!(why.status(), 1);
        assert_eq!(
            why.to_string(),
            "no subnet could be queried: ib0/1, ib1/1, ib2/1, ib3/1"
        );
        assert_eq!(asked, both);
    }

    #[test]
    fn where_there_is_no_subnet_nothing_has_failed() {
        let root = tempfile::tempdir().expect("folder");
        assert_eq!(ask(root.path(), &[]).0.expect_err("no port").status(), 5);
        port(root.path(), 0, "Ethernet", "0x0\n", true);
        let (result, asked) = ask(root.path(), &[]);
        assert!(result.is_ok() && asked.is_empty());
    }
}
