// SPDX-License-Identifier: GPL-2.0

//! Completion in shells. A shell's script asks srpctl itself, which knows the targets, hosts and
//! devices of the machine.

use crate::{
    boot,
    cli::Cli,
    error::{Error, Result},
    port::Port,
    session::Session,
    sysfs::Sysfs,
};
use clap::{builder::ValueHint, Arg, Command, CommandFactory};
use clap_complete::{
    engine::{ArgValueCandidates, CompletionCandidate},
    env::{CompleteEnv, Shells},
};
use std::{collections::BTreeSet, fs, path::Path};

/// The variable by which a shell's script asks, with the name of the shell.
const VARIABLE: &str = "SRPCTL_COMPLETE";
/// Where packages install this program.
const PROGRAM: &str = "/usr/sbin/srpctl";
/// Shells, and the names of their scripts.
const SCRIPTS: [(&str, &str); 3] = [
    ("bash", "srpctl.bash"),
    ("zsh", "_srpctl"),
    ("fish", "srpctl.fish"),
];
/// zsh runs the script for the first completion, and the function in it for the next ones.
const ZSH_FIRST: &str = "[ \"${funcstack[1]}\" = _srpctl ] && _clap_dynamic_completer_srpctl\n";

/// If a shell asks, answers it and exits.
pub fn answer() {
    CompleteEnv::with_factory(|| command(Sysfs::system))
        .var(VARIABLE)
        .complete();
}

/// Writes the scripts to a directory.
pub fn scripts(folder: &Path) -> Result {
    let shells = Shells::builtins();
    for (shell, name) in SCRIPTS {
        let mut text = Vec::new();
        let path = folder.join(name);
        let script = shells
            .completer(shell)
            .ok_or_else(|| Error::Program(format!("{shell}: not a shell of clap_complete")))?;
        script
            .write_registration(VARIABLE, "srpctl", "srpctl", PROGRAM, &mut text)
            .map_err(|e| Error::io(&path, e))?;
        if shell == "zsh" {
            text.extend_from_slice(ZSH_FIRST.as_bytes());
        }
        fs::write(&path, text).map_err(|e| Error::io(&path, e))?;
    }
    Ok(())
}

/// Returns the command line with the values of its arguments.
fn command(sysfs: fn() -> Sysfs) -> Command {
    with_values(Cli::command().disable_help_subcommand(true), sysfs)
}

fn with_values(command: Command, sysfs: fn() -> Sysfs) -> Command {
    let parts: Vec<String> = command
        .get_subcommands()
        .map(|part| part.get_name().to_string())
        .collect();
    let command = command.mut_args(|arg| values(arg, sysfs));
    let add = |command: Command, part| command.mut_subcommand(part, |c| with_values(c, sysfs));
    parts.into_iter().fold(command, add)
}

/// Adds the values of an argument, by the name of its value. Files are for what names one.
fn values(arg: Arg, sysfs: fn() -> Sysfs) -> Arg {
    let id = arg.get_id().to_string().to_uppercase();
    let names = arg.get_value_names().map_or(id, |names| names.join("|"));
    let names: Vec<String> = names.split('|').map(str::to_string).collect();
    let has = |name: &str| names.iter().any(|n| n == name);
    let is_target = has("TARGET") || has("NAME") && arg.is_positional();
    let (is_host, is_device) = (has("HOST"), has("DEVICE"));
    if !is_target && !is_host && !is_device {
        let is_path = has("FILE") || has("FOLDER");
        return match is_path || !arg.get_action().takes_values() {
            true => arg,
            false => arg.value_hint(ValueHint::Other),
        };
    }
    arg.add(ArgValueCandidates::new(move || {
        let sysfs = sysfs();
        let mut all = BTreeSet::new();
        if is_target {
            all.extend(boot::files(&sysfs).into_iter().map(|(name, _)| name));
        }
        if is_host {
            all.extend(Session::hosts(&sysfs).iter().map(Session::name));
        }
        if is_device {
            all.extend(Port::all(&sysfs).into_iter().map(|port| port.device));
        }
        all.into_iter().map(CompletionCandidate::new).collect()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::machine;
    use clap_complete::engine::complete;
    use std::{os::unix::fs::PermissionsExt, process, str, sync::OnceLock};

    /// A machine with the targets `one` and `two`, host9 and host10, and the RDMA device rxe0.
    fn fake() -> Sysfs {
        static MACHINE: OnceLock<tempfile::TempDir> = OnceLock::new();
        let folder = MACHINE.get_or_init(|| {
            let folder = machine();
            let root = folder.path();
            fs::write(root.join("etc/srp/targets.d/two.conf"), "").unwrap();
            let port = root.join("sys/class/infiniband_srp/srp-rxe0-1");
            fs::create_dir_all(&port).unwrap();
            fs::write(port.join("add_target"), "").unwrap();
            fs::write(port.join("ibdev"), "rxe0\n").unwrap();
            fs::write(port.join("port"), "1\n").unwrap();
            folder
        });
        Sysfs::below(folder.path())
    }

    /// Returns what is offered for the last word, which is empty if the line ends with a space.
    fn offered(line: &str) -> BTreeSet<String> {
        let words: Vec<_> = line.split(' ').map(Into::into).collect();
        let last = words.len() - 1;
        let found = complete(&mut command(fake), words, last, None).unwrap();
        let shown = found.iter().filter(|candidate| !candidate.is_hide_set());
        let values = shown.map(|c| c.get_value().to_str().unwrap().to_string());
        values.collect()
    }

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn commands_and_options_are_offered() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|part| !part.is_hide_set());
        let mut names = BTreeSet::new();
        for part in visible {
            names.insert(part.get_name().to_string());
            let arguments = part.get_arguments().filter(|arg| !arg.is_hide_set());
            let options = arguments.filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
            let all: BTreeSet<_> = options.chain(["--help".to_string()]).collect();
            let line = format!("srpctl {} --", part.get_name());
            assert_eq!(offered(&line), all, "{line}");
        }
        let mut first = offered("srpctl ");
        first.retain(|word| !word.starts_with('-'));
        assert_eq!(first, names);
        assert_eq!(offered("srpctl disconn"), set(&["disconnect"]));
        assert_eq!(
            offered("srpctl stats --format "),
            set(&["json", "prometheus"])
        );
    }

    #[test]
    fn what_the_machine_has_is_offered() {
        let values = |line: &str| {
            let mut found = offered(line);
            found.retain(|word| !word.starts_with('-'));
            found
        };
        assert_eq!(values("srpctl connect "), set(&["one", "two"]));
        assert_eq!(values("srpctl connect tw"), set(&["two"]));
        assert_eq!(values("srpctl connect --device "), set(&["rxe0"]));
        let sessions = set(&["host9", "host10", "one", "two"]);
        for verb in ["disconnect", "rescan", "show"] {
            assert_eq!(values(&format!("srpctl {verb} ")), sessions);
        }
        assert_eq!(values("srpctl rescan host9 on"), set(&["one"]));
        // A new name, an address: not even a file.
        for option in ["--save", "--dest"] {
            assert_eq!(values(&format!("srpctl connect {option} ")), set(&[]));
        }
    }

    #[test]
    fn bash_asks_the_program() {
        let folder = tempfile::tempdir().unwrap();
        scripts(folder.path()).unwrap();
        let program = folder.path().join("srpctl");
        let text = format!(
            "#!/bin/sh\n[ ${VARIABLE} = bash ] && \
             printf 'one\\013%s %s' $_CLAP_COMPLETE_INDEX \"$*\"\n"
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let script = folder.path().join("srpctl.bash");
        let text = fs::read_to_string(&script).unwrap();
        assert!(text.contains(PROGRAM));
        fs::write(&script, text.replace(PROGRAM, program.to_str().unwrap())).unwrap();
        const SCRIPT: &str = r#"
            . "$1"
            complete -p srpctl | grep -q -- '-F _clap_complete_srpctl srpctl$' || exit 1
            COMP_WORDS=(srpctl connect o) COMP_CWORD=2 COMP_TYPE=9
            _clap_complete_srpctl srpctl o connect
            printf '%s|' "${COMPREPLY[@]}""#;
        let out = process::Command::new("bash")
            .args(["--norc", "-c", SCRIPT, "bash"])
            .arg(script)
            .output()
            .unwrap();
        let said = str::from_utf8(&out.stdout).unwrap();
        assert_eq!(said, "one|2 -- srpctl connect o|", "{out:?}");
    }

    #[test]
    fn other_shells_ask_it_too() {
        let folder = tempfile::tempdir().unwrap();
        scripts(folder.path()).unwrap();
        let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let zsh = text("_srpctl");
        assert!(zsh.starts_with("#compdef srpctl\n"));
        assert!(zsh.contains("function _clap_dynamic_completer_srpctl()"));
        assert!(zsh.ends_with(ZSH_FIRST));
        for (_, name) in SCRIPTS {
            let text = text(name);
            assert!(
                text.contains(PROGRAM) && text.contains(VARIABLE),
                "{name}: {text}"
            );
        }
    }
}
