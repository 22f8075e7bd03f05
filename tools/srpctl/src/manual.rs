// SPDX-License-Identifier: GPL-2.0

//! The parts of the manual, in roff, that are not generated from the command line.

use crate::{
    cli::{OPTIONS, TIMEOUTS},
    examples::EXAMPLES,
    version::OURS,
};

/// A target's file, as packages install it.
const EXAMPLE: &str = include_str!("../../example.conf");

/// Keys of a target's file that are no login options: name, type, help text.
const KEYS: [(&str, &str, &str); 4] = [
    (
        "device",
        "\"DEVICE\"",
        "RDMA device, by its node GUID or its name, which may change; --save writes the GUID. \
         Without it the route to the target decides",
    ),
    ("port", "NUMBER", "Port of the RDMA device"),
    (
        "onboot",
        "true|false",
        "With false, only `srpctl connect NAME` logs in to the target: it has no unit, and a lost \
         session stays away",
    ),
    (
        "initramfs",
        "true|false",
        "A path to the root file system. `update-initramfs -u` and `dracut` copy the file to the \
         initramfs, which sets up the network as the kernel's parameter ip= says and logs in to \
         all paths at once; one to each target suffices to boot. The units log in to the others, \
         and never log out",
    ),
];

/// Returns the section EXAMPLES of a command.
pub fn examples(command: &str) -> String {
    let found = EXAMPLES.iter().find(|(name, _)| *name == command);
    let each = found.into_iter().flat_map(|(_, examples)| examples.iter());
    each.fold(".SH EXAMPLES\n".to_string(), |text, (what, line)| {
        text + &format!(".PP\n{}\n", escaped(what)) + &code(line)
    })
}

/// Returns lines that are printed as they are.
fn code(text: &str) -> String {
    format!(".PP\n.RS 4\n.EX\n{}\n.EE\n.RE\n", escaped(text))
}

/// Escapes what roff would interpret.
fn escaped(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = escaped
        .lines()
        .map(|line| match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}"),
            false => line.to_string(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the pages, by file name.
pub fn pages() -> [(&'static str, String); 2] {
    [
        ("targets.d.5", targets_d()),
        (
            "srp-connect@.service.8",
            head("srp-connect@.service", 8) + UNIT,
        ),
    ]
}

fn head(name: &str, section: u32) -> String {
    format!(".TH {name} {section} \"\" \"srpctl {OURS}\" SRP\n.SH NAME\n")
}

fn targets_d() -> String {
    let entry = |name: &str, value: &str, help: &str| {
        // There are no options in a file.
        let help = escaped(&help.replace(" --", " "));
        format!(".TP\n\\fB{name}\\fR = {}\n{help}.\n", escaped(value))
    };
    let keys = KEYS
        .map(|(name, value, help)| entry(name, value, help))
        .concat();
    let options = OPTIONS.map(|(name, value, help)| entry(name, &format!("\"{value}\""), help));
    let timeouts = TIMEOUTS.map(|(name, help)| entry(name, "SECONDS, or \"off\"", help));
    // The first lines are the license and how to copy the file.
    let (_, example) = EXAMPLE.split_once("\n\n").unwrap_or_default();
    [
        &head("targets.d", 5),
        FORMAT,
        ".SH KEYS\n",
        &keys,
        ".SS Login options\n",
        &options.concat(),
        ".SS Timeouts\n",
        &timeouts.concat(),
        ".SH EXAMPLES\n",
        &code(example.trim_end()),
        TARGETS_END,
    ]
    .concat()
}

/// targets.d(5) up to the keys.
const FORMAT: &str = "\
targets.d \\- SRP targets of this machine
.SH SYNOPSIS
.I /etc/srp/targets.d/NAME.conf
.SH DESCRIPTION
Each file describes a target that srpctl logs in to at boot, by srp\\-connect@NAME.service, and \
when `srpctl connect NAME` is run. `srpctl connect \\-\\-save NAME` writes it.
.PP
NAME has letters, digits, `.`, `_`, `:` and `-`, and begins with a letter, a digit, `_` or `:`. \
It is not that of a host, as host7, or a number.
.PP
Lines are `name = \"value\"`; numbers need no quotes, hexadecimal values do; `#` begins a comment. \
An invalid line is reported with its number, and nothing is done; `update\\-initramfs` and \
`dracut` then fail.
";

/// targets.d(5) from the examples on.
const TARGETS_END: &str = "\
.PP
A file system on such a disk, in fstab:
.PP
.RS 4
.EX
UUID=... /srv ext4 _netdev,nofail 0 2
.EE
.RE
.SH \"SEE ALSO\"
srpctl\\-connect(8), srp\\-connect@.service(8), fstab(5)
";

/// The page srp-connect@.service(8), from its NAME line on.
const UNIT: &str = "\
srp\\-connect@.service, srp\\-generator \\- log in to SRP targets at boot
.SH SYNOPSIS
srp\\-connect@NAME.service
.SH DESCRIPTION
srp\\-generator enables this service for each file NAME.conf in /etc/srp/targets.d, except for one \
with `onboot = false`. Its stop does not log out of a target with `initramfs = true`.
.PP
At boot the login is retried for 60 seconds before remote file systems are mounted, then every few \
seconds while the boot continues; when it succeeds, failed mounts are retried. In fstab such a \
file system needs the option _netdev, and nofail if the machine must boot without it. At shutdown \
the logout follows after the file systems are unmounted.
.PP
The service is active while it has a session, and activating while it logs in. When the session is \
gone later, because of dev_loss_tmo, the adapter or the module, srp\\-restore.timer has the \
service log in again, until `srpctl disconnect`. It fails for good if its file is missing or \
invalid, or if another file has its session.
.PP
A stop logs out, unless a file system or swap is on a disk of the session.
.SH EXAMPLES
.PP
See why a target has no session:
.PP
.RS 4
.EX
systemctl status srp\\-connect@disk1
journalctl \\-b \\-u srp\\-connect@disk1
.EE
.RE
.PP
Do not log in at boot, and keep the file:
.PP
.RS 4
.EX
systemctl mask srp\\-connect@disk1
.EE
.RE
.PP
Start a service only with the disks of a target:
.PP
.RS 4
.EX
# systemctl edit backup.service
[Unit]
Requires=srp\\-connect@disk1.service
After=srp\\-connect@disk1.service
.EE
.RE
.SH \"SEE ALSO\"
srpctl(8), srpctl\\-connect(8), srpctl\\-disconnect(8), targets.d(5), systemd.unit(5), fstab(5)
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sysfs::Sysfs, target::Target};

    #[test]
    fn the_example_is_a_target() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/srp/targets.d");
        std::fs::create_dir_all(&folder).unwrap();
        // Also with each key that is commented out, except those that exclude another.
        let all = EXAMPLE.replace("\n#", "\n");
        for (text, without) in [(EXAMPLE, "#"), (&all, "onboot"), (&all, "initramfs")] {
            let lines = text.lines().filter(|line| line.contains(" = "));
            let text: Vec<&str> = lines.filter(|line| !line.starts_with(without)).collect();
            std::fs::write(folder.join("disk1.conf"), text.join("\n")).unwrap();
            Target::named(&Sysfs::below(root.path()), "disk1").unwrap();
        }
    }

    #[test]
    fn each_key_of_a_file_is_described() {
        let page = targets_d();
        let keys = KEYS.map(|(name, ..)| name).into_iter();
        let keys = keys.chain(OPTIONS.map(|(name, ..)| name));
        for name in keys.chain(TIMEOUTS.map(|(name, _)| name)) {
            assert!(page.contains(&format!("\\fB{name}\\fR")), "{name}");
        }
        assert!(page.contains("\nid_ext = \"0002c90300a1b2c3\"\n"));
    }

    #[test]
    fn nothing_is_a_request_of_roff_by_accident() {
        assert_eq!(escaped(".a-b\\n\n'c"), "\\&.a\\-b\\en\n\\&'c");
    }
}
