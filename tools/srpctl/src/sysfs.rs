// SPDX-License-Identifier: GPL-2.0

//! Access to the kernel's files. Tests use a directory instead of `/`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The directory that contains `/sys`, `/dev`, `/run` and `/etc`.
pub struct Sysfs(PathBuf);

impl Sysfs {
    /// Returns the root of this machine.
    pub fn system() -> Self {
        Self(PathBuf::from("/"))
    }

    /// Uses a directory as the root.
    pub fn below(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the entries of a directory in natural order.
    pub fn readable(&self, folder: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.path(folder))?;
        let mut found = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<PathBuf>>>()?;
        found.sort_by_cached_key(|path| natural(&name(path)));
        Ok(found)
    }

    /// Returns the entries of a directory in natural order; none if it cannot be read.
    pub fn entries(&self, folder: impl AsRef<Path>) -> Vec<PathBuf> {
        self.readable(folder).unwrap_or_default()
    }
}

/// Returns the content of a file without trailing white space, or `None` if it cannot be read.
pub fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim_end().to_string())
}

/// Returns the number in a file, or `None`.
pub fn number<T: std::str::FromStr>(path: impl AsRef<Path>) -> Option<T> {
    text(path)?.parse().ok()
}

/// Returns the last component of a path.
pub fn name(path: impl AsRef<Path>) -> String {
    path.as_ref()
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns a sort key that puts host10 after host9.
pub fn natural(name: &str) -> (String, u64) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (head, tail) = name.split_at(name.len() - digits);
    (head.to_string(), tail.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count() {
        let mut names = ["host10", "host9", "sda", "host2"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["host2", "host9", "host10", "sda"]);
    }
}
