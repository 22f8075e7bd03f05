// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::{
    cli::{Cli, Command},
    session::tests::machine,
};
use clap::Parser;
use std::fs;

/// Target `one` of [`machine`], whose session is host10.
fn one(sysfs: &Sysfs) -> (Session, Target) {
    let session = Session::hosts(sysfs).remove(1);
    assert_eq!(session.host, 10);
    (session, Target::named(sysfs, "one").unwrap())
}

#[test]
fn a_session_at_another_address_is_not_the_wanted_one() {
    let folder = machine();
    let sysfs = Sysfs::below(folder.path());
    let (session, mut target) = one(&sysfs);
    agree(&sysfs, &session, &target, Some("one")).unwrap();
    for dest in ["10.0.0.3:5555", "10.0.0.1:5556", "[fd00::1]:5555"] {
        target.set("dest", dest.into());
        let error = agree(&sysfs, &session, &target, Some("one")).unwrap_err();
        assert_eq!(error.status(), 2);
        assert!(
            error
                .to_string()
                .starts_with("host10 is already logged in at 10.0.0.1:5555; "),
            "{error}"
        );
    }
    target.set("dest", "[::ffff:10.0.0.1]:5555".into());
    agree(&sysfs, &session, &target, Some("one")).unwrap();
    // The local address.
    target.set("dest", "10.0.0.1:5555".into());
    let src = session.folder(&sysfs).join("src");
    fs::write(src, "10.0.0.2:33477\n").unwrap();
    target.set("src", "10.0.0.2".into());
    agree(&sysfs, &session, &target, Some("one")).unwrap();
    target.set("src", "10.0.0.12".into());
    let error = agree(&sysfs, &session, &target, Some("one")).unwrap_err();
    assert!(error.to_string().contains(" from 10.0.0.2; "), "{error}");
}

#[test]
fn a_unit_logs_in_by_the_file_alone() {
    let folder = machine();
    let sysfs = Sysfs::below(folder.path());
    let (_, target) = one(&sysfs);
    let is = |target: &Target| is_of_file(&sysfs, "one", target).unwrap();
    assert!(is(&target));
    for (option, value) in [
        ("src", "10.0.0.2"),
        ("initiator_ext", "1"),
        ("ioc_guid", "3"),
    ] {
        let mut other = target.clone();
        other.set(option, value.into());
        assert!(!is(&other), "{option}");
    }
    let mut other = target.clone();
    other.device = Some("rxe0".into());
    assert!(!is(&other));
    // The name of the adapter in the file.
    adapter::tests::put(folder.path(), "rxe1", "0000:00ff:fe00:0001");
    other.device = Some("0x000000fffe000001".into());
    assert!(is(&other));
    other.device = Some("0x000000fffe000002".into());
    assert!(!is(&other));
    other = target.clone();
    other.set("queue_size", "5".into());
    assert!(is(&other));
}

#[test]
fn a_session_is_not_taken_from_another_file() {
    let folder = machine();
    let sysfs = Sysfs::below(folder.path());
    let (session, target) = one(&sysfs);
    Owner::record(&sysfs, &session, "srpctl", Some("one"), &extension(0), None).unwrap();
    let (session, _) = one(&sysfs);
    agree(&sysfs, &session, &target, Some("one")).unwrap();
    agree(&sysfs, &session, &target, None).unwrap();
    let error = agree(&sysfs, &session, &target, Some("two")).unwrap_err();
    assert!(error.to_string().contains(" as target one; "), "{error}");
    fs::remove_file(Target::path(&sysfs, "one").unwrap()).unwrap();
    agree(&sysfs, &session, &target, Some("two")).unwrap();
}

#[test]
fn another_path_has_an_extension_of_its_own() {
    let folder = machine();
    let sysfs = Sysfs::below(folder.path());
    let (session, target) = one(&sysfs);
    let port = Port {
        folder: folder.path().into(),
        device: session.device.clone(),
        number: session.port,
    };
    // 0 is the default of the file and of the session.
    assert_eq!(unused(&sysfs, &target, &port).unwrap(), 1);
    fs::write(
        session.folder(&sysfs).join("initiator_ext"),
        "0x0000000000000001\n",
    )
    .unwrap();
    assert_eq!(unused(&sysfs, &target, &port).unwrap(), 2);
    // A file without a session.
    let file = "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"10.0.0.3:5555\"\n";
    let path = Target::path(&sysfs, "two").unwrap();
    fs::write(path, format!("{file}initiator_ext = \"2\"\n")).unwrap();
    assert_eq!(unused(&sysfs, &target, &port).unwrap(), 3);
}

#[test]
fn a_session_at_any_address_of_the_name_is_there() {
    let folder = machine();
    let sysfs = Sysfs::below(folder.path());
    fs::create_dir_all(folder.path().join("sys/class/infiniband_srp")).unwrap();
    let session = sysfs.path("/sys/class/scsi_host/host10/dest");
    let file = Target::path(&sysfs, "one").unwrap();
    // Without a device in the file the route would choose the port.
    let text = "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"localhost:5555\"\n";
    fs::write(file, text).unwrap();
    let line = ["srpctl", "connect", "one"];
    let Command::Connect(mut args) = Cli::parse_from(line).command else {
        panic!("connect");
    };
    let target = Target::named(&sysfs, "one").unwrap();
    let log_in = |args: &Connect| log_in_as(&sysfs, args, &target);
    assert_eq!(log_in(&args).err().unwrap().status(), 3);
    let addresses = resolve::system("localhost").unwrap();
    let last = resolve::text(addresses.last().unwrap());
    fs::write(&session, format!("{last}:5555\n")).unwrap();
    let (login, _) = log_in(&args).ok().unwrap();
    assert_eq!((login.session.host, login.new), (10, false));
    let one = &Session::hosts(&sysfs)[1];
    Owner::begin_leaving(&sysfs, one).unwrap();
    assert_eq!(log_in(&args).err().unwrap().status(), 3);
    Owner::forget(&sysfs, one);
    args.path = true;
    assert_eq!(log_in(&args).err().unwrap().status(), 3);
}

#[test]
fn what_is_missing_or_invalid_is_named() {
    let parse =
        |line: &str| Cli::try_parse_from(["srpctl", "connect"].into_iter().chain(line.split(' ')));
    for (line, said) in [
        ("--dest 192.0.2.1:5555", "id_ext, ioc_guid"),
        ("--ioc-guid 1", "id_ext, dest"),
        (
            "--dgid fe800000000000000000000000000001 --id-ext 1",
            "ioc_guid, pkey, service_id",
        ),
    ] {
        let Command::Connect(args) = parse(line).unwrap().command else {
            panic!("connect");
        };
        let target = Target::of(&Sysfs::system(), &args).unwrap();
        let error = target.check().unwrap_err().to_string();
        assert_eq!(error, format!("missing in the login string: {said}"));
    }
    let error = parse("one --retry -5").unwrap_err().to_string();
    assert!(
        error.contains("invalid value '-5' for '--retry <SECONDS>'"),
        "{error}"
    );
}

#[test]
fn a_session_is_told_even_if_its_timeouts_cannot_be_set() {
    let folder = machine();
    let sysfs = Sysfs::below(folder.path());
    fs::create_dir_all(folder.path().join("sys/class/infiniband_srp")).unwrap();
    let Command::Connect(args) = Cli::parse_from(["srpctl", "connect", "one"]).command else {
        panic!("connect");
    };
    let (session, mut target) = one(&sysfs);
    Owner::record(&sysfs, &session, OURS, Some("one"), &extension(0), None).unwrap();
    let file = Session::remote_port(&sysfs, 10).join("dev_loss_tmo");
    fs::create_dir_all(file).unwrap();
    target.set("dev_loss_tmo", "60".into());
    let (login, rest) = log_in_as(&sysfs, &args, &target).ok().unwrap();
    assert_eq!((login.session.host, login.new), (10, false));
    let error = rest.unwrap_err().to_string();
    assert!(error.contains("dev_loss_tmo"), "{error}");
}

#[test]
fn a_session_that_is_there_is_rescanned() {
    let folder = machine();
    let sysfs = Sysfs::below(folder.path());
    let scan = |host: &str| {
        folder
            .path()
            .join(format!("sys/class/scsi_host/{host}/scan"))
    };
    let mut session = Session::hosts(&sysfs).remove(1);
    assert!(session.disks.is_empty());
    rescan::found(&sysfs, &mut session);
    assert_eq!(fs::read_to_string(scan("host10")).unwrap(), "- - -");
    assert_eq!(session.disks[0].name, "sdc");
    // Without a connection.
    session = Session::hosts(&sysfs).remove(0);
    session.channels = 0;
    rescan::found(&sysfs, &mut session);
    assert!(!scan("host9").exists());
}

#[test]
fn a_path_that_is_away_delays_no_login() {
    let folder = machine();
    let sysfs = Sysfs::below(folder.path());
    let (session, mut target) = one(&sysfs);
    let port = Port {
        folder: folder.path().into(),
        device: session.device.clone(),
        number: session.port,
    };
    let parameter = sysfs.path(driver::OURS);
    fs::create_dir_all(parameter.parent().unwrap()).unwrap();
    fs::write(parameter, "5\n").unwrap();
    let names = |target: &mut Target, another_path| {
        let held = locks(&sysfs, target, &port, another_path).unwrap();
        let files = sysfs.entries("/run/srp");
        files.iter().for_each(|file| fs::remove_file(file).unwrap());
        let ends: Vec<String> = files.iter().map(sysfs::name).collect();
        let place = "login-rxe1-1-0x0000000000000001-0x0000000000000002";
        assert_eq!(held.len(), ends.len());
        ends.iter()
            .map(|name| name.strip_prefix(place).unwrap().to_string())
            .collect::<Vec<_>>()
    };
    let zero = "-0x0000000000000000.lock";
    assert_eq!(names(&mut target, false), [zero]);
    // A login that chooses an extension waits for all others that do. The file's extension is 0.
    let mut another = target.clone();
    let mut chosen = names(&mut another, true);
    chosen.sort();
    assert_eq!(chosen, ["-0x0000000000000001.lock", ".lock"]);
    assert_eq!(another.option("initiator_ext"), Some("1"));
    // With the C driver all wait for each other.
    fs::remove_file(sysfs.path(driver::OURS)).unwrap();
    let mut all = names(&mut target, false);
    all.sort();
    assert_eq!(all, [zero, ".lock"]);
}
