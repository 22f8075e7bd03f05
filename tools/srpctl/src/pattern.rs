// SPDX-License-Identifier: GPL-2.0

//! Lines of the log as docs/troubleshooting.md writes them: CAPITALS mark variable parts.

/// The capitals that mark any text.
const ANY: [&str; 21] = [
    "ADDRESS", "ANSWER", "DEVICE", "DISK", "EVENT", "ID", "MAX", "MIN", "NUMBER", "OPTIONS",
    "PKEY", "PORT", "PREFIX", "PROBLEM", "REASON", "S", "STATUS", "STEP", "TAG", "TASK", "TOKEN",
];
/// The capitals that mark a number.
const NUMBERS: [&str; 4] = ["N", "M", "K", "E"];

/// A part of a line.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Part {
    Text(String),
    Number,
    /// Any text that is not empty, with the name of the part.
    Any(String),
}

/// A line with variable parts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pattern(Vec<Part>);

impl Pattern {
    /// Parses a line of the page. A number in an example is variable, too.
    pub fn new(line: &str) -> Self {
        let mut parts = Vec::new();
        for word in words(line) {
            if NUMBERS.contains(&word) || word.starts_with(|c: char| c.is_ascii_digit()) {
                parts.push(Part::Number);
            } else if ANY.contains(&word) {
                parts.push(Part::Any(word.to_string()));
            } else if let Some(Part::Text(before)) = parts.last_mut() {
                before.push_str(word);
            } else {
                parts.push(Part::Text(word.to_string()));
            }
        }
        Self(parts)
    }

    /// Returns whether the line has a variable part of this name.
    pub fn has(&self, name: &str) -> bool {
        let is_it = |part: &Part| matches!(part, Part::Any(other) if other == name);
        self.0.iter().any(is_it)
    }

    /// Returns this line with another one for REASON.
    pub fn with(&self, reason: &Self) -> Self {
        let parts = self.0.iter().flat_map(|part| match part {
            Part::Any(name) if name == "REASON" => reason.0.clone(),
            part => vec![part.clone()],
        });
        Self(parts.collect())
    }

    /// Returns the number of characters that are not variable.
    pub fn weight(&self) -> usize {
        let lengths = self.0.iter().map(|part| match part {
            Part::Text(text) => text.len(),
            Part::Number | Part::Any(_) => 0,
        });
        lengths.sum()
    }

    /// Returns whether a line of the log contains this one, as whole words.
    pub fn is_in(&self, line: &str) -> bool {
        let lacks = |part: &Part| matches!(part, Part::Text(text) if !line.contains(text.as_str()));
        // Quickly for most lines of a log.
        if self.0.iter().any(lacks) {
            return false;
        }
        let starts = line.char_indices().map(|(at, _)| at);
        let mut starts = starts.filter(|at| is_edge(line, *at));
        starts.any(|at| fits(&self.0, line, at))
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns whether there is a word boundary at this place.
fn is_edge(line: &str, at: usize) -> bool {
    let before = line[..at].chars().next_back();
    let after = line[at..].chars().next();
    !(before.is_some_and(is_word) && after.is_some_and(is_word))
}

/// Returns whether the line has these parts at this place, up to the end of a word.
fn fits(parts: &[Part], line: &str, at: usize) -> bool {
    let rest = &line[at..];
    match parts {
        [] => is_edge(line, at),
        [Part::Text(text), parts @ ..] => {
            rest.starts_with(text.as_str()) && fits(parts, line, at + text.len())
        }
        [Part::Number, parts @ ..] => {
            let digits = rest.strip_prefix('-').unwrap_or(rest);
            let (digits, radix) = match digits.strip_prefix("0x") {
                Some(digits) => (digits, 16),
                None => (digits, 10),
            };
            let after = digits.trim_start_matches(|c: char| c.is_digit(radix));
            after.len() < digits.len() && fits(parts, line, line.len() - after.len())
        }
        [Part::Any(_), parts @ ..] => {
            let mut ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
            ends.any(|end| fits(parts, line, at + end))
        }
    }
}

/// Splits text into runs of letters, runs of digits, and single other characters.
fn words(text: &str) -> Vec<&str> {
    let kind = |c: char| match c {
        c if c.is_ascii_digit() => 1,
        c if is_word(c) => 2,
        _ => 0,
    };
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match kind(first) {
            0 => first.len_utf8(),
            run => rest.find(|c| kind(c) != run).unwrap_or(rest.len()),
        };
        let (word, after) = rest.split_at(length);
        found.push(word);
        rest = after;
    }
    found
}

#[cfg(test)]
pub mod tests {
    use super::*;

    impl Pattern {
        /// Returns a line of the log that has this pattern.
        pub fn sample(&self) -> String {
            let texts = self.0.iter().map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Number => "7".to_string(),
                Part::Any(name) => format!("the {}", name.to_lowercase()),
            });
            texts.collect()
        }
    }

    #[test]
    fn capitals_are_any_text() {
        let is_in = |pattern: &str, line: &str| Pattern::new(pattern).is_in(line);
        assert!(is_in("route (error N)", "no route (error -113)"));
        assert!(!is_in("route (error N)", "no route (error x)"));
        assert!(is_in("for LUN N ignored", "report for LUN 0x1a ignored"));
        assert!(!is_in("route (error N)", "reroute (error 1)"));
        assert!(is_in(
            "login at ADDRESS failed",
            "login at 192.0.2.1:5555 failed: x"
        ));
        assert!(!is_in("login at ADDRESS failed", "login at  failedly"));
        assert!(is_in("host3: lost", "scsi host17: lost"));
        assert!(!is_in("host3: lost", "scsi host17: losts"));
        // Names of the field are no variable parts.
        assert!(!is_in("invalid GID", "invalid LID"));
    }

    #[test]
    fn a_frame_has_a_reason() {
        let frame = Pattern::new("rejected: REASON (reason N)");
        let whole = frame.with(&Pattern::new("no QP"));
        assert!(whole.is_in("connection rejected: no QP (reason 1)"));
        assert!(!whole.is_in("connection rejected: no EEC (reason 1)"));
        assert_eq!(whole.weight(), "rejected: no QP (reason )".len());
        assert!(frame.has("REASON") && !whole.has("REASON"));
    }
}
