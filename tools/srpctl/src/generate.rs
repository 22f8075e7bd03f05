// SPDX-License-Identifier: GPL-2.0

//! Manual pages and completions for the packages.

use crate::{
    cli::{Cli, Generate},
    error::{Error, Result, STATUS},
    version,
};
use clap::{Command, CommandFactory};
use clap_complete::{generate_to, Shell};
use clap_mangen::Man;
use std::{fs, path::Path};

/// Writes the manual pages and the completions to a directory.
pub fn run(args: &Generate) -> Result {
    let folder = &args.folder;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(folder, &command)?;
    for shell in [Shell::Bash, Shell::Zsh] {
        let mut command = completed(&Cli::command(), shell);
        generate_to(shell, &mut command, "srpctl", folder).map_err(|e| Error::io(folder, e))?;
    }
    Ok(())
}

/// Returns the command without its hidden subcommands and options, which the completion generators
/// would offer. In zsh a colon ends the name of a value, so it is escaped.
fn completed(command: &Command, shell: Shell) -> Command {
    let arguments = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let parts = command.get_subcommands().filter(|part| !part.is_hide_set());
    let mut result = Command::new(command.get_name().to_string())
        .disable_help_subcommand(true)
        .args(arguments.map(|arg| match arg.get_value_names() {
            Some([name]) if shell == Shell::Zsh => arg.clone().value_name(name.replace(':', "\\:")),
            _ => arg.clone(),
        }))
        .subcommands(parts.map(|part| completed(part, shell)));
    if let Some(about) = command.get_about() {
        result = result.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        result = result.version(version.to_string());
    }
    result
}

/// Writes `srpctl.8`, `srpctl-connect.8` and so on.
fn pages(folder: &Path, command: &Command) -> Result {
    for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
        pages(folder, part)?;
    }
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_string();
    let path = folder.join(format!("{name}.8"));
    let mut page = command
        .clone()
        .name(name)
        .after_help(None::<&str>)
        .after_long_help(None::<&str>);
    if page.get_version().is_none() {
        page = page.version(version::OURS);
    }
    let man = Man::new(page).section("8").manual("SRP");
    let mut text = Vec::new();
    let io = |e| Error::io(&path, e);
    man.render_title(&mut text).map_err(io)?;
    man.render_name_section(&mut text).map_err(io)?;
    man.render_synopsis_section(&mut text).map_err(io)?;
    man.render_description_section(&mut text).map_err(io)?;
    man.render_options_section(&mut text).map_err(io)?;
    if command.get_subcommands().any(|part| !part.is_hide_set()) {
        man.render_subcommands_section(&mut text).map_err(io)?;
    }
    let status = STATUS.lines().skip(1).map(|line| {
        let (number, meaning) = line.trim_start().split_once("  ").unwrap_or((line, ""));
        format!(".TP\n{number}\n{meaning}\n")
    });
    let mut end = format!(".SH \"EXIT STATUS\"\n{}", status.collect::<String>());
    if command.get_name() == "connect" {
        end += FILES;
    }
    end += ".SH \"SEE ALSO\"\nsrpctl(8), srp_daemon(8), systemd.unit(5), fstab(5), multipath.conf(5)\n";
    text.extend_from_slice(end.as_bytes());
    fs::write(&path, text).map_err(io)
}

/// A section of srpctl-connect(8), in roff.
const FILES: &str = "\
.SH FILES
.TP
.I /etc/srp/targets.d/NAME.conf
A target to log in to at boot. srp-generator creates the service srp-connect@NAME for each such \
file. Lines are `name = \"value\"`; numbers need no quotes, hexadecimal values do; `#` begins a \
comment. Names are those of the options above with `_` instead of `-`: device, port, the login \
options, the timeouts. dest may have a host name, which each login looks up. `onboot = false` \
leaves the login to `srpctl connect`. \
`initramfs = true` is for the target of the root file system: \
`update-initramfs -u` copies it to the initramfs, which sets up the network as the kernel's \
parameter ip= says and logs in; this session is never logged out. An invalid line is reported, and \
nothing is done; `update-initramfs` and `dracut` then fail.
.IP
At boot the login is retried for 60 seconds before remote file systems are mounted, then every few \
seconds while the boot continues; when it succeeds, failed mounts are retried. When the session is \
gone later, because of dev_loss_tmo, the adapter or the module, srp-restore.timer has the service \
log in again, until `srpctl disconnect`. In fstab such a \
file system needs the option _netdev, and nofail if the machine must boot without it. At shutdown \
the logout follows after the file systems are unmounted.
.TP
.I /run/srp/hostN
The program that created the session: srpctl or initramfs. A session without such a file was \
created by srp_daemon or another program, and `srpctl disconnect --all` does not end it.
.TP
.I /run/srp/*.lock
Held while a login or a logout goes on.
";

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, process, str};

    fn generated() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        run(&Generate {
            folder: folder.path().into(),
        })
        .unwrap();
        folder
    }

    /// Returns the visible commands with their long options.
    fn visible() -> Vec<(String, BTreeSet<String>)> {
        let command = Cli::command();
        let parts = command.get_subcommands().filter(|part| !part.is_hide_set());
        parts
            .map(|part| {
                let arguments = part.get_arguments().filter(|arg| !arg.is_hide_set());
                let options = arguments.filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
                let all = options.chain(["--help".to_string()]).collect();
                (part.get_name().to_string(), all)
            })
            .collect()
    }

    /// Returns bash's completions of the last word of each line. Words are separated by commas, and
    /// the last word, which may be empty, is followed by a dot.
    fn bash(folder: &Path, lines: &[String]) -> Vec<BTreeSet<String>> {
        const SCRIPT: &str = r#"
            . "$1/srpctl.bash"
            complete -p srpctl | grep -q -- '-F _srpctl srpctl$' || exit 1
            for line in "${@:2}"; do
                IFS=, read -ra COMP_WORDS <<<"$line"
                COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
                COMP_WORDS[COMP_CWORD]=${COMP_WORDS[COMP_CWORD]%.}
                _srpctl srpctl "${COMP_WORDS[@]: -1}" "${COMP_WORDS[@]: -2:1}"
                echo "${COMPREPLY[*]}"
            done"#;
        let out = process::Command::new("bash")
            .args(["--norc", "-uc", SCRIPT, "bash"])
            .arg(folder)
            .args(lines)
            .output()
            .unwrap();
        let errors = str::from_utf8(&out.stderr).unwrap();
        assert!(out.status.success() && errors.is_empty(), "{errors}");
        let words = |line: &str| line.split(' ').map(str::to_string).collect();
        let text = str::from_utf8(&out.stdout).unwrap();
        text.lines().map(words).collect()
    }

    /// Completes commands, options and values in bash.
    #[test]
    fn bash_completes_commands_and_options() {
        let folder = generated();
        let visible = visible();
        let mut lines: Vec<String> = ["srpctl,.", "srpctl,disconn.", "srpctl,stats,--format,."]
            .map(String::from)
            .into();
        lines.extend(visible.iter().map(|(name, _)| format!("srpctl,{name},--.")));
        let offered = bash(folder.path(), &lines);
        assert_eq!(offered.len(), lines.len());

        let commands: BTreeSet<_> = offered[0].iter().filter(|w| !w.starts_with('-')).collect();
        assert_eq!(commands, visible.iter().map(|(name, _)| name).collect());
        assert_eq!(offered[1], ["disconnect".to_string()].into());
        assert_eq!(offered[2], ["json", "prometheus"].map(String::from).into());
        for ((name, options), offered) in visible.iter().zip(&offered[3..]) {
            assert_eq!(offered, options, "{name}");
        }
    }

    /// Checks the zsh completions without zsh: they are quoted as in bash, and each option takes at
    /// most one value.
    #[test]
    fn zsh_is_offered_commands_and_options() {
        let folder = generated();
        let path = folder.path().join("_srpctl");
        let parsed = process::Command::new("bash")
            .arg("-n")
            .arg(&path)
            .output()
            .unwrap();
        assert!(parsed.status.success() && parsed.stderr.is_empty());

        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("#compdef srpctl\n"));
        let list = text.split_once("\n_srpctl_commands() {").unwrap().1;
        let list = list.split_once("\n}").unwrap().0;
        let entries = list.lines().filter_map(|line| line.strip_prefix('\''));
        let names: Vec<_> = entries.map(|e| e.split_once(':').unwrap().0).collect();
        let visible = visible();
        assert_eq!(
            names,
            visible.iter().map(|(name, _)| name).collect::<Vec<_>>()
        );

        for (name, options) in &visible {
            let block = text.split_once(&format!("({name})\n")).unwrap().1;
            let block = block.split_once(";;").unwrap().0;
            let mut offered = BTreeSet::new();
            for line in block.lines() {
                // The excluded options come first: '(--all)--forget[...]'.
                let spec = line.trim_start_matches(['\'', '*']);
                let spec = match spec.strip_prefix('(') {
                    Some(spec) => spec.split_once(')').unwrap().1,
                    None => spec,
                };
                if !spec.starts_with("--") {
                    continue;
                }
                offered.insert(spec[..spec.find(['=', '[']).unwrap()].to_string());
                let colons = spec.replace("\\:", "").matches(':').count();
                assert_eq!(colons, if spec.contains("=[") { 2 } else { 0 }, "{line}");
            }
            assert_eq!(&offered, options, "{name}");
        }
    }

    #[test]
    fn each_command_has_a_page() {
        let folder = generated();
        for (name, _) in visible() {
            let page = fs::read_to_string(folder.path().join(format!("srpctl-{name}.8"))).unwrap();
            assert!(page.contains(&format!(".TH srpctl-{name} 8")), "{name}");
        }
        assert!(folder.path().join("srpctl.8").exists());
        assert!(!folder.path().join("srpctl-generate.8").exists());
    }
}
