// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::cli::{Cli, Command};
use clap::Parser;

const GOOD: &str = "# disk\ndevice = \"mlx5_0\"\nport = 1\nid_ext = \"0002c90300a1b2c3\"\n\
    ioc_guid = \"0x2c90300a1b2c3\"\ndest = \"192.0.2.1:5555\"\ninitramfs = true\n";

#[test]
fn a_file_is_a_login_string() {
    let target = Target::parse("x", GOOD).unwrap();
    assert_eq!(target.device.as_deref(), Some("mlx5_0"));
    assert_eq!(target.port, Some(1));
    assert_eq!(
        target.login_string(),
        "dest=192.0.2.1:5555,id_ext=0002c90300a1b2c3,ioc_guid=0x2c90300a1b2c3"
    );
    assert!(target.initramfs);
    assert_eq!(target.key().unwrap().1, "0x0002c90300a1b2c3");
    assert_eq!(Target::parse("x", &target.to_file()).unwrap(), target);
}

#[test]
fn what_is_wrong_is_named() {
    let with = |line: &str| format!("{GOOD}{line}\n");
    for (text, said) in [
        (with("queue_sise = 1"), "x:8: no such option: queue_sise"),
        (
            with("initramfs = false"),
            "x:8: duplicate key `initramfs` in document root",
        ),
        (
            GOOD.replace("true", "\"yes\""),
            "x:7: initramfs: must be true or false",
        ),
        (
            with("pkey = 1"),
            "x:8: pkey is hexadecimal: put it in quotes",
        ),
        (
            with("src = [1]"),
            "x:8: src: must be a number, or text in double quotes; this is of type array",
        ),
        (
            with("tl_retry_count = -9"),
            "x:8: 'tl_retry_count=-9': must be 2 to 7",
        ),
        (
            GOOD.replace("port = 1", "port = -1"),
            "x:3: port: '-1' is not 1 to 255",
        ),
        (with("src = \"a,b\""), "x:8: src: invalid value: 'a,b'"),
        (with("tos = \"1 \""), "x:8: tos: invalid value: '1 '"),
        (with("src ="), "x:8: invalid string, expected `\"`, `'`"),
        (
            with("src = storage:5555"),
            "x:8: invalid string, expected `\"`, `'`; a value that is not a number must be in \
             double quotes",
        ),
        (
            with("queue_size = 010 # octal"),
            "x:8: expected newline, `#`; a number does not begin with 0",
        ),
        (
            with("tl_retry_count = 9"),
            "x:8: 'tl_retry_count=9': must be 2 to 7",
        ),
        (
            with("fast_io_fail_tmo = 700"),
            "x:8: fast_io_fail_tmo: must be at most 600, or off",
        ),
        (
            with("dev_loss_tmo = 9\nfast_io_fail_tmo = 15"),
            "x:9: fast_io_fail_tmo (15) must be less than dev_loss_tmo (9)",
        ),
        (
            with("src = 10.0.0.1"),
            "x:8: expected newline, `#`; a value that is not a number must be in double quotes",
        ),
        (
            with("tos=1,ch_count=2"),
            "x:8: expected newline, `#`; give each option a line of its own, as name = \"value\"",
        ),
        (
            with("dev-loss-tmo = 9"),
            "x:8: no such option: dev-loss-tmo; it is dev_loss_tmo",
        ),
        (
            with("poll_queues = 2"),
            "x:8: no such option: poll_queues; it is a parameter of the module: options ib_srp \
             poll_queues=N in /etc/modprobe.d",
        ),
        (with("onboot = 0"), "x:8: onboot: must be true or false"),
        (
            with("onboot = false"),
            "x:8: initramfs = true needs a login at boot",
        ),
        (
            GOOD.replace("192.0.2.1", "storage.example.com")
                .replace("5555", "99999"),
            "x:6: 'dest=storage.example.com:99999': the port must be 1 to 65535, or 0 in src",
        ),
        (
            GOOD.replace("192.0.2.1:5555", "storage.example.com"),
            "x:6: 'dest=storage.example.com': a port is missing",
        ),
        (
            GOOD.replace("port = 1", "port = 0"),
            "x:3: port: '0' is not 1 to 255",
        ),
        (
            GOOD.replace("dest", "# dest"),
            "x: missing in the login string: dest",
        ),
    ] {
        let error = Target::parse("x", &text).unwrap_err();
        assert_eq!(error.to_string(), said);
        assert_eq!(error.status(), 2);
    }
}

#[test]
fn who_answers_may_be_several() {
    let one = format!("{GOOD}answers_from = \"192.0.2.2:5555\"\n");
    let target = Target::parse("x", &one).unwrap();
    let login = target.login_string();
    assert!(login.ends_with(",answers_from=192.0.2.2:5555"), "{login}");
    let two = format!("{GOOD}answers_from = [\"192.0.2.2:5555\", \"192.0.2.3:5555\"]\n");
    let target = Target::parse("x", &two).unwrap();
    let login = target.login_string();
    assert!(
        login.contains("answers_from=192.0.2.2:5555,answers_from=192.0.2.3:5555"),
        "{login}"
    );
    let again = Target::parse("x", &target.to_file()).unwrap();
    assert_eq!(again.login_string(), login);
    let twice = two.replace("192.0.2.3", "192.0.2.2");
    let error = Target::parse("x", &twice).unwrap_err().to_string();
    assert!(error.contains("address given twice"), "{error}");
    // No other option is a list.
    let list = GOOD.replace("\"192.0.2.1:5555\"", "[\"192.0.2.1:5555\"]");
    assert!(Target::parse("x", &list).is_err());
}

#[test]
fn a_login_is_the_same_however_it_is_written() {
    let login = |text: &str| Target::of_login(text).unwrap();
    let one = login("id_ext=1,ioc_guid=2,dest=storage:5555,queue_size=62");
    for (text, same) in [
        ("dest=storage:0x15b3,ioc_guid=0x2,id_ext=01", true),
        ("dest=storage:5556,ioc_guid=2,id_ext=1", false),
        ("dest=other:5555,ioc_guid=2,id_ext=1", false),
        ("dest=storage:5555,ioc_guid=2,id_ext=1,queue_size=61", false),
        (
            "dest=storage:5555,ioc_guid=2,id_ext=1,initiator_ext=1",
            false,
        ),
    ] {
        assert_eq!(one.is_login_of(&login(text)), same, "{text}");
    }
    assert!(Target::of_login("id_ext=1,queue_sise=1").is_none());
}

#[test]
fn a_file_that_is_no_text_is_not_read_again() {
    let root = tempfile::tempdir().unwrap();
    let sysfs = Sysfs::below(root.path());
    let folder = root.path().join(&FOLDER[1..]);
    fs::create_dir_all(folder.join("folder.conf")).unwrap();
    fs::write(folder.join("binary.conf"), b"id_ext = \"\xff\"").unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero.conf")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.join("away.conf")).unwrap();
    std::os::unix::fs::symlink("loop.conf", folder.join("loop.conf")).unwrap();
    let error = Target::named(&sysfs, "away").unwrap_err();
    assert!(error
        .to_string()
        .ends_with("/away.conf: the link leads nowhere"));
    assert_eq!(error.status(), 6);
    for (name, said) in [
        ("folder", "not a regular file"),
        ("zero", "not a regular file"),
        ("loop", "loop.conf: the link leads to itself"),
        ("binary", "binary.conf:1: invalid UTF-8"),
    ] {
        let error = Target::named(&sysfs, name).unwrap_err();
        assert!(error.to_string().ends_with(said), "{error}");
        // The unit is not restarted: RestartPreventExitStatus.
        assert_eq!(error.status(), 2);
    }
    let error = Target::named(&sysfs, "binary.conf")
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("has no .conf"), "{error}");
    let error = Target::named(&sysfs, "/etc/srp/targets.d/disk1.conf").unwrap_err();
    assert!(
        error.to_string().ends_with("that of a file is disk1"),
        "{error}"
    );
}

#[test]
fn one_value_is_not_two_options() {
    let line = "srpctl connect --id-ext 1 --ioc-guid 2 --dest 10.0.0.1:5555,queue_size=1";
    let Command::Connect(args) = Cli::parse_from(line.split(' ')).command else {
        panic!("not connect");
    };
    let error = Target::of(&Sysfs::system(), &args).unwrap_err();
    assert_eq!(
        error.to_string(),
        "dest: invalid value: '10.0.0.1:5555,queue_size=1'"
    );
}

#[test]
fn a_name_is_one_part_of_a_path() {
    let sysfs = Sysfs::system();
    for name in ["", "../x", "a/b", ".x", "-d", "a b", "7", "host7"] {
        assert!(Target::path(&sysfs, name).is_err(), "{name}");
    }
    assert!(Target::path(&sysfs, "disk-1.a").is_ok());
    assert!(Target::path(&sysfs, &"d".repeat(235)).is_ok());
    let error = Target::path(&sysfs, &"d".repeat(236)).unwrap_err();
    assert!(error.to_string().contains("at most 235"), "{error}");
}
