// SPDX-License-Identifier: GPL-2.0

//! A new file in targets.d while it is being written.

use crate::{
    error::{Error, Result},
    sysfs::Sysfs,
    target::{self, Target},
};
use std::{
    fs::{self, File, Permissions},
    io::ErrorKind,
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
        if path.exists() {
            return Err(taken(name, &path));
        }
        let folder = sysfs.path(target::FOLDER);
        fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e))?;
        // A name without `.conf` is not mistaken for a target's file.
        let file = Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".new")
            .tempfile_in(&folder)
            .map_err(|e| Error::io(&path, e))?;
        let draft = Self { file, path };
        draft.write(target)?;
        Ok(draft)
    }

    /// Replaces the content, and waits until it is on the disk.
    pub fn write(&self, target: &Target) -> Result {
        let write = || {
            let text = target.to_file();
            let file = self.file.as_file();
            // Set the mode regardless of the umask.
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.write_all_at(text.as_bytes(), 0)?;
            file.set_len(text.len() as u64)?;
            file.sync_all()
        };
        write().map_err(|e| Error::io(&self.path, e))
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
        // The new name must also survive a power failure.
        let folder = path.parent().unwrap_or(Path::new("/"));
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|e| Error::io(folder, e))
    }
}

fn taken(name: &str, path: &Path) -> Error {
    Error::Usage(format!("target {name} already exists: {}", path.display()))
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
        assert_eq!(
            Draft::new(&sysfs, "disk1", &target)
                .err()
                .map(|e| e.status()),
            Some(2)
        );
    }
}
