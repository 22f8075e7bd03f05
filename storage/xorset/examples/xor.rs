// SPDX-License-Identifier: GPL-2.0

//! Measures `xorset::layout::xor` (paper 3 of docs/papers.md, figure 4): `xor clock` by the clock,
//! `xor instructions` in a guest whose clock counts instructions. Prints a line for each size of
//! the operands.

use std::{hint::black_box, process::ExitCode, time::Instant};

/// From a 1 KiB write to cells of 64 KiB, and more than the caches hold.
const SIZES: [usize; 5] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 64 << 20];
/// Bytes per measurement, and the number of measurements, of which the best counts.
const BYTES: usize = 256 << 20;
const ROUNDS: usize = 7;

/// Returns the nanoseconds of `calls` calls.
fn took(into: &mut [u8], other: &[u8], calls: usize) -> u128 {
    let began = Instant::now();
    for _ in 0..calls {
        xorset::layout::xor(black_box(into), black_box(other));
    }
    began.elapsed().as_nanos()
}

fn main() -> ExitCode {
    let (what, bytes, rounds) = match std::env::args().nth(1).as_deref() {
        Some("clock") => ("xor_clock", BYTES, ROUNDS),
        // The count of each call is the same.
        Some("instructions") => ("xor_instructions", BYTES >> 6, 1),
        _ => {
            eprintln!("usage: xor clock|instructions");
            return ExitCode::FAILURE;
        }
    };
    for size in SIZES.into_iter().filter(|s| *s <= bytes) {
        let (mut into, other) = (vec![0; size], vec![0x5a; size]);
        let calls = bytes / size;
        took(&mut into, &other, 1);
        let best = (0..rounds).map(|_| took(&mut into, &other, calls)).min();
        let ns = best.unwrap_or(0) as f64;
        println!(
            "srp_bench: {what} bytes={size} gbs={:.2} ns_per_kib={:.2}",
            bytes as f64 / ns,
            ns / (bytes >> 10) as f64
        );
    }
    ExitCode::SUCCESS
}
