// SPDX-License-Identifier: GPL-2.0

//! Reads the status of roles from their sockets, and formats it as text, as JSON or for Prometheus.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{json, Value};

/// Folder of the sockets of the units.
pub const FOLDER: &str = "/run/srp-storage";
/// A process that answers later than this is taken for dead.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum length of an answer in bytes.
const MOST: u64 = 64 << 20;

/// Age in milliseconds from which a snapshot is called old: the role hangs.
const OLD: u64 = 5000;

/// A socket, and its answer or the error.
pub struct Answer {
    /// Name of the socket without `.sock`.
    pub name: String,
    /// An object.
    pub told: Result<Value, String>,
}

/// The sockets in a folder.
pub fn sockets(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "sock") {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

fn read(socket: &Path) -> io::Result<Value> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.take(MOST).read_to_string(&mut text)?;
    let value: Value = serde_json::from_str(&text)?;
    match value.is_object() {
        true => Ok(value),
        false => Err(io::Error::other("its answer is no object")),
    }
}

/// Asks the process behind a socket.
pub fn ask(socket: &Path) -> Answer {
    let name = socket.file_stem().unwrap_or_default().to_string_lossy();
    Answer {
        name: name.into_owned(),
        told: read(socket).map_err(|e| format!("{}: {e}", socket.display())),
    }
}

/// All answers as JSON: an object by name, those of dead processes with `error`.
pub fn as_json(answers: &[Answer]) -> String {
    let one = |a: &Answer| {
        let value = a.told.clone().unwrap_or_else(|e| json!({ "error": e }));
        (a.name.clone(), value)
    };
    let all: serde_json::Map<_, _> = answers.iter().map(one).collect();
    format!("{:#}\n", Value::Object(all))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(true) => Some("yes".into()),
        Value::Bool(false) => Some("no".into()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

/// Appends `key value` pairs of an object, nested ones with their name.
fn pairs(prefix: &str, value: &Value, into: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let name = format!("{prefix}{key}").replace('_', " ");
        if let Some(text) = scalar(value) {
            if key != "name" {
                into.push(format!("{name} {text}"));
            }
        } else if key == "counters" {
            pairs(prefix, value, into);
        } else if value.is_object() {
            pairs(&format!("{name} "), value, into);
        }
    }
}

/// All answers as text for people.
pub fn as_text(answers: &[Answer]) -> String {
    let mut text = String::new();
    for answer in answers {
        let value = match &answer.told {
            Ok(value) => value,
            Err(e) => {
                text += &format!("{}: not running: {e}\n", answer.name);
                continue;
            }
        };
        let state = value["state"].as_str().unwrap_or("unknown");
        let old = value["age_milliseconds"].as_u64().unwrap_or(0);
        let hangs = if old >= OLD {
            format!(" {} s ago: it hangs", old / 1000)
        } else {
            String::new()
        };
        text += &format!("{}: {state}{hangs}\n", answer.name);
        let mut all = Vec::new();
        pairs("", value, &mut all);
        let skip = ["state ", "age milliseconds ", "program ", "role "];
        all.retain(|p| !skip.iter().any(|s| p.starts_with(s)));
        text += &format!("  {}\n", all.join(", "));
        for (key, list) in value.as_object().into_iter().flatten() {
            for item in list.as_array().into_iter().flatten() {
                let mut all = Vec::new();
                pairs("", item, &mut all);
                let name = item["name"].as_str().unwrap_or("?");
                let one = key.trim_end_matches('s');
                text += &format!("  {one} {name}: {}\n", all.join(", "));
            }
        }
    }
    text
}

/// Escapes the value of a label.
fn label(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

/// The metrics by name: whether it is a counter, and the samples.
#[derive(Default)]
struct Metrics(BTreeMap<String, (bool, Vec<String>)>);

impl Metrics {
    fn add(&mut self, name: String, counter: bool, labels: &str, value: &str) {
        let samples = &mut self.0.entry(name).or_insert((counter, Vec::new())).1;
        samples.push(format!("{{{labels}}} {value}"));
    }

    /// Adds all numbers and truth values of an object. Lists have objects with a `name`.
    fn object(&mut self, prefix: &str, counter: bool, labels: &str, value: &Value) {
        for (key, value) in value.as_object().into_iter().flatten() {
            let name = format!("{prefix}_{key}");
            let total = if counter { "_total" } else { "" };
            match value {
                Value::Number(n) => {
                    self.add(format!("{name}{total}"), counter, labels, &n.to_string());
                }
                Value::Bool(b) => self.add(name, false, labels, if *b { "1" } else { "0" }),
                Value::Object(_) if key == "counters" => self.object(prefix, true, labels, value),
                Value::Object(_) => self.object(&name, counter, labels, value),
                Value::Array(list) => {
                    let one = key.trim_end_matches('s');
                    for item in list {
                        let who = label(item["name"].as_str().unwrap_or_default());
                        let labels = format!("{labels},{one}=\"{who}\"");
                        self.object(&format!("{prefix}_{one}"), counter, &labels, item);
                    }
                }
                _ => {}
            }
        }
    }
}

/// All answers in the text format of Prometheus.
pub fn as_prometheus(answers: &[Answer]) -> String {
    let mut metrics = Metrics::default();
    for answer in answers {
        let name = label(&answer.name);
        let up = if answer.told.is_ok() { "1" } else { "0" };
        let mut labels = format!("name=\"{name}\"");
        metrics.add("srp_storage_up".into(), false, &labels, up);
        let Ok(value) = &answer.told else {
            continue;
        };
        for key in ["program", "role"] {
            if let Some(text) = value[key].as_str() {
                labels += &format!(",{key}=\"{}\"", label(text));
            }
        }
        if let Some(state) = value["state"].as_str() {
            let labels = format!("{labels},state=\"{}\"", label(state));
            metrics.add("srp_storage_state".into(), false, &labels, "1");
        }
        metrics.object("srp_storage", false, &labels, value);
    }
    let mut text = String::new();
    for (name, (counter, samples)) in metrics.0 {
        let kind = if counter { "counter" } else { "gauge" };
        text += &format!("# TYPE {name} {kind}\n");
        for sample in samples {
            text += &format!("{name}{sample}\n");
        }
    }
    text
}
