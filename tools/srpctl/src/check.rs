// SPDX-License-Identifier: GPL-2.0

//! `srpctl check`: checks files of targets without a login.

use crate::{
    adapter, boot,
    cli::Check,
    error::{Error, Result},
    out::say,
    sysfs::Sysfs,
    target::{self, Target},
};
use std::path::Path;

/// Checks the files, and prints a line for each that is valid. Returns the last error, and prints
/// the others.
pub fn run(sysfs: &Sysfs, args: &Check) -> Result {
    let mut checked = Vec::new();
    for argument in &args.files {
        checked.push((argument.clone(), one(sysfs, argument)));
    }
    if args.files.is_empty() {
        checked = boot::files(sysfs);
        conflicts(sysfs, &mut checked);
    }
    let mut result = Ok(());
    for (name, target) in checked {
        match target {
            Ok(_) => say!("{name}: valid"),
            Err(error) => result = error.after(result),
        }
    }
    result
}

/// Reads the file that `argument` names: a path, which has a slash, or a target.
fn one(sysfs: &Sysfs, argument: &str) -> Result<Target> {
    if !argument.contains('/') {
        return Target::named(sysfs, argument);
    }
    let path = Path::new(argument);
    if !path.exists() {
        return Err(Error::NotFound(format!("there is no {argument}")));
    }
    Target::parse(argument, &target::read(path)?)
}

/// Refuses each file whose session is that of an earlier one: one port, one key.
fn conflicts(sysfs: &Sysfs, files: &mut [(String, Result<Target>)]) {
    for i in 0..files.len() {
        let (earlier, later) = files.split_at_mut(i);
        let Some((name, Ok(target))) = later.first() else {
            continue;
        };
        let Some(session) = session(sysfs, target) else {
            continue;
        };
        let is_same = |file: &&(String, Result<Target>)| {
            let (_, target) = file;
            target
                .as_ref()
                .is_ok_and(|other| self::session(sysfs, other).as_ref() == Some(&session))
        };
        let Some((other, _)) = earlier.iter().find(is_same) else {
            continue;
        };
        let why = format!(
            "{name} has the device, port, id_ext, ioc_guid and initiator_ext of {other}, so they \
             would be one session; give it another initiator_ext"
        );
        later[0].1 = Err(Error::Usage(why));
    }
}

/// Refuses several channels from one local port, as the driver does. Without `ch_count` it requests
/// several, except on a machine with one CPU.
pub fn channels(target: &Target) -> Result {
    let src = target.ends()?.and_then(|(src, _)| src);
    let Some(port) = src.and_then(|src| src.port).filter(|port| *port != 0) else {
        return Ok(());
    };
    if target.option("ch_count") == Some("1") {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "src: the port {port} serves one channel; leave it out, or set ch_count = 1"
    )))
}

/// Returns what a session is known by, if the file alone says it.
fn session(sysfs: &Sysfs, target: &Target) -> Option<(String, u32, (String, String, String))> {
    let device = adapter::lasting(sysfs, target.device.as_deref()?);
    Some((device, target.port?, target.key().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const GOOD: &str = "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"192.0.2.1:5555\"\n";

    fn check(sysfs: &Sysfs, files: &[&str]) -> Result {
        let files = files.iter().map(|file| file.to_string()).collect();
        run(sysfs, &Check { files })
    }

    #[test]
    fn a_file_is_a_name_or_a_path() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let folder = root.path().join("etc/srp/targets.d");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("good.conf"), GOOD).unwrap();
        check(&sysfs, &[]).unwrap();
        check(&sysfs, &["good"]).unwrap();
        assert_eq!(check(&sysfs, &["none"]).unwrap_err().status(), 6);
        let path = root.path().join("new");
        let path = path.to_str().unwrap();
        assert_eq!(check(&sysfs, &[path]).unwrap_err().status(), 6);
        fs::write(path, format!("{GOOD}tos = 999\n")).unwrap();
        let error = check(&sysfs, &[path, "good"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{path}:4: 'tos=999': must be 0 to 255")
        );
        assert_eq!(error.status(), 2);
        fs::write(folder.join("bad.conf"), "tos = 1\n").unwrap();
        assert_eq!(check(&sysfs, &[]).unwrap_err().status(), 2);
    }

    #[test]
    fn two_files_are_two_sessions() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let folder = root.path().join("etc/srp/targets.d");
        fs::create_dir_all(&folder).unwrap();
        let put = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        let file = format!("{GOOD}device = \"rxe0\"\nport = 1\n");
        put("a.conf", &file);
        put("b.conf", &file.replace("192.0.2.1", "192.0.2.2"));
        let error = check(&sysfs, &[]).unwrap_err().to_string();
        assert!(
            error.starts_with("b has the device, ") && error.contains(" of a, "),
            "{error}"
        );
        put("b.conf", &format!("{file}initiator_ext = \"1\"\n"));
        check(&sysfs, &[]).unwrap();
        // The route may choose two ports.
        put("b.conf", GOOD);
        check(&sysfs, &[]).unwrap();
    }

    #[test]
    fn a_local_port_has_one_channel() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let folder = root.path().join("etc/srp/targets.d");
        fs::create_dir_all(&folder).unwrap();
        let with = |lines: &str| {
            fs::write(folder.join("one.conf"), format!("{GOOD}{lines}\n")).unwrap();
            check(&sysfs, &["one"])
        };
        with("src = \"192.0.2.9\"\nch_count = 4").unwrap();
        with("src = \"192.0.2.9:700\"\nch_count = 1").unwrap();
        for count in ["", "ch_count = 4"] {
            let error = with(&format!("src = \"192.0.2.9:700\"\n{count}")).unwrap_err();
            assert_eq!(error.status(), 2);
            let said = ".conf:4: src: the port 700 serves one channel; leave it out, or set \
                ch_count = 1";
            assert!(error.to_string().ends_with(said), "{error}");
        }
    }
}
