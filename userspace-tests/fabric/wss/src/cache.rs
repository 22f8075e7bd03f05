// SPDX-License-Identifier: GPL-2.0

//! Which line of the arena has what. CLOCK says which one goes.

use std::collections::HashMap;

/// What a line has.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Key {
    /// The RS.
    pub store: u32,
    /// Which of its objects.
    pub object: u32,
    /// Counted in lines.
    pub line: u64,
    /// Since when this CE owns it. What it had before is never found.
    pub epoch: u64,
}

#[derive(Clone, Default)]
struct Line {
    key: Option<Key>,
    pins: u32,
    referenced: bool,
}

/// The lines. Those that are pinned stay as they are.
pub struct Cache {
    lines: Vec<Line>,
    places: HashMap<Key, usize>,
    hand: usize,
    free: usize,
}

impl Cache {
    /// So many lines, with nothing in them.
    pub fn new(lines: usize) -> Self {
        Self {
            lines: vec![Line::default(); lines],
            places: HashMap::new(),
            hand: 0,
            free: lines,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Lines that are not pinned.
    pub fn free(&self) -> usize {
        self.free
    }

    /// The line that has this.
    pub fn find(&self, key: &Key) -> Option<usize> {
        self.places.get(key).copied()
    }

    /// It stays until [`Cache::unpin`].
    pub fn pin(&mut self, line: usize) {
        let line = &mut self.lines[line];
        if line.pins == 0 {
            self.free -= 1;
        }
        line.pins += 1;
        line.referenced = true;
    }

    /// It may go, as far as this pin is concerned.
    pub fn unpin(&mut self, line: usize) {
        let line = &mut self.lines[line];
        line.pins -= 1;
        if line.pins == 0 {
            self.free += 1;
        }
    }

    /// A line for something new: pinned, with nothing in it. `None` if all are pinned.
    pub fn take(&mut self) -> Option<usize> {
        // After one turn no line is referenced, after two one is found.
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

    /// A line has this from now on. Another one that had it has nothing.
    pub fn install(&mut self, at: usize, key: Key) {
        if let Some(old) = self.places.get(&key).copied() {
            self.forget(old);
        }
        self.forget(at);
        self.lines[at].key = Some(key);
        self.places.insert(key, at);
    }

    /// A line has nothing any more.
    pub fn forget(&mut self, at: usize) {
        if let Some(key) = self.lines[at].key.take() {
            self.places.remove(&key);
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
    fn the_line_that_nobody_used_goes() {
        let mut cache = Cache::new(3);
        for line in 0..3 {
            fill(&mut cache, line);
        }
        // All are as new; the first goes, and the others have had their turn.
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
        // What has been replaced does not take the other one with it.
        cache.forget(first);
        assert_eq!(cache.find(&key(7)), Some(second));
    }
}
