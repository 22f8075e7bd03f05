// SPDX-License-Identifier: GPL-2.0

//! Checks the alerts and the dashboard in tools/monitoring against what `srpctl stats` prints.

use crate::{cli::Cli, stats};
use clap::CommandFactory;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const RULES: &str = include_str!("../../monitoring/srp-rules.yml");
const DASHBOARD: &str = include_str!("../../monitoring/srp-dashboard.json");

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];
/// The age of the file, from the node exporter, with its label.
const FILE: (&str, &str) = ("node_textfile_mtime_seconds", "file");

type Labels = BTreeSet<String>;

/// Returns the metrics that the exporter prints, with their labels.
fn exported() -> BTreeMap<String, Labels> {
    let mut all = BTreeMap::from([(FILE.0.to_string(), Labels::from([FILE.1.to_string()]))]);
    let text = stats::example();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once('{').unwrap();
        let labels = rest.split("\",").filter_map(|pair| pair.split_once('='));
        let labels = labels.map(|(label, _)| label.to_string());
        all.entry(name.to_string()).or_default().extend(labels);
    }
    all
}

/// Removes strings, which may contain anything.
fn unquoted(expression: &str) -> String {
    expression.split('"').step_by(2).collect()
}

/// Returns the words of an expression.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// Returns the metrics of an expression.
fn metrics(expression: &str) -> BTreeSet<String> {
    let text = unquoted(expression);
    let ours = words(&text).filter(|word| word.starts_with("srp_") || word.starts_with("node_"));
    ours.map(str::to_string).collect()
}

/// Returns the labels that an expression selects or groups by.
fn labels(expression: &str) -> Labels {
    let text = unquoted(expression);
    let mut found = Labels::new();
    for part in text.split('{').skip(1) {
        let inside = part.split('}').next().unwrap();
        let names = inside.split(',').filter_map(|pair| words(pair).next());
        found.extend(names.map(str::to_string));
    }
    for keyword in ["by", "without", "on", "ignoring"] {
        for part in text.split(&format!("{keyword} (")).skip(1) {
            let inside = part.split(')').next().unwrap();
            found.extend(words(inside).map(str::to_string));
        }
    }
    found
}

/// Returns the labels in a text: those that begin with `prefix` and end before `}}`.
fn inserted(text: &str, prefix: &str) -> Labels {
    let parts = text.split(prefix).skip(1);
    let names = parts.map(|part| words(part).next().unwrap().to_string());
    names.collect()
}

/// Checks an expression, and the labels used with its result.
fn check(place: &str, expression: &str, used: &Labels) {
    let exported = exported();
    let metrics = metrics(expression);
    assert!(!metrics.is_empty(), "{place}: no metric: {expression}");
    let mut known: Labels = ADDED.map(String::from).into();
    for metric in &metrics {
        let labels = exported.get(metric);
        let labels = labels.unwrap_or_else(|| panic!("{place}: {metric} is not exported"));
        known.extend(labels.iter().cloned());
    }
    for label in labels(expression).iter().chain(used) {
        assert!(
            known.contains(label),
            "{place}: no label {label}: {expression}"
        );
    }
}

/// Checks that the commands of srpctl in a text exist.
fn check_commands(place: &str, text: &str) {
    for part in text.split("srpctl ").skip(1) {
        let verb = words(part).next().unwrap();
        let command = Cli::command();
        assert!(
            command.find_subcommand(verb).is_some(),
            "{place}: no command {verb}"
        );
    }
}

/// Returns the alerts of the rules: the values of each, by key.
fn alerts(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut all: Vec<BTreeMap<String, String>> = Vec::new();
    let mut folded = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let depth = line.len() - line.trim_start().len();
        match (
            line.trim().trim_start_matches("- ").split_once(": "),
            &folded,
        ) {
            (_, Some((key, begin))) if depth > *begin => {
                let value = all.last_mut().unwrap().get_mut(key).unwrap();
                *value += line.trim();
                value.push(' ');
            }
            (Some((key, value)), _) => {
                if key == "alert" {
                    all.push(BTreeMap::new());
                }
                let folds = value == ">-";
                folded = folds.then(|| (key.to_string(), depth));
                let value = if folds { "" } else { value };
                if let Some(alert) = all.last_mut() {
                    alert.insert(key.to_string(), value.to_string());
                }
            }
            _ => folded = None,
        }
    }
    all
}

#[test]
fn alerts_use_what_is_exported() {
    let alerts = alerts(RULES);
    assert_eq!(alerts.len(), RULES.matches("alert: ").count());
    assert!(alerts.len() >= 3);
    for alert in &alerts {
        let name = &alert["alert"];
        let summary = alert
            .get("summary")
            .unwrap_or_else(|| panic!("{name}: no summary"));
        check(name, &alert["expr"], &inserted(summary, "$labels."));
        let severity = alert.get("severity").map(String::as_str);
        assert!(
            matches!(severity, Some("critical" | "warning")),
            "{name}: {severity:?}"
        );
        assert!(
            summary.contains(": type `"),
            "{name}: what to type? {summary}"
        );
        check_commands(name, summary);
    }
}

#[test]
fn the_dashboard_uses_what_is_exported() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(!panels.is_empty());
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        check_commands(title, panel["description"].as_str().unwrap());
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let legend = target["legendFormat"].as_str().unwrap();
            check(
                title,
                target["expr"].as_str().unwrap(),
                &inserted(legend, "{{"),
            );
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            let inside = query.strip_prefix("label_values(").unwrap();
            let (metric, label) = inside.trim_end_matches(')').split_once(", ").unwrap();
            check("templating", metric, &Labels::from([label.to_string()]));
        }
    }
}

#[test]
fn the_check_finds_what_is_wrong() {
    let fails = |expression: &str, used: &str| {
        let used: Labels = words(used).map(str::to_string).collect();
        std::panic::catch_unwind(|| check("here", expression, &used)).is_err()
    };
    let rate = "sum by (host) (rate(srp_commands_total{channel=\"0\",instance=~\"{x}\"}[5m]))";
    assert!(!fails(rate, "host target"));
    assert!(fails(rate, "hosts"));
    assert!(fails(&rate.replace("by (host", "by (lun"), ""));
    assert!(fails(&rate.replace("channel=", "chanel="), ""));
    assert!(fails(&rate.replace("commands_total", "commands"), ""));
    assert!(fails("srp_running{channel=\"0\"}", ""));
    assert!(fails("up == 0", ""));
}
