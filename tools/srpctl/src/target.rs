// SPDX-License-Identifier: GPL-2.0

//! A target, from the command line or a file in `/etc/srp/targets.d`.

use crate::{
    check,
    cli::{Connect, ANSWERS_FROM, OPTIONS, TIMEOUTS},
    error::{Error, Result},
    proto::{
        address::Address,
        options::{Defaults, Options, Target as Place},
    },
    session,
    sysfs::Sysfs,
    timeouts::Timeouts,
};
use nix::errno::Errno;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    io::ErrorKind,
    net::IpAddr,
    path::{Path, PathBuf},
};
use toml::{Spanned, Value};

pub const FOLDER: &str = "/etc/srp/targets.d";

/// Maximum length of a target's name: `srp-connect@NAME.service` may have at most 255 characters
/// (systemd's UNIT_NAME_MAX).
const NAME_MAX: usize = 255 - "srp-connect@.service".len();

/// Parameters of the module that are no options of a login.
const PARAMETERS: [&str; 5] = [
    "keep_alive",
    "max_imm_data",
    "poll_queues",
    "static_read_max",
    "use_imm_data",
];

/// Returns what to say about a name that is no option.
fn hint(name: &str) -> String {
    let known = name.replace('-', "_");
    if Target::default().set(&known, String::new()) {
        return format!("; it is {known}");
    }
    match PARAMETERS.contains(&known.as_str()) {
        true => format!(
            "; it is a parameter of the module: options ib_srp {known}=N in /etc/modprobe.d"
        ),
        false => String::new(),
    }
}

/// Returns whether the text can be the value of a single option in a login string.
fn is_value(text: &str) -> bool {
    !text.contains([',', '\n', '\0']) && text.trim() == text
}

/// Parses a login string as the driver does.
fn options(login: &str) -> Result<Options<'_>> {
    Options::parse(login.as_bytes(), &Defaults::default()).map_err(|e| Error::Usage(e.to_string()))
}

/// Reads a target's file. An error that a retry cannot fix is [`Error::Usage`].
pub fn read(path: &Path) -> Result<String> {
    text(path, content(path)?)
}

/// Reads a target's file, which may be no text.
pub fn content(path: &Path) -> Result<Vec<u8>> {
    let io = |e| Error::io(path, e);
    // A read of a pipe or a device may never end.
    if !fs::metadata(path).map_err(io)?.is_file() {
        let why = format!("{}: not a regular file", path.display());
        return Err(Error::Usage(why));
    }
    fs::read(path).map_err(io)
}

/// Returns the content of a target's file as text.
pub fn text(path: &Path, content: Vec<u8>) -> Result<String> {
    String::from_utf8(content).map_err(|e| {
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::Usage(format!("{}:{line}: invalid UTF-8", path.display()))
    })
}

/// One end of a connection: an IP address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct End {
    pub ip: IpAddr,
    pub port: Option<u16>,
    /// Name or number of the interface that an IPv6 address belongs to.
    pub scope: Option<String>,
}

impl End {
    /// Reads an address of sysfs.
    pub fn parse(text: &str) -> Option<Self> {
        Address::parse(text).ok().map(Self::from)
    }

    /// Returns whether both are the same address and port. `[::ffff:10.0.0.1]` is `10.0.0.1`. The
    /// scope is not compared: it is a name or a number.
    pub fn is(&self, other: &Self) -> bool {
        self.ip.to_canonical() == other.ip.to_canonical() && self.port == other.port
    }
}

impl From<Address<'_>> for End {
    fn from(address: Address<'_>) -> Self {
        Self {
            ip: address.ip,
            port: address.port,
            scope: address.scope.map(str::to_string),
        }
    }
}

/// A target and the path to it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Target {
    /// Name of the file, without `.conf`.
    pub name: Option<String>,
    /// Name or node GUID of the RDMA device.
    pub device: Option<String>,
    /// Port number on the RDMA device, starting at 1.
    pub port: Option<u32>,
    /// GID of the port, which no file has.
    pub source_gid: Option<String>,
    /// Whether the target has the root file system: the initramfs logs in, too, and no unit logs
    /// out.
    pub initramfs: bool,
    /// Whether `onboot = false`: only `srpctl connect NAME` logs in.
    pub manual: bool,
    /// Options for add_target.
    pub options: Vec<(&'static str, String)>,
    /// Timeouts of the session, by their sysfs names.
    pub timeouts: Vec<(&'static str, String)>,
}

impl Target {
    /// Returns the target that the command line names or describes.
    pub fn of(sysfs: &Sysfs, args: &Connect) -> Result<Self> {
        let target = match &args.name {
            Some(name) => Self::named(sysfs, name)?,
            None => Self::default(),
        };
        target.with(args)
    }

    /// Returns the target with the options of the command line, which override its own.
    pub fn with(mut self, args: &Connect) -> Result<Self> {
        let settings = || args.settings.options.iter().chain(&args.settings.timeouts);
        // They replace all values of this list.
        if settings().any(|(name, _)| *name == ANSWERS_FROM) {
            self.options.retain(|(name, _)| *name != ANSWERS_FROM);
        }
        for (name, value) in settings() {
            if !is_value(value) {
                return Err(Error::Usage(format!(
                    "{name}: invalid value: '{}'",
                    value.escape_debug()
                )));
            }
            self.set(name, value.clone());
        }
        self.device = args.device.clone().or(self.device);
        self.port = args.port.or(self.port);
        Ok(self)
    }

    /// Reads the file of the target `name`.
    pub fn named(sysfs: &Sysfs, name: &str) -> Result<Self> {
        let path = Self::path(sysfs, name)?;
        if let Err(error) = fs::metadata(&path) {
            // A retry cannot fix it.
            if error.raw_os_error() == Some(Errno::ELOOP as i32) {
                let why = format!("{}: the link leads to itself", path.display());
                return Err(Error::Usage(why));
            }
            if error.kind() != ErrorKind::NotFound {
                return Err(Error::io(&path, error));
            }
            let advice = match name.ends_with(".conf") {
                true => "; the name of a target has no .conf",
                false if path.is_symlink() => ": the link leads nowhere",
                false => "",
            };
            return Err(Error::NotFound(format!(
                "there is no {}{advice}",
                path.display()
            )));
        }
        let text = read(&path)?;
        let mut target = Self::parse(&path.display().to_string(), &text)?;
        target.name = Some(name.to_string());
        Ok(target)
    }

    /// Returns the path of the target's file. The name must be a single path component, valid in a
    /// unit name, and not that of a SCSI host.
    pub fn path(sysfs: &Sysfs, name: &str) -> Result<PathBuf> {
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(good) {
            let file = name
                .strip_suffix(".conf")
                .and_then(|path| path.rsplit_once('/'));
            let advice = file.map_or(String::new(), |(_, name)| {
                format!("; that of a file is {name}")
            });
            return Err(Error::Usage(format!(
                "'{name}' cannot be the name of a target: letters, digits, '-', '_', '.' and ':' \
                 only{advice}"
            )));
        }
        if name.len() > NAME_MAX {
            return Err(Error::Usage(format!(
                "the name of a target is part of a unit's name and has at most {NAME_MAX} \
                 characters: this has {}",
                name.len()
            )));
        }
        if session::host(name).is_some() {
            return Err(Error::Usage(format!(
                "'{name}' cannot be the name of a target: it is the name of a SCSI host"
            )));
        }
        Ok(sysfs.path(FOLDER).join(format!("{name}.conf")))
    }

    /// Parses the content of a file; `path` is for errors.
    pub fn parse(path: &str, text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct File(BTreeMap<Spanned<String>, Spanned<Value>>);

        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let File(pairs) = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |span| line(span.start));
            let advice = advice(text.lines().nth(line - 1).unwrap_or_default(), e.message());
            let what = e.message().replace('\n', ", ");
            Error::Usage(format!("{path}:{line}: {what}{advice}"))
        })?;
        let mut target = Self::default();
        let several = |pair| -> Vec<(&Spanned<String>, &Value)> {
            let (key, value): (&Spanned<String>, &Spanned<Value>) = pair;
            match value.get_ref() {
                Value::Array(list) if key.get_ref() == ANSWERS_FROM => {
                    list.iter().map(|one| (key, one)).collect()
                }
                one => vec![(key, one)],
            }
        };
        for (key, value) in pairs.iter().flat_map(several) {
            let bad =
                |why: String| Error::Usage(format!("{path}:{}: {why}", line(key.span().start)));
            let name = key.get_ref().as_str();
            if let "initramfs" | "onboot" = name {
                let Value::Boolean(value) = value else {
                    return Err(bad(format!("{name}: must be true or false")));
                };
                match name {
                    "initramfs" => target.initramfs = *value,
                    _ => target.manual = !value,
                }
                if target.initramfs && target.manual {
                    return Err(bad("initramfs = true needs a login at boot".into()));
                }
                continue;
            }
            let text = match value {
                Value::String(text) => text.clone(),
                // An integer becomes decimal, so hexadecimal options must be strings (checked
                // below).
                Value::Integer(number) => number.to_string(),
                other => {
                    let kind = other.type_str();
                    let why = format!(
                        "{name}: must be a number, or text in double quotes; this is of type {kind}"
                    );
                    return Err(bad(why));
                }
            };
            if !is_value(&text) {
                return Err(bad(format!(
                    "{name}: invalid value: '{}'",
                    text.escape_debug()
                )));
            }
            match name {
                "device" => target.device = Some(text),
                "port" => {
                    let number = text.parse().ok().filter(|n| (1..=255).contains(n));
                    let number =
                        number.ok_or_else(|| bad(format!("port: '{text}' is not 1 to 255")))?;
                    target.port = Some(number);
                }
                _ => {
                    let hex = OPTIONS
                        .iter()
                        .any(|(known, kind, _)| *known == name && *kind == "HEX");
                    if hex && matches!(value, Value::Integer(_)) {
                        return Err(bad(format!("{name} is hexadecimal: put it in quotes")));
                    }
                    if !target.set(name, text) {
                        return Err(bad(format!("no such option: {name}{}", hint(name))));
                    }
                }
            }
        }
        target.check().map_err(|e| {
            let said = e.to_string();
            let names = |key: &str| {
                said.contains(&format!("'{key}="))
                    || said.starts_with(&format!("{key}:"))
                    || said.starts_with(&format!("{key} ("))
            };
            let key = pairs.keys().find(|key| names(key.get_ref()));
            let line = key.map_or(String::new(), |key| format!(":{}", line(key.span().start)));
            Error::Usage(format!("{path}{line}: {said}"))
        })?;
        Ok(target)
    }

    /// Returns the target that a login string describes, or `None` if an option is unknown.
    pub fn of_login(login: &str) -> Option<Self> {
        let mut target = Self::default();
        let mut pairs = login.split(',').filter_map(|pair| pair.split_once('='));
        pairs
            .all(|(name, value)| target.set(name, value.into()))
            .then_some(target)
    }

    /// Replaces a value, or adds it in the case of [`ANSWERS_FROM`]. Returns false if the name is
    /// unknown.
    pub fn set(&mut self, name: &str, value: String) -> bool {
        let option = OPTIONS
            .iter()
            .map(|(known, ..)| *known)
            .position(|known| known == name);
        let timeout = TIMEOUTS
            .iter()
            .map(|(known, _)| *known)
            .position(|known| known == name);
        let (list, known) = match (option, timeout) {
            (Some(at), _) => (&mut self.options, OPTIONS[at].0),
            (_, Some(at)) => (&mut self.timeouts, TIMEOUTS[at].0),
            _ => return false,
        };
        if known != ANSWERS_FROM {
            list.retain(|(other, _)| *other != known);
        }
        list.push((known, value));
        let order = |name| OPTIONS.iter().position(|(known, ..)| *known == name);
        self.options.sort_by_key(|(name, _)| order(*name));
        true
    }

    /// Returns the string for add_target.
    pub fn login_string(&self) -> String {
        let pairs: Vec<String> = self
            .options
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        pairs.join(",")
    }

    /// Performs the checks of the driver and the transport class.
    pub fn check(&self) -> Result {
        options(&self.checked_string()).map_err(|e| match self.host() {
            Some((host, _)) => Error::Usage(e.to_string().replace(self.unknown(), host)),
            None => e,
        })?;
        check::values(self)?;
        Timeouts::default().with(&self.timeouts).map(|_| ())
    }

    /// Returns the value of a login option that is given once.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut all = self.options.iter().filter(|(known, _)| *known == name);
        all.next().map(|(_, value)| value.as_str())
    }

    /// Returns whether both have the same login options, however they are written.
    pub fn is_login_of(&self, other: &Self) -> bool {
        let (own, others) = (self.checked_string(), other.checked_string());
        let same = match (options(&own), options(&others)) {
            (Ok(own), Ok(others)) => own == others,
            _ => false,
        };
        let host = |target: &Self| target.host().map(|(host, _)| host.to_string());
        host(self) == host(other) && (same || own == others)
    }

    /// Returns `id_ext`, `ioc_guid` and `initiator_ext` in the format of sysfs.
    pub fn key(&self) -> Result<(String, String, String)> {
        let login = self.checked_string();
        let (id_ext, ioc_guid, initiator_ext) = options(&login)?.key();
        let text = |number: &dyn ToString| number.to_string();
        Ok((text(&id_ext), text(&ioc_guid), text(&initiator_ext)))
    }

    /// Returns the local address, if there is one, and that of the target, which is no address
    /// while the target has a host name; `None` if the target is addressed by GID.
    pub fn ends(&self) -> Result<Option<(Option<End>, End)>> {
        let login = self.checked_string();
        let options = options(&login)?;
        Ok(match options.target {
            Place::Rdma { src, dest } => Some((src.map(End::from), dest.into())),
            Place::Ib { .. } => None,
        })
    }

    /// Returns the GID of the target in the format of sysfs, or `None`.
    pub fn dgid(&self) -> Result<Option<String>> {
        let login = self.checked_string();
        let options = options(&login)?;
        Ok(match options.target {
            Place::Ib { dgid, .. } => Some(dgid.to_string()),
            Place::Rdma { .. } => None,
        })
    }

    /// Returns the content of the target's file.
    pub fn to_file(&self) -> String {
        let mut text = String::new();
        let pairs = [
            ("device", self.device.clone()),
            ("port", self.port.map(|port| port.to_string())),
        ];
        let named = pairs.into_iter().filter_map(|(n, v)| Some((n, v?)));
        let options = self
            .options
            .iter()
            .chain(&self.timeouts)
            .map(|(n, v)| (*n, v.clone()));
        // Writing to a string cannot fail.
        for (name, value) in named
            .chain(options)
            .filter(|(name, _)| *name != ANSWERS_FROM)
        {
            let _ = writeln!(text, "{name} = {}", Value::String(value));
        }
        let answers = self
            .options
            .iter()
            .filter(|(name, _)| *name == ANSWERS_FROM);
        let answers: Vec<_> = answers
            .map(|(_, value)| Value::String(value.clone()))
            .collect();
        if !answers.is_empty() {
            let _ = writeln!(text, "{ANSWERS_FROM} = {}", Value::Array(answers));
        }
        if self.initramfs {
            text += "initramfs = true\n";
        }
        if self.manual {
            text += "onboot = false\n";
        }
        text
    }
}

/// Returns what to do about a line that TOML refuses with `message`.
fn advice(line: &str, message: &str) -> &'static str {
    if !message.starts_with("expected newline") && !message.starts_with("invalid") {
        return "";
    }
    if Target::of_login(line.trim()).is_some_and(|one| one.options.len() > 1) {
        return "; give each option a line of its own, as name = \"value\"";
    }
    let value = line.split_once('=').map_or("", |(_, value)| value);
    let value = value.split('#').next().unwrap_or_default().trim();
    if value.starts_with('0') && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return "; a number does not begin with 0";
    }
    match value.starts_with(['"', '\'', '[']) || value.is_empty() {
        true => "",
        false => "; a value that is not a number must be in double quotes",
    }
}

#[cfg(test)]
mod tests;
