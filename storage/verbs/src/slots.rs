// SPDX-License-Identifier: GPL-2.0

//! Values by small numbers.

/// Values, each with a number until it is removed. A number is used again, so that an operation
/// allocates nothing once as many have been outstanding at a time.
pub struct Slots<V> {
    slots: Vec<Option<V>>,
    free: Vec<usize>,
}

impl<V> Default for Slots<V> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<V> Slots<V> {
    /// Adds a value. Returns its number.
    pub fn insert(&mut self, value: V) -> usize {
        match self.free.pop() {
            Some(number) => {
                self.slots[number] = Some(value);
                number
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() - 1
            }
        }
    }

    /// The value with a number.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut V> {
        self.slots.get_mut(number)?.as_mut()
    }

    /// Removes a value.
    pub fn remove(&mut self, number: usize) -> Option<V> {
        let value = self.slots.get_mut(number)?.take()?;
        self.free.push(number);
        Some(value)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Compares with a map, whose numbers are those that `insert` has returned.
    #[test]
    fn is_a_map_with_few_numbers() {
        let (mut slots, mut map, mut state) = (Slots::default(), BTreeMap::new(), 1_u64);
        let mut most = 0;
        for value in 0..10_000_u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let number = (state >> 33) as usize % 40;
            if map.len() < 32 && state >> 63 == 0 {
                let number = slots.insert(value);
                assert_eq!(map.insert(number, value), None);
            } else {
                assert_eq!(slots.get_mut(number).copied(), map.get(&number).copied());
                assert_eq!(slots.remove(number), map.remove(&number));
            }
            most = most.max(map.len());
            assert_eq!(slots.len(), map.len());
            assert_eq!(slots.is_empty(), map.is_empty());
            assert!(map.keys().all(|n| *n < most));
        }
        assert_eq!(most, 32);
    }
}
