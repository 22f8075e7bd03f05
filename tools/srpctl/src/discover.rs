// SPDX-License-Identifier: GPL-2.0

//! `srpctl discover`.

use crate::{
    device_management::{self, Failure, Target as Found},
    driver,
    error::{Error, Result},
    out::{say, tell},
    patience,
    port::{self, Port},
    program, resolve, roce,
    sysfs::{self, Sysfs},
    target::{End, Target},
};
use clap::Args;
use std::{
    io,
    net::Ipv6Addr,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// The class of the ports with management datagrams.
const MADS: &str = "/sys/class/infiniband_mad";
/// Port of RDMA/CM, which device management does not report.
const CM_PORT: u16 = 5555;

/// Bound of all requests to an agent. It may have 255 controllers with 255 services each.
const LIMIT: Duration = Duration::from_secs(60);

/// `srpctl discover`.
#[derive(Debug, Args)]
pub struct Discover {
    /// Address or host name of a target on RoCE, as 192.0.2.1 or [2001:db8::1]:5555
    ///
    /// The port is that of RDMA/CM on the target (5555 if left out). It is only printed: it is not
    /// asked.
    #[arg(value_name = "ADDRESS[:PORT]")]
    addresses: Vec<String>,
    /// RDMA device, as mlx5_0, or its node GUID; the route to the address must lead through it
    #[arg(long, requires = "addresses")]
    device: Option<String>,
}

/// Prints the commands that log in to the targets found.
pub fn run(sysfs: &Sysfs, args: &Discover) -> Result {
    let wanted = args.addresses.iter();
    let wanted = wanted.map(|address| Ok((address, target(args.device.as_deref(), address)?)));
    let wanted = wanted.collect::<Result<Vec<_>>>()?;
    driver::load(sysfs)?;
    if !sysfs.path(MADS).exists() {
        // If this fails, each port says so.
        let _ = program::run(&["modprobe", "ib_umad"]);
    }
    if wanted.is_empty() {
        return ask_all(sysfs, ibsrpdm);
    }
    let mut failed = Ok(());
    for (address, target) in &wanted {
        if let Err(error) = at(sysfs, address, target) {
            failed = error.of(address.as_str()).after(failed);
        }
    }
    failed
}

/// Returns the target at an address.
fn target(device: Option<&str>, address: &str) -> Result<Target> {
    let mut target = Target {
        device: device.map(str::to_string),
        ..Target::default()
    };
    // Of the login only the address is known.
    for (option, value) in [
        ("id_ext", "0"),
        ("ioc_guid", "0"),
        ("dest", &with_port(address)),
    ] {
        target.set(option, value.to_string());
    }
    target.check().map(|()| target)
}

/// Prints the targets at an address.
fn at(sysfs: &Sysfs, address: &str, target: &Target) -> Result {
    let resolved = target.resolved(&resolve::system)?;
    let host = target.host().map(|(host, _)| host);
    resolve::first(host, &resolved, |target| {
        let (_, dest) = target.ends()?.ok_or_else(|| invalid(address))?;
        let port = port::choose(sysfs, target)?;
        let found = ask(sysfs, &port, dest)?;
        if found.is_empty() {
            return Err(Error::NotFound("there is no SRP target".into()));
        }
        for one in &found {
            say!("{address} through {}: {}", port.name(), one.name);
            let dest = target.option("dest").unwrap_or_default();
            say!("  srpctl connect {one} --dest '{dest}'");
        }
        Ok(())
    })
}

fn invalid(address: &str) -> Error {
    Error::Usage(format!("invalid address: '{address}'"))
}

/// Adds the default port to an address without one.
fn with_port(address: &str) -> String {
    let bare = address.parse::<Ipv6Addr>().is_ok();
    match () {
        () if bare => format!("[{address}]:{CM_PORT}"),
        () if address.ends_with(']') || !address.contains(':') => format!("{address}:{CM_PORT}"),
        () => address.to_string(),
    }
}

/// Queries the device management agent behind an address.
fn ask(sysfs: &Sysfs, port: &Port, dest: End) -> Result<Vec<Found>> {
    if port.link_layer(sysfs).as_deref() == Some("InfiniBand") {
        let why = format!(
            "{} is InfiniBand: `srpctl discover` without an address",
            port.name()
        );
        return Err(Error::NoPort(why));
    }
    let file = umad(sysfs, port)?;
    let wait = format!("an answer of {}", dest.ip);
    let route = roce::route(sysfs, port, port::with_scope(sysfs, dest)?)?;
    let path = sysfs.path(&file);
    let mut agent = umad::Agent::open(&path, device_management::CLASS)
        .map_err(|source| Error::io(Path::new(&file), source))?;
    let end = Instant::now() + LIMIT;
    let mut ask = |mad| match Instant::now() < end {
        true => agent.ask(&route, mad),
        false => Err(io::ErrorKind::TimedOut.into()),
    };
    let found = patience::waiting(&wait, || device_management::targets(&mut ask));
    found.map_err(|why| match why {
        Failure::Io(e) if is_silent(&e) => Error::Late(
            "no device management agent answers: check that the target is enabled, its address, \
             that it has the link-local IPv6 address of its MAC address, and for a firewall that \
             drops UDP 4791; `srpctl target-info` on it prints the command, too"
                .into(),
        ),
        why => Error::Program(format!("device management: {why}")),
    })
}

fn is_silent(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::TimedOut
}

/// Queries each InfiniBand port with `ask`, which gets the port's file in `/dev/infiniband` and
/// returns a login string per line. If a query fails, the other ports are still queried.
fn ask_all(sysfs: &Sysfs, ask: impl Fn(&str) -> Result<String>) -> Result {
    let ports = Port::some(sysfs)?;
    let (mut asked, mut failed) = (false, Vec::new());
    for port in &ports {
        if port.link_layer(sysfs).as_deref() == Some("InfiniBand") {
            match managed(sysfs, port).and_then(|file| ask(&file)) {
                Ok(found) => {
                    asked = true;
                    say!("{}: {} targets", port.name(), found.lines().count());
                    for line in found.lines() {
                        say!("  {line}");
                    }
                }
                Err(why) => {
                    tell!("{}: no discovery: {why}", port.name());
                    failed.push(port.name());
                }
            }
        } else {
            say!(
                "{} ({}): give the address of a target: `srpctl discover 192.0.2.1`",
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

/// Returns the umad file of a port with a subnet manager.
fn managed(sysfs: &Sysfs, port: &Port) -> Result<String> {
    // Without a subnet manager, ibsrpdm would wait for a reply that never comes.
    if port.subnet_manager(sysfs).is_none() {
        return Err(Error::NoPort(
            "the port has no subnet manager; check the cable and `sminfo`".into(),
        ));
    }
    umad(sysfs, port)
}

/// Returns the port's umad file in `/dev/infiniband`.
fn umad(sysfs: &Sysfs, port: &Port) -> Result<String> {
    let all = sysfs.entries(MADS);
    if all.is_empty() {
        let why = "the module ib_umad is not loaded: `modprobe ib_umad`";
        return Err(Error::NoPort(why.into()));
    }
    let found = all.into_iter().find(|folder| {
        sysfs::text(folder.join("ibdev")).as_ref() == Some(&port.device)
            && sysfs::number(folder.join("port")) == Some(port.number)
    });
    let found = found.map(|folder| format!("/dev/infiniband/{}", sysfs::name(folder)));
    found.ok_or_else(|| {
        Error::NoPort(format!(
            "{} has no management datagrams, as iWARP: \
             `srpctl target-info` on the target prints the command",
            port.name()
        ))
    })
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
    use std::{cell::RefCell, fs};

    #[test]
    fn an_address_has_the_default_port() {
        for (typed, wanted) in [
            ("192.0.2.1", "192.0.2.1:5555"),
            ("192.0.2.1:99", "192.0.2.1:99"),
            ("2001:db8::1", "[2001:db8::1]:5555"),
            ("[2001:db8::1]", "[2001:db8::1]:5555"),
            ("[fe80::1%eth1]:99", "[fe80::1%eth1]:99"),
            ("storage1", "storage1:5555"),
            ("storage1:99", "storage1:99"),
        ] {
            assert_eq!(with_port(typed), wanted);
        }
        for bad in [
            "",
            "192.0.2.1:",
            "192.0.2.999",
            "192.0.2.1,queue_size=5",
            "fe80::1%eth1",
        ] {
            // Before the module is loaded.
            let args = Discover {
                addresses: vec!["192.0.2.1".into(), bad.into()],
                device: None,
            };
            let root = tempfile::tempdir().expect("folder");
            let error = run(&Sysfs::below(root.path()), &args).expect_err(bad);
            assert_eq!(error.status(), 2, "{bad}: {error}");
        }
    }

    #[test]
    fn a_port_without_management_datagrams_says_so() {
        let root = tempfile::tempdir().expect("folder");
        let sysfs = Sysfs::below(root.path());
        port(root.path(), 0, "Ethernet", "0x0\n", false);
        let refused = |wanted: &str| {
            let target = target(None, "127.0.0.1").expect("target");
            let error = at(&sysfs, "127.0.0.1", &target).expect_err("no umad");
            assert_eq!(error.status(), 3, "{error}");
            assert!(error.to_string().contains(wanted), "{error}");
        };
        refused("the module ib_umad is not loaded");
        file(root.path(), "sys/class/infiniband_mad/umad7/ibdev", "ib7");
        refused("ib0/1 has no management datagrams, as iWARP");
        port(root.path(), 0, "InfiniBand", "0x0\n", false);
        refused("ib0/1 is InfiniBand");
    }

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
        assert_eq!(ask(root.path(), &[]).0.expect_err("no module").status(), 5);
        fs::create_dir_all(root.path().join("sys/class/infiniband_srp")).expect("folder");
        assert_eq!(ask(root.path(), &[]).0.expect_err("no port").status(), 3);
        port(root.path(), 0, "Ethernet", "0x0\n", true);
        let (result, asked) = ask(root.path(), &[]);
        assert!(result.is_ok() && asked.is_empty());
    }
}
