// SPDX-License-Identifier: GPL-2.0

//! Logins at boot: `srpctl generator` for systemd, `srpctl targets` for the initramfs hooks.

use crate::{
    adapter,
    cli::{Generator, Targets},
    error::{Error, Result},
    firmware,
    out::{say, tell},
    sysfs::{self, Sysfs},
    target::{Target, FOLDER},
    unit::unit,
};
use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::symlink,
};

/// The drop-in of a target's unit, unless the initramfs logs in to the target.
const NETWORK: &str = "[Unit]\nWants=network-online.target\nAfter=network-online.target\n";
/// The unit that logs in to a target.
const UNIT: &str = "/usr/lib/systemd/system/srp-connect@.service";

/// The message if there is no file.
pub const NONE: &str = "no targets in /etc/srp/targets.d";

/// The files of targets.d: their names and parsed contents.
pub type Files = Vec<(String, Result<Target>)>;

/// Returns the files of targets.d; none if the folder cannot be read.
pub fn files(sysfs: &Sysfs) -> Files {
    readable(sysfs).unwrap_or_default()
}

/// As [`files`], with the error of a folder that is there and cannot be read.
pub fn all(sysfs: &Sysfs) -> Result<Files> {
    match readable(sysfs) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        files => files.map_err(|e| Error::io(sysfs.path(FOLDER), e)),
    }
}

/// As [`files`], with the error of a folder that is missing or cannot be read.
pub fn readable(sysfs: &Sysfs) -> io::Result<Files> {
    let all = sysfs.readable(FOLDER)?.into_iter();
    let files = all
        .filter(|path| path.extension().is_some_and(|end| end == "conf"))
        .filter(|path| !sysfs::name(path).starts_with('.'))
        .map(|path| {
            let name = sysfs::name(path.with_extension(""));
            let target = Target::named(sysfs, &name);
            (name, target)
        })
        .collect();
    Ok(files)
}

/// Implements systemd.generator(7): enables srp-connect@NAME.service at boot for each file, except
/// with `onboot = false`. The unit of a target with `initramfs = true` finds the session of the
/// initramfs, or logs in if that path was away; its stop does not log out. An invalid file also
/// gets a unit, which fails and reports why.
pub fn generator(sysfs: &Sysfs, args: &Generator) -> Result {
    let wants = args.normal.join("multi-user.target.wants");
    for (name, target) in all(sysfs)? {
        let mut in_initramfs = false;
        match target {
            Ok(target) if target.manual => continue,
            Ok(target) => in_initramfs = target.initramfs,
            Err(error) if Target::path(sysfs, &name).is_err() => {
                tell!("{FOLDER}/{name}.conf skipped: {error}");
                continue;
            }
            Err(error) => tell!("{error}"),
        }
        fs::create_dir_all(&wants).map_err(|e| Error::io(&wants, e))?;
        let link = wants.join(unit(&name));
        match symlink(UNIT, &link) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(Error::io(&link, e)),
            _ => {}
        }
        // The network of the initramfs is there, and no boot waits for another.
        if !in_initramfs {
            let folder = args.normal.join(unit(&name) + ".d");
            let file = folder.join("network.conf");
            let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, NETWORK));
            written.map_err(|e| Error::io(&file, e))?;
        }
    }
    Ok(())
}

/// Prints the files of the targets that the initramfs logs in to, and copies them below `--into`.
/// There the adapter may have another name, so the copies have its node GUID. An invalid file may
/// be one of them, so it causes an error, which is returned after all valid files are printed.
pub fn targets(args: &Targets) -> Result {
    let sysfs = Sysfs::below(&args.root);
    if args.firmware {
        say!("{}", firmware::keys(&sysfs).join(" "));
        return Ok(());
    }
    let mut result = Ok(());
    for (name, target) in all(&sysfs)? {
        match target {
            Ok(target) if target.initramfs => {
                if let Some(image) = &args.into {
                    copy(&sysfs, target, &name, &Sysfs::below(image))?;
                }
                say!("{FOLDER}/{name}.conf");
            }
            Ok(_) => {}
            Err(error) => result = error.after(result),
        }
    }
    result
}

/// Writes the file of a target to `image`, the root of an initramfs, and NAME.key with the target's
/// identifiers: the paths to one target may write them differently.
fn copy(sysfs: &Sysfs, mut target: Target, name: &str, image: &Sysfs) -> Result {
    target.device = target.device.map(|device| adapter::lasting(sysfs, &device));
    let folder = image.path(FOLDER);
    fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
    let key = key(&target)? + "\n";
    for (end, text) in [("conf", target.to_file()), ("key", key)] {
        let path = folder.join(format!("{name}.{end}"));
        fs::write(&path, text).map_err(|e| Error::io(&path, e))?;
    }
    Ok(())
}

/// Returns what all paths to a target have in common.
pub fn key(target: &Target) -> Result<String> {
    let (id_ext, ioc_guid, _) = target.key()?;
    Ok(format!("{id_ext}-{ioc_guid}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Check, Connect};

    const GOOD: &str = "id_ext = \"1\"\nioc_guid = \"2\"\ndest = \"192.0.2.1:5555\"\n";

    #[test]
    fn each_file_has_a_unit() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/srp/targets.d");
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("disk1.conf", GOOD.to_string()),
            ("root.conf", format!("{GOOD}initramfs  =  true # here\n")),
            ("manual.conf", format!("{GOOD}onboot = false\n")),
            ("wrong.conf", format!("{GOOD}queue_sise = 1\n")),
            // The quotes are in a comment and do not start a string.
            (
                "text.conf",
                format!("{GOOD}# \"\"\"\n#\ninitramfs = false\n"),
            ),
            ("a b.conf", GOOD.to_string()),
            (".half.conf", GOOD.to_string()),
            ("old.conf~", GOOD.to_string()),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let sysfs = Sysfs::below(root.path());
        let normal = root.path().join("units");
        // Run it twice: systemd clears the directory before a run, a manual run does not.
        for _ in 0..2 {
            generator(
                &sysfs,
                &Generator {
                    normal: normal.clone(),
                    early: normal.clone(),
                    late: normal.clone(),
                },
            )
            .unwrap();
        }
        let below = Sysfs::below(&normal);
        let links: Vec<_> = below
            .entries("/multi-user.target.wants")
            .iter()
            .map(|link| sysfs::name(link))
            .collect();
        assert_eq!(
            links,
            [
                "srp-connect@disk1.service",
                "srp-connect@root.service",
                "srp-connect@text.service",
                "srp-connect@wrong.service"
            ]
        );
        // Each unit waits for the network, except the one for the root disk.
        let waits = |link: &&String| {
            let file = below.path(format!("/{link}.d/network.conf"));
            fs::read_to_string(file).is_ok_and(|text| text == NETWORK)
        };
        let waiting: Vec<_> = links.iter().filter(waits).collect();
        assert_eq!(waiting, [&links[0], &links[2], &links[3]]);
        let marked: Vec<_> = files(&sysfs)
            .into_iter()
            .filter(|(_, target)| target.as_ref().is_ok_and(|target| target.initramfs))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(marked, ["root"]);
        let args = Targets {
            root: root.path().to_path_buf(),
            into: None,
            firmware: false,
        };
        assert!(targets(&args).is_err());
        for name in ["wrong.conf", "a b.conf"] {
            fs::remove_file(folder.join(name)).unwrap();
        }
        targets(&args).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_not_empty() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let args = Targets {
            root: root.path().to_path_buf(),
            into: None,
            firmware: false,
        };
        let folder = root.path().join("units");
        let units = Generator {
            normal: folder.clone(),
            early: folder.clone(),
            late: folder,
        };
        let check = Check { files: Vec::new() };
        let connect = Connect {
            all: true,
            ..Connect::default()
        };
        let results = || {
            [
                targets(&args),
                generator(&sysfs, &units),
                crate::check::run(&sysfs, &check),
                crate::connect::run(&sysfs, &connect),
            ]
        };
        assert!(results().iter().all(|result| result.is_ok()));
        fs::create_dir_all(root.path().join("etc/srp")).unwrap();
        fs::write(root.path().join("etc/srp/targets.d"), "").unwrap();
        for result in results() {
            let said = result.unwrap_err().to_string();
            assert!(said.contains("targets.d: Not a directory"), "{said}");
        }
    }

    #[test]
    fn the_initramfs_knows_adapters_by_their_guid() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/srp/targets.d");
        fs::create_dir_all(&folder).unwrap();
        adapter::tests::put(root.path(), "rocep1s0", "506b:4b03:0000:a1b2");
        for (name, device) in [("new", "rocep1s0"), ("old", "mlx5_0")] {
            let text = format!("{GOOD}device = \"{device}\"\ninitramfs = true\n");
            fs::write(folder.join(format!("{name}.conf")), text).unwrap();
        }
        fs::write(folder.join("disk.conf"), GOOD).unwrap();
        let image = root.path().join("image");
        targets(&Targets {
            root: root.path().to_path_buf(),
            into: Some(image.clone()),
            firmware: false,
        })
        .unwrap();
        let image = Sysfs::below(&image);
        let found: Vec<_> = files(&image)
            .into_iter()
            .map(|(name, target)| (name, target.unwrap().device.unwrap()))
            .collect();
        let wanted = [("new", "0x506b4b030000a1b2"), ("old", "mlx5_0")];
        assert_eq!(
            found,
            wanted.map(|(name, device)| (name.into(), device.into()))
        );
    }
}
