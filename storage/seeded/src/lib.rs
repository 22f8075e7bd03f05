// SPDX-License-Identifier: GPL-2.0

//! Random numbers and schedules by seed, for tests.

#![deny(missing_docs, unsafe_code, unreachable_pub)]

/// The generator SplitMix64. The field is the state.
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True with a probability of 1 in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Parses the environment variable `name` as a number.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect(name))
}

/// Runs `$SEEDS` schedules (default `usual`) from seed `$FIRST` and sums up their counters, named
/// by `names`. If `$SEED` is set, runs only that seed and returns `None`.
pub fn schedules<const N: usize>(
    usual: u64,
    names: [&str; N],
    schedule: fn(u64) -> [u64; N],
) -> Option<(u64, [u64; N])> {
    if let Some(seed) = number("SEED") {
        schedule(seed);
        return None;
    }
    let (mut all, mut bad) = ([0; N], Vec::new());
    let (seeds, first) = (
        number("SEEDS").unwrap_or(usual),
        number("FIRST").unwrap_or(0),
    );
    for seed in first..first + seeds {
        match std::panic::catch_unwind(|| schedule(seed)) {
            Ok(sum) => all.iter_mut().zip(sum).for_each(|(all, n)| *all += n),
            Err(_) => bad.push(seed),
        }
    }
    let counts = all.iter().zip(names).map(|(n, name)| format!("{n} {name}"));
    println!(
        "{seeds} schedules: {}",
        counts.collect::<Vec<_>>().join(", ")
    );
    assert!(
        bad.is_empty(),
        "{} of {seeds} schedules failed: {bad:?}",
        bad.len()
    );
    Some((seeds, all))
}
