// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::{
    cli::{Cli, Command},
    schema,
    session::tests::machine,
};
use clap::Parser;
use std::path::Path;
use table::tests::{made, sum};

/// Writes a file of a machine.
fn put(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Adds an RDMA port.
fn add_port(root: &Path, device: &str, gid: &str) {
    let folder = format!("sys/class/infiniband_srp/srp-{device}-1");
    put(root, &format!("{folder}/add_target"), "");
    put(root, &format!("{folder}/ibdev"), device);
    put(root, &format!("{folder}/port"), "1\n");
    let gids = format!("sys/class/infiniband/{device}/ports/1/gids");
    put(root, &format!("{gids}/0"), format!("{gid}\n"));
}

/// [`machine`], booted by iPXE through port rxe1/1, whose session host10 is that login.
pub fn booted() -> tempfile::TempDir {
    let folder = machine();
    let root = folder.path();
    put(root, &format!("{FOLDER}/sBFT"), table(3));
    put(root, &format!("{FOLDER}/FACP"), "other");
    add_port(root, "rxe0", "fe80:0000:0000:0000:5eed:0000:0000:0301");
    add_port(root, "rxe1", "fe80:0000:0000:0000:5eed:0000:0000:0201");
    let host = "sys/class/scsi_host/host10";
    fs::remove_file(root.join(host).join("dest")).unwrap();
    for file in ["dgid", "orig_dgid"] {
        let gid = "fe80:0000:0000:0000:5eed:0000:0000:0101\n";
        put(root, &format!("{host}/{file}"), gid);
    }
    folder
}

/// A table for the target of [`machine`].
pub fn table(lun: u8) -> Vec<u8> {
    let mut bytes = made();
    bytes[49] = lun;
    bytes[72..80].copy_from_slice(&1_u64.to_be_bytes());
    bytes[80..88].copy_from_slice(&2_u64.to_be_bytes());
    sum(&mut bytes);
    bytes
}

fn connect(line: &str) -> Connect {
    match Cli::parse_from(line.split(' ')).command {
        Command::Connect(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_login_is_shown_with_its_session() {
    let folder = booted();
    let sysfs = Sysfs::below(folder.path());
    assert_eq!(names(&sysfs), ["sBFT"]);
    let shown = || show(&sysfs, "sBFT".into(), &read(&sysfs, "sBFT").unwrap());
    let all = [shown()];
    schema::check("firmware", &all);
    assert_eq!(
        text(&all[0]),
        "sBFT: LUN 3 through the port with GID fe80:0000:0000:0000:5eed:0000:0000:0201\n  \
         srpctl connect --id-ext 0000000000000001 --ioc-guid 0000000000000002 \
         --dgid fe800000000000005eed000000000101 --pkey ffff --service-id 00000000000000a3 \
         --device rxe1 --port 1\n  \
         port     rxe1/1\n  session  host10\n  disk     /dev/disk/by-path/srp-rxe1"
    );
    let login = connect(&all[0].login);
    assert_eq!(login.device.as_deref(), Some("rxe1"));
    run(&sysfs, &List { json: true }).unwrap();
    // Another LUN; a session that leads elsewhere; no port.
    put(folder.path(), &format!("{FOLDER}/sBFT"), table(4));
    assert_eq!(
        (shown().session.as_deref(), shown().disk),
        (Some("host10"), None)
    );
    let place = "sys/class/scsi_host/host10/orig_dgid";
    put(folder.path(), place, "fe80::1\n");
    assert_eq!(shown().session, None);
    fs::remove_dir_all(folder.path().join("sys/class/infiniband/rxe1")).unwrap();
    let all = [shown()];
    schema::check("firmware", &all);
    assert_eq!(all[0].port, None);
    assert!(!all[0].login.contains("--device"));
}

#[test]
fn a_file_and_a_table_of_one_target_have_one_key() {
    let folder = booted();
    let sysfs = Sysfs::below(folder.path());
    let table = format!("{FOLDER}/sBFT2");
    put(folder.path(), &table, "bad");
    let login = "id_ext=01,ioc_guid=0x2,dest=192.0.2.1:5555";
    let file = Target::of_login(login).unwrap();
    assert_eq!(keys(&sysfs), [crate::boot::key(&file).unwrap()]);
}

#[test]
fn a_table_that_is_wrong_is_named_and_no_other_is_left_out() {
    let folder = booted();
    let sysfs = Sysfs::below(folder.path());
    let path = |name: &str| format!("{FOLDER}/{name}");
    fs::remove_file(sysfs.path(path("sBFT"))).unwrap();
    let error = run(&sysfs, &List { json: false }).unwrap_err();
    assert_eq!(error.status(), 6);
    assert!(
        error.to_string().starts_with("there is no /sys/firmware/"),
        "{error}"
    );
    put(folder.path(), &path("sBFT1"), table(3));
    put(folder.path(), &path("sBFT2"), &table(3)[..135]);
    put(folder.path(), &path("sBFTx"), "");
    assert_eq!(names(&sysfs), ["sBFT1", "sBFT2"]);
    let error = run(&sysfs, &List { json: false }).unwrap_err();
    let said = "tables/sBFT2: length: 136, and the table has 135 bytes";
    assert!(error.to_string().ends_with(said), "{error}");
    assert_eq!(error.status(), 1);
}

#[test]
fn the_port_is_that_with_the_gid() {
    let folder = booted();
    let sysfs = Sysfs::below(folder.path());
    let target = read(&sysfs, "sBFT").unwrap().target();
    assert_eq!(port::choose(&sysfs, &target).unwrap().device, "rxe1");
    // It may come later, so the login is retried.
    let gid = "sys/class/infiniband/rxe1/ports/1/gids/0";
    put(
        folder.path(),
        gid,
        "fe80:0000:0000:0000:0000:0000:0000:0000\n",
    );
    let error = port::choose(&sysfs, &target).unwrap_err();
    assert!(error.may_pass());
    assert_eq!(
        error.to_string(),
        "no RDMA port with the GID fe80:0000:0000:0000:5eed:0000:0000:0201; available: \
         rxe0/1, rxe1/1"
    );
}

#[test]
fn a_login_takes_options_and_one_table_to_save() {
    let folder = booted();
    let sysfs = Sysfs::below(folder.path());
    let args = connect("srpctl connect --firmware --queue-size 5 --dev-loss-tmo off");
    assert_eq!(args.firmware.as_deref(), Some(""));
    let table = read(&sysfs, "sBFT").unwrap();
    let target = table.target().with(&args).unwrap();
    assert_eq!(target.option("queue_size"), Some("5"));
    assert_eq!(target.option("id_ext"), table.target().option("id_ext"));
    assert_eq!(target.timeouts, [("dev_loss_tmo", "off".to_string())]);
    let args = connect("srpctl connect --firmware=sBFT9");
    let error = log_in(&sysfs, &args, "sBFT9").unwrap_err();
    assert_eq!(error.status(), 6);
    put(folder.path(), &format!("{FOLDER}/sBFT1"), made());
    let args = connect("srpctl connect --firmware --save root");
    let error = log_in(&sysfs, &args, "").unwrap_err();
    assert_eq!(
        error.to_string(),
        "--save: choose one of sBFT, sBFT1, as --firmware=sBFT"
    );
    for other in [
        "disk1",
        "--id-ext 1",
        "--dest 192.0.2.1:1",
        "--all",
        "--port 1",
        "--path",
    ] {
        let line = format!("srpctl connect --firmware {other}");
        assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
}
