// SPDX-License-Identifier: GPL-2.0

//! The module: which driver is loaded, and which one modprobe loads next.

use super::{machine::Machine, Report};
use crate::{boot, driver::OURS, program::Failure};

const RELOAD: &str =
    "srpctl disconnect --all && modprobe -r ib_srp && modprobe ib_srp; then log in again";

/// The file that modprobe loads.
struct File {
    path: String,
    ours: bool,
    srcversion: Option<String>,
    signed: bool,
}

/// Returns what modinfo reports about the file that modprobe loads.
fn file(machine: &Machine<'_>) -> Result<File, Failure> {
    let text = machine.output(&["modinfo", "ib_srp"])?;
    let field = |name: &str| {
        let mut values = text.lines().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key == name).then(|| value.trim().to_string())
        });
        values.next()
    };
    let no_path = || Failure::Failed("modinfo ib_srp".into(), "no filename".into());
    Ok(File {
        path: field("filename").ok_or_else(no_path)?,
        ours: field("author").is_some_and(|author| author.contains("srp-rs")),
        srcversion: field("srcversion"),
        signed: field("sig_key").is_some() || field("signer").is_some(),
    })
}

fn whose(ours: bool) -> &'static str {
    match ours {
        true => "this project's driver",
        false => "the kernel's own C driver",
    }
}

/// Returns the content of a module's file, uncompressed.
fn content(machine: &Machine<'_>, path: &str) -> Option<Vec<u8>> {
    let program = match path.rsplit('.').next()? {
        "xz" => "xz",
        "zst" => "zstd",
        "gz" => "gzip",
        _ => return std::fs::read(machine.sysfs.path(path)).ok(),
    };
    machine.bytes(&[program, "-dc", path]).ok()
}

/// Returns whether the loaded module is of this file, or `None` if neither a srcversion nor a build
/// ID shows that.
fn is_loaded(machine: &Machine<'_>, file: &File) -> Option<bool> {
    let loaded = machine.text("/sys/module/ib_srp/srcversion");
    if let (Some(loaded), Some(of_file)) = (loaded, &file.srcversion) {
        return Some(loaded == *of_file);
    }
    let note = machine
        .sysfs
        .path("/sys/module/ib_srp/notes/.note.gnu.build-id");
    let note = std::fs::read(note).ok().filter(|note| !note.is_empty())?;
    let content = content(machine, &file.path)?;
    // The file has the note as a section.
    Some(content.windows(note.len()).any(|part| part == note))
}

/// Returns whether the kernel loads signed modules only.
fn wants_signature(machine: &Machine<'_>) -> bool {
    let enforced = machine.text("/sys/module/module/parameters/sig_enforce");
    let lockdown = machine
        .text("/sys/kernel/security/lockdown")
        .unwrap_or_default();
    enforced.as_deref() == Some("Y")
        || lockdown.contains("[integrity]")
        || lockdown.contains("[confidentiality]")
}

pub fn check(machine: &Machine<'_>, report: &mut Report) {
    let file = match file(machine) {
        Ok(file) => Some(file),
        // A program that hangs has a finding of its own.
        Err(Failure::Late(..)) => None,
        Err(why @ Failure::Missing(_)) => {
            let what = format!("which module modprobe loads is not known: {why}");
            report.note(what, "apt install kmod; srpctl doctor");
            None
        }
        Err(why @ Failure::Failed(..)) => {
            let release = machine.release();
            report.error(
                format!("modprobe finds no ib_srp for Linux {release}: {why}"),
                format!("apt install linux-headers-{release}; dkms autoinstall -k {release}"),
            );
            None
        }
    };
    if let Some(file) = &file {
        if !file.signed && wants_signature(machine) {
            report.error(
                format!(
                    "{} is not signed, and this kernel loads signed modules only",
                    file.path
                ),
                "mokutil --import /var/lib/dkms/mok.pub, reboot, confirm; dkms signs the module",
            );
        }
        if !file.ours {
            report.warning(
                format!("modprobe loads {}, {}", file.path, whose(false)),
                format!(
                    "dkms status ib-srp-rs; dkms autoinstall -k {}; depmod",
                    machine.release()
                ),
            );
        }
    }
    match machine.text("/sys/module/ib_srp/initstate").as_deref() {
        Some("live") => loaded(machine, file.as_ref(), report),
        Some(state) => report.warning(
            format!("ib_srp is {state}: it is being loaded or unloaded"),
            "journalctl -k -g ib_srp",
        ),
        None => {
            let next = file.map_or(String::new(), |f| format!("; modprobe loads {}", f.path));
            let what = format!("ib_srp is not loaded{next}");
            match boot::files(machine.sysfs).is_empty() {
                true => report.note(what, "srpctl connect loads it"),
                false => report.warning(what, "modprobe ib_srp"),
            }
        }
    }
}

/// Reports on the loaded module.
fn loaded(machine: &Machine<'_>, file: Option<&File>, report: &mut Report) {
    let ours = machine.exists(OURS);
    let version = machine.text("/sys/module/ib_srp/srcversion");
    let version = version.map_or(String::new(), |version| format!(", srcversion {version}"));
    let what = format!("the loaded ib_srp is {}{version}", whose(ours));
    let Some(file) = file else {
        return report.ok(what);
    };
    if !ours && file.ours {
        report.warning(format!("{what}; modprobe loads {}", file.path), RELOAD);
    } else if !ours {
        // The warning about the file says what to do.
        report.ok(what);
    } else {
        match is_loaded(machine, file) {
            Some(true) => report.ok(format!("{what}, from {}", file.path)),
            Some(false) => {
                report.warning(format!("{what}, another build than {}", file.path), RELOAD)
            }
            None => report.note(
                format!(
                    "{what}; whether it is {} is not known: no build ID",
                    file.path
                ),
                RELOAD,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machine::tests::Made;

    const PATH: &str = "/lib/modules/7.3.4/updates/dkms/ib_srp.ko";
    const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0abcdefghijklmnopqrst";

    fn info(path: &str, author: &str, more: &str) -> String {
        format!("filename:       {path}\nlicense:        GPL\nauthor:         {author}\n{more}")
    }

    /// A machine with our module, loaded.
    fn ours() -> Made {
        let mut made = Made::new();
        made.says("modinfo ib_srp", &info(PATH, "The srp-rs authors", ""));
        made.put("/sys/module/ib_srp/initstate", "live\n");
        made.put(OURS, "5\n");
        made.put("/sys/module/ib_srp/notes/.note.gnu.build-id", NOTE);
        made.put(PATH, [b"ELF", NOTE, b"rest"].concat());
        made
    }

    #[test]
    fn a_loaded_module_is_compared_with_its_file() {
        let mut made = ours();
        assert!(made.bad(check).is_empty());
        assert!(made.check(check)[0]
            .what
            .ends_with(&format!("driver, from {PATH}")));
        made.put(PATH, b"ELF of another build");
        let stale = format!("another build than {PATH} -> {RELOAD}");
        assert!(made.bad(check)[0].ends_with(&stale));
        // A compressed file.
        let path = format!("{PATH}.xz");
        made.says("modinfo ib_srp", &info(&path, "The srp-rs authors", ""));
        made.says(
            &format!("xz -dc {path}"),
            std::str::from_utf8(NOTE).unwrap(),
        );
        assert!(made.bad(check).is_empty());
        // With a srcversion the build ID is not needed.
        made.put("/sys/module/ib_srp/srcversion", "AB12\n");
        let more = "srcversion:     CD34\n";
        made.says("modinfo ib_srp", &info(&path, "The srp-rs authors", more));
        assert!(made.bad(check)[0].contains("srcversion AB12, another build than"));
    }

    #[test]
    fn the_c_driver_is_told_from_ours() {
        let mut made = ours();
        made.remove(OURS);
        let bad = made.bad(check);
        let what = format!(
            "warning: the loaded ib_srp is the kernel's own C driver; modprobe loads {PATH} \
             -> {RELOAD}"
        );
        assert_eq!(bad, [what]);
        let path = "/lib/modules/7.3.4/kernel/drivers/infiniband/ulp/srp/ib_srp.ko.xz";
        made.says("modinfo ib_srp", &info(path, "Roland Dreier", ""));
        let bad = made.bad(check);
        assert_eq!(bad.len(), 1);
        assert!(bad[0].starts_with(&format!(
            "warning: modprobe loads {path}, the kernel's own C"
        )));
    }

    #[test]
    fn a_module_that_is_not_loaded_matters_if_there_are_targets() {
        let mut made = ours();
        made.remove("/sys/module/ib_srp");
        assert!(made.bad(check)[0].starts_with("note: ib_srp is not loaded; modprobe loads"));
        made.target("disk1", "");
        assert!(made.bad(check)[0].starts_with("warning: ib_srp is not loaded"));
        made.lacks("modinfo ib_srp");
        assert!(made.bad(check)[0].starts_with("note: which module modprobe loads is not known"));
        made.fails("modinfo ib_srp", "modinfo: ERROR: Module ib_srp not found.");
        assert!(made.bad(check)[0].starts_with("error: modprobe finds no ib_srp for Linux 7.3.4"));
        made.hangs("modinfo ib_srp");
        assert_eq!(
            made.bad(check),
            ["warning: ib_srp is not loaded -> modprobe ib_srp"]
        );
    }

    #[test]
    fn a_kernel_that_wants_signatures_refuses_our_file() {
        let mut made = ours();
        made.put(
            "/sys/kernel/security/lockdown",
            "none [integrity] confidentiality\n",
        );
        assert!(made.bad(check)[0].starts_with(&format!("error: {PATH} is not signed")));
        made.says(
            "modinfo ib_srp",
            &info(PATH, "The srp-rs authors", "sig_key:        01:02\n"),
        );
        assert!(made.bad(check).is_empty());
        made.put(
            "/sys/kernel/security/lockdown",
            "[none] integrity confidentiality\n",
        );
        made.says("modinfo ib_srp", &info(PATH, "The srp-rs authors", ""));
        assert!(made.bad(check).is_empty());
    }
}
