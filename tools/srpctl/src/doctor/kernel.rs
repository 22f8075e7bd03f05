// SPDX-License-Identifier: GPL-2.0

//! Options of the running kernel that the driver needs.

use super::{machine::Machine, Report};

/// Options, what is missing without them, and what to do.
const NEEDED: [(&str, &str, &str); 2] = [
    (
        "CONFIG_SCSI_SRP_ATTRS",
        "no SRP driver can be loaded",
        "apt install linux-image-amd64, then reboot; cloud kernels do not have the option",
    ),
    (
        "CONFIG_INFINIBAND_ADDR_TRANS",
        "there is no RDMA/CM, so no login with dest",
        "apt install linux-image-amd64, then reboot; cloud kernels do not have the option",
    ),
];

/// Returns the kernel's configuration, or `None` if no file has it.
fn config(machine: &Machine<'_>) -> Option<String> {
    let release = machine.release();
    let files = [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
        format!("/lib/modules/{release}/build/.config"),
    ];
    let text = files.iter().find_map(|file| machine.text(file));
    text.or_else(|| machine.output(&["gzip", "-dc", "/proc/config.gz"]).ok())
}

/// Returns whether an option is built in or a module.
fn is_on(config: &str, option: &str) -> bool {
    let value = |line: &str| {
        line.strip_prefix(option)?
            .strip_prefix('=')
            .map(str::to_string)
    };
    config
        .lines()
        .any(|line| matches!(value(line).as_deref(), Some("y" | "m")))
}

pub fn check(machine: &Machine<'_>, report: &mut Report) {
    let release = machine.release();
    let Some(config) = config(machine) else {
        return report.note(
            format!("the options of Linux {release} are not known: no /boot/config-{release}"),
            "modprobe configs; srpctl doctor",
        );
    };
    let missing = NEEDED.iter().filter(|(option, ..)| !is_on(&config, option));
    for (option, why, todo) in missing {
        report.error(
            format!("Linux {release} is built without {option}: {why}"),
            *todo,
        );
    }
    if is_on(&config, "CONFIG_RUST") {
        report.ok(format!("Linux {release} has CONFIG_RUST"));
    } else if is_on(&config, "CONFIG_X86_64") {
        report.ok(format!(
            "Linux {release} lacks CONFIG_RUST, without which the driver can be built on x86-64"
        ));
    } else {
        report.warning(
            format!("Linux {release} is built without CONFIG_RUST, which this driver needs"),
            "apt install linux-image-arm64/trixie-backports, then reboot",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machine::tests::Made;

    #[test]
    fn a_missing_option_is_named() {
        let mut made = Made::new();
        assert!(made.bad(check)[0].starts_with("note: the options of Linux 7.3.4 are not known"));
        let good = "CONFIG_RUST=y\nCONFIG_SCSI_SRP_ATTRS=m\nCONFIG_INFINIBAND_ADDR_TRANS=y\n";
        made.says("gzip -dc /proc/config.gz", good);
        assert!(made.bad(check).is_empty());
        // The file counts before the running kernel's copy.
        made.put(
            "/boot/config-7.3.4",
            good.replace("SRP_ATTRS=m", "SRP_ATTRS_X=m"),
        );
        let bad = made.bad(check);
        assert_eq!(bad.len(), 1);
        let start = "error: Linux 7.3.4 is built without CONFIG_SCSI_SRP_ATTRS: no SRP driver";
        assert!(bad[0].starts_with(start), "{bad:?}");
        let without = good.replace("CONFIG_RUST=y", "# CONFIG_RUST is not set");
        made.put("/boot/config-7.3.4", &without);
        assert!(made.bad(check)[0].starts_with("warning: Linux 7.3.4 is built without"));
        made.put("/boot/config-7.3.4", format!("{without}CONFIG_X86_64=y\n"));
        assert!(made.bad(check).is_empty());
    }
}
