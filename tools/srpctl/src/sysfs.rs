// SPDX-License-Identifier: GPL-2.0

//! The kernel's files. Tests use a folder instead of `/`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The root of `/sys`, `/dev`, `/run` and `/etc`.
pub struct Sysfs(PathBuf);

impl Sysfs {
    /// The root of this machine.
    pub fn system() -> Self {
        Self(PathBuf::from("/"))
    }

    /// A root below a folder.
    pub fn below(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The entries of a folder in natural order, or none if there is no such folder.
    pub fn entries(&self, folder: impl AsRef<Path>) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(self.path(folder))
            .map(|entries| entries.flatten().map(|e| e.path()).collect())
            .unwrap_or_default();
        found.sort_by_key(|path| natural(&name(path)));
        found
    }
}

/// The content of a file without the trailing newline, or `None` if it cannot be read.
pub fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim_end().to_string())
}

/// The number in a file.
pub fn number<T: std::str::FromStr>(path: impl AsRef<Path>) -> Option<T> {
    text(path)?.parse().ok()
}

/// The last component of a path.
pub fn name(path: impl AsRef<Path>) -> String {
    path.as_ref()
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Sort key that puts host10 after host9.
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
