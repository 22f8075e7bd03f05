// SPDX-License-Identifier: GPL-2.0

//! docs/troubleshooting.md as entries: a row of a table, or a paragraph, with the lines that it
//! explains.

use crate::pattern::Pattern;

/// The only source of the explanations.
const PAGE: &str = include_str!("../../../docs/troubleshooting.md");

/// What the page says about lines of the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Title of the section.
    pub section: String,
    /// The lines that the entry explains.
    pub patterns: Vec<Pattern>,
    /// What they mean; a paragraph also says what to do.
    pub means: String,
    /// What to do, in a row of a table.
    pub advice: Option<String>,
    /// Whether a row explains only a REASON in one of the section's frames.
    pub is_reason: bool,
}

/// The parsed page.
pub struct Page {
    /// All rows and paragraphs that explain a line.
    pub entries: Vec<Entry>,
    /// Lines with a REASON or PROBLEM, each with the section that has the reasons.
    pub frames: Vec<(String, Pattern)>,
}

impl Page {
    /// Parses the page of this version.
    pub fn new() -> Self {
        Self::parse(PAGE)
    }

    fn parse(text: &str) -> Self {
        let mut page = Self {
            entries: Vec::new(),
            frames: Vec::new(),
        };
        let mut section = None;
        for block in text.split("\n\n") {
            let block = block.trim();
            if let Some(title) = block.strip_prefix('#') {
                let title = title.trim_start_matches('#').trim();
                // The part before the first section is about the page itself.
                section = block.starts_with("##").then(|| title.to_string());
                continue;
            }
            match (&section, block.starts_with('|')) {
                (Some(section), true) => page.table(section, block),
                (Some(section), false) => page.paragraph(section, block),
                (None, _) => {}
            }
        }
        page
    }

    fn table(&mut self, section: &str, block: &str) {
        let mut rows = block.lines().map(cells);
        let is_reason = rows.next().is_some_and(|head| head[0] == "REASON");
        // The row of dashes.
        rows.next();
        for row in rows {
            let [lines, means, advice] = &row[..] else {
                continue;
            };
            self.entries.push(Entry {
                section: section.to_string(),
                patterns: spans(lines).map(Pattern::new).collect(),
                means: means.to_string(),
                advice: Some(advice.to_string()),
                is_reason,
            });
        }
    }

    fn paragraph(&mut self, section: &str, block: &str) {
        let text = block.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines = spans(&text).filter(|span| span.contains(' '));
        let patterns: Vec<Pattern> = lines.map(Pattern::new).collect();
        // `The reasons are those of "TITLE"`.
        let other = text.split_once("those of \"").map(|(_, rest)| rest);
        let other = other.and_then(|rest| rest.split('"').next());
        for section in [Some(section), other].into_iter().flatten() {
            let open = patterns.iter().filter(|pattern| pattern.has("REASON"));
            let frames = open.map(|frame| (section.to_string(), frame.clone()));
            self.frames.extend(frames);
        }
        if !patterns.is_empty() {
            self.entries.push(Entry {
                section: section.to_string(),
                patterns,
                means: block.to_string(),
                advice: None,
                is_reason: false,
            });
        }
    }

    /// Returns the entry that explains a line of the log best, or `None`.
    pub fn find(&self, line: &str) -> Option<&Entry> {
        let line = start(line);
        // The driver's own advice follows.
        let said = line.split("; ").next().unwrap_or(line);
        let scored = self.entries.iter().filter_map(|entry| {
            let score = self
                .score(entry, said)
                .or_else(|| self.score(entry, line))?;
            // A row is about this line; a paragraph is about several.
            Some(((entry.advice.is_some(), score), entry))
        });
        // Among equal scores the first entry wins.
        let best = scored.reduce(|best, next| if next.0 > best.0 { next } else { best });
        best.map(|(_, entry)| entry)
    }

    /// Returns how many characters of the line the entry has, without those of variable parts.
    fn score(&self, entry: &Entry, line: &str) -> Option<usize> {
        let fits = |pattern: &Pattern| pattern.is_in(line).then(|| pattern.weight());
        let lines = entry.patterns.iter();
        if !entry.is_reason {
            return lines.filter_map(fits).max();
        }
        let of_section = |frame: &&(String, Pattern)| frame.0 == entry.section;
        let frames: Vec<_> = self.frames.iter().filter(of_section).collect();
        let framed = lines.flat_map(|line| frames.iter().map(|(_, frame)| frame.with(line)));
        framed.filter_map(|pattern| fits(&pattern)).max()
    }
}

/// Returns the first bytes of a line. The time of a search grows with the cube of the length.
fn start(line: &str) -> &str {
    let mut end = line.len().min(1024);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

/// Returns the cells of a table's row.
fn cells(row: &str) -> Vec<&str> {
    let row = row.trim().trim_start_matches('|').trim_end_matches('|');
    row.split(" | ").map(str::trim).collect()
}

/// Returns the texts in backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_page_leads_to_its_own_entry() {
        let page = Page::new();
        let mut lines = 0;
        for entry in &page.entries {
            for pattern in &entry.patterns {
                let frame = page
                    .frames
                    .iter()
                    .find(|(section, _)| *section == entry.section);
                let line = match (entry.is_reason, frame) {
                    (true, Some((_, frame))) => frame.with(pattern).sample(),
                    (true, None) => panic!("no line with REASON in {}", entry.section),
                    (false, _) => pattern.sample(),
                };
                let found = page.find(&format!("Nov 28 15:00:00 n1 kernel: [    1.5] {line}"));
                // A row may explain a line of a paragraph better.
                let is_good = found.is_some_and(|found| {
                    found == entry
                        || entry.advice.is_none()
                            && (found.advice.is_some() || found.patterns.contains(pattern))
                });
                assert!(is_good, "{line}: {found:?}");
                lines += 1;
            }
        }
        assert!(lines > 200, "{lines}");
    }

    #[test]
    fn a_long_line_is_cut() {
        let page = Page::new();
        let line = "ib_srp: 1 channels still missing: no route (error -113)";
        for (before, is_known) in [("x ".repeat(400), true), ("\u{20ac} ".repeat(400), false)] {
            assert_eq!(page.find(&(before + line)).is_some(), is_known);
        }
        assert_eq!(start(&"\u{20ac}".repeat(400)).len(), 1023);
        let begin = std::time::Instant::now();
        page.find(&"ib_srp: login at ".repeat(3000));
        assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
    }

    #[test]
    fn the_reasons_of_another_section_count() {
        let page = Page::new();
        let line = "scsi host3: ib_srp: rxe0:1 target 00:01: 2 channels still missing: \
            connection rejected: no resources (reason 3)";
        let found = page.find(line).unwrap();
        assert_eq!(found.means, "the target's device is full");
        let line = "ib_srp: 1 channels still missing: no route (error -113)";
        assert!(page
            .find(line)
            .unwrap()
            .advice
            .as_ref()
            .unwrap()
            .contains("sminfo"));
        assert!(page.find("no route (error -113)").is_none());
    }
}
