// SPDX-License-Identifier: GPL-2.0

//! The content of each line of the arena. CLOCK selects the line to evict.

use std::collections::{HashMap, HashSet, VecDeque};

/// Identifies the content of a line.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Key {
    /// The RS.
    pub store: u32,
    /// The object.
    pub object: u32,
    /// Offset in the object, in lines.
    pub line: u64,
    /// The ownership epoch of this CE. Lines of earlier epochs are never found.
    pub epoch: u64,
}

#[derive(Clone, Default)]
struct Line {
    key: Option<Key>,
    pins: u32,
    referenced: bool,
}

/// The lines. Pinned lines are not evicted.
pub struct Cache {
    lines: Vec<Line>,
    index: HashMap<Key, usize>,
    hand: usize,
    free: usize,
}

impl Cache {
    /// Creates a cache of empty lines.
    pub fn new(lines: usize) -> Self {
        Self {
            lines: vec![Line::default(); lines],
            index: HashMap::new(),
            hand: 0,
            free: lines,
        }
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Number of lines with blocks.
    pub fn used(&self) -> usize {
        self.index.len()
    }

    /// Number of unpinned lines.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Returns the line with this content.
    pub fn find(&self, key: &Key) -> Option<usize> {
        self.index.get(key).copied()
    }

    /// Pins a line until [`Cache::unpin`].
    pub fn pin(&mut self, line: usize) {
        let line = &mut self.lines[line];
        if line.pins == 0 {
            self.free -= 1;
        }
        line.pins += 1;
        line.referenced = true;
    }

    /// Drops one pin.
    pub fn unpin(&mut self, line: usize) {
        let line = &mut self.lines[line];
        line.pins -= 1;
        if line.pins == 0 {
            self.free += 1;
        }
    }

    /// Takes a line for new content and returns it empty and pinned; `None` if all lines are
    /// pinned.
    pub fn take(&mut self) -> Option<usize> {
        // The first turn clears the referenced flags, the second finds a line.
        for _ in 0..2 * self.lines.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.lines.len();
            let line = &mut self.lines[at];
            if line.pins > 0 || (line.key.is_some() && std::mem::take(&mut line.referenced)) {
                continue;
            }
            self.forget(at);
            self.pin(at);
            return Some(at);
        }
        None
    }

    /// Sets the content of a line. Another line with the same content becomes empty.
    pub fn install(&mut self, at: usize, key: Key) {
        if let Some(old) = self.index.get(&key).copied() {
            self.forget(old);
        }
        self.forget(at);
        self.lines[at].key = Some(key);
        self.index.insert(key, at);
    }

    /// Empties a line.
    pub fn forget(&mut self, at: usize) {
        if let Some(key) = self.lines[at].key.take() {
            self.index.remove(&key);
        }
    }
}

/// The contents that the last misses asked for.
pub struct Recent {
    keys: HashSet<Key>,
    order: VecDeque<Key>,
    most: usize,
}

impl Recent {
    /// Remembers `most` contents.
    pub fn new(most: usize) -> Self {
        Self {
            keys: HashSet::new(),
            order: VecDeque::new(),
            most,
        }
    }

    /// Returns whether one of the last misses asked for this content.
    pub fn has(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }

    /// Adds a miss. The oldest one is forgotten if there are too many.
    pub fn add(&mut self, key: Key) {
        if !self.keys.insert(key) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.keys.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(line: u64) -> Key {
        Key {
            store: 1,
            object: 0,
            line,
            epoch: 5,
        }
    }

    fn fill(cache: &mut Cache, line: u64) -> usize {
        let at = cache.take().unwrap();
        cache.install(at, key(line));
        cache.unpin(at);
        at
    }

    #[test]
    fn the_unused_line_goes() {
        let mut cache = Cache::new(3);
        for line in 0..3 {
            fill(&mut cache, line);
        }
        // All lines were referenced. The first is evicted, and the others lose their flag.
        fill(&mut cache, 3);
        assert_eq!(cache.find(&key(0)), None);
        let used = cache.find(&key(1)).unwrap();
        cache.pin(used);
        cache.unpin(used);
        fill(&mut cache, 4);
        assert_eq!(cache.find(&key(1)), Some(used));
        assert_eq!(cache.find(&key(2)), None);
    }

    #[test]
    fn pinned_lines_stay() {
        let mut cache = Cache::new(2);
        let first = fill(&mut cache, 0);
        cache.pin(first);
        let second = cache.take().unwrap();
        assert_ne!(first, second);
        assert_eq!((cache.free(), cache.take()), (0, None));
        cache.unpin(second);
        assert_eq!(cache.take(), Some(second));
        assert_eq!(cache.find(&key(0)), Some(first));
    }

    #[test]
    fn one_line_has_it() {
        let mut cache = Cache::new(2);
        let first = fill(&mut cache, 7);
        let second = fill(&mut cache, 7);
        assert_ne!(first, second);
        assert_eq!(cache.find(&key(7)), Some(second));
        assert_eq!(cache.find(&Key { epoch: 6, ..key(7) }), None);
        // Forgetting the replaced line does not affect the new one.
        cache.forget(first);
        assert_eq!(cache.find(&key(7)), Some(second));
    }

    #[test]
    fn old_misses_are_forgotten() {
        let mut recent = Recent::new(2);
        for line in [0, 1, 1] {
            recent.add(key(line));
        }
        assert!(recent.has(&key(0)) && recent.has(&key(1)));
        recent.add(key(2));
        assert!(!recent.has(&key(0)) && recent.has(&key(1)) && recent.has(&key(2)));
        recent.add(key(0));
        assert!(recent.has(&key(0)) && !recent.has(&key(1)));
    }
}
