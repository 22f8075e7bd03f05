// SPDX-License-Identifier: GPL-2.0

//! `srpctl edit`: changes the file of a target with an editor.

use crate::{
    cli::Edit,
    draft,
    error::{Error, Result},
    out::{self, say},
    sysfs::Sysfs,
    target::{self, Target},
    unit,
};
use std::{
    env,
    fs::{self, File},
    io::{self, stdin, IsTerminal},
    os::unix::fs::{fchown, MetadataExt},
    path::Path,
    process::Command,
};

/// Debian's `editor` is the one that the administrator has chosen.
const DEFAULT: &str = "$(command -v editor || echo vi)";

/// Opens the editor on a copy of the file, and renames the copy to the file if it is valid.
pub fn run(sysfs: &Sysfs, args: &Edit) -> Result {
    let name = &args.name;
    let mut set = ["VISUAL", "EDITOR"]
        .iter()
        .filter_map(|name| env::var(name).ok());
    let editor = set.find(|text| !text.is_empty());
    if !edit(sysfs, name, editor.as_deref().unwrap_or(DEFAULT), is_again)? {
        say!("{name}: not changed");
        return Ok(());
    }
    say!("{name}: saved; srpctl apply makes the session what the file says");
    // The file may have got or lost its login at boot.
    unit::reload()
}

/// Says what is wrong, and asks whether to edit it again. Without a terminal the answer is no.
fn is_again(error: &Error) -> bool {
    if !stdin().is_terminal() {
        return false;
    }
    out::error(format_args!("srpctl: {error}\nEdit again? [Y/n] "));
    let mut line = String::new();
    let read = stdin().read_line(&mut line).unwrap_or(0);
    read > 0 && !line.trim_start().starts_with(['n', 'N'])
}

/// Returns whether the file has changed. `again` is called if the copy is invalid.
fn edit(sysfs: &Sysfs, name: &str, editor: &str, again: impl Fn(&Error) -> bool) -> Result<bool> {
    let path = Target::path(sysfs, name)?;
    let shown = path.display().to_string();
    if !path.exists() {
        let advice = match name.strip_suffix(".conf") {
            Some(name) => format!("the name of a target has no .conf: srpctl edit {name}"),
            None => format!("srpctl connect --save {name} makes it"),
        };
        return Err(Error::NotFound(format!("there is no {shown}; {advice}")));
    }
    let io = |e| Error::io(&path, e);
    // A link stays, and the file that it leads to is replaced.
    let file = fs::canonicalize(&path).map_err(io)?;
    let before = target::content(&file)?;
    let data = fs::metadata(&file).map_err(io)?;
    let mode = data.mode() & 0o777;
    let copy = draft::beside(&file).map_err(io)?;
    draft::store(copy.as_file(), &before, mode).map_err(io)?;
    let now = loop {
        open(editor, copy.path())?;
        let now = fs::read(copy.path()).map_err(|e| {
            let why = format!("{shown}: the copy after {editor}: {e}; the file stays as it is");
            Error::Program(why)
        })?;
        if now == before {
            return Ok(false);
        }
        match target::text(&path, now.clone()).and_then(|text| Target::parse(&shown, &text)) {
            Ok(_) => break now,
            Err(error) if again(&error) => {}
            Err(error) => return Err(Error::Usage(format!("{error}; the file stays as it is"))),
        }
    };
    if target::content(&file)? != before {
        let why = "another program has changed the file, which stays as it is";
        return Err(Error::Usage(format!("{shown}: {why}")));
    }
    // The editor may have made another file of that name.
    let written = File::options().write(true).open(copy.path()).map_err(io)?;
    fchown(&written, Some(data.uid()), Some(data.gid())).map_err(io)?;
    draft::store(&written, &now, mode).map_err(io)?;
    copy.persist(&file).map_err(|e| io(e.error))?;
    draft::sync_name(&file)?;
    Ok(true)
}

/// Runs the editor, a shell command, on a file.
fn open(editor: &str, path: &Path) -> Result {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{editor} \"$1\""), "srpctl"])
        .arg(path);
    let failed = |why: String| Error::Program(format!("{editor}: {why}; the file stays as it is"));
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(status.to_string())),
        Err(e) => Err(failed(io::Error::to_string(&e))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::{sys::stat::Mode, unistd::mkfifo};
    use std::{
        cell::RefCell,
        os::unix::fs::{chown, symlink, PermissionsExt},
        sync::mpsc,
        thread,
        time::Duration,
    };

    const GOOD: &str = "# disk\nid_ext = \"1\"\nioc_guid = \"2\"\ndest = \"192.0.2.1:5555\"\n";

    /// A machine with the target `disk1`.
    fn machine() -> (tempfile::TempDir, Sysfs, std::path::PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let path = Target::path(&sysfs, "disk1").unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, GOOD).unwrap();
        (root, sysfs, path)
    }

    /// Returns whether the file is `text`, and the only one in its directory.
    fn is(path: &Path, text: &str) -> bool {
        let files = fs::read_dir(path.parent().unwrap()).unwrap().count();
        fs::read_to_string(path).unwrap() == text && files == 1
    }

    #[test]
    fn a_valid_copy_replaces_the_file() {
        let (_root, sysfs, path) = machine();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let editor = "printf 'queue_size = 7\\n' >>";
        assert!(edit(&sysfs, "disk1", editor, |_| false).unwrap());
        assert!(is(&path, &format!("{GOOD}queue_size = 7\n")));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        // An editor that makes a new file, and another mode.
        assert!(edit(&sysfs, "disk1", "umask 0; sed -i /queue/d", |_| false).unwrap());
        assert!(is(&path, GOOD));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert!(!edit(&sysfs, "disk1", "true", |_| false).unwrap());
    }

    #[test]
    fn an_invalid_copy_leaves_the_file() {
        let (_root, sysfs, path) = machine();
        let editor = "printf 'queue_sise = 7\\n' >>";
        let error = edit(&sysfs, "disk1", editor, |_| false).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{}:5: no such option: queue_sise; the file stays as it is",
                path.display()
            )
        );
        assert_eq!(error.status(), 2);
        assert!(is(&path, GOOD));
        let error = edit(&sysfs, "disk1", "rm", |_| true).unwrap_err();
        let why = "copy after rm: No such file or directory (os error 2); the file stays as it is";
        assert!(error.to_string().ends_with(why), "{error}");
        assert!(is(&path, GOOD));
        let error = edit(&sysfs, "disk1", "printf x >\"$1\"; false", |_| true);
        assert_eq!(error.unwrap_err().status(), 1);
        assert!(is(&path, GOOD));
        let error = edit(&sysfs, "disk1", "printf '# \\377\\n' >>", |_| false).unwrap_err();
        assert!(error.to_string().contains("invalid UTF-8"), "{error}");
        assert!(is(&path, GOOD));
        // The editor is opened again on the same copy, which may be mended.
        let asked = RefCell::new(Vec::new());
        let editor = "f() { grep -q sise \"$1\" && sed -i s/sise/size/ \"$1\" || \
                      echo 'queue_sise = 7' >>\"$1\"; }; f";
        let again = |error: &Error| {
            asked.borrow_mut().push(error.to_string());
            true
        };
        assert!(edit(&sysfs, "disk1", editor, again).unwrap());
        assert!(is(&path, &format!("{GOOD}queue_size = 7\n")));
        let wrong = format!("{}:5: no such option: queue_sise", path.display());
        assert_eq!(asked.into_inner(), [wrong]);
    }

    #[test]
    fn the_change_of_another_stays() {
        let (_root, sysfs, path) = machine();
        let editor = format!("echo '# other' >>{}; echo '# own' >>", path.display());
        let error = edit(&sysfs, "disk1", &editor, |_| false).unwrap_err();
        assert!(error.to_string().contains("another program"), "{error}");
        assert!(is(&path, &format!("{GOOD}# other\n")));
    }

    #[test]
    fn an_invalid_file_can_be_mended() {
        let (root, sysfs, path) = machine();
        let real = root.path().join("disk1");
        fs::write(&real, format!("{GOOD}queue_sise = 7\n")).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&real, &path).unwrap();
        assert!(edit(&sysfs, "disk1", "sed -i /queue/d", |_| false).unwrap());
        assert_eq!(fs::read_to_string(&real).unwrap(), GOOD);
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(
            edit(&sysfs, "no", "true", |_| false).unwrap_err().status(),
            6
        );
    }

    #[test]
    fn the_owner_stays() {
        let (_root, sysfs, path) = machine();
        // Only root can give a file away.
        let _ = chown(&path, Some(12), Some(34));
        let owner = || {
            let data = fs::metadata(&path).unwrap();
            (data.uid(), data.gid())
        };
        let before = owner();
        let editor = "umask 0; sed -i s/disk/other/";
        assert!(edit(&sysfs, "disk1", editor, |_| false).unwrap());
        assert_eq!(owner(), before);
    }

    #[test]
    fn a_pipe_is_an_error() {
        let (_root, sysfs, path) = machine();
        fs::remove_file(&path).unwrap();
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let (tell, told) = mpsc::channel();
        // The thread is not joined, so a read that does not end fails the test and does not hang
        // it.
        thread::spawn(move || tell.send(edit(&sysfs, "disk1", "true", |_| false)));
        let error = told.recv_timeout(Duration::from_secs(20)).unwrap();
        let error = error.unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        assert_eq!(error.status(), 2);
    }
}
