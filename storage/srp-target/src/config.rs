// SPDX-License-Identifier: GPL-2.0

//! Options in TOML files. A key is an option without its dashes, and its value goes through the
//! parser of the command line, so both accept the same. An error names the file, line and key.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use toml::{Spanned, Value};

/// The value of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A string.
    Text,
    /// A whole number.
    Number,
    /// `true` gives the option, which has no value.
    Flag,
    /// A list of strings: the option several times.
    List,
    /// A list of strings: the option once, with commas.
    Joined,
}

/// A key and the kind of its value.
pub type Key = (&'static str, Kind);

/// The keys of a role.
pub type Table = (&'static str, &'static [Key]);

/// The tables of a file: one for each role. `[common]` may have keys of all of them. A program
/// without roles has one table without a name, the top of the file.
pub type Schema = &'static [Table];

/// Name of the table with keys of several roles.
pub const COMMON: &str = "common";

/// The socket of [`crate::status`], which all programs have.
const STATUS: Key = ("status", Kind::Text);

/// An option of a file.
#[derive(Debug)]
struct Setting {
    key: &'static str,
    kind: Kind,
    value: Value,
    line: usize,
}

/// The arguments of a program, with those of its file.
#[derive(Debug, Default)]
pub struct Given {
    /// For the parser of the command line.
    pub args: Vec<OsString>,
    /// The file of `--config`, if any.
    pub file: Option<PathBuf>,
    /// Whether `--check` was given.
    pub check: bool,
    /// The socket of `--status`, if any.
    pub status: Option<PathBuf>,
    settings: Vec<Setting>,
}

type Keys = BTreeMap<Spanned<String>, Spanned<Value>>;

/// The text of a file, to find lines.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn line(&self, span: Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        1 + before.matches('\n').count()
    }

    fn wrong(&self, span: Range<usize>, why: &str) -> String {
        format!("{}:{}: {why}", self.path.display(), self.line(span))
    }

    fn parse<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        toml::from_str(self.text)
            .map_err(|e| self.wrong(e.span().unwrap_or(0..0), e.message().trim()))
    }

    /// The settings of a table, each in `keys`.
    fn settings(
        &self,
        table: &str,
        found: Keys,
        keys: &[Key],
        into: &mut Vec<Setting>,
    ) -> Result<(), String> {
        let names: Vec<_> = keys.iter().map(|(name, _)| *name).collect();
        for (key, value) in found {
            let mut all = keys.iter().chain([&STATUS]);
            let Some((name, kind)) = all.find(|(name, _)| *name == key.get_ref()) else {
                let of = if table.is_empty() { "the file" } else { table };
                let why = format!(
                    "{of} has no key '{}'; it has {}",
                    key.get_ref(),
                    names.join(", ")
                );
                return Err(self.wrong(key.span(), &why));
            };
            let (span, value) = (value.span(), value.into_inner());
            let texts = |v: &Value| {
                let all = v.as_array();
                all.is_some_and(|a| !a.is_empty() && a.iter().all(Value::is_str))
            };
            let (good, wanted) = match kind {
                Kind::Text => (value.is_str(), "text in quotes"),
                Kind::Number => (value.is_integer(), "a whole number"),
                Kind::Flag => (value.is_bool(), "true or false"),
                Kind::List | Kind::Joined => (texts(&value), "a list like [\"A\", \"B\"]"),
            };
            if !good {
                let why = format!("{name}: {value} is not {wanted}");
                return Err(self.wrong(span, &why));
            }
            into.push(Setting {
                key: name,
                kind: *kind,
                value,
                line: self.line(key.span()),
            });
        }
        Ok(())
    }
}

/// The settings of a role: those of its table, and others of `[common]`. Checks all tables.
fn read(path: &Path, schema: Schema, role: &str) -> Result<Vec<Setting>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let source = Source { path, text: &text };
    let mut own = Vec::new();
    if let [("", keys)] = schema {
        source.settings("", source.parse()?, keys, &mut own)?;
        return Ok(own);
    }
    let mut common = Vec::new();
    let mut has = false;
    for (name, found) in source.parse::<BTreeMap<Spanned<String>, Keys>>()? {
        let (table, span) = (name.get_ref().as_str(), name.span());
        if table == COMMON {
            let mut all: Vec<Key> = schema.iter().flat_map(|t| t.1).copied().collect();
            all.sort_unstable_by_key(|k| k.0);
            all.dedup();
            source.settings(table, found, &all, &mut common)?;
            continue;
        }
        let Some((name, keys)) = schema.iter().find(|t| t.0 == table) else {
            let names: Vec<_> = schema.iter().map(|t| format!("[{}]", t.0)).collect();
            let why = format!(
                "there is no table [{table}]: there are [{COMMON}], {}",
                names.join(", ")
            );
            return Err(source.wrong(span, &why));
        };
        let mut all = Vec::new();
        source.settings(name, found, keys, &mut all)?;
        if *name == role {
            has = true;
            own = all;
        }
    }
    let Some((_, keys)) = schema.iter().find(|t| t.0 == role) else {
        return Ok(own);
    };
    if !has {
        return Err(format!("{}: there is no table [{role}]", path.display()));
    }
    let knows = |key: &str| keys.iter().chain([&STATUS]).any(|k| k.0 == key);
    common.retain(|c| knows(c.key) && !own.iter().any(|o| o.key == c.key));
    own.extend(common);
    Ok(own)
}

fn texts(value: &Value) -> Vec<&str> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

impl Setting {
    /// The values of the option; none for a flag.
    fn values(&self) -> Vec<String> {
        match self.kind {
            Kind::Text => self.value.as_str().map(String::from).into_iter().collect(),
            Kind::Number => vec![self.value.to_string()],
            Kind::Flag => Vec::new(),
            Kind::List => texts(&self.value).into_iter().map(String::from).collect(),
            Kind::Joined => vec![texts(&self.value).join(",")],
        }
    }
}

impl Given {
    /// Takes `--config FILE`, `--check` and `--status SOCKET` out of the arguments, and puts the
    /// settings of the file behind the role. An option of the command line takes the place of the
    /// file's.
    pub fn take(args: Vec<OsString>, schema: Schema) -> Result<Self, String> {
        let mut this = Self::default();
        let mut rest = args.into_iter();
        while let Some(arg) = rest.next() {
            if arg == "--config" {
                this.file = Some(rest.next().ok_or("--config has no value")?.into());
            } else if arg == "--status" {
                this.status = Some(rest.next().ok_or("--status has no value")?.into());
            } else if arg == "--check" {
                this.check = true;
            } else {
                this.args.push(arg);
            }
        }
        let Some(file) = &this.file else {
            return Ok(this);
        };
        let flat = matches!(schema, [("", _)]);
        let role = match this.args.first() {
            _ if flat => String::new(),
            Some(role) => role.to_string_lossy().into_owned(),
            None => return Err("there is no role".into()),
        };
        let mut settings = read(file, schema, &role)?;
        let given = |s: &Setting| this.args.iter().any(|a| *a == *format!("--{}", s.key));
        settings.retain(|s| !given(s));
        if let Some(at) = settings.iter().position(|s| s.key == STATUS.0) {
            let path = settings.remove(at).values().pop().map(PathBuf::from);
            this.status = this.status.or(path);
        }
        let mut args: Vec<OsString> = this.args.drain(..usize::from(!flat)).collect();
        for setting in &settings {
            let option = OsString::from(format!("--{}", setting.key));
            match setting.kind {
                Kind::Flag if setting.value.as_bool() == Some(true) => args.push(option),
                Kind::Flag => {}
                _ => {
                    for value in setting.values() {
                        args.extend([option.clone(), value.into()]);
                    }
                }
            }
        }
        args.append(&mut this.args);
        (this.args, this.settings) = (args, settings);
        Ok(this)
    }

    /// Adds file, line and key to an error of the command line's parser, if it is about a setting.
    pub fn explain(&self, why: &str) -> String {
        let Some(file) = &self.file else {
            return format!("{why}; see --help");
        };
        let about = |s: &&Setting| {
            let rest = why.strip_prefix(&format!("--{}: ", s.key));
            rest.is_some()
        };
        if let Some(setting) = self.settings.iter().find(about) {
            let why = why.trim_start_matches("--");
            return format!("{}:{}: {why}", file.display(), setting.line);
        }
        format!("{}: {why}; see --help", file.display())
    }
}

/// For the tests of a program: its help must name the keys of each role, and no others, and the
/// file `example` must be valid for each role.
///
/// # Panics
///
/// Panics otherwise.
pub fn check_roles<O>(
    (program, help, schema): (&str, &str, Schema),
    example: &str,
    parse: impl Fn(Vec<OsString>) -> Result<O, String>,
) {
    for (role, keys) in schema {
        let begins = format!("{program} {role} ");
        let mut parts = help.split("\n\n").skip_while(|p| !p.starts_with(&begins));
        let part = parts.next().unwrap_or_default();
        let words = part.split(|c: char| " [],\n".contains(c));
        let options: BTreeSet<_> = words.filter_map(|w| w.strip_prefix("--")).collect();
        let keys: BTreeSet<_> = keys.iter().map(|(name, _)| *name).collect();
        assert_eq!(keys, options, "{role}");
        let args = vec![role.into(), "--config".into(), example.into()];
        let given = Given::take(args, schema);
        let parsed = given.and_then(|g| parse(g.args.clone()).map_err(|e| g.explain(&e)));
        if let Err(why) = parsed {
            panic!("{role}: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: Schema = &[
        (
            "rs",
            &[
                ("number", Kind::Number),
                ("file", Kind::List),
                ("etcd", Kind::Joined),
                ("read-only", Kind::Flag),
            ],
        ),
        ("se", &[("etcd", Kind::Joined), ("listen", Kind::Text)]),
    ];

    fn take(text: &str, line: &str) -> Result<Given, String> {
        let at = std::env::temp_dir().join(format!("config-{:?}", std::thread::current().id()));
        fs::write(&at, text).unwrap();
        let mut args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        args.extend(["--config".into(), at.clone().into()]);
        let given = Given::take(args, ROLES);
        let name = at.display().to_string();
        given.map_err(|e| e.replace(&name, "F"))
    }

    fn args(text: &str, line: &str) -> String {
        let given = take(text, line).unwrap();
        let all: Vec<_> = given.args.iter().map(|a| a.to_string_lossy()).collect();
        all.join(" ")
    }

    #[test]
    fn settings_become_options() {
        let file = "[common]\netcd = [\"http://a\", \"http://b\"]\n[rs]\nnumber = 3\n\
                    file = [\"/a\", \"/b\"]\nread-only = true\n[se]\n";
        assert_eq!(
            args(file, "rs"),
            "rs --file /a --file /b --number 3 --read-only --etcd http://a,http://b"
        );
        assert_eq!(args(file, "se"), "se --etcd http://a,http://b");
        // The command line takes the place of the file, also of a whole list.
        assert_eq!(
            args(file, "rs --file /c --number 4"),
            "rs --read-only --etcd http://a,http://b --file /c --number 4"
        );
        // A role's own key takes the place of the common one.
        let own = "[common]\netcd = [\"x\"]\n[se]\netcd = [\"y\"]\n";
        assert_eq!(args(own, "se"), "se --etcd y");
        // All tables have the socket.
        let socket = "[common]\nstatus = \"/a\"\n[se]\n";
        assert_eq!(args(socket, "se"), "se");
        let path = |line| take(socket, line).unwrap().status.unwrap();
        assert_eq!(path("se"), PathBuf::from("/a"));
        assert_eq!(path("se --status /b"), PathBuf::from("/b"));
        let off = "[rs]\nread-only = false\n";
        assert_eq!(args(off, "rs --check"), "rs");
        assert!(take(off, "rs --check").unwrap().check);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            (
                "[rs]\nnumber = 3\nthread = 4\n",
                "F:3: rs has no key 'thread'; it has number, file, etcd, read-only",
            ),
            (
                "[rs]\n[xe]\n",
                "F:2: there is no table [xe]: there are [common], [rs], [se]",
            ),
            (
                "[common]\nnumber = 1\nfoo = 1\n[rs]\n",
                "F:3: common has no key 'foo'; it has etcd, file, listen, number, read-only",
            ),
            // The tables of other roles are checked, too.
            (
                "[rs]\n[se]\nlisten = 7\n",
                "F:3: listen: 7 is not text in quotes",
            ),
            (
                "[rs]\nnumber = \"3\"\n",
                "F:2: number: \"3\" is not a whole number",
            ),
            (
                "[rs]\nfile = []\n",
                "F:2: file: [] is not a list like [\"A\", \"B\"]",
            ),
            (
                "[rs]\nfile = \"/a\"\n",
                "F:2: file: \"/a\" is not a list like [\"A\", \"B\"]",
            ),
            ("[se]\n", "F: there is no table [rs]"),
        ] {
            assert_eq!(take(text, "rs").unwrap_err(), why, "{text}");
        }
        let e = take("[rs]\nnumber = 3\nnumber = 4\n", "rs").unwrap_err();
        assert!(e.starts_with("F:3: ") && e.contains("number"), "{e}");
        let e = take("[rs]\nnumber = \n", "rs").unwrap_err();
        assert!(e.starts_with("F:2: "), "{e}");
        let none = vec!["rs".into(), "--config".into(), "/nowhere/x.toml".into()];
        let e = Given::take(none, ROLES).unwrap_err();
        assert!(e.starts_with("/nowhere/x.toml: "), "{e}");
    }

    #[test]
    fn errors_of_values_name_the_line() {
        let given = take("\n[rs]\n# comment\nnumber = 99\n", "rs").unwrap();
        let at = given.file.clone().unwrap();
        assert_eq!(
            given.explain("--number: '99' is not what it can be"),
            format!("{}:4: number: '99' is not what it can be", at.display())
        );
        assert_eq!(
            given.explain("rs needs --file"),
            format!("{}: rs needs --file; see --help", at.display())
        );
        assert_eq!(Given::default().explain("--x: y"), "--x: y; see --help");
    }
}
