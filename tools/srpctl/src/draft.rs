// SPDX-License-Identifier: GPL-2.0

//! A new file in targets.d while it is being written.

use crate::{
    error::{Error, Result},
    sysfs::{self, Sysfs},
    target::{self, Target},
};
use std::{
    fs::{self, File, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
};
use tempfile::{Builder, NamedTempFile};

/// The content is in a temporary file until [`Draft::keep`] renames it: after a crash or a power
/// failure the file is complete or does not exist. Dropping a draft removes the temporary file.
pub struct Draft {
    file: NamedTempFile,
    path: PathBuf,
}

impl Draft {
    /// Writes `target` to a temporary file, so that a full file system is detected before the
    /// login.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if there is a target of that name, [`Error::Io`] if the file cannot be
    /// written.
    pub fn new(sysfs: &Sysfs, name: &str, target: &Target) -> Result<Self> {
        let path = Target::path(sysfs, name)?;
        // A link that leads nowhere has the name, too.
        if path.symlink_metadata().is_ok() {
            return Err(taken(name, &path));
        }
        let folder = sysfs.path(target::FOLDER);
        fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
        let file = beside(&path).map_err(|e| Error::io(&path, e))?;
        let draft = Self { file, path };
        draft.write(target)?;
        Ok(draft)
    }

    /// Replaces the content, and waits until it is on the disk.
    pub fn write(&self, target: &Target) -> Result {
        let text = target.to_file();
        store(self.file.as_file(), text.as_bytes(), 0o644).map_err(|e| Error::io(&self.path, e))
    }

    /// Renames the file.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the name was taken meanwhile (that file stays as it is), [`Error::Io`]
    /// otherwise.
    pub fn keep(self, name: &str) -> Result {
        let Self { file, path } = self;
        file.persist_noclobber(&path)
            .map_err(|e| match e.error.kind() {
                ErrorKind::AlreadyExists => taken(name, &path),
                _ => Error::io(&path, e.error),
            })?;
        sync_name(&path)
    }
}

/// Creates a temporary file in the folder of `path`, so that it can be renamed to it. A name
/// without `.conf` is not mistaken for a target's file.
pub fn beside(path: &Path) -> io::Result<NamedTempFile> {
    Builder::new()
        .prefix(&format!(".{}.", sysfs::name(path.with_extension(""))))
        .suffix(".new")
        .tempfile_in(path.parent().unwrap_or(Path::new("/")))
}

/// Replaces the content and the mode of a file, and waits until it is on the disk.
pub fn store(file: &File, text: &[u8], mode: u32) -> io::Result<()> {
    file.write_all_at(text, 0)?;
    file.set_len(text.len() as u64)?;
    // Set the mode regardless of the umask.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

/// Makes the new name of a file survive a power failure.
pub fn sync_name(path: &Path) -> Result {
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| Error::io(folder, e))
}

fn taken(name: &str, path: &Path) -> Error {
    Error::Usage(format!(
        "target {name} already exists: {}; `srpctl edit {name}` changes it",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn has_its_name_when_it_is_whole() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let folder = sysfs.path(target::FOLDER);
        let mut target = Target {
            options: vec![("id_ext", "1".into())],
            ..Target::default()
        };
        let draft = Draft::new(&sysfs, "disk1", &target).unwrap();
        let [name] = &names(&folder)[..] else {
            panic!("not one file");
        };
        assert!(name.starts_with(".disk1.") && !name.ends_with(".conf"));
        // A dropped draft leaves no file.
        drop(draft);
        assert!(names(&folder).is_empty());

        let draft = Draft::new(&sysfs, "disk1", &target).unwrap();
        target.options.clear();
        target.device = Some("mlx5_0".into());
        draft.write(&target).unwrap();
        draft.keep("disk1").unwrap();
        assert_eq!(names(&folder), ["disk1.conf"]);
        let path = folder.join("disk1.conf");
        assert_eq!(fs::read_to_string(&path).unwrap(), "device = \"mlx5_0\"\n");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o644
        );
    }

    #[test]
    fn a_full_file_system_is_an_error() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = store(&full, b"id_ext", 0o666).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let target = Target::default();
        let mut draft = Draft::new(&sysfs, "disk1", &target).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        *draft.file.as_file_mut() = full;
        let mut target = target;
        target.device = Some("mlx5_0".into());
        let error = draft.write(&target).unwrap_err();
        assert_eq!(error.status(), 1);
        assert!(
            error.to_string().contains("/disk1.conf: No space left"),
            "{error}"
        );
        drop(draft);
        assert!(names(&sysfs.path(target::FOLDER)).is_empty());
    }

    #[test]
    fn the_longest_name_has_a_file() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let name = "d".repeat(235);
        let draft = Draft::new(&sysfs, &name, &Target::default()).unwrap();
        draft.keep(&name).unwrap();
        assert_eq!(names(&sysfs.path(target::FOLDER)), [format!("{name}.conf")]);
    }

    #[test]
    fn another_one_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::below(root.path());
        let target = Target::default();
        let draft = Draft::new(&sysfs, "disk1", &target).unwrap();
        let path = Target::path(&sysfs, "disk1").unwrap();
        fs::write(&path, "# of another\n").unwrap();
        assert_eq!(draft.keep("disk1").unwrap_err().status(), 2);
        assert_eq!(fs::read_to_string(&path).unwrap(), "# of another\n");
        assert_eq!(names(path.parent().unwrap()), ["disk1.conf"]);
        std::os::unix::fs::symlink("nowhere", Target::path(&sysfs, "disk2").unwrap()).unwrap();
        for name in ["disk1", "disk2"] {
            let error = Draft::new(&sysfs, name, &target).err();
            assert_eq!(error.map(|e| e.status()), Some(2), "{name}");
        }
    }
}
