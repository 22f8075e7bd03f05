// SPDX-License-Identifier: GPL-2.0

//! The examples of the manual pages.

/// For each command, its uses and the lines to type. `srpctl` is the first page.
pub const EXAMPLES: [(&str, &[(&str, &str)]); 17] = [
    (
        "srpctl",
        &[
            (
                "Log in to a target, now and at each boot:",
                "srpctl connect --id-ext 0002c90300a1b2c3 --ioc-guid 0002c90300a1b2c3 --dest \
                 192.0.2.1:5555 --save disk1",
            ),
            ("See its disks:", "srpctl list"),
            ("Find out why it has none:", "srpctl doctor"),
            ("Log out until the next boot:", "srpctl disconnect disk1"),
            (
                "Log out, and forget the target:",
                "srpctl disconnect disk1 --forget",
            ),
        ],
    ),
    (
        "connect",
        &[
            (
                "Log in to a target of /etc/srp/targets.d:",
                "srpctl connect disk1",
            ),
            (
                "Log in over IPv6, from a given address:",
                "srpctl connect --id-ext 1 --ioc-guid 2 --dest [2001:db8::1]:5555 --src \
                 [2001:db8::2]",
            ),
            (
                "Make one more path to a target, through the same port:",
                "srpctl connect --id-ext 1 --ioc-guid 2 --dest 192.0.2.3:5555 --path --save disk1b",
            ),
            (
                "Wait a minute for a target that is being started:",
                "srpctl connect disk1 --retry 60",
            ),
            (
                "Log in as iPXE has, and again when the session is gone:",
                "srpctl connect --firmware --save root",
            ),
            (
                "Log in on InfiniBand without IP addresses:",
                "srpctl connect --id-ext 1 --ioc-guid 2 --dgid fe8000000000000000000000000000a1 \
                 --pkey ffff --service-id 2",
            ),
        ],
    ),
    (
        "disconnect",
        &[
            (
                "Log out of all that srpctl has logged in to:",
                "srpctl disconnect --all",
            ),
            ("Log out of one path of several:", "srpctl disconnect host7"),
        ],
    ),
    (
        "apply",
        &[
            (
                "Show what differs, and change nothing:",
                "srpctl apply --check",
            ),
            ("Make the sessions what the files say:", "srpctl apply"),
            (
                "Print the targets that were changed:",
                "srpctl apply --json | jq -r '.targets[] | select(.changed).target'",
            ),
        ],
    ),
    (
        "edit",
        &[(
            "Change the file of a target; `srpctl apply` then changes the session:",
            "srpctl edit disk1",
        )],
    ),
    (
        "check",
        &[
            ("Check all files:", "srpctl check"),
            (
                "Check a file before it is copied to /etc/srp/targets.d:",
                "srpctl check ./disk2.conf",
            ),
        ],
    ),
    (
        "rescan",
        &[
            ("Look for changed disks of all sessions:", "srpctl rescan"),
            (
                "Remove the disks that are gone at the target:",
                "srpctl rescan disk1 --remove",
            ),
        ],
    ),
    (
        "list",
        &[
            ("List all sessions:", "srpctl list"),
            (
                "Print the name of each disk that stays:",
                "srpctl list --json | jq -r .[].disks[].by_path",
            ),
        ],
    ),
    (
        "show",
        &[
            ("Show both paths to a target:", "srpctl show disk1"),
            (
                "Print how long each loss was, and why:",
                "srpctl show host7 --json | jq -c .[].losses[]",
            ),
        ],
    ),
    (
        "watch",
        &[
            ("Watch all sessions:", "srpctl watch"),
            (
                "Print the mean of ten seconds:",
                "srpctl watch --interval 10 --count 1",
            ),
        ],
    ),
    (
        "stats",
        &[
            (
                "Print what Prometheus reads:",
                "srpctl stats --format prometheus",
            ),
            (
                "Print the losses of each session:",
                "srpctl stats | jq -c .[].statistics.connections_lost",
            ),
        ],
    ),
    (
        "events",
        &[
            ("Print events until Ctrl-C:", "srpctl events"),
            (
                "Print the losses only:",
                "srpctl events --json | jq -c 'select(.event == \"loss\")'",
            ),
        ],
    ),
    (
        "discover",
        &[
            (
                "Look for targets on all InfiniBand ports:",
                "srpctl discover",
            ),
            (
                "Ask a host on RoCE for its targets:",
                "srpctl discover 192.0.2.1",
            ),
        ],
    ),
    (
        "doctor",
        &[
            ("Check this machine:", "srpctl doctor"),
            (
                "Also ask each target whether it is there:",
                "srpctl doctor --ask",
            ),
            (
                "Print errors only, each with what to type:",
                "srpctl doctor --json | jq -r '.[] | select(.level == \"error\") | .what, .todo'",
            ),
        ],
    ),
    (
        "explain",
        &[
            (
                "Explain what the driver has logged since the boot:",
                "journalctl -b -k -g ib_srp | srpctl explain",
            ),
            (
                "Explain one line:",
                "srpctl explain 'login failed: connection rejected: invalid service ID (reason 8)'",
            ),
        ],
    ),
    (
        "target-info",
        &[
            ("Show each port, and what it lacks:", "srpctl target-info"),
            (
                "Print only the commands that log in:",
                "srpctl target-info --json | jq -r .[].logins[]",
            ),
        ],
    ),
    (
        "firmware",
        &[
            ("Show how iPXE has logged in:", "srpctl firmware"),
            (
                "Print the name of the disk that it has booted from:",
                "srpctl firmware --json | jq -r .[].disk",
            ),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::{CommandFactory, Parser};

    #[test]
    fn each_command_has_examples_that_work() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|part| !part.is_hide_set());
        for name in visible.map(clap::Command::get_name).chain(["srpctl"]) {
            let found = EXAMPLES.iter().find(|(of, _)| *of == name);
            let (_, examples) = found.unwrap_or_else(|| panic!("{name} has no examples"));
            assert!(!examples.is_empty());
        }
        for (name, examples) in EXAMPLES {
            for (_, line) in examples {
                let mut parts = line.split(" | ");
                let typed = parts.find(|part| part.starts_with("srpctl ")).unwrap();
                let parsed = Cli::try_parse_from(typed.split(' '));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                assert!(
                    name == "srpctl" || typed.split(' ').nth(1) == Some(name),
                    "{line}"
                );
            }
        }
    }
}
