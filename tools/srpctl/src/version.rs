// SPDX-License-Identifier: GPL-2.0

//! The versions of srpctl and of the module. The kernel's own ib_srp has none.

use crate::{
    program,
    sysfs::{self, Sysfs},
};

/// The version of srpctl.
pub const OURS: &str = env!("SRP_VERSION");

/// Returns the versions of srpctl, of the loaded module, and of the one that modprobe takes.
pub fn all(sysfs: &Sysfs) -> String {
    format!("srpctl {OURS}\n{}", modules(sysfs, installed))
}

/// Returns a line about the loaded module, and one about the installed module if that is another.
fn modules(sysfs: &Sysfs, installed: fn() -> Option<String>) -> String {
    let folder = sysfs.path("/sys/module/ib_srp");
    let named = |version: &str| match version {
        "" => "the kernel's own ib_srp".to_string(),
        version => format!("ib_srp {version}"),
    };
    let loaded = folder
        .exists()
        .then(|| sysfs::text(folder.join("version")).unwrap_or_default());
    let first = match &loaded {
        Some(version) => format!("{} (loaded)", named(version)),
        None => "ib_srp is not loaded".to_string(),
    };
    match installed() {
        Some(version) if Some(&version) != loaded.as_ref() => {
            format!("{first}\n{} (modprobe loads it)", named(&version))
        }
        _ => first,
    }
}

/// Returns the version of the module that modprobe takes, which is empty if it has none.
fn installed() -> Option<String> {
    let text = program::run(&["modinfo", "-F", "version", "ib_srp"]).ok()?;
    Some(String::from_utf8(text).ok()?.trim_end().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn names_the_module() {
        let folder = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(folder.path());
        let here = || Some("0.2".to_string());
        assert_eq!(modules(&sysfs, || None), "ib_srp is not loaded");
        assert_eq!(
            modules(&sysfs, here),
            "ib_srp is not loaded\nib_srp 0.2 (modprobe loads it)"
        );
        fs::create_dir_all(folder.path().join("sys/module/ib_srp")).unwrap();
        assert_eq!(
            modules(&sysfs, here),
            "the kernel's own ib_srp (loaded)\nib_srp 0.2 (modprobe loads it)"
        );
        fs::write(folder.path().join("sys/module/ib_srp/version"), "0.2\n").unwrap();
        assert_eq!(modules(&sysfs, here), "ib_srp 0.2 (loaded)");
        assert_eq!(
            modules(&sysfs, || Some(String::new())),
            "ib_srp 0.2 (loaded)\nthe kernel's own ib_srp (modprobe loads it)"
        );
    }

    #[test]
    fn is_that_of_the_packages() {
        let changelog = include_str!("../../../debian/changelog");
        assert!(changelog.starts_with(&format!("ib-srp-rs ({OURS}) ")));
    }
}
