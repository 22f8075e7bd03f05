// SPDX-License-Identifier: GPL-2.0

//! The initramfs, for targets with `initramfs = true` and the login of the firmware.

use super::{machine::Machine, Report};
use crate::{boot, firmware, sysfs, target::FOLDER};
use std::{fs, path::Path, time::SystemTime};

/// Where initramfs-tools and dracut put an image, and what to type to make it again.
fn images(release: &str) -> [(String, String); 3] {
    let dracut = format!("dracut -f --kver {release}");
    [
        (
            format!("/boot/initrd.img-{release}"),
            format!("update-initramfs -u -k {release}"),
        ),
        (format!("/boot/initramfs-{release}.img"), dracut.clone()),
        (format!("/boot/initrd-{release}"), dracut),
    ]
}

/// Returns the files of an image.
fn content(machine: &Machine<'_>, image: &str) -> Result<Vec<String>, String> {
    let text = machine.output(&["lsinitramfs", image]).or_else(|why| {
        let text = machine.output(&["lsinitrd", image]);
        text.map_err(|other| format!("{why}; {other}"))
    })?;
    // lsinitrd prints them as `ls -l`.
    let paths = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    Ok(paths
        .map(|path| path.trim_start_matches('/').to_string())
        .collect())
}

fn changed(path: impl AsRef<Path>) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

pub fn check(machine: &Machine<'_>, report: &mut Report) {
    let files = boot::files(machine.sysfs).into_iter();
    let marked = files.filter(|(_, target)| target.as_ref().is_ok_and(|t| t.initramfs));
    let names: Vec<String> = marked.map(|(name, _)| name).collect();
    if names.is_empty() && firmware::names(machine.sysfs).is_empty() {
        return report.ok("no target has initramfs = true");
    }
    let release = machine.release();
    let all = images(&release);
    let Some((image, again)) = all.iter().find(|(image, _)| machine.exists(image)) else {
        let what = format!("there is no initramfs of Linux {release} in /boot");
        return report.error(what, format!("update-initramfs -c -k {release}"));
    };
    match content(machine, image) {
        Ok(content) => {
            let before = report.findings.len();
            inside(machine, &names, (image, again), &content, report);
            if report.findings.len() == before {
                let files = match names.is_empty() {
                    true => String::new(),
                    false => format!(" and the files of {}", names.join(", ")),
                };
                report.ok(format!("{image} has ib_srp{files}"));
            }
        }
        Err(why) => report.note(
            format!("{image} cannot be listed: {why}"),
            "apt install initramfs-tools-core; srpctl doctor, as root",
        ),
    }
}

/// Checks what is in the image.
fn inside(
    machine: &Machine<'_>,
    names: &[String],
    (image, again): (&str, &str),
    content: &[String],
    report: &mut Report,
) {
    let has = |path: &str| {
        content
            .iter()
            .any(|found| found == path.trim_start_matches('/'))
    };
    let modules: Vec<&String> = content
        .iter()
        .filter(|path| sysfs::name(path).split('.').next() == Some("ib_srp"))
        .filter(|path| path.contains(".ko"))
        .collect();
    let is_ours = |path: &&&String| path.contains("/updates/");
    match modules.first() {
        None => report.error(format!("{image} has no ib_srp"), again),
        Some(_) if modules.iter().any(|path| is_ours(&path)) => {}
        Some(path) => report.warning(
            format!("{image} has the kernel's own C driver: {path}"),
            format!("dkms status ib-srp-rs; {again}"),
        ),
    }
    let usr = |path: &str| has(path) || has(path.trim_start_matches("/usr"));
    if !usr("/usr/sbin/srpctl") {
        report.error(
            format!("{image} has no srpctl, so it does not log in"),
            again,
        );
    }
    let image_time = changed(machine.sysfs.path(image));
    let is_newer = |path: &Path| changed(path).zip(image_time).is_some_and(|(a, b)| a > b);
    for name in names {
        let file = format!("{FOLDER}/{name}.conf");
        if !has(&file) {
            report.error(format!("{image} does not have {file}"), again);
        } else if is_newer(&machine.sysfs.path(&file)) {
            report.warning(format!("{image} is older than {file}"), again);
        }
    }
    // The same module may be another build now.
    let modules = modules.iter().map(|path| match path.starts_with("usr/") {
        true => machine.sysfs.path(path.as_str()),
        false => machine.sysfs.path(Path::new("/usr").join(path)),
    });
    for module in modules.filter(|module| is_newer(module)) {
        report.warning(format!("{image} is older than {}", module.display()), again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machine::tests::Made;
    use std::time::Duration;

    const IMAGE: &str = "/boot/initrd.img-7.3.4";
    const LIST: &str = "lsinitramfs /boot/initrd.img-7.3.4";
    const OURS: &str = "usr/lib/modules/7.3.4/updates/dkms/ib_srp.ko.xz";
    const AGAIN: &str = "update-initramfs -u -k 7.3.4";

    fn list(module: &str) -> String {
        format!("init\n{module}\nusr/sbin/srpctl\netc/srp/targets.d/root.conf\n")
    }

    fn machine() -> Made {
        let mut made = Made::new();
        made.target("root", "initramfs = true\n");
        made.target("disk1", "");
        made.put(&format!("/{OURS}"), "module");
        made.put(IMAGE, "image");
        made.says(LIST, &list(OURS));
        let image = fs::File::options()
            .write(true)
            .open(made.path(IMAGE))
            .unwrap();
        image
            .set_modified(SystemTime::now() + Duration::from_secs(60))
            .unwrap();
        made
    }

    #[test]
    fn an_image_is_needed_for_marked_targets_only() {
        let made = Made::new();
        made.target("disk1", "");
        assert_eq!(made.bad(check), [""; 0]);
        let table = made.put("/sys/firmware/acpi/tables/sBFT", "");
        let bad = made.bad(check);
        assert!(bad[0].starts_with("error: there is no initramfs of Linux 7.3.4 in /boot"));
        fs::remove_file(table).unwrap();
        made.target("root", "initramfs = true\n");
        let bad = made.bad(check);
        assert!(bad[0].starts_with("error: there is no initramfs of Linux 7.3.4 in /boot"));
        assert_eq!(machine().bad(check), [""; 0]);
    }

    #[test]
    fn what_the_image_lacks_is_named() {
        let mut made = machine();
        made.says(
            LIST,
            &list("usr/lib/modules/7.3.4/kernel/drivers/ib_srp.ko.xz"),
        );
        assert!(made.bad(check)[0].starts_with(&format!(
            "warning: {IMAGE} has the kernel's own C driver: usr/lib/modules/7.3.4/kernel/"
        )));
        made.says(LIST, &list("usr/lib/modules/7.3.4/kernel/ib_srpt.ko"));
        assert_eq!(
            made.bad(check),
            [format!("error: {IMAGE} has no ib_srp -> {AGAIN}")]
        );
        made.says(LIST, OURS);
        assert_eq!(
            made.bad(check),
            [
                format!("error: {IMAGE} has no srpctl, so it does not log in -> {AGAIN}"),
                format!("error: {IMAGE} does not have /etc/srp/targets.d/root.conf -> {AGAIN}"),
            ]
        );
        made.lacks(LIST);
        assert!(made.bad(check)[0].starts_with(&format!(
            "note: {IMAGE} cannot be listed: lsinitramfs is not installed; lsinitrd is not"
        )));
        // The format of lsinitrd, dracut's program.
        let line = |path: &str| format!("-rw-r--r-- 1 root root 9 Nov 28 15:00 {path}\n");
        let text: String = list(OURS).lines().map(line).collect();
        made.says(&LIST.replace("lsinitramfs", "lsinitrd"), &text);
        assert_eq!(made.bad(check), [""; 0]);
    }

    #[test]
    fn an_image_that_is_older_than_its_files_is_told() {
        let made = machine();
        let later = SystemTime::now() + Duration::from_secs(120);
        let touch = |path: &str| {
            let file = fs::File::options()
                .write(true)
                .open(made.path(path))
                .unwrap();
            file.set_modified(later).unwrap();
        };
        touch("/etc/srp/targets.d/disk1.conf");
        assert_eq!(made.bad(check), [""; 0]);
        touch("/etc/srp/targets.d/root.conf");
        touch(OURS);
        let bad = made.bad(check);
        assert_eq!(bad.len(), 2);
        let file = "/etc/srp/targets.d/root.conf";
        assert_eq!(
            bad[0],
            format!("warning: {IMAGE} is older than {file} -> {AGAIN}")
        );
        assert!(bad[1].ends_with(&format!("/{OURS} -> {AGAIN}")));
    }
}
