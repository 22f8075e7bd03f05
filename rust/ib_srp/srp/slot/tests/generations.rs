// SPDX-License-Identifier: GPL-2.0

//! Which generations the commands of a slot get.

use super::*;

/// A generation is never that of a previous command, whatever its random half.
pub(super) fn differ(soft: &Soft) -> Result {
    let shared = new(soft, 1)?;
    let cell = &shared.cell;
    for count in 1..=0x1_0001_u32 {
        // CAST: The upper half, which changes last.
        let random = (count >> 16) as u16;
        let slot = cell.claim(|| random.into(), LUN.to_int(), TAG);
        let slot = slot.ok_or(EINVAL)?;
        let generation = u32::from(random) << 16 | count & 0xffff;
        if slot.word() != Word::new(State::Building, generation) {
            return Err(EINVAL);
        }
        slot.release_after(Event::Cancel);
    }
    Ok(())
}

/// A random number is enough for four generations, and each part of it is used once.
pub(super) fn parts(soft: &Soft) -> Result {
    const PARTS: [u32; 9] = [
        0x1111, 0x2222, 0x3333, 0x4444, 0x2222, 0x4444, 0x6666, 0x8888, 0x3333,
    ];
    let shared = new(soft, 1)?;
    let cell = &shared.cell;
    let mut draws = 0_u64;
    let mut draw = || {
        draws += 1;
        0x4444_3333_2222_1111_u64.wrapping_mul(draws)
    };
    for part in PARTS {
        let slot = cell.claim(&mut draw, LUN.to_int(), TAG).ok_or(EINVAL)?;
        if slot.word().generation() >> 16 != part {
            return Err(EINVAL);
        }
        // A slot that is not free gives no part away.
        if cell.claim(&mut draw, LUN.to_int(), TAG).is_some() {
            return Err(EINVAL);
        }
        slot.release_after(Event::Cancel);
    }
    match draws {
        3 => Ok(()),
        _ => Err(EINVAL),
    }
}
