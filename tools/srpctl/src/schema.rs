// SPDX-License-Identifier: GPL-2.0

//! Checks output against the JSON schemas in tools/srpctl/schema. Each command with `--json` has
//! one. A test of the command passes its output to [`check`].
//!
//! Debian has no crate for this. This module knows the keywords of JSON Schema that the schemas
//! use; any other keyword is an error. Beyond JSON Schema, a property that the schema does not name
//! is an error.

use crate::cli::Cli;
use clap::CommandFactory;
use serde::Serialize;
use serde_json::{json, Map, Value};
use std::{fs, path::Path};

/// Reads `NAME.json`.
fn schema(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    let path = folder.join(format!("{name}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Fails unless `output` is what the schema of the command `name` allows.
pub fn check(name: &str, output: &impl Serialize) {
    let output = serde_json::to_value(output).unwrap();
    let schema = schema(name);
    let checked = errors(&schema, &schema, &output, "", true);
    assert!(checked.is_empty(), "{name}: {checked:?}: {output}");
}

/// Returns what is wrong with `value`. `named`: its properties must be in the schema.
fn errors(root: &Value, schema: &Value, value: &Value, place: &str, named: bool) -> Vec<String> {
    let keywords = schema.as_object().unwrap();
    let mut found = Vec::new();
    let mut require = |good: bool, why: String| {
        if !good {
            found.push(format!("{place}: {why}"));
        }
    };
    let mut inner = Vec::new();
    for (keyword, limit) in keywords {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" | "then" => {}
            "type" => {
                let types = limit.as_array().cloned();
                let types = types.unwrap_or_else(|| vec![limit.clone()]);
                let good = types.iter().any(|name| is(value, name.as_str().unwrap()));
                require(good, format!("not of type {limit}"));
            }
            "enum" => {
                let good = limit.as_array().unwrap().contains(value);
                require(good, format!("{value} is none of {limit}"));
            }
            "const" => require(value == limit, format!("not {limit}")),
            "minimum" => {
                let good = value.as_f64().is_none_or(|n| n >= limit.as_f64().unwrap());
                require(good, format!("{value} is below {limit}"));
            }
            "format" => {
                assert_eq!(limit, "date-time");
                let time = value
                    .as_str()
                    .is_none_or(|t| humantime::parse_rfc3339(t).is_ok());
                require(time, format!("{value} is no time"));
            }
            "required" => {
                for name in limit.as_array().unwrap() {
                    let there = value.as_object().is_none_or(|o| o.contains_key(text(name)));
                    require(there, format!("no {name}"));
                }
            }
            "properties" | "additionalProperties" => {
                inner.extend(properties(root, keywords, keyword, value, place, named));
            }
            "items" => {
                for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                    inner.extend(errors(root, limit, item, &format!("{place}[{n}]"), true));
                }
            }
            "$ref" => {
                let target = root
                    .pointer(text(limit).strip_prefix('#').unwrap())
                    .unwrap();
                inner.extend(errors(root, target, value, place, named));
            }
            "allOf" => {
                for part in limit.as_array().unwrap() {
                    inner.extend(errors(root, part, value, place, false));
                }
            }
            "if" => {
                if errors(root, limit, value, place, false).is_empty() {
                    let then = &schema["then"];
                    inner.extend(errors(root, then, value, place, false));
                }
            }
            _ => panic!("{place}: the keyword {keyword} is not known here"),
        }
    }
    found.extend(inner);
    found
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Returns whether a value has a type of JSON Schema.
fn is(value: &Value, name: &str) -> bool {
    match name {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        _ => panic!("no type {name}"),
    }
}

/// Returns the errors of the properties that `keyword` governs.
fn properties(
    root: &Value,
    schema: &Map<String, Value>,
    keyword: &str,
    value: &Value,
    place: &str,
    named: bool,
) -> Vec<String> {
    let known = schema.get("properties");
    let others = schema.get("additionalProperties");
    let mut found = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        let place = format!("{place}/{name}");
        let own = known.and_then(|known| known.get(name));
        match (keyword, own, others) {
            ("properties", Some(own), _) => found.extend(errors(root, own, value, &place, true)),
            ("additionalProperties", None, Some(others)) => {
                found.extend(errors(root, others, value, &place, true));
            }
            ("properties", None, None) if named => found.push(format!("{place}: not described")),
            _ => {}
        }
    }
    found
}

#[test]
fn each_command_with_json_has_a_schema() {
    let command = Cli::command();
    let has_json = |part: &clap::Command| {
        part.get_arguments().any(|arg| {
            let values = arg.get_possible_values();
            arg.get_long() == Some("json") || values.iter().any(|value| value.get_name() == "json")
        })
    };
    let parts = command.get_subcommands().filter(|part| has_json(part));
    let mut names: Vec<_> = parts.map(|p| format!("{}.json", p.get_name())).collect();
    for name in &names {
        schema(name.trim_end_matches(".json"));
    }
    names.sort();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    let files = fs::read_dir(folder).unwrap().flatten();
    let mut files: Vec<_> = files
        .map(|f| f.file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, names);
}

#[test]
fn each_keyword_is_checked() {
    let schema = json!({
        "type": "object",
        "required": ["time"],
        "properties": {
            "time": {"type": "string", "format": "date-time"},
            "kind": {"enum": ["a", "b"]},
            "list": {"type": ["array", "null"], "items": {"$ref": "#/$defs/number"}},
            "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
        },
        "allOf": [{
            "if": {"required": ["kind"], "properties": {"kind": {"const": "b"}}},
            "then": {"required": ["list"]},
        }],
        "$defs": {"number": {"type": "integer", "minimum": 1}},
    });
    let time = "2026-01-01T00:00:00.000Z";
    for (good, value) in [
        (true, json!({"time": time})),
        (true, json!({"time": time, "kind": "a"})),
        (true, json!({"time": time, "kind": "b", "list": [1]})),
        (
            true,
            json!({"time": time, "list": null, "map": {"x": true}}),
        ),
        (false, json!([])),
        (false, json!({})),
        (false, json!({"time": "now"})),
        (false, json!({"time": 1})),
        (false, json!({"time": time, "kind": "c"})),
        (false, json!({"time": time, "kind": "b"})),
        (false, json!({"time": time, "list": [0]})),
        (false, json!({"time": time, "list": [1.5]})),
        (false, json!({"time": time, "map": {"x": 1}})),
        (false, json!({"time": time, "other": 1})),
    ] {
        let found = errors(&schema, &schema, &value, "", true);
        assert_eq!(found.is_empty(), good, "{value}: {found:?}");
    }
}
