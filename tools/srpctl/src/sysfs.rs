// SPDX-License-Identifier: GPL-2.0

//! The kernel's files. The tests have a folder of their own instead of `/`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where `/sys`, `/dev`, `/run` and `/etc` are.
pub struct Sysfs(PathBuf);

impl Sysfs {
    /// Those of this machine.
    pub fn system() -> Self {
        Self(PathBuf::from("/"))
    }

    /// Those below a folder.
    pub fn below(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

    /// An absolute path.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The files of a folder, by name; none if there is no such folder. Numbers in names count as numbers.
    pub fn entries(&self, folder: impl AsRef<Path>) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(self.path(folder))
            .map(|entries| entries.flatten().map(|e| e.path()).collect())
            .unwrap_or_default();
        found.sort_by_key(|path| natural(&name(path)));
        found
    }
}

/// What a file says, without the line's end; nothing if it cannot be read.
pub fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim_end().to_string())
}

/// The number that a file says.
pub fn number<T: std::str::FromStr>(path: impl AsRef<Path>) -> Option<T> {
    text(path)?.parse().ok()
}

/// The last part of a path.
pub fn name(path: impl AsRef<Path>) -> String {
    path.as_ref()
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// A key by which host10 comes after host9.
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
