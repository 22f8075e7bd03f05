// SPDX-License-Identifier: GPL-2.0

//! Tests with the made-up machine of [`machine`].

use super::*;
use crate::{schema, session::tests::machine};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::stat::Mode,
    unistd::mkfifo,
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

const ONE: &str = "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"10.0.0.1:5555\"\ndevice = \"rxe1\"\n";

fn put(root: &Path, name: &str, text: &str) {
    fs::write(root.join(&FOLDER[1..]).join(name), text).unwrap();
}

/// Compares without systemd. The host name `storage` has two addresses, one of them 10.0.0.1.
fn found(sysfs: &Sysfs) -> Vec<Item> {
    let lookup = |name: &str| match name {
        "storage" => Ok(vec![
            "10.0.0.9:0".parse().unwrap(),
            "10.0.0.1:0".parse().unwrap(),
        ]),
        "away" => Err(std::io::ErrorKind::TimedOut.into()),
        _ => Ok(vec!["10.0.0.9:0".parse().unwrap()]),
    };
    checked(compare(sysfs, None, &lookup))
}

fn checked(items: Result<Vec<Item>>) -> Vec<Item> {
    let items = items.unwrap();
    let report = Report {
        changed: false,
        check: true,
        targets: &items,
    };
    schema::check("apply", &report);
    items
}

fn actions(sysfs: &Sysfs) -> Vec<(String, Action)> {
    let items = found(sysfs).into_iter();
    items.map(|item| (item.target, item.action)).collect()
}

fn record(sysfs: &Sysfs, host: u32, name: &str, login: &str) {
    let all = Session::hosts(sysfs);
    let session = all.iter().find(|session| session.host == host).unwrap();
    let zero = "0x0000000000000000";
    Owner::record(sysfs, session, "srpctl", Some(name), zero, Some(login)).unwrap();
}

fn one(action: Action) -> Vec<(String, Action)> {
    vec![("one".into(), action)]
}

#[test]
fn each_file_has_a_session() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    assert_eq!(actions(&sysfs), one(Action::None));
    put(root.path(), "two.conf", &ONE.replace("rxe1", "rxe7"));
    let file = format!("{ONE}onboot = false\n");
    put(root.path(), "manual.conf", &file.replace("rxe1", "rxe8"));
    put(root.path(), "wrong.conf", "queue_sise = 1\n");
    let mut items = found(&sysfs);
    let line = |item: &Item| item.line(true);
    assert_eq!(
        items.iter().map(line).collect::<Vec<_>>(),
        [
            "manual: onboot = false; nothing to do".to_string(),
            "one: nothing to do".into(),
            "two: not logged in; would log in".into(),
            format!(
                "wrong: failed: {}/wrong.conf:1: no such option: queue_sise",
                sysfs.path(FOLDER).display()
            ),
        ]
    );
    assert_eq!(items[1].hosts, ["host10"]);
    for item in &mut items {
        item.changed = item.action != Action::None;
    }
    // An invalid file matters more than a difference.
    let wrong = items.pop().unwrap();
    assert_eq!(result(vec![wrong], true).unwrap_err().status(), 2);
    assert_eq!(result(items, true).unwrap_err().status(), 9);
    assert!(result(Vec::new(), true).is_ok());
}

#[test]
fn the_units_run() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    let lookup = |_: &str| Ok(Vec::new());
    let with = |units: &[&str]| {
        let units: Vec<String> = units.iter().map(|name| name.to_string()).collect();
        checked(compare(&sysfs, Some(&units), &lookup))[0].action
    };
    assert_eq!(with(&["two", "one"]), Action::None);
    assert_eq!(with(&["two"]), Action::StartUnit);
    put(root.path(), "one.conf", &format!("{ONE}initramfs = true\n"));
    assert_eq!(with(&["two"]), Action::StartUnit);
}

#[test]
fn timeouts_are_set_in_place() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    let port = Session::remote_port(&sysfs, 10);
    for (name, value) in [
        ("reconnect_delay", "10"),
        ("fast_io_fail_tmo", "15"),
        ("dev_loss_tmo", "600"),
    ] {
        fs::write(port.join(name), format!("{value}\n")).unwrap();
    }
    put(
        root.path(),
        "one.conf",
        &format!("{ONE}dev_loss_tmo = 60\n"),
    );
    let mut item = found(&sysfs).remove(0);
    assert_eq!(item.action, Action::SetTimeouts);
    assert_eq!(item.why.as_deref(), Some("dev_loss_tmo is 600, not 60"));
    item.apply(&sysfs).unwrap();
    // A file in sysfs ends with a newline.
    fs::write(port.join("dev_loss_tmo"), "60\n").unwrap();
    assert_eq!(actions(&sysfs), one(Action::None));
}

#[test]
fn a_session_with_other_options_is_replaced() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    let login = "dest=10.0.0.1:5555,id_ext=0x1,ioc_guid=2,queue_size=62";
    record(&sysfs, 10, "one", login);
    // The default, written out.
    assert_eq!(actions(&sysfs), one(Action::None));
    let session = Session::hosts(&sysfs).remove(1);
    let others = |text: &str| {
        let target = Target::parse("x", text).unwrap();
        other_options(&sysfs, &session, &target, "wanted")
    };
    assert_eq!(others(ONE), None);
    let depth = others(&format!("{ONE}queue_size = 8\n"));
    assert_eq!(depth.as_deref(), Some("queue_size 62 (wanted: 8)"));
    for (file, why) in [
        (
            format!("{ONE}queue_size = 128\n"),
            "logged in with queue_size 62 (file: 128)",
        ),
        (
            format!("{ONE}tos = 3\n"),
            "logged in with tos none (file: 3)",
        ),
        (
            ONE.replace("10.0.0.1", "10.0.0.7"),
            "logged in with dest 10.0.0.1:5555 (file: 10.0.0.7:5555)",
        ),
        (ONE.replace("rxe1", "rxe0"), "logged in through rxe1/1"),
        (
            ONE.replace("ioc_guid = \"2\"", "ioc_guid = \"3\""),
            "logged in with id_ext 0x0000000000000001, ioc_guid 0x0000000000000002, \
             initiator_ext 0x0000000000000000",
        ),
    ] {
        put(root.path(), "one.conf", &file);
        let item = found(&sysfs).remove(0);
        assert_eq!(
            (item.action, item.why.as_deref()),
            (Action::LogInAgain, Some(why))
        );
    }
}

#[test]
fn a_host_name_is_each_of_its_addresses() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    for (host, action) in [
        ("storage", Action::None),
        ("away", Action::None),
        ("elsewhere", Action::LogInAgain),
    ] {
        put(root.path(), "one.conf", &ONE.replace("10.0.0.1", host));
        record(
            &sysfs,
            10,
            "one",
            &format!("id_ext=1,ioc_guid=2,dest={host}:5555"),
        );
        assert_eq!(actions(&sysfs), one(action), "{host}");
    }
}

#[test]
fn the_session_of_another_stays() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    put(
        root.path(),
        "one.conf",
        &ONE.replace("10.0.0.1", "10.0.0.7"),
    );
    let items = found(&sysfs);
    assert_eq!(items[0].action, Action::None);
    let said = items[0].error.as_deref().unwrap();
    let begin = "host10 was not made for this file by srpctl and is logged in at 10.0.0.1:5555; ";
    assert!(said.starts_with(begin), "{said}");
}

#[test]
fn a_session_without_its_file_ends() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    record(&sysfs, 9, "old", "");
    assert_eq!(
        actions(&sysfs),
        [("old".into(), Action::LogOut), ("one".into(), Action::None)]
    );
    put(root.path(), "old.conf", &format!("{ONE}onboot = false\n"));
    assert_eq!(actions(&sysfs)[0], ("old".into(), Action::None));
}

#[test]
fn programs_read_one_document() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    put(root.path(), "two.conf", &ONE.replace("rxe1", "rxe7"));
    let items = found(&sysfs);
    let report = Report {
        changed: true,
        check: true,
        targets: &items,
    };
    assert_eq!(
        serde_json::to_value(&report).unwrap(),
        serde_json::json!({
            "changed": true,
            "check": true,
            "targets": [
                {
                    "target": "one",
                    "file": "/etc/srp/targets.d/one.conf",
                    "changed": false,
                    "action": "none",
                    "why": null,
                    "hosts": ["host10"],
                    "error": null,
                },
                {
                    "target": "two",
                    "file": "/etc/srp/targets.d/two.conf",
                    "changed": false,
                    "action": "log-in",
                    "why": "not logged in",
                    "hosts": [],
                    "error": null,
                },
            ],
        })
    );
}

#[test]
fn a_folder_that_cannot_be_read_ends_no_session() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    record(&sysfs, 10, "one", "");
    let args = Apply {
        check: true,
        json: false,
    };
    let folder = root.path().join(&FOLDER[1..]);
    fs::rename(&folder, root.path().join("aside")).unwrap();
    let error = run(&sysfs, &args).unwrap_err();
    assert_eq!(error.status(), 6, "{error}");
    assert!(error.to_string().contains("targets.d"), "{error}");
    // Root may read every folder, so a file stands for one that cannot be read.
    fs::write(&folder, "").unwrap();
    let error = run(&sysfs, &args).unwrap_err();
    assert_eq!(error.status(), 1, "{error}");
    assert!(error.to_string().contains("targets.d"), "{error}");
    // Without a session of a file there is nothing to do.
    fs::remove_file(&folder).unwrap();
    fs::remove_dir_all(root.path().join("run")).unwrap();
    run(&sysfs, &args).unwrap();
}

#[test]
fn one_of_two_sessions_is_enough() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    let hosts = |item: &Item| -> Vec<u32> { item.sessions.iter().map(|s| s.host).collect() };
    let login = "id_ext=1,ioc_guid=2,dest=10.0.0.1:5555";
    record(&sysfs, 9, "one", login);
    record(&sysfs, 10, "one", login);
    assert_eq!(actions(&sysfs), one(Action::None));
    // The other session is a path that the administrator has added.
    put(root.path(), "one.conf", &format!("{ONE}tos = 3\n"));
    let item = found(&sysfs).remove(0);
    assert_eq!((item.action, hosts(&item)), (Action::LogInAgain, vec![10]));
    // Neither session matches the file.
    put(root.path(), "one.conf", &ONE.replace("rxe1", "rxe7"));
    let item = found(&sysfs).remove(0);
    assert_eq!(
        (item.action, hosts(&item)),
        (Action::LogInAgain, vec![9, 10])
    );
    let all = Session::hosts(&sysfs);
    let owner = |owner| Owner::record(&sysfs, &all[0], owner, Some("one"), "0x0", None).unwrap();
    owner("initramfs");
    let item = found(&sysfs).remove(0);
    assert_eq!((item.action, hosts(&item)), (Action::LogInAgain, vec![10]));
    fs::remove_file(root.path().join(&FOLDER[1..]).join("one.conf")).unwrap();
    let item = found(&sysfs).remove(0);
    assert_eq!((item.action, hosts(&item)), (Action::LogOut, vec![10]));
}

#[test]
fn a_name_and_its_address_are_one_place() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    for (made, file, action) in [
        ("10.0.0.1:5555", "storage", Action::None),
        ("storage:5555", "10.0.0.1", Action::None),
        ("san:5555", "storage", Action::None),
        ("10.0.0.1:5555", "elsewhere", Action::LogInAgain),
        ("storage:5555", "10.0.0.9", Action::LogInAgain),
    ] {
        put(root.path(), "one.conf", &ONE.replace("10.0.0.1", file));
        let login = format!("id_ext=1,ioc_guid=2,dest={made}");
        record(&sysfs, 10, "one", &login);
        assert_eq!(actions(&sysfs), one(action), "{made} {file}");
    }
}

#[test]
fn a_renamed_file_is_logged_in_anew() {
    let root = machine();
    let sysfs = Sysfs::below(root.path());
    record(&sysfs, 10, "old", "");
    assert_eq!(
        actions(&sysfs),
        [
            ("old".into(), Action::LogOut),
            ("one".into(), Action::LogIn)
        ]
    );
}

/// Gives the machine the port of an adapter. A login there ends at once: no session is made.
fn port(root: &Path, device: &str) -> PathBuf {
    let folder = root.join(format!("sys/class/infiniband_srp/srp-{device}-1"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("ibdev"), device).unwrap();
    fs::write(folder.join("port"), "1").unwrap();
    fs::write(folder.join("add_target"), "").unwrap();
    folder.join("add_target")
}

/// Returns whether a process that logs out or restarts units has to wait.
fn is_locked(root: &Path) -> bool {
    let file = fs::File::open(root.join("run/srp/units.lock")).unwrap();
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err()
}

/// Carries out the action for the first target while the driver ends host10. Returns the error,
/// and whether the driver was told to end it. A logout is a change, also if the login fails.
fn apply(sysfs: &Sysfs, root: &Path) -> (Result, bool) {
    let mut item = compare(sysfs, None, &resolve::system).unwrap().remove(0);
    let delete = Session::remote_port(sysfs, 10).join("delete");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) && !delete.exists() {
                thread::sleep(Duration::from_millis(5));
            }
            if delete.exists() {
                assert!(is_locked(root));
                fs::remove_dir_all(root.join("sys/class/scsi_host/host10")).unwrap();
            }
        });
        let result = item.apply(sysfs);
        done.store(true, Ordering::SeqCst);
        if let Err(error) = &result {
            assert_eq!(item.changed, delete.exists(), "{error}");
        }
        (result, delete.exists())
    })
}

/// A machine without programs that use disks.
fn idle() -> tempfile::TempDir {
    let root = machine();
    let own = root.path().join("proc/self");
    fs::create_dir_all(own.join("ns")).unwrap();
    std::os::unix::fs::symlink("mnt:[1]", own.join("ns/mnt")).unwrap();
    fs::write(own.join("mountinfo"), "").unwrap();
    root
}

#[test]
fn a_new_file_is_logged_in_to() {
    let root = idle();
    let sysfs = Sysfs::below(root.path());
    let add_target = port(root.path(), "rxe7");
    let file = ONE.replace("rxe1", "rxe7").replace("10.0.0.1", "127.0.0.1");
    put(root.path(), "one.conf", &file);
    let (result, ended) = apply(&sysfs, root.path());
    let error = result.unwrap_err().to_string();
    assert!(error.contains("ended right after the login"), "{error}");
    assert!(!ended);
    let login = fs::read_to_string(add_target).unwrap();
    assert_eq!(login, "dest=127.0.0.1:5555,id_ext=1,ioc_guid=2");
}

#[test]
fn a_session_of_a_removed_file_is_logged_out_of() {
    let root = idle();
    let sysfs = Sysfs::below(root.path());
    record(&sysfs, 10, "old", "");
    let (result, ended) = apply(&sysfs, root.path());
    result.unwrap();
    assert!(ended && !root.path().join("run/srp/host10").exists());
    // The other session stays.
    assert!(!Session::remote_port(&sysfs, 9).join("delete").exists());
}

#[test]
fn a_session_ends_only_if_a_login_can_follow() {
    let root = idle();
    let sysfs = Sysfs::below(root.path());
    record(&sysfs, 10, "one", "id_ext=1,ioc_guid=2,dest=127.0.0.1:5555");
    let add_target = port(root.path(), "rxe1");
    let local = ONE.replace("10.0.0.1", "127.0.0.1");
    let module = root.path().join("sys/module/ib_srp/parameters");
    fs::create_dir_all(&module).unwrap();
    fs::write(module.join("dev_loss_tmo"), "20\n").unwrap();
    for (file, status) in [
        // The adapter has another name.
        (local.replace("rxe1", "rxe2"), 3),
        (format!("{local}src = \"192.0.2.9\"\n"), 3),
        (local.replace("127.0.0.1", "[fe80::1%none0]"), 3),
        (format!("{local}tos = 3\nfast_io_fail_tmo = 30\n"), 2),
    ] {
        put(root.path(), "one.conf", &file);
        let (result, ended) = apply(&sysfs, root.path());
        assert_eq!((result.unwrap_err().status(), ended), (status, false));
    }
    assert_eq!(fs::read_to_string(&add_target).unwrap(), "");
    // The login waits for a reader.
    fs::remove_file(&add_target).unwrap();
    mkfifo(&add_target, Mode::S_IRWXU).unwrap();
    put(root.path(), "one.conf", &format!("{local}tos = 3\n"));
    let (result, ended) = thread::scope(|scope| {
        let login = scope.spawn(|| {
            while sysfs.path("/sys/class/scsi_host/host10").exists() {
                thread::sleep(Duration::from_millis(5));
            }
            thread::sleep(Duration::from_millis(300));
            let is_locked = is_locked(root.path());
            (is_locked, fs::read_to_string(&add_target).unwrap())
        });
        let done = apply(&sysfs, root.path());
        let (is_locked, login) = login.join().unwrap();
        assert!(is_locked);
        assert_eq!(login, "dest=127.0.0.1:5555,id_ext=1,ioc_guid=2,tos=3");
        done
    });
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("ended right after the login") && ended,
        "{error}"
    );
}
