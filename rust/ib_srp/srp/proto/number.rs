// SPDX-License-Identifier: GPL-2.0

//! Numbers in login strings, by the rules of the kernel's `match_int()` and `kstrtoull()`.
//!
//! A number that does not fit into its type is [`Why::TooLarge`].

use super::option_error::Why;

/// Parses an `int`: decimal, octal after `0`, hexadecimal after `0x`; a minus sign is allowed.
/// Anything else is [`Why::NotNumber`].
pub fn int(text: &str) -> Result<i32, Why> {
    let value = match text.strip_prefix('-') {
        Some(digits) => i128::from(base0(digits)?).wrapping_neg(),
        None => i128::from(base0(text)?),
    };
    i32::try_from(value).map_err(|_| Why::TooLarge)
}

/// Parses an unsigned number with the same prefixes and errors as [`int`] and no sign.
pub fn base0(text: &str) -> Result<u64, Why> {
    let (text, radix) = match text.strip_prefix('0') {
        None | Some("") => (text, 10),
        Some(rest) => match rest.strip_prefix(['x', 'X']) {
            Some(rest) => (rest, 16),
            None => (rest, 8),
        },
    };
    digits(text, radix, Why::NotNumber)
}

/// Parses a hexadecimal number of up to 64 bits; `0x` and a plus sign are allowed. Anything else is
/// [`Why::NotHex`].
pub fn hex(text: &str) -> Result<u64, Why> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let text = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    digits(text, 16, Why::NotHex)
}

/// Parses exactly 32 hexadecimal digits. Anything else is [`Why::Gid`].
pub fn hex128(text: &str) -> Result<[u8; 16], Why> {
    if text.len() != 32 {
        return Err(Why::Gid);
    }
    let (high, low) = text.split_at_checked(16).ok_or(Why::Gid)?;
    let high = u128::from(digits(high, 16, Why::Gid)?);
    let low = u128::from(digits(low, 16, Why::Gid)?);
    Ok(((high << 64) | low).to_be_bytes())
}

/// The text before the first `separator`, an ASCII character, and the text after it, if there is
/// one. Unlike `str::split_once()`, it needs no overflow checks.
pub(super) fn split(text: &str, separator: u8) -> (&str, Option<&str>) {
    let before = text.bytes().take_while(|&byte| byte != separator).count();
    match text.split_at_checked(before) {
        Some((before, after)) => (before, after.get(1..)),
        None => (text, None),
    }
}

/// Parses one or more digits; `syntax` is the error for anything else.
fn digits(text: &str, radix: u8, syntax: Why) -> Result<u64, Why> {
    if text.is_empty() {
        return Err(syntax);
    }
    // Check all characters, so that an invalid one is a syntax error even after an overflow.
    let mut value = Some(0u64);
    for c in text.chars() {
        let digit = c.to_digit(radix.into()).ok_or(syntax)?;
        value = value
            .and_then(|value| value.checked_mul(radix.into()))
            .and_then(|value| value.checked_add(digit.into()));
    }
    value.ok_or(Why::TooLarge)
}
