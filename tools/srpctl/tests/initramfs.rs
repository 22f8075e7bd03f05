// SPDX-License-Identifier: GPL-2.0

//! Tests of the login scripts of the initramfs, with an srpctl that only waits.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// Time that `slow` needs for its login, or to fail.
const SLOW: Duration = Duration::from_secs(8);

/// Runs a script with the targets in `names`, and returns how long it took and the logins that have
/// begun. A target `slow` takes a while, one with `away` in its name fails. The `id_ext` is what
/// follows `:` in the name, or 1. One with `lost` has no key in the image. `sBFT` is a table of
/// the firmware, of which sBFT2 is away and sBFT3 slow.
fn run(script: &str, names: &[&str]) -> (Duration, Vec<String>) {
    run_with(script, names, "")
}

/// The same, with the identifiers of the firmware's targets.
fn run_with(script: &str, names: &[&str], firmware: &str) -> (Duration, Vec<String>) {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    };
    let (tables, names): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| name.starts_with("sBFT"));
    for table in &tables {
        put(&format!("sys/firmware/acpi/tables/{table}"), "");
    }
    for name in &names {
        let id = name.split_once(':').map_or("0x1", |(_, id)| id);
        let text = format!(
            "# ioc_guid = \"9\"\nioc_guid=\"0000000000000002\"\nid_ext = \"{id}\" # here\n\
             dest = \"192.0.2.1:5555\"\ninitramfs = true\n"
        );
        put(&format!("system/etc/srp/targets.d/{name}.conf"), &text);
    }
    let status = Command::new(env!("CARGO_BIN_EXE_srpctl"))
        .args(["targets", "--root"])
        .arg(root.path().join("system"))
        .arg("--into")
        .arg(root.path())
        .status();
    assert!(status.unwrap().success());
    for name in names.iter().filter(|name| name.contains("lost")) {
        let key = format!("etc/srp/targets.d/{name}.key");
        fs::remove_file(root.path().join(key)).unwrap();
    }
    // Only files need a network.
    let network = i32::from(names.is_empty());
    let functions = format!(
        "configure_networking() {{ [ {network} = 0 ] || exit 1; }}\n\
         log_warning_msg() {{ echo \"$@\"; }}\n"
    );
    put("scripts/functions", &functions);
    put("lib/dracut-lib.sh", "warn() { echo \"$@\"; }\n");
    let began = root.path().join("began");
    let stub = format!(
        "#!/bin/sh\nif [ $1 = targets ]; then echo {firmware}; exit; fi\n\
         for name; do :; done\necho $name >>{}\n\
         case $name in slow*|*T3) sleep {} ;; esac\ncase $name in *away*|*T2) exit 1 ;; esac\n",
        began.display(),
        SLOW.as_secs()
    );
    put("bin/srpctl", &stub);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(script);
    let mut text = fs::read_to_string(path).unwrap();
    for folder in [" /etc/", " /scripts/", " /lib/", " /sys/", "=/run/"] {
        let (before, rest) = folder.split_at(1);
        text = text.replace(folder, &format!("{before}{}{rest}", root.path().display()));
    }
    put("script", &text);
    let path = std::env::var("PATH").unwrap();
    let start = Instant::now();
    let path_of_script = root.path().join("script");
    // dracut calls this one each time that udev has settled.
    let again = match script.ends_with("srp-firmware.sh") {
        true => r#". "$0"; . "$0"; wait"#,
        false => r#"exec sh "$0""#,
    };
    let status = Command::new("sh")
        .args(["-c", again])
        .arg(path_of_script)
        .env("PATH", format!("{}/bin:{path}", root.path().display()))
        .status()
        .unwrap();
    let took = start.elapsed();
    assert!(status.success());
    let all = || fs::read_to_string(&began).unwrap_or_default();
    while all().lines().count() < names.len() + tables.len() {
        assert!(start.elapsed() < SLOW, "not all at once: {}", all());
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut all: Vec<String> = all().lines().map(str::to_string).collect();
    all.sort();
    (took, all)
}

#[test]
fn a_path_that_is_away_delays_no_other() {
    for script in ["initramfs/local-top", "dracut/srp-login.sh"] {
        let names = ["root", "slow-a.away", "slow-b"];
        let (took, began) = run(script, &names);
        assert_eq!(began, names, "{script}");
        assert!(took < SLOW, "{script}: {took:?}");
    }
}

#[test]
fn one_path_is_waited_for() {
    let (took, _) = run("initramfs/local-top", &["away", "slow"]);
    assert!(took >= SLOW, "{took:?}");
    // All fail.
    let (took, began) = run("initramfs/local-top", &["away", "b.away"]);
    assert!(took < SLOW, "{took:?}");
    assert_eq!(began.len(), 2);
    let (_, began) = run("initramfs/local-top", &[]);
    assert!(began.is_empty());
}

#[test]
fn each_target_is_waited_for() {
    // The root file system may be on disks of both.
    for names in [
        ["root", "slow:2"],
        ["slow", "root:0x0000000000000002"],
        ["slow-lost", "lost"],
    ] {
        let (took, _) = run("initramfs/local-top", &names);
        assert!(took >= SLOW, "{names:?}: {took:?}");
    }
    for names in [
        ["root", "slow:0001"],
        ["root:0xfffffffffffffffA", "slow:fffffffffffffffa"],
        ["root", "away:2"],
    ] {
        let (took, _) = run("initramfs/local-top", &names);
        assert!(took < SLOW, "{names:?}: {took:?}");
    }
}

#[test]
fn the_firmware_needs_no_file_and_no_network() {
    for script in ["initramfs/local-top", "dracut/srp-firmware.sh"] {
        let (took, began) = run(script, &["sBFT"]);
        assert_eq!(began, ["--firmware=sBFT"], "{script}");
        assert!(took < SLOW, "{script}: {took:?}");
        let (_, began) = run(script, &["sBFT1", "sBFT2"]);
        assert_eq!(began, ["--firmware=sBFT1", "--firmware=sBFT2"], "{script}");
        assert!(run(script, &[]).1.is_empty(), "{script}");
    }
}

#[test]
fn one_table_is_waited_for_and_each_file() {
    for names in [&["sBFT1", "sBFT3"][..], &["root", "sBFT1", "sBFT3"]] {
        let (took, _) = run("initramfs/local-top", names);
        assert!(took < SLOW, "{names:?}: {took:?}");
    }
    for names in [["sBFT2", "sBFT3"], ["root", "sBFT3"], ["sBFT", "slow"]] {
        let (took, _) = run("initramfs/local-top", &names);
        assert!(took >= SLOW, "{names:?}: {took:?}");
    }
}

/// The firmware's target may have a file, too.
#[test]
fn a_table_and_a_file_are_paths_to_one_target() {
    let of = |id_ext: u64| format!("{id_ext:#018x}-0x0000000000000002");
    let firmware = format!("{} {}", of(1), of(3));
    for names in [["root", "sBFT3"], ["slow", "sBFT1"], ["slow:3", "sBFT1"]] {
        let (took, began) = run_with("initramfs/local-top", &names, &firmware);
        assert!(took < SLOW, "{names:?}: {took:?}");
        assert_eq!(began.len(), 2);
    }
    for names in [["root:2", "sBFT3"], ["slow:2", "sBFT1"], ["slow", "sBFT2"]] {
        let (took, _) = run_with("initramfs/local-top", &names, &firmware);
        assert!(took >= SLOW, "{names:?}: {took:?}");
    }
}
